/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/h1_scan.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define ALNUM(first, last) [first... last] = H1_C_TOKEN | H1_C_TARGET
#define DASH               H1_C_TOKEN | H1_C_TARGET
#define MARK               H1_C_TOKEN | H1_C_MARK | H1_C_TARGET
#define PLAIN              H1_C_TARGET
const uint8_t h1_class[256] = {
    ALNUM('0', '9'), ALNUM('A', 'Z'),
    ALNUM('a', 'z'), ['-'] = DASH,
    ['!'] = MARK,    ['$'] = MARK,
    ['%'] = MARK,    ['&'] = MARK,
    ['\''] = MARK,   ['*'] = MARK,
    ['+'] = MARK,    ['.'] = MARK,
    ['^'] = MARK,    ['_'] = MARK,
    ['`'] = MARK,    ['|'] = MARK,
    ['~'] = MARK,    ['#'] = H1_C_TOKEN | H1_C_MARK, /* never in a target: a fragment is not sent (RFC 9112 3.2) */
    ['"'] = PLAIN,   ['('] = PLAIN,
    [')'] = PLAIN,   [','] = PLAIN,
    ['/'] = PLAIN,   [':'] = PLAIN,
    [';'] = PLAIN,   ['<'] = PLAIN,
    ['='] = PLAIN,   ['>'] = PLAIN,
    ['?'] = PLAIN,   ['@'] = PLAIN,
    ['['] = PLAIN,   ['\\'] = PLAIN,
    [']'] = PLAIN,   ['{'] = PLAIN,
    ['}'] = PLAIN,
};

static inline bool is_control(char c)
{
    unsigned char u = (unsigned char)c;
    return (u < 0x20 && u != '\t') || u == 0x7f;
}

#ifdef __SSE2__
const char *h1_control_find(const char *p, const char *end)
{
    const __m128i last = _mm_set1_epi8(0x1f), tab = _mm_set1_epi8('\t'), del = _mm_set1_epi8(0x7f);
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, last), x);
        __m128i hit = _mm_or_si128(_mm_andnot_si128(_mm_cmpeq_epi8(x, tab), low), _mm_cmpeq_epi8(x, del));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    while (p < end && !is_control(*p))
        p++;
    return p;
}
#else
const char *h1_control_find(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        uint64_t low = (x - 0x20 * ones) & ~x & high; /* some byte < 0x20 (may be HTAB): exact enough to look closer */
        uint64_t y = x ^ (0x7f * ones);
        uint64_t del = (y - ones) & ~y & high;
        if (low | del) {
            for (int i = 0; i < 8; i++)
                if (is_control(p[i]))
                    return p + i;
        }
    }
    while (p < end && !is_control(*p))
        p++;
    return p;
}
#endif

enum h1_result h1_end_find(struct str bytes, size_t from, size_t *ret_end, bool *ret_line, struct h1_fault *fault)
{
    const char *b = bytes.p, *end = b + bytes.n, *p = b + from;
    *ret_end = 0;
    *ret_line = false;
    if (from && from < bytes.n && p[-1] == '\r' && *p != '\n')
        return h1_fail(fault, H1_BAD, "a CR is not followed by LF", from - 1);
    while ((p = h1_control_find(p, end)) < end) {
        size_t at = (size_t)(p - b);
        if (*p == '\n') {
            if (!at || p[-1] != '\r')
                return h1_fail(fault, H1_BAD, "a line ends in LF without CR", at);
            *ret_line = true;
            if (at >= 3 && p[-2] == '\n' && p[-3] == '\r') {
                *ret_end = at + 1;
                return H1_DONE;
            }
        } else if (*p == '\r') {
            if (at + 1 < bytes.n && p[1] != '\n')
                return h1_fail(fault, H1_BAD, "a CR is not followed by LF", at);
        } else {
            return h1_fail(fault, H1_BAD, "a control character", at);
        }
        p++;
    }
    return H1_MORE;
}
