/* SPDX-License-Identifier: Apache-2.0
 *
 * The set is an array sorted by bytes, cut into groups that share their first `key` bytes (8, or fewer where a needle
 * is shorter) and a hash table from that key to the group. needles_filter leaves few positions; at each of those one
 * binary search in one group finds the last needle that is not after the text, comparing every byte of the text at most
 * about once (both borders of the search remember how far they agree with it). Whatever of the set is a prefix of the
 * text is that needle or one that it begins with (`parent`).
 *
 * Comparing can still be quadratic for a long needle that repeats itself ("000…01") on a text that does too. So the
 * bytes compared are counted, and past a budget in proportion to the text the groups at fault are searched with
 * Knuth-Morris- Pratt for a stretch, one needle after the other. Real values never come near it. */
#include "base/needles.h"
#include "base/needles_filter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    NEEDLE_MIN = 4,
    NEEDLE_MAX = 65536,
    COUNT_MAX = 1 << 22,
    BUDGET_BASE = 128 * 1024, /* bytes compared before anyone looks at the sum: some 10 us */
    BUDGET_PER_BYTE =
        128, /* and for each byte of text passed and needle of the group (the slow way takes one by one) */
    SLOW_STRETCH = 256 * 1024,
};
#define NONE UINT32_MAX

struct entry {
    const char *p;
    uint32_t n;
    uint32_t parent; /* the longest other needle that this one begins with, or NONE */
    unsigned id;
};

struct group {
    uint64_t key;
    uint32_t first, end; /* in entries; end 0: the slot is empty */
};

struct needles {
    size_t refs, size; /* size of the whole block: this struct and all it points to */
    bool secret;
    size_t count, shortest, longest;
    struct entry *entries;
    struct group *groups; /* open addressing, 2^groups_log2 slots */
    unsigned groups_log2;
    uint16_t at_index[256]; /* bit i: some needle has this byte at index i */
    struct needles_filter filter;
};

/* ---- building ---- */

struct source {
    struct str bytes;
    unsigned id;
    size_t order;
};

static int source_cmp(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int c = str_cmp(x->bytes, y->bytes);
    return c ? c : (x->order > y->order) - (x->order < y->order);
}

/* Sorted, each byte string once (the first one given wins). */
static struct source *sources_new(const struct needle *v, size_t n, size_t *ret_count, size_t *ret_bytes,
                                  struct err *err)
{
    if (n > COUNT_MAX) {
        err_set(err, "needles: %zu in one set, at most %d are possible", n, COUNT_MAX);
        return NULL;
    }
    struct source *s = calloc(n, sizeof *s);
    if (!s) {
        err_set(err, "needles: out of memory");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (v[i].bytes.n < NEEDLE_MIN || v[i].bytes.n > NEEDLE_MAX) {
            err_set(err, "needles: number %zu has %zu bytes, expected %d to %d", i, v[i].bytes.n, NEEDLE_MIN,
                    NEEDLE_MAX);
            free(s);
            return NULL;
        }
        s[i] = (struct source) { v[i].bytes, v[i].id, i };
    }
    qsort(s, n, sizeof *s, source_cmp);
    size_t count = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (count && str_eq(s[i].bytes, s[count - 1].bytes))
            continue;
        s[count++] = s[i];
        bytes += s[i].bytes.n;
    }
    *ret_count = count;
    *ret_bytes = bytes;
    return s;
}

/* Zeroed. Secret sets: own pages, locked where the limit allows, absent from core files and children. */
static void *block_new(size_t size, bool secret)
{
    if (!secret)
        return calloc(1, size);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_DONTDUMP);
    madvise(p, size, MADV_WIPEONFORK);
    (void)mlock(p, size);
    return p;
}

static void block_free(void *p, size_t size, bool secret)
{
    if (!secret) {
        free(p);
        return;
    }
    explicit_bzero(p, size);
    munmap(p, size);
}

static uint32_t parent_of(const struct needles *s, size_t i)
{
    struct str mine = str_of(s->entries[i].p, s->entries[i].n);
    uint32_t up = i ? (uint32_t)(i - 1) : NONE;
    while (up != NONE && !str_starts(mine, str_of(s->entries[up].p, s->entries[up].n)))
        up = s->entries[up].parent;
    return up;
}

static void groups_fill(struct needles *s)
{
    size_t mask = ((size_t)1 << s->groups_log2) - 1;
    for (size_t i = 0; i < s->count;) {
        uint64_t key = needles_key(s->entries[i].p, s->filter.key);
        size_t end = i + 1;
        while (end < s->count && needles_key(s->entries[end].p, s->filter.key) == key)
            end++;
        size_t slot = needles_mix(key) >> (64 - s->groups_log2);
        while (s->groups[slot].end)
            slot = (slot + 1) & mask;
        s->groups[slot] = (struct group) { key, (uint32_t)i, (uint32_t)end };
        i = end;
    }
}

static size_t align16(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

/* One block for everything, so that there is one thing to lock and to wipe. */
static struct needles *set_new(struct source *v, size_t count, size_t bytes, bool secret)
{
    unsigned groups_log2 = 1, bloom_log2 = needles_bloom_log2(count);
    while ((size_t)1 << groups_log2 < count * 2)
        groups_log2++;
    size_t at_entries = align16(sizeof(struct needles));
    size_t at_groups = align16(at_entries + count * sizeof(struct entry));
    size_t at_bloom = align16(at_groups + (sizeof(struct group) << groups_log2));
    size_t at_bytes = at_bloom + ((size_t)1 << bloom_log2) / 8;
    char *block = block_new(at_bytes + bytes, secret);
    if (!block)
        return NULL;
    struct needles *s = (void *)block;
    *s = (struct needles) {
        .refs = 1,
        .size = at_bytes + bytes,
        .secret = secret,
        .count = count,
        .shortest = SIZE_MAX,
        .entries = (void *)(block + at_entries),
        .groups = (void *)(block + at_groups),
        .groups_log2 = groups_log2,
        .filter.bloom = (void *)(block + at_bloom),
    };
    char *p = block + at_bytes;
    for (size_t i = 0; i < count; i++) {
        struct str b = v[i].bytes;
        memcpy(p, b.p, b.n);
        s->entries[i] = (struct entry) { p, (uint32_t)b.n, NONE, v[i].id };
        s->entries[i].parent = parent_of(s, i);
        v[i].bytes.p = p;
        p += b.n;
        if (b.n < s->shortest)
            s->shortest = b.n;
        if (b.n > s->longest)
            s->longest = b.n;
        for (size_t k = 0; k < b.n && k < 16; k++)
            s->at_index[(unsigned char)b.p[k]] |= (uint16_t)(1u << k);
    }
    return s;
}

struct needles *needles_new(const struct needle *v, size_t n, bool secret, struct err *err)
{
    if (!n) {
        struct needles *s = block_new(sizeof *s, secret);
        if (!s)
            err_set(err, "needles: out of memory");
        else
            *s = (struct needles) { .refs = 1, .size = sizeof *s, .secret = secret };
        return s;
    }
    size_t count, bytes;
    struct source *sorted = sources_new(v, n, &count, &bytes, err);
    if (!sorted)
        return NULL;
    struct needles *s = set_new(sorted, count, bytes, secret);
    struct str *view = s ? calloc(count, sizeof *view) : NULL;
    if (view) {
        for (size_t i = 0; i < count; i++)
            view[i] = sorted[i].bytes;
        needles_filter_init(&s->filter, view, count, s->shortest, needles_bloom_log2(count));
        groups_fill(s);
    } else {
        err_set(err, "needles: out of memory");
        needles_unref(&s);
    }
    free(view);
    free(sorted);
    return s;
}

struct needles *needles_ref(struct needles *s)
{
    if (s)
        s->refs++;
    return s;
}

void needles_unref(struct needles **s)
{
    struct needles *gone = *s;
    *s = NULL;
    if (gone && --gone->refs == 0)
        block_free(gone, gone->size, gone->secret);
}

size_t needles_longest(const struct needles *s)
{
    return s ? s->longest : 0;
}

/* ---- searching ---- */

static const struct group *group_at(const struct needles *s, const char *p)
{
    uint64_t key = needles_key(p, s->filter.key);
    size_t mask = ((size_t)1 << s->groups_log2) - 1;
    size_t slot = needles_mix(key) >> (64 - s->groups_log2);
    for (; s->groups[slot].end; slot = (slot + 1) & mask)
        if (s->groups[slot].key == key)
            return &s->groups[slot];
    return NULL;
}

/* How many bytes e and t have in common, given that the first `from` are. */
static size_t common(const struct entry *e, struct str t, size_t from)
{
    size_t n = e->n < t.n ? e->n : t.n, i = from;
    for (; i + 8 <= n; i += 8) {
        uint64_t a, b;
        memcpy(&a, e->p + i, 8);
        memcpy(&b, t.p + i, 8);
        if (a != b)
            break;
    }
    while (i < n && e->p[i] == t.p[i])
        i++;
    return i;
}

/* Where t belongs among entries [first, end). */
struct place {
    size_t after;         /* the first entry greater than t, or end */
    size_t shared_before; /* bytes that t shares with the entry before that, 0: there is none */
    size_t shared_after;  /* and with that one, 0: there is none */
};

/* `known`: leading bytes that all these entries share with t. *work grows by what was compared. */
static struct place place_of(const struct needles *s, size_t first, size_t end, struct str t, size_t known,
                             size_t *work)
{
    struct place r = { end, 0, 0 };
    size_t low = first, shared_low = known, shared_high = known;
    while (low < r.after) {
        size_t middle = low + (r.after - low) / 2;
        size_t from = shared_low < shared_high ? shared_low : shared_high;
        const struct entry *e = &s->entries[middle];
        size_t shared = common(e, t, from);
        *work += shared - from + 16;
        bool before = shared == e->n || (shared < t.n && (unsigned char)e->p[shared] < (unsigned char)t.p[shared]);
        if (before) {
            low = middle + 1;
            shared_low = r.shared_before = shared;
        } else {
            r.after = middle;
            shared_high = r.shared_after = shared;
        }
    }
    return r;
}

static bool group_match(const struct needles *s, const struct group *g, struct str text, size_t at, size_t *work,
                        struct needle_match *ret)
{
    struct place r = place_of(s, g->first, g->end, str_from(text, at), s->filter.key, work);
    uint32_t i = r.after > g->first ? (uint32_t)(r.after - 1) : NONE;
    while (i != NONE && s->entries[i].n > r.shared_before)
        i = s->entries[i].parent;
    if (i == NONE)
        return false;
    *ret = (struct needle_match) { at, s->entries[i].n, s->entries[i].id };
    return true;
}

/* ---- the slow way, for needles that repeat themselves ---- */

struct slow {
    unsigned char *done; /* a bit per slot of the group table: searched for up to `until` */
    size_t until;
    bool failed; /* no memory: go on comparing, exact but not linear */
};

static void slow_end(struct slow *slow)
{
    free(slow->done);
    slow->done = NULL;
}

static bool slow_covers(const struct needles *s, const struct slow *slow, const struct group *g)
{
    size_t slot = (size_t)(g - s->groups);
    return slow->done && slow->done[slot / 8] >> slot % 8 & 1;
}

static bool over_budget(const struct group *g, size_t work, size_t passed)
{
    return work > BUDGET_BASE + (size_t)BUDGET_PER_BYTE * passed * (g->end - g->first);
}

static bool slow_begin(const struct needles *s, struct slow *slow, const struct group *g, size_t at)
{
    if (slow->failed)
        return false;
    if (!slow->done) {
        slow->done = calloc(((size_t)1 << s->groups_log2) / 8 + 1, 1);
        slow->until = at + SLOW_STRETCH;
        slow->failed = !slow->done;
    }
    size_t slot = (size_t)(g - s->groups);
    if (slow->done)
        slow->done[slot / 8] |= (unsigned char)(1u << slot % 8);
    return slow->done != NULL;
}

/* border[i]: the longest proper prefix of the needle that also ends its first i + 1 bytes. Owned; NULL: out of memory.
 */
static uint32_t *borders_new(const struct entry *e)
{
    uint32_t *border = calloc(e->n, sizeof *border);
    if (!border)
        return NULL;
    for (uint32_t i = 1, q = 0; i < e->n; i++) {
        while (q && e->p[i] != e->p[q])
            q = border[q - 1];
        if (e->p[i] == e->p[q])
            q++;
        border[i] = q;
    }
    return border;
}

/* Runs over t; true and *ret at the first occurrence, if it is asked for. Else *ret_state is how many bytes of the
 * needle, but not all, end t. */
static bool kmp(const struct entry *e, const uint32_t *border, struct str t, size_t *ret, uint32_t *ret_state)
{
    uint32_t q = 0;
    for (size_t i = 0; i < t.n; i++) {
        while (q && (q == e->n || e->p[q] != t.p[i]))
            q = border[q - 1];
        if (e->p[q] == t.p[i])
            q++;
        if (q == e->n && ret) {
            *ret = i + 1 - q;
            return true;
        }
    }
    *ret_state = q == e->n ? border[q - 1] : q;
    return false;
}

/* The first (then longest) occurrence of any needle of g that begins in [at, end) and before slow->until. */
static bool slow_find(const struct needles *s, struct slow *slow, const struct group *g, struct str text, size_t at,
                      size_t end, struct needle_match *ret)
{
    bool found = false;
    if (end > slow->until)
        end = slow->until;
    if (at >= end)
        return false;
    for (size_t i = g->first; i < g->end && !slow->failed; i++) {
        const struct entry *e = &s->entries[i];
        uint32_t *border = borders_new(e), state;
        size_t start;
        if (!border) {
            slow->failed = true;
        } else if (kmp(e, border, str_sub(text, at, end - at + e->n - 1), &start, &state)) {
            if (!found || at + start < ret->at || e->n > ret->n)
                *ret = (struct needle_match) { at + start, e->n, e->id };
            found = true;
            end = ret->at + 1;
        }
        free(border);
    }
    if (slow->failed)
        slow_end(slow);
    return found && !slow->failed;
}

static size_t slow_tail(const struct needles *s, struct slow *slow, const struct group *g, struct str text)
{
    size_t best = 0;
    for (size_t i = g->first; i < g->end && !slow->failed; i++) {
        const struct entry *e = &s->entries[i];
        uint32_t *border = borders_new(e), state;
        if (border)
            kmp(e, border, text, NULL, &state);
        else
            slow->failed = true;
        if (border && state > best)
            best = state;
        free(border);
    }
    if (slow->failed)
        slow_end(slow);
    return slow->failed ? 0 : best;
}

/* ---- the interface ---- */

bool needles_find(const struct needles *s, struct str text, size_t from, struct needle_match *ret)
{
    if (!s || !s->count || text.n < s->shortest || from > text.n - s->shortest)
        return false;
    struct slow slow = { 0 };
    struct needle_match m;
    bool found = false;
    size_t end = text.n - s->shortest + 1, work = 0, since = from;
    for (size_t at = from;; at++) {
        at = needles_filter_next(&s->filter, text.p, at, end);
        if (at >= end)
            break;
        const struct group *g = group_at(s, text.p + at);
        if (!g)
            continue;
        if (slow.done && at >= slow.until) {
            slow_end(&slow);
            work = 0;
            since = at;
        }
        if (slow_covers(s, &slow, g))
            continue;
        if (group_match(s, g, text, at, &work, &m)) {
            found = true;
            break;
        }
        if (over_budget(g, work, at - since) && slow_begin(s, &slow, g, at + 1) &&
            slow_find(s, &slow, g, text, at + 1, end, &m)) {
            found = true;
            end = m.at; /* only another group can be first now */
        }
    }
    slow_end(&slow);
    if (found)
        *ret = m;
    return found;
}

/* Tails shorter than what the filter needs to see. */
static size_t tail_short(const struct needles *s, struct str text)
{
    size_t most = s->filter.span - 1u, work = 0;
    unsigned bits = 0; /* bit i: each of the last i + 1 bytes is at its place in some needle */
    for (size_t at = text.n > most ? text.n - most : 0; at < text.n; at++)
        bits = (bits << 1 | 1) & s->at_index[(unsigned char)text.p[at]];
    while (bits) {
        unsigned n = 32 - (unsigned)__builtin_clz(bits);
        struct place r = place_of(s, 0, s->count, str_from(text, text.n - n), 0, &work);
        if (r.shared_after == n)
            return n;
        bits &= ~(1u << (n - 1));
    }
    return 0;
}

size_t needles_tail(const struct needles *s, struct str text)
{
    if (!s || !s->count || !text.n)
        return 0;
    struct slow slow = { 0 };
    size_t first = text.n > s->longest - 1 ? text.n - (s->longest - 1) : 0;
    size_t end = text.n >= s->filter.span ? text.n - s->filter.span + 1 : 0;
    size_t work = 0, best = 0;
    for (size_t at = first; at < end; at++) {
        at = needles_filter_next(&s->filter, text.p, at, end);
        if (at >= end)
            break;
        const struct group *g = group_at(s, text.p + at);
        if (!g || slow_covers(s, &slow, g))
            continue;
        struct str rest = str_from(text, at);
        if (place_of(s, g->first, g->end, rest, s->filter.key, &work).shared_after == rest.n) {
            best = rest.n;
            break;
        }
        if (over_budget(g, work, at - first) && slow_begin(s, &slow, g, at)) {
            size_t n = slow_tail(s, &slow, g, str_from(text, at + 1));
            best = n > best ? n : best;
            if (text.n - best < end)
                end = text.n - best; /* only a longer tail is of interest now */
        }
    }
    slow_end(&slow);
    return best >= s->filter.span ? best : tail_short(s, text);
}
