/* SPDX-License-Identifier: Apache-2.0
 *
 * What is searched is brought to the form in which pieces are kept: letters and digits only, lower case. Kept are, for
 * each placeholder, itself and its base64 at three alignments. An index leads from five characters (a gram) to where
 * they stand, at every place of a placeholder and at every third of its base64; of a text every third place is looked
 * at, or every second: so any ten characters have a gram that is met, and then it is compared to both sides. Hex and
 * base32 keep their meaning without case, so there the text is decoded instead.
 *
 * Grams that many placeholders share (a fixed middle, as in some keys) are kept for the first few only: the pieces
 * around them are found by their other grams. */
#include "dns/canary.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>

enum {
    GRAM = 5,
    STRIDE64 = 3, /* of the places of base64 that are kept */
    STEP = 3,
    STEP64 = 2, /* between places of a text that are looked at */
    WHOLE = 6,  /* characters that hex or base32 must decode to */
    SPARE = 8,  /* behind each text, for gram */
    SAME_MAX = 4,
    FORMS = 4
};
static_assert(STEP <= CANARY_PIECE - GRAM + 1 && STEP64 * STRIDE64 <= CANARY_PIECE - GRAM + 1,
              "no piece is stepped over");

struct segment {
    uint32_t at, n; /* in the bytes */
    uint32_t source;
    bool base64;
};
struct slot {
    uint32_t place; /* in the bytes, plus 1; 0: free */
    uint32_t tag;
};
struct owner {
    struct str agent, credential;
};

struct canary {
    unsigned refs;
    uint64_t seed;
    char *bytes, *names;
    struct segment *segments; /* by place */
    struct owner *owners;
    struct slot *slots;
    uint64_t *filter; /* a bit for each gram: small enough to stay near, and most grams of a text end here */
    unsigned filter_shift;
    size_t nbytes, nnames, nsegments, nsources, nslots;
};

const char *canary_form_text(enum canary_form f)
{
    static const char *const texts[] = { "plain", "reversed", "hex", "base32", "base64" };
    return texts[f];
}

/* --- the form of what is kept and searched --- */

static bool is_strewn(char c)
{
    return c != '\0' && strchr(".-_+/=~: ", c) != NULL;
}

/* Letters and digits, lower case; other bytes than those that may be strewn in become NUL, which no piece has. */
static size_t normal(struct str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (ascii_alpha(c) || ascii_digit(c))
            out[n++] = c;
        else if (!is_strewn(c))
            out[n++] = '\0';
    }
    return n;
}

/* Whole groups of three bytes, as base64 without its case and its two other characters. */
static size_t normal64(struct str s, char *out)
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789--";
    size_t n = 0;
    for (size_t i = 0; i + 3 <= s.n; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)s.p[i] << 16 | (uint32_t)(unsigned char)s.p[i + 1] << 8 |
                     (uint32_t)(unsigned char)s.p[i + 2];
        for (unsigned k = 0; k < 4; k++) {
            char c = set[v >> (18 - 6 * k) & 63];
            if (c != '-')
                out[n++] = c;
        }
    }
    return n;
}

/* --- the index --- */

/* Of the lowest five of eight bytes, which are the first. Its upper bits are mixed best, and choose the filter's. */
static inline uint64_t gram_of(const struct canary *c, uint64_t eight, bool base64)
{
    static_assert(GRAM == 5, "five bytes of eight");
    return ((eight & 0xffffffffffu) ^ (uint64_t)base64 << 40 ^ c->seed) * 0x9e3779b97f4a7c15u;
}

/* At p, where eight bytes may be read: a copy of five would be put together in memory and waited for. */
static inline uint64_t gram(const struct canary *c, const char *p, bool base64)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return gram_of(c, le64toh(v), base64);
}

/* For the few that pass the filter. */
static inline uint64_t mixed(uint64_t h)
{
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}

static inline size_t place_of(const struct canary *c, uint64_t mix)
{
    return mix >> 20 & (c->nslots - 1);
}

static inline bool filter_has(const struct canary *c, uint64_t h)
{
    uint64_t bit = h >> c->filter_shift;
    return c->filter[bit / 64] >> (bit % 64) & 1;
}

static void index_put(struct canary *c, size_t place, bool base64)
{
    uint64_t h = gram(c, c->bytes + place, base64), bit = h >> c->filter_shift;
    uint32_t tag = (uint32_t)mixed(h);
    unsigned same = 0;
    size_t at = place_of(c, mixed(h));
    for (; c->slots[at].place; at = (at + 1) & (c->nslots - 1))
        if (c->slots[at].tag == tag && ++same == SAME_MAX)
            return;
    c->slots[at] = (struct slot) { .place = (uint32_t)place + 1, .tag = tag };
    c->filter[bit / 64] |= 1ull << (bit % 64);
}

static void index_segment(struct canary *c, const struct segment *s)
{
    for (size_t i = 0; i + GRAM <= s->n; i += s->base64 ? STRIDE64 : 1)
        index_put(c, s->at + i, s->base64);
}

static const struct segment *segment_of(const struct canary *c, size_t place)
{
    size_t low = 0, high = c->nsegments;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (c->segments[mid].at <= place)
            low = mid;
        else
            high = mid;
    }
    return &c->segments[low];
}

/* --- building --- */

static void add_segment(struct canary *c, size_t source, bool base64, size_t n)
{
    c->segments[c->nsegments++] =
        (struct segment) { .at = (uint32_t)c->nbytes, .n = (uint32_t)n, .source = (uint32_t)source, .base64 = base64 };
    c->nbytes += n;
}

static struct str add_name(struct canary *c, struct str s)
{
    char *at = c->names + c->nnames;
    if (s.n > 0)
        memcpy(at, s.p, s.n);
    c->nnames += s.n;
    return str_of(at, s.n);
}

static void add_source(struct canary *c, size_t i, const struct canary_source *v)
{
    struct str body = str_from(v->text, v->fixed);
    c->owners[i] = (struct owner) { .agent = add_name(c, v->agent), .credential = add_name(c, v->credential) };
    add_segment(c, i, false, normal(body, c->bytes + c->nbytes));
    for (size_t k = 0; k < 3; k++)
        add_segment(c, i, true, normal64(str_from(body, k), c->bytes + c->nbytes));
}

static void canary_delete(struct canary *c)
{
    free(c->bytes);
    free(c->names);
    free(c->segments);
    free(c->owners);
    free(c->slots);
    free(c->filter);
    free(c);
}

/* bytes: of all placeholders. */
static struct canary *allocate(size_t n, size_t names, size_t bytes)
{
    struct canary *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->refs = 1;
    c->nsources = n;
    c->bytes = malloc(5 * bytes + 16); /* each as it is, and three times its base64 of four thirds */
    c->names = malloc(names + 1);
    c->segments = calloc(n * FORMS + 1, sizeof *c->segments);
    c->owners = calloc(n + 1, sizeof *c->owners);
    if (c->bytes && c->names && c->segments && c->owners)
        return c;
    canary_delete(c);
    return NULL;
}

/* Twice as many slots as grams, at least, and eight times as many bits in the filter as slots. */
static int build_index(struct canary *c)
{
    size_t grams = 0;
    for (size_t i = 0; i < c->nsegments; i++)
        grams += c->segments[i].base64 ? c->segments[i].n / STRIDE64 + 1 : c->segments[i].n;
    for (c->nslots = 64; c->nslots < 2 * grams; c->nslots *= 2)
        ;
    c->slots = calloc(c->nslots, sizeof *c->slots);
    c->filter = calloc(c->nslots / 8, sizeof *c->filter);
    c->filter_shift = 64 - 3 - (unsigned)__builtin_ctzll(c->nslots);
    if (!c->slots || !c->filter)
        return -1;
    for (size_t i = 0; i < c->nsegments; i++)
        index_segment(c, &c->segments[i]);
    return 0;
}

struct canary *canary_new(const struct canary_source *v, size_t n, struct err *err)
{
    size_t names = 0, bytes = 0;
    if (n > CANARY_SOURCES_MAX) {
        err_set(err, "canary: expected at most %d placeholders, got %zu", CANARY_SOURCES_MAX, n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        names += v[i].agent.n + v[i].credential.n;
        bytes += v[i].text.n;
        if (v[i].text.n > CANARY_TEXT_MAX) {
            err_set(err, "canary: expected placeholders of at most %d bytes, got %zu", CANARY_TEXT_MAX, v[i].text.n);
            return NULL;
        }
    }
    struct canary *c = allocate(n, names, bytes);
    if (c) {
        rand_bytes(&c->seed, sizeof c->seed);
        for (size_t i = 0; i < n; i++)
            add_source(c, i, &v[i]);
        if (build_index(c) == 0)
            return c;
        canary_delete(c);
    }
    err_set(err, "canary: out of memory for %zu placeholders", n);
    return NULL;
}

struct canary *canary_ref(struct canary *c)
{
    MUST(c->refs > 0);
    c->refs++;
    return c;
}

void canary_unref(struct canary **cp)
{
    struct canary *c = *cp;
    *cp = NULL;
    if (c && --c->refs == 0)
        canary_delete(c);
}

size_t canary_bytes(const struct canary *c)
{
    return sizeof *c + c->nbytes + c->nnames + c->nsegments * sizeof *c->segments + c->nsources * sizeof *c->owners +
           c->nslots * (sizeof *c->slots + 1);
}

/* --- searching --- */

struct look {
    const struct canary *canary;
    struct canary_hit *hit;
};

static bool found(const struct look *l, const struct segment *s, enum canary_form form)
{
    const struct owner *o = &l->canary->owners[s->source];
    *l->hit = (struct canary_hit) { .agent = o->agent, .credential = o->credential, .form = form };
    return true;
}

/* Do at least `want` characters of text around `at` stand in the segment around `place`? */
static bool matches(const struct canary *c, const struct segment *s, size_t place, const char *text, size_t n,
                    size_t at, size_t want)
{
    size_t before = 0, after = 0;
    while (before < at && place - before > s->at && text[at - before - 1] == c->bytes[place - before - 1])
        before++;
    while (at + after < n && place + after < s->at + s->n && text[at + after] == c->bytes[place + after])
        after++;
    return before + after >= want;
}

static inline bool look_gram(const struct look *l, const char *text, size_t n, size_t at, size_t want,
                             enum canary_form form)
{
    const struct canary *c = l->canary;
    bool base64 = form == CANARY_BASE64;
    uint64_t h = gram(c, text + at, base64);
    if (!filter_has(c, h))
        return false;
    h = mixed(h);
    uint32_t tag = (uint32_t)h;
    for (size_t i = place_of(c, h); c->slots[i].place; i = (i + 1) & (c->nslots - 1)) {
        if (c->slots[i].tag != tag)
            continue;
        const struct segment *s = segment_of(c, c->slots[i].place - 1);
        if (s->base64 == base64 && matches(c, s, c->slots[i].place - 1, text, n, at, want))
            return found(l, s, form);
    }
    return false;
}

static inline bool look_text(const struct look *l, const char *text, size_t n, size_t step, enum canary_form form)
{
    if (n < CANARY_PIECE)
        return false;
    for (size_t i = 0; i + GRAM <= n; i += step)
        if (look_gram(l, text, n, i, CANARY_PIECE, form))
            return true;
    return false;
}

/* Six bytes below 128, as eight: in lower case, and whether each of them is a letter or a digit. */
static inline bool is_text(uint64_t six, uint64_t *ret_lower)
{
    const uint64_t each = 0x010101010101u, top = 0x80 * each;
    uint64_t v = six | (six & 0x40 * each) >> 1;
    uint64_t letter = (v + (0x80 - 'a') * each) & ~(v + (0x80 - 'z' - 1) * each);
    uint64_t digit = (v + (0x80 - '0') * each) & ~(v + (0x80 - '9' - 1) * each);
    *ret_lower = v;
    return ((letter | digit) & top) == top;
}

/* Six bytes that some characters decode to, the first one highest. */
static inline bool look_decoded(const struct look *l, uint64_t six, enum canary_form form)
{
    char text[WHOLE + SPARE] = { 0 };
    uint64_t v;
    static_assert(WHOLE == 6, "six bytes of eight");
    if (six & 0x808080808080u || !is_text(six, &v))
        return false;
    v = __builtin_bswap64(v << 16);
    if (!filter_has(l->canary, gram_of(l->canary, v, form == CANARY_BASE64)))
        return false;
    v = htole64(v);
    memcpy(text, &v, sizeof v);
    return look_gram(l, text, WHOLE, 0, WHOLE, form);
}

static bool look_hex(const struct look *l, const char *text, size_t n)
{
    uint64_t acc = 0;
    size_t run = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned char)text[i] - '0', letter = (unsigned char)text[i] - 'a';
        run = digit < 10 || letter < 6 ? run + 1 : 0;
        acc = acc << 4 | ((digit < 10 ? digit : letter + 10) & 15);
        if (run >= 2 * WHOLE && look_decoded(l, acc & 0xffffffffffffu, CANARY_HEX))
            return true;
    }
    return false;
}

/* Bit o: in the six bytes from bit o on, each could be a letter or a digit: none of 128 and more, and 64 or 48 is in it. */
static inline uint64_t could_be_text(uint64_t acc)
{
    uint64_t high = acc | acc >> 8, low = acc >> 6 | (acc >> 5 & acc >> 4);
    high = (high | high >> 16) | high >> 32;
    low &= low >> 8;
    low = (low & low >> 16) & low >> 32;
    return ~(high >> 7) & low;
}

/* The six bytes that end in one of the last `fresh` characters; acc holds `bits` of a run. */
static inline bool look_base32_at(const struct look *l, uint64_t acc, size_t bits, size_t fresh)
{
    if (bits < 8 * WHOLE)
        return false;
    size_t starts = bits - 8 * WHOLE + 1 < 5 * fresh ? bits - 8 * WHOLE + 1 : 5 * fresh;
    uint64_t m = could_be_text(acc) & ((1u << starts) - 1);
    while (m) { /* what came first is looked at first */
        unsigned at = 63 - (unsigned)__builtin_clzll(m);
        if (look_decoded(l, acc >> at & 0xffffffffffffu, CANARY_BASE32))
            return true;
        m ^= 1ull << at;
    }
    return false;
}

/* Three characters at a time: with them six bytes begin at fifteen places of 62 bits. */
static bool look_base32(const struct look *l, const char *text, size_t n)
{
    enum { TOGETHER = 3 };
    static_assert(8 * WHOLE + 5 * TOGETHER - 1 <= 64, "all of them are in one word");
    uint64_t acc = 0;
    size_t bits = 0, fresh = 0;
    for (size_t i = 0; i < n; i++) {
        bool letter = ascii_alpha(text[i]), digit = text[i] >= '2' && text[i] <= '7';
        if (!letter && !digit) {
            if (look_base32_at(l, acc, bits, fresh))
                return true;
            bits = fresh = 0;
            continue;
        }
        acc = acc << 5 | (uint64_t)(letter ? text[i] - 'a' : text[i] - '2' + 26);
        bits += 5;
        if (++fresh < TOGETHER)
            continue;
        if (look_base32_at(l, acc, bits, fresh))
            return true;
        fresh = 0;
    }
    return look_base32_at(l, acc, bits, fresh);
}

bool canary_find(const struct canary *c, struct str text, struct canary_hit *ret)
{
    char plain[CANARY_LOOK_MAX + SPARE], reversed[CANARY_LOOK_MAX + SPARE];
    struct look l = { .canary = c, .hit = ret };
    if (c->nsources == 0)
        return false;
    size_t n = normal(str_sub(text, 0, CANARY_LOOK_MAX), plain);
    for (size_t i = 0; i < n; i++)
        reversed[i] = plain[n - 1 - i];
    return look_text(&l, plain, n, STEP, CANARY_PLAIN) || look_text(&l, reversed, n, STEP, CANARY_REVERSED) ||
           look_hex(&l, plain, n) || look_base32(&l, plain, n) || look_text(&l, plain, n, STEP64, CANARY_BASE64);
}
