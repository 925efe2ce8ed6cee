/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/agent_table.h"

#include <stdlib.h>

enum { BUCKETS = 256 };
struct agent_table {
    struct agent_state *v[BUCKETS];
};

struct agent_table *agent_table_new(void)
{
    return calloc(1, sizeof(struct agent_table));
}

void agent_table_free(struct agent_table **tp)
{
    struct agent_table *t = *tp;
    *tp = NULL;
    for (size_t i = 0; t && i < BUCKETS; i++)
        while (t->v[i]) {
            struct agent_state *a = t->v[i];
            t->v[i] = a->next;
            free(a);
        }
    free(t);
}

struct agent_state *agent_table_get(struct agent_table *t, struct str name)
{
    struct agent_state **at = &t->v[str_hash(name) % BUCKETS];
    for (struct agent_state *a = *at; a; a = a->next)
        if (str_eq(str_of(a->name, a->name_n), name))
            return a;
    struct agent_state *a = calloc(1, sizeof *a + name.n);
    if (!a)
        return NULL;
    a->name_n = name.n;
    if (name.n)
        memcpy(a->name, name.p, name.n);
    a->denied_tokens = -1; /* full at first use */
    a->next = *at;
    *at = a;
    return a;
}

bool agent_denied_inside(struct agent_state *a, struct str host, const struct limits *lim, uint64_t now_ms)
{
    uint64_t hash = str_hash(host);
    for (size_t i = 0; i < sizeof a->denied_seen / sizeof *a->denied_seen; i++)
        if (a->denied_seen[i] == hash)
            return true;
    double full = (double)lim->denied_names_burst;
    if (a->denied_tokens < 0)
        a->denied_tokens = full;
    else
        a->denied_tokens += (double)(now_ms - a->denied_at_ms) / 1000.0 * (double)lim->denied_names_rate;
    a->denied_at_ms = now_ms;
    if (a->denied_tokens > full)
        a->denied_tokens = full;
    if (a->denied_tokens < 1)
        return false;
    a->denied_tokens -= 1;
    a->denied_seen[a->denied_next++ % (sizeof a->denied_seen / sizeof *a->denied_seen)] = hash;
    return true;
}

bool agent_refusal_written(struct agent_state *a, enum end end, struct str host, const struct limits *lim, uint64_t now_ms)
{
    if (now_ms / 1000 != a->second && !a->counted) {
        a->second = now_ms / 1000;
        a->refusals = 0;
    }
    if (a->refusals < lim->refusals_per_second) {
        a->refusals++;
        return true;
    }
    a->counted++;
    a->counted_code = (uint16_t)end;
    str_escape(host, a->counted_host, sizeof a->counted_host);
    return false;
}

void agent_table_counted(struct agent_table *t, uint64_t now_ms, void (*cb)(void *ctx, const struct agent_state *a), void *ctx)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct agent_state *a = t->v[i]; a; a = a->next)
            if (a->counted && a->second != now_ms / 1000) {
                cb(ctx, a);
                a->counted = a->refusals = 0;
                a->second = now_ms / 1000;
            }
}
