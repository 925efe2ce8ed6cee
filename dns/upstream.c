/* SPDX-License-Identifier: Apache-2.0
 *
 * The front: who is asked in which order, how many questions are under way, and how long one may take. The configured
 * servers are taken in steps: neighbours in the list that are asked the same way are one step, and whoever carries that
 * way tries them one after the other. A step that did not help is followed by the next. A question waits here until
 * there is a place for it; the carriers only ever see as many as they have places for. */
#include "dns/upstream.h"

#include "base/clock.h"
#include "base/fair.h"
#include "base/log.h"
#include "dns/upstream_cares.h"
#include "dns/upstream_tls.h"

#include <stdlib.h>

enum {
    QUERIES_MAX = 4096,
    QUERY_MS = 10000, /* a question, its wait for a place included */
    OWNERS = UPSTREAM_OWNERS,
};

enum way { WAY_UDP, WAY_TCP, WAY_TLS, WAYS };

enum query_state { QUERY_QUEUED = 1, QUERY_ACTIVE, QUERY_FINISHED };
struct upstream_query {
    struct upstream *u;
    enum query_state state;
    struct upstream_query *next, **link;         /* of the queue */
    struct upstream_query *all_next, **all_link; /* of the upstream */
    struct upstream_leg leg;
    enum way way;        /* of the leg under way */
    size_t step;         /* the one that is asked, or waited for … */
    uint64_t generation; /* … of these servers */
    struct task done;
    struct timer deadline;
    enum upstream_result result;
    struct wire_answer *answer; /* of the steps so far, though it did not help */
    struct server_blame blame;  /* of the steps so far */
    uint64_t owner; /* whose place it takes */
    uint64_t asker; /* who asked first, and has one query more for it */
    bool counted;
    void (*cb)(void *ctx, enum upstream_result r, const struct wire_answer *a);
    void *ctx;
    uint16_t type;
    uint8_t n;
    char name[254];
};

struct upstream {
    struct loop *loop;
    enum way ways[DNS_SERVERS_MAX]; /* of the steps */
    size_t steps;
    uint64_t generation; /* how often the servers changed */
    struct upstream_cares *cares;
    struct upstream_tls *tls;
    size_t places[WAYS], used[WAYS];
    uint16_t owned[WAYS][OWNERS]; /* by owner; two on one place share a share */
    struct fair_stock queries;    /* by asker */
    struct upstream_query *queue, **queue_end;
    struct upstream_query *all;
    struct task dispatch;
    struct upstream_stats stats;
    const char *why; /* of the question whose call is made */
};

/* --- waiting for a place --- */

static void queue_unlink(struct upstream_query *q)
{
    struct upstream *u = q->u;
    *q->link = q->next;
    if (q->next)
        q->next->link = q->link;
    else
        u->queue_end = q->link;
    u->stats.queued--;
}

static void queue_add(struct upstream_query *q)
{
    struct upstream *u = q->u;
    q->state = QUERY_QUEUED;
    q->next = NULL;
    q->link = u->queue_end;
    *u->queue_end = q;
    u->queue_end = &q->next;
    u->stats.queued++;
    loop_defer(u->loop, &u->dispatch);
}

static void finish(struct upstream_query *q, enum upstream_result r)
{
    q->state = QUERY_FINISHED;
    q->result = r;
    loop_defer(q->u->loop, &q->done);
}

/* --- under way --- */

/* Takes the question back from its carrier, whatever has come of it. */
static void leave(struct upstream_query *q)
{
    struct upstream *u = q->u;
    if (q->state != QUERY_ACTIVE)
        return;
    if (q->way == WAY_TLS)
        upstream_tls_leave(&q->leg);
    else
        upstream_cares_leave(&q->leg);
    task_cancel(&q->leg.done);
    free(q->leg.answer);
    q->leg.answer = NULL;
    u->used[q->way]--;
    u->owned[q->way][q->owner % OWNERS]--;
    u->stats.active--;
    loop_defer(u->loop, &u->dispatch);
}

/* Whom the leg under way was at. */
static void blame(struct upstream_query *q)
{
    if (q->way == WAY_TLS)
        upstream_tls_blame(&q->leg);
    else
        upstream_cares_blame(&q->leg);
}

static void start(struct upstream_query *q)
{
    struct upstream *u = q->u;
    unsigned char chance[WIRE_CHANCE];
    rand_bytes(chance, sizeof chance);
    if (q->way == WAY_TLS) /* nobody but the server can answer: no letter case is drawn */
        memset(chance, 0, sizeof chance);
    struct task done = q->leg.done;
    q->leg = (struct upstream_leg) {
        .step = q->step, .owner = (size_t)(q->owner % OWNERS), .done = done, .under_way = true, .blame = &q->blame
    };
    MUST(wire_query_make(&q->leg.wire, str_of(q->name, q->n), q->type, chance) == 0);
    q->state = QUERY_ACTIVE;
    u->used[q->way]++;
    u->owned[q->way][q->owner % OWNERS]++;
    u->stats.active++;
    u->stats.asked++;
    if (q->way == WAY_TLS)
        upstream_tls_start(u->tls, &q->leg);
    else
        upstream_cares_start(u->cares, &q->leg);
}

/* Is there a place for it, and has its owner not its share? */
static bool may_start(const struct upstream *u, const struct upstream_query *q)
{
    size_t places = u->places[q->way];
    return u->used[q->way] < places && u->owned[q->way][q->owner % OWNERS] < (places + 1) / 2;
}

static bool any_place(const struct upstream *u)
{
    for (size_t i = 0; i < WAYS; i++)
        if (u->used[i] < u->places[i])
            return true;
    return false;
}

static void on_dispatch(struct task *t)
{
    struct upstream *u = (struct upstream *)((char *)t - offsetof(struct upstream, dispatch));
    for (struct upstream_query *q = u->queue, *next; q && any_place(u); q = next) {
        next = q->next;
        if (q->step >= u->steps) { /* a reload took the servers while it waited */
            queue_unlink(q);
            finish(q, UPSTREAM_UNREACHABLE);
            continue;
        }
        q->way = u->ways[q->step];
        q->generation = u->generation;
        if (!may_start(u, q))
            continue;
        queue_unlink(q);
        start(q);
    }
}

/* --- the end --- */

static void query_free(struct upstream_query *q)
{
    struct upstream *u = q->u;
    if (q->state == QUERY_QUEUED)
        queue_unlink(q);
    leave(q);
    if (q->counted)
        fair_give(&u->queries, q->asker, 1);
    *q->all_link = q->all_next;
    if (q->all_next)
        q->all_next->all_link = q->all_link;
    task_cancel(&q->done);
    timer_clear(&q->deadline);
    free(q->answer);
    free(q);
}

static bool helps(const struct upstream_leg *leg)
{
    return leg->result == UPSTREAM_ANSWERED && !leg->lame &&
           (leg->answer->rcode == WIRE_NOERROR || leg->answer->rcode == WIRE_NXDOMAIN);
}

static void on_leg_done(struct task *t)
{
    struct upstream_leg *leg = (struct upstream_leg *)((char *)t - offsetof(struct upstream_leg, done));
    struct upstream_query *q = (struct upstream_query *)((char *)leg - offsetof(struct upstream_query, leg));
    size_t next = q->generation == q->u->generation ? q->step + 1 : 0; /* other servers by now: from the first */
    bool more = !helps(leg) && next < q->u->steps;
    enum upstream_result r = leg->result;
    if (r == UPSTREAM_ANSWERED) {
        free(q->answer);
        q->answer = leg->answer;
        leg->answer = NULL;
    }
    leave(q);
    if (more) {
        q->step = next;
        queue_add(q);
    } else { /* what an earlier step said, where the last one said nothing */
        finish(q, q->answer ? UPSTREAM_ANSWERED : r);
    }
}

static void on_done(struct task *t)
{
    struct upstream_query *q = (struct upstream_query *)((char *)t - offsetof(struct upstream_query, done));
    struct upstream *u = q->u;
    if (q->result == UPSTREAM_ANSWERED)
        u->stats.answered++;
    u->why = q->blame.text;
    q->cb(q->ctx, q->result, q->result == UPSTREAM_ANSWERED ? q->answer : NULL);
    u->why = NULL;
    query_free(q);
}

static void on_deadline(struct timer *t)
{
    struct upstream_query *q = (struct upstream_query *)((char *)t - offsetof(struct upstream_query, deadline));
    if (q->state == QUERY_FINISHED)
        return;
    bool queued = q->state == QUERY_QUEUED;
    if (queued)
        queue_unlink(q);
    else if (q->leg.under_way)
        blame(q);
    leave(q);
    finish(q, q->answer ? UPSTREAM_ANSWERED : queued ? UPSTREAM_BUSY : UPSTREAM_TIMEOUT);
}

/* --- what others call --- */

struct upstream *upstream_new(struct loop *l, size_t lanes, unsigned try_ms, struct err *err)
{
    struct upstream *u = calloc(1, sizeof *u);
    if (!u || lanes < 2) {
        free(u);
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    u->loop = l;
    u->queue_end = &u->queue;
    u->dispatch.cb = on_dispatch;
    u->places[WAY_TCP] = (lanes + 3) / 4;
    u->places[WAY_UDP] = lanes - u->places[WAY_TCP];
    u->places[WAY_TLS] = lanes;
    u->cares = upstream_cares_new(l, u->places[WAY_UDP], u->places[WAY_TCP], try_ms, err);
    u->tls = u->cares ? upstream_tls_new(l, try_ms) : NULL;
    if (u->tls)
        return u;
    if (u->cares)
        err_set(err, "resolver: out of memory");
    upstream_free(&u);
    return NULL;
}

void upstream_free(struct upstream **up)
{
    struct upstream *u = *up;
    *up = NULL;
    if (!u)
        return;
    while (u->all)
        query_free(u->all);
    upstream_cares_free(&u->cares);
    upstream_tls_free(&u->tls);
    task_cancel(&u->dispatch);
    free(u);
}

static enum way way_of(const struct dns_server *s)
{
    return s->tls ? WAY_TLS : s->tcp ? WAY_TCP : WAY_UDP;
}

void upstream_set_servers(struct upstream *u, const struct dns_server *v, size_t n)
{
    n = n < DNS_SERVERS_MAX ? n : DNS_SERVERS_MAX;
    u->steps = 0;
    u->generation++;
    upstream_tls_clear(u->tls);
    for (size_t from = 0, to; from < n; from = to) {
        enum way way = way_of(&v[from]);
        for (to = from + 1; to < n && way_of(&v[to]) == way;)
            to++;
        u->ways[u->steps] = way;
        if (way == WAY_TLS)
            upstream_tls_set(u->tls, u->steps, v + from, to - from);
        else
            upstream_cares_set(u->cares, u->steps, v + from, to - from);
        u->steps++;
    }
    for (struct upstream_query *q = u->queue; q; q = q->next)
        q->step = 0;
}

void upstream_set_trust(struct upstream *u, SSL_CTX *trust)
{
    upstream_tls_trust(u->tls, trust);
}

struct upstream_query *upstream_ask(struct upstream *u, struct str name, uint16_t type, uint64_t owner,
                                    void (*cb)(void *ctx, enum upstream_result r, const struct wire_answer *a),
                                    void *ctx)
{
    static const unsigned char plain[WIRE_CHANCE];
    struct upstream_query *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    if (wire_query_make(&q->leg.wire, name, type, plain) < 0) {
        free(q);
        return NULL;
    }
    q->u = u;
    q->all_next = u->all;
    q->all_link = &u->all;
    if (u->all)
        u->all->all_link = &q->all_next;
    u->all = q;
    q->done.cb = on_done;
    q->leg.done.cb = on_leg_done;
    q->deadline.cb = on_deadline;
    q->owner = q->asker = owner;
    q->cb = cb;
    q->ctx = ctx;
    q->type = type;
    q->n = (uint8_t)name.n;
    memcpy(q->name, name.p, name.n);
    if (u->steps == 0) {
        finish(q, UPSTREAM_UNREACHABLE);
    } else if (!(q->counted = fair_take(&u->queries, owner, 1, QUERIES_MAX))) {
        finish(q, UPSTREAM_BUSY);
    } else {
        timer_set(u->loop, &q->deadline, QUERY_MS);
        queue_add(q);
    }
    return q;
}

void upstream_also(struct upstream_query *q, uint64_t owner)
{
    struct upstream *u = q->u;
    if (q->state != QUERY_QUEUED || q->step >= u->steps)
        return;
    const uint16_t *owned = u->owned[u->ways[q->step]];
    if (owned[owner % OWNERS] >= owned[q->owner % OWNERS])
        return;
    q->owner = owner;
    timer_set(u->loop, &q->deadline, QUERY_MS); /* what it waited was the other's wait */
    loop_defer(u->loop, &u->dispatch);
}

void upstream_cancel(struct upstream_query **qp)
{
    struct upstream_query *q = *qp;
    *qp = NULL;
    if (q)
        query_free(q);
}

const char *upstream_why(const struct upstream *u)
{
    return u->why ? u->why : "";
}

void upstream_stats(const struct upstream *u, struct upstream_stats *ret)
{
    *ret = u->stats;
    ret->strays = upstream_cares_strays(u->cares) + upstream_tls_strays(u->tls);
}
