/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches are named in epoll by slot and generation, not by pointer: an event already fetched for a watch that was
 * deleted (and whose memory may be gone or reused) finds a slot that is empty or younger, and is dropped.
 *
 * Timers: a hashed wheel of 1 ms ticks, WHEEL slots; a timer further away than one turn stays in its slot until its
 * turn comes. Setting and clearing are O(1); a round looks only at the slots that time passed. To sleep, the loop needs
 * the next deadline: an occupancy bitmap over the slots gives a lower bound in a few word operations; waking up early
 * for a timer of a later turn is harmless and bounded to once a turn (8 s). */
#include "base/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { WHEEL = 8192, EVENTS = 256, WORDS = WHEEL / 64, TASK_GENERATIONS = 8 };

struct slot {
    struct watch *w;
    uint32_t generation;
    int next_free;
};

struct loop {
    int epfd;
    bool stop;
    uint64_t now_ms, wheel_ms; /* wheel_ms: every tick up to it has run */
    uint64_t round;
    struct slot *slots;
    int nslots, free_slot;
    struct task *tasks, **tasks_end;
    size_t ntimers;
    struct timer *wheel[WHEEL];
    uint64_t busy[WORDS];
};

struct loop *loop_new(void)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epfd < 0) {
        free(l);
        return NULL;
    }
    l->free_slot = -1;
    l->tasks_end = &l->tasks;
    l->now_ms = l->wheel_ms = clock_mono_ms();
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    close(l->epfd);
    free(l->slots);
    free(l);
}

uint64_t loop_now_ms(const struct loop *l)
{
    return l->now_ms;
}

uint64_t loop_round(const struct loop *l)
{
    return l->round;
}

void loop_stop(struct loop *l)
{
    l->stop = true;
}

/* --- watches --- */

static int slot_take(struct loop *l, struct watch *w)
{
    if (l->free_slot < 0) {
        int n = l->nslots ? l->nslots * 2 : 64;
        struct slot *s = realloc(l->slots, (size_t)n * sizeof *s);
        if (!s)
            return -1;
        l->slots = s;
        for (int i = n - 1; i >= l->nslots; i--) {
            s[i] = (struct slot) { .generation = 1, .next_free = l->free_slot };
            l->free_slot = i;
        }
        l->nslots = n;
    }
    int at = l->free_slot;
    l->free_slot = l->slots[at].next_free;
    l->slots[at].w = w;
    return at;
}

static void slot_give(struct loop *l, int at)
{
    l->slots[at].w = NULL;
    l->slots[at].generation++;
    l->slots[at].next_free = l->free_slot;
    l->free_slot = at;
}

static int add(struct loop *l, struct watch *w, uint32_t extra)
{
    int at = slot_take(l, w);
    if (at < 0)
        return -1;
    struct epoll_event e = { .events = w->events | extra,
                             .data.u64 = (uint64_t)l->slots[at].generation << 32 | (uint32_t)at };
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &e)) {
        slot_give(l, at);
        return -1;
    }
    w->slot = at;
    w->loop = l;
    return 0;
}

int watch_add(struct loop *l, struct watch *w)
{
    return add(l, w, 0);
}

int watch_add_exclusive(struct loop *l, struct watch *w)
{
    return add(l, w, EPOLLEXCLUSIVE);
}

void watch_set(struct watch *w, uint32_t events)
{
    if (!w->loop || w->events == events)
        return;
    struct loop *l = w->loop;
    struct epoll_event e = { .events = events,
                             .data.u64 = (uint64_t)l->slots[w->slot].generation << 32 | (uint32_t)w->slot };
    if (epoll_ctl(l->epfd, EPOLL_CTL_MOD, w->fd, &e) == 0)
        w->events = events;
}

void watch_del(struct watch *w)
{
    if (!w->loop)
        return;
    epoll_ctl(w->loop->epfd, EPOLL_CTL_DEL, w->fd, NULL);
    slot_give(w->loop, w->slot);
    w->loop = NULL;
}

void watch_closing(struct watch *w)
{
    if (!w->loop)
        return;
    slot_give(w->loop, w->slot);
    w->loop = NULL;
}

/* --- timers --- */

static void timer_link(struct loop *l, struct timer *t)
{
    size_t at = (size_t)(t->at_ms % WHEEL);
    t->next = l->wheel[at];
    t->link = &l->wheel[at];
    if (t->next)
        t->next->link = &t->next;
    l->wheel[at] = t;
    l->busy[at / 64] |= (uint64_t)1 << (at % 64);
}

static void timer_unlink(struct timer *t)
{
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
}

void timer_set(struct loop *l, struct timer *t, uint64_t after_ms)
{
    timer_clear(t);
    uint64_t at = after_ms > UINT64_MAX / 2 ? UINT64_MAX / 2 : l->now_ms + after_ms;
    t->at_ms = at > l->wheel_ms ? at : l->wheel_ms + 1;
    t->loop = l;
    l->ntimers++;
    timer_link(l, t);
}

void timer_clear(struct timer *t)
{
    if (!t->loop)
        return;
    timer_unlink(t);
    t->loop->ntimers--;
    t->loop = NULL;
}

/* Milliseconds from wheel_ms to the next occupied slot, at most WHEEL. Clears bits of slots found empty. */
static uint64_t next_busy(struct loop *l)
{
    for (uint64_t ahead = 1; ahead <= WHEEL;) {
        size_t at = (size_t)((l->wheel_ms + ahead) % WHEEL);
        uint64_t word = l->busy[at / 64] >> (at % 64);
        if (!word) {
            ahead += 64 - at % 64;
            continue;
        }
        unsigned skip = (unsigned)__builtin_ctzll(word);
        at += skip;
        ahead += skip;
        if (l->wheel[at])
            return ahead;
        l->busy[at / 64] &= ~((uint64_t)1 << (at % 64));
    }
    return WHEEL;
}

/* Runs every timer due up to now. A callback may set or clear any timer: due ones are first moved to one list. */
static void run_timers(struct loop *l)
{
    struct timer *due = NULL;
    uint64_t gap = l->now_ms - l->wheel_ms;
    if (!l->ntimers) {
        l->wheel_ms = l->now_ms;
        return;
    }
    uint64_t first = gap > WHEEL ? l->now_ms - WHEEL : l->wheel_ms;
    uint64_t target = l->now_ms;
    l->wheel_ms = first;
    while (l->wheel_ms < target) {
        uint64_t step = next_busy(l);
        if (step > target - l->wheel_ms)
            break;
        l->wheel_ms += step;
        struct timer *t = l->wheel[l->wheel_ms % WHEEL];
        while (t) {
            struct timer *next = t->next;
            if (t->at_ms <= target) {
                timer_unlink(t);
                t->next = due;
                t->link = &due;
                if (due)
                    due->link = &t->next;
                due = t;
            }
            t = next;
        }
    }
    l->wheel_ms = target;
    while (due) {
        struct timer *t = due;
        timer_clear(t);
        t->cb(t);
    }
}

/* --- tasks --- */

void loop_defer(struct loop *l, struct task *t)
{
    if (t->loop)
        return;
    t->loop = l;
    t->next = NULL;
    t->link = l->tasks_end;
    *l->tasks_end = t;
    l->tasks_end = &t->next;
}

void task_cancel(struct task *t)
{
    if (!t->loop)
        return;
    struct loop *l = t->loop;
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    else
        l->tasks_end = t->link;
    t->loop = NULL;
}

/* What tasks defer runs in this round too, but only so many generations deep: a task that defers itself because there
 * is more to do lets everybody else have a turn (the rest is the first thing of the next round, which then does not
 * wait). */
static void run_tasks(struct loop *l)
{
    for (int generation = 0; l->tasks && generation < TASK_GENERATIONS; generation++) {
        struct task mark = { .cb = NULL };
        loop_defer(l, &mark);
        for (struct task *t; mark.loop && (t = l->tasks) != &mark;) {
            task_cancel(t);
            if (t->cb) /* else the mark of a round that this one runs in, which ends here with what lay before it */
                t->cb(t);
        }
        task_cancel(&mark);
    }
}

/* --- rounds --- */

void loop_run_once(struct loop *l, uint64_t max_wait_ms)
{
    run_tasks(l);
    uint64_t wait = max_wait_ms;
    if (l->tasks)
        wait = 0;
    if (l->ntimers) {
        uint64_t due = l->wheel_ms + next_busy(l);
        uint64_t now = l->now_ms;
        uint64_t until = due > now ? due - now : 0;
        if (until < wait)
            wait = until;
    }
    int ms = wait == UINT64_MAX ? -1 : wait > 3600000 ? 3600000 : (int)wait;
    struct epoll_event ev[EVENTS] __attribute__((uninitialized)); /* 3 KiB: the kernel says how many it set */
    int n = epoll_wait(l->epfd, ev, EVENTS, ms);
    l->now_ms = clock_mono_ms();
    l->round++;
    for (int i = 0; i < n; i++) {
        uint32_t at = (uint32_t)ev[i].data.u64;
        struct slot *s = &l->slots[at];
        if (!s->w || s->generation != (uint32_t)(ev[i].data.u64 >> 32))
            continue;
        s->w->cb(s->w, ev[i].events);
        run_tasks(l);
    }
    run_timers(l);
    run_tasks(l);
}

void loop_run(struct loop *l)
{
    l->stop = false;
    while (!l->stop)
        loop_run_once(l, UINT64_MAX);
}
