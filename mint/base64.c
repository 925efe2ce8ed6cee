/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Value + 1, 0: not of the alphabet. */
static const uint8_t values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

int base64_decode(struct str text, char *out, size_t *ret_n, bool *ret_padded)
{
    size_t n = text.n, pad = 0;
    while (pad < 2 && n && text.p[n - 1] == '=')
        n--, pad++;
    size_t rest = n % 4;
    if (rest == 1 || (pad && (n + pad) % 4 != 0))
        return -1;
    uint32_t bits = 0;
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t v = values[(unsigned char)text.p[i]];
        if (!v)
            return -1;
        bits = bits << 6 | (uint32_t)(v - 1);
        if (i % 4 == 3) {
            out[o++] = (char)(bits >> 16);
            out[o++] = (char)(bits >> 8);
            out[o++] = (char)bits;
        }
    }
    if (rest == 2) {
        if (bits & 0xf)
            return -1;
        out[o++] = (char)(bits >> 4);
    } else if (rest == 3) {
        if (bits & 0x3)
            return -1;
        out[o++] = (char)(bits >> 10);
        out[o++] = (char)(bits >> 2);
    }
    *ret_n = o;
    *ret_padded = pad || !rest;
    return 0;
}

void base64_put(struct buf *out, struct str bytes, bool padded)
{
    size_t i = 0;
    for (; bytes.n - i >= 3; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)bytes.p[i] << 16 | (uint32_t)(unsigned char)bytes.p[i + 1] << 8 |
                     (unsigned char)bytes.p[i + 2];
        char c[4] = { alphabet[v >> 18], alphabet[v >> 12 & 63], alphabet[v >> 6 & 63], alphabet[v & 63] };
        buf_put(out, str_of(c, 4));
    }
    size_t rest = bytes.n - i;
    if (!rest)
        return;
    uint32_t v = (uint32_t)(unsigned char)bytes.p[i] << 16;
    if (rest == 2)
        v |= (uint32_t)(unsigned char)bytes.p[i + 1] << 8;
    char c[4] = { alphabet[v >> 18], alphabet[v >> 12 & 63], rest == 2 ? alphabet[v >> 6 & 63] : '=', '=' };
    buf_put(out, str_of(c, padded ? 4 : rest + 1));
}

void base64_put_inner(struct buf *out, struct str bytes, unsigned before, bool url)
{
    const char *a = url ? alphabet_url : alphabet;
    size_t first = (8 * (size_t)before + 5) / 6, end = 8 * (before + bytes.n) / 6;
    for (size_t i = first; i < end; i++) {
        size_t bit = 6 * i - 8 * (size_t)before, at = bit / 8;
        uint32_t v = (uint32_t)(unsigned char)bytes.p[at] << 8;
        if (at + 1 < bytes.n)
            v |= (unsigned char)bytes.p[at + 1];
        buf_putc(out, a[v >> (10 - bit % 8) & 63]);
    }
}
