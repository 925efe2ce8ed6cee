/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: how many bits each agent has sent to each zone by names, and whether so many more may go. Accounts are leaky
 * buckets in units of 1/24 bit (name_cost.h): one for an (agent, zone), one for an (agent, public zone above) of
 * zones under private suffixes, four times as large, one for an agent over all unapproved zones, one for new such zones
 * an hour, and one for an agent over all zones that an operator let through without writing them. An event is asked for before it happens: all accounts have room and are charged, or none is. So no
 * account ever holds more than its bits, and in no time span more passes it than bits plus what was refilled in that
 * time.
 *
 * A name seen before costs the choice among the names seen in that zone (dns/seen.h).
 *
 * Bounded: 8,192 zones, of which an agent has its share (base/fair.h). Past it a new zone takes the place of one of the
 * agent's own; where eight probed places are taken, that of a zone of the agent that has the most of those; the least
 * spent one each time. What it had spent becomes the level at which every zone begins that its agent has not in the
 * table: nothing is won by pushing a zone out. An agent that has nothing spent anywhere leaves its place to one that has
 * none; agents past BUDGET_AGENTS share accounts.
 *
 * Time is the time that this process saw pass (monotonic), kept with the state: no leap of the wall clock is seen, and
 * a machine that was off refills nothing. Nothing here allocates after budget_new, and nothing is I/O: budget_state.h
 * turns it into bytes and back. */
#ifndef DNS_BUDGET_H
#define DNS_BUDGET_H

#include "base/err.h"
#include "base/str.h"

enum { BUDGET_ZONES = 8192, BUDGET_AGENTS = 1024, BUDGET_PROBES = 8, BUDGET_ABOVE = 4 /* times a zone's bits */ };
/* A day's bits and a bucket are at most this many. */
enum { BUDGET_BITS_MAX = 1 << 22 };

struct budget_limits {
    uint32_t bits, refill;             /* of a zone: at once, and a day */
    uint32_t agent_bits, agent_refill; /* of an agent over all unapproved zones */
    uint32_t zones;                    /* new unapproved ones an hour */
    uint32_t any_bits, any_refill;     /* of an agent over all zones of budget_event.any */
    uint32_t unsaved; /* bits that may be out and in no saved state: what a crash may lose, and is charged after it */
};
/* 1,024 and 1,024; 8,192 and 8,192; 64; 65,536 and 65,536; 128. */
void budget_limits_default(struct budget_limits *l);

struct budget;
/* Empty. now_ms: clock_mono_ms. NULL when out of memory or a limit is past BUDGET_BITS_MAX. */
struct budget *budget_new(const struct budget_limits *l, uint64_t now_ms, struct err *err);
void budget_free(struct budget **b);
/* The next event is held against the new ones. The first ones after a state was loaded also bound what that charged for a
 * crash: no account is past its end. 0, or -1: past BUDGET_BITS_MAX. */
int budget_set_limits(struct budget *b, const struct budget_limits *l, struct err *err);

struct budget_event {
    struct str agent, name; /* canonical; the key is the whole name */
    struct str zone, above; /* of zone.h */
    unsigned in_zone;       /* what the labels before the zone cost */
    unsigned in_above;      /* ... before the zone above, where there is one */
    unsigned naming;        /* what the zone's own labels cost, for the agent's account, when it is new to it */
    unsigned each;          /* of every event, besides */
    bool approved;          /* by a rule: the agent's account and new zones are not asked */
    bool any;               /* ... that does not write the zone: "*", or a suffix above it. A new name is charged to that account */
    bool free_seen;         /* a name that the zone has seen costs nothing */
    bool hold;              /* nothing can be saved: what would have to wait for that is not charged */
};

enum budget_verdict { BUDGET_OK = 0, BUDGET_ZONE_SPENT, BUDGET_ABOVE_SPENT, BUDGET_AGENT_SPENT, BUDGET_NEW_ZONES, BUDGET_HELD, BUDGET_ANY_SPENT };
struct budget_account {
    uint64_t cost;          /* of this event, units */
    uint64_t charged;       /* the most of any account; 0: nothing was spent */
    uint64_t before, limit; /* units: spent before the event; at most */
    unsigned names;         /* seen in the zone, this one included */
    enum budget_verdict of; /* whose it is, by what it is called when it is spent */
};
/* ret: the account that had no room, or the fullest of those charged by its share. */
enum budget_verdict budget_charge(struct budget *b, const struct budget_event *e, uint64_t now_ms,
                                  struct budget_account *ret);

/* Every account that the event would be charged to, the zone's first, with what it would cost there; nothing is charged. Of
 * BUDGET_NEW_ZONES a zone counts as a bit. Returns how many. */
enum { BUDGET_ACCOUNTS = 5 };
size_t budget_accounts(struct budget *b, const struct budget_event *e, uint64_t now_ms, struct budget_account ret[BUDGET_ACCOUNTS]);

/* Bits spent now, rounded up, of what is in the table; for tests and the operator. */
uint32_t budget_spent(const struct budget *b, struct str agent, struct str zone, uint64_t now_ms);
uint32_t budget_agent_spent(const struct budget *b, struct str agent, uint64_t now_ms);
uint32_t budget_any_spent(const struct budget *b, struct str agent, uint64_t now_ms);
/* Units charged that no file has: since budget_state_put, and before it until budget_kept says what came of those bytes. */
uint64_t budget_unsaved(const struct budget *b);
/* Is that more than may be? Then the state is saved before what was charged last leaves; where it cannot be saved, that
 * must not leave. */
bool budget_must_save(const struct budget *b);
/* ... or half of it: time to save before somebody has to wait. */
bool budget_should_save(const struct budget *b);
/* The bytes of the last budget_state_put are in the file; or they are not, and what they had is as unsaved as before. */
void budget_kept(struct budget *b, bool kept);
/* What is in the file says that nothing more was charged, or nothing at all: it must be saved before anything is. */
void budget_owe(struct budget *b);
size_t budget_bytes(void);

#endif
