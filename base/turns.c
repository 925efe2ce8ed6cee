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

static struct turn_queue *queue_of(struct turns *ts, const struct turn *t)
{
    return &ts->queues[t->owner % TURNS_QUEUES];
}

/* The first of the next owner that has any. */
static struct turn *next_turn(struct turns *ts)
{
    while (!ts->queues[ts->next].first)
        ts->next = (ts->next + 1) % TURNS_QUEUES;
    struct turn *t = ts->queues[ts->next].first;
    ts->next = (ts->next + 1) % TURNS_QUEUES;
    return t;
}

static void on_task(struct task *task)
{
    struct turns *ts = (struct turns *)((char *)task - offsetof(struct turns, task));
    while (ts->waiting && is_open(ts)) {
        struct turn *t = next_turn(ts);
        turn_cancel(t);
        ts->running = t;
        t->cb(t);
        ts->running = NULL;
    }
    if (ts->waiting)
        loop_defer(ts->loop, &ts->task);
}

void turns_init(struct turns *ts, struct loop *l, size_t most)
{
    *ts = (struct turns) { .loop = l, .most = most, .task = { .cb = on_task } };
    for (size_t i = 0; i < TURNS_QUEUES; i++)
        ts->queues[i].end = &ts->queues[i].first;
}

void turns_done(struct turns *ts)
{
    task_cancel(&ts->task);
}

bool turns_may(struct turns *ts, const struct turn *t)
{
    return (!queue_of(ts, t)->first || ts->running == t) && is_open(ts);
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
    struct turn_queue *q = queue_of(ts, t);
    t->waits = ts;
    t->next = NULL;
    t->link = q->end;
    *q->end = t;
    q->end = &t->next;
    ts->waiting++;
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
        queue_of(ts, t)->end = t->link;
    ts->waiting--;
    t->waits = NULL;
}
