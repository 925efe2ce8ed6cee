/* SPDX-License-Identifier: Apache-2.0
 *
 * The role's wiring: channels to workers, their ration of dials, the snapshot in force. What a dial does is dial_job.c.
 * A worker is not believed: a message that does not parse, repeats an id that is in use, or carries a descriptor closes
 * its channel. */
#include "dns/resolver.h"

#include "base/fair.h"
#include "base/log.h"
#include "base/msg.h"
#include "dns/dial_client.h"
#include "dns/dial_job.h"
#include "dns/name_guard.h"
#include "dns/responder.h"
#include "policy/origin_trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LANES = 128, TRY_MS = 1000, DIAL_SLOTS = 1024, NAME_MAX_BYTES = 128, ID_MAX_BYTES = 32 };

struct served_dial {
    struct served_dial *chain;
    struct served_worker *worker;
    uint64_t id, agent; /* agent: hash of its name */
    struct dial_job *job;
};

struct served_worker {
    struct resolver *resolver;
    struct served_worker *next, **link;
    unsigned index;
    struct msg_channel *channel;
    struct task closed;
    struct fair_rate rate;
    struct served_dial *dials[DIAL_SLOTS];
};

struct resolver {
    struct loop *loop;
    struct snapshot *snapshot;
    struct dns_log *log;
    struct lookups *lookups;
    struct name_guard *guard;
    struct responder *responder;
    struct virtual_names *names; /* NULL: there is no pool */
    struct own_addresses own;
    struct ip *own_ips;
    uint16_t *own_ports;
    struct dial_env env;
    struct served_worker *workers;
    struct fair_stock dials; /* by agent */
};

/* --- one worker's dials --- */

static struct served_dial **find(struct served_worker *w, uint64_t id)
{
    struct served_dial **at = &w->dials[id % DIAL_SLOTS];
    while (*at && (*at)->id != id)
        at = &(*at)->chain;
    return at;
}

static void drop(struct served_dial **at)
{
    struct served_dial *d = *at;
    *at = d->chain;
    fair_give(&d->worker->resolver->dials, d->agent, 1);
    dial_job_cancel(&d->job);
    free(d);
}

static void answer(struct served_worker *w, uint64_t id, const struct dial_outcome *o)
{
    struct msg_writer m;
    msg_writer_init(&m);
    msg_put_u16(&m, (uint16_t)o->end);
    msg_put_str(&m, str_c(o->addr));
    msg_put_str(&m, str_c(o->why));
    msg_put_str(&m, str_c(o->dns_id));
    msg_put_str(&m, str_c(o->finding ? o->finding : ""));
    msg_put_u32(&m, o->resolve_ms);
    msg_put_u32(&m, o->connect_ms);
    /* -1: the worker does not read or is gone; it notices by its own deadline, or its successor never asked. */
    if (!m.buf.failed)
        (void)msg_send(w->channel, DIALLED, id, buf_str(&m.buf), &o->fd, o->fd >= 0 ? 1 : 0);
    buf_done(&m.buf);
}

static void refuse(struct served_worker *w, uint64_t id, enum end end, const char *why)
{
    struct dial_outcome o = { .end = end, .fd = -1 };
    snprintf(o.why, sizeof o.why, "%s", why);
    answer(w, id, &o);
}

static void on_dialled(void *ctx, struct dial_outcome *o)
{
    struct served_dial *d = ctx;
    struct served_worker *w = d->worker;
    uint64_t id = d->id;
    d->job = NULL;
    drop(find(w, id));
    answer(w, id, o);
}

static int on_dial(struct served_worker *w, uint64_t id, struct str body)
{
    struct resolver *r = w->resolver;
    struct msg_reader m = msg_reader(body);
    struct dial_ask ask = {
        .agent = msg_get_str(&m, NAME_MAX_BYTES),
        .rule = msg_get_str(&m, NAME_MAX_BYTES),
        .host = msg_get_str(&m, HOST_MAX),
        .port = msg_get_u16(&m),
        .timeout_ms = msg_get_u32(&m),
    };
    uint8_t via = msg_get_u8(&m);
    ask.client = msg_get_str(&m, ASKER_CLIENT - 1);
    ask.conn_id = msg_get_str(&m, ID_MAX_BYTES);
    ask.request_id = msg_get_str(&m, ID_MAX_BYTES);
    if (!msg_reader_end(&m) || via > 1 || *find(w, id))
        return -1;
    ask.via_parent = via == 1;
    const struct limits *limits = &r->snapshot->config->limits;
    uint64_t agent = str_hash(ask.agent);
    if (!fair_rate_take(&w->rate, agent, limits->dial_rate, loop_now_ms(r->loop))) {
        refuse(w, id, END_RATE_LIMITED, "too many dials a second (limits.dial_rate)");
        return 0;
    }
    if (!fair_take(&r->dials, agent, 1, limits->dials)) {
        refuse(w, id, END_RATE_LIMITED, "too many dials at once (limits.dials)");
        return 0;
    }
    struct served_dial *d = calloc(1, sizeof *d);
    if (d) {
        d->worker = w;
        d->id = id;
        d->agent = agent;
        d->job = dial_job_start(&r->env, r->snapshot, &ask, on_dialled, d);
    }
    if (!d || !d->job) {
        free(d);
        fair_give(&r->dials, agent, 1);
        refuse(w, id, END_RATE_LIMITED, "out of memory");
        return 0;
    }
    if (r->names) /* who connects by a virtual address asks no question for as long as it knows it */
        virtual_names_use(r->names, ask.agent, ask.host, loop_now_ms(r->loop));
    d->chain = w->dials[id % DIAL_SLOTS];
    w->dials[id % DIAL_SLOTS] = d;
    return 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct served_worker *w = ctx;
    if (m->nfds > 0)
        return -1;
    if (m->type == DIAL)
        return on_dial(w, m->id, m->body);
    if (m->type != DIAL_CANCEL || m->body.n > 0)
        return -1;
    struct served_dial **at = find(w, m->id);
    if (*at) /* else it crossed our answer */
        drop(at);
    return 0;
}

/* --- workers --- */

static void worker_free(struct served_worker *w)
{
    for (size_t i = 0; i < DIAL_SLOTS; i++)
        while (w->dials[i])
            drop(&w->dials[i]);
    msg_channel_free(&w->channel);
    task_cancel(&w->closed);
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    free(w);
}

static void on_closed_later(struct task *t)
{
    worker_free((struct served_worker *)((char *)t - offsetof(struct served_worker, closed)));
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct served_worker *w = ctx;
    loop_defer(w->resolver->loop, &w->closed);
}

int resolver_add_worker(struct resolver *r, unsigned index, int fd, struct err *err)
{
    static const struct msg_ops ops = { on_message, on_closed };
    struct served_worker *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, "resolver: out of memory");
    w->resolver = r;
    w->index = index;
    w->closed.cb = on_closed_later;
    w->channel = msg_channel_new(r->loop, fd, &ops, w);
    if (!w->channel) {
        free(w);
        return err_set(err, "resolver: cannot serve worker %u", index);
    }
    w->next = r->workers;
    w->link = &r->workers;
    if (w->next)
        w->next->link = &w->next;
    r->workers = w;
    return 0;
}

/* --- the role --- */

static bool same_servers(const struct snapshot *a, const struct snapshot *b)
{
    if (a->nservers != b->nservers)
        return false;
    for (size_t i = 0; i < a->nservers; i++)
        if (!dns_server_eq(&a->servers[i], &b->servers[i]))
            return false;
    return true;
}

/* Takes the reference. */
static void use_snapshot(struct resolver *r, struct snapshot *s, struct canary *canary)
{
    struct err err;
    const struct limits *limits = &s->config->limits;
    if (!r->snapshot || !same_servers(r->snapshot, s)) {
        lookups_set_servers(r->lookups, s->servers, s->nservers);
        if (s->nservers == 0)
            log_error("no DNS server is known: only resolver.hosts and addresses can be reached (resolver.upstreams)");
        if (s->servers_skipped > 0)
            log_error("%u DNS servers are not used: at most %d, as plain addresses", s->servers_skipped,
                      DNS_SERVERS_MAX);
    }
    lookups_set_limits(r->lookups, limits->dns_cache, limits->dns_ttl_max);
    if (name_guard_set(r->guard, s, canary, &err)) /* as with an old policy: it must not stay in force */
        log_fatal("%s", err.text);
    dns_log_set_canary(r->log, canary);
    dns_log_configure(r->log, limits->refusals_per_second, limits->event_lag);
    responder_set_snapshot(r->responder, s);
    snapshot_unref(&r->snapshot);
    r->snapshot = s;
}

struct resolver *resolver_new(struct loop *l, struct policy *p, struct str resolv_conf, struct canary *canary,
                              int budget_fd, struct sink *sink, struct err *err)
{
    struct resolver *r = calloc(1, sizeof *r);
    if (!r) {
        if (budget_fd >= 0)
            close(budget_fd);
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    r->loop = l;
    struct snapshot *s = snapshot_new(p, resolv_conf);
    r->log = dns_log_new(l, sink, err);
    r->lookups = r->log ? lookups_new(l, r->log, LANES, TRY_MS, err) : NULL;
    r->guard = r->lookups ? name_guard_new(l, sink, err) : NULL;
    if (r->guard)
        name_guard_open(r->guard, budget_fd);
    else if (budget_fd >= 0)
        close(budget_fd);
    r->responder = r->guard ? responder_new(l, r->lookups, r->guard, r->log, &r->own, err) : NULL;
    if (!s || !r->responder) {
        if (!s)
            err_set(err, "resolver: out of memory");
        snapshot_unref(&s);
        resolver_free(&r);
        return NULL;
    }
    r->env = (struct dial_env) { l, r->lookups, r->guard, r->log, &r->own };
    lookups_set_own(r->lookups, &r->own);
    use_snapshot(r, s, canary);
    return r;
}

void resolver_free(struct resolver **rp)
{
    struct resolver *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    while (r->workers)
        worker_free(r->workers);
    responder_free(&r->responder); /* before what it borrows; its questions wait for look-ups */
    lookups_free(&r->lookups);
    name_guard_free(&r->guard);
    virtual_names_free(&r->names);
    dns_log_free(&r->log);
    snapshot_unref(&r->snapshot);
    free(r->own_ips);
    free(r->own_ports);
    free(r);
}

void resolver_set_policy(struct resolver *r, struct policy *p, struct str resolv_conf, struct canary *canary)
{
    struct snapshot *s = snapshot_new(p, resolv_conf);
    if (!s) /* an old policy must not stay in force: die and be restarted on the new one */
        log_fatal("out of memory for the new snapshot");
    use_snapshot(r, s, canary);
}

int resolver_set_trust(struct resolver *r, struct str system_roots, struct str own_ca, struct err *err)
{
    const struct snapshot *s = r->snapshot;
    bool wanted = false;
    for (size_t i = 0; i < s->nservers; i++)
        wanted |= s->servers[i].tls != NULL;
    SSL_CTX *trust = wanted ? origin_trust_new(s->policy, system_roots, own_ca, err) : NULL;
    upstream_set_trust(lookups_upstream(r->lookups), trust);
    SSL_CTX_free(trust);
    return wanted && !trust ? -1 : 0;
}

int resolver_set_names(struct resolver *r, struct virtual_table *t, struct err *err)
{
    struct virtual_names *names = NULL;
    if (t && r->names && virtual_table_same(virtual_names_table(r->names), t))
        return 0;
    if (t && !(names = virtual_names_new(t, loop_now_ms(r->loop), err)))
        return -1;
    virtual_names_free(&r->names);
    r->names = names;
    responder_set_names(r->responder, names);
    return 0;
}

void resolver_set_own(struct resolver *r, const struct own_addresses *own)
{
    struct ip *ips = calloc(own->n + 1, sizeof *ips);
    uint16_t *ports = calloc(own->n + 1, sizeof *ports);
    if (!ips || !ports) /* without the list, nothing would keep agents from reaching us through us */
        log_fatal("out of memory for the list of our own addresses");
    for (size_t i = 0; i < own->n; i++) {
        ips[i] = own->ips[i];
        ports[i] = own->ports[i];
    }
    free(r->own_ips);
    free(r->own_ports);
    r->own_ips = ips;
    r->own_ports = ports;
    r->own = (struct own_addresses) { ips, ports, own->n };
}

int resolver_add_listener(struct resolver *r, struct str text, int tcp_fd, int udp_fd, struct err *err)
{
    return responder_add_listener(r->responder, text, tcp_fd, udp_fd, err);
}

void resolver_drop_listener(struct resolver *r, struct str text)
{
    responder_drop_listener(r->responder, text);
}
