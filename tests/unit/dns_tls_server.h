/* SPDX-License-Identifier: Apache-2.0
 *
 * A DNS server over TLS on loopback, in the test's own loop: certificates made here, right or wrong in one thing, and a
 * server that answers as told, also badly. Every name NUMBER.test has the address 192.0.2.NUMBER, but to one that
 * begins with 0 there is no answer. What comes to its port in the clear is counted. */
#ifndef TESTS_UNIT_DNS_TLS_SERVER_H
#define TESTS_UNIT_DNS_TLS_SERVER_H

#include "base/clock.h"
#include "base/stream.h"
#include "dns_server.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* --- certificates --- */

struct leaf {
    const char *cn, *san, *usage; /* NULL: no such extension */
    long from, to;                /* seconds from now */
    bool other_root;              /* signed by one that nobody named */
};
enum { LEAF_DAY = 86400 };
#define LEAF_GOOD                                                                                                      \
    {                                                                                                                  \
        .cn = "dns.test", .san = "DNS:dns.test", .usage = "serverAuth", .from = -LEAF_DAY, .to = LEAF_DAY              \
    }

struct tls_pki {
    EVP_PKEY *key[2], *leaf_key;
    X509 *root[2];
};

static inline void pki_extension(X509 *x, X509 *issuer, const char *name, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx(&v3, issuer, x, NULL, NULL, 0);
    X509V3_set_ctx_nodb(&v3);
    X509_EXTENSION *e = X509V3_EXT_nconf(NULL, &v3, name, value);
    if (!e || X509_add_ext(x, e, -1) != 1)
        abort();
    X509_EXTENSION_free(e);
}

static inline X509 *pki_cert(const char *cn, EVP_PKEY *key, X509 *issuer, long from, long to)
{
    static unsigned serial;
    X509 *x = X509_new();
    X509_NAME *name = X509_NAME_new();
    time_t now = (time_t)(clock_wall_us() / 1000000);
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), (long)++serial);
    ASN1_TIME_set(X509_getm_notBefore(x), now + from);
    ASN1_TIME_set(X509_getm_notAfter(x), now + to);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
    X509_set_subject_name(x, name);
    X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : name);
    X509_set_pubkey(x, key);
    X509_NAME_free(name);
    return x;
}

static inline void pki_init(struct tls_pki *p)
{
    for (int i = 0; i < 2; i++) {
        p->key[i] = EVP_EC_gen("P-256");
        p->root[i] = pki_cert(i ? "other root" : "root", p->key[i], NULL, -LEAF_DAY, 365 * LEAF_DAY);
        pki_extension(p->root[i], p->root[i], "basicConstraints", "critical,CA:TRUE");
        pki_extension(p->root[i], p->root[i], "keyUsage", "critical,keyCertSign,cRLSign");
        pki_extension(p->root[i], p->root[i], "subjectKeyIdentifier", "hash");
        if (X509_sign(p->root[i], p->key[i], EVP_sha256()) <= 0)
            abort();
    }
    p->leaf_key = EVP_EC_gen("P-256");
}

static inline void pki_done(struct tls_pki *p)
{
    for (int i = 0; i < 2; i++) {
        X509_free(p->root[i]);
        EVP_PKEY_free(p->key[i]);
    }
    EVP_PKEY_free(p->leaf_key);
}

static inline X509 *pki_leaf(struct tls_pki *p, const struct leaf *l)
{
    X509 *issuer = p->root[l->other_root], *x = pki_cert(l->cn, p->leaf_key, issuer, l->from, l->to);
    pki_extension(x, issuer, "basicConstraints", "critical,CA:FALSE");
    pki_extension(x, issuer, "keyUsage", "critical,digitalSignature");
    if (l->usage)
        pki_extension(x, issuer, "extendedKeyUsage", l->usage);
    if (l->san)
        pki_extension(x, issuer, "subjectAltName", l->san);
    pki_extension(x, issuer, "authorityKeyIdentifier", "keyid:always");
    if (X509_sign(x, p->key[l->other_root], EVP_sha256()) <= 0)
        abort();
    return x;
}

/* The PEM of a root; free the BIO. */
static inline struct str pki_pem(X509 *root, BIO **ret)
{
    char *text;
    *ret = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(*ret, root);
    long n = BIO_get_mem_data(*ret, &text);
    return str_of(text, (size_t)n);
}

/* --- the server --- */

enum behaviour {
    HONEST,
    HOLDS,          /* keeps its answers until tls_server_release, which gives them last first */
    SILENT,         /* reads and says nothing */
    CLOSES,         /* instead of an answer */
    CLOSES_AT_0,    /* ... of a name that begins so, and answers all others */
    CLOSES_AFTER_1, /* each connection: one answer, and at the next question the end */
    SAYS_TWICE,
    NEVER_ASKED,    /* an answer to another name, and then the right one */
    WRONG_ID,       /* the right one under another id */
    TRICKLES,       /* one byte of its answer, and no more */
    GIANT,          /* promises 65,535 bytes and gives 3 */
    SHORT,          /* a message that is too short for a header */
    GARBAGE,        /* bytes that are no TLS */
    KEY_UPDATES,    /* without end */
    HELLO_REQUESTS, /* the same in TLS 1.2 */
    FAILS,          /* SERVFAIL */
    BARE,           /* REFUSED, and not even the question */
    LAME,           /* no error and nothing in it */
    BAD_RECORD,     /* an address of five bytes */
    CUT_MARK,       /* TC, which has no meaning here */
    SLAMS,          /* closes as soon as it is connected, before TLS */
    MUTE,           /* takes connections and never begins TLS */
};

enum { PEERS = 32, HELD = 512, FRAME_MAX = 512 };
struct tls_server;
struct tls_peer {
    struct watch watch; /* fd -1: none */
    struct timer flood;
    struct tls_server *server;
    struct stream stream;
    struct buf in;
    bool up;
    unsigned answered;
};
struct tls_server {
    struct watch listener, udp;
    struct loop *loop;
    SSL_CTX *ctx;
    uint16_t port;
    enum behaviour how;
    struct tls_peer peers[PEERS];
    size_t accepted, handshakes, resumed, asked, closed, in_clear;
    struct {
        unsigned char bytes[FRAME_MAX];
        size_t n;
        struct tls_peer *peer;
        char name[256];
    } log[HELD];
};

static inline void peer_close(struct tls_peer *p)
{
    timer_clear(&p->flood);
    watch_del(&p->watch);
    stream_close(&p->stream);
    buf_done(&p->in);
    p->watch.fd = -1;
    p->server->closed++;
}

static inline void peer_say(struct tls_peer *p, const unsigned char *m, size_t n)
{
    unsigned char frame[2 + 1024];
    put16(frame, (unsigned)n);
    memcpy(frame + 2, m, n);
    (void)stream_write(&p->stream, str_of(frame, n + 2));
}

/* Where the question ends. */
static inline size_t question_end(const unsigned char *q)
{
    size_t at = 12;
    while (q[at])
        at += q[at] + 1u;
    return at + 5;
}

static inline size_t honest(unsigned char *out, const unsigned char *q, unsigned rcode)
{
    char records[64];
    snprintf(records, sizeof records, "@ A 192.0.2.%d 60", atoi((const char *)q + 13));
    return make_reply(out, q, question_end(q), rcode, rcode ? NULL : records);
}

static inline void on_flood(struct timer *t)
{
    struct tls_peer *p = (struct tls_peer *)((char *)t - offsetof(struct tls_peer, flood));
    for (int i = 0; i < 20; i++) {
        if (p->server->how == KEY_UPDATES)
            SSL_key_update(p->stream.ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
        else
            SSL_renegotiate(p->stream.ssl);
        (void)stream_handshake(&p->stream);
    }
    timer_set(p->server->loop, t, 1);
}

static inline void peer_answer(struct tls_peer *p, const unsigned char *q)
{
    struct tls_server *s = p->server;
    unsigned char out[1024];
    size_t n = honest(out, q, 0);
    if (q[13] == '0') { /* nobody can look up what begins so */
        if (s->how == CLOSES_AT_0)
            peer_close(p);
        return;
    }
    switch (s->how) {
    case HOLDS:
    case SILENT:
    case SLAMS:
    case MUTE:
        return;
    case CLOSES:
        peer_close(p);
        return;
    case CLOSES_AFTER_1:
        if (p->answered++ > 0) {
            peer_close(p);
            return;
        }
        break;
    case SAYS_TWICE:
        peer_say(p, out, n);
        break;
    case NEVER_ASKED:
        out[13] ^= 1;
        peer_say(p, out, n);
        out[13] ^= 1;
        break;
    case WRONG_ID:
        out[1] ^= 1;
        break;
    case TRICKLES:
        (void)stream_write(&p->stream, STR("\0"));
        return;
    case GIANT:
        (void)stream_write(&p->stream, STR("\xff\xff\1\2\3"));
        return;
    case SHORT:
        peer_say(p, out, 11);
        return;
    case GARBAGE:
        (void)!send(p->stream.fd, "not a record of TLS at all", 26, MSG_NOSIGNAL);
        return;
    case KEY_UPDATES:
    case HELLO_REQUESTS:
        timer_set(s->loop, &p->flood, 0);
        return;
    case FAILS:
        n = honest(out, q, 2);
        break;
    case BARE:
        memset(out + 2, 0, 10);
        out[2] = 0x81;
        out[3] = 0x85;
        n = 12;
        break;
    case LAME:
        n = make_reply(out, q, question_end(q), 0, NULL);
        break;
    case BAD_RECORD:
        out[n - 5] = 5; /* the length of the address */
        out[n++] = 0;
        break;
    case CUT_MARK:
        out[2] |= 2;
        break;
    case HONEST:
    case CLOSES_AT_0:
        break;
    }
    peer_say(p, out, n);
}

static inline void peer_asked(struct tls_peer *p, const unsigned char *q, size_t n)
{
    struct tls_server *s = p->server;
    if (s->asked >= HELD || n > FRAME_MAX || n < 17)
        abort();
    memcpy(s->log[s->asked].bytes, q, n);
    s->log[s->asked].n = n;
    s->log[s->asked].peer = p;
    size_t o = 0;
    for (size_t at = 12; q[at]; at += q[at] + 1u) {
        if (o)
            s->log[s->asked].name[o++] = '.';
        memcpy(s->log[s->asked].name + o, q + at + 1, q[at]);
        o += q[at];
    }
    s->log[s->asked++].name[o] = '\0';
    peer_answer(p, q);
}

static inline void on_peer(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct tls_peer *p = (struct tls_peer *)w;
    if (!p->up) {
        enum io io = stream_handshake(&p->stream);
        if (io == IO_AGAIN)
            return;
        if (io != IO_OK) {
            peer_close(p);
            return;
        }
        p->up = true;
        p->server->handshakes++;
        p->server->resumed += SSL_session_reused(p->stream.ssl) == 1;
    }
    for (;;) {
        size_t n;
        char *at = buf_reserve(&p->in, 4096);
        enum io io = stream_read(&p->stream, at, 4096, &n);
        if (io == IO_AGAIN)
            return;
        if (io != IO_OK) {
            peer_close(p);
            return;
        }
        buf_wrote(&p->in, n);
        for (;;) {
            struct str in = buf_str(&p->in);
            const unsigned char *b = (const unsigned char *)in.p;
            size_t size = in.n < 2 ? 0 : (size_t)(b[0] << 8 | b[1]);
            if (in.n < 2 || in.n < 2 + size)
                break;
            unsigned char q[FRAME_MAX];
            if (size > sizeof q)
                abort();
            memcpy(q, b + 2, size);
            buf_consume(&p->in, size + 2);
            peer_asked(p, q, size);
            if (w->fd < 0)
                return;
        }
    }
}

static inline void on_tls_accept(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct tls_server *s = (struct tls_server *)w;
    int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    s->accepted++;
    if (s->how == SLAMS) {
        close(fd);
        return;
    }
    struct tls_peer *p = s->peers;
    while (p < s->peers + PEERS && p->watch.fd >= 0)
        p++;
    if (p == s->peers + PEERS)
        abort();
    *p = (struct tls_peer) { .watch = { .fd = fd, .events = EPOLLIN, .cb = on_peer },
                             .server = s,
                             .flood.cb = on_flood };
    stream_init(&p->stream, fd);
    buf_init(&p->in, 1 << 20);
    SSL *ssl = SSL_new(s->ctx);
    SSL_set_accept_state(ssl);
    if (stream_tls(&p->stream, ssl) < 0)
        abort();
    if (s->how == MUTE)
        p->watch.events = 0;
    watch_add(s->loop, &p->watch);
}

static inline void on_tls_udp(struct watch *w, uint32_t revents)
{
    (void)revents;
    char b[16];
    while (recv(w->fd, b, sizeof b, 0) >= 0)
        ((struct tls_server *)((char *)w - offsetof(struct tls_server, udp)))->in_clear++;
}

/* What was held is said, last question first. */
static inline void tls_server_release(struct tls_server *s)
{
    unsigned char out[1024];
    for (size_t i = s->asked; i-- > 0;)
        if (s->log[i].peer->watch.fd >= 0)
            peer_say(s->log[i].peer, out, honest(out, s->log[i].bytes, 0));
}

/* version: the newest that it speaks, 0: all. */
static inline void tls_server_start(struct tls_server *s, struct loop *l, struct tls_pki *pki, const struct leaf *leaf,
                                    int version)
{
    memset(s, 0, sizeof *s);
    s->loop = l;
    for (size_t i = 0; i < PEERS; i++)
        s->peers[i].watch.fd = -1;
    X509 *x = pki_leaf(pki, leaf);
    s->ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_security_level(s->ctx, version ? 0 : 2); /* TLS 1.1 wants SHA-1 */
    if (SSL_CTX_use_certificate(s->ctx, x) != 1 || SSL_CTX_use_PrivateKey(s->ctx, pki->leaf_key) != 1 ||
        SSL_CTX_set_session_id_context(s->ctx, (const unsigned char *)"dns", 3) != 1 ||
        (version && SSL_CTX_set_max_proto_version(s->ctx, version) != 1))
        abort();
    X509_free(x);
    for (int tries = 0; tries < 50; tries++) {
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof sa;
        int t = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int u = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (bind(t, (struct sockaddr *)&sa, n) == 0 && getsockname(t, (struct sockaddr *)&sa, &n) == 0 &&
            bind(u, (struct sockaddr *)&sa, n) == 0 && listen(t, 64) == 0) {
            s->port = ntohs(sa.sin_port);
            s->listener = (struct watch) { .fd = t, .events = EPOLLIN, .cb = on_tls_accept };
            s->udp = (struct watch) { .fd = u, .events = EPOLLIN, .cb = on_tls_udp };
            watch_add(l, &s->listener);
            watch_add(l, &s->udp);
            return;
        }
        close(t);
        close(u);
    }
    abort();
}

static inline void tls_server_stop(struct tls_server *s)
{
    struct watch *own[] = { &s->listener, &s->udp };
    for (size_t i = 0; i < PEERS; i++)
        if (s->peers[i].watch.fd >= 0)
            peer_close(&s->peers[i]);
    for (size_t i = 0; i < 2; i++) {
        watch_del(own[i]);
        close(own[i]->fd);
    }
    SSL_CTX_free(s->ctx);
}

#endif
