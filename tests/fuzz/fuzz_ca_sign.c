/* SPDX-License-Identifier: Apache-2.0
 *
 * What a broken worker may send to the ca: the body of a CA_SIGN. Whatever it is, the answer is a refusal, or a leaf
 * that says what a leaf may say and no more. */
#include "base/clock.h"
#include "ca/leaf.h"
#include "ca/root.h"
#include "ca/signer.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static struct signer *signer;
static X509 *ca;
static EVP_PKEY *ca_key;
static int64_t now_us;

static void start(void)
{
    struct buf cert, key;
    struct err err;
    buf_init(&cert, 65536);
    buf_init(&key, 65536);
    key.wipe = true;
    now_us = clock_wall_us();
    MUST(root_make(now_us, &ca_key, &ca, &err) == 0);
    MUST(root_put_cert(ca, &cert) == 0 && root_put_key(ca_key, &key) == 0);
    struct loop *l = loop_new();
    MUST(l);
    signer = signer_new(l, buf_str(&cert), buf_str(&key), &err);
    MUST(signer);
    buf_done(&cert);
    buf_done(&key);
}

/* The name is in the leaf exactly as it was asked for, and it is one that may be asked for. */
static void check_name(X509 *x, uint8_t kind, struct str name)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    MUST(names && sk_GENERAL_NAME_num(names) == 1);
    const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, 0);
    if (kind == 1) {
        MUST(g->type == GEN_DNS);
        MUST(str_eq(name, str_of(ASN1_STRING_get0_data(g->d.dNSName), (size_t)ASN1_STRING_length(g->d.dNSName))));
        MUST(name.n >= 1 && name.n <= 253 && name.p[0] != '.' && name.p[name.n - 1] != '.');
        for (size_t i = 0; i < name.n; i++)
            MUST((name.p[i] >= 'a' && name.p[i] <= 'z') || ascii_digit(name.p[i]) || strchr("-_.", name.p[i]));
    } else {
        MUST(g->type == GEN_IPADD);
        MUST(ASN1_STRING_length(g->d.iPAddress) == 4 || ASN1_STRING_length(g->d.iPAddress) == 16);
    }
    GENERAL_NAMES_free(names);
}

static void check_leaf(struct str der, struct str body, uint64_t expires_us)
{
    struct msg_reader r = msg_reader(body);
    uint8_t kind = msg_get_u8(&r);
    struct str name = msg_get_str(&r, 1024), spki = msg_get_str(&r, 1024);
    const unsigned char *p = (const unsigned char *)der.p;
    X509 *x = d2i_X509(NULL, &p, (long)der.n);
    MUST(x && p == (const unsigned char *)der.p + der.n);
    MUST(X509_verify(x, ca_key) == 1 && X509_check_ca(x) == 0);
    MUST(X509_get_key_usage(x) == KU_DIGITAL_SIGNATURE && X509_get_extended_key_usage(x) == XKU_SSL_SERVER);
    MUST(X509_get_ext_count(x) == 6 && X509_NAME_entry_count(X509_get_subject_name(x)) == 0);
    unsigned char *key = NULL;
    int n = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(x), &key);
    MUST(n > 0 && str_eq(spki, str_of(key, (size_t)n)) && X509_get0_pubkey(x));
    OPENSSL_free(key);
    int64_t from, to, ca_from, ca_to;
    MUST(root_validity(x, &from, &to) == 0 && root_validity(ca, &ca_from, &ca_to) == 0);
    MUST(from >= ca_from && to <= ca_to && (uint64_t)to == expires_us);
    check_name(x, kind, name);
    X509_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!signer)
        start();
    struct str body = str_of(data, size);
    struct msg_writer w;
    msg_writer_init(&w);
    if (signer_answer(signer, body, false, now_us, &w) == 0) {
        struct msg_reader r = msg_reader(buf_str(&w.buf));
        uint8_t status = msg_get_u8(&r);
        struct str leaf = msg_get_str(&r, DER_MAX);
        uint64_t expires_us = msg_get_u64(&r);
        MUST(msg_reader_end(&r) && (status == CA_OK || status == CA_REFUSED));
        MUST((status == CA_OK) == (leaf.n > 0));
        if (status == CA_OK)
            check_leaf(leaf, body, expires_us);
    }
    MUST(ERR_peek_error() == 0);
    buf_done(&w.buf);
    return 0;
}
