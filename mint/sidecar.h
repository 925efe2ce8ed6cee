/* SPDX-License-Identifier: Apache-2.0
 *
 * sidecar: the client end of the minting protocol: HTTP/1.1 by libcurl over a Unix socket; who listens
 * there is seen (SO_PEERCRED) before a byte of a question goes out. A hub is one libcurl multi handle driven by the
 * loop; a sidecar is one socket with at most SIDECAR_CALLS transfers at a time and a bounded queue, so that a slow one
 * holds up nobody else. Every call has the sidecar's timeout and one callback, on a stack of its own. A cancelled call
 * runs to its end unheard, and what it was given is given back (DELETE), so that no lease is lost.
 *
 * A hub makes everything that needs a system call of its own (a socket pair) at once: make it before the lock-down. */
#ifndef MINT_SIDECAR_H
#define MINT_SIDECAR_H

#include "base/err.h"
#include "base/loop.h"
#include "mint/sidecar_json.h"

#include <sys/types.h>

enum { SIDECAR_CALLS = 16, SIDECAR_QUEUE_MAX = 8192 };

struct sidecar_hub;
struct sidecar;
struct sidecar_call;

struct sidecar_hub *sidecar_hub_new(struct loop *l, struct err *err);
/* Ends every call without a callback. Sidecars may be released before or after. */
void sidecar_hub_free(struct sidecar_hub **h);
/* Runs what is under way without the loop for at most max_ms: for the DELETEs at the end of the process. */
void sidecar_hub_finish(struct sidecar_hub *h, unsigned max_ms);

struct sidecar_options {
    struct str name, socket; /* absolute path */
    uint64_t timeout_ms;
    bool uid_given; /* the peer must have this uid; else it must be the owner of the socket file */
    uid_t uid;
    bool or_root; /* root may listen too: the private minter's socket is made by the supervisor */
};
/* One reference. NULL: the path does not fit a socket address. Nothing is opened yet. */
struct sidecar *sidecar_new(struct sidecar_hub *h, const struct sidecar_options *o, struct err *err);
struct sidecar *sidecar_ref(struct sidecar *s);
void sidecar_unref(struct sidecar **s);
/* Was it made with these options? */
bool sidecar_is(const struct sidecar *s, const struct sidecar_options *o);
/* May this uid speak for the sidecar (revocation)? */
bool sidecar_speaks(const struct sidecar *s, uid_t uid);

enum sidecar_result {
    SIDECAR_FAILED = 0, /* away, slow, an unexpected status */
    SIDECAR_UNFIT,      /* answered something that must be refused, or is not who it should be */
    SIDECAR_BUSY,       /* 429, 503 */
    SIDECAR_DENIED,     /* 403 */
    SIDECAR_GIVEN,
};
struct sidecar_answer {
    enum sidecar_result result;
    uint32_t retry_after_s;            /* BUSY: as it said, 0: not said */
    const char *why;                   /* static, ours */
    const struct sidecar_grant *grant; /* GIVEN; borrowed for the call */
};
/* Copies what it needs. NULL: its queue is full. */
struct sidecar_call *sidecar_lease(struct sidecar *s, const struct sidecar_ask *a, bool allow_short,
                                   void (*cb)(void *ctx, const struct sidecar_answer *a), void *ctx);
void sidecar_cancel(struct sidecar_call **c);
/* DELETE /v1/lease/ID; whatever the answer. */
void sidecar_delete(struct sidecar *s, struct str lease_id);

#endif
