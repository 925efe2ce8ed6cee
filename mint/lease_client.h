/* SPDX-License-Identifier: Apache-2.0
 *
 * lease_client: a worker's way to leases. Asks the keeper (single flight here and there), keeps a lease at most 60 s
 * idle, drops it when revoked or expired. It also knows, for every (agent, host) that some credential covers, which
 * leases of that agent are live anywhere in the installation, because answers from such hosts are scrubbed of them: a
 * lease_set, pushed by the keeper. Never calls back on the caller's stack.
 *
 * Messages on the worker<->keeper channel (base/msg, wiped):
 *   LEASE_GET (1)     worker -> keeper  str credential, agent, host, u16 port, str method, path, scheme, request_id, u8
 * reason (0 first, 1 refresh, 2 rejected), str rejected (the id of the lease) LEASE_ANSWER (2)  keeper -> worker  u16 end; with END_OK the lease (see
 * keeper.c), else u32 retry_after_s, str why LEASE_WATCH (3)   worker -> keeper  str agent, credential: subscribe;
 * answered by LEASE_LIVE… then LEASE_WATCHED (same id) LEASE_LIVE (4)    keeper -> worker  a lease of a subscribed
 * (agent, credential) is live (push; before the asking worker gets its answer) LEASE_WATCHED (5) keeper -> worker
 *   LEASE_GONE (6)    keeper -> worker  str lease_id, agent, credential, u8 why (0 expired, 1 revoked, 2 replaced): use
 * it no more; revoked also ends exchanges that use it; a replaced one is scrubbed until its own end (the origin still
 * takes it) LEASE_UNWATCH (7) worker -> keeper  str agent, credential: no longer wanted (idle); no answer Their bytes
 * are mint/lease_wire.h's business. */
#ifndef MINT_LEASE_CLIENT_H
#define MINT_LEASE_CLIENT_H

#include "base/loop.h"
#include "base/msg.h"
#include "base/needles.h"
#include "mint/lease.h"
#include "mint/placeholder.h"

enum lease_msg { LEASE_GET = 1, LEASE_ANSWER, LEASE_WATCH, LEASE_LIVE, LEASE_WATCHED, LEASE_GONE, LEASE_UNWATCH };
enum lease_reason { LEASE_FIRST = 0, LEASE_REFRESH = 1, LEASE_REJECTED = 2 };
enum lease_gone { LEASE_GONE_EXPIRED = 0, LEASE_GONE_REVOKED = 1, LEASE_GONE_REPLACED = 2 };

/* The live leases of one agent whose credentials cover one host; immutable, reference-counted. needle id = item index *
 * LEASE_SET_FORMS + enum form (mint/form.h). Equal values stand in it once. */
enum { LEASE_SET_FORMS = 16, LEASE_SET_MAX = 1024 };
struct lease_set_item {
    struct lease *lease;
    struct str placeholder; /* what to put in its place; the set's own copy */
};
struct lease_set {
    unsigned refs;
    uint64_t generation;
    struct placeholder_table *table;
    struct lease_set_item *items;
    size_t n;
    struct arena arena;
    struct needles *needles;
    size_t shortest; /* of the needles: a shorter text holds none */
    bool same_length; /* what stands in for any form of any value is as long as that: scrubbing keeps every length */
};
/* Takes its own references. NULL: out of memory, or more than LEASE_SET_MAX. */
struct lease_set *lease_set_new(struct placeholder_table *t, const struct lease_set_item *v, size_t n,
                                uint64_t generation, struct err *err);
struct lease_set *lease_set_ref(struct lease_set *s);
void lease_set_unref(struct lease_set **s);

struct lease_client;
struct lease_wait;

struct lease_client *lease_client_new(struct loop *l, struct err *err);
/* Callbacks that are still due are not called; their waits are gone. Leases and sets that others hold stay theirs. */
void lease_client_free(struct lease_client **c);
/* The (new) channel to the keeper; takes fd. Waiting requests are sent again, once; subscriptions are renewed. What the
 * last keeper gave out is not given out any more, since the new one could not revoke it by itself; it is still
 * scrubbed, and a revocation by id or credential ends the exchanges that use it. */
int lease_client_connect(struct lease_client *c, int fd, struct err *err);
/* A new snapshot: leases of credentials that are gone are dropped, sets are rebuilt. */
void lease_client_set_policy(struct lease_client *c, struct policy *p, struct placeholder_table *t);
/* Called (on a later stack) when a lease was revoked: the worker ends exchanges that use it. It is the same object as
 * lease_get gave out, also when the cache had dropped it since. */
void lease_client_on_revoked(struct lease_client *c, void (*cb)(void *ctx, const struct lease *lease), void *ctx);

struct lease_answer {
    enum end end;        /* END_OK or the refusal */
    struct lease *lease; /* with END_OK; the callee refs it to keep it */
    uint32_t retry_after_s;
    struct str why; /* for the event and hint; ours, never the sidecar's words */
};
/* Returns a cached lease at once (a new reference; no callback), or NULL and *ret_wait with cb exactly once later, at
 * the latest after limits.lease_timeout (twice that where a lease's scope makes it ask once more). NULL with *ret_wait
 * NULL: out of memory, nothing will be called (credential_unavailable). rejected: NULL, or the lease that an
 * origin answered with 401: never answered from the cache, and with another lease where there is one by now or the
 * sidecar gives one. */
struct lease *lease_get(struct lease_client *c, const struct credential *cred, const struct ask *ask,
                        struct str request_id, const struct lease *rejected,
                        void (*cb)(void *ctx, const struct lease_answer *a), void *ctx, struct lease_wait **ret_wait);
void lease_cancel(struct lease_wait **w);

/* The set to scrub an answer with. 1: known (*ret: a new reference, or NULL when no credential covers the host or none
 * is live); 0: being fetched, cb exactly once later (then ask again); -1: it cannot be known (the keeper did not answer
 * in limits.lease_timeout, the agent is gone, too many are live, out of memory): refuse, credential_unavailable. host
 * NULL: the live leases of all the agent's credentials, whatever their hosts, to know its own requests by. Cheap when
 * nothing changed (no allocation). While the keeper is away, what was known stays usable. A lease stays in its sets
 * until its own end, also when it was replaced or revoked: the origin may give it back that long. */
int lease_live(struct lease_client *c, const struct agent *agent, const struct host *host, struct lease_set **ret,
               void (*cb)(void *ctx), void *ctx, struct lease_wait **ret_wait);
/* Changes whenever some set may have changed: a running answer compares it and asks lease_live again. */
uint64_t lease_client_generation(const struct lease_client *c);
/* Leases that lease_get could give out now. */
size_t lease_client_count(const struct lease_client *c);

#endif
