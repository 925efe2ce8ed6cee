/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: one thread, one epoll, level-triggered. A callback stores its result and returns to the loop or resumes its own
 * state machine; it never calls another module's callback on its stack: loop_defer does that on a fresh one. Every wait
 * has a deadline: timers are a hashed wheel with 1 ms ticks, O(1) to set and clear.
 *
 * A watch, a timer and a task live in their owner's memory. Unlink (watch_del, timer_clear, task_cancel) before freeing
 * that memory; it is safe to do so from any callback, also for another object whose event is already fetched. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

struct watch {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT or both; 0: registered, but only EPOLLERR/EPOLLHUP are reported */
    void (*cb)(struct watch *w, uint32_t revents);
    struct loop *loop; /* NULL when not registered */
    int slot;          /* the loop's */
};

struct timer {
    void (*cb)(struct timer *t);
    struct loop *loop; /* NULL when not set */
    uint64_t at_ms;
    struct timer *next, **link; /* the loop's */
};

struct task {
    void (*cb)(struct task *t);
    struct loop *loop; /* NULL when not queued */
    struct task *next, **link;
};

/* NULL when out of descriptors or memory (errno). */
struct loop *loop_new(void);
void loop_free(struct loop *l);
/* Runs until loop_stop. */
void loop_run(struct loop *l);
/* One round: waits at most max_wait_ms (UINT64_MAX: until something happens), runs what is due. */
void loop_run_once(struct loop *l, uint64_t max_wait_ms);
void loop_stop(struct loop *l);
/* Monotonic time of this round, milliseconds (read once a round). */
uint64_t loop_now_ms(const struct loop *l);
/* The number of this round. In a later one the kernel has been asked again what happened on every watch. */
uint64_t loop_round(const struct loop *l);

/* Registers w->fd with w->events; cb and fd are set by the caller. 0 or -1 (errno). */
int watch_add(struct loop *l, struct watch *w);
/* As watch_add with EPOLLEXCLUSIVE, for a listening socket shared by several processes (events = EPOLLIN). */
int watch_add_exclusive(struct loop *l, struct watch *w);
/* Changes the wanted events; no system call when nothing changes. */
void watch_set(struct watch *w, uint32_t events);
void watch_del(struct watch *w);
/* The same without a system call, where the descriptor is closed next and no other process ever had it: the kernel forgets it then. */
void watch_closing(struct watch *w);

/* (Re)sets the timer to fire once at now + after_ms. */
void timer_set(struct loop *l, struct timer *t, uint64_t after_ms);
void timer_clear(struct timer *t);

/* Runs t->cb once, after the callback that is running, in this round. Queued once however often it is asked. */
void loop_defer(struct loop *l, struct task *t);
void task_cancel(struct task *t);

#endif
