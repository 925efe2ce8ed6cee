/* SPDX-License-Identifier: Apache-2.0
 *
 * A pattern is literals l[0..m) with a gap before each and one at the end: none, within a segment (`*`) or across
 * (`**`). State i of the automaton means "the first i literals are matched"; a gap keeps its state alive on every byte
 * it may swallow. All states are bits of a few words, so one byte of the path costs a handful of instructions. */
#include "policy/path_pattern.h"

enum { WORDS_MAX = (PATH_PATTERN_MAX + 64) / 64 };

static bool unreserved(unsigned char c)
{
    return ascii_alpha((char)c) || ascii_digit((char)c) || c == '-' || c == '.' || c == '_' || c == '~';
}

/* Bytes of a path in the form in which they are compared. */
struct cursor {
    struct str rest;
    char pending[2]; /* the two hex digits of an escape that stays one */
    unsigned npending;
    bool nocase; /* letters come out in lower case */
};

static bool cursor_raw(struct cursor *c, char *ret)
{
    if (c->npending) {
        *ret = c->pending[2 - c->npending--];
        return true;
    }
    if (!c->rest.n)
        return false;
    char b = c->rest.p[0];
    if (b == '%' && c->rest.n >= 3 && ascii_hex(c->rest.p[1]) >= 0 && ascii_hex(c->rest.p[2]) >= 0) {
        static const char upper[] = "0123456789ABCDEF";
        unsigned hi = (unsigned)ascii_hex(c->rest.p[1]), lo = (unsigned)ascii_hex(c->rest.p[2]);
        c->rest = str_from(c->rest, 3);
        if (unreserved((unsigned char)(hi << 4 | lo))) {
            *ret = (char)(hi << 4 | lo);
            return true;
        }
        c->pending[0] = upper[hi];
        c->pending[1] = upper[lo];
        c->npending = 2;
        *ret = '%';
        return true;
    }
    c->rest = str_from(c->rest, 1);
    *ret = b;
    return true;
}

static bool cursor_next(struct cursor *c, char *ret)
{
    if (!cursor_raw(c, ret))
        return false;
    if (c->nocase)
        *ret = ascii_lower(*ret);
    return true;
}

static int bad_pattern(struct str text, struct err *err, const char *expected)
{
    char shown[100];
    return err_set(err, "expected %s, got \"%s\"", expected, str_escape(text, shown, sizeof shown));
}

static int check_bytes(struct str text, struct err *err)
{
    if (!text.n || text.p[0] != '/')
        return bad_pattern(text, err, "a path that starts with \"/\"");
    if (text.n > PATH_PATTERN_MAX)
        return bad_pattern(text, err, "a path of at most 500 bytes");
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '?' || c == '#')
            return bad_pattern(text, err, "a path without query or fragment (the query is not matched)");
        if ((unsigned char)c <= 0x20 || c == 0x7f || c == '\\')
            return bad_pattern(text, err, "a path without spaces, control characters and backslashes");
        if (c == '%' && (i + 2 >= text.n || ascii_hex(text.p[i + 1]) < 0 || ascii_hex(text.p[i + 2]) < 0))
            return bad_pattern(text, err, "two hex digits after \"%\"");
    }
    if (str_find(text, STR("***")) >= 0)
        return bad_pattern(text, err, "\"*\" or \"**\"");
    return 0;
}

int path_pattern_parse(struct str text, struct arena *a, struct path_pattern *ret, struct err *err)
{
    char out[PATH_PATTERN_MAX];
    size_t n = 0;
    if (check_bytes(text, err))
        return -1;
    struct cursor c = { .rest = text };
    while (n < sizeof out && cursor_next(&c, &out[n]))
        n++;
    struct str canonical = str_of(out, n), rest = canonical, segment;
    while (str_split(&rest, '/', &segment))
        if (str_eq(segment, STR(".")) || str_eq(segment, STR("..")))
            return bad_pattern(text, err, "a path without dot segments (a request with one is always refused)");
    canonical = arena_str(a, canonical);
    if (!canonical.p)
        return err_set(err, "out of memory");
    ret->text = canonical;
    return 0;
}

struct automaton {
    size_t m, words;
    uint64_t literal[256 * WORDS_MAX]; /* [byte * words]: states whose next literal it is; only 256 * words are used */
    uint64_t within[WORDS_MAX], across[WORDS_MAX];
};

static void bit_set(uint64_t *v, size_t i)
{
    v[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool automaton_make(struct automaton *a, struct str pattern, bool nocase)
{
    size_t m = 0;
    for (size_t i = 0; i < pattern.n; i++)
        m += pattern.p[i] != '*';
    if (m > PATH_PATTERN_MAX)
        return false;
    a->m = m;
    a->words = m / 64 + 1;
    memset(a->literal, 0, 256 * a->words * sizeof(uint64_t));
    memset(a->within, 0, sizeof a->within);
    memset(a->across, 0, sizeof a->across);
    size_t state = 0;
    for (size_t i = 0; i < pattern.n; i++) {
        if (pattern.p[i] != '*') {
            char c = nocase ? ascii_lower(pattern.p[i]) : pattern.p[i];
            bit_set(a->literal + (unsigned char)c * a->words, state++);
            continue;
        }
        bit_set(a->within, state);
        if (i + 1 < pattern.n && pattern.p[i + 1] == '*') {
            bit_set(a->across, state);
            i++;
        }
    }
    return true;
}

static bool automaton_run(const struct automaton *a, struct cursor *c)
{
    uint64_t live[WORDS_MAX] = { 1 };
    char byte;
    while (cursor_next(c, &byte)) {
        const uint64_t *literal = a->literal + (unsigned char)byte * a->words;
        const uint64_t *gap = byte == '/' ? a->across : a->within;
        uint64_t carry = 0, any = 0;
        for (size_t w = 0; w < a->words; w++) {
            uint64_t step = live[w] & literal[w];
            uint64_t next = step << 1 | carry | (live[w] & gap[w]);
            carry = step >> 63;
            live[w] = next;
            any |= next;
        }
        if (!any)
            return false;
    }
    return live[a->m / 64] >> (a->m % 64) & 1;
}

static bool matches(const struct path_pattern *p, struct str path, bool nocase)
{
    struct str pattern = p->text;
    struct cursor c = { .rest = path, .nocase = nocase };
    /* The literal front decides nearly always. */
    while (pattern.n && pattern.p[0] != '*') {
        char b;
        if (!cursor_next(&c, &b) || b != (nocase ? ascii_lower(pattern.p[0]) : pattern.p[0]))
            return false;
        pattern = str_from(pattern, 1);
    }
    if (!pattern.n)
        return !c.rest.n && !c.npending && p->text.n;
    if (str_eq(pattern, STR("**")))
        return true;
    struct automaton a __attribute__((uninitialized)); /* 16 KiB, of which automaton_make sets what is used */
    return automaton_make(&a, pattern, nocase) && automaton_run(&a, &c);
}

bool path_pattern_matches(const struct path_pattern *p, struct str path)
{
    return matches(p, path, false);
}

bool path_pattern_matches_nocase(const struct path_pattern *p, struct str path)
{
    return matches(p, path, true);
}

bool path_pattern_covers(const struct path_pattern *a, const struct path_pattern *b)
{
    if (str_eq(a->text, b->text))
        return true;
    if (str_find_char(b->text, '*') < 0)
        return path_pattern_matches(a, b->text);
    /* "front**" covers whatever starts with the same front. */
    if (!str_ends(a->text, STR("**")))
        return false;
    struct str front = str_sub(a->text, 0, a->text.n - 2);
    return str_find_char(front, '*') < 0 && str_starts(b->text, front);
}
