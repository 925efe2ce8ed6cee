/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel, the registry of known leases, revocation and the idle sweep. See lease_client_impl.h for the parts. */
#include "base/clock.h"
#include "mint/lease_client_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t lc_names_hash(struct str a, struct str b)
{
    return str_hash(a) * 31 + str_hash(b);
}

uint64_t lc_until_ms(int64_t wall_us)
{
    int64_t left = wall_us - clock_wall_us();
    if (left <= 0)
        return 1;
    uint64_t ms = (uint64_t)left / 1000 + 1;
    return ms > LC_RECHECK_MS ? LC_RECHECK_MS : ms;
}

uint64_t lc_timeout_ms(const struct lease_client *c)
{
    struct limits dflt;
    if (c->policy)
        return policy_config(c->policy)->limits.lease_timeout;
    limits_default(&dflt);
    return dflt.lease_timeout;
}

static bool same_lease(const struct lease *a, const struct lease *b)
{
    return str_eq(str_c(a->id), str_c(b->id)) && str_eq(a->agent, b->agent) && str_eq(a->credential, b->credential) &&
           a->expires_us == b->expires_us && secret_equal(secret_reveal(a->value), secret_reveal(b->value));
}

struct known *lc_known(struct lease_client *c, struct lease *take)
{
    uint64_t hash = str_hash(str_c(take->id));
    HTAB_CHAIN(&c->known, h, hash)
    {
        struct known *k = LC_CONTAINER(h, struct known, node);
        if (!k->gone && same_lease(k->lease, take)) {
            lease_unref(&take);
            k->users++;
            return k;
        }
    }
    struct known *k = calloc(1, sizeof *k);
    if (!k) {
        lease_unref(&take);
        return NULL;
    }
    k->lease = take;
    k->users = 1;
    htab_add(&c->known, &k->node, hash);
    lc_sweep_start(c);
    return k;
}

/* Forgotten when neither we nor an exchange uses it. */
static void known_drop_unused(struct lease_client *c, struct known *k)
{
    if (k->users || k->lease->refs > 1)
        return;
    htab_del(&c->known, &k->node);
    lease_unref(&k->lease);
    free(k);
}

void lc_known_done(struct lease_client *c, struct known **k)
{
    struct known *d = *k;
    *k = NULL;
    if (!d)
        return;
    d->users--;
    known_drop_unused(c, d);
}

struct lease_wait *lc_wait_new(struct lease_client *c, enum wait_kind kind, void *ctx)
{
    struct lease_wait *w = c->nwaits < LC_WAITS_MAX ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return NULL;
    c->nwaits++;
    w->client = c;
    w->kind = kind;
    w->ctx = ctx;
    return w;
}

void lc_wait_link(struct lease_wait **list, struct lease_wait *w)
{
    w->next = *list;
    w->link = list;
    if (*list)
        (*list)->link = &w->next;
    *list = w;
}

void lc_wait_unlink(struct lease_wait *w)
{
    if (!w->link)
        return;
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    w->link = NULL;
    w->next = NULL;
}

static void wait_free(struct lease_wait *w)
{
    lc_wait_unlink(w);
    task_cancel(&w->task);
    lease_unref(&w->lease);
    free(w->words);
    w->client->nwaits--;
    free(w);
}

static void wait_call(struct task *t)
{
    struct lease_wait *w = LC_CONTAINER(t, struct lease_wait, task);
    void *ctx = w->ctx;
    if (w->kind == WAIT_LIVE) {
        void (*cb)(void *) = w->live_cb;
        wait_free(w);
        if (cb)
            cb(ctx);
        return;
    }
    struct lease_answer a = { .end = w->end, .retry_after_s = w->retry_after_s };
    struct lease *lease = w->lease;
    char why[LEASE_WIRE_WHY_MAX];
    memcpy(why, w->why, w->why_n);
    a.why = str_of(why, w->why_n);
    a.lease = lease;
    w->lease = NULL;
    void (*cb)(void *, const struct lease_answer *) = w->lease_cb;
    wait_free(w);
    cb(ctx, &a);
    lease_unref(&lease);
}

void lc_wait_finish(struct lease_wait *w)
{
    lc_wait_unlink(w);
    lc_wait_link(&w->client->done, w);
    w->task.cb = wait_call;
    loop_defer(w->client->loop, &w->task);
}

void lease_cancel(struct lease_wait **w)
{
    struct lease_wait *d = *w;
    *w = NULL;
    if (d)
        wait_free(d);
}

int lc_send(struct lease_client *c, uint16_t type, uint64_t id, struct msg_writer *w)
{
    int r = -1;
    if (c->ch && msg_channel_open(c->ch) && !w->buf.failed)
        r = msg_send(c->ch, type, id, buf_str(&w->buf), NULL, 0);
    buf_done(&w->buf);
    return r;
}

static void revoked_call(struct task *t)
{
    struct lease_client *c = LC_CONTAINER(t, struct lease_client, revoked_task);
    /* The callback may do anything but free the client: take the list first. */
    struct revoked *list = c->revoked;
    c->revoked = NULL;
    c->revoked_end = &c->revoked;
    while (list) {
        struct revoked *r = list;
        list = r->next;
        if (c->on_revoked)
            c->on_revoked(c->on_revoked_ctx, r->lease);
        lease_unref(&r->lease);
        free(r);
    }
}

static void revoked_add(struct lease_client *c, struct lease *l)
{
    struct revoked *r = calloc(1, sizeof *r);
    if (!r) { /* cannot wait for a later stack: then now, rather than never */
        if (c->on_revoked)
            c->on_revoked(c->on_revoked_ctx, l);
        return;
    }
    r->lease = lease_ref(l);
    *c->revoked_end = r;
    c->revoked_end = &r->next;
    loop_defer(c->loop, &c->revoked_task);
}

static void gone(struct lease_client *c, struct known *k, enum lease_gone why)
{
    k->gone = true; /* its entries go when they are next looked at, at the latest when idle */
    if (why == LEASE_GONE_REVOKED)
        revoked_add(c, k->lease);
}

/* Whatever we hold under this id, or of this credential. */
static void on_any_gone(struct lease_client *c, const struct lease_wire_gone *g)
{
    for (size_t i = 0; i < LC_BUCKETS; i++)
        for (struct hnode *h = c->known.v[i]; h; h = h->next) {
            struct known *k = LC_CONTAINER(h, struct known, node);
            if (!k->gone && (g->lease_id.n ? str_eq(str_c(k->lease->id), g->lease_id)
                                           : str_eq(k->lease->credential, g->credential)))
                gone(c, k, g->why);
        }
}

static int on_gone(struct lease_client *c, struct str body)
{
    struct lease_wire_gone g;
    if (lease_wire_read_gone(body, &g))
        return -1;
    if (!g.agent.n) {
        on_any_gone(c, &g);
        return 0;
    }
    uint64_t hash = str_hash(g.lease_id);
    HTAB_CHAIN(&c->known, h, hash)
    {
        struct known *k = LC_CONTAINER(h, struct known, node);
        const struct lease *l = k->lease;
        if (k->gone || !str_eq(str_c(l->id), g.lease_id) || !str_eq(l->agent, g.agent) ||
            !str_eq(l->credential, g.credential))
            continue;
        gone(c, k, g.why);
    }
    return 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    struct lease_client *c = ctx;
    (void)ch;
    switch (m->type) {
    case LEASE_ANSWER:
        return lc_on_answer(c, m->id, m->body);
    case LEASE_LIVE:
        return lc_on_live(c, m->body);
    case LEASE_WATCHED:
        return lc_on_watched(c, m->id, m->body);
    case LEASE_GONE:
        return on_gone(c, m->body);
    default:
        return -1;
    }
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    struct lease_client *c = ctx;
    if (c->ch != ch)
        return;
    msg_channel_free(&c->ch);
    lc_subs_disconnected(c);
}

static const struct msg_ops ops = { on_message, on_closed };

int lease_client_connect(struct lease_client *c, int fd, struct err *err)
{
    struct msg_channel *ch = msg_channel_new(c->loop, fd, &ops, c);
    if (!ch) {
        int r = err_set_errno(err, "channel to the keeper");
        close(fd);
        return r;
    }
    msg_channel_wipe(ch, true);
    if (c->ch) {
        msg_channel_free(&c->ch);
        lc_subs_disconnected(c);
    }
    c->ch = ch;
    lc_entries_drop(c);
    lc_subs_connected(c);
    lc_flights_connected(c);
    return 0;
}

static void sweep(struct timer *t)
{
    struct lease_client *c = LC_CONTAINER(t, struct lease_client, sweep);
    uint64_t now = loop_now_ms(c->loop);
    lc_entries_sweep(c, now);
    lc_live_sweep(c, now);
    for (size_t i = 0; i < LC_BUCKETS; i++)
        for (struct hnode *h = c->known.v[i], *next; h; h = next) {
            next = h->next;
            known_drop_unused(c, LC_CONTAINER(h, struct known, node));
        }
    if (c->known.n || c->entries.n || c->views.n || c->subs.n)
        timer_set(c->loop, &c->sweep, LC_SWEEP_MS);
}

void lc_sweep_start(struct lease_client *c)
{
    if (!c->sweep.loop)
        timer_set(c->loop, &c->sweep, LC_SWEEP_MS);
}

struct lease_client *lease_client_new(struct loop *l, struct err *err)
{
    struct lease_client *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(err, "no memory for the lease client");
        return NULL;
    }
    c->loop = l;
    c->generation = 1;
    c->next_id = 1;
    c->sweep.cb = sweep;
    c->revoked_end = &c->revoked;
    c->revoked_task.cb = revoked_call;
    return c;
}

void lease_client_free(struct lease_client **c)
{
    struct lease_client *d = *c;
    *c = NULL;
    if (!d)
        return;
    msg_channel_free(&d->ch);
    timer_clear(&d->sweep);
    task_cancel(&d->revoked_task);
    while (d->revoked) {
        struct revoked *r = d->revoked;
        d->revoked = r->next;
        lease_unref(&r->lease);
        free(r);
    }
    lc_get_done(d);
    lc_live_done(d);
    while (d->done)
        wait_free(d->done);
    for (size_t i = 0; i < LC_BUCKETS; i++)
        while (d->known.v[i]) { /* exchanges may still hold the leases themselves */
            struct known *k = LC_CONTAINER(d->known.v[i], struct known, node);
            htab_del(&d->known, &k->node);
            lease_unref(&k->lease);
            free(k);
        }
    placeholder_table_unref(&d->table);
    policy_unref(&d->policy);
    free(d);
}

void lease_client_set_policy(struct lease_client *c, struct policy *p, struct placeholder_table *t)
{
    struct policy *old = c->policy;
    struct placeholder_table *old_table = c->table;
    c->policy = policy_ref(p);
    c->table = placeholder_table_ref(t);
    c->generation++;
    lc_entries_policy(c);
    lc_live_policy(c);
    placeholder_table_unref(&old_table);
    policy_unref(&old);
}

void lease_client_on_revoked(struct lease_client *c, void (*cb)(void *ctx, const struct lease *lease), void *ctx)
{
    c->on_revoked = cb;
    c->on_revoked_ctx = ctx;
}

uint64_t lease_client_generation(const struct lease_client *c)
{
    return c->generation;
}
