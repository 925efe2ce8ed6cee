/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/role.h"
#include "proxy/worker.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

enum { DRAIN_LOOK_MS = 20 };

struct worker_role {
    struct worker *worker;
    struct role *role;
    struct timer drain;
};

/* The table is the caller's to unref. */
static struct placeholder_table *snapshot_view(const struct role_snapshot *s, struct worker_snapshot *ret,
                                               struct err *err)
{
    *ret = (struct worker_snapshot) {
        .policy = s->policy,
        .placeholders = placeholder_table_new(s->policy, s->view.install_key, err),
        .system_roots = s->view.system_roots,
        .own_ca = s->view.own_ca,
        .names = s->names,
    };
    return ret->placeholders;
}

static int worker_open(struct role *r, struct err *err)
{
    struct worker_role *w = calloc(1, sizeof *w);
    MUST(w);
    r->self = w;
    w->role = r;
    struct worker_snapshot view;
    struct placeholder_table *table = snapshot_view(r->snapshot, &view, err);
    if (!table)
        return err_prefix(err, "placeholders");
    w->worker = worker_new(r->loop, &(struct worker_options) { .index = r->index, .sink = r->sink }, &view, err);
    placeholder_table_unref(&table);
    return w->worker ? 0 : -1;
}

static const struct config_listener *listener_of(const struct role *r, struct str text)
{
    const struct config *c = policy_config(r->snapshot->policy);
    for (size_t i = 0; i < c->nproxy; i++)
        if (str_eq(c->proxy[i].text, text))
            return &c->proxy[i];
    return NULL;
}

static int add_listener(struct worker_role *w, struct role_msg *m)
{
    struct err err;
    const struct config_listener *l = m->nfds == 1 ? listener_of(w->role, m->text) : NULL;
    if (!l)
        return -1;
    int fd = m->fds[0];
    m->fds[0] = -1;
    if (worker_add_listener(w->worker, l, fd, &err)) {
        log_error("listener %.*s: %s", STR_ARG(m->text), err.text);
        return -1; /* a worker that serves less than the others is no use: be started anew */
    }
    return 0;
}

static int add_channel(struct worker_role *w, struct role_msg *m)
{
    struct err err;
    int fd = m->fds[0];
    m->fds[0] = -1;
    int r = m->kind == ROLE_KIND_CA         ? worker_connect_ca(w->worker, fd, &err)
            : m->kind == ROLE_KIND_KEEPER   ? worker_connect_keeper(w->worker, fd, &err)
            : m->kind == ROLE_KIND_RESOLVER ? worker_connect_resolver(w->worker, fd, &err)
                                            : err_set(&err, "no such peer");
    if (r)
        log_error("channel to %s: %s", role_kind_name(m->kind), err.text);
    return r;
}

static void on_drain_timer(struct timer *t)
{
    struct worker_role *w = (struct worker_role *)((char *)t - offsetof(struct worker_role, drain));
    if (!worker_idle(w->worker)) {
        timer_set(w->role->loop, t, DRAIN_LOOK_MS);
        return;
    }
    worker_free(&w->worker); /* which writes what was counted, and looks whether all was given back */
    loop_stop(w->role->loop);
}

static int worker_on_message(struct role *r, struct role_msg *m)
{
    struct worker_role *w = r->self;
    if (m->type == ROLE_CHANNEL)
        return add_channel(w, m);
    if (m->type == ROLE_LISTENER)
        return add_listener(w, m);
    if (m->type == ROLE_LISTENER_DROP) {
        worker_drop_listener(w->worker, m->text);
        return 0;
    }
    if (m->type == ROLE_TICKETS) {
        struct ticket_key keys[TICKET_KEYS_MAX];
        size_t n;
        if (tickets_parse(m->text, keys, &n))
            return -1;
        worker_set_ticket_keys(w->worker, keys, n);
        explicit_bzero(keys, sizeof keys);
        return 0;
    }
    if (m->type == ROLE_LOGINS) {
        struct run_logins logins;
        if (run_logins_parse(m->text, &logins))
            return -1;
        worker_set_run_logins(w->worker, &logins);
        return 0;
    }
    if (m->type == ROLE_DRAIN) {
        worker_drain(w->worker);
        w->drain.cb = on_drain_timer;
        timer_set(r->loop, &w->drain, 0);
        return 0;
    }
    return -1;
}

static void worker_on_commit(struct role *r)
{
    struct worker_role *w = r->self;
    struct worker_snapshot view;
    struct err err;
    struct placeholder_table *table = snapshot_view(r->snapshot, &view, &err);
    if (!table || worker_set_snapshot(w->worker, &view, &err))
        log_fatal("the committed snapshot cannot be used: %s", err.text); /* started anew on it by the supervisor */
    placeholder_table_unref(&table);
}

static void worker_on_stop(struct role *r)
{
    struct worker_role *w = r->self;
    worker_free(&w->worker);
}

static void worker_put_stats(struct role *r, struct buf *out)
{
    struct worker_role *w = r->self;
    struct worker_stats s;
    worker_stats(w->worker, &s);
    buf_putf(out,
             "\"clients\":%llu,\"exchanges\":%llu,\"requests\":%llu,\"refused\":%llu,\"pooled\":%llu,\"leaves\":%llu,"
             "\"leases\":%llu",
             (unsigned long long)s.clients, (unsigned long long)s.exchanges, (unsigned long long)s.requests,
             (unsigned long long)s.refused, (unsigned long long)s.pooled, (unsigned long long)s.leaves,
             (unsigned long long)s.leases);
}

const struct role_ops role_ops_worker = {
    .kind = ROLE_KIND_WORKER,
    .allow = LOCKDOWN_ACCEPT,
    .open = worker_open,
    .on_message = worker_on_message,
    .on_commit = worker_on_commit,
    .on_stop = worker_on_stop,
    .stats = worker_put_stats,
};
