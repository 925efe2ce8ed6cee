/* SPDX-License-Identifier: Apache-2.0
 *
 * needles_filter: which positions of a text may begin a needle at all. Internal to needles (nobody else includes it).
 * Two sieves, one after the other, neither of which ever loses a true start:
 *
 *   1. Four bytes of every needle, at the four offsets that tell best (not always the first: a shared "sk-" says
 * little), looked up by nibble in 16-byte tables, 16 or 32 positions at a time; each of the 8 bits of a table is one
 * cluster of similar needles. This is the "Teddy" of Hyperscan (Wang et al., NSDI 2019).
 *   2. One bit of a bitmap, chosen by a hash of the first `key` bytes (8 where every needle has as many).
 *
 * The plain C scan computes the same bits from the same tables, so all levels stop at the same positions. */
#ifndef BASE_NEEDLES_FILTER_H
#define BASE_NEEDLES_FILTER_H

#include "base/str.h"

enum {
    NEEDLES_OFFSETS_TWO = 2,
    NEEDLES_OFFSETS_FEW = 4,
    NEEDLES_OFFSETS = 6,
    NEEDLES_REACH = 12,      /* offsets are chosen among the first so many bytes */
    NEEDLES_BLOOM_LOG2 = 12, /* smallest bitmap, in bits */
};

enum needles_level { NEEDLES_PLAIN, NEEDLES_SSSE3, NEEDLES_AVX2 };

struct needles_filter {
    enum needles_level level;
    uint8_t key;  /* bytes hashed: 4 to 8 */
    uint8_t span; /* bytes of text a position must have after it to be looked at: covers key and offsets */
    uint8_t bloom_shift;
    uint8_t offsets; /* how many are looked at: NEEDLES_OFFSETS_FEW or NEEDLES_OFFSETS */
    bool two_first;  /* the first two rule out so much that the others are only looked at behind them */
    size_t offset[NEEDLES_OFFSETS];
    uint64_t *bloom; /* the owner's memory, zeroed, 2^(64 - bloom_shift) bits */
    uint8_t low[NEEDLES_OFFSETS][16], high[NEEDLES_OFFSETS][16];
};

/* The first `key` (4 to 8) bytes at p as one number: equal numbers, equal bytes. */
static inline uint64_t needles_key(const char *p, size_t key)
{
    uint32_t a, b;
    memcpy(&a, p, 4);
    memcpy(&b, p + key - 4, 4);
    return (uint64_t)b << 32 | a;
}

static inline uint64_t needles_mix(uint64_t key)
{
    return (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
}

/* What the processor has (and needles_limit_level allows). */
enum needles_level needles_level(void);
/* log2 of the bitmap's bits for so many needles. */
unsigned needles_bloom_log2(size_t count);
/* Fills f from needles sorted by bytes, each at least `shortest` (4 or more) long, count at least 1. f->bloom is set.
 */
void needles_filter_init(struct needles_filter *f, const struct str *sorted, size_t count, size_t shortest,
                         unsigned bloom_log2);
/* First position in [at, end) that may begin a needle, or end. text has at least end - 1 + f->span bytes. */
size_t needles_filter_next(const struct needles_filter *f, const char *text, size_t at, size_t end);

#endif
