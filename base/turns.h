/* SPDX-License-Identifier: Apache-2.0
 *
 * turns: work that an outsider can make large (inflating, deflating) gets so much of a loop's round and no more; what is left waits
 * for the next one. Owners take turns, and what one of them has waiting is first come, first served: a thousand connections of one
 * agent do not make another's wait a thousand times as long. Who has not waited does not go ahead of those of the same owner who do; an
 * owner who has nothing waiting goes ahead of all queues, in a round that is open, by no more than that round's share: then it waits too.
 * Nothing here is ever lost: a turn that waits is called, unless it is cancelled. */
#ifndef BASE_TURNS_H
#define BASE_TURNS_H

#include "base/loop.h"

struct turns;
/* Zero, with cb set; embedded in what has the work. */
struct turn {
    void (*cb)(struct turn *t); /* its turn has come: it works, asks turns_may, and waits again when there is more */
    uint64_t owner;             /* hash of the agent's name; not changed while it waits */
    struct turns *waits;        /* NULL: it does not wait */
    struct turn *next, **link;
};

enum { TURNS_QUEUES = 64 }; /* owners whose hashes fall on one share it */
struct turn_queue {
    struct turn *first, **end;
};
struct turns {
    struct loop *loop;
    size_t most; /* of a round; in units of the caller's */
    size_t spent;
    uint64_t round;
    struct turn_queue queues[TURNS_QUEUES];
    size_t next;    /* queue that is served next */
    size_t waiting; /* in all of them */
    const struct turn *running; /* only to compare: it may be gone */
    struct task task;
};

void turns_init(struct turns *ts, struct loop *l, size_t most);
void turns_done(struct turns *ts);
/* May t work now? If not: turns_wait. */
bool turns_may(struct turns *ts, const struct turn *t);
/* It did so much. One step may go over what is left: steps are small. */
void turns_spend(struct turns *ts, size_t cost);
/* Calls t->cb in this round or a later one. Waits once, however often it is asked. */
void turns_wait(struct turns *ts, struct turn *t);
void turn_cancel(struct turn *t);

#endif
