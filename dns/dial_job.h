/* SPDX-License-Identifier: Apache-2.0
 *
 * dial_job: one dial in the resolver, from a worker's words to a connected socket. The worker is not believed: agent,
 * rule, host and port are judged again on the resolver's own snapshot, before anything is looked up.
 *
 *   judge -> resolve and vet the target -> (through a parent: resolve and vet the parent) -> connect -> done
 *
 * Never calls back on the caller's stack. */
#ifndef DNS_DIAL_JOB_H
#define DNS_DIAL_JOB_H

#include "dns/lookup.h"
#include "dns/name_guard.h"
#include "policy/policy.h"

/* What all jobs share; lives longer than any of them. */
struct dial_env {
    struct loop *loop;
    struct lookups *lookups;
    struct name_guard *guard;
    struct dns_log *log;
    const struct own_addresses *own;
};

struct dial_ask {
    struct str agent, rule, host;
    uint16_t port;
    uint32_t timeout_ms; /* 0: limits.connect_timeout */
    bool via_parent;
    struct str client, conn_id, request_id;
};

struct dial_outcome {
    enum end end;
    int fd;        /* with END_OK, else -1; closed by the job after the callback unless taken (set to -1) */
    char addr[64]; /* "192.0.2.1:443" */
    char why[200];
    char dns_id[ANSWER_ID];
    const char *finding; /* class, static; NULL: none */
    uint32_t resolve_ms, connect_ms;
};

struct dial_job;
/* Strings are copied. cb exactly once; the job is free by then. NULL when out of memory. */
struct dial_job *dial_job_start(const struct dial_env *env, struct snapshot *s, const struct dial_ask *ask,
                                void (*cb)(void *ctx, struct dial_outcome *o), void *ctx);
void dial_job_cancel(struct dial_job **j);

#endif
