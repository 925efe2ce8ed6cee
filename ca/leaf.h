/* SPDX-License-Identifier: Apache-2.0
 *
 * leaf: what goes into a leaf certificate and the shapes that a name and a key must have to get one. Pure: no key, no
 * clock. Internal to ca.
 *
 * The TBSCertificate (RFC 5280 4.1.2) is written byte by byte from a handful of values: with OpenSSL's X509 objects a
 * leaf costs 230 us, of which 173 are its encoder looking up how to write a public key that arrived encoded; this
 * way 2. Nothing is copied from the worker but the name and the curve point, both checked. */
#ifndef CA_LEAF_H
#define CA_LEAF_H

#include "ca/der.h"

enum {
    LEAF_NAME_MAX = 253,
    LEAF_SPKI_SIZE = 91, /* an uncompressed P-256 key, the one form accepted */
    LEAF_POINT_SIZE = 65,
    LEAF_ID_MAX = 64, /* the CA's key identifier */
};

/* A host as base and policy write it: lower-case LDH labels (and '_') of 1 to 63 bytes, no hyphen at a label's start, no
 * dot at the end, no wildcard; the last label is no number, so no address passes as a name. */
bool leaf_name_is_dns(struct str name);
/* IPv4 or IPv6 text; 4 or 16 bytes into ret and how many, or 0: not an address. */
size_t leaf_name_to_ip(struct str name, unsigned char ret[16]);
/* The point (65 bytes) inside the SPKI where its shape is right; false otherwise. Whether it is on the curve is the
 * signer's to check. */
bool leaf_spki_point(struct str spki, struct str *ret_point);

struct leaf_fields {
    struct str issuer;     /* DER of the CA's subject */
    struct str issuer_key; /* its key identifier */
    struct str serial;     /* big-endian */
    struct str spki;
    struct str key_id; /* the subject's key identifier */
    bool is_ip;
    struct str name; /* DNS text, or 4 or 16 address bytes */
    int64_t from_s, to_s;
};
/* Writes the TBSCertificate; d->bad when it does not fit. */
void leaf_put_tbs(struct der *d, const struct leaf_fields *f);
/* Wraps what is in d (one TBSCertificate) and its ECDSA-SHA256 signature into a Certificate. */
void leaf_wrap(struct der *d, struct str tbs, struct str signature);

#endif
