/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget's inside, shared by its files. */
#ifndef DNS_BUDGET_IMPL_H
#define DNS_BUDGET_IMPL_H

#include "dns/budget.h"
#include "dns/name_cost.h"
#include "dns/seen.h"

enum { DAY_MS = 86400000, SEARCH_MS = 60000 };

/* What was spent, as of at_ms; the rest of it is refilled from then on. */
struct spent {
    uint64_t at_ms;
    uint32_t units;
};

struct budget_zone {
    uint64_t key; /* 0: free */
    struct spent spent;
    uint32_t serial; /* part of its names' fingerprints: a zone that was pushed out comes back without them */
    uint16_t names;  /* new ones so far: at least as many as are seen */
    uint16_t agent;
    uint8_t times; /* 1, or BUDGET_ABOVE */
    bool counted;  /* among the agent's zones */
};

struct budget_agent {
    uint64_t key; /* 0: free */
    struct spent spent;
    struct spent zones;  /* new ones, in zones */
    struct spent any;
    struct spent pushed; /* where zones begin that are not in the table; of a zone that counts once */
    uint32_t known;      /* zones counted so far: at least as many as are in the table and counted */
    uint32_t places;     /* zones in the table */
};

struct budget {
    struct budget_limits limits;
    uint64_t k0, k1;
    uint64_t base_ms, from_ms;       /* now is base_ms + (monotonic - from_ms) */
    uint64_t unsaved, saving;        /* units: since the last budget_state_put; before it, and not known to be kept */
    struct spent floor, floor_agent, floor_any; /* where an agent's zones and the agent begin: what was lost of an
                                                   earlier state */
    uint32_t serial, places;         /* places: zones in the table */
    uint64_t searched_ms;            /* when an agent was looked for that has nothing spent; 0: never */
    bool overdrawn;                  /* what a crash may have lost was charged, under limits that need not be ours */
    struct seen *seen;
    struct budget_agent agents[BUDGET_AGENTS];
    struct budget_zone zones[BUDGET_ZONES];
};

/* A time before the first one would be a clock that is not monotonic: nothing has passed, then. */
static inline uint64_t budget_time(const struct budget *b, uint64_t mono_ms)
{
    return b->base_ms + (mono_ms > b->from_ms ? mono_ms - b->from_ms : 0);
}

/* Lets refill what is due; a_day: per day, in the unit of s. Never early: what is rounded off stays due. */
void budget_refill(struct spent *s, uint64_t a_day, uint64_t now);
/* Of all that follows it in a saved state (budget_state.c). */
uint64_t budget_state_checksum(struct str s);

#endif
