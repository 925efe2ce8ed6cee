/* SPDX-License-Identifier: Apache-2.0
 *
 * answer_set: what is known about one name and one address family, as it came and not yet judged: every dial vets it
 * anew against its own rule and snapshot. Immutable and shared: the cache, a look-up and the dials that wait for it
 * hold references. */
#ifndef DNS_ANSWER_SET_H
#define DNS_ANSWER_SET_H

#include "policy/ip.h"

enum answer_state {
    ANSWER_NONE = 0, /* not known */
    ANSWER_ADDRESSES,
    ANSWER_NEGATIVE,  /* NXDOMAIN or no data of this type */
    ANSWER_FAILED,    /* nobody gave an answer that can be used */
    ANSWER_UNAUDITED, /* an answer came and the log could not take it: not to be used */
};

enum { ANSWER_ID = 27 };

struct answer_set {
    unsigned refs;
    enum answer_state state;
    uint16_t rcode;
    uint64_t expires_ms;    /* loop time */
    char dns_id[ANSWER_ID]; /* the look-up that brought it */
    const char *why;        /* static words for ANSWER_FAILED and ANSWER_NEGATIVE */
    char *detail;           /* of ANSWER_FAILED: which servers and why, for the log alone; owned; NULL: none, or no memory for it */
    char *alias;            /* the names that it leads through, printable; owned; NULL: none, or no memory for it */
    size_t n;
    struct ip ips[];
};

/* One reference, everything zero but the addresses. NULL when out of memory. */
struct answer_set *answer_set_new(enum answer_state state, const struct ip *ips, size_t n);
struct answer_set *answer_set_ref(struct answer_set *s);
/* NULL is fine; leaves NULL. */
void answer_set_unref(struct answer_set **s);

#endif
