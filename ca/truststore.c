/* SPDX-License-Identifier: Apache-2.0
 *
 * The PKCS#12 form of trusted certificates that Java reads. Java takes a certificate without a key as trusted only
 * where its bag carries the attribute "trusted key usage" (2.16.840.1.113894.746875.1.1) with anyExtendedKeyUsage, and
 * it wants a MAC. The bags are not encrypted (certificates are public) and the MAC is HMAC-SHA-1, the one that every
 * Java reads, also Java 8 before 8u301: the password is known to all, so the MAC protects from nothing but accidents.
 */
#include "ca/root.h"

#include "base/buf.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <stdio.h>

enum { BUNDLE_MAX = 4 * 1024 * 1024, CERTS_MAX = 4096, MAC_ROUNDS = 2048 };
#define PASSWORD "changeit"

static int add_bag(STACK_OF(PKCS12_SAFEBAG) * *bags, X509 *cert, size_t index)
{
    char alias[32];
    int n = snprintf(alias, sizeof alias, "ca-%04zu", index); /* Java drops a second entry of the same alias */
    if (X509_alias_set1(cert, (const unsigned char *)alias, n) != 1)
        return -1;
    PKCS12_SAFEBAG *bag = PKCS12_add_cert(bags, cert); /* owned by bags */
    if (!bag)
        return -1;
    const void *any = OBJ_nid2obj(NID_anyExtendedKeyUsage); /* -1: the value is an object, not its bytes */
    return PKCS12_add1_attr_by_txt(bag, "2.16.840.1.113894.746875.1.1", V_ASN1_OBJECT, any, -1) == 1 ? 0 : -1;
}

static PKCS12 *pack(STACK_OF(PKCS12_SAFEBAG) * bags)
{
    STACK_OF(PKCS7) *safes = NULL;
    PKCS12 *p12 = NULL;
    if (PKCS12_add_safe(&safes, bags, -1, 0, NULL) == 1) /* -1: not encrypted */
        p12 = PKCS12_add_safes(safes, 0);
    sk_PKCS7_pop_free(safes, PKCS7_free);
    if (p12 && PKCS12_set_mac(p12, PASSWORD, -1, NULL, 0, MAC_ROUNDS, EVP_sha1()) != 1) {
        PKCS12_free(p12);
        p12 = NULL;
    }
    return p12;
}

int root_put_truststore(struct str pem_bundle, struct buf *out, struct err *err)
{
    if (!pem_bundle.n || pem_bundle.n > BUNDLE_MAX)
        return err_set(err, "the trust store: expected a PEM bundle of 1 to %d bytes, got %zu", BUNDLE_MAX,
                       pem_bundle.n);
    BIO *bio = BIO_new_mem_buf(pem_bundle.p, (int)pem_bundle.n);
    STACK_OF(PKCS12_SAFEBAG) *bags = NULL;
    size_t count = 0;
    int bad = bio ? 0 : -1;
    for (X509 *cert; !bad && (cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)); count++) {
        bad = count >= CERTS_MAX ? -1 : add_bag(&bags, cert, count);
        X509_free(cert);
    }
    /* "no more PEM" is the only good reason to have stopped */
    if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        bad = -1;
    BIO_free(bio);
    PKCS12 *p12 = !bad && count ? pack(bags) : NULL;
    sk_PKCS12_SAFEBAG_pop_free(bags, PKCS12_SAFEBAG_free);
    unsigned char *der = NULL;
    int n = p12 ? i2d_PKCS12(p12, &der) : -1;
    PKCS12_free(p12);
    int r = n > 0 ? buf_put(out, str_of(der, (size_t)n)) : -1;
    OPENSSL_free(der);
    ERR_clear_error();
    return r ? err_set(err, "the trust store could not be made of %zu certificates", count) : 0;
}
