/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs, shelves, entries. Every entry has one timer for its next event: refresh, expiry (30 s before its end), end.
 * Ends are kept on both clocks and the earlier one counts, so that a wall clock set back lengthens no lease. */
#include "mint/keeper_state.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAIR_BUCKETS = 1024, SHELF_BUCKETS = 8192 };

bool bucket_take(struct bucket *b, uint64_t now_ms, uint64_t per_second, uint64_t burst)
{
    uint64_t full = burst * 1000, passed = b->started ? now_ms - b->at_ms : 0;
    if (!b->started)
        *b = (struct bucket) { .milli = full, .started = true };
    b->at_ms = now_ms;
    uint64_t gain = passed > full ? full : passed * per_second;
    b->milli = b->milli + gain > full ? full : b->milli + gain;
    if (b->milli < 1000)
        return false;
    b->milli -= 1000;
    return true;
}

int cache_init(struct keeper *k)
{
    k->pair_buckets = PAIR_BUCKETS;
    k->shelf_buckets = SHELF_BUCKETS;
    k->pairs = calloc(k->pair_buckets, sizeof(struct pair *));
    k->shelves = calloc(k->shelf_buckets, sizeof(struct shelf *));
    TAILQ_INIT(&k->by_use);
    return k->pairs && k->shelves ? 0 : -1;
}

/* --- pairs --- */

static uint64_t pair_hash(struct str credential, struct str agent)
{
    return str_hash(credential) * 31 + str_hash(agent);
}

struct pair *cache_find_pair(const struct keeper *k, struct str credential, struct str agent)
{
    uint64_t h = pair_hash(credential, agent);
    struct pair *p = k->pairs[h & (k->pair_buckets - 1)];
    while (p && !(p->hash == h && str_eq(p->credential, credential) && str_eq(p->agent, agent)))
        p = p->next;
    return p;
}

struct pair *cache_pair(struct keeper *k, struct str credential, struct str agent)
{
    struct pair *p = cache_find_pair(k, credential, agent);
    if (p || k->npairs >= KEEPER_PAIRS || !(p = calloc(1, sizeof *p + credential.n + agent.n)))
        return p;
    memcpy(p->bytes, credential.p, credential.n);
    memcpy(p->bytes + credential.n, agent.p, agent.n);
    p->credential = str_of(p->bytes, credential.n);
    p->agent = str_of(p->bytes + credential.n, agent.n);
    p->hash = pair_hash(credential, agent);
    TAILQ_INIT(&p->entries);
    struct pair **head = &k->pairs[p->hash & (k->pair_buckets - 1)];
    p->next = *head;
    *head = p;
    k->npairs++;
    return p;
}

static bool watched(const struct pair *p)
{
    uint64_t any = 0;
    for (size_t i = 0; i < KEEPER_WORKERS / 64; i++)
        any |= p->watchers.bits[i];
    return any != 0;
}

/* A pair that nobody watches and that says nothing goes; one in its pause stays, or the pause would be lost. */
void pair_settle(struct keeper *k, struct pair *p)
{
    if (p->shelves || watched(p) || pair_remembers_until(p) > loop_now_ms(k->loop))
        return;
    struct pair **at = &k->pairs[p->hash & (k->pair_buckets - 1)];
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    k->npairs--;
    free(p);
}

/* --- shelves --- */

static uint64_t shelf_hash(const struct pair *p, const struct host *host, uint16_t port)
{
    return p->hash * 131 + str_hash(host_str(host)) * 7 + port;
}

static void on_linger(struct timer *t)
{
    shelf_settle((struct shelf *)((char *)t - offsetof(struct shelf, linger)));
}

static void shelves_grow(struct keeper *k)
{
    if (k->nshelves < k->shelf_buckets || k->shelf_buckets > SIZE_MAX / 4 / sizeof(struct shelf *))
        return;
    size_t n = k->shelf_buckets * 2;
    struct shelf **wider = calloc(n, sizeof *wider);
    if (!wider)
        return; /* slower, not wrong */
    for (size_t i = 0; i < k->shelf_buckets; i++)
        for (struct shelf *s = k->shelves[i], *next; s; s = next) {
            next = s->next;
            s->next = wider[s->hash & (n - 1)];
            wider[s->hash & (n - 1)] = s;
        }
    free(k->shelves);
    k->shelves = wider;
    k->shelf_buckets = n;
}

struct shelf *cache_shelf(struct keeper *k, const struct kask *a)
{
    struct pair *p = cache_pair(k, a->credential, a->agent);
    if (!p)
        return NULL;
    uint64_t h = shelf_hash(p, &a->host, a->port);
    struct shelf *s = k->shelves[h & (k->shelf_buckets - 1)];
    while (s && !(s->hash == h && s->pair == p && s->port == a->port && host_eq(&s->host, &a->host)))
        s = s->next;
    if (s)
        return s;
    /* Twice the leases: shelves without one only remember a refusal for a while. */
    if (k->nshelves >= 2 * keeper_limits(k)->lease_count || !(s = calloc(1, sizeof *s))) {
        pair_settle(k, p);
        return NULL;
    }
    shelves_grow(k);
    *s = (struct shelf) {
        .hash = h, .k = k, .pair = p, .host = a->host, .port = a->port, .linger = { .cb = on_linger }
    };
    TAILQ_INIT(&s->entries);
    TAILQ_INIT(&s->waits);
    struct shelf **head = &k->shelves[h & (k->shelf_buckets - 1)];
    s->next = *head;
    *head = s;
    k->nshelves++;
    p->shelves++;
    return s;
}

void shelf_settle(struct shelf *s)
{
    struct keeper *k = s->k;
    uint64_t now = loop_now_ms(k->loop);
    if (!TAILQ_EMPTY(&s->entries) || !TAILQ_EMPTY(&s->waits) || s->flight.ask)
        return;
    uint64_t keep = s->denied_until_ms > s->ran_out_until_ms ? s->denied_until_ms : s->ran_out_until_ms;
    if (s->pair->shelves == 1 && pair_remembers_until(s->pair) > keep)
        keep = pair_remembers_until(s->pair); /* the last one takes the pair with it */
    if (keep > now) {
        timer_set(k->loop, &s->linger, keep - now + 1);
        return;
    }
    timer_clear(&s->linger);
    struct shelf **at = &k->shelves[s->hash & (k->shelf_buckets - 1)];
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    k->nshelves--;
    s->pair->shelves--;
    pair_settle(k, s->pair);
    free(s);
}

void cache_each(struct keeper *k, void (*cb)(struct shelf *s, void *ctx), void *ctx)
{
    for (size_t i = 0; i < k->shelf_buckets; i++)
        for (struct shelf *s = k->shelves[i], *next; s; s = next) {
            next = s->next; /* cb may free s, no other */
            cb(s, ctx);
        }
}

size_t shelf_count(const struct shelf *s, enum entry_state state)
{
    const struct entry *e;
    size_t n = 0;
    TAILQ_FOREACH(e, &s->entries, in_shelf)
    n += e->state == state;
    return n;
}

void cache_forget_worker(struct keeper *k, struct kworker *w)
{
    struct entry *e;
    TAILQ_FOREACH(e, &k->by_use, in_use)
    worker_mark(&e->known, w->place, false);
    for (size_t i = 0; i < k->shelf_buckets; i++)
        for (struct shelf *s = k->shelves[i]; s; s = s->next)
            for (struct kwait *x = TAILQ_FIRST(&s->waits), *next; x; x = next) {
                next = TAILQ_NEXT(x, link);
                if (x->w == w)
                    kwait_free(s, x);
            }
    for (size_t i = 0; i < k->pair_buckets; i++)
        for (struct pair *p = k->pairs[i], *next; p; p = next) {
            next = p->next;
            worker_mark(&p->watchers, w->place, false);
            pair_settle(k, p);
        }
}

/* --- entries --- */

static bool expired(const struct entry *e)
{
    return loop_now_ms(e->k->loop) >= e->expires_ms || lease_expired(e->lease, clock_wall_us());
}

static bool dead(const struct entry *e)
{
    return loop_now_ms(e->k->loop) >= e->dead_ms || lease_dead(e->lease, clock_wall_us());
}

struct entry *cache_find(struct shelf *s, const struct kask *a)
{
    const struct agent *agent = policy_agent(s->k->policy, a->agent);
    struct ask ask;
    struct entry *e;
    if (!agent)
        return NULL;
    keeper_fill_ask(s->k, a, agent, &ask);
    TAILQ_FOREACH(e, &s->entries, in_shelf)
    if (e->state == ENTRY_LIVE && !e->rejected && !expired(e) && lease_covers(e->lease, &ask))
        return e;
    return NULL;
}

/* Sets the timer to what comes next. Sleeps are cut to a minute, so that a jump of the wall clock is seen. */
static void entry_arm(struct entry *e)
{
    uint64_t now = loop_now_ms(e->k->loop), at = e->dead_ms;
    if (e->state != ENTRY_ENDED && e->expires_ms < at)
        at = e->expires_ms;
    if (e->state == ENTRY_LIVE && e->refresh_ms < at)
        at = e->refresh_ms;
    uint64_t wait = at > now ? at - now : 1;
    timer_set(e->k->loop, &e->timer, wait > 60000 ? 60000 : wait);
}

static void entry_end(struct entry *e)
{
    if (e->state == ENTRY_LIVE)
        e->shelf->ran_out_until_ms = loop_now_ms(e->k->loop) + KEEPER_LINGER_MS;
    e->state = ENTRY_ENDED;
    note_write(e->k, &(struct lease_note) { .result = "expired", .entry = e });
}

static void on_entry_timer(struct timer *t)
{
    struct entry *e = (struct entry *)((char *)t - offsetof(struct entry, timer));
    if (dead(e)) {
        if (e->state != ENTRY_ENDED)
            entry_end(e);
        entry_drop(e, LEASE_GONE_EXPIRED);
        return;
    }
    if (e->state != ENTRY_ENDED && expired(e))
        entry_end(e);
    uint64_t now = loop_now_ms(e->k->loop);
    if (e->state == ENTRY_LIVE && now >= e->refresh_ms) {
        e->refresh_ms = UINT64_MAX; /* shelf_refresh may set a later one */
        shelf_refresh(e);
    }
    entry_arm(e);
}

void entry_retry_refresh(struct entry *e, uint64_t at_ms)
{
    if (e->state != ENTRY_LIVE)
        return;
    e->refresh_ms = at_ms;
    entry_arm(e);
}

void entry_use(struct entry *e, struct kask *ask)
{
    struct keeper *k = e->k;
    if (!e->used && e->refresh_ms == UINT64_MAX) /* its time came while nobody used it */
        entry_retry_refresh(e, loop_now_ms(k->loop) + 1000);
    e->used = true;
    e->used_ms = loop_now_ms(k->loop);
    TAILQ_REMOVE(&k->by_use, e, in_use);
    TAILQ_INSERT_TAIL(&k->by_use, e, in_use);
    if (ask->path.n > KEEPER_REFRESH_PATH)
        return;
    struct kask *old = e->last;
    e->last = kask_ref(ask);
    kask_unref(&old);
}

/* Leases nobody used for two minutes make room: workers keep one at most a minute idle. */
static bool make_room(struct keeper *k)
{
    struct entry *e = TAILQ_FIRST(&k->by_use);
    if (k->nentries < keeper_limits(k)->lease_count)
        return true;
    if (!e || loop_now_ms(k->loop) - e->used_ms < KEEPER_IDLE_MS)
        return false;
    entry_drop(e, LEASE_GONE_EXPIRED);
    return true;
}

static bool id_in_use(const struct pair *p, struct str id)
{
    const struct entry *e;
    TAILQ_FOREACH(e, &p->entries, in_pair)
    if (str_eq(str_c(e->lease->id), id))
        return true;
    return false;
}

/* A sidecar that gives two leases one id would make workers drop both together: ours are told apart. The lease is not
 * yet known to anybody, so its id may still be set. */
static void make_unique(struct keeper *k, const struct pair *p, struct lease *l)
{
    while (id_in_use(p, str_c(l->id))) {
        size_t n = strnlen(l->id, 100);
        snprintf(l->id + n, sizeof l->id - n, ".%llu", (unsigned long long)++k->unique);
    }
}

struct entry *cache_add(struct shelf *s, struct lease *take, struct str sidecar_id, struct sidecar *sc, uint64_t source)
{
    struct keeper *k = s->k;
    struct entry *e = make_room(k) ? calloc(1, sizeof *e) : NULL;
    if (!e) {
        lease_unref(&take);
        return NULL;
    }
    uint64_t now = loop_now_ms(k->loop);
    int64_t wall = clock_wall_us(), left_ms = (take->expires_us - wall) / 1000,
            refresh = (take->refresh_us - wall) / 1000;
    *e = (struct entry) {
        .k = k, .shelf = s, .lease = take, .sidecar = sidecar_ref(sc), .source = source, .state = ENTRY_LIVE
    };
    memcpy(e->id_bytes, sidecar_id.p, sidecar_id.n);
    e->id = str_of(e->id_bytes, sidecar_id.n);
    e->used_ms = now;
    e->dead_ms = now + (left_ms > 0 ? (uint64_t)left_ms : 0);
    e->expires_ms = now + (left_ms > LEASE_SKEW_MS ? (uint64_t)left_ms - LEASE_SKEW_MS : 0);
    e->refresh_ms = now + (refresh > 1000 ? (uint64_t)refresh : 1000);
    e->timer.cb = on_entry_timer;
    make_unique(k, s->pair, take);
    TAILQ_INSERT_TAIL(&s->entries, e, in_shelf);
    TAILQ_INSERT_TAIL(&s->pair->entries, e, in_pair);
    TAILQ_INSERT_TAIL(&k->by_use, e, in_use);
    k->nentries++;
    s->ran_out_until_ms = 0;
    entry_arm(e);
    return e;
}

void entry_replace(struct entry *e)
{
    if (e->state != ENTRY_LIVE)
        return;
    e->state = ENTRY_REPLACED;
    out_gone(e, LEASE_GONE_REPLACED);
    kask_unref(&e->last);
    entry_arm(e);
}

static bool id_shared(const struct entry *e)
{
    const struct entry *o;
    TAILQ_FOREACH(o, &e->shelf->pair->entries, in_pair)
    if (o != e && o->sidecar == e->sidecar && str_eq(o->id, e->id))
        return true;
    return false;
}

void entry_drop(struct entry *e, enum lease_gone why)
{
    struct keeper *k = e->k;
    struct shelf *s = e->shelf;
    out_gone(e, why);
    if (!id_shared(e))
        sidecar_delete(e->sidecar, e->id);
    timer_clear(&e->timer);
    if (s->flight.replaces == e)
        s->flight.replaces = NULL;
    TAILQ_REMOVE(&s->entries, e, in_shelf);
    TAILQ_REMOVE(&s->pair->entries, e, in_pair);
    TAILQ_REMOVE(&k->by_use, e, in_use);
    k->nentries--;
    kask_unref(&e->last);
    lease_unref(&e->lease);
    sidecar_unref(&e->sidecar);
    free(e);
    if (TAILQ_EMPTY(&s->entries))
        timer_set(k->loop, &s->linger, 1); /* on a stack of its own: callers may still hold s */
}

void cache_done(struct keeper *k)
{
    struct entry *e;
    for (size_t i = 0; k->shelves && i < k->shelf_buckets; i++)
        for (struct shelf *s = k->shelves[i], *next; s; s = next) {
            next = s->next;
            while (!TAILQ_EMPTY(&s->waits))
                kwait_free(s, TAILQ_FIRST(&s->waits));
            shelf_abandon(s);
            while ((e = TAILQ_FIRST(&s->entries)))
                entry_drop(e, LEASE_GONE_EXPIRED);
            timer_clear(&s->linger);
            free(s);
        }
    for (size_t i = 0; k->pairs && i < k->pair_buckets; i++)
        for (struct pair *p = k->pairs[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    free(k->shelves);
    free(k->pairs);
}
