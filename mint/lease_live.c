/* SPDX-License-Identifier: Apache-2.0
 *
 * What must not come back. A view is one (agent, host): the subscriptions of every credential whose hosts cover it, and
 * the set made of their live leases when it is next asked for. A lease stays in its subscription until its real end,
 * whether it was replaced, revoked or dropped: the origin may take it, and give it back, that long. Leases that the
 * keeper of before announced stay too when a new one takes over. What must not be sent on by the agent itself is the
 * view without a host: every credential of the agent.
 *
 * An idle view goes, and with its last view a subscription with its values. The generation moves then as well, so that
 * an answer that still runs asks again. */
#include "base/clock.h"
#include "mint/lease_client_impl.h"

#include <errno.h>
#include <stdlib.h>

enum { VIEW_CREDENTIALS = 64, SUB_NODES_MAX = LEASE_SET_MAX };

/* --- subscriptions --- */

static struct sub *sub_find(struct lease_client *c, struct str agent, struct str credential)
{
    uint64_t hash = lc_names_hash(agent, credential);
    HTAB_CHAIN(&c->subs, h, hash)
    {
        struct sub *s = LC_CONTAINER(h, struct sub, node);
        if (str_eq(s->agent, agent) && str_eq(s->credential, credential))
            return s;
    }
    return NULL;
}

static void sub_changed(struct sub *s)
{
    s->changed = ++s->client->generation;
}

static void sub_wake(struct sub *s)
{
    while (s->waits)
        lc_wait_finish(s->waits);
}

static void sub_state(struct sub *s, enum sub_state state)
{
    struct lease_client *c = s->client;
    if (s->state == SUB_ASKED)
        htab_del(&c->subs_by_id, &s->by_id);
    s->state = state;
    if (state == SUB_ASKED)
        htab_add(&c->subs_by_id, &s->by_id, s->id);
    if (state == SUB_AWAY)
        s->away_ms = loop_now_ms(c->loop);
    if (state == SUB_LIVE) /* an answer that went on meanwhile with what it knew asks again */
        c->generation++;
    if (state == SUB_LIVE || state == SUB_AWAY) {
        timer_clear(&s->deadline);
        sub_wake(s);
    }
}

static void sub_deadline(struct timer *t)
{
    sub_state(LC_CONTAINER(t, struct sub, deadline), SUB_AWAY);
}

static void watch_send(struct sub *s, uint16_t type)
{
    struct msg_writer w;
    lease_wire_writer_init(&w);
    lease_wire_put_watch(&w, &(struct lease_wire_watch) { s->agent, s->credential });
    if (!lc_send(s->client, type, s->id, &w) && type == LEASE_WATCH)
        sub_state(s, SUB_ASKED);
}

/* Asks, or waits for a channel to ask on; either way not longer than the deadline. */
static void sub_ask(struct sub *s)
{
    struct lease_client *c = s->client;
    sub_state(s, SUB_WANTED);
    s->id = c->next_id++;
    if (c->ch)
        watch_send(s, LEASE_WATCH);
    if (!s->deadline.loop)
        timer_set(c->loop, &s->deadline, lc_timeout_ms(c));
}

static void sub_expiry_set(struct sub *s)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i]->lease->expires_us < first)
            first = s->v[i]->lease->expires_us;
    timer_clear(&s->expiry);
    if (s->n)
        timer_set(s->client->loop, &s->expiry, lc_until_ms(first));
}

static void sub_expiry(struct timer *t)
{
    struct sub *s = LC_CONTAINER(t, struct sub, expiry);
    int64_t now = clock_wall_us();
    size_t kept = 0, before = s->n;
    for (size_t i = 0; i < before; i++) {
        if (lease_dead(s->v[i]->lease, now))
            lc_known_done(s->client, &s->v[i]);
        else
            s->v[kept++] = s->v[i];
    }
    s->n = kept;
    if (kept != before)
        sub_changed(s);
    sub_expiry_set(s);
}

static void sub_drop(struct sub *s)
{
    struct lease_client *c = s->client;
    if (c->ch && (s->state == SUB_LIVE || s->state == SUB_ASKED))
        watch_send(s, LEASE_UNWATCH);
    sub_wake(s);
    sub_state(s, SUB_WANTED);
    timer_clear(&s->deadline);
    timer_clear(&s->expiry);
    for (size_t i = 0; i < s->n; i++)
        lc_known_done(c, &s->v[i]);
    htab_del(&c->subs, &s->node);
    c->generation++;
    free(s->v);
    free(s->names);
    free(s->placeholder);
    free(s);
}

static int sub_placeholder(struct sub *s, const struct agent *a, const struct credential *cred)
{
    const struct placeholder *ph = placeholder_of(s->client->table, a, cred);
    struct str text = ph ? ph->text : STR("[credential]");
    char *copy = malloc(text.n);
    if (!copy)
        return -1;
    memcpy(copy, text.p, text.n);
    free(s->placeholder);
    s->placeholder = copy;
    s->placeholder_n = text.n;
    return 0;
}

static struct sub *sub_get(struct lease_client *c, const struct agent *a, const struct credential *cred)
{
    struct sub *s = sub_find(c, a->name, cred->name);
    if (s)
        return s;
    s = c->subs.n < LC_SUBS_MAX ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->client = c;
    s->deadline.cb = sub_deadline;
    s->expiry.cb = sub_expiry;
    s->names = malloc(a->name.n + cred->name.n + 1);
    if (!s->names || sub_placeholder(s, a, cred)) {
        free(s->names);
        free(s);
        return NULL;
    }
    memcpy(s->names, a->name.p, a->name.n);
    memcpy(s->names + a->name.n, cred->name.p, cred->name.n);
    s->agent = str_of(s->names, a->name.n);
    s->credential = str_of(s->names + a->name.n, cred->name.n);
    htab_add(&c->subs, &s->node, lc_names_hash(s->agent, s->credential));
    sub_changed(s);
    sub_ask(s);
    return s;
}

/* --- leases into subscriptions --- */

static int sub_add(struct sub *s, struct lease *l)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i]->lease == l)
            return 0;
    if (lease_dead(l, clock_wall_us()))
        return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct known **v = s->n < SUB_NODES_MAX ? reallocarray(s->v, cap, sizeof(struct known *)) : NULL;
        if (!v)
            return -1;
        s->v = v;
        s->cap = cap;
    }
    struct known *k = lc_known(s->client, lease_ref(l));
    if (!k)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i] == k) {
            lc_known_done(s->client, &k);
            return 0;
        }
    s->v[s->n++] = k;
    sub_changed(s);
    sub_expiry_set(s);
    return 0;
}

/* Once one is missing, nothing may be answered until the subscription was made anew. */
static int sub_add_or_spoil(struct sub *s, struct lease *l)
{
    if (!sub_add(s, l))
        return 0;
    s->incomplete = true;
    sub_changed(s);
    return -1;
}

int lc_live_add(struct lease_client *c, struct lease *l)
{
    struct sub *s = sub_find(c, l->agent, l->credential);
    return s ? sub_add_or_spoil(s, l) : 0;
}

int lc_on_live(struct lease_client *c, struct str body)
{
    struct lease *l = lease_wire_read_lease(body);
    if (l) {
        (void)lc_live_add(c, l);
        lease_unref(&l);
        return 0;
    }
    if (errno != ENOMEM)
        return -1;
    /* Whose it is can still be read: what of it comes back could not be seen. */
    struct msg_reader r = msg_reader(body);
    (void)msg_get_str(&r, LEASE_ID_MAX);
    struct str credential = msg_get_str(&r, LEASE_NAME_MAX), agent = msg_get_str(&r, LEASE_NAME_MAX);
    struct sub *s = sub_find(c, agent, credential);
    if (s) {
        s->incomplete = true;
        sub_changed(s);
    }
    return 0;
}

int lc_on_watched(struct lease_client *c, uint64_t id, struct str body)
{
    if (body.n)
        return -1;
    HTAB_CHAIN(&c->subs_by_id, h, id)
    {
        sub_state(LC_CONTAINER(h, struct sub, by_id), SUB_LIVE);
        break;
    }
    return 0;
}

/* Calls fn for every subscription; fn may drop the one it gets. */
static void subs_each(struct lease_client *c, void (*fn)(struct sub *s))
{
    for (size_t i = 0; i < LC_BUCKETS; i++)
        for (struct hnode *h = c->subs.v[i], *next; h; h = next) {
            next = h->next;
            fn(LC_CONTAINER(h, struct sub, node));
        }
}

void lc_subs_connected(struct lease_client *c)
{
    subs_each(c, sub_ask);
}

/* What was live stays usable: nobody gets a lease while the keeper is away. */
static void sub_disconnected(struct sub *s)
{
    if (s->state == SUB_ASKED)
        sub_state(s, SUB_WANTED);
}

void lc_subs_disconnected(struct lease_client *c)
{
    subs_each(c, sub_disconnected);
}

/* --- views --- */

static uint64_t view_hash(struct str agent, const struct host *host)
{
    return lc_names_hash(agent, host_str(host));
}

static struct view *view_find(struct lease_client *c, struct str agent, const struct host *host)
{
    uint64_t hash = view_hash(agent, host);
    HTAB_CHAIN(&c->views, h, hash)
    {
        struct view *v = LC_CONTAINER(h, struct view, node);
        if (str_eq(v->agent, agent) && host_eq(&v->host, host))
            return v;
    }
    return NULL;
}

static void view_drop(struct lease_client *c, struct view *v)
{
    for (size_t i = 0; i < v->nsubs; i++)
        if (!--v->subs[i]->users)
            sub_drop(v->subs[i]);
    htab_del(&c->views, &v->node);
    lease_set_unref(&v->set);
    free(v->subs);
    free(v->names);
    free(v);
}

/* As policy_credentials; a view without a host is of all the agent's credentials. */
static size_t view_credentials(const struct lease_client *c, const struct view *v, const struct agent *a,
                               const struct credential **ret, size_t max)
{
    const struct config *config = policy_config(c->policy);
    size_t n = 0;
    if (v->host.n)
        return policy_credentials(c->policy, a, &v->host, ret, max);
    for (size_t i = 0; i < config->ncredentials; i++) {
        const struct credential *cred = &config->credentials[i];
        for (size_t k = 0; k < cred->agents.n; k++) {
            if (!str_eq(cred->agents.v[k], a->name))
                continue;
            if (n < max)
                ret[n] = cred;
            n++;
            break;
        }
    }
    return n;
}

/* The subs of every credential that covers the host, and those of before that still have leases. 0 or -1 (nothing
 * changed). */
static int view_subs(struct lease_client *c, struct view *v, const struct agent *a)
{
    const struct credential *few[VIEW_CREDENTIALS], **creds = few;
    size_t n = a ? view_credentials(c, v, a, few, VIEW_CREDENTIALS) : 0, k = 0;
    struct sub **subs = calloc(n + v->nsubs + 1, sizeof(struct sub *));
    if (n > VIEW_CREDENTIALS) {
        creds = calloc(n, sizeof *creds);
        if (creds && view_credentials(c, v, a, creds, n) != n) {
            free(creds);
            creds = NULL;
        }
    }
    if (!subs || !creds)
        goto fail;
    while (k < n) {
        struct sub *s = sub_get(c, a, creds[k]);
        if (!s)
            goto fail;
        s->users++;
        subs[k] = s;
        if (sub_placeholder(s, a, creds[k++]))
            goto fail;
    }
    for (size_t i = 0; i < v->nsubs; i++) {
        bool again = !v->subs[i]->n;
        for (size_t j = 0; !again && j < n; j++)
            again = subs[j] == v->subs[i];
        if (again) {
            if (!--v->subs[i]->users)
                sub_drop(v->subs[i]);
        } else {
            subs[k++] = v->subs[i]; /* with the user it has */
        }
    }
    if (creds != few)
        free(creds);
    free(v->subs);
    v->subs = subs;
    v->nsubs = k;
    v->built = 0;
    return 0;
fail:
    while (k-- > 0)
        if (!--subs[k]->users)
            sub_drop(subs[k]);
    if (creds != few)
        free(creds);
    free(subs);
    return -1;
}

static void views_each(struct lease_client *c, void (*fn)(struct lease_client *c, struct view *v, void *arg), void *arg)
{
    for (size_t i = 0; i < LC_BUCKETS; i++)
        for (struct hnode *h = c->views.v[i], *next; h; h = next) {
            next = h->next;
            fn(c, LC_CONTAINER(h, struct view, node), arg);
        }
}

static void view_older(struct lease_client *c, struct view *v, void *arg)
{
    (void)c;
    struct view **oldest = arg;
    if (!*oldest || v->used_ms < (*oldest)->used_ms)
        *oldest = v;
}

/* One agent that visits many hosts of a wildcard must not keep the others from theirs: the least recently used goes. */
static void views_make_room(struct lease_client *c)
{
    struct view *oldest = NULL;
    if (c->views.n < LC_VIEWS_MAX)
        return;
    views_each(c, view_older, &oldest);
    view_drop(c, oldest);
}

static struct view *view_new(struct lease_client *c, const struct agent *a, const struct host *host)
{
    views_make_room(c);
    struct view *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->names = malloc(a->name.n + 1);
    if (!v->names) {
        free(v);
        return NULL;
    }
    memcpy(v->names, a->name.p, a->name.n);
    v->agent = str_of(v->names, a->name.n);
    v->host = *host;
    v->used_ms = loop_now_ms(c->loop);
    if (view_subs(c, v, a)) {
        free(v->names);
        free(v);
        return NULL;
    }
    htab_add(&c->views, &v->node, view_hash(v->agent, host));
    lc_sweep_start(c);
    return v;
}

static int view_build(struct lease_client *c, struct view *v)
{
    size_t n = 0, k = 0;
    for (size_t i = 0; i < v->nsubs; i++)
        n += v->subs[i]->n;
    struct lease_set *set = NULL;
    if (n) {
        struct lease_set_item *items = calloc(n, sizeof *items);
        if (!items)
            return -1;
        for (size_t i = 0; i < v->nsubs; i++)
            for (size_t j = 0; j < v->subs[i]->n; j++)
                items[k++] = (struct lease_set_item) { v->subs[i]->v[j]->lease,
                                                       str_of(v->subs[i]->placeholder, v->subs[i]->placeholder_n) };
        set = lease_set_new(c->table, items, n, c->generation, NULL);
        free(items);
        if (!set)
            return -1;
    }
    lease_set_unref(&v->set);
    v->set = set;
    v->built = c->generation;
    return 0;
}

static bool view_stale(const struct view *v)
{
    for (size_t i = 0; i < v->nsubs; i++)
        if (v->subs[i]->changed > v->built)
            return true;
    return !v->built;
}

/* The first subscription that is not live yet, having asked for all; *ret_away: one is away. */
static struct sub *view_missing(struct lease_client *c, const struct view *v, bool *ret_away)
{
    struct sub *missing = NULL;
    for (size_t i = 0; i < v->nsubs; i++) {
        struct sub *s = v->subs[i];
        if (s->state == SUB_AWAY && loop_now_ms(c->loop) - s->away_ms >= LC_AWAY_MS)
            sub_ask(s);
        if (s->state == SUB_AWAY || s->incomplete)
            *ret_away = true;
        else if (s->state != SUB_LIVE && !missing)
            missing = s;
    }
    return missing;
}

int lease_live(struct lease_client *c, const struct agent *agent, const struct host *host, struct lease_set **ret,
               void (*cb)(void *ctx), void *ctx, struct lease_wait **ret_wait)
{
    *ret_wait = NULL;
    const struct agent *a = c->policy ? policy_agent(c->policy, agent->name) : NULL;
    if (!a)
        return -1;
    static const struct host all; /* no host has an empty name */
    struct view *v = view_find(c, a->name, host ? host : &all);
    if (!v && host && !policy_credentials(c->policy, a, host, NULL, 0)) {
        *ret = NULL; /* most hosts: nothing to remember */
        return 1;
    }
    if (!v && !(v = view_new(c, a, host ? host : &all)))
        return -1;
    bool away = false;
    struct sub *missing = view_missing(c, v, &away);
    if (away) /* not a use: a spoilt subscription goes when idle, and is made anew */
        return -1;
    v->used_ms = loop_now_ms(c->loop);
    if (missing) {
        struct lease_wait *w = lc_wait_new(c, WAIT_LIVE, ctx);
        if (!w)
            return -1;
        w->live_cb = cb;
        lc_wait_link(&missing->waits, w);
        *ret_wait = w;
        return 0;
    }
    if (view_stale(v) && view_build(c, v))
        return -1;
    *ret = lease_set_ref(v->set);
    return 1;
}

/* --- now and then --- */

static void view_idle(struct lease_client *c, struct view *v, void *arg)
{
    const uint64_t *now_ms = arg;
    if (*now_ms - v->used_ms >= LC_IDLE_MS)
        view_drop(c, v);
}

void lc_live_sweep(struct lease_client *c, uint64_t now_ms)
{
    views_each(c, view_idle, &now_ms);
}

/* A view that cannot be made anew goes: the next who asks is refused, or made one. */
static void view_policy(struct lease_client *c, struct view *v, void *arg)
{
    (void)arg;
    const struct agent *a = policy_agent(c->policy, v->agent);
    if (view_subs(c, v, a))
        view_drop(c, v);
}

void lc_live_policy(struct lease_client *c)
{
    views_each(c, view_policy, NULL);
    c->generation++;
}

static void view_end(struct lease_client *c, struct view *v, void *arg)
{
    (void)arg;
    view_drop(c, v);
}

static void sub_end(struct sub *s)
{
    while (s->waits) {
        struct lease_wait *w = s->waits;
        lease_cancel(&w);
    }
}

void lc_live_done(struct lease_client *c)
{
    subs_each(c, sub_end);
    views_each(c, view_end, NULL);
}
