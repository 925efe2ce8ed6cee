/* SPDX-License-Identifier: Apache-2.0
 *
 * Two streams back to back over a socket pair: plain, TLS, TLS in TLS. What one must not do to the other (or to a third
 * one, with which it shares its output buffer and OpenSSL's error queue) is tested with a third. */
#include "base/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static SSL_CTX *server_ctx, *client_ctx, *strict_ctx;

static int make_contexts(void **state)
{
    (void)state;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"lab.test", -1, -1,
                               0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    server_ctx = SSL_CTX_new(TLS_server_method());
    client_ctx = SSL_CTX_new(TLS_client_method());
    strict_ctx = SSL_CTX_new(TLS_client_method());
    assert_int_equal(SSL_CTX_use_certificate(server_ctx, x), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server_ctx, key), 1);
    SSL_CTX_set_verify(strict_ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX *all[] = { server_ctx, client_ctx, strict_ctx };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(stream_tls_context(all[i]), 0);
    EVP_PKEY_free(key);
    X509_free(x);
    return 0;
}

static int free_contexts(void **state)
{
    (void)state;
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
    SSL_CTX_free(strict_ctx);
    return 0;
}

struct pair {
    struct stream a, b; /* a: client, b: server */
};

static void pair_open(struct pair *p)
{
    int s[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s), 0);
    stream_init(&p->a, s[0]);
    stream_init(&p->b, s[1]);
}

static void pair_close(struct pair *p)
{
    stream_close(&p->a);
    stream_close(&p->b);
}

static SSL *client_of(SSL_CTX *ctx)
{
    SSL *ssl = SSL_new(ctx);
    SSL_set_connect_state(ssl);
    return ssl;
}

static SSL *server_of(SSL_CTX *ctx)
{
    SSL *ssl = SSL_new(ctx);
    SSL_set_accept_state(ssl);
    return ssl;
}

static void shake(struct pair *p)
{
    enum io a = IO_AGAIN, b = IO_AGAIN;
    for (int i = 0; i < 50 && (a != IO_OK || b != IO_OK); i++) {
        if (a == IO_AGAIN)
            a = stream_handshake(&p->a);
        if (b == IO_AGAIN)
            b = stream_handshake(&p->b);
    }
    assert_int_equal(a, IO_OK);
    assert_int_equal(b, IO_OK);
}

static void pair_tls(struct pair *p)
{
    assert_int_equal(stream_tls(&p->a, client_of(client_ctx)), 0);
    assert_int_equal(stream_tls(&p->b, server_of(server_ctx)), 0);
    shake(p);
}

/* Reads what there is; the reason why it stopped. */
static enum io read_all(struct stream *s, struct buf *out)
{
    for (;;) {
        char *p = buf_reserve(out, 32768);
        size_t n = 0;
        assert_non_null(p);
        enum io io = stream_read(s, p, 32768, &n);
        if (io != IO_OK)
            return io;
        assert_true(n > 0);
        buf_wrote(out, n);
    }
}

static void fill(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(i * 31 + i / 251);
}

/* Sends n bytes from one to the other through whatever the kernel takes at once, and compares. */
static void carry(struct stream *from, struct stream *to, size_t n, bool must_wait)
{
    char *sent = malloc(n);
    assert_non_null(sent);
    fill(sent, n);
    struct buf got;
    buf_init(&got, n + 65536);
    enum io io = stream_write(from, str_of(sent, n));
    assert_true(io == IO_OK || io == IO_AGAIN);
    assert_int_equal(io == IO_AGAIN, stream_waiting(from));
    if (must_wait)
        assert_int_equal(io, IO_AGAIN);
    for (int i = 0; i < 10000 && buf_size(&got) < n; i++) {
        assert_int_equal(read_all(to, &got), IO_AGAIN);
        if (stream_waiting(from))
            assert_true(stream_flush(from) != IO_ERROR);
    }
    assert_false(stream_waiting(from));
    assert_null(from->wire.mem); /* an idle connection holds no buffer */
    assert_int_equal(buf_size(&got), n);
    assert_memory_equal(buf_str(&got).p, sent, n);
    buf_done(&got);
    free(sent);
}

static void narrow(struct stream *s)
{
    int bytes = 8192;
    assert_int_equal(setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
}

static void plain_prefix_comes_first(void **state)
{
    (void)state;
    struct pair p;
    char got[16];
    size_t n;
    pair_open(&p);
    assert_int_equal(stream_read(&p.b, got, sizeof got, &n), IO_AGAIN);
    assert_int_equal(stream_prefix(&p.b, STR("first")), 0);
    assert_true(stream_pending(&p.b));
    assert_int_equal(stream_write(&p.a, STR("second")), IO_OK);
    assert_int_equal(stream_read(&p.b, got, 3, &n), IO_OK);
    assert_int_equal(n, 3);
    assert_int_equal(stream_read(&p.b, got, sizeof got, &n), IO_OK);
    assert_true(str_eq(str_of(got, n), STR("st")));
    assert_false(stream_pending(&p.b));
    assert_int_equal(stream_read(&p.b, got, sizeof got, &n), IO_OK);
    assert_true(str_eq(str_of(got, n), STR("second")));
    stream_shutdown(&p.a);
    assert_int_equal(stream_read(&p.b, got, sizeof got, &n), IO_EOF);
    assert_int_equal(stream_write(&p.b, STR("still")), IO_OK); /* half-closed: the other way goes on */
    assert_int_equal(stream_read(&p.a, got, sizeof got, &n), IO_OK);
    pair_close(&p);
}

static void plain_write_to_nobody_is_an_error(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    stream_close(&p.b);
    assert_int_equal(stream_write(&p.a, STR("x")), IO_ERROR);
    assert_int_equal(stream_write(&p.a, STR("x")), IO_ERROR);
    pair_close(&p);
}

static void what_the_kernel_refuses_waits(void **state)
{
    (void)state;
    for (int layers = 0; layers < 3; layers++) {
        struct pair p;
        pair_open(&p);
        for (int i = 0; i < layers; i++)
            pair_tls(&p);
        narrow(&p.a);
        narrow(&p.b);
        carry(&p.a, &p.b, 700000, true);
        carry(&p.b, &p.a, 700000, true);
        carry(&p.a, &p.b, 1, false);
        pair_close(&p);
    }
}

static void more_than_the_wire_takes_is_an_error(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    narrow(&p.a);
    size_t n = (size_t)STREAM_WIRE_MAX + 1024 * 1024;
    char *much = calloc(1, n);
    assert_int_equal(stream_write(&p.a, str_of(much, n)), IO_ERROR);
    assert_int_equal(stream_write(&p.a, STR("x")), IO_ERROR);
    free(much);
    pair_close(&p);
}

static void both_of_ours_agree_on_aes_128(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    pair_tls(&p);
    assert_string_equal(SSL_get_version(p.a.ssl), "TLSv1.3");
    assert_string_equal(SSL_get_cipher_name(p.a.ssl), "TLS_AES_128_GCM_SHA256");
    pair_close(&p);
}

static void tls_end_and_truncation_differ(void **state)
{
    (void)state;
    for (int layers = 1; layers < 3; layers++)
        for (int notify = 0; notify < 2; notify++) {
            struct pair p;
            struct buf got;
            buf_init(&got, 1 << 20);
            pair_open(&p);
            for (int i = 0; i < layers; i++)
                pair_tls(&p);
            assert_int_equal(stream_write(&p.a, STR("last words")), IO_OK);
            if (notify)
                stream_shutdown(&p.a);
            else
                assert_int_equal(shutdown(p.a.fd, SHUT_WR), 0);
            assert_int_equal(read_all(&p.b, &got), notify ? IO_EOF : IO_TRUNCATED);
            assert_true(str_eq(buf_str(&got), STR("last words")));
            buf_reset(&got);
            if (notify) { /* and the other way still goes */
                assert_int_equal(stream_write(&p.b, STR("answer")), IO_OK);
                assert_int_equal(read_all(&p.a, &got), IO_AGAIN);
                assert_true(str_eq(buf_str(&got), STR("answer")));
            }
            buf_done(&got);
            pair_close(&p);
        }
}

/* A broken stream says no goodbye: its peer must be able to see that the end was no end. */
static void a_broken_stream_closes_without_notify(void **state)
{
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        struct pair p;
        char got[16];
        size_t n;
        pair_open(&p);
        pair_tls(&p);
        p.b.broken = broken;
        stream_close(&p.b);
        assert_int_equal(stream_read(&p.a, got, sizeof got, &n), broken ? IO_TRUNCATED : IO_EOF);
        stream_close(&p.a);
    }
}

/* One read takes several records, and an end behind them only with the next. */
static void a_read_takes_what_records_are_there(void **state)
{
    (void)state;
    enum { FULL = SSL3_RT_MAX_PLAIN_LENGTH, ROOM = 5 * FULL };
    for (int notify = 0; notify < 2; notify++) {
        struct pair p;
        size_t n;
        char *sent = malloc(ROOM), *got = malloc(ROOM);
        assert_true(sent && got);
        fill(sent, ROOM);
        pair_open(&p);
        pair_tls(&p);
        assert_int_equal(stream_read(&p.a, got, ROOM, &n), IO_AGAIN); /* its session ticket */
        assert_int_equal(stream_write(&p.a, str_of(sent, 3 * FULL + 5)), IO_OK);
        if (notify)
            stream_shutdown(&p.a);
        assert_int_equal(stream_read(&p.b, got, 2 * FULL - 1, &n), IO_OK); /* no more than there is room for */
        assert_int_equal(n, 2 * FULL - 1);
        assert_true(stream_pending(&p.b));
        assert_int_equal(stream_read(&p.b, got + n, ROOM - n, &n), IO_OK);
        assert_int_equal(n, FULL + 6);
        assert_memory_equal(got, sent, 3 * FULL + 5);
        assert_int_equal(stream_pending(&p.b), notify); /* for an end that was seen already the socket will not wake anybody */
        for (int i = 0; i < 2; i++)
            assert_int_equal(stream_read(&p.b, got, ROOM, &n), notify ? IO_EOF : IO_AGAIN);
        free(sent);
        free(got);
        pair_close(&p);
    }
}

/* Nor is the reason of a failure lost that came behind good records. */
static void an_error_behind_records_is_told_after_them(void **state)
{
    (void)state;
    enum { FULL = SSL3_RT_MAX_PLAIN_LENGTH };
    struct pair p;
    size_t n;
    char *sent = calloc(1, FULL), *got = malloc(4 * FULL);
    assert_true(sent && got);
    pair_open(&p);
    pair_tls(&p);
    assert_int_equal(stream_write(&p.a, str_of(sent, FULL)), IO_OK);
    assert_int_equal(send(p.a.fd, "\x17\x03\x03\x00\x20garbage garbage garbage garbage", 37, 0), 37);
    assert_int_equal(stream_read(&p.b, got, 4 * FULL, &n), IO_OK);
    assert_int_equal(n, FULL);
    assert_true(stream_pending(&p.b));
    assert_int_equal(stream_read(&p.b, got, 4 * FULL, &n), IO_ERROR);
    assert_int_equal(p.b.reason, SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC);
    free(sent);
    free(got);
    pair_close(&p);
}

static void garbage_is_an_error(void **state)
{
    (void)state;
    struct pair p;
    char got[16];
    size_t n;
    pair_open(&p);
    pair_tls(&p);
    assert_int_equal(send(p.a.fd, "\x17\x03\x03\x00\x20garbage garbage garbage garbage", 37, 0), 37);
    assert_int_equal(stream_read(&p.b, got, sizeof got, &n), IO_ERROR);
    assert_false(p.b.alert);
    assert_int_not_equal(p.b.reason, 0);
    pair_close(&p);
}

static void an_alert_of_the_peer_is_told(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    assert_int_equal(stream_tls(&p.a, client_of(strict_ctx)), 0);
    assert_int_equal(stream_tls(&p.b, server_of(server_ctx)), 0);
    assert_int_equal(stream_handshake(&p.a), IO_AGAIN);
    assert_int_equal(stream_handshake(&p.b), IO_AGAIN);
    assert_int_equal(stream_handshake(&p.a), IO_ERROR); /* and its alert was sent */
    assert_false(p.a.alert);
    assert_int_equal(stream_handshake(&p.b), IO_ERROR);
    assert_true(p.b.alert);
    assert_int_equal(p.b.reason, SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_CA);
    assert_string_equal(stream_error(&p.b), "tlsv1 alert unknown ca");
    pair_close(&p);
}

/* Bytes read by other means come before the socket's: the ClientHello that came with the CONNECT. */
static void tls_takes_its_prefix_first(void **state)
{
    (void)state;
    for (int outer = 0; outer < 2; outer++) {
        struct pair p;
        char hello[4096];
        size_t n = 0;
        pair_open(&p);
        if (outer)
            pair_tls(&p);
        assert_int_equal(stream_tls(&p.a, client_of(client_ctx)), 0);
        assert_int_equal(stream_handshake(&p.a), IO_AGAIN);
        assert_int_equal(stream_read(&p.b, hello, sizeof hello, &n), IO_OK);
        assert_true(n > 100 && hello[0] == 0x16);
        assert_int_equal(stream_tls(&p.b, server_of(server_ctx)), 0);
        assert_int_equal(stream_prefix(&p.b, str_of(hello, n)), 0);
        shake(&p);
        assert_null(p.b.prefix.mem);
        carry(&p.a, &p.b, 100000, false);
        carry(&p.b, &p.a, 100000, false);
        pair_close(&p);
    }
}

static void two_layers_are_the_most(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    pair_tls(&p);
    pair_tls(&p);
    assert_int_equal(stream_tls(&p.a, client_of(client_ctx)), -1);
    carry(&p.a, &p.b, 10, false);
    pair_close(&p);
}

/* A read that gives data may have made OpenSSL answer a key update as well. That answer is for this peer and nobody
 * else. */
static void a_key_update_is_answered_on_its_own_stream(void **state)
{
    (void)state;
    struct pair p, other;
    struct buf got;
    char in[64];
    size_t n;
    buf_init(&got, 1 << 20);
    pair_open(&p);
    pair_tls(&p);
    pair_open(&other);
    pair_tls(&other);
    assert_int_equal(read_all(&p.a, &got), IO_AGAIN); /* tickets */
    assert_int_equal(read_all(&other.a, &got), IO_AGAIN);
    assert_int_equal(SSL_key_update(p.a.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(stream_write(&p.a, STR("with data behind it")), IO_OK);
    assert_int_equal(stream_read(&p.b, in, sizeof in, &n), IO_OK);
    assert_true(str_eq(str_of(in, n), STR("with data behind it")));
    assert_int_equal(stream_write(&other.b, STR("undisturbed")), IO_OK);
    assert_int_equal(read_all(&other.a, &got), IO_AGAIN);
    assert_true(str_eq(buf_str(&got), STR("undisturbed")));
    buf_reset(&got);
    assert_int_equal(stream_write(&p.b, STR("under the new key")), IO_OK);
    assert_int_equal(read_all(&p.a, &got), IO_AGAIN);
    assert_true(str_eq(buf_str(&got), STR("under the new key")));
    buf_done(&got);
    pair_close(&p);
    pair_close(&other);
}

/* TLS 1.2: a request to renegotiate is declined with a warning in the middle of a read that goes on and returns data.
 */
static void a_declined_renegotiation_stays_on_its_own_stream(void **state)
{
    (void)state;
    struct pair p, other;
    struct buf got;
    char in[64];
    size_t n;
    buf_init(&got, 1 << 20);
    pair_open(&p);
    SSL *client = client_of(client_ctx);
    SSL_set_max_proto_version(client, TLS1_2_VERSION);
    SSL_set_options(client, SSL_OP_NO_RENEGOTIATION);
    assert_int_equal(stream_tls(&p.a, client), 0);
    assert_int_equal(stream_tls(&p.b, server_of(server_ctx)), 0);
    shake(&p);
    pair_open(&other);
    pair_tls(&other);
    assert_int_equal(read_all(&other.a, &got), IO_AGAIN);
    SSL_clear_options(p.b.ssl, SSL_OP_NO_RENEGOTIATION); /* this one may ask */
    assert_int_equal(SSL_renegotiate(p.b.ssl), 1);
    assert_int_equal(stream_handshake(&p.b), IO_OK); /* sends HelloRequest */
    assert_int_equal(stream_write(&p.b, STR("and data")), IO_OK);
    assert_int_equal(stream_read(&p.a, in, sizeof in, &n), IO_OK);
    assert_true(str_eq(str_of(in, n), STR("and data")));
    assert_int_equal(stream_write(&other.b, STR("undisturbed")), IO_OK);
    assert_int_equal(read_all(&other.a, &got), IO_AGAIN);
    assert_true(str_eq(buf_str(&got), STR("undisturbed")));
    buf_done(&got);
    pair_close(&p);
    pair_close(&other);
}

/* OpenSSL's error queue is one for the thread. What some other code left there is not this stream's failure. */
static void errors_of_others_are_not_ours(void **state)
{
    (void)state;
    struct pair p;
    char in[64];
    size_t n;
    pair_open(&p);
    ERR_raise(ERR_LIB_X509, X509_R_INVALID_TRUST);
    pair_tls(&p);
    ERR_raise(ERR_LIB_X509, X509_R_INVALID_TRUST);
    assert_int_equal(stream_read(&p.b, in, sizeof in, &n), IO_AGAIN);
    ERR_raise(ERR_LIB_X509, X509_R_INVALID_TRUST);
    assert_int_equal(stream_write(&p.a, STR("fine")), IO_OK);
    ERR_raise(ERR_LIB_X509, X509_R_INVALID_TRUST);
    assert_int_equal(stream_read(&p.b, in, sizeof in, &n), IO_OK);
    stream_shutdown(&p.a);
    ERR_raise(ERR_LIB_X509, X509_R_INVALID_TRUST);
    assert_int_equal(stream_read(&p.b, in, sizeof in, &n), IO_EOF);
    pair_close(&p);
    ERR_clear_error();
}

static int wait_for_certificate(SSL *ssl, void *arg)
{
    (void)ssl;
    return *(int *)arg;
}

static void a_handshake_can_wait_for_its_certificate(void **state)
{
    (void)state;
    struct pair p;
    int answer = -1;
    pair_open(&p);
    assert_int_equal(stream_tls(&p.a, client_of(client_ctx)), 0);
    assert_int_equal(stream_tls(&p.b, server_of(server_ctx)), 0);
    SSL_set_cert_cb(p.b.ssl, wait_for_certificate, &answer);
    assert_int_equal(stream_handshake(&p.a), IO_AGAIN);
    assert_int_equal(stream_handshake(&p.b), IO_PAUSED);
    assert_int_equal(stream_handshake(&p.b), IO_PAUSED);
    answer = 1;
    shake(&p);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_prefix_comes_first),
        cmocka_unit_test(plain_write_to_nobody_is_an_error),
        cmocka_unit_test(what_the_kernel_refuses_waits),
        cmocka_unit_test(more_than_the_wire_takes_is_an_error),
        cmocka_unit_test(both_of_ours_agree_on_aes_128),
        cmocka_unit_test(tls_end_and_truncation_differ),
        cmocka_unit_test(a_broken_stream_closes_without_notify),
        cmocka_unit_test(a_read_takes_what_records_are_there),
        cmocka_unit_test(an_error_behind_records_is_told_after_them),
        cmocka_unit_test(garbage_is_an_error),
        cmocka_unit_test(an_alert_of_the_peer_is_told),
        cmocka_unit_test(tls_takes_its_prefix_first),
        cmocka_unit_test(two_layers_are_the_most),
        cmocka_unit_test(a_key_update_is_answered_on_its_own_stream),
        cmocka_unit_test(a_declined_renegotiation_stays_on_its_own_stream),
        cmocka_unit_test(errors_of_others_are_not_ours),
        cmocka_unit_test(a_handshake_can_wait_for_its_certificate),
    };
    return cmocka_run_group_tests(tests, make_contexts, free_contexts);
}
