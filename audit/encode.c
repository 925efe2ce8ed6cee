/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys are cut out of fields.def once, at the first line. Strings are copied eight bytes at a time while none of
 * the eight needs an escape (SWAR), which is nearly always. */
#include "audit/encode.h"

#include "base/clock.h"
#include "base/log.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* --- numbers and strings --- */

static const char digit_pairs[201] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                     "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                     "8081828384858687888990919293949596979899";

static char *put_u64(char *out, uint64_t v)
{
    char tmp[20];
    char *p = tmp + sizeof tmp;
    for (; v >= 100; v /= 100) {
        p -= 2;
        memcpy(p, digit_pairs + v % 100 * 2, 2);
    }
    if (v >= 10) {
        p -= 2;
        memcpy(p, digit_pairs + v * 2, 2);
    } else {
        *--p = (char)('0' + v);
    }
    size_t n = (size_t)(tmp + sizeof tmp - p);
    memcpy(out, p, n);
    return out + n;
}

static char *put_bytes(char *out, const char *p, size_t n)
{
    memcpy(out, p, n);
    return out + n;
}
#define PUT(out, literal) put_bytes(out, "" literal, sizeof(literal) - 1)

static char *put_u16_escape(char *out, unsigned v)
{
    static const char hex[16] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'u';
    out[2] = hex[v >> 12 & 15];
    out[3] = hex[v >> 8 & 15];
    out[4] = hex[v >> 4 & 15];
    out[5] = hex[v & 15];
    return out + 6;
}

/* Length of the well-formed UTF-8 sequence at p (Unicode table 3-7) and its code point; 0: not one. */
static size_t utf8_at(const unsigned char *p, size_t n, uint32_t *ret)
{
    unsigned c = p[0], low = 0x80, high = 0xbf;
    size_t len = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (!len || n < len)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    if (c == 0xed)
        high = 0x9f;
    if (c == 0xf0)
        low = 0x90;
    if (c == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    uint32_t v = c & (0x7fu >> len);
    v = v << 6 | (p[1] & 0x3fu);
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3fu);
    }
    *ret = v;
    return len;
}

/* Escapes what stands at p; returns how many input bytes that was. */
static size_t put_special(char **out, const unsigned char *p, size_t n)
{
    static const char shorts[32] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r' };
    unsigned c = *p;
    uint32_t v;
    if (c < 0x80) {
        char s = c < 32 ? shorts[c] : c == 0x7f ? 0 : (char)c;
        if (!s) {
            *out = put_u16_escape(*out, c);
            return 1;
        }
        *(*out)++ = '\\';
        *(*out)++ = s;
        return 1;
    }
    size_t len = utf8_at(p, n, &v);
    if (!len) {
        *out = put_u16_escape(*out, 0xfffd);
        return 1;
    }
    if (v >= 0x10000) {
        v -= 0x10000;
        *out = put_u16_escape(*out, 0xd800 + (v >> 10));
        *out = put_u16_escape(*out, 0xdc00 + (v & 0x3ff));
    } else {
        *out = put_u16_escape(*out, v);
    }
    return len;
}

#define ONES        UINT64_C(0x0101010101010101)
#define HIGHS       UINT64_C(0x8080808080808080)
#define LESS(x, n)  (((x)-ONES * (n)) & ~(x))
#define EQUAL(x, c) LESS((x) ^ (ONES * (c)), 1)
/* A high bit in each byte of x that needs an escape; exact for the lowest one, which is all that is asked. */
#define SPECIAL(x) ((LESS(x, 0x20u) | EQUAL(x, 0x22u) | EQUAL(x, 0x5cu) | EQUAL(x, 0x7fu) | (x)) & HIGHS)

/* Copies the bytes before the first that needs an escape, at most n, and perhaps more behind them; how many. */
static size_t copy_plain(char *out, const unsigned char *p, size_t n)
{
    size_t at = 0;
#ifdef __SSE2__
    const __m128i space = _mm_set1_epi8(0x20), quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
                  del = _mm_set1_epi8(0x7f);
    for (; n - at >= 16; at += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
        _mm_storeu_si128((__m128i *)(void *)(out + at), x);
        /* signed: below a space are the controls and every byte from 0x80 up */
        __m128i special = _mm_or_si128(_mm_or_si128(_mm_cmplt_epi8(x, space), _mm_cmpeq_epi8(x, del)),
                                       _mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)));
        unsigned mask = (unsigned)_mm_movemask_epi8(special);
        if (mask)
            return at + (unsigned)__builtin_ctz(mask);
    }
#endif
    for (uint64_t x, special; at < n; at += 8) {
        size_t left = n - at;
        if (left >= 8) {
            memcpy(&x, p + at, 8);
        } else { /* the last few, without reading past them; padded with spaces */
            uint32_t low = 0, high = 0;
            if (left >= 4) {
                memcpy(&low, p + at, 4);
                memcpy(&high, p + n - 4, 4);
                x = low | (uint64_t)high << (8 * (left - 4));
            } else {
                x = p[at] | (uint64_t)p[at + left / 2] << (8 * (left / 2)) | (uint64_t)p[n - 1] << (8 * (left - 1));
            }
            x |= ONES * 0x20u << (8 * left);
        }
        memcpy(out + at, &x, 8);
        special = SPECIAL(x);
        if (special)
            return at + (size_t)__builtin_ctzll(special) / 8;
    }
    return n;
}

char *encode_string(char *out, struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p, *end = p + s.n;
    *out++ = '"';
    while (p < end) {
        size_t n = copy_plain(out, p, (size_t)(end - p));
        p += n;
        out += n;
        if (p < end)
            p += put_special(&out, p, (size_t)(end - p));
    }
    *out++ = '"';
    return out;
}

/* --- keys --- */

enum { KEY_MAX = 32 };
struct key {
    char first[KEY_MAX]; /* `,"tls":{"version":`: opens its object */
    char next[KEY_MAX];  /* `,"version":` */
    uint8_t first_n, next_n;
    uint8_t group; /* 0: not nested; else number of its object */
};
static struct key keys[FIELD_COUNT_OF];
static uint8_t clash[FIELD_COUNT_OF]; /* a plain field that bears an object's name (ms): number of that object */
static bool keys_made;

/* Always as many bytes as a key may have: a copy of constant size is two moves, one of n bytes a call. What is too much
 * is overwritten by what follows (ENCODE_LINE_MAX has the room). */
static char *put_key(char *out, const struct key *k, bool opens_object)
{
    memcpy(out, opens_object ? k->first : k->next, KEY_MAX);
    return out + (opens_object ? k->first_n : k->next_n);
}

static uint8_t key_append(char *to, size_t at, struct str s)
{
    MUST(at + s.n <= KEY_MAX);
    memcpy(to + at, s.p, s.n);
    return (uint8_t)(at + s.n);
}

static void keys_make(void)
{
    struct str groups[16];
    uint8_t ngroups = 0;
    for (size_t f = 1; f < FIELD_COUNT_OF; f++) {
        struct key *k = &keys[f];
        struct str leaf = str_c(event_fields[f].path), group = STR_NONE;
        ptrdiff_t dot = str_find_char(leaf, '.');
        if (dot >= 0) {
            group = str_sub(leaf, 0, (size_t)dot);
            leaf = str_from(leaf, (size_t)dot + 1);
            for (uint8_t g = 0; g < ngroups; g++)
                if (str_eq(groups[g], group))
                    k->group = (uint8_t)(g + 1);
            if (!k->group) {
                groups[ngroups++] = group;
                k->group = ngroups;
            }
            k->first_n = key_append(k->first, 0, STR(",\""));
            k->first_n = key_append(k->first, k->first_n, group);
            k->first_n = key_append(k->first, k->first_n, STR("\":{\""));
            k->first_n = key_append(k->first, k->first_n, leaf);
            k->first_n = key_append(k->first, k->first_n, STR("\":"));
        }
        k->next_n = key_append(k->next, 0, STR(",\""));
        k->next_n = key_append(k->next, k->next_n, leaf);
        k->next_n = key_append(k->next, k->next_n, STR("\":"));
    }
    for (size_t f = 1; f < FIELD_COUNT_OF; f++)
        for (uint8_t g = 0; g < ngroups; g++)
            if (!keys[f].group && str_eq(groups[g], str_c(event_fields[f].path)))
                clash[f] = (uint8_t)(g + 1);
    keys_made = true;
}

/* --- values --- */

static char *put_list(char *out, enum event_field f, const struct record_value *v)
{
    *out++ = '[';
    const unsigned char *p = v->p, *end = p + v->n;
    for (bool some = false; p < end;) {
        uint16_t n;
        memcpy(&n, p + 2, 2);
        if (p[0] == f && p[1] == KIND_LIST) {
            if (some)
                *out++ = ',';
            out = encode_string(out, str_of(p + 4, n));
            some = true;
        }
        p += 4 + n;
    }
    *out++ = ']';
    return out;
}

static char *put_value(char *out, enum event_field f, const struct record_value *v)
{
    struct str s = str_of(v->p, v->n);
    uint64_t u;
    switch ((enum event_kind)v->kind) {
    case KIND_STR:
        return encode_string(out, s);
    case KIND_U64:
        memcpy(&u, v->p, 8);
        return put_u64(out, u);
    case KIND_BOOL:
        return *v->p ? PUT(out, "true") : PUT(out, "false");
    case KIND_LIST:
        return put_list(out, f, v);
    case KIND_RAW:
        return encode_raw_ok(s) ? put_bytes(out, s.p, s.n) : encode_string(out, s);
    case KIND_NULL:
    case KIND_NONE:
        break;
    }
    return event_fields[f].kind == KIND_LIST ? PUT(out, "[]") : PUT(out, "null");
}

/* --- the line --- */

/* The seconds change rarely: only the six digits behind them are made each time. */
static char *put_ts(char *out, int64_t wall_us)
{
    static int64_t cached_s = -1;
    static char cached[28];
    if (wall_us < 0 || wall_us / 1000000 != cached_s) {
        clock_format_us(wall_us, cached);
        cached_s = wall_us < 0 ? -1 : wall_us / 1000000;
    }
    unsigned us = wall_us < 0 ? 0 : (unsigned)(wall_us % 1000000);
    memcpy(out, cached, 27);
    memcpy(out + 20, digit_pairs + us / 10000 * 2, 2);
    memcpy(out + 22, digit_pairs + us / 100 % 100 * 2, 2);
    memcpy(out + 24, digit_pairs + us % 100 * 2, 2);
    return out + 27;
}

static char *put_head(char *out, const struct record *r, const struct encode_head *h)
{
    out = PUT(out, "{\"v\":1,\"seq\":");
    out = put_u64(out, h->seq);
    out = PUT(out, ",\"prev\":\"");
    out = put_bytes(out, h->prev, 64);
    out = PUT(out, "\",\"ts\":\"");
    out = put_ts(out, h->wall_us);
    out = PUT(out, "\",\"id\":\"");
    out = put_bytes(out, h->id, 26);
    out = PUT(out, "\",\"type\":\"");
    const char *type = event_type_name(r->type);
    out = put_bytes(out, type, strlen(type));
    *out++ = '"';
    return out;
}

/* What a reader of an open or close may count on, present or not. */
static void default_bits(const struct record *r, uint64_t bits[2])
{
    if (r->type != EVENT_OPEN && r->type != EVENT_CLOSE)
        return;
    bits[FIELD_RULE / 64] |= (uint64_t)1 << (FIELD_RULE % 64);
    bits[FIELD_CREDENTIALS / 64] |= (uint64_t)1 << (FIELD_CREDENTIALS % 64);
    if (r->type == EVENT_CLOSE)
        bits[FIELD_FINDINGS / 64] |= (uint64_t)1 << (FIELD_FINDINGS % 64);
}

size_t encode_line(const struct record *r, const struct encode_head *h, char *out)
{
    static const struct record_value null_value = { .kind = KIND_NULL };
    const char *start = out;
    if (!keys_made)
        keys_make();
    out = put_head(out, r, h);
    uint64_t bits[2] = { r->present[0], r->present[1] };
    uint32_t groups_seen = 0;
    unsigned group = 0;
    default_bits(r, bits);
    for (unsigned w = 0; w < 2; w++) {
        for (uint64_t b = bits[w]; b; b &= b - 1) {
            enum event_field f = (enum event_field)(w * 64 + (unsigned)__builtin_ctzll(b));
            const struct key *k = &keys[f];
            if (clash[f] && groups_seen >> clash[f] & 1)
                continue;
            if (group && k->group != group)
                *out++ = '}';
            bool opens_object = k->group && k->group != group;
            groups_seen |= opens_object ? 1u << k->group : 0;
            out = put_key(out, k, opens_object);
            group = k->group;
            out = put_value(out, f, record_has(r, f) ? &r->v[f] : &null_value);
        }
    }
    if (group)
        *out++ = '}';
    if (r->flags & EVENT_FLAG_CUT)
        out = PUT(out, ",\"cut\":true");
    if (h->role.n) {
        out = PUT(out, ",\"role\":\"");
        out = put_bytes(out, h->role.p, h->role.n);
        *out++ = '"';
    }
    if (h->has_worker) {
        out = PUT(out, ",\"worker\":");
        out = put_u64(out, h->worker);
    }
    out = PUT(out, "}\n");
    return (size_t)(out - start);
}
