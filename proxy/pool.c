/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/pool.h"
#include "proxy/exchange_steps.h"

#include "proxy/origin_h2.h"

#include <stdio.h>
#include <stdlib.h>

enum { BUCKETS = 4096, LOOKS = 8 };

struct pool {
    struct worker *w;
    struct origin *buckets[BUCKETS];
    struct origin *newest, *oldest;
    size_t count;
};

struct pool *pool_new(struct worker *w)
{
    struct pool *p = calloc(1, sizeof *p);
    if (p)
        p->w = w;
    return p;
}

void pool_free(struct pool **pp)
{
    struct pool *p = *pp;
    if (!p)
        return;
    while (p->newest)
        origin_close(p->newest);
    *pp = NULL;
    free(p);
}

size_t pool_size(const struct pool *p)
{
    return p->count;
}

void pool_key(const struct exchange *x, struct buf *out)
{
    uint64_t number = x->view->number;
    uint32_t agent = x->agent->index;
    /* An address that only one rule permits is no address for what another rule let through. */
    const struct rule *r = x->verdict.rule;
    uint32_t rule = r && r->nallow_addresses ? r->index + 1 : 0;
    char fixed[20];
    memcpy(fixed + 16, &rule, 4);
    memcpy(fixed, &number, 8);
    memcpy(fixed + 8, &agent, 4);
    fixed[12] = (char)x->scheme;
    memcpy(fixed + 13, &x->port, 2);
    fixed[15] = (char)x->plan.nwanted;
    buf_put(out, str_of(fixed, sizeof fixed));
    for (size_t i = 0; i < x->plan.nwanted; i++) {
        uint32_t c = x->plan.wanted[i]->index;
        buf_put(out, str_of((const char *)&c, sizeof c));
    }
    buf_put(out, host_str(&x->host));
}

void pool_list(struct pool *p, struct origin *o)
{
    if (o->listed)
        return;
    struct origin **bucket = &p->buckets[o->key_hash % BUCKETS];
    o->key_next = *bucket;
    *bucket = o;
    o->listed = true;
}

/* It is idle no more. */
static void wake(struct pool *p, struct origin *o)
{
    if (!o->pooled)
        return;
    *(o->newer ? &o->newer->older : &p->newest) = o->older;
    *(o->older ? &o->older->newer : &p->oldest) = o->newer;
    o->newer = o->older = NULL;
    o->pooled = false;
    p->count--;
    p->w->stats.pooled = p->count;
    timer_clear(&o->idle);
}

void pool_drop(struct pool *p, struct origin *o)
{
    if (o->listed) {
        struct origin **at = &p->buckets[o->key_hash % BUCKETS];
        while (*at && *at != o)
            at = &(*at)->key_next;
        if (*at)
            *at = o->key_next;
        o->key_next = NULL;
        o->listed = false;
    }
    wake(p, o);
}

/* Which protocol it speaks is no part of the key. Who wants HTTP/2 takes HTTP/1.1 where the origin chose that, not where nobody offered
 * more: a gRPC call would fail there. */
static bool speaks(const struct origin *o, bool h2)
{
    return o->h2 ? h2 && origin_h2_room(o) : !h2 || o->offered_h2;
}

/* The one used last, or one of the next few where that became idle in this very round, and would have to be asked whether it still is
 * (spoke_already). */
static struct origin *pool_find(struct pool *p, struct str key, uint64_t hash, bool h2)
{
    uint64_t round = loop_round(p->w->loop);
    struct origin *first = NULL;
    unsigned seen = 0;
    for (struct origin *o = p->buckets[hash % BUCKETS]; o && seen < LOOKS; o = o->key_next) {
        if (!(o->key_hash == hash && str_eq(str_of(o->key, o->key_n), key) && speaks(o, h2)))
            continue;
        if (o->idle_round != round || o->h2)
            return o;
        first = first ? first : o;
        seen++;
    }
    return first;
}

/* Is there something to read, or has it ended? Of one that became idle in this very round the loop has not told us yet; and a request
 * that cannot be sent again must not go into a connection that is closed already. */
static bool spoke_already(struct origin *o, const struct exchange *x)
{
    if (o->h2) /* of one that carries something we would know; and what it has not looked at it will say */
        return o->pooled && (o->idle_round == loop_round(o->w->loop) || !exchange_idempotent(x)) && !origin_h2_quiet(o);
    return (o->idle_round == loop_round(o->w->loop) || !exchange_idempotent(x)) && origin_h1_quiet(o) != IO_AGAIN;
}

bool pool_take(struct exchange *x)
{
    struct pool *p = x->w->pool;
    char mem[512] __attribute__((uninitialized));
    struct buf key = { .mem = mem, .cap = sizeof mem, .max = sizeof mem };
    pool_key(x, &key);
    struct origin *o = NULL;
    while (!key.failed && (o = pool_find(p, buf_str(&key), str_hash(buf_str(&key)), origin_wants_h2(x))) && spoke_already(o, x))
        origin_close(o);
    if (!o)
        return false;
    if (o->h2) {
        if (origin_h2_attach(o, x))
            return false;
        wake(p, o);
        return true;
    }
    pool_drop(p, o);
    o->state = ORIGIN_BUSY;
    o->x = x;
    x->origin = o;
    x->oops = &origin_h1_ops;
    origin_h1_begin(o);
    return true;
}

static size_t count_key(struct pool *p, const struct origin *like, size_t stop)
{
    size_t n = 0;
    for (struct origin *o = p->buckets[like->key_hash % BUCKETS]; o && n < stop; o = o->key_next)
        n += o->pooled && o->key_hash == like->key_hash;
    return n;
}

void pool_put(struct pool *p, struct origin *o)
{
    const struct limits *lim = o->view->limits;
    if (o->view != p->w->view || !lim->pool_connections || p->w->draining ||
        (p->count >= lim->pool_per_key && count_key(p, o, lim->pool_per_key) >= lim->pool_per_key)) {
        origin_close(o);
        return;
    }
    if ((p->count >= lim->pool_connections || worker_crowded(p->w)) && p->oldest)
        origin_close(p->oldest);
    pool_list(p, o);
    o->newer = NULL;
    o->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = o;
    p->newest = o;
    o->pooled = true;
    p->count++;
    p->w->stats.pooled = p->count;
    timer_set(p->w->loop, &o->idle, lim->pool_idle_timeout);
}

void pool_flush(struct pool *p)
{
    for (struct origin *o = p->newest, *next; o; o = next) {
        next = o->older;
        if (o->view != p->w->view)
            origin_close(o);
    }
}

void pool_shed(struct pool *p, size_t n)
{
    for (; n && p->oldest; n--)
        origin_close(p->oldest);
}

bool pool_rest(struct pool *p)
{
    bool all = true;
    for (struct origin *o = p->newest; o; o = o->older)
        if (!origin_rest(o))
            all = false;
    return all;
}
