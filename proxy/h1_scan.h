/* SPDX-License-Identifier: Apache-2.0
 *
 * h1_scan: what the HTTP/1.1 codecs share and nobody else needs: the class of every byte, the scan for the next control
 * character (SSE2 where there is one, eight bytes at a time elsewhere; both read only inside the bytes given), the
 * table of known names, and the search for the end of a field section. */
#ifndef PROXY_H1_SCAN_H
#define PROXY_H1_SCAN_H

#include "proxy/h1_head.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    H1_C_TOKEN = 1,  /* RFC 9110 5.6.2 tchar */
    H1_C_MARK = 2,   /* a tchar that is no letter, digit or `-` */
    H1_C_TARGET = 4, /* may stand in a request target: printable ASCII but `#` */
};
extern const uint8_t h1_class[256];

enum {
    H1_N_HOP = 1,
    H1_N_FRAMING = 2,
    H1_N_AUTH = 4,
    H1_N_ALIAS = 8,
    H1_N_PINNED = 16,
    H1_N_TRAILER = 32,
};
unsigned h1_name_flags(enum h1_name id);
/* The id of a name once every mark in it is read as `-`; H1_OTHER for one longer than all we know. */
enum h1_name h1_name_alias(struct str name);

static inline bool h1_is_control(char c)
{
    unsigned char u = (unsigned char)c;
    return (u < 0x20 && u != '\t') || u == 0x7f;
}
const char *h1_control_find_tail(const char *p, const char *end);

#ifdef __SSE2__
/* Bit i: byte i of 16 is a control character other than HTAB. */
static inline unsigned h1_control_mask16(const char *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x);
    low = _mm_andnot_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('\t')), low);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(low, _mm_cmpeq_epi8(x, _mm_set1_epi8(0x7f))));
}
/* Bit i: byte i of 16 is a letter, a digit or `-`. */
static inline unsigned h1_plain_mask16(const char *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i alpha = _mm_sub_epi8(_mm_or_si128(x, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
    __m128i digit = _mm_sub_epi8(x, _mm_set1_epi8('0'));
    __m128i ok = _mm_cmpeq_epi8(_mm_min_epu8(alpha, _mm_set1_epi8(25)), alpha);
    ok = _mm_or_si128(ok, _mm_cmpeq_epi8(_mm_min_epu8(digit, _mm_set1_epi8(9)), digit));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(ok, _mm_cmpeq_epi8(x, _mm_set1_epi8('-'))));
}
#endif

/* First byte in [p, end) that is a control character other than HTAB (so also CR, LF, NUL, DEL), or end. */
static inline const char *h1_control_find(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= 16; p += 16) {
        unsigned mask = h1_control_mask16(p);
        if (mask)
            return p + __builtin_ctz(mask);
    }
#endif
    return p == end ? p : h1_control_find_tail(p, end);
}

/* First byte in [p, end) that is no tchar, or end; H1_C_MARK is added to *seen when there were marks. */
static inline const char *h1_token_end(const char *p, const char *end, unsigned *seen)
{
#ifdef __SSE2__
    for (; end - p >= 16; p += 16) {
        unsigned other = ~h1_plain_mask16(p) & 0xffff;
        if (other) {
            p += __builtin_ctz(other);
            break;
        }
    }
#endif
    unsigned class;
    while (p < end && (class = h1_class[(unsigned char)*p]) & H1_C_TOKEN)
        *seen |= class, p++;
    return p;
}

/* Looks through bytes from offset `from` on (what lies before was looked through already) for CRLF CRLF. *ret_end:
 * offset past it, or 0: not there yet. *ret_line: some line ended in what was looked through now. Refuses control
 * characters, a CR without LF and an LF without CR on the way, so that a head which can only be wrong is not waited
 * for. Total work is linear. */
enum h1_result h1_end_find(struct str bytes, size_t from, size_t *ret_end, bool *ret_line, struct h1_fault *fault);

static inline enum h1_result h1_fail(struct h1_fault *fault, enum h1_result r, const char *why, size_t at)
{
    if (fault)
        *fault = (struct h1_fault) { .why = why, .at = at };
    return r;
}

/* Fields from bytes[at] up to the empty line; see h1_head.c. */
struct h1_fields_in {
    struct str bytes;
    size_t at;  /* in: first byte of the first field; out: past the empty line */
    size_t max; /* fields there may be */
    struct h1_field *fields;
    size_t n;
    bool request;      /* names that look like another are refused */
    bool end_is_empty; /* the end of the bytes stands for the empty line (a trailer section cut out by h1_body) */
};
enum h1_result h1_fields_parse(struct h1_fields_in *in, struct h1_fault *fault);

#endif
