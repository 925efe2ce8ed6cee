/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_leg: one question's stay with servers of one kind: what is asked of them, what their answers are worth, how
 * it ended. It passes from the front, which chooses the servers (upstream.c), to whoever carries it there and back. The
 * memory is the front's. A carrier ends a leg once, which queues `done`; or the front takes it away before that. */
#ifndef DNS_UPSTREAM_LEG_H
#define DNS_UPSTREAM_LEG_H

#include "dns/server_fault.h"
#include "dns/upstream.h"

enum { UPSTREAM_OWNERS = 256 };
struct upstream_leg {
    struct wire_query wire; /* as it goes out */
    size_t step;            /* the front's number for the servers to ask */
    size_t owner;           /* for whom, below UPSTREAM_OWNERS */
    struct task done;       /* cb: the front's */
    bool under_way;
    void *carrier; /* the carrier's; NULL: nothing of it is held there */

    bool lame, bad; /* a server that says "none" without proof; an answer that is malformed */
    uint16_t rcode; /* last one of a server that did not help */
    enum upstream_result result;
    struct wire_answer *answer; /* owned; of UPSTREAM_ANSWERED */
    struct server_blame *blame; /* the question's: a carrier adds the servers that did not help */
};

/* Is this packet, which repeats the question, an answer to go by? No: what was wrong with it is remembered, and another
 * server should be asked. a: written where it can be read. */
bool upstream_leg_judge(struct upstream_leg *leg, struct str packet, struct wire_answer *a);
/* Ended by an answer (taken); NULL: out of memory for it. */
void upstream_leg_answer(struct upstream_leg *leg, struct loop *l, struct wire_answer *a);
/* Ended without one to go by: what servers said that did not help is the answer, and r where none said anything. */
void upstream_leg_end(struct upstream_leg *leg, struct loop *l, enum upstream_result r);

#endif
