/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "ca/root.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NOW INT64_C(1800000000000000) /* 2027-01-15T08:00:00Z */
static const int64_t day_us = INT64_C(86400000000);

struct pair {
    EVP_PKEY *key;
    X509 *cert;
    struct buf cert_pem, key_pem;
};

static struct pair pair_new(int64_t now_us)
{
    struct pair p = { 0 };
    struct err err;
    assert_int_equal(root_make(now_us, &p.key, &p.cert, &err), 0);
    buf_init(&p.cert_pem, 65536);
    buf_init(&p.key_pem, 65536);
    p.key_pem.wipe = true;
    assert_int_equal(root_put_cert(p.cert, &p.cert_pem), 0);
    assert_int_equal(root_put_key(p.key, &p.key_pem), 0);
    return p;
}

static void pair_done(struct pair *p)
{
    EVP_PKEY_free(p->key);
    X509_free(p->cert);
    buf_done(&p->cert_pem);
    buf_done(&p->key_pem);
}

static void shape(void **state)
{
    (void)state;
    struct pair p = pair_new(NOW);
    X509 *c = p.cert;
    int critical;
    assert_int_equal(X509_get_version(c), X509_VERSION_3);
    BASIC_CONSTRAINTS *bc = X509_get_ext_d2i(c, NID_basic_constraints, &critical, NULL);
    assert_non_null(bc);
    assert_true(critical == 1 && bc->ca && ASN1_INTEGER_get(bc->pathlen) == 0);
    BASIC_CONSTRAINTS_free(bc);
    ASN1_BIT_STRING *ku = X509_get_ext_d2i(c, NID_key_usage, &critical, NULL);
    assert_true(ku && critical == 1);
    ASN1_BIT_STRING_free(ku);
    assert_int_equal(X509_get_key_usage(c), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    assert_int_equal(X509_get_extended_key_usage(c), XKU_SSL_SERVER);
    assert_non_null(X509_get0_authority_key_id(c));
    assert_int_equal(ASN1_OCTET_STRING_cmp(X509_get0_subject_key_id(c), X509_get0_authority_key_id(c)), 0);
    char name[64];
    assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(c), NID_commonName, name, sizeof name) == 11 + 8);
    assert_memory_equal(name, "Outgate CA ", 11);
    int64_t from, to;
    assert_int_equal(root_validity(c, &from, &to), 0);
    assert_true(from == NOW - 2 * day_us);
    assert_true(to == from + 398 * day_us);
    BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(c), NULL);
    assert_in_range(BN_num_bits(serial), 121, 128);
    BN_free(serial);
    assert_int_equal(X509_verify(c, p.key), 1);

    /* two installations share nothing */
    struct pair q = pair_new(NOW);
    assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(c), X509_get0_serialNumber(q.cert)), 0);
    assert_int_not_equal(X509_NAME_cmp(X509_get_subject_name(c), X509_get_subject_name(q.cert)), 0);
    assert_int_not_equal(EVP_PKEY_eq(p.key, q.key), 1);
    pair_done(&q);
    pair_done(&p);
}

static int load(struct str cert, struct str key, int64_t now_us, struct err *err)
{
    EVP_PKEY *k = NULL;
    X509 *c = NULL;
    int r = root_load(cert, key, now_us, &k, &c, err);
    assert_true(r == 0 ? k && c : !k && !c);
    assert_int_equal(ERR_peek_error(), 0);
    EVP_PKEY_free(k);
    X509_free(c);
    return r;
}

static void loads_back(void **state)
{
    (void)state;
    struct pair p = pair_new(NOW), q = pair_new(NOW);
    struct err err;
    struct str cert = buf_str(&p.cert_pem), key = buf_str(&p.key_pem);
    assert_true(str_starts(key, STR("-----BEGIN PRIVATE KEY-----\n")));
    assert_true(str_starts(cert, STR("-----BEGIN CERTIFICATE-----\n")));

    struct buf two, encrypted;
    buf_init(&two, 65536);
    buf_put(&two, cert);
    buf_put(&two, buf_str(&q.cert_pem));
    BIO *bio = BIO_new(BIO_s_mem());
    char pass[] = "pass";
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, p.key, EVP_aes_128_cbc(), pass, 4, NULL, NULL), 1);
    char *text;
    long n = BIO_get_mem_data(bio, &text);
    buf_init(&encrypted, 65536);
    buf_put(&encrypted, str_of(text, (size_t)n));
    BIO_free(bio);

    const struct {
        struct str cert, key;
        int64_t now;
        const char *why; /* a word of the message; NULL: fine */
    } t[] = {
        { cert, key, NOW, NULL },
        { cert, key, NOW - 2 * day_us, NULL },
        { cert, key, NOW - 2 * day_us - 1, "not valid yet" },
        { cert, key, NOW + 396 * day_us - 1, NULL },
        { cert, key, NOW + 396 * day_us, "expired" },
        { cert, buf_str(&q.key_pem), NOW, "belong together" },
        { buf_str(&q.cert_pem), key, NOW, "belong together" },
        { buf_str(&two), key, NOW, "got more" },
        { key, key, NOW, "got none" },
        { cert, cert, NOW, "unencrypted" },
        { cert, buf_str(&encrypted), NOW, "unencrypted" },
        { STR(""), key, NOW, "got none" },
        { cert, STR(""), NOW, "unencrypted" },
        { str_sub(cert, 0, cert.n / 2), key, NOW, "got none" },
        { cert, str_sub(key, 0, key.n / 2), NOW, "unencrypted" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        int r = load(t[i].cert, t[i].key, t[i].now, &err);
        if ((r == 0) != (t[i].why == NULL))
            fail_msg("case %zu: %d %s", i, r, r ? err.text : "");
        if (r && !strstr(err.text, t[i].why))
            fail_msg("case %zu: %s", i, err.text);
    }
    buf_done(&two);
    buf_done(&encrypted);
    pair_done(&p);
    pair_done(&q);
}

/* A certificate like root_make's with one thing wrong. */
enum twist {
    RIGHT,
    NOT_CA,
    NO_PATHLEN,
    NOT_CRITICAL,
    NO_KEY_USAGE,
    NO_CERT_SIGN,
    NO_KEY_ID,
    OTHER_ISSUER,
    BAD_SIGNATURE,
    RSA_KEY
};

static void add(X509 *c, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, c, c, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(c, e, -1), 1);
    X509_EXTENSION_free(e);
}

static int load_twisted(enum twist twist, struct err *err)
{
    EVP_PKEY *key = twist == RSA_KEY ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256"), *other = EVP_EC_gen("P-256");
    X509 *c = X509_new();
    X509_set_version(c, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(c), 4711);
    ASN1_TIME_set(X509_getm_notBefore(c), (time_t)(NOW / 1000000) - 10);
    ASN1_TIME_set(X509_getm_notAfter(c), (time_t)(NOW / 1000000) + 10);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC, (const unsigned char *)"one", -1, -1, 0);
    X509_NAME_add_entry_by_txt(X509_get_issuer_name(c), "CN", MBSTRING_ASC,
                               (const unsigned char *)(twist == OTHER_ISSUER ? "two" : "one"), -1, -1, 0);
    X509_set_pubkey(c, key);
    add(c, NID_basic_constraints,
        twist == NOT_CA         ? "critical,CA:FALSE"
        : twist == NO_PATHLEN   ? "critical,CA:TRUE"
        : twist == NOT_CRITICAL ? "CA:TRUE,pathlen:0"
                                : "critical,CA:TRUE,pathlen:0");
    if (twist != NO_KEY_USAGE)
        add(c, NID_key_usage, twist == NO_CERT_SIGN ? "critical,cRLSign" : "critical,keyCertSign");
    if (twist != NO_KEY_ID)
        add(c, NID_subject_key_identifier, "hash");
    assert_true(X509_sign(c, twist == BAD_SIGNATURE ? other : key, EVP_sha256()) > 0);
    struct buf cert_pem, key_pem;
    buf_init(&cert_pem, 65536);
    buf_init(&key_pem, 65536);
    key_pem.wipe = true;
    root_put_cert(c, &cert_pem);
    root_put_key(key, &key_pem);
    int r = load(buf_str(&cert_pem), buf_str(&key_pem), NOW, err);
    buf_done(&cert_pem);
    buf_done(&key_pem);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
    X509_free(c);
    return r;
}

static void refuses_what_is_no_ca(void **state)
{
    (void)state;
    struct err err = { "" };
    if (load_twisted(RIGHT, &err))
        fail_msg("the control: %s", err.text);
    for (enum twist t = NOT_CA; t <= RSA_KEY; t++)
        if (load_twisted(t, &err) == 0)
            fail_msg("twist %d was taken", (int)t);
}

static void formats(void **state)
{
    (void)state;
    struct pair p = pair_new(NOW), q = pair_new(NOW);
    struct buf out;
    struct err err;
    enum root_format f;
    buf_init(&out, 1 << 20);
    assert_false(root_format_parse(STR("PEM"), &f));
    assert_false(root_format_parse(STR("jks"), &f));
    assert_true(root_format_parse(STR("pem"), &f) && f == ROOT_PEM);
    assert_int_equal(root_put_cert_as(f, p.cert, &out, &err), 0);
    assert_true(str_eq(buf_str(&out), buf_str(&p.cert_pem)));

    buf_reset(&out);
    assert_true(root_format_parse(STR("der"), &f) && f == ROOT_DER);
    assert_int_equal(root_put_cert_as(f, p.cert, &out, &err), 0);
    const unsigned char *at = (const unsigned char *)buf_str(&out).p;
    X509 *back = d2i_X509(NULL, &at, (long)buf_size(&out));
    assert_non_null(back);
    assert_int_equal(X509_cmp(back, p.cert), 0);
    X509_free(back);

    assert_true(root_format_parse(STR("p12"), &f) && f == ROOT_P12);
    for (int both = 0; both < 2; both++) { /* one certificate, then a bundle of two */
        buf_reset(&out);
        if (both) {
            struct buf bundle;
            buf_init(&bundle, 65536);
            buf_put(&bundle, buf_str(&p.cert_pem));
            buf_put(&bundle, STR("# a comment between\n"));
            buf_put(&bundle, buf_str(&q.cert_pem));
            assert_int_equal(root_put_truststore(buf_str(&bundle), &out, &err), 0);
            buf_done(&bundle);
        } else {
            assert_int_equal(root_put_cert_as(f, p.cert, &out, &err), 0);
        }
        at = (const unsigned char *)buf_str(&out).p;
        PKCS12 *p12 = d2i_PKCS12(NULL, &at, (long)buf_size(&out));
        assert_non_null(p12);
        assert_int_equal(PKCS12_verify_mac(p12, "wrong", -1), 0);
        EVP_PKEY *key = NULL;
        X509 *cert = NULL;
        STACK_OF(X509) *more = NULL;
        assert_int_equal(PKCS12_parse(p12, "changeit", &key, &cert, &more), 1);
        assert_null(key); /* never a key */
        assert_int_equal(sk_X509_num(more), 1 + both);
        assert_int_equal(X509_cmp(sk_X509_value(more, 0), p.cert), 0);
        sk_X509_pop_free(more, X509_free);
        X509_free(cert);
        PKCS12_free(p12);
        /* the attribute Java looks for, and its value: SET { anyExtendedKeyUsage } */
        static const char oid[] =
            "\x06\x0c\x60\x86\x48\x01\x86\xf9\x66\xad\xca\x7b\x01\x01\x31\x06\x06\x04\x55\x1d\x25\x00";
        assert_true(str_find(buf_str(&out), str_of(oid, sizeof oid - 1)) > 0);
    }
    ERR_clear_error();
    const struct str bad[] = { STR(""), STR("nothing here"), str_sub(buf_str(&p.cert_pem), 0, 200),
                               buf_str(&p.key_pem) };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf_reset(&out);
        if (root_put_truststore(bad[i], &out, &err) == 0)
            fail_msg("bundle %zu was taken", i);
        assert_int_equal(buf_size(&out), 0);
        assert_int_equal(ERR_peek_error(), 0);
    }
    buf_done(&out);
    pair_done(&p);
    pair_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape),
        cmocka_unit_test(loads_back),
        cmocka_unit_test(refuses_what_is_no_ca),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
