/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/agent_table.h"

#include "base/fair.h"
#include "base/log.h"

#include <stdlib.h>

enum { BUCKETS = 256 };
struct agent_table {
    struct agent_state *v[BUCKETS];
    uint64_t held;
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
    a->next = *at;
    *at = a;
    return a;
}

bool agent_hold(struct agent_table *t, struct agent_state *a, uint64_t all)
{
    if (!fair_may(a->held, t->held, all))
        return false;
    a->held++;
    t->held++;
    return true;
}

void agent_let_go(struct agent_table *t, struct agent_state *a)
{
    MUST(a->held > 0 && t->held > 0);
    a->held--;
    t->held--;
}

uint64_t agent_held(const struct agent_table *t)
{
    return t->held;
}

bool agent_denied_inside(struct agent_state *a, struct str host, const struct limits *lim, uint64_t now_ms)
{
    uint64_t hash = str_hash(host);
    for (size_t i = 0; i < sizeof a->denied_seen / sizeof *a->denied_seen; i++)
        if (a->denied_seen[i] == hash)
            return true;
    if (!bucket_take(&a->denied, lim->denied_names_burst, lim->denied_names_rate, now_ms))
        return false;
    a->denied_seen[a->denied_next++ % (sizeof a->denied_seen / sizeof *a->denied_seen)] = hash;
    return true;
}

bool agent_reset_fits(struct agent_state *a, const struct limits *lim, uint64_t now_ms)
{
    return bucket_take(&a->resets, lim->h2_resets_burst * AGENT_RESETS, lim->h2_resets_rate * AGENT_RESETS, now_ms);
}

bool agent_event_fits(struct agent_state *a, const struct limits *lim, uint64_t now_ms)
{
    if (now_ms / 1000 != a->second) {
        a->second = now_ms / 1000;
        a->written = 0;
    }
    if (a->written >= lim->refusals_per_second)
        return false;
    a->written++;
    return true;
}

void agent_event_count(struct agent_count *c, const char *verdict, enum end code, const char *end, struct str host,
                       uint64_t now_ms)
{
    if (!c->n)
        c->second = now_ms / 1000;
    c->n++;
    c->code = code;
    c->verdict = verdict;
    c->end = end;
    str_escape(host, c->host, sizeof c->host);
}

void agent_table_counted(struct agent_table *t, uint64_t now_ms, bool all,
                         bool (*cb)(void *ctx, const struct agent_state *a, const struct agent_count *c), void *ctx)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct agent_state *a = t->v[i]; a; a = a->next) {
            struct agent_count *both[] = { &a->refusals, &a->conns };
            for (size_t k = 0; k < 2; k++)
                if (both[k]->n && (all || both[k]->second != now_ms / 1000) && cb(ctx, a, both[k]))
                    both[k]->n = 0;
        }
}
