/* SPDX-License-Identifier: Apache-2.0 */
#include "ca/root.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <time.h>

enum { DAY_S = 24 * 3600, VALID_S = 398 * DAY_S, BACKDATE_S = 2 * DAY_S, PEM_MAX = 64 * 1024 };

/* OpenSSL's own words go nowhere (they may quote input); its queue is emptied so that they are not blamed on others. */
static int fail(struct err *err, const char *what)
{
    ERR_clear_error();
    return err_set(err, "%s", what);
}

/* ---- making one ---- */

static int set_serial(X509 *cert)
{
    unsigned char bytes[16];
    do
        rand_bytes(bytes, sizeof bytes);
    while (!(bytes[0] & 0x7f)); /* 128 bits, and a length that does not vary much */
    BIGNUM *bn = BN_bin2bn(bytes, sizeof bytes, NULL);
    ASN1_INTEGER *done = bn ? BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(cert)) : NULL;
    BN_free(bn);
    return done ? 0 : -1;
}

static int set_name(X509 *cert, EVP_PKEY *key)
{
    unsigned char *spki = NULL, digest[32];
    unsigned n = sizeof digest;
    int size = i2d_PUBKEY(key, &spki);
    if (size <= 0 || EVP_Digest(spki, (size_t)size, digest, &n, EVP_sha256(), NULL) != 1) {
        OPENSSL_free(spki);
        return -1;
    }
    OPENSSL_free(spki);
    char name[32];
    int len = snprintf(name, sizeof name, "Outgate CA %02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    X509_NAME *subject = X509_get_subject_name(cert);
    return X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC, (const unsigned char *)name, len, -1, 0) ==
                       1 &&
                   X509_set_issuer_name(cert, subject) == 1
               ? 0
               : -1;
}

static int add_extensions(X509 *cert)
{
    static const struct {
        int nid;
        const char *value;
    } table[] = {
        { NID_basic_constraints, "critical,CA:TRUE,pathlen:0" },
        { NID_key_usage, "critical,keyCertSign,cRLSign" },
        { NID_ext_key_usage, "serverAuth" },
        { NID_subject_key_identifier, "hash" },
        { NID_authority_key_identifier, "keyid:always" }, /* copies the one before it */
    };
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, table[i].nid, table[i].value);
        int added = e ? X509_add_ext(cert, e, -1) : 0;
        X509_EXTENSION_free(e);
        if (!added)
            return -1;
    }
    return 0;
}

int root_make(int64_t now_us, EVP_PKEY **ret_key, X509 **ret_cert, struct err *err)
{
    time_t from = (time_t)(now_us / 1000000) - BACKDATE_S;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    if (!key || !cert || !X509_set_version(cert, X509_VERSION_3) || set_serial(cert) ||
        !ASN1_TIME_set(X509_getm_notBefore(cert), from) || !ASN1_TIME_set(X509_getm_notAfter(cert), from + VALID_S) ||
        set_name(cert, key) || !X509_set_pubkey(cert, key) || add_extensions(cert) ||
        !X509_sign(cert, key, EVP_sha256())) {
        EVP_PKEY_free(key);
        X509_free(cert);
        return fail(err, "the CA could not be made (OpenSSL refused or memory is out)");
    }
    *ret_key = key;
    *ret_cert = cert;
    return 0;
}

/* ---- writing ---- */

static int put_bio(BIO *bio, struct buf *out)
{
    char *p;
    long n = BIO_get_mem_data(bio, &p);
    return n > 0 ? buf_put(out, str_of(p, (size_t)n)) : -1;
}

int root_put_cert(const X509 *cert, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int r = bio && PEM_write_bio_X509(bio, cert) == 1 ? put_bio(bio, out) : -1;
    BIO_free(bio);
    return r;
}

int root_put_key(EVP_PKEY *key, struct buf *out)
{
    MUST(out->wipe);
    BIO *bio = BIO_new(BIO_s_secmem()); /* wiped when freed, unlike BIO_s_mem */
    int r = bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1 ? put_bio(bio, out) : -1;
    BIO_free(bio);
    return r;
}

bool root_format_parse(struct str name, enum root_format *ret)
{
    if (str_eq(name, STR("pem")))
        *ret = ROOT_PEM;
    else if (str_eq(name, STR("der")))
        *ret = ROOT_DER;
    else if (str_eq(name, STR("p12")))
        *ret = ROOT_P12;
    else
        return false;
    return true;
}

int root_put_cert_as(enum root_format format, const X509 *cert, struct buf *out, struct err *err)
{
    struct buf pem;
    unsigned char *der = NULL;
    int n, r = -1;
    switch (format) {
    case ROOT_PEM:
        r = root_put_cert(cert, out);
        break;
    case ROOT_DER:
        n = i2d_X509(cert, &der);
        r = n > 0 ? buf_put(out, str_of(der, (size_t)n)) : -1;
        OPENSSL_free(der);
        break;
    case ROOT_P12:
        buf_init(&pem, PEM_MAX);
        r = root_put_cert(cert, &pem);
        if (!r)
            r = root_put_truststore(buf_str(&pem), out, err);
        buf_done(&pem);
        return r ? r : 0;
    }
    return r ? fail(err, "the certificate could not be written") : 0;
}

/* ---- reading ---- */

/* An encrypted file is an error, never a question on the terminal. */
static int no_password(char *buf, int size, int writing, void *ctx)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)ctx;
    return -1;
}

static BIO *bio_of(struct str s)
{
    return s.n && s.n <= PEM_MAX ? BIO_new_mem_buf(s.p, (int)s.n) : NULL;
}

int root_load_cert(struct str cert_pem, X509 **ret_cert, struct err *err)
{
    BIO *bio = bio_of(cert_pem);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    X509 *more = cert ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    if (!cert || more) {
        err_set(err, "the CA certificate: expected one certificate in PEM, got %s", cert ? "more" : "none");
        X509_free(cert);
        X509_free(more);
        return -1;
    }
    *ret_cert = cert;
    return 0;
}

static int time_us(const ASN1_TIME *t, int64_t *ret)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(t, &tm) != 1)
        return -1;
    *ret = (int64_t)timegm(&tm) * 1000000;
    return 0;
}

int root_validity(const X509 *cert, int64_t *ret_from_us, int64_t *ret_to_us)
{
    int64_t from, to;
    if (time_us(X509_get0_notBefore(cert), &from) || time_us(X509_get0_notAfter(cert), &to)) {
        ERR_clear_error();
        return -1;
    }
    *ret_from_us = from;
    *ret_to_us = to;
    return 0;
}

static bool is_p256(EVP_PKEY *key)
{
    char group[32] = { 0 };
    size_t n;
    return EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, group, sizeof group, &n) == 1 &&
           OBJ_txt2nid(group) == NID_X9_62_prime256v1;
}

static bool constraints_fit(X509 *cert)
{
    int critical;
    BASIC_CONSTRAINTS *bc = X509_get_ext_d2i(cert, NID_basic_constraints, &critical, NULL);
    bool fit = bc && critical == 1 && bc->ca && bc->pathlen && ASN1_INTEGER_get(bc->pathlen) == 0;
    BASIC_CONSTRAINTS_free(bc);
    return fit;
}

/* NULL when it is a CA as root_make makes them (or stricter), else what is wrong. */
static const char *wrong_with(X509 *cert, EVP_PKEY *key, int64_t now_us)
{
    int64_t from, to;
    if (!is_p256(key))
        return "the CA key must be a P-256 key";
    if (X509_check_private_key(cert, key) != 1)
        return "the CA certificate and the CA key do not belong together";
    if (X509_get_version(cert) != X509_VERSION_3 || !constraints_fit(cert))
        return "the CA certificate needs critical basicConstraints with CA:TRUE and pathlen:0";
    if (!(X509_get_extension_flags(cert) & EXFLAG_KUSAGE) || !(X509_get_key_usage(cert) & KU_KEY_CERT_SIGN))
        return "the CA certificate needs keyUsage with keyCertSign";
    if (!X509_get0_subject_key_id(cert))
        return "the CA certificate has no subject key identifier, and strict clients would refuse its leaves";
    if (X509_get_extension_flags(cert) & (EXFLAG_INVALID | EXFLAG_CRITICAL))
        return "the CA certificate has an extension that cannot be read";
    if (X509_NAME_cmp(X509_get_subject_name(cert), X509_get_issuer_name(cert)) != 0 || X509_verify(cert, key) != 1)
        return "the CA certificate must be self-signed (clients are given it as their trust anchor)";
    if (root_validity(cert, &from, &to))
        return "the CA certificate's dates cannot be read";
    if (now_us < from)
        return "the CA certificate is not valid yet: check the clock";
    if (now_us >= to)
        return "the CA certificate has expired: make a new one with `outgate ca rotate`";
    return NULL;
}

int root_load(struct str cert_pem, struct str key_pem, int64_t now_us, EVP_PKEY **ret_key, X509 **ret_cert,
              struct err *err)
{
    X509 *cert;
    if (root_load_cert(cert_pem, &cert, err))
        return -1;
    BIO *bio = bio_of(key_pem);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    BIO_free(bio);
    const char *wrong = key ? wrong_with(cert, key, now_us) : "the CA key: expected one unencrypted PKCS#8 key in PEM";
    if (wrong) {
        X509_free(cert);
        EVP_PKEY_free(key);
        return fail(err, wrong);
    }
    *ret_key = key;
    *ret_cert = cert;
    return 0;
}
