/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/clock.h"
#include "ca/leaf.h"
#include "ca/root.h"
#include "ca/signer.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t second = 1000000, hour = INT64_C(3600000000), day = INT64_C(86400000000);

static struct {
    struct loop *loop;
    struct signer *signer;
    EVP_PKEY *ca_key;
    X509 *ca;
    EVP_PKEY *leaf_key;
    char spki[LEAF_SPKI_SIZE];
    int64_t now, ca_from, ca_to;
    struct buf out;
} t;

static struct str spki(void)
{
    return str_of(t.spki, sizeof t.spki);
}

static void export_spki(EVP_PKEY *key, char out[LEAF_SPKI_SIZE])
{
    unsigned char *der = NULL;
    assert_int_equal(i2d_PUBKEY(key, &der), LEAF_SPKI_SIZE);
    memcpy(out, der, LEAF_SPKI_SIZE);
    OPENSSL_free(der);
}

static int setup(void **state)
{
    (void)state;
    struct err err = { "" };
    struct buf cert, key;
    buf_init(&cert, 65536);
    buf_init(&key, 65536);
    key.wipe = true;
    buf_init(&t.out, 1 << 20);
    t.now = clock_wall_us() / second * second;
    t.loop = loop_new();
    if (root_make(t.now, &t.ca_key, &t.ca, &err) || root_put_cert(t.ca, &cert) || root_put_key(t.ca_key, &key) ||
        root_validity(t.ca, &t.ca_from, &t.ca_to))
        return -1;
    t.signer = signer_new(t.loop, buf_str(&cert), buf_str(&key), &err);
    t.leaf_key = EVP_EC_gen("P-256");
    export_spki(t.leaf_key, t.spki);
    buf_done(&cert);
    buf_done(&key);
    return t.signer ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    signer_free(&t.signer);
    loop_free(t.loop);
    EVP_PKEY_free(t.ca_key);
    EVP_PKEY_free(t.leaf_key);
    X509_free(t.ca);
    buf_done(&t.out);
    return 0;
}

/* A leaf at a moment, read back by OpenSSL, or NULL with the reason in err. */
static X509 *make_at(bool is_ip, struct str name, bool refusal, int64_t now_us, int64_t *ret_expires, struct err *err)
{
    buf_reset(&t.out);
    if (signer_make_leaf(t.signer, is_ip, name, spki(), refusal, now_us, &t.out, ret_expires, err)) {
        assert_int_equal(buf_size(&t.out), 0);
        return NULL;
    }
    const unsigned char *p = (const unsigned char *)buf_str(&t.out).p, *end = p + buf_size(&t.out);
    X509 *x = d2i_X509(NULL, &p, (long)buf_size(&t.out));
    assert_non_null(x);
    assert_ptr_equal(p, end);
    unsigned char *again = NULL; /* DER is unique: what OpenSSL would write is what we wrote */
    int n = i2d_X509(x, &again);
    assert_int_equal(n, (int)buf_size(&t.out));
    assert_memory_equal(again, buf_str(&t.out).p, (size_t)n);
    OPENSSL_free(again);
    return x;
}

/* The whole chain check a strict client makes. */
static int strict_check(X509 *leaf, X509 *ca, const char *host, const char *ip, int64_t now_us)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    X509_STORE_add_cert(store, ca);
    assert_int_equal(X509_STORE_CTX_init(ctx, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *p = X509_STORE_CTX_get0_param(ctx);
    X509_VERIFY_PARAM_set_flags(p, X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE);
    X509_VERIFY_PARAM_set_purpose(p, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM_set_time(p, (time_t)(now_us / second));
    if (host)
        assert_int_equal(X509_VERIFY_PARAM_set1_host(p, host, 0), 1);
    if (ip)
        assert_int_equal(X509_VERIFY_PARAM_set1_ip_asc(p, ip), 1);
    int ok = X509_verify_cert(ctx), why = X509_STORE_CTX_get_error(ctx);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    ERR_clear_error();
    return ok == 1 ? X509_V_OK : why;
}

static int critical_of(X509 *x, int nid)
{
    int at = X509_get_ext_by_NID(x, nid, -1);
    return at < 0 ? -1 : X509_EXTENSION_get_critical(X509_get_ext(x, at));
}

static void profile(void **state)
{
    (void)state;
    struct err err;
    int64_t expires;
    X509 *x = make_at(false, STR("api.test"), false, t.now, &expires, &err);
    assert_non_null(x);
    assert_int_equal(X509_get_version(x), X509_VERSION_3);
    assert_int_equal(X509_NAME_entry_count(X509_get_subject_name(x)), 0);
    assert_int_equal(X509_NAME_cmp(X509_get_issuer_name(x), X509_get_subject_name(t.ca)), 0);
    assert_int_equal(X509_get_signature_nid(x), NID_ecdsa_with_SHA256);
    assert_int_equal(X509_get_ext_count(x), 6);
    assert_int_equal(critical_of(x, NID_basic_constraints), 1);
    assert_int_equal(critical_of(x, NID_key_usage), 1);
    assert_int_equal(critical_of(x, NID_subject_alt_name), 1);
    assert_int_equal(critical_of(x, NID_ext_key_usage), 0);
    assert_int_equal(X509_check_ca(x), 0);
    assert_int_equal(X509_get_key_usage(x), KU_DIGITAL_SIGNATURE);
    assert_int_equal(X509_get_extended_key_usage(x), XKU_SSL_SERVER);
    assert_int_equal(ASN1_OCTET_STRING_cmp(X509_get0_authority_key_id(x), X509_get0_subject_key_id(t.ca)), 0);
    assert_int_equal(ASN1_STRING_length(X509_get0_subject_key_id(x)), 20);
    assert_int_equal(EVP_PKEY_eq(X509_get0_pubkey(x), t.leaf_key), 1);
    assert_int_equal(X509_verify(x, t.ca_key), 1);
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(names), 1);
    GENERAL_NAMES_free(names);
    assert_int_equal(strict_check(x, t.ca, "api.test", NULL, t.now), X509_V_OK);
    /* controls: the check can fail */
    assert_int_equal(strict_check(x, t.ca, "api2.test", NULL, t.now), X509_V_ERR_HOSTNAME_MISMATCH);
    assert_int_equal(strict_check(x, t.ca, "a.api.test", NULL, t.now), X509_V_ERR_HOSTNAME_MISMATCH);
    EVP_PKEY *key;
    X509 *other;
    assert_int_equal(root_make(t.now, &key, &other, &err), 0);
    assert_int_not_equal(strict_check(x, other, "api.test", NULL, t.now), X509_V_OK);
    X509_free(other);
    EVP_PKEY_free(key);
    X509_free(x);
}

static char long_name[LEAF_NAME_MAX + 2];

static void names(void **state)
{
    (void)state;
    /* 63.63.63.61 bytes: exactly 253 */
    memset(long_name, 'a', sizeof long_name);
    long_name[63] = long_name[127] = long_name[191] = '.';
    struct err err = { "" };
    static const struct {
        bool is_ip, fine;
        const char *name; /* NULL: long_name, n bytes */
        size_t n;
    } cases[] = {
        { false, true, "api.test", 0 },
        { false, true, "localhost", 0 },
        { false, true, "a", 0 },
        { false, true, "xn--bcher-kva.wild.test", 0 },
        { false, true, "a_b._c.test", 0 },
        { false, true, "1.2.3.4.test", 0 },
        { false, true, "0x7f.a", 0 },
        { false, true, "123.4a", 0 },
        { false, true, "a--b.test", 0 },
        { false, true, NULL, 253 },
        { false, false, NULL, 254 },
        { false, false, "", 0 },
        { false, false, "API.test", 0 },
        { false, false, "api.tesT", 0 },
        { false, false, "*.test", 0 },
        { false, false, "*", 0 },
        { false, false, "a*.test", 0 },
        { false, false, ".test", 0 },
        { false, false, "api.test.", 0 },
        { false, false, ".", 0 },
        { false, false, "api..test", 0 },
        { false, false, "-a.test", 0 },
        { false, true, "a-.test", 0 },
        { false, false, "a.-test", 0 },
        { false, true, "a.test-", 0 },
        { false, false, "a b.test", 0 },
        { false, false, "a.test\n", 0 },
        { false, false, "a.test\0x", 8 },
        { false, false, "\0", 1 },
        { false, false,
          "b\xc3\xbc"
          "cher.test",
          0 },
        { false, false, "a.test:443", 0 },
        { false, false, "a.test/", 0 },
        { false, false, "user@a.test", 0 },
        { false, false, "a%2e.test", 0 },
        { false, false, "127.0.0.1", 0 },
        { false, false, "2130706433", 0 },
        { false, false, "0x7f000001", 0 },
        { false, false, "0x", 0 },
        { false, false, "a.1", 0 },
        { false, false, "::1", 0 },
        { false, false, "[::1]", 0 },
        { false, false, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test",
          0 },                                                                                      /* a label of 64 */
        { false, true, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test", 0 }, /* and of 63 */
        { true, true, "127.0.0.1", 0 },
        { true, true, "::1", 0 },
        { true, true, "2001:db8::1", 0 },
        { true, true, "::ffff:192.0.2.1", 0 },
        { true, false, "", 0 },
        { true, false, "api.test", 0 },
        { true, false, "127.1", 0 },
        { true, false, "127.0.0.01", 0 },
        { true, false, "127.0.0.1 ", 0 },
        { true, false, "127.0.0.1\0", 10 },
        { true, false, "127.0.0.256", 0 },
        { true, false, "2130706433", 0 },
        { true, false, "[::1]", 0 },
        { true, false, "fe80::1%lo", 0 },
        { true, false, "10.0.0.0/8", 0 },
        { true, false, "::1::", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].name ? cases[i].name : long_name;
        size_t n = cases[i].n ? cases[i].n : strlen(text);
        int64_t expires = 42;
        X509 *x = make_at(cases[i].is_ip, str_of(text, n), false, t.now, &expires, &err);
        if ((x != NULL) != cases[i].fine)
            fail_msg("case %zu (%.*s): %s", i, (int)n, text, x ? "signed" : err.text);
        if (x) {
            char z[LEAF_NAME_MAX + 1];
            memcpy(z, text, n);
            z[n] = 0;
            int why = strict_check(x, t.ca, cases[i].is_ip ? NULL : z, cases[i].is_ip ? z : NULL, t.now);
            if (why != X509_V_OK)
                fail_msg("case %zu (%s): %s", i, z, X509_verify_cert_error_string(why));
        } else {
            assert_int_equal(expires, 42);
        }
        X509_free(x);
    }
}

/* Every length of a name: each nested length of the certificate passes 127, 128, 255 and 256 on the way. */
static void every_length(void **state)
{
    (void)state;
    struct err err = { "" };
    for (size_t n = 1; n <= LEAF_NAME_MAX; n++) {
        char name[LEAF_NAME_MAX + 1];
        memset(name, 'a', n);
        name[n] = 0;
        for (size_t i = 63; i + 1 < n; i += 64)
            name[i] = '.';
        if (n % 64 == 0) /* a label of 64 otherwise */
            name[n - 2] = '.';
        int64_t expires;
        X509 *x = make_at(false, str_of(name, n), false, t.now, &expires, &err);
        if (!x)
            fail_msg("%zu bytes: %s", n, err.text);
        unsigned char *again = NULL;
        assert_true(i2d_re_X509_tbs(x, &again) > 0);
        OPENSSL_free(again);
        int why = strict_check(x, t.ca, name, NULL, t.now);
        if (why != X509_V_OK)
            fail_msg("%zu bytes: %s", n, X509_verify_cert_error_string(why));
        X509_free(x);
    }
}

static void address_is_no_name(void **state)
{
    (void)state;
    struct err err;
    int64_t expires;
    X509 *x = make_at(true, STR("::1"), false, t.now, &expires, &err);
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(names), 1);
    GENERAL_NAME *g = sk_GENERAL_NAME_value(names, 0);
    assert_int_equal(g->type, GEN_IPADD);
    assert_int_equal(ASN1_STRING_length(g->d.iPAddress), 16);
    GENERAL_NAMES_free(names);
    X509_free(x);
}

static void keys(void **state)
{
    (void)state;
    struct err err;
    int64_t expires;
    EVP_PKEY *p384 = EVP_EC_gen("P-384"), *ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    unsigned char *a = NULL, *b = NULL;
    int an = i2d_PUBKEY(p384, &a), bn = i2d_PUBKEY(ed, &b);
    char off_curve[LEAF_SPKI_SIZE], compressed[LEAF_SPKI_SIZE], longer[LEAF_SPKI_SIZE + 1] = { 0 },
                                                                                        zero[LEAF_SPKI_SIZE];
    memcpy(off_curve, t.spki, sizeof off_curve);
    off_curve[LEAF_SPKI_SIZE - 1] ^= 1;
    memcpy(compressed, t.spki, sizeof compressed);
    compressed[26] = 2;
    memcpy(longer, t.spki, sizeof t.spki);
    memcpy(zero, t.spki, sizeof zero);
    memset(zero + 27, 0, 64);
    const struct {
        struct str spki;
        bool fine;
    } cases[] = {
        { spki(), true },
        { STR(""), false },
        { STR("garbage"), false },
        { str_sub(spki(), 0, LEAF_SPKI_SIZE - 1), false },
        { str_of(longer, sizeof longer), false },
        { str_of(off_curve, sizeof off_curve), false },
        { str_of(compressed, sizeof compressed), false },
        { str_of(zero, sizeof zero), false },
        { str_of(a, (size_t)an), false },
        { str_of(b, (size_t)bn), false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_reset(&t.out);
        int r = signer_make_leaf(t.signer, false, STR("api.test"), cases[i].spki, false, t.now, &t.out, &expires, &err);
        if ((r == 0) != cases[i].fine)
            fail_msg("key %zu: %d", i, r);
        assert_int_equal(ERR_peek_error(), 0);
    }
    OPENSSL_free(a);
    OPENSSL_free(b);
    EVP_PKEY_free(p384);
    EVP_PKEY_free(ed);
}

static void dates(void **state)
{
    (void)state;
    const struct {
        int64_t now;
        bool refusal;
        int64_t from, to; /* 0: refused */
    } cases[] = {
        { t.now, false, t.now - 2 * day, t.now + 5 * day }, /* which is also the CA's first second */
        { t.now, true, t.now - 2 * day, t.now + hour },
        { t.now + 999999, true, t.now - 2 * day, t.now + hour },
        { t.now - day, false, t.ca_from, t.now + 4 * day }, /* a clock set back: never before the CA's */
        { t.ca_from, false, t.ca_from, t.ca_from + 5 * day },
        { t.ca_from - 1, false, 0, 0 },
        { t.ca_to - 6 * day, false, t.ca_to - 8 * day, t.ca_to - day },
        { t.ca_to - day, false, t.ca_to - 3 * day, t.ca_to }, /* never outlives the CA */
        { t.ca_to - second, true, t.ca_to - second - 2 * day, t.ca_to },
        { t.ca_to, false, 0, 0 },
        { t.ca_to + day, true, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        int64_t expires = 0, from, to;
        X509 *x = make_at(false, STR("api.test"), cases[i].refusal, cases[i].now, &expires, &err);
        if ((x != NULL) != (cases[i].to != 0))
            fail_msg("case %zu: %s", i, x ? "signed" : err.text);
        if (!x)
            continue;
        assert_int_equal(root_validity(x, &from, &to), 0);
        if (from != cases[i].from || to != cases[i].to || expires != to)
            fail_msg("case %zu: from %+lld s, to %+lld s", i, (long long)(from - cases[i].from) / second,
                     (long long)(to - cases[i].to) / second);
        assert_int_equal(strict_check(x, t.ca, "api.test", NULL, cases[i].now), X509_V_OK);
        X509_free(x);
    }
}

static void time_forms(void **state)
{
    (void)state;
    static const struct {
        int64_t s;
        const char *der;
        size_t n;
    } cases[] = {
        { 0,
          "\x17\x0d"
          "700101000000Z",
          15 },
        { 2524607999,
          "\x17\x0d"
          "491231235959Z",
          15 },
        { 2524608000,
          "\x18\x0f"
          "20500101000000Z",
          17 },
        { 951782400,
          "\x17\x0d"
          "000229000000Z",
          15 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct der d;
        der_init(&d);
        der_put_time(&d, cases[i].s);
        assert_true(str_eq(der_str(&d), str_of(cases[i].der, cases[i].n)));
    }
    struct der d;
    der_init(&d);
    static const char big[DER_MAX];
    der_put_element(&d, DER_OCTET_STRING, str_of(big, DER_MAX - 4));
    assert_false(d.bad); /* exactly full: 04 82 0f fc … */
    assert_int_equal(d.at, 0);
    der_put_byte(&d, 0);
    assert_true(d.bad);
    der_init(&d);
    der_put_unsigned(&d, STR("\0\0\x80"));
    assert_true(str_eq(der_str(&d), STR("\x02\x02\0\x80")));
}

static int compare16(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

static void serials(void **state)
{
    (void)state;
    enum { N = 10000 };
    unsigned char(*seen)[16] = calloc(N, 16);
    assert_non_null(seen);
    struct err err;
    int64_t expires;
    for (size_t i = 0; i < N; i++) {
        buf_reset(&t.out);
        assert_int_equal(
            signer_make_leaf(t.signer, false, STR("api.test"), spki(), false, t.now, &t.out, &expires, &err), 0);
        /* 30 82 xx xx 30 82 xx xx a0 03 02 01 02 02 LEN: 16 octets, or 17 with a leading zero */
        const unsigned char *p = (const unsigned char *)buf_str(&t.out).p + 13;
        assert_int_equal(p[0], 0x02);
        assert_true((p[1] == 16 && p[2] != 0 && p[2] < 0x80) || (p[1] == 17 && p[2] == 0 && p[3] >= 0x80));
        memcpy(seen[i], p + 2 + (p[1] == 17), 16);
    }
    qsort(seen, N, 16, compare16);
    for (size_t i = 1; i < N; i++)
        assert_memory_not_equal(seen[i], seen[i - 1], 16);
    free(seen);
}

/* ---- the channel ---- */

struct peer {
    struct msg_channel *ch;
    unsigned answers[3];
    uint64_t last_id;
    bool closed;
};

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct peer *p = ctx;
    struct msg_reader r = msg_reader(m->body);
    uint8_t status = msg_get_u8(&r);
    struct str leaf = msg_get_str(&r, 8192);
    uint64_t expires = msg_get_u64(&r);
    assert_int_equal(m->type, CA_SIGNED);
    assert_true(msg_reader_end(&r));
    assert_in_range(status, 0, 2);
    assert_true((status == CA_OK) == (leaf.n > 0));
    assert_true((status == CA_OK) == (expires > 0));
    p->answers[status]++;
    p->last_id = m->id;
    return 0;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct peer *p = ctx;
    p->closed = true;
}

static const struct msg_ops ops = { .on_message = on_message, .on_closed = on_closed };

static void peer_open(struct peer *p, unsigned index, uint64_t rate)
{
    int fds[2];
    struct err err;
    *p = (struct peer) { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(signer_add_worker(t.signer, index, fds[0], rate, &err), 0);
    p->ch = msg_channel_new(t.loop, fds[1], &ops, p);
    assert_non_null(p->ch);
}

static void put_sign(struct msg_writer *w, uint8_t kind, struct str name, struct str key, uint8_t refusal)
{
    msg_writer_init(w);
    msg_put_u8(w, kind);
    msg_put_str(w, name);
    msg_put_str(w, key);
    msg_put_u8(w, refusal);
}

static void peer_ask(struct peer *p, struct str name, uint64_t id)
{
    struct msg_writer w;
    put_sign(&w, 1, name, spki(), 0);
    assert_int_equal(msg_send(p->ch, CA_SIGN, id, buf_str(&w.buf), NULL, 0), 0);
    buf_done(&w.buf);
}

static unsigned peer_total(const struct peer *p)
{
    return p->answers[0] + p->answers[1] + p->answers[2];
}

static void turn(const struct peer *p, unsigned until)
{
    for (int i = 0; i < 1000 && peer_total(p) < until && !p->closed; i++)
        loop_run_once(t.loop, 20);
}

static void rate_limit(void **state)
{
    (void)state;
    struct peer p, q;
    peer_open(&p, 7, 1); /* one a second, burst ten */
    for (uint64_t i = 1; i <= 15; i++)
        peer_ask(&p, STR("api.test"), i);
    turn(&p, 15);
    assert_int_equal(peer_total(&p), 15);
    assert_in_range(p.answers[CA_OK], 10, 11); /* a second may have passed */
    assert_int_equal(p.last_id, 15);
    /* another worker is not touched by it */
    peer_open(&q, 8, 1);
    peer_ask(&q, STR("api.test"), 1);
    turn(&q, 1);
    assert_int_equal(q.answers[CA_OK], 1);
    /* a new channel of the same worker brings no new share */
    msg_channel_free(&p.ch);
    peer_open(&p, 7, 1);
    for (uint64_t i = 1; i <= 5; i++)
        peer_ask(&p, STR("api.test"), i);
    turn(&p, 5);
    assert_in_range(p.answers[CA_RATE_LIMITED], 3, 5);
    /* control: a higher rate */
    msg_channel_free(&q.ch);
    peer_open(&q, 9, 100);
    for (uint64_t i = 1; i <= 15; i++)
        peer_ask(&q, STR("api.test"), i);
    turn(&q, 15);
    assert_int_equal(q.answers[CA_OK], 15);
    msg_channel_free(&p.ch);
    msg_channel_free(&q.ch);
}

static void hostile_worker(void **state)
{
    (void)state;
    struct msg_writer good, bad_kind, bad_refusal, cut, trailing, huge_name;
    put_sign(&good, 1, STR("api.test"), spki(), 0);
    put_sign(&bad_kind, 3, STR("api.test"), spki(), 0);
    put_sign(&bad_refusal, 1, STR("api.test"), spki(), 2);
    put_sign(&cut, 1, STR("api.test"), spki(), 0);
    put_sign(&trailing, 1, STR("api.test"), spki(), 0);
    msg_put_u8(&trailing, 0);
    static const char big[2000];
    put_sign(&huge_name, 1, str_of(big, sizeof big), spki(), 0);
    const struct {
        uint16_t type;
        struct str body;
        bool closes;
    } cases[] = {
        { CA_SIGN, buf_str(&good.buf), false },
        { CA_SIGNED, buf_str(&good.buf), true },
        { 77, buf_str(&good.buf), true },
        { CA_SIGN, STR(""), true },
        { CA_SIGN, buf_str(&bad_kind.buf), true },
        { CA_SIGN, buf_str(&bad_refusal.buf), true },
        { CA_SIGN, str_sub(buf_str(&cut.buf), 0, buf_size(&cut.buf) - 1), true },
        { CA_SIGN, buf_str(&trailing.buf), true },
        { CA_SIGN, buf_str(&huge_name.buf), true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct peer p;
        peer_open(&p, 20 + (unsigned)i, 100);
        assert_int_equal(msg_send(p.ch, cases[i].type, 5, cases[i].body, NULL, 0), 0);
        turn(&p, 1);
        if (p.closed != cases[i].closes)
            fail_msg("case %zu: %s", i, p.closed ? "closed" : "answered");
        assert_int_equal(p.answers[CA_OK], !cases[i].closes);
        msg_channel_free(&p.ch);
    }
    /* a name that is refused is an answer, not an offence */
    struct peer p;
    peer_open(&p, 40, 100);
    peer_ask(&p, STR("*.test"), 1);
    peer_ask(&p, STR("api.test"), 2);
    turn(&p, 2);
    assert_int_equal(p.answers[CA_REFUSED], 1);
    assert_int_equal(p.answers[CA_OK], 1);
    msg_channel_free(&p.ch);
    buf_done(&good.buf);
    buf_done(&bad_kind.buf);
    buf_done(&bad_refusal.buf);
    buf_done(&cut.buf);
    buf_done(&trailing.buf);
    buf_done(&huge_name.buf);
}

static void refuses_a_bad_root(void **state)
{
    (void)state;
    struct err err = { "" };
    assert_null(signer_new(t.loop, STR("no certificate"), STR("no key"), &err));
    assert_true(err.text[0] != 0);
    EVP_PKEY *key;
    X509 *cert;
    struct buf c, k;
    buf_init(&c, 65536);
    buf_init(&k, 65536);
    k.wipe = true;
    assert_int_equal(root_make(t.now - 397 * day, &key, &cert, &err), 0);
    root_put_cert(cert, &c);
    root_put_key(key, &k);
    assert_null(signer_new(t.loop, buf_str(&c), buf_str(&k), &err));
    assert_non_null(strstr(err.text, "expired"));
    buf_done(&c);
    buf_done(&k);
    X509_free(cert);
    EVP_PKEY_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile),
        cmocka_unit_test(names),
        cmocka_unit_test(every_length),
        cmocka_unit_test(address_is_no_name),
        cmocka_unit_test(keys),
        cmocka_unit_test(dates),
        cmocka_unit_test(time_forms),
        cmocka_unit_test(serials),
        cmocka_unit_test(rate_limit),
        cmocka_unit_test(hostile_worker),
        cmocka_unit_test(refuses_a_bad_root),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
