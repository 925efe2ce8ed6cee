/* SPDX-License-Identifier: Apache-2.0
 *
 * fair: how much one owner may take of what many share, when nobody can say beforehand how many there will be. An owner
 * goes on while it has less than FAIR_SHARE times what is left for everybody (a dynamic threshold, as in shared packet
 * buffers). So a greedy one alone gets three quarters, two of them three sevenths each, and something is always left
 * for whoever comes next. Owners are hashes of names that an operator chose; two that fall on one place share a share.
 * Not for what an attacker can name at will. Nothing here is said to anybody: the caller refuses. */
#ifndef BASE_FAIR_H
#define BASE_FAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAIR_SHARE = 3, FAIR_PLACES = 256, FAIR_BURST_S = 10 };

/* May an owner that holds so much of `all`, of which `used` are taken, have one more? */
static inline bool fair_may(uint64_t held, uint64_t used, uint64_t all)
{
    uint64_t left = used < all ? all - used : 0;
    return held / FAIR_SHARE < left;
}

/* Places that are held for a while. Zero at first. */
struct fair_stock {
    uint64_t used, held[FAIR_PLACES];
};
/* n places of `all` (which may change between calls), or none: false. */
bool fair_take(struct fair_stock *f, uint64_t owner, uint64_t n, uint64_t all);
void fair_give(struct fair_stock *f, uint64_t owner, uint64_t n);

/* So many a second, and FAIR_BURST_S seconds' worth at once. What an owner took counts against it, less and less, for
 * about as long: alone it gets the whole rate. Zero at first: full. */
struct fair_rate {
    uint64_t milli, filled_ms;
    bool started;
    struct {
        uint64_t milli, since_ms;
    } taken[FAIR_PLACES];
};
bool fair_rate_take(struct fair_rate *f, uint64_t owner, uint64_t per_second, uint64_t now_ms);

#endif
