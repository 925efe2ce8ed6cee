/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_table: what one worker counts per agent, by name, so that it survives a new snapshot: open connections, the small
 * bucket of newly denied names that are still answered inside TLS, and the refusals of this second (beyond
 * limits.refusals_per_second they are counted, not written one by one). Bounded by the number of agents in any snapshot. */
#ifndef PROXY_AGENT_TABLE_H
#define PROXY_AGENT_TABLE_H

#include "base/limits.h"
#include "policy/policy.h"

struct agent_state {
    struct agent_state *next;
    uint64_t connections;
    /* denied names */
    double denied_tokens;
    uint64_t denied_at_ms;
    uint64_t denied_seen[64]; /* hashes of names denied before: a ring */
    unsigned denied_next;
    /* refusals this second */
    uint64_t second;
    uint64_t refusals, counted; /* written; beyond the limit */
    uint16_t counted_code;      /* enum end of the last one counted */
    char counted_host[64];
    size_t name_n;
    char name[];
};
struct agent_table;
struct agent_table *agent_table_new(void);
void agent_table_free(struct agent_table **t);
/* The state of this agent ("": clients that are no agent). NULL: out of memory. */
struct agent_state *agent_table_get(struct agent_table *t, struct str name);
/* May this denied name still be refused inside the tunnel? A name denied before costs nothing. */
bool agent_denied_inside(struct agent_state *a, struct str host, const struct limits *lim, uint64_t now_ms);
/* True: write this refusal as its own event. False: it was counted. */
bool agent_refusal_written(struct agent_state *a, enum end end, struct str host, const struct limits *lim, uint64_t now_ms);
/* Calls cb for each agent with counted refusals of a second that is over, then forgets them. */
void agent_table_counted(struct agent_table *t, uint64_t now_ms, void (*cb)(void *ctx, const struct agent_state *a), void *ctx);

#endif
