/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache and the flights. A flight asks with the words (method, path) of whoever came first; who joins is judged
 * against the lease's scope by its own words, and where they are not covered asks once more, alone. */
#include "base/clock.h"
#include "mint/lease_client_impl.h"

#include <stdlib.h>

static uint64_t key_hash(const struct lease_key *k)
{
    return (lc_names_hash(k->credential, k->agent) * 31 + str_hash(host_str(&k->host))) * 31 + k->port;
}

static bool key_eq(const struct lease_key *a, const struct lease_key *b)
{
    return a->port == b->port && str_eq(a->credential, b->credential) && str_eq(a->agent, b->agent) &&
           host_eq(&a->host, &b->host);
}

/* A key that owns its names. */
static int key_copy(const struct lease_key *from, struct lease_key *to)
{
    char *names = malloc(from->credential.n + from->agent.n + 1);
    if (!names)
        return -1;
    *to = *from;
    to->names = names;
    memcpy(names, from->credential.p, from->credential.n);
    memcpy(names + from->credential.n, from->agent.p, from->agent.n);
    to->credential.p = names;
    to->agent.p = names + from->credential.n;
    return 0;
}

/* --- the cache --- */

static void entry_unlink_age(struct lease_client *c, struct entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void entry_touch(struct lease_client *c, struct entry *e, bool linked)
{
    if (linked)
        entry_unlink_age(c, e);
    e->older = c->newest;
    e->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
    e->used_ms = loop_now_ms(c->loop);
}

static void entry_drop(struct lease_client *c, struct entry *e)
{
    htab_del(&c->entries, &e->node);
    entry_unlink_age(c, e);
    timer_clear(&e->expiry);
    lc_known_done(c, &e->known);
    free(e->key.names);
    free(e);
}

static void entry_expiry(struct timer *t)
{
    struct entry *e = LC_CONTAINER(t, struct entry, expiry);
    int64_t end_us = e->known->lease->expires_us - (int64_t)LEASE_SKEW_MS * 1000;
    if (lease_expired(e->known->lease, clock_wall_us()))
        entry_drop(e->client, e);
    else
        timer_set(e->client->loop, &e->expiry, lc_until_ms(end_us));
}

static struct entry *entry_find(struct lease_client *c, const struct lease_key *key)
{
    uint64_t hash = key_hash(key);
    HTAB_CHAIN(&c->entries, h, hash)
    {
        struct entry *e = LC_CONTAINER(h, struct entry, node);
        if (key_eq(&e->key, key))
            return e;
    }
    return NULL;
}

/* Takes the user of known; without memory the lease is just not cached. */
static void entry_put(struct lease_client *c, const struct lease_key *key, struct known *take)
{
    struct entry *e = entry_find(c, key);
    if (e)
        entry_drop(c, e);
    if (c->entries.n >= LC_ENTRIES_MAX)
        entry_drop(c, c->oldest);
    e = calloc(1, sizeof *e);
    if (!e || key_copy(key, &e->key)) {
        free(e);
        lc_known_done(c, &take);
        return;
    }
    e->client = c;
    e->known = take;
    e->expiry.cb = entry_expiry;
    htab_add(&c->entries, &e->node, key_hash(key));
    entry_touch(c, e, false);
    timer_set(c->loop, &e->expiry, lc_until_ms(take->lease->expires_us - (int64_t)LEASE_SKEW_MS * 1000));
    lc_sweep_start(c);
}

void lc_entries_sweep(struct lease_client *c, uint64_t now_ms)
{
    while (c->oldest && now_ms - c->oldest->used_ms >= LC_IDLE_MS)
        entry_drop(c, c->oldest);
    for (struct entry *e = c->newest, *next; e; e = next) {
        next = e->older;
        if (e->known->gone || lease_expired(e->known->lease, clock_wall_us()))
            entry_drop(c, e);
    }
}

static const struct credential *policy_credential(const struct policy *p, struct str name)
{
    const struct config *cfg = policy_config(p);
    for (size_t i = 0; i < cfg->ncredentials; i++)
        if (str_eq(cfg->credentials[i].name, name))
            return &cfg->credentials[i];
    return NULL;
}

static bool policy_pairs(const struct policy *p, struct str credential, struct str agent)
{
    const struct credential *c = policy_credential(p, credential);
    if (!c || !policy_agent(p, agent))
        return false;
    for (size_t i = 0; i < c->agents.n; i++)
        if (str_eq(c->agents.v[i], agent))
            return true;
    return false;
}

void lc_entries_drop(struct lease_client *c)
{
    while (c->newest)
        entry_drop(c, c->newest);
}

void lc_entries_policy(struct lease_client *c)
{
    for (struct entry *e = c->newest, *next; e; e = next) {
        next = e->older;
        if (!policy_pairs(c->policy, e->key.credential, e->key.agent))
            entry_drop(c, e);
    }
}

size_t lease_client_count(const struct lease_client *c)
{
    size_t n = 0;
    for (const struct entry *e = c->newest; e; e = e->older)
        n += !e->known->gone;
    return n;
}

/* --- flights: one whose last waiter left goes on, and its answer is cached for the next --- */

static void flight_free(struct flight *f)
{
    fair_give(&f->client->asked, str_hash(f->key.agent), 1);
    htab_del(&f->client->flights, &f->by_key);
    htab_del(&f->client->flights_by_id, &f->by_id);
    timer_clear(&f->deadline);
    free(f->key.names);
    free(f->words);
    free(f);
}

static void wait_refuse(struct lease_wait *w, enum end end, uint32_t retry_after_s, struct str why)
{
    w->end = end;
    w->retry_after_s = retry_after_s;
    w->why_n = why.n < sizeof w->why ? why.n : sizeof w->why;
    memcpy(w->why, why.n ? why.p : "", w->why_n);
    lc_wait_finish(w);
}

static void flight_refuse(struct flight *f, enum end end, uint32_t retry_after_s, struct str why)
{
    while (f->waits)
        wait_refuse(f->waits, end, retry_after_s, why);
    flight_free(f);
}

static void flight_deadline(struct timer *t)
{
    struct flight *f = LC_CONTAINER(t, struct flight, deadline);
    flight_refuse(f, END_CREDENTIAL_UNAVAILABLE, 1, STR("the keeper did not answer in time"));
}

static int flight_send(struct flight *f)
{
    struct lease_wire_get g = { .credential = f->key.credential,
                                .agent = f->key.agent,
                                .host = f->key.host,
                                .port = f->key.port,
                                .method = f->method,
                                .path = f->path,
                                .scheme = f->scheme,
                                .request_id = f->request_id,
                                .reason = f->rejected.n ? LEASE_REJECTED : LEASE_FIRST,
                                .rejected = f->rejected };
    struct msg_writer w;
    lease_wire_writer_init(&w);
    lease_wire_put_get(&w, &g);
    f->sent++;
    return lc_send(f->client, LEASE_GET, f->id, &w);
}

/* Method, path, request id and rejected id. */
enum { WORDS = 4 };

/* in and out: those four; the copies are in one piece. */
static int words_copy(const struct str in[WORDS], char **ret, struct str *const out[WORDS])
{
    size_t n = 1;
    for (size_t i = 0; i < WORDS; i++)
        n += in[i].n;
    char *p = malloc(n);
    if (!p)
        return -1;
    *ret = p;
    for (size_t i = 0; i < WORDS; i++) {
        if (in[i].n)
            memcpy(p, in[i].p, in[i].n);
        *out[i] = str_of(p, in[i].n);
        p += in[i].n;
    }
    return 0;
}

static int flight_fill(struct flight *f, const struct lease_key *key, const struct lease_wait *w)
{
    const struct str in[WORDS] = { w->method, w->path, w->request_id, w->rejected };
    struct str *const out[WORDS] = { &f->method, &f->path, &f->request_id, &f->rejected };
    f->scheme = w->scheme;
    return words_copy(in, &f->words, out) || key_copy(key, &f->key) ? -1 : 0;
}

/* Starts one with w as its leader, or refuses w. */
static void flight_start(struct lease_client *c, const struct lease_key *key, struct lease_wait *w, bool alone)
{
    if (!fair_take(&c->asked, str_hash(key->agent), 1, LC_FLIGHTS_MAX)) {
        wait_refuse(w, END_RATE_LIMITED, 1, STR("too many questions of this agent wait for the keeper"));
        return;
    }
    struct flight *f = calloc(1, sizeof *f);
    if (!f || flight_fill(f, key, w)) {
        fair_give(&c->asked, str_hash(key->agent), 1);
        free(f ? f->words : NULL);
        free(f);
        wait_refuse(w, END_CREDENTIAL_UNAVAILABLE, 1, STR("no memory for a question to the keeper"));
        return;
    }
    f->client = c;
    f->alone = alone;
    f->id = c->next_id++;
    f->deadline.cb = flight_deadline;
    htab_add(&c->flights, &f->by_key, key_hash(key));
    htab_add(&c->flights_by_id, &f->by_id, f->id);
    timer_set(c->loop, &f->deadline, lc_timeout_ms(c));
    lc_wait_link(&f->waits, w);
    w->lead = true;
    /* Without a channel it waits for the next one, until its deadline; a full one refuses (on a later stack). */
    if (c->ch && flight_send(f)) {
        f->sent = 2;
        timer_set(c->loop, &f->deadline, 0);
    }
}

void lc_flights_connected(struct lease_client *c)
{
    for (size_t i = 0; i < LC_BUCKETS; i++)
        for (struct hnode *h = c->flights.v[i], *next; h; h = next) {
            next = h->next;
            struct flight *f = LC_CONTAINER(h, struct flight, by_key);
            if (f->sent >= 2 || flight_send(f))
                flight_refuse(f, END_CREDENTIAL_UNAVAILABLE, 1, STR("the keeper went away twice"));
        }
}

static bool wait_covered(const struct lease_wait *w, const struct flight *f, const struct lease *l)
{
    struct agent agent = { .name = f->key.agent };
    struct ask ask = { .agent = &agent,
                       .scheme = w->scheme,
                       .host = &f->key.host,
                       .port = f->key.port,
                       .method = w->method,
                       .path = w->path };
    return lease_covers(l, &ask);
}

/* Its own question, once; w is still in f's list. */
static void wait_second(struct lease_wait *w, const struct flight *f, enum end otherwise)
{
    if (w->second) {
        wait_refuse(w, otherwise, 0, STR("the lease's scope does not cover this request"));
        return;
    }
    w->second = true;
    lc_wait_unlink(w);
    flight_start(f->client, &f->key, w, true);
}

static void flight_lease(struct flight *f, struct lease *lease)
{
    while (f->waits) {
        struct lease_wait *w = f->waits;
        if (!wait_covered(w, f, lease)) {
            wait_second(w, f, END_PLACEHOLDER_OUT_OF_SCOPE);
            continue;
        }
        w->end = END_OK;
        w->lease = lease_ref(lease);
        lc_wait_finish(w);
    }
    flight_free(f);
}

/* What was refused for the leader's method and path may be granted for another's. */
static void flight_refused(struct flight *f, const struct lease_wire_answer *a)
{
    while (f->waits) {
        struct lease_wait *w = f->waits;
        bool same = w->lead || (str_eq(w->method, f->method) && str_eq(w->path, f->path));
        if (a->end == END_PLACEHOLDER_OUT_OF_SCOPE && !same)
            wait_second(w, f, a->end);
        else
            wait_refuse(w, a->end, a->retry_after_s, a->why);
    }
    flight_free(f);
}

int lc_on_answer(struct lease_client *c, uint64_t id, struct str body)
{
    struct lease_wire_answer a;
    if (lease_wire_read_answer(body, &a))
        return -1;
    struct flight *f = NULL;
    HTAB_CHAIN(&c->flights_by_id, h, id)
    {
        f = LC_CONTAINER(h, struct flight, by_id);
        break;
    }
    if (!f) { /* too late: its deadline was first */
        lease_unref(&a.lease);
        return 0;
    }
    if (a.end != END_OK) {
        flight_refused(f, &a);
        return 0;
    }
    if (!str_eq(a.lease->credential, f->key.credential) || !str_eq(a.lease->agent, f->key.agent)) {
        lease_unref(&a.lease);
        return -1;
    }
    if (lease_expired(a.lease, clock_wall_us())) {
        lease_unref(&a.lease);
        flight_refuse(f, END_CREDENTIAL_EXPIRED, 1, STR("the lease is at its end already"));
        return 0;
    }
    struct known *k = lc_known(c, a.lease);
    if (!k || lc_live_add(c, k->lease)) {
        lc_known_done(c, &k);
        flight_refuse(f, END_CREDENTIAL_UNAVAILABLE, 1, STR("no memory for another lease"));
        return 0;
    }
    struct lease *lease = lease_ref(k->lease);
    entry_put(c, &f->key, k);
    flight_lease(f, lease);
    lease_unref(&lease);
    return 0;
}

/* --- the call --- */

static struct flight *flight_find(struct lease_client *c, const struct lease_key *key, struct str rejected)
{
    uint64_t hash = key_hash(key);
    HTAB_CHAIN(&c->flights, h, hash)
    {
        struct flight *f = LC_CONTAINER(h, struct flight, by_key);
        /* Who had a value rejected must not be given what was asked for before, nor that very value. */
        if (!f->alone && key_eq(&f->key, key) && f->sent < 2 && (!rejected.n || str_eq(f->rejected, rejected)))
            return f;
    }
    return NULL;
}

static struct lease *cached(struct lease_client *c, const struct lease_key *key, const struct ask *ask)
{
    struct entry *e = entry_find(c, key);
    if (!e)
        return NULL;
    struct lease *l = e->known->lease;
    if (e->known->gone || lease_expired(l, clock_wall_us())) {
        entry_drop(c, e);
        return NULL;
    }
    if (!lease_covers(l, ask))
        return NULL;
    entry_touch(c, e, true);
    return lease_ref(l);
}

struct lease *lease_get(struct lease_client *c, const struct credential *cred, const struct ask *ask,
                        struct str request_id, const struct lease *rejected,
                        void (*cb)(void *ctx, const struct lease_answer *a), void *ctx, struct lease_wait **ret_wait)
{
    struct lease_key key = {
        .credential = cred->name, .agent = ask->agent->name, .host = *ask->host, .port = ask->port
    };
    *ret_wait = NULL;
    struct lease *l = rejected ? NULL : cached(c, &key, ask);
    if (l)
        return l;
    struct lease_wait *w = lc_wait_new(c, WAIT_LEASE, ctx);
    const struct str in[WORDS] = { ask->method, ask->path, str_sub(request_id, 0, LEASE_WIRE_REQUEST_ID_MAX),
                                   rejected ? str_c(rejected->id) : STR("") };
    if (!w || words_copy(in, &w->words, (struct str *[WORDS]) { &w->method, &w->path, &w->request_id, &w->rejected })) {
        lease_cancel(&w);
        return NULL;
    }
    w->scheme = ask->scheme;
    w->lease_cb = cb;
    struct flight *f = flight_find(c, &key, w->rejected);
    if (f)
        lc_wait_link(&f->waits, w);
    else
        flight_start(c, &key, w, false);
    *ret_wait = w;
    return NULL;
}

void lc_get_done(struct lease_client *c)
{
    while (c->newest)
        entry_drop(c, c->newest);
    for (size_t i = 0; i < LC_BUCKETS; i++)
        while (c->flights.v[i]) {
            struct flight *f = LC_CONTAINER(c->flights.v[i], struct flight, by_key);
            while (f->waits) {
                struct lease_wait *w = f->waits;
                lease_cancel(&w);
            }
            flight_free(f);
        }
}
