/* SPDX-License-Identifier: Apache-2.0
 *
 * turns: work that an outsider can make large (inflating, deflating) gets so much of a loop's round and no more; what is left waits
 * for the next one, first come, first served. Who has not waited does not go ahead of those who do. Nothing here is ever lost: a turn
 * that waits is called, unless it is cancelled. */
#ifndef BASE_TURNS_H
#define BASE_TURNS_H

#include "base/loop.h"

struct turns;
/* Zero, with cb set; embedded in what has the work. */
struct turn {
    void (*cb)(struct turn *t); /* its turn has come: it works, asks turns_may, and waits again when there is more */
    struct turns *waits;        /* NULL: it does not wait */
    struct turn *next, **link;
};

struct turns {
    struct loop *loop;
    size_t most; /* of a round; in units of the caller's */
    size_t spent;
    uint64_t round;
    struct turn *first, **end;
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
