/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket: so many at once, and so many a second after that. Zero at first: full. */
#ifndef BASE_BUCKET_H
#define BASE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    uint64_t milli; /* thousandths that are in it */
    uint64_t at_ms; /* when it was looked at last */
    bool used;
};

/* Takes one of `burst`, refilled by per_second. False: there is none. now_ms never goes back. */
static inline bool bucket_take(struct bucket *b, uint64_t burst, uint64_t per_second, uint64_t now_ms)
{
    uint64_t full = burst * 1000, gone = now_ms - b->at_ms;
    if (!b->used || gone >= full / (per_second ? per_second : 1) + 1)
        b->milli = b->used && !per_second ? b->milli : full;
    else
        b->milli += gone * per_second;
    b->milli = b->milli < full ? b->milli : full;
    b->used = true;
    b->at_ms = now_ms;
    if (b->milli < 1000)
        return false;
    b->milli -= 1000;
    return true;
}

/* Gives some back, of which it holds at most burst. */
static inline void bucket_give(struct bucket *b, uint64_t n, uint64_t burst)
{
    uint64_t full = burst * 1000;
    if (b->used)
        b->milli = n >= burst || b->milli + n * 1000 > full ? full : b->milli + n * 1000;
}

#endif
