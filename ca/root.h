/* SPDX-License-Identifier: Apache-2.0
 *
 * root: the interception CA of one installation: P-256, unique, pathlen 0, critical basicConstraints and keyUsage
 * (keyCertSign, cRLSign), SKI and AKI, 128-bit random serial, valid 398 days from 48 h ago, subject "Outgate CA <8 hex of
 * its key>". Files: DIR/ca.key (0400, PKCS#8 PEM) and DIR/ca.pem. */
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
/* Reads and checks that certificate and key belong together, that the certificate is a CA as above and not expired at now. */
int root_load(struct str cert_pem, struct str key_pem, int64_t now_us, EVP_PKEY **ret_key, X509 **ret_cert, struct err *err);
int root_load_cert(struct str cert_pem, X509 **ret_cert, struct err *err);

#endif
