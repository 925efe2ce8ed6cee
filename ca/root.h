/* SPDX-License-Identifier: Apache-2.0
 *
 * root: the interception CA of one installation: P-256, unique, pathlen 0, critical basicConstraints and keyUsage
 * (keyCertSign, cRLSign), EKU serverAuth (a stolen key signs no client or code), SKI and AKI, 128-bit random serial,
 * valid 398 days from 48 h ago, subject "Outgate CA <8 hex of its key>". Files: DIR/ca.key (0400, PKCS#8 PEM) and
 * DIR/ca.pem. */
#ifndef CA_ROOT_H
#define CA_ROOT_H

#include "base/err.h"
#include "base/str.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

/* Makes key and certificate; the caller frees both. */
int root_make(int64_t now_us, EVP_PKEY **ret_key, X509 **ret_cert, struct err *err);
/* PEM of either, into caller's buffer. */
struct buf;
int root_put_cert(const X509 *cert, struct buf *out);
int root_put_key(EVP_PKEY *key, struct buf *out); /* out->wipe must be set */
/* Reads and checks that certificate and key belong together, that the certificate is a CA as above (self-signed, P-256,
 * pathlen 0, keyCertSign) and valid at now. */
int root_load(struct str cert_pem, struct str key_pem, int64_t now_us, EVP_PKEY **ret_key, X509 **ret_cert,
              struct err *err);
/* One certificate in PEM, whatever it is for; text before it is skipped, a second one is an error. */
int root_load_cert(struct str cert_pem, X509 **ret_cert, struct err *err);

/* When it begins and ends to be valid, microseconds since 1970; 0 or -1. */
int root_validity(const X509 *cert, int64_t *ret_from_us, int64_t *ret_to_us);

/* What `ca export` and the trust folder write. P12 is a trust store for Java: certificates only, password "changeit",
 * each marked as trusted the way Java's own keytool does. */
enum root_format { ROOT_PEM, ROOT_DER, ROOT_P12 };
/* "pem", "der", "p12"; false: none of these. */
bool root_format_parse(struct str name, enum root_format *ret);
int root_put_cert_as(enum root_format format, const X509 *cert, struct buf *out, struct err *err);
/* The same trust store of every certificate of a PEM bundle (system roots and ours): Java takes one store, not two. */
int root_put_truststore(struct str pem_bundle, struct buf *out, struct err *err);

#endif
