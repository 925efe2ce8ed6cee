/* SPDX-License-Identifier: Apache-2.0
 *
 * stranger: client connections of which it is not known yet whose they are, in the order in which they came, by where
 * they came from. When a worker runs short of descriptors, the source with the most of them loses its oldest: whoever
 * opens connections and says nothing takes them from itself, not from others. */
#ifndef PROXY_STRANGER_H
#define PROXY_STRANGER_H

#include "policy/ip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STRANGER_PLACES = 1024 };

/* In the connection's memory. */
struct stranger {
    struct stranger *newer, *older;
    uint64_t number; /* in the order of coming; 0: in no set */
    unsigned place;
};
struct stranger_set {
    struct {
        struct stranger *newest, *oldest;
        size_t n;
    } places[STRANGER_PLACES];
    uint64_t last;
    size_t n;
};

/* source: an IPv6 one counts by its /64. For a Unix socket: no family, and the peer's uid. */
void stranger_add(struct stranger_set *set, struct stranger *s, const struct ip *source, uint64_t uid);
/* Harmless when it is in no set. */
void stranger_del(struct stranger_set *set, struct stranger *s);
/* The oldest of the source that has the most (of several such: the one that came first). NULL: there are fewer than
 * two, so that whoever came last is not turned away for another. */
struct stranger *stranger_first_to_go(const struct stranger_set *set);

#endif
