/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker as the daemon sees it: makes the parts, hands them their channels, renews snapshots, drains. */
#include "proxy/worker.h"

#include "base/log.h"
#include "proxy/agent_table.h"
#include "proxy/client.h"
#include "proxy/core.h"
#include "proxy/dial_share.h"
#include "proxy/exchange_ws.h"
#include "proxy/pool.h"
#include "proxy/record.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { GONE_MANY = 256, FORGOTTEN_MS = 70000, SWEEP_MS = 1000 };

/* --- burial --- */

static void on_burial(struct task *t)
{
    struct worker *w = (struct worker *)((char *)t - offsetof(struct worker, burial));
    while (w->dead) {
        struct corpse *c = w->dead;
        w->dead = c->next;
        c->bury(c);
    }
}

void worker_bury(struct worker *w, struct corpse *c, void (*bury)(struct corpse *c))
{
    c->bury = bury;
    c->next = w->dead;
    w->dead = c;
    loop_defer(w->loop, &w->burial);
}

/* --- descriptors --- */

bool worker_crowded(const struct worker *w)
{
    return agent_held(w->agents) + w->strangers.n + pool_size(w->pool) > w->fd_shared;
}

/* --- blocks --- */

void worker_lend(struct worker *w, struct buf *b)
{
    if (b->mem || b->max < WORKER_BLOCK)
        return;
    b->mem = w->nspares ? w->spares[--w->nspares] : malloc(WORKER_BLOCK);
    b->cap = b->mem ? WORKER_BLOCK : 0;
    b->head = b->tail = 0;
}

void worker_take_back(struct worker *w, struct buf *b)
{
    if (!b->mem || buf_size(b) || b->failed)
        return;
    if (b->cap != WORKER_BLOCK || w->nspares == WORKER_SPARES) {
        buf_done(b);
        return;
    }
    buf_reset(b);
    w->spares[w->nspares++] = b->mem;
    b->mem = NULL;
    b->cap = 0;
}

/* --- what happens by itself --- */

/* Goes on until every connection rests. */
static void on_rest(struct timer *t)
{
    struct worker *w = (struct worker *)((char *)t - offsetof(struct worker, rest));
    bool all = pool_rest(w->pool);
    for (struct exchange *x = w->exchanges; x; x = x->next)
        if (x->origin && !origin_rest(x->origin))
            all = false;
    for (struct client *c = w->clients; c; c = c->next)
        if (!client_rest(c))
            all = false;
    if (!all)
        timer_set(w->loop, t, WORKER_REST_MS);
}

/* After many connections the allocator keeps what they had, between pieces that are still in use; half of them gone, it gives it back.
 * Once more when what is remembered of their hosts is gone too, which keeps a page each until then. It costs a walk through what is
 * free, for at least GONE_MANY connections. */
static void give_back(struct worker *w)
{
    uint64_t open = w->stats.clients + w->stats.exchanges + pool_size(w->pool), now = loop_now_ms(w->loop);
    bool gone = open <= w->most_open / 2 && w->most_open - open >= GONE_MANY;
    if (open > w->most_open || gone)
        w->most_open = open;
    if (!gone && (!w->give_back_ms || now < w->give_back_ms))
        return;
    malloc_trim(0);
    w->give_back_ms = gone ? now + FORGOTTEN_MS : 0;
}

static void on_sweep(struct timer *t)
{
    struct worker *w = (struct worker *)((char *)t - offsetof(struct worker, sweep));
    timer_set(w->loop, t, SWEEP_MS);
    give_back(w);
    if (loop_now_ms(w->loop) - w->known_ms >= EXCHANGE_KNOWN_MS) {
        w->known_ms = loop_now_ms(w->loop);
        exchange_keep_known(w);
    }
    record_counted(w, false);
    listener_resume(w);
    if (w->unsynced)
        exchange_synced(w);
}

static void on_synced(struct watch *watch, uint32_t ev)
{
    (void)ev;
    struct worker *w = (struct worker *)((char *)watch - offsetof(struct worker, synced));
    uint64_t n;
    ssize_t got = read(watch->fd, &n, sizeof n);
    (void)got; /* only to make it quiet */
    exchange_synced(w);
}

static void on_revoked(void *ctx, const struct lease *lease)
{
    struct worker *w = ctx;
    for (struct exchange *x = w->exchanges, *next; x; x = next) {
        next = x->next;
        bool uses = exchange_ws_uses(x, lease->id);
        for (size_t i = 0; i < x->plan.nwanted; i++)
            uses |= x->leases[i] && !strcmp(x->leases[i]->id, lease->id);
        if (uses)
            exchange_stop(x, END_REVOKED, "the credential was revoked");
    }
}

/* --- life --- */

struct worker *worker_new(struct loop *l, const struct worker_options *o, const struct worker_snapshot *s, struct err *err)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, "out of memory");
        return NULL;
    }
    w->loop = l;
    w->index = o->index;
    w->sink = o->sink;
    w->fd_most = listener_fd_most();
    w->fd_shared = listener_fd_shared(w->fd_most);
    w->burial.cb = on_burial;
    w->sweep.cb = on_sweep;
    w->rest.cb = on_rest;
    dial_share_init(w);
    turns_init(&w->ws_turns, l, WORKER_TURN);
    buf_init(&w->scratch, 4 * 1024 * 1024);
    w->scratch.wipe = true;
    w->synced = (struct watch) { .fd = sink_done_fd(o->sink), .events = EPOLLIN, .cb = on_synced };
    w->view = view_new(s, ++w->views, err);
    if (!w->view)
        goto failed;
    const struct limits *lim = w->view->limits;
    if (!(w->leaves = leaf_cache_new(l, (size_t)lim->leaf_cache, err)) || !(w->leases = lease_client_new(l, err)) ||
        !(w->dials = dial_client_new(l, err)) || !(w->tls = client_tls_new(w->leaves, err)))
        goto failed;
    w->sessions = session_cache_new((size_t)lim->session_cache);
    w->pool = pool_new(w);
    w->agents = agent_table_new();
    if (!w->sessions || !w->pool || !w->agents || watch_add(l, &w->synced)) {
        err_set(err, "out of memory");
        goto failed;
    }
    lease_client_set_policy(w->leases, w->view->policy, w->view->placeholders);
    lease_client_on_revoked(w->leases, on_revoked, w);
    timer_set(l, &w->sweep, SWEEP_MS);
    return w;
failed:
    worker_free(&w);
    return NULL;
}

void worker_free(struct worker **wp)
{
    struct worker *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    listener_drop_all(w);
    while (w->clients)
        client_close(w->clients, "draining", END_UNSET, "the proxy ended");
    if (w->pool)
        pool_free(&w->pool);
    dial_share_done(w);
    turns_done(&w->ws_turns);
    task_cancel(&w->burial);
    on_burial(&w->burial);
    MUST(!w->h2_held.used && !w->h2_answers.used && !w->ws_held.used && !w->replay_bytes && !w->ws_turns.waiting);
    if (w->agents)
        record_counted(w, true);
    timer_clear(&w->sweep);
    timer_clear(&w->rest);
    watch_del(&w->synced);
    client_tls_free(&w->tls);
    session_cache_free(&w->sessions);
    dial_client_free(&w->dials);
    lease_client_free(&w->leases);
    leaf_cache_free(&w->leaves);
    agent_table_free(&w->agents);
    view_unref(&w->view);
    buf_done(&w->scratch);
    while (w->nspares)
        free(w->spares[--w->nspares]);
    while (w->nexchanges_free)
        free(w->exchanges_free[--w->nexchanges_free]);
    free(w);
}

int worker_set_snapshot(struct worker *w, const struct worker_snapshot *s, struct err *err)
{
    struct view *v = view_new(s, w->views + 1, err);
    if (!v)
        return -1;
    w->views++;
    view_unref(&w->view);
    w->view = v;
    lease_client_set_policy(w->leases, v->policy, v->placeholders);
    pool_flush(w->pool);
    exchange_review(w);
    client_review(w);
    return 0;
}

int worker_add_listener(struct worker *w, const struct config_listener *listener, int fd, struct err *err)
{
    return listener_add(w, listener, fd, err);
}

void worker_drop_listener(struct worker *w, struct str text)
{
    listener_drop(w, text);
}

int worker_connect_ca(struct worker *w, int fd, struct err *err)
{
    return leaf_cache_connect(w->leaves, fd, err);
}

int worker_connect_keeper(struct worker *w, int fd, struct err *err)
{
    return lease_client_connect(w->leases, fd, err);
}

int worker_connect_resolver(struct worker *w, int fd, struct err *err)
{
    return dial_client_connect(w->dials, fd, err);
}

void worker_set_ticket_keys(struct worker *w, const struct ticket_key *keys, size_t n)
{
    client_tls_set_keys(w->tls, keys, n);
}

void worker_set_run_logins(struct worker *w, const struct run_logins *l)
{
    w->run_logins = *l;
    client_review(w);
}

void worker_flush_leaves(struct worker *w)
{
    leaf_cache_flush(w->leaves);
}

void worker_drain(struct worker *w)
{
    if (w->draining)
        return;
    w->draining = true;
    listener_drop_all(w);
    exchange_tunnels_drain(w, w->view->limits->drain);
    for (struct client *c = w->clients, *next; c; c = next) {
        next = c->next;
        client_drain(c);
    }
}

bool worker_idle(const struct worker *w)
{
    return !w->exchanges && !w->clients;
}

void worker_stats(const struct worker *w, struct worker_stats *ret)
{
    *ret = w->stats;
    ret->pooled = pool_size(w->pool);
    ret->leaves = leaf_cache_size(w->leaves);
    ret->leases = lease_client_count(w->leases);
}
