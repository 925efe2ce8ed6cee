/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's edges: workers and what they say, admission, the snapshot, revocation. See keeper_state.h for the rest.
 */
#include "mint/keeper_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* --- questions --- */

struct kask *kask_new(const struct lease_wire_get *g)
{
    const struct str parts[] = { g->credential, g->agent, g->method, g->path, g->request_id, g->rejected };
    enum { PARTS = sizeof parts / sizeof *parts };
    size_t n = 0;
    for (size_t i = 0; i < PARTS; i++)
        n += parts[i].n;
    struct kask *a = calloc(1, sizeof *a + n);
    if (!a)
        return NULL;
    *a = (struct kask) { .refs = 1, .scheme = g->scheme, .host = g->host, .port = g->port, .reason = g->reason };
    struct str *const into[PARTS] = { &a->credential, &a->agent, &a->method, &a->path, &a->request_id, &a->rejected };
    char *p = a->bytes;
    for (size_t i = 0; i < PARTS; i++) {
        if (parts[i].n)
            memcpy(p, parts[i].p, parts[i].n);
        *into[i] = str_of(p, parts[i].n);
        p += parts[i].n;
    }
    return a;
}

struct kask *kask_ref(struct kask *a)
{
    a->refs++;
    return a;
}

void kask_unref(struct kask **ap)
{
    struct kask *a = *ap;
    *ap = NULL;
    if (a && --a->refs == 0)
        free(a);
}

static size_t wait_bytes(const struct kask *a)
{
    return sizeof(struct kwait) + sizeof *a + a->path.n;
}

void kwait_free(struct shelf *s, struct kwait *x)
{
    TAILQ_REMOVE(&s->waits, x, link);
    if (s->flight.leader == x)
        s->flight.leader = NULL;
    fair_give(&x->w->waiting, str_hash(x->ask->agent), wait_bytes(x->ask));
    kask_unref(&x->ask);
    free(x);
}

void keeper_fill_ask(const struct keeper *k, const struct kask *a, const struct agent *agent, struct ask *ret)
{
    (void)k;
    *ret = (struct ask) { .agent = agent,
                          .scheme = a->scheme,
                          .host = &a->host,
                          .port = a->port,
                          .method = a->method,
                          .path = a->path,
                          .now_us = clock_wall_us() };
}

const struct credential *keeper_credential(const struct keeper *k, struct str name)
{
    const struct config *c = policy_config(k->policy);
    for (size_t i = 0; i < c->ncredentials; i++)
        if (str_eq(c->credentials[i].name, name))
            return &c->credentials[i];
    return NULL;
}

enum end keeper_admit(const struct keeper *k, const struct kask *a, const struct credential **ret)
{
    const struct agent *agent = policy_agent(k->policy, a->agent);
    const struct credential *c = keeper_credential(k, a->credential);
    struct ask ask;
    struct verdict v;
    if (!agent || !c) /* a worker on another snapshot than ours, for a moment */
        return END_CREDENTIAL_UNAVAILABLE;
    if (policy_path_check(a->path, NULL))
        return END_BAD_REQUEST;
    keeper_fill_ask(k, a, agent, &ask);
    enum end end = policy_credential_scope(k->policy, c, &ask);
    if (end != END_OK)
        return end;
    policy_eval(k->policy, &ask, &v);
    if (v.kind != VERDICT_ALLOW && v.kind != VERDICT_OBSERVE)
        return v.code == END_OK || v.code == END_UNSET ? END_HOST_DENIED : v.code;
    *ret = c;
    return END_OK;
}

struct sidecar *keeper_sidecar(const struct keeper *k, const struct credential *c)
{
    const struct config *config = policy_config(k->policy);
    switch (c->source) {
    case SOURCE_SIDECAR:
        for (size_t i = 0; i < k->nsidecars; i++)
            if (str_eq(config->sidecars[i].name, c->source_text))
                return k->sidecars[i];
        return NULL;
    case SOURCE_ENV:
    case SOURCE_FILE:
    case SOURCE_EXEC:
        return k->mint;
    case SOURCE_NONE:
        break;
    }
    return NULL;
}

uint64_t keeper_source(const struct credential *c)
{
    uint64_t h = (uint64_t)c->source * 31 + str_hash(c->source_text) + c->max_ttl_ms * 131;
    for (size_t i = 0; i < c->nexec; i++)
        h = h * 31 + str_hash(c->exec[i]);
    return h;
}

/* --- workers --- */

static void refuse_now(struct kworker *w, uint64_t id, const struct kask *a, enum end end, uint32_t retry_after_s,
                       const char *why)
{
    note_refusal(w->k, w, a, end, why, 0);
    out_refusal(w, id, end, retry_after_s, why);
}

static void on_get(struct kworker *w, uint64_t id, struct kask *a)
{
    struct keeper *k = w->k;
    const struct credential *c = NULL;
    const struct limits *limits = keeper_limits(k);
    uint64_t now = loop_now_ms(k->loop);
    if (!fair_rate_take(&w->asks, str_hash(a->agent), limits->lease_rate, now)) {
        refuse_now(w, id, a, END_RATE_LIMITED, 1, "this worker asks for too many leases (limits.lease_rate)");
        return;
    }
    enum end end = keeper_admit(k, a, &c);
    if (end != END_OK) {
        refuse_now(w, id, a, end, end == END_CREDENTIAL_UNAVAILABLE ? 1 : 0, "not allowed by the keeper's snapshot");
        return;
    }
    if (!k->sink || !sink_ready(k->sink, now, limits->event_lag)) {
        out_refusal(w, id, END_AUDIT_UNAVAILABLE, 1, "the audit log takes no record");
        return;
    }
    struct shelf *s = cache_shelf(k, a);
    struct kwait *x = s ? calloc(1, sizeof *x) : NULL;
    if (!x) {
        refuse_now(w, id, a, END_RATE_LIMITED, 1, "limits.lease_count is reached");
        if (s)
            shelf_settle(s);
        return;
    }
    if (!fair_take(&w->waiting, str_hash(a->agent), wait_bytes(a), KEEPER_WAIT_BYTES)) {
        refuse_now(w, id, a, END_RATE_LIMITED, 1, "too many questions of this agent wait for its sidecars");
        free(x);
        shelf_settle(s);
        return;
    }
    *x = (struct kwait) { .w = w, .id = id, .since_ms = now, .epoch = k->epoch, .ask = kask_ref(a) };
    shelf_ask(s, x);
}

static int read_get(struct kworker *w, const struct msg *m)
{
    struct lease_wire_get g;
    if (lease_wire_read_get(m->body, &g))
        return -1;
    struct kask *a = kask_new(&g);
    if (!a) {
        out_refusal(w, m->id, END_CREDENTIAL_UNAVAILABLE, 1, "no memory");
        return 0;
    }
    on_get(w, m->id, a);
    kask_unref(&a);
    return 0;
}

static bool names_known(const struct keeper *k, const struct lease_wire_watch *v)
{
    return policy_agent(k->policy, v->agent) && keeper_credential(k, v->credential);
}

/* A pair that the snapshot does not know yet is remembered too: the worker may be ahead of us. But not so many that a
 * broken one could leave no room for the others. NULL: it is broken. */
static struct pair *pair_watch(struct kworker *w, const struct lease_wire_watch *v)
{
    struct keeper *k = w->k;
    struct pair *p = cache_find_pair(k, v->credential, v->agent);
    if (p && worker_in(&p->watchers, w->place))
        return p;
    if (!names_known(k, v) && w->strangers++ >= KEEPER_STRANGERS)
        return NULL;
    if (!p)
        p = cache_pair(k, v->credential, v->agent);
    if (p)
        worker_mark(&p->watchers, w->place, true);
    return p;
}

/* Every lease of the pair that is still scrubbed, then WATCHED. Values go out only for what the snapshot grants, and
 * only behind their event: what cannot be recorded is not handed out, and without WATCHED the worker refuses what it
 * cannot scrub. */
static int read_watch(struct kworker *w, const struct msg *m)
{
    struct keeper *k = w->k;
    struct lease_wire_watch v;
    if (lease_wire_read_watch(m->body, &v))
        return -1;
    struct pair *p = pair_watch(w, &v);
    if (!p)
        return -1;
    const struct limits *limits = keeper_limits(k);
    if (!fair_rate_take(&w->asks, str_hash(v.agent), limits->lease_rate, loop_now_ms(k->loop)))
        return 0; /* no WATCHED: the worker refuses what it cannot scrub */
    struct entry *e;
    TAILQ_FOREACH(e, &p->entries, in_pair)
    {
        if (!worker_in(&e->known, w->place) &&
            note_write(k, &(struct lease_note) { .result = "given", .entry = e, .why = "to scrub answers of it" }))
            return 0;
        if (out_live_to(w, e))
            return -1;
    }
    return msg_send(w->ch, LEASE_WATCHED, m->id, STR(""), NULL, 0);
}

static int read_unwatch(struct kworker *w, const struct msg *m)
{
    struct lease_wire_watch v;
    if (lease_wire_read_watch(m->body, &v))
        return -1;
    struct pair *p = cache_find_pair(w->k, v.credential, v.agent);
    if (p) {
        worker_mark(&p->watchers, w->place, false);
        pair_settle(w->k, p);
    }
    return 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    struct kworker *w = ctx;
    (void)ch;
    if (m->nfds || w->closing)
        return -1;
    switch (m->type) {
    case LEASE_GET:
        return read_get(w, m);
    case LEASE_WATCH:
        return read_watch(w, m);
    case LEASE_UNWATCH:
        return read_unwatch(w, m);
    default:
        return -1;
    }
}

static void worker_free(struct kworker *w)
{
    struct keeper *k = w->k;
    cache_forget_worker(k, w);
    k->workers[w->place] = NULL;
    task_cancel(&w->close);
    msg_channel_free(&w->ch);
    free(w);
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    worker_free(ctx);
}

static void on_close_task(struct task *t)
{
    struct kworker *w = (struct kworker *)((char *)t - offsetof(struct kworker, close));
    log_error("worker %u does not take what it is told about leases: its channel is closed", w->index);
    worker_free(w);
}

int keeper_add_worker(struct keeper *k, unsigned index, int fd, struct err *err)
{
    static const struct msg_ops ops = { .on_message = on_message, .on_closed = on_closed };
    unsigned place = KEEPER_WORKERS;
    for (unsigned i = KEEPER_WORKERS; i-- > 0;) {
        if (k->workers[i] && k->workers[i]->index == index)
            worker_free(k->workers[i]);
        if (!k->workers[i])
            place = i;
    }
    if (place == KEEPER_WORKERS)
        return err_set(err, "expected at most %d workers", KEEPER_WORKERS);
    struct kworker *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, "no memory");
    *w = (struct kworker) { .k = k, .index = index, .place = place, .close = { .cb = on_close_task } };
    w->ch = msg_channel_new(k->loop, fd, &ops, w);
    if (!w->ch) {
        free(w);
        return err_set_errno(err, "channel of worker %u", index);
    }
    msg_channel_wipe(w->ch, true);
    k->workers[place] = w;
    return 0;
}

/* --- the snapshot --- */

static struct sidecar *sidecar_like(struct keeper *k, struct sidecar **old, size_t nold,
                                    const struct sidecar_options *o)
{
    struct err err;
    for (size_t i = 0; i < nold; i++)
        if (old[i] && sidecar_is(old[i], o))
            return sidecar_ref(old[i]);
    struct sidecar *s = sidecar_new(k->hub, o, &err);
    if (!s)
        log_error("%s", err.text);
    return s;
}

enum { MINT_TIMEOUT_MS = 10000, SIDECAR_TIMEOUT_MS = 5000 };

/* Puts the sidecars of the snapshot in place; the old ones are the caller's to release. */
static int sidecars_build(struct keeper *k, struct str mint_socket, struct sidecar **old, size_t nold,
                          struct sidecar *old_mint)
{
    const struct config *c = policy_config(k->policy);
    struct sidecar **v = calloc(c->nsidecars ? c->nsidecars : 1, sizeof(struct sidecar *));
    if (!v)
        return -1;
    for (size_t i = 0; i < c->nsidecars; i++) {
        const struct config_sidecar *s = &c->sidecars[i];
        struct sidecar_options o = { .name = s->name,
                                     .socket = s->socket,
                                     .timeout_ms = s->timeout_ms ? s->timeout_ms : SIDECAR_TIMEOUT_MS,
                                     .uid_given = s->peer_uid_given,
                                     .uid = (uid_t)s->peer_uid };
        v[i] = sidecar_like(k, old, nold, &o);
    }
    k->sidecars = v;
    k->nsidecars = c->nsidecars;
    struct sidecar_options o = { .name = STR("outgate-mint"),
                                 .socket = mint_socket,
                                 .timeout_ms = MINT_TIMEOUT_MS,
                                 .uid_given = true,
                                 .uid = k->mint_uid,
                                 .or_root = true };
    k->mint = mint_socket.n ? sidecar_like(k, &old_mint, 1, &o) : NULL;
    return 0;
}

static void sidecars_release(struct sidecar **v, size_t n, struct sidecar *mint)
{
    for (size_t i = 0; i < n; i++)
        sidecar_unref(&v[i]);
    free(v);
    sidecar_unref(&mint);
}

static void revoke_entry(struct entry *e, const char *who, const char *why)
{
    if (e->state != ENTRY_ENDED)
        note_write(e->k, &(struct lease_note) { .result = "revoked", .entry = e, .who = who, .why = why });
    entry_drop(e, LEASE_GONE_REVOKED);
}

static bool still_covers(const struct keeper *k, const struct shelf *s, const struct credential *c)
{
    const struct agent *agent = policy_agent(k->policy, s->pair->agent);
    if (!agent || !c)
        return false;
    struct ask ask = { .agent = agent,
                       .scheme = SCHEME_HTTPS,
                       .host = &s->host,
                       .port = s->port,
                       .method = STR("GET"),
                       .path = STR("/"),
                       .now_us = clock_wall_us() };
    return policy_credential_scope(k->policy, c, &ask) != END_PLACEHOLDER_WRONG_HOST;
}

static void revise(struct shelf *s, void *ctx)
{
    struct keeper *k = ctx;
    const struct credential *c = keeper_credential(k, s->pair->credential);
    struct entry *e, *next;
    if (!still_covers(k, s, c)) {
        shelf_abandon(s);
        shelf_refuse(s, END_CREDENTIAL_UNAVAILABLE, 0, "the credential is no longer in the configuration");
        while ((e = TAILQ_FIRST(&s->entries)))
            revoke_entry(e, "outgate", "no longer in the configuration");
        shelf_settle(s);
        return;
    }
    uint64_t source = keeper_source(c);
    struct sidecar *sc = keeper_sidecar(k, c);
    for (e = TAILQ_FIRST(&s->entries); e; e = next) {
        next = TAILQ_NEXT(e, in_shelf);
        if (e->source != source || e->sidecar != sc)
            entry_replace(e);
    }
    if (s->flight.ask && (s->flight.source != source || s->flight.sidecar != sc)) {
        shelf_abandon(s);
        shelf_pump(s);
    }
    shelf_settle(s);
}

void keeper_set_policy(struct keeper *k, struct policy *p, struct str mint_socket)
{
    struct policy *old = k->policy;
    struct sidecar **old_v = k->sidecars, *old_mint = k->mint;
    size_t old_n = k->nsidecars;
    k->policy = policy_ref(p);
    k->epoch++;
    if (sidecars_build(k, mint_socket, old_v, old_n, old_mint))
        log_fatal("no memory for the sidecars of a new configuration");
    for (unsigned i = 0; i < KEEPER_WORKERS; i++)
        if (k->workers[i])
            k->workers[i]->strangers = 0;
    cache_each(k, revise, k);
    sidecars_release(old_v, old_n, old_mint);
    policy_unref(&old);
}

/* --- revocation --- */

static void ask_again(struct shelf *s, void *ctx)
{
    const struct str *credential = ctx;
    if (!str_eq(s->pair->credential, *credential))
        return;
    if (s->flight.ask) {
        shelf_abandon(s); /* what it brings was minted before the revocation */
        shelf_pump(s);
    }
    shelf_settle(s);
}

/* The oldest makes room: flights that began before that one are no longer told apart, see keeper_revoked. */
static void remember_revoked(struct keeper *k, struct str lease_id)
{
    size_t at = (size_t)(k->revocations++ % KEEPER_REVOKED);
    snprintf(k->revoked[at].id, sizeof k->revoked[at].id, "%.*s", STR_ARG(lease_id));
    k->revoked[at].number = k->revocations;
}

bool keeper_revoked(const struct keeper *k, struct str lease_id, uint64_t since)
{
    if (k->revocations - since > KEEPER_REVOKED)
        return true;
    for (size_t i = 0; i < KEEPER_REVOKED; i++)
        if (k->revoked[i].number > since && str_eq(str_c(k->revoked[i].id), lease_id))
            return true;
    return false;
}

size_t keeper_revoke(struct keeper *k, struct str lease_id, struct str credential, const char *who)
{
    size_t n = 0;
    if (lease_id_ok(lease_id))
        remember_revoked(k, lease_id);
    for (struct entry *e = TAILQ_FIRST(&k->by_use), *next; e; e = next) {
        next = TAILQ_NEXT(e, in_use);
        bool hit = lease_id.n ? str_eq(e->id, lease_id) || str_eq(str_c(e->lease->id), lease_id)
                              : credential.n && str_eq(e->lease->credential, credential);
        if (!hit)
            continue;
        n += e->state != ENTRY_ENDED;
        revoke_entry(e, who, NULL);
    }
    /* Workers may still hold what a keeper before us gave out. */
    if (!lease_id.n && credential.n) {
        out_gone_unknown(k, STR_NONE, credential);
        cache_each(k, ask_again, &credential);
    } else if (!n && lease_id_ok(lease_id)) {
        out_gone_unknown(k, lease_id, STR_NONE);
    }
    if (!n && (credential.n || lease_id_ok(lease_id))) /* who ended what others gave out is on record too */
        note_write(k, &(struct lease_note) { .result = "revoked",
                                             .lease_id = lease_id,
                                             .credential = lease_id.n ? STR_NONE : credential,
                                             .who = who,
                                             .why = "not known to this keeper; every worker was told" });
    return n;
}

static bool may_revoke(void *ctx, uid_t uid)
{
    const struct keeper *k = ctx;
    if (uid == 0 || (k->mint && uid == k->mint_uid))
        return true;
    for (size_t i = 0; i < k->nsidecars; i++)
        if (k->sidecars[i] && sidecar_speaks(k->sidecars[i], uid))
            return true;
    return false;
}

static size_t on_revoke(void *ctx, struct str lease_id, struct str credential, uid_t uid)
{
    char who[32];
    snprintf(who, sizeof who, "uid %u", (unsigned)uid);
    return keeper_revoke(ctx, lease_id, credential, who);
}

int keeper_listen(struct keeper *k, int fd, struct err *err)
{
    static const struct revoke_ops ops = { .may = may_revoke, .revoke = on_revoke };
    revoke_server_free(&k->revoke);
    k->revoke = revoke_server_new(k->loop, fd, &ops, k, err);
    return k->revoke ? 0 : -1;
}

size_t keeper_count(const struct keeper *k)
{
    return k->nentries;
}

/* --- life --- */

struct keeper *keeper_new(struct loop *l, struct policy *p, struct str mint_socket, uid_t mint_uid, struct sink *sink,
                          struct err *err)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k) {
        err_set(err, "no memory");
        return NULL;
    }
    k->loop = l;
    k->sink = sink;
    k->mint_uid = mint_uid;
    k->policy = policy_ref(p);
    k->hub = sidecar_hub_new(l, err);
    if (!k->hub || cache_init(k) || sidecars_build(k, mint_socket, NULL, 0, NULL)) {
        if (k->hub)
            err_set(err, "no memory");
        keeper_free(&k);
        return NULL;
    }
    return k;
}

void keeper_free(struct keeper **kp)
{
    struct keeper *k = *kp;
    *kp = NULL;
    if (!k)
        return;
    revoke_server_free(&k->revoke);
    for (unsigned i = 0; i < KEEPER_WORKERS; i++)
        if (k->workers[i])
            worker_free(k->workers[i]);
    bool leases = k->nentries > 0;
    cache_done(k);
    if (leases)
        sidecar_hub_finish(k->hub, KEEPER_FREE_MS);
    sidecar_hub_free(&k->hub);
    sidecars_release(k->sidecars, k->nsidecars, k->mint);
    policy_unref(&k->policy);
    free(k);
}
