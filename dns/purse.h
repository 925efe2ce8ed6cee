/* SPDX-License-Identifier: Apache-2.0
 *
 * purse: what was spent on names (budget.h) survives, and no name leaves that would not be charged for after a crash. A
 * budget may have budget_limits.unsaved bits out that are in no file; a name past that waits until its charge is in it.
 * A thread writes (base/saver.h), one save at a time and limits.name_saves of them a second; what is charged meanwhile
 * waits together for the next. Names that cost nothing never wait, save one that was just charged and waits itself.
 *
 * Where a save fails or takes longer than limits.name_wait, who waits is refused, and until one succeeds nothing is
 * charged that would have to wait. */
#ifndef DNS_PURSE_H
#define DNS_PURSE_H

#include "base/limits.h"
#include "base/loop.h"
#include "dns/budget.h"
#include "policy/end.h"

struct purse;
/* b is borrowed. Nothing is kept until purse_open. */
struct purse *purse_new(struct loop *l, struct budget *b, struct err *err);
/* Before the first name: loads what was spent, and begins the first save. Takes fd. */
void purse_open(struct purse *p, int fd);
/* From now on. */
void purse_set_limits(struct purse *p, const struct limits *l);
/* Saves, within a second and a half: the supervisor ends a role two seconds after it was told to. Nobody waits any more. */
void purse_free(struct purse **p);

/* Before a charge. False: nothing that must be saved may be charged now (budget_event.hold), and these are the code and
 * static words for it. owner: hash of the agent's name. */
bool purse_ready(struct purse *p, uint64_t owner, enum end *ret_end, const char **ret_why);
/* After it. name: hash of the agent and the name; cost: 0 for one that is known. True: it waits; see purse_wait. */
bool purse_charged(struct purse *p, uint64_t owner, uint64_t name, uint64_t cost);

/* A save is under way: for tests, whose clock may not run ahead of the disk. */
bool purse_saves(const struct purse *p);

/* In the waiter's memory; zero, but for decided.cb. */
struct purse_wait {
    struct task decided; /* cb: the waiter's, on a fresh stack: `end` says */
    enum end end;        /* END_OK: it may leave */
    const char *why;     /* static */
    struct purse *purse; /* NULL: does not wait */
    struct purse_wait *next, **link;
    uint64_t save, until_ms;
};
/* For the name that was charged last, or that waits already. */
void purse_wait(struct purse *p, struct purse_wait *w);
void purse_wait_done(struct purse_wait *w);

#endif
