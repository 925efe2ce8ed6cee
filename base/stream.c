/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL reads and writes through a BIO of our own. Its read side takes the prefix first, then the socket (or the
 * outer TLS). Its write side never blocks: records are appended to `outgoing`, one buffer for the whole process, and
 * stream_write sends that buffer with one call when OpenSSL is done; only what the kernel refuses is copied into the
 * stream's own `wire`. So SSL_write never asks to be repeated, and a message of several records costs one system call.
 */
#include "base/stream.h"

#include "base/log.h"

#include <errno.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

/* Records of one stream_read: enough for a block of bulk, few enough that tiny ones do not keep the loop from others.
 */
enum { STREAM_RECORDS = 8 };

static struct buf outgoing = { .max = STREAM_WIRE_MAX };
static BIO_METHOD *method;

static struct stream *stream_of(BIO *b)
{
    return BIO_get_data(b);
}

static bool is_inner(const struct stream *s, BIO *b)
{
    return s->outer && SSL_get_rbio(s->ssl) == b;
}

static int lower_read(struct stream *s, BIO *b, char *p, int n)
{
    BIO_clear_retry_flags(b);
    if (is_inner(s, b)) {
        int r = SSL_read(s->outer, p, n);
        if (r > 0)
            return r;
        int e = SSL_get_error(s->outer, r);
        if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE) {
            BIO_set_retry_read(b);
            return -1;
        }
        return 0;
    }
    if (s->stopped)
        return 0;
    ssize_t r;
    do
        r = recv(s->fd, p, (size_t)n, 0);
    while (r < 0 && errno == EINTR);
    if (r >= 0)
        return (int)r;
    if (errno == EAGAIN) {
        BIO_set_retry_read(b);
        return -1;
    }
    s->broken = true;
    return 0; /* a reset reads as an end without close_notify */
}

static int bio_read(BIO *b, char *p, int n)
{
    struct stream *s = stream_of(b);
    bool innermost = !s->outer || is_inner(s, b);
    if (innermost && buf_size(&s->prefix)) {
        struct str have = str_sub(buf_str(&s->prefix), 0, (size_t)n);
        memcpy(p, have.p, have.n);
        buf_consume(&s->prefix, have.n);
        if (!buf_size(&s->prefix))
            buf_done(&s->prefix);
        BIO_clear_retry_flags(b);
        return (int)have.n;
    }
    return lower_read(s, b, p, n);
}

static int bio_write(BIO *b, const char *p, int n)
{
    struct stream *s = stream_of(b);
    BIO_clear_retry_flags(b);
    if (is_inner(s, b)) /* encrypt once more; the outer's records land in `outgoing` */
        return SSL_write(s->outer, p, n);
    if (s->broken || buf_put(&outgoing, str_of(p, (size_t)n)))
        return -1;
    return n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b, (void)num, (void)ptr;
    return cmd == BIO_CTRL_FLUSH || cmd == BIO_CTRL_PUSH || cmd == BIO_CTRL_POP;
}

static int bio_create(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

static BIO *bio_new(struct stream *s)
{
    if (!method) {
        method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "stream");
        MUST(method);
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_ctrl);
        BIO_meth_set_create(method, bio_create);
    }
    BIO *b = BIO_new(method);
    if (b)
        BIO_set_data(b, s);
    return b;
}

/* AES-128 before AES-256, as browsers have it: 128 bits are enough, it costs a tenth less of what is most of a record's
 * price, and comes with SHA-256 instead of SHA-384 in the handshake. A peer without AES in hardware asks for ChaCha20
 * first, and gets it. */
static const char suites13[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
static const char suites12[] = "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL";

int stream_tls_context(SSL_CTX *ctx)
{
    SSL_CTX_set_security_level(ctx, 2);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* Record buffers are given back when a connection rests (stream_rest), not after every record: that cost an
     * allocation and, where plaintext is cleansed, 16 KiB of it each time. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    bool ok = SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 && SSL_CTX_set_ciphersuites(ctx, suites13) == 1 &&
              SSL_CTX_set_cipher_list(ctx, suites12) == 1 && SSL_CTX_set1_groups_list(ctx, "X25519:P-256:P-384") == 1;
    return ok ? 0 : -1;
}

void stream_init(struct stream *s, int fd)
{
    *s = (struct stream) { .fd = fd };
    buf_init(&s->prefix, 256 * 1024);
    buf_init(&s->wire, STREAM_WIRE_MAX);
}

int stream_prefix(struct stream *s, struct str bytes)
{
    return buf_put(&s->prefix, bytes);
}

int stream_tls(struct stream *s, SSL *ssl)
{
    BIO *b = s->outer ? NULL : bio_new(s);
    if (!b) {
        SSL_free(ssl);
        return -1;
    }
    s->outer = s->ssl;
    s->ssl = ssl;
    SSL_set_bio(ssl, b, b);
    return 0;
}

/* Sends p; what is left goes to wire. */
static enum io send_bytes(struct stream *s, struct str bytes)
{
    if (s->broken)
        return IO_ERROR;
    while (bytes.n && !stream_waiting(s)) {
        ssize_t k = send(s->fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (k >= 0) {
            bytes = str_from(bytes, (size_t)k);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            break;
        s->broken = true;
        return IO_ERROR;
    }
    if (bytes.n && buf_put(&s->wire, bytes)) {
        s->broken = true;
        return IO_ERROR;
    }
    return stream_waiting(s) ? IO_AGAIN : IO_OK;
}

static enum io send_outgoing(struct stream *s)
{
    enum io r = IO_OK;
    if (outgoing.failed)
        s->broken = true;
    if (buf_size(&outgoing))
        r = send_bytes(s, buf_str(&outgoing));
    else if (stream_waiting(s))
        r = IO_AGAIN;
    buf_reset(&outgoing);
    return r;
}

enum io stream_flush(struct stream *s)
{
    while (stream_waiting(s)) {
        struct str bytes = buf_str(&s->wire);
        ssize_t k = send(s->fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (k > 0) {
            buf_consume(&s->wire, (size_t)k);
            continue;
        }
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return IO_AGAIN;
        s->broken = true;
        return IO_ERROR;
    }
    buf_release_if_empty(&s->wire);
    return IO_OK;
}

/* What anybody left in the thread's error queue would be taken for the reason of the next failure. Nearly always it is
 * empty, and to ask that costs a fifth of emptying it. */
static void errors_forget(void)
{
    if (ERR_peek_error())
        ERR_clear_error();
}

static enum io fail(struct stream *s)
{
    unsigned long e = ERR_peek_error();
    s->reason = ERR_GET_REASON(e);
    s->alert = ERR_GET_LIB(e) == ERR_LIB_SSL && s->reason >= SSL_AD_REASON_OFFSET;
    bool cut = ERR_GET_LIB(e) == ERR_LIB_SSL && s->reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    ERR_clear_error();
    return cut ? IO_TRUNCATED : IO_ERROR;
}

static enum io from_ssl(struct stream *s, int r)
{
    switch (SSL_get_error(s->ssl, r)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return IO_AGAIN;
    case SSL_ERROR_WANT_X509_LOOKUP:
        return IO_PAUSED;
    case SSL_ERROR_ZERO_RETURN:
        return IO_EOF;
    case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return IO_TRUNCATED;
    default:
        return fail(s);
    }
}

enum io stream_handshake(struct stream *s)
{
    errors_forget();
    int r = SSL_do_handshake(s->ssl);
    enum io io = r == 1 ? IO_OK : from_ssl(s, r);
    enum io sent = send_outgoing(s); /* also the alert of a failed handshake */
    if (io == IO_OK && sent == IO_ERROR)
        return IO_TRUNCATED;
    return io;
}

static enum io read_plain(struct stream *s, char *p, size_t cap, size_t *ret_n)
{
    if (buf_size(&s->prefix)) {
        struct str have = str_sub(buf_str(&s->prefix), 0, cap);
        memcpy(p, have.p, have.n);
        buf_consume(&s->prefix, have.n);
        *ret_n = have.n;
        return IO_OK;
    }
    for (;;) {
        ssize_t k = recv(s->fd, p, cap, 0);
        if (k > 0) {
            *ret_n = (size_t)k;
            return IO_OK;
        }
        if (k == 0)
            return IO_EOF;
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            return IO_AGAIN;
        s->broken = true;
        return IO_TRUNCATED;
    }
}

/* At most one record, or what is left of it. */
static enum io read_record(struct stream *s, char *p, size_t cap, size_t *ret_n)
{
    errors_forget();
    int r = SSL_read(s->ssl, p, cap > INT32_MAX ? INT32_MAX : (int)cap);
    enum io io = r > 0 ? IO_OK : from_ssl(s, r);
    /* An answer to a key update, or an alert; the former also where data followed. It must not stay for the next
     * stream. */
    if (buf_size(&outgoing) || outgoing.failed)
        send_outgoing(s);
    if (r > 0)
        *ret_n = (size_t)r;
    return io;
}

static bool ssl_pending(const struct stream *s)
{
    return (s->ssl && SSL_has_pending(s->ssl)) || (s->outer && SSL_has_pending(s->outer));
}

enum io stream_read(struct stream *s, char *p, size_t cap, size_t *ret_n)
{
    MUST(cap);
    if (s->ended != IO_OK)
        return s->ended;
    if (!s->ssl)
        return read_plain(s, p, cap, ret_n);
    size_t n = 0;
    enum io io = IO_OK;
    for (int i = 0; i < STREAM_RECORDS && n < cap; i++) {
        size_t k;
        io = read_record(s, p + n, cap - n, &k);
        if (io != IO_OK)
            break;
        n += k;
        bool rest = i == 0 && s->cut;
        if (k < SSL3_RT_MAX_PLAIN_LENGTH && !rest &&
            !ssl_pending(s)) /* not in the midst of much: the next may be long in coming */
            break;
    }
    s->cut = n == cap;
    if (!n)
        return io;
    if (io != IO_OK && io != IO_AGAIN)
        s->ended = io;
    *ret_n = n;
    return IO_OK;
}

bool stream_pending(const struct stream *s)
{
    return s->ended != IO_OK || buf_size(&s->prefix) || ssl_pending(s);
}

enum io stream_write(struct stream *s, struct str bytes)
{
    if (s->broken)
        return IO_ERROR;
    if (!s->ssl)
        return send_bytes(s, bytes);
    while (bytes.n) {
        size_t n = bytes.n > 1 << 20 ? 1 << 20 : bytes.n;
        errors_forget();
        int r = SSL_write(s->ssl, bytes.p, (int)n);
        if (r <= 0) {
            s->broken = true;
            buf_reset(&outgoing);
            fail(s);
            return IO_ERROR;
        }
        bytes = str_from(bytes, (size_t)r);
    }
    return send_outgoing(s);
}

void stream_stop(struct stream *s)
{
    s->stopped = true;
}

void stream_rest(struct stream *s)
{
    /* SSL_free_buffers looks at what was read and at what is to be written, not at plaintext of a record that nobody
     * took yet. */
    if (s->ssl && !SSL_has_pending(s->ssl))
        SSL_free_buffers(s->ssl);
    if (s->outer && !SSL_has_pending(s->outer))
        SSL_free_buffers(s->outer);
}

void stream_shutdown(struct stream *s)
{
    if (s->fd < 0)
        return;
    for (int layer = 0; layer < 2; layer++) {
        SSL *ssl = layer ? s->outer : s->ssl;
        if (ssl && SSL_is_init_finished(ssl) && !(SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN)) {
            SSL_shutdown(ssl);
            ERR_clear_error();
        }
    }
    send_outgoing(s);
    if (!stream_waiting(s))
        shutdown(s->fd, SHUT_WR);
}

void stream_close(struct stream *s)
{
    if (s->ssl && SSL_is_init_finished(s->ssl)) {
        SSL_set_quiet_shutdown(s->ssl, s->broken || stream_waiting(s));
        SSL_shutdown(s->ssl);
        send_outgoing(s);
    }
    ERR_clear_error();
    SSL_free(s->ssl);
    SSL_free(s->outer);
    buf_done(&s->prefix);
    buf_done(&s->wire);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct stream) { .fd = -1 };
}

const char *stream_error(const struct stream *s)
{
    if (!s->reason)
        return "connection lost";
    const char *text = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, s->reason));
    return text ? text : "TLS error";
}
