/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/dial_share.h"

#include "proxy/exchange_steps.h"
#include "proxy/origin.h"
#include "proxy/pool.h"

/* Looked at, newest first, so that a burst of requests costs no square of itself. One key has one leader for each limits.h2_streams of its requests;
 * where those of 64 other keys have begun since, a request only dials a connection of its own. */
enum { LEADERS_SEEN = 64 };

static uint64_t key_hash(const struct exchange *x)
{
    char mem[512] __attribute__((uninitialized));
    struct buf key = { .mem = mem, .cap = sizeof mem, .max = sizeof mem };
    pool_key(x, &key);
    return key.failed ? 0 : str_hash(buf_str(&key));
}

static void lead(struct exchange *x, uint64_t hash)
{
    struct worker *w = x->w;
    x->share.hash = hash;
    x->share.leads_next = w->leaders;
    x->share.leads_link = &w->leaders;
    if (w->leaders)
        w->leaders->share.leads_link = &x->share.leads_next;
    w->leaders = x;
}

static void put(struct exchange *x, struct exchange **list)
{
    x->share.next = *list;
    x->share.link = list;
    if (*list)
        (*list)->share.link = &x->share.next;
    *list = x;
}

static void take(struct exchange *x)
{
    *x->share.link = x->share.next;
    if (x->share.next)
        x->share.next->share.link = x->share.link;
    x->share.link = NULL;
}

bool dial_share_wait(struct exchange *x)
{
    if (x->share.asked || x->no_pool || x->share.leads_link || !str_eq(str_c(x->req.version), STR("2")) || !origin_wants_h2(x))
        return false;
    uint64_t hash = key_hash(x);
    unsigned seen = 0;
    for (struct exchange *l = x->w->leaders; l && seen < LEADERS_SEEN; l = l->share.leads_next, seen++) {
        if (l->share.hash != hash || l->share.n + 1 >= x->view->limits->h2_streams)
            continue;
        l->share.n++;
        x->share.asked = true;
        put(x, &l->share.first);
        return true;
    }
    lead(x, hash);
    return false;
}

void dial_share_over(struct exchange *x)
{
    struct worker *w = x->w;
    if (x->share.link)
        take(x);
    if (!x->share.leads_link)
        return;
    *x->share.leads_link = x->share.leads_next;
    if (x->share.leads_next)
        x->share.leads_next->share.leads_link = x->share.leads_link;
    x->share.leads_link = NULL;
    x->share.n = 0;
    while (x->share.first) {
        struct exchange *f = x->share.first;
        take(f);
        put(f, &w->woken);
    }
    if (w->woken)
        loop_defer(w->loop, &w->wake);
}

static void on_wake(struct task *t)
{
    struct worker *w = (struct worker *)((char *)t - offsetof(struct worker, wake));
    while (w->woken) {
        struct exchange *x = w->woken;
        take(x);
        exchange_run(x);
    }
}

void dial_share_init(struct worker *w)
{
    w->wake.cb = on_wake;
}

void dial_share_done(struct worker *w)
{
    task_cancel(&w->wake);
}
