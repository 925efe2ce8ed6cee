/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting until every worker did what it was sent: messages on a channel are taken in order, so an answer to a SYNC says
 * that all before it was done. A worker that dies needs no answer: the next incarnation is told everything anew before
 * it serves anyone. */
#include "daemon/supervisor.h"

#include "base/log.h"

#include <stdlib.h>

struct workers_sync {
    struct workers_sync *next;
    struct supervisor *s;
    uint64_t id;
    struct timer timer; /* the deadline; 0 once nobody is waited for */
    bool all;
    void (*done)(void *ctx, bool all);
    void *ctx;
};

static void unlink_sync(struct workers_sync *y)
{
    for (struct workers_sync **p = &y->s->syncs; *p; p = &(*p)->next)
        if (*p == y) {
            *p = y->next;
            break;
        }
    timer_clear(&y->timer);
}

static void on_time(struct timer *t)
{
    struct workers_sync *y = (struct workers_sync *)((char *)t - offsetof(struct workers_sync, timer));
    unlink_sync(y);
    y->done(y->ctx, y->all);
    free(y);
}

struct sync_look {
    uint64_t id;
    bool waits;
};

static void look_at(struct child *c, void *ctx)
{
    struct sync_look *l = ctx;
    if (c->kind == ROLE_KIND_WORKER && c->pid > 0 && c->sync_asked >= l->id && c->sync_done < l->id)
        l->waits = true;
}

void workers_sync_look(struct supervisor *s)
{
    for (struct workers_sync *y = s->syncs; y; y = y->next) {
        struct sync_look l = { y->id, false };
        if (y->all)
            continue;
        children_each(s, look_at, &l);
        if (l.waits)
            continue;
        y->all = true;
        timer_set(s->loop, &y->timer, 0);
    }
}

static void ask(struct child *c, void *ctx)
{
    const struct workers_sync *y = ctx;
    if (c->kind == ROLE_KIND_WORKER && c->pid > 0)
        child_sync(c, y->id);
}

uint64_t workers_sync(struct supervisor *s, uint64_t deadline_ms, void (*done)(void *ctx, bool all), void *ctx)
{
    struct workers_sync *y = calloc(1, sizeof *y);
    MUST(y);
    *y = (struct workers_sync) { .next = s->syncs, .s = s, .id = ++s->next_id, .done = done, .ctx = ctx };
    y->timer.cb = on_time;
    timer_set(s->loop, &y->timer, deadline_ms);
    s->syncs = y;
    children_each(s, ask, y);
    workers_sync_look(s);
    return y->id;
}

void workers_sync_forget(struct supervisor *s, const void *ctx)
{
    for (struct workers_sync *y = s->syncs, *next; y; y = next) {
        next = y->next;
        if (y->ctx != ctx)
            continue;
        unlink_sync(y);
        free(y);
    }
}
