/* SPDX-License-Identifier: Apache-2.0 */
#include "base/turns.h"

static bool is_open(struct turns *ts)
{
    uint64_t now = loop_round(ts->loop);
    if (ts->round != now) {
        ts->round = now;
        ts->spent = 0;
    }
    return ts->spent < ts->most;
}

static void on_task(struct task *task)
{
    struct turns *ts = (struct turns *)((char *)task - offsetof(struct turns, task));
    while (ts->first && is_open(ts)) {
        struct turn *t = ts->first;
        turn_cancel(t);
        ts->running = t;
        t->cb(t);
        ts->running = NULL;
    }
    if (ts->first)
        loop_defer(ts->loop, &ts->task);
}

void turns_init(struct turns *ts, struct loop *l, size_t most)
{
    *ts = (struct turns) { .loop = l, .most = most, .task = { .cb = on_task } };
    ts->end = &ts->first;
}

void turns_done(struct turns *ts)
{
    task_cancel(&ts->task);
}

bool turns_may(struct turns *ts, const struct turn *t)
{
    return (!ts->first || ts->running == t) && is_open(ts);
}

void turns_spend(struct turns *ts, size_t cost)
{
    (void)is_open(ts);
    ts->spent += cost;
}

void turns_wait(struct turns *ts, struct turn *t)
{
    if (t->waits)
        return;
    t->waits = ts;
    t->next = NULL;
    t->link = ts->end;
    *ts->end = t;
    ts->end = &t->next;
    loop_defer(ts->loop, &ts->task);
}

void turn_cancel(struct turn *t)
{
    struct turns *ts = t->waits;
    if (!ts)
        return;
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    else
        ts->end = t->link;
    t->waits = NULL;
}
