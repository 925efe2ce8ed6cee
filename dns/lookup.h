/* SPDX-License-Identifier: Apache-2.0
 *
 * lookup: a name's addresses, from the cache or from upstream; one look-up per name at a time, whoever waits (RFC 5452
 * section 5: many questions for one name make forging easy). Recorded in the name of who asked first, unless that is a
 * question of the DNS port that says itself what came of it (asker.tells). The families that are wanted are asked at once; each wakes
 * the waiters when it comes. How long things are kept: addresses 1 s to limits.dns_ttl_max, "none" as its SOA says
 * between 1 and 60 s (without one: 5 s), a failure 1 s. */
#ifndef DNS_LOOKUP_H
#define DNS_LOOKUP_H

#include "dns/asker.h"
#include "dns/cache.h"
#include "dns/dns_log.h"
#include "dns/upstream.h"

struct lookups;
struct lookup;

/* In the waiter's memory. */
struct lookup_wait {
    struct task changed;   /* cb: the waiter's; runs on a fresh stack after each family's answer */
    struct lookup *lookup; /* NULL: nothing more comes */
    struct lookup_wait *next, **link;
    struct answer_set *sets[FAMILIES]; /* NULL: not there yet; references */
    bool own[FAMILIES];                /* asked for this waiter, in whose name it is recorded */
};

enum lookup_result {
    LOOKUP_READY = 1, /* every set that was wanted is there */
    LOOKUP_WAITING,
    LOOKUP_UNAUDITED, /* the log cannot take the record of it: nothing left */
    LOOKUP_FAILED,    /* out of memory */
};

struct lookups *lookups_new(struct loop *l, struct dns_log *log, size_t lanes, unsigned try_ms, struct err *err);
void lookups_free(struct lookups **l);
void lookups_set_servers(struct lookups *l, const struct dns_server *v, size_t n);
void lookups_set_limits(struct lookups *l, size_t cache_max, uint64_t ttl_max_ms);
/* own: to say in the event what vetting will say; borrowed for the call of lookups' life. */
void lookups_set_own(struct lookups *l, const struct own_addresses *own);

enum { LOOKUP_V4 = 1 << FAMILY_V4, LOOKUP_V6 = 1 << FAMILY_V6 };
/* The asker has decided that the name may leave. A look-up that starts here is recorded in its name. want: LOOKUP_V4,
 * LOOKUP_V6 or both; other sets may come too. w: zero, but for changed.cb. */
enum lookup_result lookup_get(struct lookups *l, struct str name, unsigned want, struct asker *asker,
                              struct lookup_wait *w);
/* Under which dns_id the next look-up of this name is recorded, where that is known: it is kept already, or under way. Else
 * out becomes "". */
void lookup_id(struct lookups *l, struct str name, unsigned want, char out[ANSWER_ID]);
/* What is known without asking. Borrowed until the loop turns; NULL: nothing. */
const struct answer_set *lookup_known(struct lookups *l, struct str name, enum answer_family f);
/* Gives up waiting and drops the sets. The look-up itself goes on, for the cache and the record. */
void lookup_wait_done(struct lookup_wait *w);

/* For questions that are neither A nor AAAA: not kept, not joined, not recorded here. Borrowed. */
struct upstream *lookups_upstream(struct lookups *l);
void lookups_stats(const struct lookups *l, struct upstream_stats *ret_upstream, size_t *ret_cached);

#endif
