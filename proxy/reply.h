/* SPDX-License-Identifier: Apache-2.0
 *
 * reply: what the proxy says itself instead of an origin's answer, shaped so that the client at hand shows the reason to its user:
 * JSON, plain text, AWS's XML, npm's JSON, or a gRPC status. Independent of the protocol it is said in; nothing of the origin's words
 * is in it. */
#ifndef PROXY_REPLY_H
#define PROXY_REPLY_H

#include "base/buf.h"
#include "base/field.h"
#include "policy/end.h"

struct exchange;

enum { REPLY_FIELDS = 6 };

struct reply {
    unsigned status;
    struct buf reason; /* ASCII, printable, at most 120 bytes */
    struct buf body;
    struct buf text; /* of the fields */
    struct field fields[REPLY_FIELDS]; /* without framing */
    size_t nfields;
};

/* The refusal of x with this end. on_proxy: a login may be asked for. Owned by the caller: reply_done. */
void reply_make(struct exchange *x, enum end end, bool on_proxy, struct reply *ret);
void reply_done(struct reply *r);

#endif
