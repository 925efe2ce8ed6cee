/* SPDX-License-Identifier: Apache-2.0
 *
 * signer: the `ca` role's one operation: a shape-checked name plus a leaf public key -> certificate. It rebuilds the
 * whole certificate itself; the worker supplies only the name and the key's public half. Leaves: SAN by type (DNS or
 * IP), no CN (an empty subject with a critical SAN: names reach 253 bytes), CA:FALSE critical, digitalSignature,
 * serverAuth, SKI, AKI, 128-bit random serial, notBefore 48 h ago (never before the CA's), short (7 days; 1 h for a
 * refusal leaf), never outliving the CA. Rate-limited per worker (limits.leaf_rate).
 *
 * Messages on the worker<->ca channel (base/msg):
 *   CA_SIGN (1)   worker -> ca   u8 kind (1 DNS, 2 IP), str name (canonical host text), str spki (DER), u8 refusal
 *   CA_SIGNED (2) ca -> worker   u8 status (0 ok, 1 refused, 2 rate limited), str leaf (DER), u64 expires_us */
#ifndef CA_SIGNER_H
#define CA_SIGNER_H

#include "base/err.h"
#include "base/loop.h"
#include "base/msg.h"

enum ca_msg { CA_SIGN = 1, CA_SIGNED = 2 };
enum ca_status { CA_OK = 0, CA_REFUSED = 1, CA_RATE_LIMITED = 2 };

struct signer;
/* cert and key PEM: the bytes may be wiped after the call. */
struct signer *signer_new(struct loop *l, struct str cert_pem, struct str key_pem, struct err *err);
void signer_free(struct signer **s);
/* Serves one worker's channel; takes fd. When the channel closes it is dropped. rate: leaves a second. */
int signer_add_worker(struct signer *s, unsigned index, int fd, uint64_t rate, struct err *err);
/* The pure part, for tests and the fuzzer: builds and signs one leaf as DER into out. */
int signer_make_leaf(struct signer *s, bool is_ip, struct str name, struct str spki, bool refusal, int64_t now_us,
                     struct buf *out, int64_t *ret_expires_us, struct err *err);

/* The pure part of one message: the body of a CA_SIGN, to the body of a CA_SIGNED. over_rate: the worker has used up
 * its share. -1: malformed, the worker is broken and its channel must be closed. */
int signer_answer(struct signer *s, struct str body, bool over_rate, int64_t now_us, struct msg_writer *ret);

#endif
