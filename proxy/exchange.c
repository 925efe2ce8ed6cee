/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps up to the first byte that leaves; exchange_stream.c has what follows, exchange_end.c how it ends. Every wait comes back
 * here through a callback of two lines: store, run. */
#include "proxy/exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "proxy/agent_table.h"
#include "proxy/exchange_steps.h"
#include "proxy/exchange_ws.h"
#include "proxy/pool.h"
#include "proxy/record.h"
#include "proxy/rewrite.h"

#include <stdio.h>
#include <stdlib.h>

struct exchange *exchange_new(struct worker *w, const struct client_ops *cops, struct client *c, const struct request *req)
{
    /* Too large for the allocator's quick lists, and there is one for each request. */
    struct exchange *x = w->nexchanges_free ? memset(w->exchanges_free[--w->nexchanges_free], 0, sizeof *x) : calloc(1, sizeof *x);
    if (!x) {
        free(req->mem);
        return NULL;
    }
    x->w = w;
    x->view = view_ref(w->view);
    x->cops = cops;
    x->client = c;
    x->req = *req;
    x->conn_id = x->client_addr = "";
    event_id_new(x->request_id);
    x->t_start = loop_now_ms(w->loop);
    x->deadline.cb = exchange_on_deadline;
    buf_init(&x->replay, EXCHANGE_REPLAY_MAX);
    x->next = w->exchanges;
    x->link = &w->exchanges;
    if (x->next)
        x->next->link = &x->next;
    w->exchanges = x;
    w->stats.exchanges++;
    w->stats.requests++;
    return x;
}

struct ask exchange_ask(const struct exchange *x)
{
    ptrdiff_t q = str_find_char(x->req.target, '?');
    return (struct ask) {
        .agent = x->agent,
        .scheme = x->scheme,
        .host = &x->host,
        .port = x->port,
        .method = x->req.method,
        .path = q < 0 ? x->req.target : str_sub(x->req.target, 0, (size_t)q),
        .now_us = clock_wall_us(),
    };
}

void exchange_wait(struct exchange *x, uint64_t ms)
{
    const struct rule *r = x->verdict.rule;
    if (r && r->total_ms) { /* no wait goes past the rule's total */
        uint64_t spent = loop_now_ms(x->w->loop) - x->t_start;
        uint64_t left = spent < r->total_ms ? r->total_ms - spent : 0;
        ms = left < ms ? left : ms;
    }
    timer_set(x->w->loop, &x->deadline, exchange_tunnel_lasts(x, ms));
}

enum { CLOCKS_APART_MS = 5 };

void exchange_on_deadline(struct timer *t)
{
    struct exchange *x = (struct exchange *)((char *)t - offsetof(struct exchange, deadline));
    switch (x->step) {
    case STEP_LIVE:
        if (x->live_known) {
            lease_cancel(&x->live_wait);
            x->known = lease_set_ref(x->live);
            exchange_go(x, STEP_LEASE);
            exchange_run(x);
            break;
        }
        exchange_end(x, END_CREDENTIAL_UNAVAILABLE, "the keeper did not answer in time");
        break;
    case STEP_LEASE:
        exchange_end(x, END_CREDENTIAL_UNAVAILABLE, "the keeper did not answer in time");
        break;
    case STEP_RECORD:
        exchange_end(x, END_AUDIT_UNAVAILABLE, "the audit log was not synced in time");
        break;
    case STEP_HEAD:
    case STEP_POLICY:
    case STEP_DIAL:
        exchange_end(x, END_ORIGIN_TIMEOUT, "the host could not be reached in time");
        break;
    case STEP_STREAM:
        if (exchange_tunnel_lasts(x, CLOCKS_APART_MS) < CLOCKS_APART_MS) /* the loop's clock and the wall's round differently */
            exchange_tunnel_out_of_time(x);
        else if (exchange_ws_closed(x))
            exchange_ws_origin_end(x);
        else if (exchange_takes_body(x) && !x->head_sent)
            exchange_end(x, END_TIMEOUT, "the client sent no more of the body");
        else
            exchange_end(x, x->head_sent ? END_TIMEOUT : END_ORIGIN_TIMEOUT, "nothing moved for too long");
        break;
    case STEP_DONE:
        break;
    }
}

/* --- POLICY --- */

/* "trace" is another method than "TRACE", but not to every server. */
static bool never_forwarded(struct str method)
{
    return str_eq_nocase(method, STR("TRACE")) || str_eq_nocase(method, STR("TRACK")) || str_eq_nocase(method, STR("CONNECT"));
}

bool exchange_idempotent(const struct exchange *x)
{
    static const char *const methods[] = { "GET", "HEAD", "OPTIONS", "PUT", "DELETE" };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (str_eq(x->req.method, str_c(methods[i])))
            return true;
    return false;
}

static enum end check_request(struct exchange *x)
{
    struct err err;
    if (x->req.fault) {
        exchange_why(x, x->req.fault);
        return x->req.fault_end;
    }
    if (x->w->draining)
        return END_DRAINING;
    if (!x->agent)
        return END_UNKNOWN_AGENT;
    if (x->tunnel) /* has no path, and a method that is only ours */
        return END_OK;
    if (never_forwarded(x->req.method)) {
        exchange_why(x, "the method is never forwarded");
        return END_BAD_REQUEST;
    }
    bool asterisk = str_eq(x->req.target, STR("*"));
    if (asterisk ? !str_eq(x->req.method, STR("OPTIONS")) : policy_path_check(x->req.target, &err) != 0) {
        exchange_why(x, asterisk ? "the target * belongs to OPTIONS only" : err.text);
        return END_BAD_REQUEST;
    }
    uint64_t most = x->view->limits->body_bytes;
    if (most && x->req.body == H1_BODY_LENGTH && x->req.length > most) {
        exchange_why(x, "the body is longer than limits.body_bytes");
        return END_TOO_LARGE;
    }
    return END_OK;
}

/* A request that is refused anyway may still show that a placeholder went where it must not: that is worth a finding. */
static enum end plan_swaps(struct exchange *x, const struct ask *ask);

static void step_policy(struct exchange *x)
{
    enum end end = check_request(x);
    if (end != END_OK) {
        exchange_end(x, end, NULL);
        return;
    }
    if (x->tunnel) {
        end = exchange_tunnel_policy(x);
        if (end == END_OK && !record_ready(x->w, x->view))
            end = END_AUDIT_UNAVAILABLE;
        if (end == END_OK)
            exchange_go(x, STEP_LIVE);
        else
            exchange_end(x, end, end == END_REVOKED ? "a new configuration no longer lets it through unread" : NULL);
        return;
    }
    struct ask ask = exchange_ask(x);
    policy_eval(x->view->policy, &ask, &x->verdict);
    if (x->verdict.kind == VERDICT_DENY || x->verdict.kind == VERDICT_ASK) {
        end = x->verdict.kind == VERDICT_ASK ? END_APPROVAL_REQUIRED : x->verdict.code;
        exchange_know(x);
        plan_swaps(x, &ask);
        exchange_end(x, end, NULL);
        return;
    }
    const char *why = rewrite_request_check(x, &end);
    if (!why && x->req.websocket)
        why = exchange_ws_check(x, &end);
    if (why) {
        exchange_end(x, end, why);
        return;
    }
    if (!record_ready(x->w, x->view)) {
        exchange_end(x, END_AUDIT_UNAVAILABLE, NULL);
        return;
    }
    x->covered = policy_credentials(x->view->policy, x->agent, &x->host, NULL, 0) > 0;
    exchange_go(x, STEP_LIVE);
}

/* --- LIVE: which real values must not come back, and which the agent itself must not send --- */

/* The keeper may be away: a host without credentials is not kept from an agent for long by that. */
enum { KNOWN_WAIT_MS = 1000 };

static void on_live(void *ctx)
{
    struct exchange *x = ctx;
    x->live_wait = NULL;
    exchange_run(x);
}

void exchange_know(struct exchange *x)
{
    struct lease_wait *wait = NULL;
    if (!x->known && x->agent)
        (void)lease_live(x->w->leases, x->agent, NULL, &x->known, NULL, NULL, &wait);
    lease_cancel(&wait);
}

static void step_live(struct exchange *x)
{
    int r = 1;
    if (x->live_wait)
        return;
    if (x->covered && !x->live_known) {
        lease_set_unref(&x->live);
        r = lease_live(x->w->leases, x->agent, &x->host, &x->live, on_live, x, &x->live_wait);
    }
    if (r < 0) {
        exchange_end(x, END_CREDENTIAL_UNAVAILABLE, "the keeper is away, so it is not known which values must not come back");
        return;
    }
    if (r == 0) {
        exchange_wait(x, x->view->limits->lease_timeout);
        return;
    }
    x->live_known = true;
    if (lease_live(x->w->leases, x->agent, NULL, &x->known, on_live, x, &x->live_wait) == 0) {
        if (!x->deadline.loop)
            exchange_wait(x, KNOWN_WAIT_MS);
        return;
    }
    if (!x->known) /* not to be told: what may not come back from here may not be sent here either */
        x->known = lease_set_ref(x->live);
    exchange_go(x, STEP_LEASE);
}

/* --- LEASE: plan, then one lease for each credential --- */

void exchange_report_fault(struct exchange *x, const struct swap_fault *f, enum end end)
{
    if (!f->finding)
        return;
    struct arena a;
    arena_init(&a, 2048);
    struct str cred = f->ph ? f->ph->credential->name : STR("a credential");
    struct str owner = f->ph ? f->ph->agent->name : STR("another agent");
    struct str s;
    if (end == END_EXFILTRATION)
        s = arena_printf(&a, "Agent %s sent a live real value of %.*s to %s in %s: it must have got it past the boundary.", x->agent_name,
                         STR_ARG(cred), x->host.name, f->where);
    else if (end == END_UNKNOWN_PLACEHOLDER)
        s = arena_printf(&a, "Agent %s sent a placeholder of %.*s that belongs to agent %.*s or is no longer live, to %s in %s.",
                         x->agent_name, STR_ARG(cred), STR_ARG(owner), x->host.name, f->where);
    else
        s = arena_printf(&a, "Agent %s sent the placeholder of %.*s to %s in %s, where it must not go%s.", x->agent_name, STR_ARG(cred),
                         x->host.name, f->where, f->tolerated ? " (the client is known to do so)" : "");
    record_finding(x, f->finding, f->severity, f->tolerated ? 10 : end == END_EXFILTRATION ? 100 : 80, f->ph, f->where, s);
    arena_done(&a);
}

static enum end plan_swaps(struct exchange *x, const struct ask *ask)
{
    /* Fields as the swap sees them: those that go on, at the index they have in the request. */
    static struct field fields[H1_FIELDS_MAX]; /* one thread; too much for the stack */
    for (size_t i = 0; i < x->req.nfields; i++) {
        enum h1_name id = x->req.fields[i].id;
        bool ours = id == H1_HOST || id == H1_PROXY_AUTHORIZATION;
        fields[i] = ours ? (struct field) { x->req.fields[i].f.name, STR("") } : x->req.fields[i].f;
    }
    struct swap_fault fault = { 0 };
    enum end end = swap_plan_make(x->view->placeholders, x->view->policy, ask, x->req.target, fields, x->req.nfields, x->known, &x->plan,
                                  &fault);
    if (end != END_OK) {
        x->plan.n = x->plan.nwanted = 0;
        exchange_report_fault(x, &fault, end);
        char why[96];
        snprintf(why, sizeof why, end == END_EXFILTRATION ? "a live real value in %s" : "in %s", fault.where[0] ? fault.where : "the request");
        exchange_why(x, why);
    }
    return end;
}

static void on_lease(void *ctx, const struct lease_answer *a)
{
    struct lease_slot *slot = ctx;
    struct exchange *x = slot->x;
    size_t i = slot->index;
    x->waits[i] = NULL;
    if (a->end != END_OK) {
        x->retry_after_s = a->retry_after_s;
        char why[128];
        snprintf(why, sizeof why, "credential %.*s: %.*s", STR_ARG(x->plan.wanted[i]->name), STR_ARG(a->why));
        exchange_end(x, a->end, why);
        return;
    }
    x->leases[i] = lease_ref(a->lease);
    if (--x->leases_missing == 0)
        exchange_run(x);
}

static void ask_leases(struct exchange *x, const struct ask *ask)
{
    x->t_lease = loop_now_ms(x->w->loop);
    for (size_t i = 0; i < x->plan.nwanted; i++) {
        if (x->leases[i])
            continue;
        x->slots[i] = (struct lease_slot) { x, i };
        x->leases[i] =
            lease_get(x->w->leases, x->plan.wanted[i], ask, str_c(x->request_id), NULL, on_lease, &x->slots[i], &x->waits[i]);
        if (!x->leases[i] && !x->waits[i]) {
            exchange_end(x, END_CREDENTIAL_UNAVAILABLE, "out of memory");
            return;
        }
        x->leases_missing += !x->leases[i];
    }
}

/* A lease whose own scope leaves this request out is asked for once more, then it is out of scope. */
static bool drop_narrow_leases(struct exchange *x, const struct ask *ask)
{
    bool dropped = false;
    for (size_t i = 0; i < x->plan.nwanted; i++)
        if (x->leases[i] && !lease_covers(x->leases[i], ask)) {
            lease_unref(&x->leases[i]);
            dropped = true;
        }
    return dropped;
}

static void step_lease(struct exchange *x)
{
    if (x->leases_missing)
        return;
    if (x->tunnel) {
        exchange_go(x, STEP_DIAL);
        return;
    }
    struct ask ask = exchange_ask(x);
    if (!x->planned) {
        x->planned = true;
        enum end end = plan_swaps(x, &ask);
        if (end != END_OK) {
            exchange_end(x, end, NULL);
            return;
        }
        /* With the plan known, a credential's method limits count too. */
        const char *why = x->plan.n ? rewrite_request_check(x, &end) : NULL;
        if (why) {
            exchange_end(x, end, why);
            return;
        }
        ask_leases(x, &ask);
    }
    if (x->step == STEP_LEASE && !x->leases_missing && x->plan.nwanted && drop_narrow_leases(x, &ask)) {
        if (x->lease_retried) {
            exchange_end(x, END_PLACEHOLDER_OUT_OF_SCOPE, "the lease was narrowed to other requests");
            return;
        }
        x->lease_retried = true;
        ask_leases(x, &ask);
    }
    if (x->step != STEP_LEASE)
        return;
    if (x->leases_missing) {
        exchange_wait(x, x->view->limits->lease_timeout);
        return;
    }
    x->ms_lease = (uint32_t)(loop_now_ms(x->w->loop) - (x->t_lease ? x->t_lease : loop_now_ms(x->w->loop)));
    exchange_go(x, STEP_DIAL);
}

/* --- DIAL: a pooled connection, or a new one --- */

static uint64_t connect_ms(const struct exchange *x)
{
    return x->verdict.rule && x->verdict.rule->connect_ms ? x->verdict.rule->connect_ms : x->view->limits->connect_timeout;
}

static void on_dialled(void *ctx, const struct dial_result *r)
{
    struct exchange *x = ctx;
    x->dial = NULL;
    x->ms_resolve = r->resolve_ms;
    x->ms_connect = r->connect_ms;
    snprintf(x->dns_id, sizeof x->dns_id, "%.*s", STR_ARG(r->dns_id));
    if (r->finding)
        record_found(x, r->finding);
    if (r->end != END_OK) {
        char why[128];
        snprintf(why, sizeof why, "%.*s", STR_ARG(r->why));
        exchange_end(x, r->end, why);
        return;
    }
    snprintf(x->origin_addr, sizeof x->origin_addr, "%.*s", STR_ARG(r->addr));
    exchange_wait(x, x->view->limits->handshake_timeout);
    if (origin_open(x, r->fd))
        exchange_end(x, END_ORIGIN_CONNECT, "out of memory");
}

/* The origin's connection counts for the agent as its own does, so that many requests do not take the last descriptors. */
static bool hold_descriptor(struct exchange *x)
{
    if (x->holder)
        return true;
    struct agent_state *a = agent_table_get(x->w->agents, x->agent->name);
    if (!a || !agent_hold(x->w->agents, a, x->w->fd_shared))
        return false;
    x->holder = a;
    return true;
}

static void step_dial(struct exchange *x)
{
    if (x->dial || x->origin || dial_share_waits(&x->share))
        return;
    if (!hold_descriptor(x)) {
        x->retry_after_s = 1;
        exchange_end(x, END_RATE_LIMITED, "the agent has its share of the descriptors that are left");
        return;
    }
    x->t_attempt = loop_now_ms(x->w->loop);
    if (!x->no_pool && pool_take(x)) {
        exchange_go(x, STEP_RECORD);
        return;
    }
    if (dial_share_wait(x)) {
        exchange_wait(x, connect_ms(x) + x->view->limits->handshake_timeout + 2000);
        return;
    }
    struct dial_request r = {
        .agent = x->agent->name,
        .rule = x->verdict.rule ? x->verdict.rule->name : STR_NONE,
        .host = &x->host,
        .port = x->port,
        .timeout_ms = (uint32_t)connect_ms(x),
        .via_parent = x->view->config->parent_proxy.given,
        .client = str_c(x->client_addr),
        .conn_id = str_c(x->conn_id),
        .request_id = str_c(x->request_id),
    };
    /* The resolver has the deadline of its own; ours is behind it, for a resolver that is gone. */
    exchange_wait(x, connect_ms(x) + 2000);
    x->dial = dial_start(x->w->dials, &r, on_dialled, x);
    if (!x->dial)
        exchange_end(x, END_ORIGIN_CONNECT, "out of memory");
}

void exchange_origin_ready(struct exchange *x)
{
    exchange_go(x, STEP_RECORD);
    exchange_run(x);
}

/* --- RECORD: the log has it before the first byte leaves --- */

static void step_record(struct exchange *x)
{
    if (!x->recorded && (!record_ready(x->w, x->view) || record_open(x))) {
        exchange_end(x, END_AUDIT_UNAVAILABLE, NULL);
        return;
    }
    if (exchange_is_synced(x))
        exchange_go(x, STEP_STREAM);
    else if (!x->deadline.loop)
        exchange_wait(x, 10000);
}

bool exchange_is_synced(struct exchange *x)
{
    if (!x->view->config->audit.sync_always || sink_synced(x->w->sink) >= x->record_at)
        return true;
    if (!x->unsynced) {
        x->unsynced = true;
        x->next_unsynced = x->w->unsynced;
        x->w->unsynced = x;
        sink_want_sync(x->w->sink, x->record_at);
    }
    return false;
}

void exchange_synced(struct worker *w)
{
    uint64_t done = sink_synced(w->sink), most = 0;
    struct exchange *waiting = w->unsynced;
    w->unsynced = NULL;
    while (waiting) {
        struct exchange *x = waiting;
        waiting = x->next_unsynced;
        if (x->step == STEP_DONE) /* by what went on before it */
            continue;
        if (x->record_at <= done) {
            x->unsynced = false;
            if (x->step == STEP_STREAM)
                exchange_origin_room(x); /* a WebSocket message that waited */
            else
                exchange_run(x);
        } else {
            most = x->record_at > most ? x->record_at : most;
            x->next_unsynced = w->unsynced;
            w->unsynced = x;
        }
    }
    if (most)
        sink_want_sync(w->sink, most);
}

/* --- the machine --- */

void exchange_go(struct exchange *x, enum step step)
{
    MUST(step > x->step || x->attempt_again);
    x->attempt_again = false;
    if (x->step == STEP_DIAL)
        dial_share_over(x);
    x->step = step;
    timer_clear(&x->deadline);
}

void exchange_run(struct exchange *x)
{
    for (;;) {
        enum step before = x->step;
        switch (before) {
        case STEP_HEAD:
            exchange_go(x, STEP_POLICY);
            break;
        case STEP_POLICY:
            step_policy(x);
            break;
        case STEP_LIVE:
            step_live(x);
            break;
        case STEP_LEASE:
            step_lease(x);
            break;
        case STEP_DIAL:
            step_dial(x);
            break;
        case STEP_RECORD:
            step_record(x);
            if (x->step == STEP_STREAM) {
                exchange_stream_start(x);
                return;
            }
            break;
        case STEP_STREAM:
        case STEP_DONE:
            return;
        }
        if (x->step == before) /* waits */
            return;
    }
}

void exchange_start(struct exchange *x)
{
    exchange_run(x);
}
