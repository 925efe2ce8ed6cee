/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/h1_scan.h"

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

const char *h1_control_find_tail(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        uint64_t low = (x - 0x20 * ones) & ~x & high; /* none set: no byte < 0x20; set: look closer (HTAB, borrows) */
        uint64_t y = x ^ (0x7f * ones);
        uint64_t del = (y - ones) & ~y & high;
        if (low | del) {
            for (int i = 0; i < 8; i++)
                if (h1_is_control(p[i]))
                    return p + i;
        }
    }
    while (p < end && !h1_is_control(*p))
        p++;
    return p;
}

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
