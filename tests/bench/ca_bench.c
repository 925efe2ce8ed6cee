/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU microseconds per leaf: signed by the signer, built with OpenSSL's X509 calls for comparison, read by the worker.
 *   cc -O2 -D_GNU_SOURCE -I. tests/bench/ca_bench.c ca/[a-z]*.c
 * base/{arena,buf,clock,clock_text,err,log,loop,msg,msg_codec,str}.c -lcrypto */
#include "base/buf.h"
#include "base/clock.h"
#include "ca/root.h"
#include "ca/signer.h"

#include <malloc.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 3000 };

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void with_openssl(X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *leaf_key)
{
    X509 *x = X509_new();
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 12345678);
    X509_set_issuer_name(x, X509_get_subject_name(ca));
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, leaf_key);
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, ca, x, NULL, NULL, 0);
    static const struct {
        int nid;
        const char *value;
    } table[] = { { NID_basic_constraints, "critical,CA:FALSE" },
                  { NID_key_usage, "critical,digitalSignature" },
                  { NID_ext_key_usage, "serverAuth" },
                  { NID_subject_alt_name, "critical,DNS:api.test" },
                  { NID_subject_key_identifier, "hash" },
                  { NID_authority_key_identifier, "keyid:always" } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, table[i].nid, table[i].value);
        X509_add_ext(x, e, -1);
        X509_EXTENSION_free(e);
    }
    X509_sign(x, ca_key, EVP_sha256());
    unsigned char *der = NULL;
    i2d_X509(x, &der);
    OPENSSL_free(der);
    X509_free(x);
}

int main(void)
{
    struct err err = { "" };
    EVP_PKEY *key, *leaf_key = EVP_EC_gen("P-256");
    X509 *cert, *kept[N];
    struct buf cert_pem, key_pem, leaf;
    buf_init(&cert_pem, 65536);
    buf_init(&key_pem, 65536);
    key_pem.wipe = true;
    buf_init(&leaf, 65536);
    if (root_make(clock_wall_us(), &key, &cert, &err) || root_put_cert(cert, &cert_pem) || root_put_key(key, &key_pem))
        return 1;
    struct loop *l = loop_new();
    struct signer *s = signer_new(l, buf_str(&cert_pem), buf_str(&key_pem), &err);
    if (!s) {
        puts(err.text);
        return 1;
    }
    unsigned char *spki = NULL;
    int spki_n = i2d_PUBKEY(leaf_key, &spki);
    int64_t expires;
    double t = cpu_us();
    for (int i = 0; i < N; i++) {
        buf_reset(&leaf);
        if (signer_make_leaf(s, false, STR("api.test"), str_of(spki, (size_t)spki_n), false, clock_wall_us(), &leaf,
                             &expires, &err))
            return 1;
    }
    printf("signer_make_leaf          %7.1f us  (%zu bytes)\n", (cpu_us() - t) / N, buf_size(&leaf));
    t = cpu_us();
    for (int i = 0; i < N / 10; i++)
        with_openssl(cert, key, leaf_key);
    printf("the same with X509 calls  %7.1f us\n", (cpu_us() - t) / (N / 10));
    size_t heap = mallinfo2().uordblks;
    t = cpu_us();
    for (int i = 0; i < N; i++) {
        struct str der = buf_str(&leaf);
        const unsigned char *p = (const unsigned char *)der.p;
        kept[i] = d2i_X509(NULL, &p, (long)der.n);
    }
    printf("d2i_X509 in the worker    %7.1f us  (%zu bytes kept)\n", (cpu_us() - t) / N,
           (mallinfo2().uordblks - heap) / N);
    t = cpu_us();
    for (int i = 0; i < N; i++)
        if (X509_check_private_key(kept[i], leaf_key) != 1 || X509_check_host(kept[i], "api.test", 8, 0, NULL) != 1)
            return 1;
    printf("checks of the answer      %7.1f us  (%zu bytes kept in all)\n", (cpu_us() - t) / N,
           (mallinfo2().uordblks - heap) / N);
    for (int i = 0; i < N; i++)
        X509_free(kept[i]);
    OPENSSL_free(spki);
    EVP_PKEY_free(key);
    EVP_PKEY_free(leaf_key);
    X509_free(cert);
    signer_free(&s);
    loop_free(l);
    buf_done(&cert_pem);
    buf_done(&key_pem);
    buf_done(&leaf);
    return 0;
}
