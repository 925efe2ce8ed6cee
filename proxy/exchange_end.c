/* SPDX-License-Identifier: Apache-2.0
 *
 * The one way out of an exchange. However it ended: the client is told or cut, the origin let go, `close` written exactly once, and
 * everything released. */
#include "proxy/exchange.h"

#include "base/clock.h"
#include "proxy/agent_table.h"
#include "proxy/exchange_steps.h"
#include "proxy/exchange_ws.h"
#include "proxy/record.h"

#include <stdio.h>
#include <stdlib.h>

void exchange_why(struct exchange *x, const char *why)
{
    if (why && !x->why[0])
        str_escape(str_c(why), x->why, sizeof x->why);
}

static void cancel_waits(struct exchange *x)
{
    timer_clear(&x->deadline);
    dial_cancel(&x->dial);
    dial_share_over(x);
    lease_cancel(&x->live_wait);
    for (size_t i = 0; i < x->plan.nwanted; i++)
        lease_cancel(&x->waits[i]);
    exchange_ws_cancel(x);
    if (x->unsynced) {
        struct exchange **at = &x->w->unsynced;
        while (*at && *at != x)
            at = &(*at)->next_unsynced;
        if (*at)
            *at = x->next_unsynced;
        x->unsynced = false;
    }
}

static void release_origin(struct exchange *x)
{
    if (x->origin)
        x->oops->release(x, false);
}

static void bury(struct corpse *c)
{
    struct exchange *x = (struct exchange *)c;
    for (size_t i = 0; i < x->plan.nwanted; i++)
        lease_unref(&x->leases[i]);
    scrub_done(&x->scrub);
    lease_set_unref(&x->live);
    lease_set_unref(&x->known);
    exchange_ws_free(x);
    body_watch_done(&x->watch);
    body_watch_done(&x->back);
    exchange_forget_replay(x);
    free(x->req.mem);
    free(x->record);
    view_unref(&x->view);
#ifndef OUTGATE_SANITIZE /* that is to see who uses one that is over */
    struct worker *w = x->w;
    if (w->nexchanges_free < WORKER_EXCHANGES) {
        w->exchanges_free[w->nexchanges_free++] = x;
        return;
    }
#endif
    free(x);
}

void exchange_end(struct exchange *x, enum end end, const char *why)
{
    if (x->step == STEP_DONE)
        return;
    exchange_why(x, why);
    x->end = end;
    x->step = STEP_DONE;
    cancel_waits(x);
    release_origin(x);
    if (!x->answer_done && end != END_CLIENT_CLOSED) {
        if (x->switched && exchange_ws_goodbye(x, end)) {
            x->answer_done = true;
        } else if (x->head_sent) {
            x->cops->cut(x->client, x);
        } else {
            x->status = end_status(end);
            x->cops->refuse(x->client, x, end);
        }
    }
    x->cops->flush(x->client, x);
    if (!x->recorded) /* a refused request's path must not show a value either */
        exchange_know(x);
    exchange_reflected(x); /* whichever way the answer ended */
    record_close(x);
    *x->link = x->next;
    if (x->next)
        x->next->link = x->link;
    if (x->holder)
        agent_let_go(x->w->agents, x->holder);
    x->w->stats.exchanges--;
    x->cops->done(x->client, x);
    worker_bury(x->w, &x->corpse, bury);
}

void exchange_refuse(struct exchange *x, enum end end, const char *why)
{
    exchange_end(x, end, why);
}

void exchange_stop(struct exchange *x, enum end end, const char *why)
{
    exchange_end(x, end, why);
}

void exchange_request_failed(struct exchange *x, enum end end, const char *why)
{
    if (end == END_CLIENT_CLOSED && x->tunnel) {
        /* It had said its last byte before, and now takes none either: that is how programs close a socket. */
        if (x->request_sent)
            end = END_OK;
        x->answer_done = x->request_sent;
        why = "the client reset its connection";
    } else if (end == END_CLIENT_CLOSED && x->switched) {
        if (exchange_ws_closed(x)) /* as it should */
            end = END_OK;
        why = "the client closed its connection without a close frame";
    }
    exchange_end(x, end, end == END_OK ? NULL : why);
}

void exchange_origin_failed(struct exchange *x, enum end end, const char *why, enum loss loss)
{
    if (x->step == STEP_DONE)
        return;
    if (exchange_ws_host_closed(x)) { /* after a close frame it matters no more how the connection ends */
        exchange_ws_origin_end(x);
        return;
    }
    if (loss != LOSS_FINAL && x->step == STEP_RECORD) { /* nothing of it was sent: another connection will do */
        release_origin(x);
        x->no_pool = x->attempt_again = true;
        exchange_go(x, STEP_DIAL);
        exchange_run(x);
        return;
    }
    if (loss == LOSS_VERSION && x->step == STEP_DIAL && !x->version_retried) {
        release_origin(x);
        x->version_retried = x->attempt_again = true;
        exchange_go(x, STEP_DIAL);
        exchange_run(x);
        return;
    }
    bool safe = loss == LOSS_UNPROCESSED || (loss == LOSS_STALE && exchange_idempotent(x));
    if (safe && x->step == STEP_STREAM && x->replayable && !x->origin_retried && !x->head_sent) {
        /* Once more, on a new connection; its `open` stands for both. Of a pooled one that the origin had closed meanwhile nobody knows
         * whether it acted on the request; of one that it refused unread all know that it did not. */
        release_origin(x);
        x->origin_retried = x->no_pool = x->attempt_again = true;
        exchange_go(x, STEP_DIAL);
        exchange_run(x);
        return;
    }
    /* A refusal says what was wrong with the answer; of one that was begun the record says that it stopped. */
    if (end == END_ORIGIN_PROTOCOL || end == END_ORIGIN_CLOSED)
        end = x->head_sent ? END_ORIGIN_CLOSED : END_ORIGIN_PROTOCOL;
    exchange_end(x, end, why);
}

/* --- what a new snapshot refuses --- */

static bool still_allowed(const struct exchange *x, const struct view *now)
{
    const struct agent *a = policy_agent(now->policy, str_c(x->agent_name));
    ptrdiff_t q = str_find_char(x->req.target, '?');
    struct ask ask = {
        .agent = a,
        .scheme = x->scheme,
        .host = &x->host,
        .port = x->port,
        .method = x->req.method,
        .path = q < 0 ? x->req.target : str_sub(x->req.target, 0, (size_t)q),
        .now_us = clock_wall_us(),
    };
    struct verdict v = { 0 };
    if (x->tunnel)
        return exchange_tunnel_still_allowed(x, now);
    if (!a)
        return false;
    policy_eval(now->policy, &ask, &v);
    return v.kind == VERDICT_ALLOW || v.kind == VERDICT_OBSERVE;
}

static bool covers_now(const struct exchange *x, const struct view *now)
{
    const struct agent *a = policy_agent(now->policy, str_c(x->agent_name));
    return a && policy_credentials(now->policy, a, &x->host, NULL, 0) > 0;
}

void exchange_review(struct worker *w)
{
    for (struct exchange *x = w->exchanges, *next; x; x = next) {
        next = x->next;
        /* A credential that covers the host from now on: its values must not come back on what began before either. */
        if (x->step > STEP_POLICY && x->view != w->view && !x->covered && !x->tunnel && covers_now(x, w->view)) {
            x->covered = true;
            if (x->switched) {
                exchange_end(x, END_REVOKED, "a new configuration has what comes back read, which this WebSocket began without");
                continue;
            }
        }
        if (x->view != w->view && x->switched && !exchange_ws_review(x, w->view->policy)) {
            exchange_end(x, END_REVOKED, "a new configuration swaps no placeholder in its messages any more");
            continue;
        }
        /* Also what waits for a lease, a connection or the log: it would be sent after the reload that forbade it. */
        if (x->step > STEP_POLICY && x->view != w->view && !still_allowed(x, w->view))
            exchange_end(x, END_REVOKED, "a new configuration no longer allows it");
    }
}
