/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/needles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* ---- what the answers should be, the slow and obvious way ---- */

static bool naive_find(const struct needle *v, size_t n, struct str text, size_t from, struct needle_match *ret)
{
    for (size_t at = from; at < text.n; at++) {
        ptrdiff_t best = -1;
        for (size_t i = 0; i < n; i++)
            if (str_starts(str_from(text, at), v[i].bytes) && (best < 0 || v[i].bytes.n > v[best].bytes.n))
                best = (ptrdiff_t)i;
        if (best >= 0) {
            *ret = (struct needle_match) { at, v[best].bytes.n, v[best].id };
            return true;
        }
    }
    return false;
}

static size_t naive_tail(const struct needle *v, size_t n, struct str text)
{
    for (size_t r = text.n; r > 0; r--)
        for (size_t i = 0; i < n; i++)
            if (v[i].bytes.n > r && str_starts(v[i].bytes, str_from(text, text.n - r)))
                return r;
    return 0;
}

static uint64_t rng_state = 88172645463325252u;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
static size_t below(size_t n)
{
    return (size_t)(rng() % n);
}

/* Exactly n bytes in a block of their own, so that the sanitizer sees an over-read. */
static struct str exact(const char *p, size_t n)
{
    char *m = malloc(n ? n : 1);
    assert_non_null(m);
    if (n)
        memcpy(m, p, n);
    return str_of(m, n);
}
static void exact_free(struct str s)
{
    union {
        const char *c;
        char *p;
    } u = { .c = s.p };
    free(u.p);
}

static const unsigned levels[] = { 0, 1, 2 };

/* ---- tables ---- */

#define MAX 8
static const struct {
    const char *needles[MAX];
    const char *text;
    size_t from;
    bool found;
    size_t at, n;
    unsigned id; /* index of the needle */
    size_t tail;
} cases[] = {
    { { NULL }, "anything", 0, false, 0, 0, 0, 0 },
    { { "abcd" }, "", 0, false, 0, 0, 0, 0 },
    { { "abcd" }, "abc", 0, false, 0, 0, 0, 3 },
    { { "abcd" }, "abcd", 0, true, 0, 4, 0, 0 },
    { { "abcd" }, "abcd", 1, false, 0, 0, 0, 0 },
    { { "abcd" }, "ABCD", 0, false, 0, 0, 0, 0 },
    { { "abcd" }, "xxabcdxxabcda", 3, true, 8, 4, 0, 1 },
    { { "abcd", "abcdef" }, "--abcdefg", 0, true, 2, 6, 1, 0 },
    { { "abcd", "abcdef" }, "--abcdeg", 0, true, 2, 4, 0, 0 },
    { { "abcd", "abcdef" }, "--abcde", 0, true, 2, 4, 0, 5 },
    { { "abcd", "abcdef", "abcdefghij" }, "abcdefghi", 0, true, 0, 6, 1, 9 },
    { { "bcdefghi", "abcdefgh" }, "zabcdefghi", 0, true, 1, 8, 1, 0 },
    { { "aaaaaaaa", "aaaab" }, "aaaaaab", 0, true, 2, 5, 1, 0 },
    { { "same", "same" }, "the same", 0, true, 4, 4, 0, 0 },
    { { "ghp_1234567890", "ghp_1234567891", "ghs_1234567890" }, "x ghp_ghp_1234567891", 0, true, 6, 14, 1, 0 },
    { { "ghp_1234567890", "ghs_1234567890" }, "x ghp_123456789", 0, false, 0, 0, 0, 13 },
    { { "ghp_1234567890", "ghs_1234567890" }, "x ghp_123456789X", 0, false, 0, 0, 0, 0 },
    { { "0123456789abcdef0123456789abcdefZ" }, "0123456789abcdef0123456789abcdef", 0, false, 0, 0, 0, 32 },
    { { "0123456789abcdef0123456789abcdefZ" },
      "0123456789abcdef0123456789abcdef0123456789abcdefZ",
      0,
      true,
      16,
      33,
      0,
      0 },
};

static void table(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        needles_limit_level(levels[l]);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct needle v[MAX];
            size_t n = 0;
            for (; n < MAX && cases[i].needles[n]; n++)
                v[n] = (struct needle) { str_c(cases[i].needles[n]), (unsigned)n };
            struct needles *s = needles_new(v, n, false, NULL);
            assert_non_null(s);
            struct str text = exact(cases[i].text, strlen(cases[i].text));
            struct needle_match m = { 99, 99, 99 };
            bool found = needles_find(s, text, cases[i].from, &m);
            if (found != cases[i].found)
                fail_msg("case %zu: found %d", i, found);
            if (found && (m.at != cases[i].at || m.n != cases[i].n || m.id != cases[i].id))
                fail_msg("case %zu: at %zu n %zu id %u", i, m.at, m.n, m.id);
            if (!found)
                assert_int_equal(m.at, 99); /* untouched */
            /* the table says what is expected of the tail; the naive code must agree, so that it can be trusted below
             */
            size_t tail = needles_tail(s, text), naive = naive_tail(v, n, text);
            if (tail != naive)
                fail_msg("case %zu: tail %zu, naive %zu", i, tail, naive);
            if (tail != cases[i].tail)
                fail_msg("case %zu: tail %zu", i, tail);
            exact_free(text);
            needles_unref(&s);
            assert_null(s);
        }
    }
    needles_limit_level(2);
}

static void refused_sets(void **state)
{
    (void)state;
    struct err err;
    char *big = calloc(65537, 1);
    assert_non_null(big);
    const struct {
        struct str s;
        bool fine;
    } t[] = {
        { STR(""), false },    { STR("a"), false },          { STR("abc"), false },
        { STR("abcd"), true }, { str_of(big, 65536), true }, { str_of(big, 65537), false },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct needle v[2] = { { STR("control"), 0 }, { t[i].s, 1 } };
        struct needles *s = needles_new(v, 2, i % 2, &err);
        if ((s != NULL) != t[i].fine)
            fail_msg("needle of %zu bytes", t[i].s.n);
        needles_unref(&s);
    }
    /* the words never hold a needle's bytes */
    struct needle v[1] = { { STR("abc"), 0 } };
    assert_null(needles_new(v, 1, true, &err));
    assert_null(strstr(err.text, "abc"));
    free(big);
}

static void references(void **state)
{
    (void)state;
    struct needle v[1] = { { STR("secretvalue"), 7 } };
    struct needles *a = needles_new(v, 1, true, NULL), *b = needles_ref(a);
    needles_unref(&a);
    struct needle_match m;
    assert_true(needles_find(b, STR("a secretvalue"), 0, &m));
    assert_int_equal(m.id, 7);
    needles_unref(&b);
    needles_unref(&b);
    assert_null(needles_ref(NULL));
    assert_int_equal(needles_longest(NULL), 0);
    assert_false(needles_find(NULL, STR("x"), 0, &m));
    assert_int_equal(needles_tail(NULL, STR("x")), 0);
}

/* ---- properties ---- */

/* Random needles over a small alphabet, many sharing prefixes with others and occurring in the text. */
static size_t random_needles(struct needle *v, size_t max, char *store, size_t longest, size_t alphabet)
{
    size_t n = 1 + below(max), used = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = 4 + below(below(3) ? 14 : longest - 3);
        char *p = store + used;
        size_t keep = i && below(2) ? below(v[i - 1].bytes.n + 1) : 0;
        for (size_t k = 0; k < len; k++)
            p[k] = k < keep ? v[i - 1].bytes.p[k] : (char)("ab_9xyzQ\0\xff"[below(alphabet)]);
        used += len;
        v[i] = (struct needle) { str_of(p, len), (unsigned)i };
    }
    return n;
}

static size_t random_text(char *text, size_t max, const struct needle *v, size_t n, size_t alphabet)
{
    size_t len = below(max);
    for (size_t i = 0; i < len;) {
        if (below(4) == 0) { /* a needle, or most of one */
            const struct needle *x = &v[below(n)];
            size_t part = below(2) ? x->bytes.n : below(x->bytes.n);
            for (size_t k = 0; k < part && i < len; k++)
                text[i++] = x->bytes.p[k];
        } else {
            text[i++] = (char)("ab_9xyzQ\0\xff"[below(alphabet)]);
        }
    }
    return len;
}

static void same_as_naive(void **state)
{
    (void)state;
    static char store[64 * 128], text[700];
    struct needle v[40];
    size_t found_some = 0, tails = 0;
    for (int round = 0; round < 4000; round++) {
        needles_limit_level(levels[round % 3]);
        size_t alphabet = 1 + below(10);
        size_t n = random_needles(v, round % 2 ? 39 : 3, store, 100, alphabet);
        struct needles *s = needles_new(v, n, round % 5 == 0, NULL);
        assert_non_null(s);
        struct str t = exact(text, random_text(text, sizeof text, v, n, alphabet));
        size_t from = 0;
        for (int k = 0; k < 20; k++) {
            struct needle_match a = { 0 }, b = { 0 };
            bool fa = needles_find(s, t, from, &a), fb = naive_find(v, n, t, from, &b);
            if (fa != fb || a.at != b.at || a.n != b.n)
                fail_msg("round %d from %zu: %d at %zu n %zu, naive %d at %zu n %zu", round, from, fa, a.at, a.n, fb,
                         b.at, b.n);
            if (fa && !str_eq(v[a.id].bytes, v[b.id].bytes))
                fail_msg("round %d: id %u, naive %u", round, a.id, b.id);
            if (!fa)
                break;
            found_some++;
            from = a.at + (below(2) ? a.n : 1);
        }
        for (size_t cut = t.n; cut + 20 > t.n; cut--) {
            size_t a = needles_tail(s, str_sub(t, 0, cut)), b = naive_tail(v, n, str_sub(t, 0, cut));
            if (a != b)
                fail_msg("round %d cut %zu: tail %zu, naive %zu", round, cut, a, b);
            tails += a > 0;
            if (!cut)
                break;
        }
        exact_free(t);
        needles_unref(&s);
    }
    needles_limit_level(2);
    assert_true(found_some > 10000 && tails > 10000); /* else the texts were too dull to prove anything */
}

/* What a stream user does: replace each match by '#', hold back the tail. Any split must give what one piece gives. */
static void stream_feed(const struct needles *s, struct buf *held, struct str in, bool last, struct buf *out)
{
    buf_put(held, in);
    struct str t = buf_str(held);
    size_t at = 0, limit = last ? t.n : t.n - needles_tail(s, t);
    struct needle_match m;
    while (needles_find(s, t, at, &m) && m.at < limit) {
        buf_put(out, str_sub(t, at, m.at - at));
        buf_putc(out, '#');
        at = m.at + m.n;
    }
    size_t keep_from = at > limit ? at : limit;
    buf_put(out, str_sub(t, at, keep_from - at));
    buf_consume(held, keep_from);
}

static void every_split(void **state)
{
    (void)state;
    static char store[64 * 128], text[200];
    struct needle v[12];
    struct buf held, out, whole;
    buf_init(&held, 4096);
    buf_init(&out, 4096);
    buf_init(&whole, 4096);
    for (int round = 0; round < 300; round++) {
        /* no needle may begin with another here: holding back for the longer one is the user's choice, not the set's */
        size_t n = 0;
        for (; n < 10; n++) {
            size_t len = 8 + below(20);
            char *p = store + n * 64;
            p[0] = (char)('A' + n);
            for (size_t k = 1; k < len; k++)
                p[k] = (char)("xy"[below(2)]);
            v[n] = (struct needle) { str_of(p, len), (unsigned)n };
        }
        struct needles *s = needles_new(v, n, false, NULL);
        struct str t = str_of(text, random_text(text, sizeof text, v, n, 8));
        buf_reset(&whole);
        stream_feed(s, &held, t, true, &whole);
        for (size_t cut = 0; cut <= t.n; cut++) {
            buf_reset(&out);
            stream_feed(s, &held, str_sub(t, 0, cut), false, &out);
            stream_feed(s, &held, str_from(t, cut), true, &out);
            if (!str_eq(buf_str(&out), buf_str(&whole)))
                fail_msg("round %d, cut at %zu", round, cut);
        }
        buf_reset(&out);
        for (size_t i = 0; i < t.n; i++)
            stream_feed(s, &held, str_sub(t, i, 1), false, &out);
        stream_feed(s, &held, STR_NONE, true, &out);
        assert_true(str_eq(buf_str(&out), buf_str(&whole)));
        needles_unref(&s);
    }
    buf_done(&held);
    buf_done(&out);
    buf_done(&whole);
}

static void thousands(void **state)
{
    (void)state;
    enum { N = 3000, LEN = 40 };
    char *store = malloc((size_t)N * LEN);
    struct needle *v = calloc(N, sizeof *v);
    assert_true(store && v);
    for (size_t i = 0; i < N; i++) {
        char *p = store + i * LEN;
        memcpy(p, "ghp_", 4);
        for (size_t k = 4; k < LEN; k++)
            p[k] = "abcdefghijklmnopqrstuvwxyz234567"[below(32)];
        v[i] = (struct needle) { str_of(p, LEN), (unsigned)i };
    }
    struct needles *s = needles_new(v, N, true, NULL);
    assert_non_null(s);
    assert_int_equal(needles_longest(s), LEN);
    char text[200];
    for (size_t i = 0; i < N; i++) {
        memset(text, '.', sizeof text);
        size_t at = below(sizeof text - LEN);
        memcpy(text + at, v[i].bytes.p, LEN);
        struct needle_match m;
        assert_true(needles_find(s, str_of(text, sizeof text), 0, &m));
        assert_int_equal(m.at, at);
        assert_int_equal(m.id, i);
        assert_int_equal(needles_tail(s, str_of(text, at + 17)), 17);
        text[at + LEN - 1] ^= 1; /* control: one bit away is no match (but for the rare neighbour) */
        assert_false(needles_find(s, str_of(text, sizeof text), 0, &m) && m.id == i);
    }
    needles_unref(&s);
    free(store);
    free(v);
}

/* ---- worst input stays linear ---- */

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void worst_input(void **state)
{
    (void)state;
    enum { TEXT = 1 << 20, LONG = 65536 };
    char *text = malloc(TEXT), *a = malloc(LONG), *b = malloc(LONG), *c = malloc(LONG);
    assert_true(text && a && b && c);
    memset(a, 'a', LONG);
    a[LONG - 1] = 'b'; /* aaaa…ab */
    for (size_t i = 0; i < LONG; i++)
        b[i] = "ab"[i % 2];
    b[LONG - 1] = '!';
    memset(c, 'a', LONG);
    c[LONG / 2] = 'X';
    const struct needle v[] = {
        { str_of(a, LONG), 0 }, { str_of(b, LONG), 1 }, { str_of(c, LONG), 2 }, { STR("Zaaaaaaac"), 3 }
    };
    struct needles *s = needles_new(v, 4, false, NULL);
    assert_non_null(s);
    const char *const patterns[] = { "a", "ab", "aaaaaaaaaaaaaaab", "Zaaaaaaa" };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        size_t plen = strlen(patterns[i]);
        for (size_t k = 0; k < TEXT; k++)
            text[k] = patterns[i][k % plen];
        double start = cpu_ms();
        struct needle_match m;
        assert_false(needles_find(s, str_of(text, TEXT), 0, &m));
        size_t tail = needles_tail(s, str_of(text, TEXT));
        text[TEXT - 1] = '?';
        size_t tail_none = needles_tail(s, str_of(text, TEXT));
        double ms = cpu_ms() - start;
        assert_int_equal(tail_none, 0);
        if (i == 0)
            assert_int_equal(tail, LONG - 1);
#ifdef OUTGATE_SANITIZE
        assert_true(ms < 2000);
#else
        assert_true(ms < 100); /* 1 MiB of find and two tails; 50 ms on an idle machine */
#endif
        /* control: the slow way still finds what is there, in its place */
        memcpy(text + TEXT - LONG - 5, a, LONG);
        assert_true(needles_find(s, str_of(text, TEXT), 0, &m));
        assert_int_equal(m.id, 0);
        assert_true(m.at <= TEXT - LONG - 5 && m.at + LONG >= TEXT - 5);
        assert_memory_equal(text + m.at, a, LONG);
    }
    needles_unref(&s);
    free(text);
    free(a);
    free(b);
    free(c);
}

/* The slow way against the naive one: needles that repeat themselves, of a size where the budget is passed soon; one
 * begins with another, and one is of another group. */
static void slow_same_as_naive(void **state)
{
    (void)state;
    enum { TEXT = 24 * 1024, LONG = 6000, N = 5 };
    char *text = malloc(TEXT), *store = malloc((size_t)N * LONG);
    assert_true(text && store);
    for (int round = 0; round < 40; round++) {
        struct needle v[N];
        size_t base = 2500 + below(500);
        const size_t lens[N] = { base, base + 2 + below(50), base + 500, LONG - below(3000), 12 };
        for (size_t i = 0; i < N; i++) {
            char *p = store + i * LONG;
            memset(p, 'a', lens[i]);
            if (i == 4)
                p[1 + below(2)] = 'b'; /* also occurs inside v[1] */
            else if (i >= 2)
                p[lens[i] - 1 - below(40)] = (char)('b' + i);
            else
                p[base - 1] = 'b'; /* v[1] is v[0] and more */
            if (i == 1)
                p[lens[i] - 1] = 'c';
            v[(i + (size_t)round) % N] = (struct needle) { str_of(p, lens[i]), (unsigned)i };
        }
        struct needles *s = needles_new(v, N, false, NULL);
        memset(text, 'a', TEXT);
        size_t last = 0;
        for (size_t k = 1 + below(3); k; k--) {
            const struct needle *x = &v[below(N)];
            size_t at = TEXT / 4 + below(TEXT / 2);
            memcpy(text + at, x->bytes.p, x->bytes.n);
            last = at + x->bytes.n;
        }
        struct str t = str_of(text, TEXT);
        for (size_t from = 0;;) {
            struct needle_match m = { 0 }, want = { 0 };
            bool found = needles_find(s, t, from, &m);
            assert_int_equal(found, naive_find(v, N, t, from, &want));
            if (m.at != want.at || m.n != want.n || m.id != want.id)
                fail_msg("round %d: at %zu n %zu id %u, naive at %zu n %zu id %u", round, m.at, m.n, m.id, want.at,
                         want.n, want.id);
            if (!found)
                break;
            from = m.at + m.n;
        }
        for (size_t cut = last, k = 0; k < 4; cut = last - below(60), k++)
            assert_int_equal(needles_tail(s, str_sub(t, 0, cut)), naive_tail(v, N, str_sub(t, 0, cut)));
        needles_unref(&s);
    }
    free(text);
    free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),         cmocka_unit_test(refused_sets),       cmocka_unit_test(references),
        cmocka_unit_test(same_as_naive), cmocka_unit_test(every_split),        cmocka_unit_test(thousands),
        cmocka_unit_test(worst_input),   cmocka_unit_test(slow_same_as_naive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
