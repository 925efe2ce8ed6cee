/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream_tls_impl.h"

#include "base/log.h"

#include <stdlib.h>

enum {
    PROMOTED_MS = 30000,
};

/* It was answered where another server of its step had been silent: there comes nobody before that one for a while. */
static void ask_promote(const struct tls_ask *a)
{
    struct upstream_tls *t = a->t;
    if (!a->timed_out || a->generation != t->generation)
        return;
    for (size_t i = 0; i < t->n; i++)
        if (t->servers[i].step == a->leg->step)
            t->servers[i].first_ms[a->leg->owner] = i == a->at ? loop_now_ms(t->loop) + PROMOTED_MS : 0;
}

void tls_ask_answered(struct tls_ask *a, struct str packet)
{
    struct upstream_leg *leg = a->leg;
    struct wire_answer *w = malloc(sizeof *w); /* upstream_leg_judge writes what is used */
    a->conn = NULL;
    timer_clear(&a->timer);
    if (w && !wire_truncated(packet) && upstream_leg_judge(leg, packet, w)) {
        ask_promote(a);
        leg->carrier = NULL;
        upstream_leg_answer(leg, a->t->loop, w);
        free(a);
        return;
    }
    leg->bad |= wire_truncated(packet);
    free(w);
    tls_ask_place(a);
}

/* The server says no without repeating the question. */
void tls_ask_refused(struct tls_ask *a, struct str packet)
{
    a->conn = NULL;
    timer_clear(&a->timer);
    a->leg->rcode = packet.p[3] & 15;
    tls_ask_place(a);
}

static void ask_end(struct tls_ask *a)
{
    struct upstream_leg *leg = a->leg;
    upstream_tls_blame(leg);
    leg->carrier = NULL;
    upstream_leg_end(leg, a->t->loop, a->timed_out ? UPSTREAM_TIMEOUT : UPSTREAM_UNREACHABLE);
    timer_clear(&a->timer);
    free(a);
}

/* The server of its step that is to be asked next; -1: all were. */
static int ask_next(const struct tls_ask *a)
{
    const struct upstream_tls *t = a->t;
    int next = -1;
    if (a->generation != t->generation)
        return -1;
    for (size_t i = 0; i < t->n; i++) {
        if (t->servers[i].step != a->leg->step || a->tried >> i & 1)
            continue;
        if (t->servers[i].first_ms[a->leg->owner] > loop_now_ms(t->loop))
            return (int)i;
        next = next < 0 ? (int)i : next;
    }
    return next;
}

void tls_ask_place(struct tls_ask *a)
{
    struct upstream_tls *t = a->t;
    MUST(!a->conn);
    for (int at; (at = ask_next(a)) >= 0;) {
        a->at = (size_t)at;
        a->tried |= 1u << at;
        struct tls_conn *c = tls_conn_to(t, &t->servers[a->at], a->leg->owner);
        if (!c || pipeline_put(&c->pipe, &a->ask) < 0)
            continue;
        a->conn = c;
        a->messages = c->pipe.messages;
        timer_set(t->loop, &a->timer, t->patience_ms);
        if (c->state == CONN_UP) {
            timer_clear(&c->timer);
            loop_defer(t->loop, &c->send); /* with the others that are put now */
        }
        return;
    }
    ask_end(a);
}

/* A name may be one that no server can look up in time: that its question is not answered is held against the
 * connection, which may be dead, and not against the server. */
static void on_ask_timer(struct timer *timer)
{
    struct tls_ask *a = (struct tls_ask *)((char *)timer - offsetof(struct tls_ask, timer));
    struct tls_conn *c = a->conn;
    a->timed_out = true;
    pipeline_remove(&c->pipe, &a->ask);
    a->conn = NULL;
    if (c->server && c->state == CONN_UP && c->pipe.messages == a->messages) {
        if (c->pipe.messages == 0)
            tls_server_complain(a->t, c->server, "it takes a question and does not answer", "", "does it serve us?");
        tls_conn_retire(c);
    }
    tls_conn_rest(c);
    tls_ask_place(a);
}

void upstream_tls_start(struct upstream_tls *t, struct upstream_leg *leg)
{
    struct tls_ask *a = calloc(1, sizeof *a);
    if (!a) {
        upstream_leg_end(leg, t->loop, UPSTREAM_UNREACHABLE);
        return;
    }
    a->ask.wire = &leg->wire;
    a->t = t;
    a->leg = leg;
    a->generation = t->generation;
    a->timer.cb = on_ask_timer;
    leg->carrier = a;
    tls_ask_place(a);
}

void upstream_tls_leave(struct upstream_leg *leg)
{
    struct tls_ask *a = leg->carrier;
    leg->under_way = false;
    leg->carrier = NULL;
    if (!a)
        return;
    if (a->conn) {
        pipeline_remove(&a->conn->pipe, &a->ask);
        tls_conn_rest(a->conn);
    }
    timer_clear(&a->timer);
    free(a);
}
