/* SPDX-License-Identifier: Apache-2.0 */
#include "base/needles_filter.h"
#include "base/needles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CLUSTERS = 8, PRE_CLUSTERS = 32 };

/* Below these chances to be passed by a position that begins nothing, four offsets are enough, and two are worth a look
 * of their own before the others. Only speed depends on them. */
#define FEW_PASS (1.0 / 1024)
#define TWO_PASS (1.0 / 128)

static enum needles_level level_limit = NEEDLES_AVX2;

void needles_limit_level(unsigned level)
{
    level_limit = level >= NEEDLES_AVX2 ? NEEDLES_AVX2 : level == NEEDLES_SSSE3 ? NEEDLES_SSSE3 : NEEDLES_PLAIN;
}

enum needles_level needles_level(void)
{
    enum needles_level has = NEEDLES_PLAIN;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        has = NEEDLES_AVX2;
    else if (__builtin_cpu_supports("ssse3"))
        has = NEEDLES_SSSE3;
#endif
    return has < level_limit ? has : level_limit;
}

unsigned needles_bloom_log2(size_t count)
{
    unsigned log2 = NEEDLES_BLOOM_LOG2;
    while (log2 < 26 && (size_t)1 << log2 < count * 32)
        log2++;
    return log2;
}

/* ---- building: clusters and offsets ---- */

/* How often the high nibble of a byte has this value in the text we expect (JSON, source, base64), of 256. The low
 * nibble is taken as even. Only speed depends on it. */
static const uint8_t high_weight[16] = { 4, 2, 44, 34, 24, 20, 74, 46, 1, 1, 1, 1, 1, 1, 1, 1 };

/* The nibbles seen at each offset in the needles of one cluster. */
struct cluster {
    uint16_t low[NEEDLES_REACH], high[NEEDLES_REACH];
    bool used;
};

/* Chance that a byte of text passes this cluster's two nibble sets at one offset. */
static double cluster_chance(uint16_t low, uint16_t high)
{
    unsigned weight = 0;
    for (unsigned bits = high; bits; bits &= bits - 1)
        weight += high_weight[__builtin_ctz(bits)];
    return (double)__builtin_popcount(low) * weight / (16.0 * 256.0);
}

/* The same for the union of two, over the first `offsets` offsets together. */
static double cluster_chance_all(const struct cluster *a, const struct cluster *b, const struct needles_filter *f,
                                 size_t offsets)
{
    double chance = 1;
    for (size_t i = 0; i < offsets; i++) {
        size_t o = f->offset[i];
        chance *= cluster_chance((uint16_t)(a->low[o] | b->low[o]), (uint16_t)(a->high[o] | b->high[o]));
    }
    return chance;
}

/* Neighbours in byte order have the most in common: runs of equal keys first, then equal shares. */
static size_t clusters_seed(struct cluster c[PRE_CLUSTERS], const struct str *v, size_t count, size_t reach)
{
    size_t keys = 1;
    for (size_t i = 1; i < count; i++)
        keys += memcmp(v[i].p, v[i - 1].p, 4) != 0;
    size_t used = 0;
    for (size_t i = 0, key = 0; i < count; i++) {
        if (i && memcmp(v[i].p, v[i - 1].p, 4) != 0)
            key++;
        size_t at = keys <= PRE_CLUSTERS ? key : key * PRE_CLUSTERS / keys;
        c[at].used = true;
        used = at + 1;
        for (size_t o = 0; o < reach; o++) {
            unsigned byte = (unsigned char)v[i].p[o];
            c[at].low[o] |= (uint16_t)(1u << (byte & 15));
            c[at].high[o] |= (uint16_t)(1u << (byte >> 4));
        }
    }
    return used;
}

/* Greedy: the offset that leaves the fewest false candidates, then the best one besides it, … */
static void offsets_choose(struct needles_filter *f, const struct cluster *c, size_t n, size_t reach)
{
    double left[PRE_CLUSTERS];
    for (size_t i = 0; i < n; i++)
        left[i] = 1;
    f->offsets = (uint8_t)(reach < NEEDLES_OFFSETS ? NEEDLES_OFFSETS_FEW : NEEDLES_OFFSETS);
    for (size_t slot = 0; slot < f->offsets; slot++) {
        size_t best = 0;
        double best_cost = (double)PRE_CLUSTERS + 1;
        for (size_t o = 0; o < reach; o++) {
            bool taken = false;
            for (size_t k = 0; k < slot; k++)
                taken |= f->offset[k] == o;
            if (taken)
                continue;
            double cost = 0;
            for (size_t i = 0; i < n; i++)
                cost += left[i] * cluster_chance(c[i].low[o], c[i].high[o]);
            if (cost < best_cost) {
                best_cost = cost;
                best = o;
            }
        }
        f->offset[slot] = best;
        for (size_t i = 0; i < n; i++)
            left[i] *= cluster_chance(c[i].low[best], c[i].high[best]);
    }
}

static double join_cost(const struct cluster *c, size_t a, size_t b, const double *own, const struct needles_filter *f)
{
    return cluster_chance_all(&c[a], &c[b], f, NEEDLES_OFFSETS_FEW) - own[a] - own[b];
}

/* Joins the two clusters whose union adds the least, until eight are left. */
static void clusters_join(struct cluster *c, size_t n, const struct needles_filter *f)
{
    if (n <= CLUSTERS)
        return;
    double own[PRE_CLUSTERS], added[PRE_CLUSTERS][PRE_CLUSTERS];
    for (size_t a = 0; a < n; a++)
        own[a] = cluster_chance_all(&c[a], &c[a], f, NEEDLES_OFFSETS_FEW);
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++)
            added[a][b] = join_cost(c, a, b, own, f);
    for (size_t left = n; left > CLUSTERS; left--) {
        size_t to = 0, from = 0;
        double best = 1e9;
        for (size_t a = 0; a < n; a++)
            for (size_t b = a + 1; b < n && c[a].used; b++)
                if (c[b].used && added[a][b] < best) {
                    best = added[a][b];
                    to = a;
                    from = b;
                }
        for (size_t o = 0; o < NEEDLES_REACH; o++) {
            c[to].low[o] |= c[from].low[o];
            c[to].high[o] |= c[from].high[o];
        }
        c[from].used = false;
        own[to] = cluster_chance_all(&c[to], &c[to], f, NEEDLES_OFFSETS_FEW);
        for (size_t k = 0; k < n; k++)
            if (c[k].used && k != to)
                added[k < to ? k : to][k < to ? to : k] = join_cost(c, to, k, own, f);
    }
}

/* How many positions of ordinary text pass the first `offsets` of them by accident. */
static double pass_chance(const struct cluster *c, size_t n, const struct needles_filter *f, size_t offsets)
{
    double chance = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].used)
            chance += cluster_chance_all(&c[i], &c[i], f, offsets);
    return chance;
}

void needles_filter_init(struct needles_filter *f, const struct str *sorted, size_t count, size_t shortest,
                         unsigned bloom_log2)
{
    struct cluster c[PRE_CLUSTERS] = { 0 };
    size_t reach = shortest < NEEDLES_REACH ? shortest : NEEDLES_REACH;
    size_t n = clusters_seed(c, sorted, count, reach);
    f->level = needles_level();
    f->key = (uint8_t)(shortest < 8 ? shortest : 8);
    f->bloom_shift = (uint8_t)(64 - bloom_log2);
    offsets_choose(f, c, n, reach);
    clusters_join(c, n, f);
    if (pass_chance(c, n, f, NEEDLES_OFFSETS_FEW) < FEW_PASS)
        f->offsets = NEEDLES_OFFSETS_FEW;
    f->two_first = pass_chance(c, n, f, NEEDLES_OFFSETS_TWO) < TWO_PASS;
    f->span = f->key;
    for (size_t i = 0; i < f->offsets; i++)
        if (f->offset[i] >= f->span)
            f->span = (uint8_t)(f->offset[i] + 1);
    uint8_t bit = 1;
    for (size_t k = 0; k < n; k++) {
        if (!c[k].used)
            continue;
        for (size_t i = 0; i < f->offsets; i++)
            for (unsigned nibble = 0; nibble < 16; nibble++) {
                if (c[k].low[f->offset[i]] >> nibble & 1)
                    f->low[i][nibble] |= bit;
                if (c[k].high[f->offset[i]] >> nibble & 1)
                    f->high[i][nibble] |= bit;
            }
        bit = (uint8_t)(bit << 1);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t h = needles_mix(needles_key(sorted[i].p, f->key)) >> f->bloom_shift;
        f->bloom[h / 64] |= (uint64_t)1 << h % 64;
    }
    explicit_bzero(c, sizeof c);
}

/* ---- scanning ---- */

static inline bool bloom_has(const struct needles_filter *f, const char *p)
{
    uint64_t h = needles_mix(needles_key(p, f->key)) >> f->bloom_shift;
    return f->bloom[h / 64] >> h % 64 & 1;
}

static inline bool nibbles_fit(const struct needles_filter *f, const char *p)
{
    unsigned bits = 0xff;
    for (size_t i = 0; i < f->offsets; i++) {
        unsigned byte = (unsigned char)p[f->offset[i]];
        bits &= f->low[i][byte & 15] & f->high[i][byte >> 4];
    }
    return bits != 0;
}

static size_t next_plain(const struct needles_filter *f, const char *text, size_t at, size_t end)
{
    for (; at < end; at++)
        if (nibbles_fit(f, text + at) && bloom_has(f, text + at))
            return at;
    return end;
}

#if defined(__x86_64__)
/* Both vector scans take full blocks of start positions. The last block is moved back to end exactly at `end`, so that
 * no load passes the text: its first positions were looked at in this call already and had nothing. */

__attribute__((target("ssse3"))) static inline unsigned block_ssse3(const struct needles_filter *f, const char *p)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i bits = _mm_set1_epi8(-1);
    for (size_t i = 0; i < f->offsets; i++) {
        __m128i b = _mm_loadu_si128((const __m128i_u *)(p + f->offset[i]));
        __m128i low = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i_u *)f->low[i]), _mm_and_si128(b, nibble));
        __m128i high = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i_u *)f->high[i]),
                                        _mm_and_si128(_mm_srli_epi16(b, 4), nibble));
        bits = _mm_and_si128(bits, _mm_and_si128(low, high));
    }
    return ~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bits, _mm_setzero_si128())) & 0xffffu;
}

__attribute__((target("ssse3"))) static size_t next_ssse3(const struct needles_filter *f, const char *text, size_t at,
                                                          size_t end)
{
    enum { WIDTH = 16 };
    if (end - at < WIDTH)
        return next_plain(f, text, at, end);
    while (at < end) {
        size_t block = at + WIDTH <= end ? at : end - WIDTH;
        unsigned hits = block_ssse3(f, text + block);
        for (; hits; hits &= hits - 1) {
            size_t p = block + (size_t)__builtin_ctz(hits);
            if (bloom_has(f, text + p))
                return p;
        }
        at = block + WIDTH;
    }
    return end;
}

struct avx2_tables {
    __m256i low[NEEDLES_OFFSETS], high[NEEDLES_OFFSETS];
};

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

AVX2_INLINE __m256i block_avx2(const struct needles_filter *f, const struct avx2_tables *t, const char *p,
                               size_t offsets)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i bits = _mm256_set1_epi8(-1);
    for (size_t i = 0; i < offsets; i++) {
        __m256i b = _mm256_loadu_si256((const __m256i_u *)(p + f->offset[i]));
        __m256i low = _mm256_shuffle_epi8(t->low[i], _mm256_and_si256(b, nibble));
        __m256i high = _mm256_shuffle_epi8(t->high[i], _mm256_and_si256(_mm256_srli_epi16(b, 4), nibble));
        bits = _mm256_and_si256(bits, _mm256_and_si256(low, high));
    }
    return bits;
}

/* A block is looked at through the first `quick` offsets, and where one of its positions passes, through all of them.
 * Both are constants in the callers, so that each gets straight code. */
AVX2_INLINE size_t scan_avx2(const struct needles_filter *f, const char *text, size_t at, size_t end, size_t quick,
                             size_t offsets)
{
    enum { WIDTH = 32 };
    struct avx2_tables t __attribute__((uninitialized)); /* of 384 bytes the loop sets what is used */
    for (size_t i = 0; i < offsets; i++) {
        t.low[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)f->low[i]));
        t.high[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)f->high[i]));
    }
    while (at < end) {
        size_t block = at;
        if (at + 2 * WIDTH <= end) { /* two at once; most often both are empty */
            __m256i two =
                _mm256_or_si256(block_avx2(f, &t, text + at, quick), block_avx2(f, &t, text + at + WIDTH, quick));
            if (_mm256_testz_si256(two, two)) {
                at += 2 * WIDTH;
                continue;
            }
        } else if (at + WIDTH > end) {
            block = end - WIDTH;
        }
        __m256i bits = block_avx2(f, &t, text + block, offsets);
        unsigned hits = ~(unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, _mm256_setzero_si256()));
        for (; hits; hits &= hits - 1) {
            size_t p = block + (size_t)__builtin_ctz(hits);
            if (bloom_has(f, text + p))
                return p;
        }
        at = block + WIDTH;
    }
    return end;
}

AVX2 static size_t next_avx2(const struct needles_filter *f, const char *text, size_t at, size_t end)
{
    if (end - at < 32)
        return next_ssse3(f, text, at, end);
    if (f->two_first && f->offsets == NEEDLES_OFFSETS_FEW)
        return scan_avx2(f, text, at, end, NEEDLES_OFFSETS_TWO, NEEDLES_OFFSETS_FEW);
    if (f->offsets == NEEDLES_OFFSETS_FEW)
        return scan_avx2(f, text, at, end, NEEDLES_OFFSETS_FEW, NEEDLES_OFFSETS_FEW);
    return scan_avx2(f, text, at, end, NEEDLES_OFFSETS, NEEDLES_OFFSETS);
}
#endif

size_t needles_filter_next(const struct needles_filter *f, const char *text, size_t at, size_t end)
{
    if (at >= end)
        return end;
    if (bloom_has(f, text + at) && nibbles_fit(f, text + at)) /* a run of candidates: not worth starting the vectors */
        return at;
#if defined(__x86_64__)
    if (f->level == NEEDLES_AVX2)
        return next_avx2(f, text, at, end);
    if (f->level == NEEDLES_SSSE3)
        return next_ssse3(f, text, at, end);
#endif
    return next_plain(f, text, at, end);
}
