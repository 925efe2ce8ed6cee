/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains made here, each wrong in one thing. The control of every row is the chain without that thing, which is
 * accepted. A row is asked twice: of origin_chain_check, which must name the fault itself (it does not count on OpenSSL
 * to have refused), and through a TLS handshake between an origin with that chain and the code that a worker meets
 * origins with. */
#include "tests/fakes/clock_fake.c"
#include "tests/lib/origin_rig.h"

#include "base/buf.h"
#include "ca/root.h"
#include "ca/signer.h"
#include "policy/origin_chain.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum who { ROOT, ICA, LEAF, CERTS };
enum { EXTENSIONS = 12, DAY = 86400 };

enum change {
    NOTHING,
    VERSION_1,
    SERIAL_ZERO,
    SERIAL_NEGATIVE,
    SERIAL_21_OCTETS,
    SERIAL_20_OCTETS,
    OUTER_ALGORITHM,
    SIGNED_SHA1,
    SIGNED_SHA224,
    SIGNED_SHA512,
    KEY_RSA_1024,
    KEY_RSA_2052,
    KEY_RSA_2048,
    KEY_EXPONENT_1,
    KEY_P224,
    KEY_SECP256K1,
    KEY_EXPLICIT,
    KEY_P384,
    KEY_ED25519,
    DATE_GENERALIZED,
    DATE_GENERALIZED_2050,
    DATE_WITHOUT_SECONDS,
    SUBJECT_NONE,
    SUBJECT_NONE_ISSUER_TOO, /* the CA has no name, and so its child no issuer */
    SUBJECT_CN,              /* the row's value is the common name */
};

struct ext {
    const char *name, *value;
};

struct cert {
    const char *cn;
    enum who issuer;
    enum change change;
    const char *cn_instead;
    struct ext ext[EXTENSIONS];
    long from, to; /* seconds from now */
};

static const struct cert plain[CERTS] = {
    [ROOT] = { .cn = "root",
               .issuer = ROOT,
               .from = -DAY,
               .to = 365 * DAY,
               .ext = { { "basicConstraints", "critical,CA:TRUE" },
                        { "keyUsage", "critical,keyCertSign,cRLSign" },
                        { "subjectKeyIdentifier", "hash" } } },
    [ICA] = { .cn = "intermediate",
              .issuer = ROOT,
              .from = -DAY,
              .to = 300 * DAY,
              .ext = { { "basicConstraints", "critical,CA:TRUE,pathlen:0" },
                       { "keyUsage", "critical,keyCertSign,cRLSign" },
                       { "subjectKeyIdentifier", "hash" },
                       { "authorityKeyIdentifier", "keyid:always" },
                       { "certificatePolicies", "DER:300a3008060667810c010201" },
                       { "crlDistributionPoints", "URI:http://crl.test/r" } } },
    [LEAF] = { .cn = "host.test",
               .issuer = ICA,
               .from = -DAY,
               .to = 90 * DAY,
               .ext = { { "basicConstraints", "critical,CA:FALSE" },
                        { "keyUsage", "critical,digitalSignature" },
                        { "extendedKeyUsage", "serverAuth" },
                        { "subjectAltName", "DNS:host.test,DNS:*.wild.test,IP:192.0.2.1" },
                        { "authorityKeyIdentifier", "keyid:always" },
                        { "subjectKeyIdentifier", "hash" },
                        { "authorityInfoAccess", "OCSP;URI:http://ocsp.test/" },
                        { "certificatePolicies", "DER:300a3008060667810c010201" } } },
};

/* --- making them --- */

static EVP_PKEY *rsa(size_t bits)
{
    EVP_PKEY *k = EVP_RSA_gen(bits);
    assert_non_null(k);
    return k;
}

static EVP_PKEY *exponent_1(void)
{
    EVP_PKEY *base = rsa(2048), *key = NULL;
    BIGNUM *n = NULL;
    unsigned char bytes[256];
    assert_int_equal(EVP_PKEY_get_bn_param(base, OSSL_PKEY_PARAM_RSA_N, &n), 1);
    BN_bn2nativepad(n, bytes, sizeof bytes);
    unsigned long e = 1;
    OSSL_PARAM params[] = { OSSL_PARAM_construct_BN(OSSL_PKEY_PARAM_RSA_N, bytes, sizeof bytes),
                            OSSL_PARAM_construct_ulong(OSSL_PKEY_PARAM_RSA_E, &e), OSSL_PARAM_construct_end() };
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    EVP_PKEY_fromdata_init(c);
    assert_int_equal(EVP_PKEY_fromdata(c, &key, EVP_PKEY_PUBLIC_KEY, params), 1);
    EVP_PKEY_CTX_free(c);
    EVP_PKEY_free(base);
    BN_free(n);
    return key;
}

static EVP_PKEY *make_key(enum change change)
{
    EVP_PKEY *k;
    switch ((int)change) {
    case KEY_RSA_1024:
        return rsa(1024);
    case KEY_RSA_2052:
        return rsa(2052);
    case KEY_RSA_2048:
        return rsa(2048);
    case KEY_EXPONENT_1:
        return exponent_1();
    case KEY_P224:
        return EVP_EC_gen("P-224");
    case KEY_SECP256K1:
        return EVP_EC_gen("secp256k1");
    case KEY_P384:
        return EVP_EC_gen("P-384");
    case KEY_ED25519:
        return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    case KEY_EXPLICIT:
        k = EVP_EC_gen("P-256");
        EVP_PKEY_set_utf8_string_param(k, OSSL_PKEY_PARAM_EC_ENCODING, OSSL_PKEY_EC_ENCODING_EXPLICIT);
        return k;
    default:
        return EVP_EC_gen("P-256");
    }
}

static void set_serial(X509 *x, enum change change)
{
    unsigned char bytes[21] = { 0x7f, 1 };
    size_t n = 16;
    bytes[0] = change == SERIAL_21_OCTETS ? 0x80 : 0x7f; /* 20 octets that need a 21st to stay positive */
    if (change == SERIAL_20_OCTETS || change == SERIAL_21_OCTETS)
        n = 20;
    if (change == SERIAL_ZERO)
        bytes[0] = 0, n = 1;
    BIGNUM *b = BN_bin2bn(bytes, (int)n, NULL);
    BN_set_negative(b, change == SERIAL_NEGATIVE);
    BN_to_ASN1_INTEGER(b, X509_get_serialNumber(x));
    BN_free(b);
}

static void set_dates(X509 *x, const struct cert *c)
{
    time_t now = clock_wall_us() / 1000000;
    ASN1_TIME *end = ASN1_TIME_new();
    if (c->change == DATE_GENERALIZED)
        ASN1_GENERALIZEDTIME_set(end, now + c->to);
    else if (c->change == DATE_GENERALIZED_2050)
        ASN1_TIME_set_string(end, "20510101000000Z");
    else if (c->change == DATE_WITHOUT_SECONDS)
        ASN1_STRING_set(end, "4001010000Z", 11), end->type = V_ASN1_UTCTIME;
    else
        ASN1_TIME_set(end, now + c->to);
    ASN1_TIME_set(X509_getm_notBefore(x), now + c->from);
    X509_set1_notAfter(x, end);
    ASN1_TIME_free(end);
}

static void set_names(X509 *x, const struct cert *c, X509 *issuer)
{
    X509_NAME *name = X509_NAME_new();
    bool empty = c->change == SUBJECT_NONE || c->change == SUBJECT_NONE_ISSUER_TOO;
    const char *cn = c->change == SUBJECT_CN ? c->cn_instead : c->cn;
    if (!empty)
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
    X509_set_subject_name(x, name);
    X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : name);
    X509_NAME_free(name);
}

static void add_extension(X509 *x, X509 *issuer, const struct ext *e)
{
    static const struct ext some_key = { "authorityKeyIdentifier", "DER:300680040a0b0c0d" };
    X509V3_CTX v3;
    if (issuer && !X509_get0_subject_key_id(issuer) && !strcmp(e->value, "keyid:always"))
        e = &some_key;
    X509V3_set_ctx(&v3, issuer ? issuer : x, x, NULL, NULL, 0);
    X509V3_set_ctx_nodb(&v3);
    X509_EXTENSION *ext = X509V3_EXT_nconf(NULL, &v3, e->name, e->value);
    if (!ext || X509_add_ext(x, ext, -1) != 1)
        fail_msg("%s = %s: %s", e->name, e->value, ERR_error_string(ERR_get_error(), NULL));
    X509_EXTENSION_free(ext);
}

static X509 *make_cert(const struct cert *c, EVP_PKEY *key, X509 *issuer, EVP_PKEY *by)
{
    X509 *x = X509_new();
    X509_set_version(x, c->change == VERSION_1 ? X509_VERSION_1 : X509_VERSION_3);
    set_serial(x, c->change);
    set_dates(x, c);
    set_names(x, c, issuer);
    X509_set_pubkey(x, key);
    for (const struct ext *e = c->ext; e < c->ext + EXTENSIONS; e++)
        if (e->name && c->change != VERSION_1)
            add_extension(x, issuer, e);
    const EVP_MD *md = c->change == SIGNED_SHA1 ? EVP_sha1() : c->change == SIGNED_SHA224 ? EVP_sha224() : EVP_sha256();
    md = c->change == SIGNED_SHA512 ? EVP_sha512() : EVP_PKEY_is_a(by, "ED25519") ? NULL : md;
    assert_true(X509_sign(x, by, md) > 0);
    if (c->change == OUTER_ALGORITHM) {
        const X509_ALGOR *outer;
        X509_get0_signature(NULL, &outer, x);
        X509_ALGOR_set0((X509_ALGOR *)(uintptr_t)outer, OBJ_nid2obj(NID_ecdsa_with_SHA384), V_ASN1_UNDEF, NULL);
    }
    /* As the other side reads it. */
    unsigned char *der = NULL;
    int n = i2d_X509(x, &der);
    const unsigned char *p = der;
    X509 *read = d2i_X509(NULL, &p, n);
    assert_non_null(read);
    OPENSSL_free(der);
    X509_free(x);
    return read;
}

struct made {
    X509 *cert[CERTS];
    EVP_PKEY *key[CERTS];
};

static struct made make(const struct cert certs[CERTS])
{
    struct made m;
    for (enum who w = ROOT; w < CERTS; w++) {
        bool self = certs[w].issuer == w;
        EVP_PKEY *other = NULL;
        m.key[w] = make_key(certs[w].change);
        if (certs[w].change == KEY_EXPONENT_1 &&
            w != LEAF) /* cannot sign: its children are signed by another, which nobody asks here */
            other = EVP_EC_gen("P-256");
        m.cert[w] = make_cert(&certs[w], m.key[w], self ? NULL : m.cert[certs[w].issuer],
                              other && self ? other : m.key[certs[w].issuer]);
        if (other) {
            EVP_PKEY_free(m.key[w]);
            m.key[w] = other;
        }
    }
    return m;
}

static void unmake(struct made *m)
{
    for (enum who w = ROOT; w < CERTS; w++) {
        X509_free(m->cert[w]);
        EVP_PKEY_free(m->key[w]);
    }
}

/* --- asking --- */

static STACK_OF(X509) * chain_of(X509 *a, X509 *b, X509 *c)
{
    STACK_OF(X509) *s = sk_X509_new_null();
    X509 *all[] = { a, b, c };
    for (size_t i = 0; i < 3; i++)
        if (all[i])
            sk_X509_push(s, all[i]);
    return s;
}

static struct chain_verdict check(X509 *a, X509 *b, X509 *c)
{
    STACK_OF(X509) *s = chain_of(a, b, c);
    struct chain_verdict v = origin_chain_check(s);
    sk_X509_free(s);
    return v;
}

static struct buf pem_of(X509 *x)
{
    struct buf out;
    BIO *b = BIO_new(BIO_s_mem());
    char *p;
    PEM_write_bio_X509(b, x);
    long n = BIO_get_mem_data(b, &p);
    buf_init(&out, 1 << 20);
    buf_put(&out, str_of(p, (size_t)n));
    BIO_free(b);
    return out;
}

static struct host host_of(const char *name)
{
    struct host h;
    assert_int_equal(host_parse(str_c(name), &h, NULL), 0);
    return h;
}

static struct origin_meeting meet(struct made *m, X509 *root, bool system, const char *name)
{
    struct buf roots = pem_of(root);
    struct origin_rig rig;
    struct host h = host_of(name);
    struct origin_meeting met = { 0 };
    origin_rig_init(&rig, buf_str(&roots), system, STR_NONE);
    STACK_OF(X509) *sent = chain_of(m->cert[ICA], m->cert[ROOT], NULL);
    SSL_CTX *server = origin_rig_server(m->cert[LEAF], sent, m->key[LEAF]);
    if (server)
        met = origin_rig_meet(&rig, server, &h, 0);
    SSL_CTX_free(server);
    sk_X509_free(sent);
    origin_rig_done(&rig);
    buf_done(&roots);
    return met;
}

/* --- the rows --- */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* a row says what is not plain */
static const struct row {
    enum who who;
    const char *ext, *value; /* takes the place of the plain one of that name; NULL: none of it; "+…": beside it */
    enum chain_fault fault;  /* CHAIN_FINE: accepted */
    enum change change;
    const char *host; /* host.test where it is not given */
} rows[] = {
    /* versions, serials, algorithms, keys, dates, names */
    { LEAF, .change = VERSION_1, .fault = CHAIN_NOT_V3 },
    { ICA, .change = VERSION_1, .fault = CHAIN_NOT_V3 },
    { ROOT, .change = VERSION_1, .fault = CHAIN_NOT_V3 },
    { LEAF, .change = SERIAL_ZERO, .fault = CHAIN_SERIAL },
    { ICA, .change = SERIAL_NEGATIVE, .fault = CHAIN_SERIAL },
    { ROOT, .change = SERIAL_ZERO, .fault = CHAIN_SERIAL },
    { LEAF, .change = SERIAL_21_OCTETS, .fault = CHAIN_SERIAL },
    { LEAF, .change = SERIAL_20_OCTETS },
    { LEAF, .change = OUTER_ALGORITHM, .fault = CHAIN_ALGORITHMS_DIFFER },
    { ROOT, .change = OUTER_ALGORITHM, .fault = CHAIN_ALGORITHMS_DIFFER },
    { LEAF, .change = SIGNED_SHA1, .fault = CHAIN_SIGNATURE },
    { ICA, .change = SIGNED_SHA1, .fault = CHAIN_SIGNATURE },
    { ROOT, .change = SIGNED_SHA1 }, /* nobody relies on it */
    { ICA, .change = SIGNED_SHA224, .fault = CHAIN_SIGNATURE },
    { ICA, .change = SIGNED_SHA512 },
    { LEAF, .change = KEY_RSA_1024, .fault = CHAIN_KEY },
    { LEAF, .change = KEY_RSA_2052, .fault = CHAIN_KEY },
    { ICA, .change = KEY_RSA_2052, .fault = CHAIN_KEY },
    { ROOT, .change = KEY_RSA_1024, .fault = CHAIN_KEY },
    { LEAF, .change = KEY_RSA_2048 },
    { ROOT, .change = KEY_RSA_2048 },
    { ICA, .change = KEY_EXPONENT_1, .fault = CHAIN_EXPONENT },
    { LEAF, .change = KEY_P224, .fault = CHAIN_KEY },
    { ICA, .change = KEY_SECP256K1, .fault = CHAIN_KEY },
    { LEAF, .change = KEY_EXPLICIT, .fault = CHAIN_KEY },
    { ROOT, .change = KEY_EXPLICIT, .fault = CHAIN_KEY },
    { LEAF, .change = KEY_P384 },
    { ICA, .change = KEY_ED25519 },
    { LEAF, .change = KEY_ED25519 },
    { LEAF, .change = DATE_GENERALIZED, .fault = CHAIN_DATES },
    { ICA, .change = DATE_WITHOUT_SECONDS, .fault = CHAIN_DATES },
    { LEAF, .change = DATE_GENERALIZED_2050 },
    { ICA, .change = SUBJECT_NONE_ISSUER_TOO, .fault = CHAIN_NO_ISSUER },
    { ROOT, .change = SUBJECT_NONE_ISSUER_TOO, .fault = CHAIN_NO_ISSUER },

    /* extensions as such */
    { LEAF, "keyUsage", "+digitalSignature", CHAIN_TWICE },
    { LEAF, "extendedKeyUsage", "+serverAuth", CHAIN_TWICE },
    { ICA, "basicConstraints", "+critical,CA:TRUE", CHAIN_TWICE },
    { LEAF, "1.2.3.4.5", "DER:0500" },
    { LEAF, "1.2.3.4.5", "critical,DER:0500", CHAIN_FINE, .host = "!" }, /* OpenSSL's to refuse */
    { LEAF, "authorityInfoAccess", "DER:3000", CHAIN_MALFORMED },
    { LEAF, "authorityInfoAccess", "DER:0403616263", CHAIN_MALFORMED },
    { LEAF, "authorityInfoAccess", "DER:6d616c666f726d6564", CHAIN_MALFORMED },
    { LEAF, "certificatePolicies", "DER:3000", CHAIN_MALFORMED },
    { ICA, "certificatePolicies", "DER:30050603", CHAIN_MALFORMED },
    { LEAF, "subjectAltName", "DER:3000", CHAIN_MALFORMED },
    { LEAF, "subjectAltName", "DER:300b8209686f73742e746573740500", CHAIN_MALFORMED }, /* bytes after it */
    { LEAF, "extendedKeyUsage", "DER:3000", CHAIN_MALFORMED },
    { LEAF, "keyUsage", "DER:0300", CHAIN_MALFORMED },
    { LEAF, "crlDistributionPoints", "DER:3000", CHAIN_MALFORMED },
    { ICA, "nameConstraints", "critical,DER:3000", CHAIN_MALFORMED },
    { ICA, "policyConstraints", "critical,DER:3000", CHAIN_MALFORMED },
    { ICA, "basicConstraints", "critical,DER:30060101ff0201ff", CHAIN_MALFORMED }, /* pathlen -1 */
    { ICA, "authorityKeyIdentifier", "critical,keyid:always", CHAIN_CRITICAL },
    { ROOT, "subjectKeyIdentifier", "critical,hash", CHAIN_CRITICAL },
    { LEAF, "subjectKeyIdentifier", "critical,hash", CHAIN_CRITICAL },
    { LEAF, "authorityInfoAccess", "critical,OCSP;URI:http://ocsp.test/", CHAIN_CRITICAL },
    { ICA, "freshestCRL", "critical,URI:http://crl.test/d", CHAIN_CRITICAL },
    { ICA, "freshestCRL", "URI:http://crl.test/d" },
    { ROOT, "basicConstraints", "CA:TRUE", CHAIN_NOT_CRITICAL },
    { ICA, "basicConstraints", "CA:TRUE", CHAIN_NOT_CRITICAL },
    { LEAF, "basicConstraints", "CA:FALSE" },
    { LEAF, "basicConstraints", NULL },
    { ICA, "policyConstraints", "requireExplicitPolicy:0", CHAIN_NOT_CRITICAL },
    { ICA, "policyConstraints", "critical,requireExplicitPolicy:0" },
    { ICA, "inhibitAnyPolicy", "0", CHAIN_NOT_CRITICAL },
    { ICA, "inhibitAnyPolicy", "critical,0" },

    /* CAs */
    { ROOT, "basicConstraints", NULL, CHAIN_NOT_CA },
    { ICA, "basicConstraints", NULL, CHAIN_NOT_CA },
    { ICA, "basicConstraints", "critical,CA:FALSE", CHAIN_NOT_CA },
    { ROOT, "subjectKeyIdentifier", NULL, CHAIN_NO_SKI },
    { ICA, "subjectKeyIdentifier", NULL, CHAIN_NO_SKI },
    { LEAF, "subjectKeyIdentifier", NULL },
    { ICA, "authorityKeyIdentifier", NULL, CHAIN_NO_AKI },
    { LEAF, "authorityKeyIdentifier", NULL, CHAIN_NO_AKI },
    { LEAF, "authorityKeyIdentifier", "DER:3000", CHAIN_NO_AKI },
    { LEAF, "authorityKeyIdentifier", "keyid:always,issuer:always" },
    { ROOT, "authorityKeyIdentifier", "DER:3000", CHAIN_SELF_AKI },
    { ROOT, "authorityKeyIdentifier", "DER:300680040a0b0c0d", CHAIN_SELF_AKI }, /* another's */
    { ROOT, "authorityKeyIdentifier", "keyid:always" },
    { ICA, "keyUsage", NULL, CHAIN_NO_KEY_USAGE },
    { ROOT, "keyUsage", NULL },
    { LEAF, "keyUsage", NULL },
    { ICA, "keyUsage", "critical,DER:030100", CHAIN_MALFORMED },
    { LEAF, "keyUsage", "critical,DER:030100", CHAIN_MALFORMED },

    /* name constraints */
    { ICA, "nameConstraints", "critical,DER:3002a000", CHAIN_EMPTY_CONSTRAINTS },
    { ICA, "nameConstraints", "critical,DER:3004a000a100", CHAIN_EMPTY_CONSTRAINTS },
    { ICA, "nameConstraints", "critical,permitted;DNS:.test", CHAIN_BAD_CONSTRAINT },
    { ICA, "nameConstraints", "critical,permitted;DNS:test,permitted;IP:192.0.2.0/255.255.255.0" },
    { ROOT, "nameConstraints", "critical,permitted;DNS:test,permitted;IP:192.0.2.0/255.255.255.0" },
    { ICA, "nameConstraints", "permitted;DNS:test,permitted;IP:192.0.2.0/255.255.255.0" },
    { ICA, "nameConstraints", "critical,permitted;DNS:test,permitted;IP:192.0.2.0/255.0.255.0", CHAIN_BAD_CONSTRAINT },
    { ICA, "nameConstraints", "critical,excluded;IP:198.51.100.0/255.255.255.0" },
    { ICA, "nameConstraints", "critical,DER:300aa10830068704c0000201",
      CHAIN_BAD_CONSTRAINT }, /* an address without mask */
    { ICA, "nameConstraints", "critical,excluded;DNS:*.other.test", CHAIN_BAD_CONSTRAINT },
    { ICA, "nameConstraints", "critical,excluded;DNS:192.0.2.9", CHAIN_BAD_CONSTRAINT },
    { ICA, "nameConstraints", "critical,excluded;DNS:a.wild.test", CHAIN_WILDCARD_EXCLUDED },
    { ROOT, "nameConstraints", "critical,excluded;DNS:A.Wild.test", CHAIN_WILDCARD_EXCLUDED },
    { ICA, "nameConstraints", "critical,excluded;DNS:a.b.wild.test" },
    { ICA, "nameConstraints", "critical,excluded;DNS:xwild.test" },
    { LEAF, "nameConstraints", "permitted;DNS:test", CHAIN_CA_ONLY },
    { LEAF, "policyConstraints", "critical,requireExplicitPolicy:3", CHAIN_CA_ONLY },
    { LEAF, "inhibitAnyPolicy", "critical,1", CHAIN_CA_ONLY },

    /* what the host's own may be for */
    { LEAF, "basicConstraints", "critical,CA:TRUE", CHAIN_IS_CA },
    { LEAF, "basicConstraints", "critical,DER:3003020100", CHAIN_PATHLEN },
    { LEAF, "keyUsage", "critical,digitalSignature,keyCertSign", CHAIN_SIGNS },
    { LEAF, "keyUsage", "critical,digitalSignature,cRLSign", CHAIN_SIGNS },
    { LEAF, "keyUsage", "critical,keyEncipherment", CHAIN_CANNOT_SIGN },
    { LEAF, "keyUsage", "critical,keyAgreement", CHAIN_CANNOT_SIGN },
    { LEAF, "keyUsage", "nonRepudiation,digitalSignature,keyEncipherment" },
    { LEAF, "extendedKeyUsage", NULL },
    { LEAF, "extendedKeyUsage", "clientAuth", CHAIN_PURPOSE },
    { LEAF, "extendedKeyUsage", "codeSigning", CHAIN_PURPOSE },
    { LEAF, "extendedKeyUsage", "msSGC", CHAIN_PURPOSE },
    { LEAF, "extendedKeyUsage", "anyExtendedKeyUsage", CHAIN_PURPOSE },
    { LEAF, "extendedKeyUsage", "serverAuth,anyExtendedKeyUsage", CHAIN_PURPOSE },
    { LEAF, "extendedKeyUsage", "critical,clientAuth,serverAuth" },

    /* names */
    { LEAF, "subjectAltName", NULL, CHAIN_NO_NAMES },
    { LEAF, "subjectAltName", "critical,DNS:host.test", CHAIN_NAMES_CRITICAL },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:.host.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:host.test.", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:a..test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:h*.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:*.*.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:a.*.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:*", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:192.0.2.1", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,DNS:a b.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName",
      "DER:3011"
      "8209686f73742e74657374"
      "8704c0000201"
      "0500",
      CHAIN_MALFORMED },
    { LEAF, "subjectAltName",
      "DER:3010"
      "8209686f73742e74657374"
      "8703c00002",
      CHAIN_BAD_NAME },
    { LEAF, "subjectAltName",
      "DER:300d"
      "8209686f73742e74657374"
      "8200",
      CHAIN_BAD_NAME },
    { LEAF, "subjectAltName",
      "DER:300f"
      "8209686f73742e74657374"
      "8202c3a4",
      CHAIN_BAD_NAME }, /* not ASCII */
    { LEAF, "subjectAltName",
      "DER:3010"
      "8209686f73742e74657374"
      "8203610062",
      CHAIN_BAD_NAME }, /* a NUL */
    { LEAF, "subjectAltName", "DNS:host.test,DNS:under_score.test,email:a@b.test,URI:spiffe://x.test/a" },
    { LEAF, "subjectAltName", "DNS:HOST.test" },
    { LEAF, "subjectAltName", "DNS:host.test,email:a@b@c.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,email:@c.test", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "DNS:host.test,URI:/relative", CHAIN_BAD_NAME },
    { LEAF, "subjectAltName", "critical,DNS:host.test", CHAIN_FINE, SUBJECT_NONE },
    { LEAF, .change = SUBJECT_NONE, .fault = CHAIN_NAMES_CRITICAL },
    { LEAF, .change = SUBJECT_CN, .value = "192.168.001.001", .fault = CHAIN_COMMON_NAME },
    { LEAF, .change = SUBJECT_CN, .value = "2001:0db8:0:0:0:0:0:1", .fault = CHAIN_COMMON_NAME },
    { LEAF, .change = SUBJECT_CN, .value = "192.0.2.7" },
    { LEAF, .change = SUBJECT_CN, .value = "other.test" },
    { LEAF, .change = SUBJECT_CN, .value = "Some Service 1.0.0.1" },

    /* OpenSSL's part, met in the handshake alone: the chain is well formed */
    { LEAF, .host = "!other.test" },
    { LEAF, .host = "a.wild.test" },
    { LEAF, .host = "!wild.test" },
    { LEAF, .host = "!a.b.wild.test" },
    { LEAF, .host = "192.0.2.1" },
    { LEAF, .host = "!192.0.2.2" },
    { LEAF, "subjectAltName", "DNS:*.test", .host = "!192.0.2.1" },
    { LEAF, "subjectAltName", "DNS:other.test", .host = "!host.test" }, /* the common name is not read */
    { ICA, "nameConstraints", "critical,permitted;DNS:other.test", .host = "!" },
    { ICA, "nameConstraints", "critical,excluded;DNS:host.test", .host = "!" },
    { ICA, "nameConstraints", "critical,permitted;DNS:test,permitted;IP:198.51.100.0/255.255.255.0", .host = "!" },
    { ICA, "extendedKeyUsage", "codeSigning", .host = "!" },
    { ICA, "extendedKeyUsage", "serverAuth,clientAuth" },
    { ICA, "keyUsage", "critical,cRLSign", .host = "!" },
    { ROOT, "keyUsage", "critical,cRLSign", .host = "!" },
    { ROOT, "basicConstraints", "critical,CA:TRUE,pathlen:0", .host = "!" },
    { ROOT, "basicConstraints", "critical,CA:TRUE,pathlen:1" },
    { ICA, "policyConstraints", "critical,requireExplicitPolicy:0", .host = "host.test" },
};

static void put_extension(struct cert *c, const struct row *r)
{
    bool beside = r->value && r->value[0] == '+';
    struct ext *free_one = NULL;
    for (struct ext *e = c->ext; e < c->ext + EXTENSIONS; e++) {
        if (!e->name) {
            free_one = free_one ? free_one : e;
        } else if (!beside && !strcmp(e->name, r->ext)) {
            e->name = r->value ? r->ext : NULL;
            e->value = r->value;
            return;
        }
    }
    assert_true(free_one && r->value);
    *free_one = (struct ext) { r->ext, r->value + beside };
}

static void a_row(const struct row *r)
{
    struct cert certs[CERTS];
    char what[200];
    memcpy(certs, plain, sizeof certs);
    certs[r->who].change = r->change;
    certs[r->who].cn_instead = r->value;
    if (r->ext)
        put_extension(&certs[r->who], r);
    snprintf(what, sizeof what, "row %zu: %s, %s = %s, change %d", (size_t)(r - rows), plain[r->who].cn,
             r->ext ? r->ext : "", r->value ? r->value : "", (int)r->change);
    struct made m = make(certs);
    struct chain_verdict v = check(m.cert[LEAF], m.cert[ICA], m.cert[ROOT]);
    if (v.fault != r->fault)
        fail_msg("%s: expected %s, was %s", what, origin_chain_name(r->fault), origin_chain_name(v.fault));
    bool refused = r->fault || (r->host && r->host[0] == '!');
    const char *host = r->host ? r->host + (r->host[0] == '!') : "";
    struct origin_meeting met = meet(&m, m.cert[ROOT], false, *host ? host : "host.test");
    if (met.connected == refused)
        fail_msg("%s: %s in the handshake: %s", what, refused ? "accepted" : "refused", met.why);
    unmake(&m);
}

static void each_fault_is_refused_and_its_absence_is_not(void **state)
{
    (void)state;
    bool seen[CHAIN_FAULTS] = { [CHAIN_FINE] = true, [CHAIN_TOO_MANY] = true, [CHAIN_NO_SUBJECT] = true, [CHAIN_POLICIES] = true };
    struct made m = make(plain);
    assert_true(meet(&m, m.cert[ROOT], false, "host.test").connected);
    unmake(&m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].host && !strcmp(rows[i].host, "skip"))
            continue;
        a_row(&rows[i]);
        seen[rows[i].fault] = true;
    }
    for (size_t f = 0; f < CHAIN_FAULTS; f++)
        if (!seen[f])
            fail_msg("no row for %s", origin_chain_name((enum chain_fault)f));
}

/* Refused before OpenSSL looks at them, which leaks over them: the sanitizer build would say so. */
static void constrained_policies_are_named_once(void **state)
{
    (void)state;
    static const struct {
        enum who who;
        const char *policies;
        bool fit;
    } cases[] = {
        { ICA, "DER:300a3008060667810c010201", true },
        { ICA, NULL, false },
        { ICA, "DER:30143008060667810c0102013008060667810c010201", false },
        { ICA, "DER:30143008060667810c0102013008060667810c010202", true },
        { LEAF, NULL, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cert certs[CERTS];
        memcpy(certs, plain, sizeof certs);
        put_extension(&certs[cases[i].who], &(struct row) { cases[i].who, "policyConstraints", "critical,inhibitPolicyMapping:0" });
        put_extension(&certs[cases[i].who], &(struct row) { cases[i].who, "certificatePolicies", cases[i].policies });
        struct made m = make(certs);
        assert_int_equal(origin_chain_policies_fit(m.cert[cases[i].who]), cases[i].fit);
        struct origin_meeting met = meet(&m, m.cert[ROOT], false, "host.test");
        assert_int_equal(met.connected, cases[i].fit);
        assert_true(cases[i].fit || strstr(met.why, "constrains certificate policies"));
        unmake(&m);
    }
}

static void a_sentence_says_which_and_where(void **state)
{
    (void)state;
    struct cert certs[CERTS];
    memcpy(certs, plain, sizeof certs);
    put_extension(&certs[ICA], &(struct row) { ICA, "authorityKeyIdentifier", "critical,keyid:always" });
    struct made m = make(certs);
    struct chain_verdict v = check(m.cert[LEAF], m.cert[ICA], m.cert[ROOT]);
    char said[200];
    assert_string_equal(origin_chain_say(&v, said, sizeof said),
                        "an intermediate certificate marks an extension critical that must not be "
                        "(authorityKeyIdentifier; RFC 5280 4.2)");
    unmake(&m);
    memcpy(certs, plain, sizeof certs);
    put_extension(&certs[LEAF], &(struct row) { LEAF, "extendedKeyUsage", "serverAuth,anyExtendedKeyUsage" });
    m = make(certs);
    struct origin_meeting met = meet(&m, m.cert[ROOT], false, "host.test");
    assert_string_equal(
        met.why,
        "the host's certificate is not one for servers by its extended key usage (RFC 5280 4.2.1.12, BR 7.1.2.7.10)");
    unmake(&m);
    /* Each sentence fits where it is said: "TLS: " and this, in exchange.h's why. */
    for (int f = CHAIN_FINE + 1; f < CHAIN_FAULTS; f++) {
        struct chain_verdict each = { (enum chain_fault)f, f == CHAIN_TWICE ? "authorityKeyIdentifier" : NULL,
                                      CHAIN_INTERMEDIATE };
        assert_true(strlen(origin_chain_say(&each, said, sizeof said)) < 150);
    }
}

static void more_extensions_than_anybody_needs(void **state)
{
    (void)state;
    struct made m = make(plain);
    assert_int_equal(check(m.cert[LEAF], m.cert[ICA], m.cert[ROOT]).fault, CHAIN_FINE);
    for (int i = 0; i < 64; i++) {
        char oid[32];
        snprintf(oid, sizeof oid, "1.2.3.4.%d", i);
        add_extension(m.cert[LEAF], m.cert[ICA], &(struct ext) { oid, "DER:0500" });
    }
    assert_int_equal(check(m.cert[LEAF], m.cert[ICA], m.cert[ROOT]).fault, CHAIN_TOO_MANY);
    unmake(&m);
}

/* What the operator named, the system's store, and the host's own certificate as the root. */
static void roots_of_three_kinds(void **state)
{
    (void)state;
    static const struct row old[] = {
        { ROOT, "basicConstraints", "CA:TRUE" },
        { ROOT, "subjectKeyIdentifier", NULL },
        { ROOT, "authorityKeyIdentifier", "DER:3000" },
        { ROOT, .change = SERIAL_ZERO },
    };
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        struct cert certs[CERTS];
        memcpy(certs, plain, sizeof certs);
        certs[ROOT].change = old[i].change;
        if (old[i].ext)
            put_extension(&certs[ROOT], &old[i]);
        struct made m = make(certs);
        assert_false(meet(&m, m.cert[ROOT], false, "host.test").connected);
        assert_true(meet(&m, m.cert[ROOT], true, "host.test").connected);
        unmake(&m);
    }
    struct made m = make(plain);
    assert_true(meet(&m, m.cert[ICA], false, "host.test").connected);  /* an intermediate that the operator named */
    assert_true(meet(&m, m.cert[LEAF], false, "host.test").connected); /* the certificate itself */
    assert_false(meet(&m, m.cert[LEAF], false, "other.test").connected);
    unmake(&m);
    /* What "openssl req -x509" makes: self-signed, a CA's. Good where it was named, nowhere else. */
    struct cert certs[CERTS];
    memcpy(certs, plain, sizeof certs);
    certs[LEAF] = (struct cert) { .cn = "host.test",
                                  .issuer = LEAF,
                                  .from = -DAY,
                                  .to = DAY,
                                  .ext = { { "basicConstraints", "critical,CA:TRUE" },
                                           { "subjectKeyIdentifier", "hash" },
                                           { "authorityKeyIdentifier", "keyid:always" },
                                           { "subjectAltName", "DNS:host.test" } } };
    m = make(certs);
    assert_true(meet(&m, m.cert[LEAF], false, "host.test").connected);
    assert_false(meet(&m, m.cert[LEAF], false, "other.test").connected);
    assert_false(meet(&m, m.cert[LEAF], true, "host.test").connected);
    assert_false(meet(&m, m.cert[ROOT], false, "host.test").connected);
    unmake(&m);
}

/* Every root that the system trusts is one that a chain may end in. */
static void the_roots_of_this_system(void **state)
{
    (void)state;
    const char *path = "/etc/ssl/certs/ca-certificates.crt";
    BIO *b = BIO_new_file(path, "r");
    if (!b) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    struct made m = make(plain);
    unsigned n = 0, strict = 0;
    for (X509 *root; (root = PEM_read_bio_X509(b, NULL, NULL, NULL)); X509_free(root), n++) {
        strict += check(m.cert[LEAF], m.cert[ICA], root).fault == CHAIN_FINE;
        assert_int_equal(origin_chain_system_root(root), 0);
        struct chain_verdict v = check(m.cert[LEAF], m.cert[ICA], root);
        char name[200], said[200];
        if (v.fault)
            fail_msg("%s: %s", X509_NAME_oneline(X509_get_subject_name(root), name, sizeof name),
                     origin_chain_say(&v, said, sizeof said));
    }
    print_message("%u roots, %u of them also where an operator would name them\n", n, strict);
    assert_true(n > 0);
    ERR_clear_error();
    BIO_free(b);
    unmake(&m);
}

/* --- several ways up --- */

/* One intermediate, certified by two roots that are both trusted; one of its certificates is no good. Whichever is sent
 * first, the other is found; alone, it is refused. */
static void another_way_up(void **state)
{
    (void)state;
    static const struct row bad[] = {
        { ICA, "nameConstraints", "critical,excluded;DNS:host.test" }, /* OpenSSL's to refuse */
        { ICA, "basicConstraints", "CA:TRUE" },                        /* ours */
        { ICA, "extendedKeyUsage", "codeSigning" },
        { ICA, .change = SIGNED_SHA1 },
    };
    struct host h = host_of("host.test");
    struct made a = make(plain), b = make(plain);
    struct buf roots = pem_of(a.cert[ROOT]), other = pem_of(b.cert[ROOT]);
    buf_put(&roots, buf_str(&other));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cert c = plain[ICA];
        c.change = bad[i].change;
        if (bad[i].ext)
            put_extension(&c, &bad[i]);
        X509 *no_good = make_cert(&c, a.key[ICA], b.cert[ROOT], b.key[ROOT]);
        for (int order = 0; order < 3; order++) {
            struct origin_rig rig;
            origin_rig_init(&rig, buf_str(&roots), false, STR_NONE);
            STACK_OF(X509) *sent = order == 0   ? chain_of(no_good, a.cert[ICA], NULL)
                                   : order == 1 ? chain_of(a.cert[ICA], no_good, NULL)
                                                : chain_of(no_good, NULL, NULL);
            SSL_CTX *server = origin_rig_server(a.cert[LEAF], sent, a.key[LEAF]);
            struct origin_meeting met = origin_rig_meet(&rig, server, &h, 0),
                                  again = origin_rig_meet(&rig, server, &h, 0);
            if (met.connected != (order < 2) || again.resumed != (order < 2))
                fail_msg("row %zu, order %d: %s", i, order, met.connected ? "accepted" : met.why);
            SSL_CTX_free(server);
            sk_X509_free(sent);
            origin_rig_done(&rig);
        }
        X509_free(no_good);
    }
    buf_done(&roots);
    buf_done(&other);
    unmake(&a);
    unmake(&b);
}

/* --- sessions --- */

static struct origin_meeting meet_server(struct origin_rig *rig, struct made *m)
{
    struct host h = host_of("host.test");
    STACK_OF(X509) *sent = chain_of(m->cert[ICA], NULL, NULL);
    SSL_CTX *server = origin_rig_server(m->cert[LEAF], sent, m->key[LEAF]);
    struct origin_meeting met = origin_rig_meet(rig, server, &h, 0);
    SSL_CTX_free(server);
    sk_X509_free(sent);
    return met;
}

/* A name that was good is asked again on every connection; a session is no way around that, nor past the end of its
 * chain. */
static void what_was_good_once(void **state)
{
    (void)state;
    struct cert certs[CERTS];
    struct host h = host_of("host.test");
    struct made good = make(plain);
    memcpy(certs, plain, sizeof certs);
    put_extension(&certs[LEAF], &(struct row) { LEAF, "extendedKeyUsage", "clientAuth" });
    struct made bad = make(certs);
    X509_free(bad.cert[ROOT]), EVP_PKEY_free(bad.key[ROOT]);
    bad.cert[ROOT] = good.cert[ROOT], bad.key[ROOT] = good.key[ROOT];
    X509_up_ref(good.cert[ROOT]), EVP_PKEY_up_ref(good.key[ROOT]);
    struct buf roots = pem_of(good.cert[ROOT]);
    struct origin_rig rig;
    origin_rig_init(&rig, buf_str(&roots), false, STR_NONE);
    STACK_OF(X509) *sent = chain_of(good.cert[ICA], NULL, NULL);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        SSL_CTX *server = origin_rig_server(good.cert[LEAF], sent, good.key[LEAF]);
        SSL_CTX_set_max_proto_version(server, version);
        struct origin_meeting first = origin_rig_meet(&rig, server, &h, 0),
                              second = origin_rig_meet(&rig, server, &h, 0);
        assert_true(first.connected && !first.resumed && second.connected && second.resumed);
        /* The leaf ends in 90 days. Sessions made by a resumed connection end with it as well. */
        clock_fake_jump_wall_ms(91l * DAY * 1000);
        struct origin_meeting late = origin_rig_meet(&rig, server, &h, 0);
        assert_true(!late.connected && !late.resumed);
        assert_string_equal(late.why, "certificate has expired");
        clock_fake_jump_wall_ms(-91l * DAY * 1000);
        assert_true(origin_rig_meet(&rig, server, &h, 0).resumed);
        /* The server's keys and certificate are others now. */
        struct origin_meeting swapped = meet_server(&rig, &bad);
        assert_true(!swapped.connected && swapped.refused);
        SSL_CTX_free(server);
    }
    sk_X509_free(sent);
    origin_rig_done(&rig);
    buf_done(&roots);
    unmake(&good);
    unmake(&bad);
}

/* --- the handshake --- */

static struct origin_meeting meet_with(struct made *m, struct origin_rig *rig, int max_version, const char *ciphers,
                                       const char *groups)
{
    struct host h = host_of("host.test");
    STACK_OF(X509) *sent = chain_of(m->cert[ICA], NULL, NULL);
    SSL_CTX *server = origin_rig_server(m->cert[LEAF], sent, m->key[LEAF]);
    SSL_CTX_set_min_proto_version(server, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(server, max_version);
    assert_true(!ciphers || SSL_CTX_set_cipher_list(server, ciphers));
    char list[64] = ""; /* the macro takes it without const */
    snprintf(list, sizeof list, "%s", groups ? groups : "");
    assert_true(!groups || SSL_CTX_set1_groups_list(server, list));
    struct origin_meeting met = origin_rig_meet(rig, server, &h, 0);
    SSL_CTX_free(server);
    sk_X509_free(sent);
    return met;
}

static void old_protocols_and_weak_suites(void **state)
{
    (void)state;
    struct cert certs[CERTS];
    memcpy(certs, plain, sizeof certs);
    certs[LEAF].change = KEY_RSA_2048;
    put_extension(&certs[LEAF], &(struct row) { LEAF, "keyUsage", "critical,digitalSignature,keyEncipherment" });
    struct made m = make(certs);
    struct buf roots = pem_of(m.cert[ROOT]);
    struct origin_rig rig;
    origin_rig_init(&rig, buf_str(&roots), false, STR_NONE);
    static const struct {
        int version;
        const char *ciphers, *groups;
        bool fine;
    } servers[] = {
        { TLS1_3_VERSION, NULL, NULL, true },
        { TLS1_2_VERSION, "ECDHE-RSA-AES128-GCM-SHA256", NULL, true },
        { TLS1_2_VERSION, "ECDHE-RSA-CHACHA20-POLY1305", NULL, true },
        { TLS1_2_VERSION, "ECDHE-RSA-AES256-GCM-SHA384", "P-384", true },
        { TLS1_2_VERSION, "ECDHE-RSA-AES128-SHA256:@SECLEVEL=0", NULL, false }, /* not AEAD */
        { TLS1_2_VERSION, "AES128-GCM-SHA256:@SECLEVEL=0", NULL, false },       /* no forward secrecy */
        { TLS1_2_VERSION, "DHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0", NULL, false },
        { TLS1_2_VERSION, "NULL-SHA256:@SECLEVEL=0", NULL, false },
        { TLS1_2_VERSION, "AECDH-NULL-SHA:ADH-AES128-GCM-SHA256:@SECLEVEL=0", NULL, false },
        { TLS1_2_VERSION, "ECDHE-RSA-AES128-GCM-SHA256", "P-521", false },
        { TLS1_1_VERSION, "ALL:@SECLEVEL=0", NULL, false },
        { TLS1_VERSION, "ALL:@SECLEVEL=0", NULL, false },
    };
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct origin_meeting met = meet_with(&m, &rig, servers[i].version, servers[i].ciphers, servers[i].groups);
        if (met.connected != servers[i].fine)
            fail_msg("server %zu: %s %s", i, met.connected ? met.version : "refused", met.cipher);
    }
    origin_rig_done(&rig);
    buf_done(&roots);
    unmake(&m);
}

/* Our CA in the operator's file is left out: what it signs proves nothing about an origin. */
static void our_own_ca(void **state)
{
    (void)state;
    struct made m = make(plain), other = make(plain);
    struct buf ours = pem_of(m.cert[ROOT]), both = pem_of(m.cert[ROOT]), theirs = pem_of(other.cert[ROOT]);
    struct origin_rig rig;
    buf_put(&both, buf_str(&theirs));
    for (int i = 0; i < 2; i++) {
        origin_rig_init(&rig, buf_str(&both), i == 1, buf_str(&ours));
        assert_false(meet_server(&rig, &m).connected);
        assert_true(meet_server(&rig, &other).connected);
        origin_rig_done(&rig);
    }
    origin_rig_init(&rig, buf_str(&both), false, STR_NONE); /* the control */
    assert_true(meet_server(&rig, &m).connected);
    origin_rig_done(&rig);
    buf_done(&ours);
    buf_done(&both);
    buf_done(&theirs);
    unmake(&m);
    unmake(&other);
}

/* What Outgate itself presents to its clients is acceptable by the same rules, so that one may stand behind another. */
static void what_we_present(void **state)
{
    (void)state;
    static const struct {
        bool ip;
        const char *name;
    } names[] = { { false, "host.test" }, { true, "192.0.2.1" }, { true, "2001:db8::1" } };
    int64_t now = clock_wall_us(), expires;
    EVP_PKEY *root_key, *key = EVP_EC_gen("P-256");
    X509 *root;
    struct err err;
    struct buf cert_pem, key_pem, der;
    unsigned char *spki = NULL;
    int n = i2d_PUBKEY(key, &spki);
    buf_init(&cert_pem, 1 << 16);
    buf_init(&key_pem, 1 << 16);
    buf_init(&der, 1 << 16);
    key_pem.wipe = true;
    assert_int_equal(root_make(now, &root_key, &root, &err) || root_put_cert(root, &cert_pem) ||
                         root_put_key(root_key, &key_pem),
                     0);
    struct loop *loop = loop_new();
    struct signer *signer = signer_new(loop, buf_str(&cert_pem), buf_str(&key_pem), &err);
    struct origin_rig rig;
    origin_rig_init(&rig, buf_str(&cert_pem), false, STR_NONE);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct host h = host_of(names[i].name);
        buf_reset(&der);
        assert_int_equal(signer_make_leaf(signer, names[i].ip, str_c(names[i].name), str_of(spki, (size_t)n), false,
                                          now, &der, &expires, &err),
                         0);
        const unsigned char *p = (const unsigned char *)buf_str(&der).p;
        X509 *leaf = d2i_X509(NULL, &p, (long)buf_size(&der));
        struct chain_verdict v = check(leaf, root, NULL);
        SSL_CTX *server = origin_rig_server(leaf, NULL, key);
        struct origin_meeting met = origin_rig_meet(&rig, server, &h, 0);
        if (v.fault || !met.connected)
            fail_msg("%s: %s %s", names[i].name, origin_chain_name(v.fault), met.why);
        SSL_CTX_free(server);
        X509_free(leaf);
    }
    origin_rig_done(&rig);
    signer_free(&signer);
    loop_free(loop);
    buf_done(&cert_pem);
    buf_done(&key_pem);
    buf_done(&der);
    OPENSSL_free(spki);
    X509_free(root);
    EVP_PKEY_free(root_key);
    EVP_PKEY_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_is_refused_and_its_absence_is_not),
        cmocka_unit_test(constrained_policies_are_named_once),
        cmocka_unit_test(a_sentence_says_which_and_where),
        cmocka_unit_test(more_extensions_than_anybody_needs),
        cmocka_unit_test(roots_of_three_kinds),
        cmocka_unit_test(the_roots_of_this_system),
        cmocka_unit_test(another_way_up),
        cmocka_unit_test(what_was_good_once),
        cmocka_unit_test(old_protocols_and_weak_suites),
        cmocka_unit_test(our_own_ca),
        cmocka_unit_test(what_we_present),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
