/* SPDX-License-Identifier: Apache-2.0
 *
 * One shelf's questions to its sidecar. A flight is led by the first question that no lease covers; everyone who comes
 * meanwhile waits for it. What it brings goes out in one order: the events are taken, all watchers learn the value
 * (LEASE_LIVE), the lease it replaces is withdrawn, the answers leave. When not one event can be taken the lease is
 * given back, and nobody has seen it. */
#include "mint/keeper_state.h"

#include "base/clock.h"

#include <errno.h>

static void on_answer(void *ctx, const struct sidecar_answer *a);

static enum end unavailable(const struct shelf *s)
{
    return s->ran_out_until_ms > loop_now_ms(s->k->loop) ? END_CREDENTIAL_EXPIRED : END_CREDENTIAL_UNAVAILABLE;
}

static uint32_t seconds_until(const struct keeper *k, uint64_t at_ms)
{
    uint64_t now = loop_now_ms(k->loop);
    return at_ms > now ? (uint32_t)((at_ms - now + 999) / 1000) : 1;
}

static void refuse(struct shelf *s, struct kwait *x, enum end end, uint32_t retry_after_s, const char *why)
{
    note_refusal(s->k, x->w, x->ask, end, why, x->since_ms);
    out_refusal(x->w, x->id, end, retry_after_s, why);
    kwait_free(s, x);
}

void shelf_refuse(struct shelf *s, enum end end, uint32_t retry_after_s, const char *why)
{
    while (!TAILQ_EMPTY(&s->waits))
        refuse(s, TAILQ_FIRST(&s->waits), end, retry_after_s, why);
}

/* Under a newer snapshot the question is judged again. False: it was refused. */
static bool still_admitted(struct shelf *s, struct kwait *x)
{
    const struct credential *c;
    if (x->epoch == s->k->epoch)
        return true;
    enum end end = keeper_admit(s->k, x->ask, &c);
    if (end != END_OK) {
        refuse(s, x, end, 0, "no longer in the configuration");
        return false;
    }
    x->epoch = s->k->epoch;
    return true;
}

static int note_given(struct keeper *k, const struct kwait *x, const struct entry *e)
{
    return note_write(k,
                      &(struct lease_note) { .result = "given", .entry = e, .ask = x->ask, .since_ms = x->since_ms });
}

static bool covers(const struct keeper *k, const struct lease *l, const struct kask *a)
{
    const struct agent *agent = policy_agent(k->policy, a->agent);
    struct ask ask;
    if (!agent)
        return false;
    keeper_fill_ask(k, a, agent, &ask);
    return lease_covers(l, &ask);
}

static void serve(struct shelf *s, struct kwait *x, struct entry *e)
{
    if (!x->logged && note_given(s->k, x, e)) {
        refuse(s, x, END_AUDIT_UNAVAILABLE, 1, "the audit log takes no record");
        return;
    }
    entry_use(e, x->ask);
    worker_mark(&e->known, x->w->place, true);
    out_answer(x->w, x->id, e->lease);
    kwait_free(s, x);
}

/* From the leases that are there. One rejected by an origin waits for a new one. */
static void serve_cached(struct shelf *s)
{
    for (struct kwait *x = TAILQ_FIRST(&s->waits), *next; x; x = next) {
        next = TAILQ_NEXT(x, link);
        if (!still_admitted(s, x) || x->ask->reason == LEASE_REJECTED)
            continue;
        struct entry *e = cache_find(s, x->ask);
        if (e)
            serve(s, x, e);
    }
}

static void clear_rejected(struct shelf *s)
{
    struct entry *e;
    TAILQ_FOREACH(e, &s->entries, in_shelf)
    e->rejected = false;
}

/* --- asking --- */

static int launch(struct shelf *s, struct kask *a, struct kwait *leader, struct entry *replaces,
                  enum lease_reason reason)
{
    struct keeper *k = s->k;
    const struct credential *c = keeper_credential(k, a->credential);
    struct sidecar *sc = c ? keeper_sidecar(k, c) : NULL;
    char fresh[27];
    struct sidecar_ask ask = { .credential = a->credential,
                               .agent = a->agent,
                               .host = host_str(&a->host),
                               .port = a->port,
                               .method = a->method,
                               .path = a->path,
                               .request_id = a->request_id,
                               .reason = reason,
                               .min_ttl_s = SIDECAR_MIN_TTL_S };
    if (!leader || !ask.request_id.n) {
        event_id_new(fresh);
        ask.request_id = str_c(fresh);
    }
    struct sidecar_call *call = sc ? sidecar_lease(sc, &ask, c->allow_short, on_answer, s) : NULL;
    if (!call)
        return -1;
    s->flight = (struct flight) { .call = call,
                                  .ask = kask_ref(a),
                                  .leader = leader,
                                  .replaces = replaces,
                                  .reason = reason,
                                  .since_ms = loop_now_ms(k->loop),
                                  .source = keeper_source(c),
                                  .revocations = k->revocations,
                                  .sidecar = sc };
    if (leader)
        leader->calls++;
    return 0;
}

static struct entry *rejected_for(struct shelf *s, const struct kask *a)
{
    struct entry *e;
    TAILQ_FOREACH(e, &s->entries, in_shelf)
    if (e->state == ENTRY_LIVE && e->rejected && covers(s->k, e->lease, a))
        return e;
    return NULL;
}

void shelf_pump(struct shelf *s)
{
    struct keeper *k = s->k;
    uint64_t now = loop_now_ms(k->loop);
    serve_cached(s);
    struct kwait *x = TAILQ_FIRST(&s->waits);
    if (!x || s->flight.ask)
        return;
    if (s->denied_until_ms > now) {
        shelf_refuse(s, END_CREDENTIAL_DENIED, 0, "the sidecar said no a moment ago");
    } else if (s->pair->backoff_until_ms > now) {
        shelf_refuse(s, unavailable(s), seconds_until(k, s->pair->backoff_until_ms),
                     "pausing after a failure of the sidecar");
    } else if (!bucket_take(&s->pair->mints, now, KEEPER_MINT_RATE, KEEPER_MINT_RATE * 10)) {
        shelf_refuse(s, END_RATE_LIMITED, 1, "too many leases are asked for this agent and credential");
    } else {
        struct entry *old = rejected_for(s, x->ask);
        if (launch(s, x->ask, x, old, x->ask->reason))
            shelf_refuse(s, unavailable(s), 1, "the sidecar cannot be asked");
    }
    if (!s->flight.ask)
        clear_rejected(s);
}

/* May one more value be thrown away because of a 401? */
static bool may_reject(struct shelf *s)
{
    return bucket_take(&s->rejects, loop_now_ms(s->k->loop) / 10, 1, KEEPER_REJECT_BURST) &&
           shelf_count(s, ENTRY_REPLACED) < KEEPER_REPLACED;
}

/* An origin rejected a value. Where it is the one we would give, that is marked, and a new one asked for; a late 401 to
 * a value that was replaced since says nothing of its successor, which is the answer. */
static void reject(struct shelf *s, struct kask *a)
{
    struct entry *e = cache_find(s, a);
    if (!e) /* being replaced, or gone */
        return;
    if (str_eq(str_c(e->lease->id), a->rejected) && may_reject(s))
        e->rejected = true;
    else
        a->reason = LEASE_FIRST; /* the newer one, or, where there were too many, the same again: no reason to replay */
}

void shelf_ask(struct shelf *s, struct kwait *x)
{
    TAILQ_INSERT_TAIL(&s->waits, x, link);
    if (x->ask->reason == LEASE_REJECTED)
        reject(s, x->ask);
    shelf_pump(s);
    shelf_settle(s);
}

void shelf_abandon(struct shelf *s)
{
    sidecar_cancel(&s->flight.call);
    kask_unref(&s->flight.ask);
    s->flight = (struct flight) { 0 };
    clear_rejected(s);
}

void shelf_refresh(struct entry *e)
{
    struct shelf *s = e->shelf;
    struct keeper *k = s->k;
    uint64_t now = loop_now_ms(k->loop);
    const struct credential *c;
    if (!e->used || !e->last || keeper_admit(k, e->last, &c) != END_OK)
        return;
    uint64_t pause = s->denied_until_ms > s->pair->backoff_until_ms ? s->denied_until_ms : s->pair->backoff_until_ms;
    if (pause > now) {
        entry_retry_refresh(e, pause);
        return;
    }
    if (s->flight.ask || !bucket_take(&s->pair->mints, now, KEEPER_MINT_RATE, KEEPER_MINT_RATE * 10) ||
        launch(s, e->last, NULL, e, LEASE_REFRESH))
        entry_retry_refresh(e, now + 1000);
}

/* --- what came --- */

static void pause_pair(struct shelf *s, const struct sidecar_answer *a)
{
    struct pair *p = s->pair;
    uint64_t now = loop_now_ms(s->k->loop), pause;
    if (now >= pair_remembers_until(p))
        p->backoff_ms = 0;
    if (a->result == SIDECAR_BUSY && a->retry_after_s) {
        uint32_t wait = a->retry_after_s > KEEPER_RETRY_AFTER_MAX_S ? KEEPER_RETRY_AFTER_MAX_S : a->retry_after_s;
        pause = (uint64_t)wait * 1000;
    } else {
        pause = p->backoff_ms ? p->backoff_ms * 2 : KEEPER_BACKOFF_MIN_MS;
        if (pause > KEEPER_BACKOFF_MAX_MS)
            pause = KEEPER_BACKOFF_MAX_MS;
        p->backoff_ms = pause;
    }
    p->backoff_until_ms = now + pause;
}

static void failed(struct shelf *s, const struct flight *f, const struct sidecar_answer *a)
{
    struct keeper *k = s->k;
    enum end end = a->result == SIDECAR_DENIED ? END_CREDENTIAL_DENIED : unavailable(s);
    uint64_t until;
    if (a->result == SIDECAR_DENIED) {
        until = s->denied_until_ms = loop_now_ms(k->loop) + KEEPER_DENIED_MS;
    } else {
        pause_pair(s, a);
        until = s->pair->backoff_until_ms;
    }
    clear_rejected(s);
    if (f->replaces && f->reason == LEASE_REFRESH)
        entry_retry_refresh(f->replaces, until);
    if (TAILQ_EMPTY(&s->waits))
        note_write(k, &(struct lease_note) {
                          .result = "refused", .ask = f->ask, .end = end, .why = a->why, .since_ms = f->since_ms });
    serve_cached(s);
    shelf_refuse(s, end, a->result == SIDECAR_DENIED ? 0 : seconds_until(k, until), a->why);
}

/* The default time of refresh: two thirds of its life or a minute before its end, whichever is sooner, but not before
 * half of what may be used of it. */
static int64_t refresh_time(int64_t now, int64_t expires, int64_t asked)
{
    int64_t life = expires - now, usable = life - (int64_t)LEASE_SKEW_MS * 1000;
    int64_t at = now + life / 3 * 2;
    if (at > expires - 60 * 1000000ll)
        at = expires - 60 * 1000000ll;
    if (at < now + usable / 2)
        at = now + usable / 2;
    return asked > 0 ? asked : at;
}

/* NULL with *ret_why. */
static struct lease *lease_of(const struct kask *a, const struct credential *c, const struct sidecar_grant *g,
                              const char **ret_why)
{
    int64_t now = clock_wall_us(), skew = (int64_t)LEASE_SKEW_MS * 1000;
    if (g->expires_us - skew <= now) {
        *ret_why = "expires_at has passed, or passes within the 30 s of skew";
        return NULL;
    }
    int64_t most = now + (int64_t)c->max_ttl_ms * 1000;
    if (c->max_ttl_ms < KEEPER_SHORT_TTL_MS)
        most += skew;
    int64_t expires = g->expires_us < most ? g->expires_us : most;
    struct lease_spec spec = { .id = g->lease_id,
                               .credential = a->credential,
                               .agent = a->agent,
                               .value = g->value,
                               .expires_us = expires,
                               .refresh_us = refresh_time(now, expires, g->refresh_us),
                               .hosts = g->hosts,
                               .methods = g->methods,
                               .paths = g->paths };
    struct lease *l = lease_new(&spec, NULL);
    if (!l)
        *ret_why =
            errno == ENOMEM ? "no memory for another value" : "scope: an entry is no host, method or path pattern";
    return l;
}

/* Marks those whose event is taken; *ret_n: how many the lease covers. */
static bool note_all(struct shelf *s, const struct flight *f, const struct entry *e, size_t *ret_n)
{
    struct keeper *k = s->k;
    bool taken = false;
    *ret_n = 0;
    if (f->reason != LEASE_FIRST && f->replaces)
        taken = note_write(k, &(struct lease_note) {
                                  .result = "refreshed", .entry = e, .ask = f->ask, .since_ms = f->since_ms }) == 0;
    for (struct kwait *x = TAILQ_FIRST(&s->waits), *next; x; x = next) {
        next = TAILQ_NEXT(x, link);
        if (!still_admitted(s, x) || !covers(k, e->lease, x->ask))
            continue;
        x->logged = note_given(k, x, e) == 0;
        taken |= x->logged;
        ++*ret_n;
    }
    return taken;
}

static void hand_out(struct shelf *s, const struct flight *f, struct entry *e)
{
    out_live(e);
    if (f->replaces)
        entry_replace(f->replaces);
    for (struct entry *o = TAILQ_FIRST(&s->entries), *next; o; o = next) {
        next = TAILQ_NEXT(o, in_shelf);
        if (o != e && o->state == ENTRY_LIVE && shelf_count(s, ENTRY_LIVE) > KEEPER_VARIANTS)
            entry_replace(o);
    }
    for (struct kwait *x = TAILQ_FIRST(&s->waits), *next; x; x = next) {
        next = TAILQ_NEXT(x, link);
        if (!covers(s->k, e->lease, x->ask))
            continue;
        if (x->logged)
            serve(s, x, e);
        else
            refuse(s, x, END_AUDIT_UNAVAILABLE, 1, "the audit log takes no record");
    }
}

/* A lease that does not cover what it was asked for is given back: one more call, then the request is out of scope. */
static void not_covered(struct shelf *s, const struct flight *f)
{
    clear_rejected(s);
    if (f->replaces && f->reason == LEASE_REFRESH)
        entry_retry_refresh(f->replaces, loop_now_ms(s->k->loop) + KEEPER_BACKOFF_MAX_MS);
    if (f->leader && f->leader->calls >= 2)
        refuse(s, f->leader, END_PLACEHOLDER_OUT_OF_SCOPE, 0, "the sidecar's lease does not cover this request");
}

/* Revoked while it was on its way: nobody gets it, and who waits asks anew (a flight that begins later may bring the
 * same id again: that is the sidecar's word, given after the revocation). */
static void came_revoked(struct shelf *s, const struct flight *f, struct sidecar *sc, struct str lease_id)
{
    sidecar_delete(sc, lease_id);
    note_write(s->k,
               &(struct lease_note) {
                   .result = "revoked", .ask = f->ask, .why = "while it was on its way", .since_ms = f->since_ms });
    clear_rejected(s);
    if (f->replaces && f->reason == LEASE_REFRESH)
        entry_retry_refresh(f->replaces, loop_now_ms(s->k->loop) + 1000);
}

static void granted(struct shelf *s, const struct flight *f, struct sidecar *sc, const struct sidecar_grant *g)
{
    struct keeper *k = s->k;
    if (keeper_revoked(k, g->lease_id, f->revocations)) {
        came_revoked(s, f, sc, g->lease_id);
        return;
    }
    const struct credential *c = keeper_credential(k, f->ask->credential);
    struct sidecar_answer unfit = { .result = SIDECAR_UNFIT, .why = "the credential is gone" };
    struct lease *l = c ? lease_of(f->ask, c, g, &unfit.why) : NULL;
    size_t n;
    if (!l) {
        sidecar_delete(sc, g->lease_id);
        failed(s, f, &unfit);
        return;
    }
    s->pair->backoff_ms = s->pair->backoff_until_ms = s->denied_until_ms = 0;
    if (!covers(k, l, f->ask)) {
        sidecar_delete(sc, g->lease_id);
        lease_unref(&l);
        not_covered(s, f);
        return;
    }
    struct entry *e = cache_add(s, l, g->lease_id, sc, f->source);
    if (!e) {
        sidecar_delete(sc, g->lease_id);
        clear_rejected(s);
        shelf_refuse(s, END_RATE_LIMITED, 10, "limits.lease_count is reached");
        return;
    }
    bool ready = k->sink && sink_ready(k->sink, loop_now_ms(k->loop), keeper_limits(k)->event_lag);
    if (ready && note_all(s, f, e, &n)) {
        hand_out(s, f, e);
        return;
    }
    entry_drop(e, LEASE_GONE_EXPIRED);
    clear_rejected(s);
    if (!ready || n)
        shelf_refuse(s, END_AUDIT_UNAVAILABLE, 1, "the audit log takes no record");
}

/* s->flight stays set until all is said, so that whoever frees its leader or what it replaces clears them there. */
static void on_answer(void *ctx, const struct sidecar_answer *a)
{
    struct shelf *s = ctx;
    struct flight *f = &s->flight;
    const struct credential *c = keeper_credential(s->k, f->ask->credential);
    struct sidecar *sc = c ? keeper_sidecar(s->k, c) : NULL;
    f->call = NULL;
    if (a->result == SIDECAR_GIVEN && sc)
        granted(s, f, sc, a->grant);
    else if (sc)
        failed(s, f, a);
    else
        failed(s, f, &(struct sidecar_answer) { .result = SIDECAR_FAILED, .why = "the credential is gone" });
    kask_unref(&f->ask);
    *f = (struct flight) { 0 };
    shelf_pump(s);
    shelf_settle(s);
}
