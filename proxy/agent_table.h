/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_table: what one worker counts per agent, by name, so that it survives a new snapshot: open connections,
 * descriptors (shared fairly when they are few), the small bucket of newly denied names that are still answered inside TLS, and the refusals and connections of this
 * second (beyond limits.refusals_per_second they are counted, not written one by one). Bounded by the number of agents
 * in any snapshot. */
#ifndef PROXY_AGENT_TABLE_H
#define PROXY_AGENT_TABLE_H

#include "base/bucket.h"
#include "base/limits.h"
#include "policy/policy.h"

/* Events of one kind that were not written one by one. */
struct agent_count {
    uint64_t n, second; /* when the first of them came */
    /* of the last one: */
    enum end code;
    const char *verdict, *end; /* static */
    char host[128];            /* escaped */
};
struct agent_state {
    struct agent_state *next;
    uint64_t connections, held; /* held: descriptors, its connections' and their origins' */
    /* denied names */
    struct bucket denied;
    uint64_t denied_seen[64]; /* hashes of names denied before: a ring */
    unsigned denied_next;
    struct bucket resets; /* of HTTP/2 streams, over all its connections */
    /* refusal and conn events */
    uint64_t second, written;           /* in that second */
    struct agent_count refusals, conns; /* beyond the limit, or while the log had no room */
    size_t name_n;
    char name[];
};
struct agent_table;
struct agent_table *agent_table_new(void);
void agent_table_free(struct agent_table **t);
/* The state of this agent ("": clients that are no agent). NULL: out of memory. */
struct agent_state *agent_table_get(struct agent_table *t, struct str name);
/* One more descriptor for this agent, out of `all` that the worker has for them. False: the agent has its share of what
 * there is (base/fair.h). */
bool agent_hold(struct agent_table *t, struct agent_state *a, uint64_t all);
void agent_let_go(struct agent_table *t, struct agent_state *a);
uint64_t agent_held(const struct agent_table *t); /* all of them together */
/* May this denied name still be refused inside the tunnel? A name denied before costs nothing. */
bool agent_denied_inside(struct agent_state *a, struct str host, const struct limits *lim, uint64_t now_ms);
/* May one more HTTP/2 stream of this agent be reset? AGENT_RESETS times what one connection may. */
enum { AGENT_RESETS = 10 };
bool agent_reset_fits(struct agent_state *a, const struct limits *lim, uint64_t now_ms);
/* May a refusal or conn event of this agent be written on its own? Each yes takes one of this second's. */
bool agent_event_fits(struct agent_state *a, const struct limits *lim, uint64_t now_ms);
/* It was not written: it is counted. verdict and end are static. */
void agent_event_count(struct agent_count *c, const char *verdict, enum end code, const char *end, struct str host,
                       uint64_t now_ms);
/* Calls cb for each count whose second is over (all: every count); true: it was written and is forgotten. */
void agent_table_counted(struct agent_table *t, uint64_t now_ms, bool all,
                         bool (*cb)(void *ctx, const struct agent_state *a, const struct agent_count *c), void *ctx);

#endif
