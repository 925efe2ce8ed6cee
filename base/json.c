/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

/* One UTF-8 sequence (RFC 3629): its length, or 0 when it is not one. */
static size_t utf8_take(struct str s, uint32_t *ret)
{
    unsigned char a = (unsigned char)s.p[0];
    size_t n = a < 0x80 ? 1 : a >= 0xc2 && a < 0xe0 ? 2 : a >= 0xe0 && a < 0xf0 ? 3 : a >= 0xf0 && a < 0xf5 ? 4 : 0;
    if (!n || s.n < n)
        return 0;
    uint32_t v = n == 1 ? a : a & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (c & 0x3f);
    }
    if ((n == 3 && v < 0x800) || (n == 4 && v < 0x10000) || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    *ret = v;
    return n;
}

static void put_u16(struct buf *out, unsigned v)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = { '\\', 'u', hex[v >> 12 & 15], hex[v >> 8 & 15], hex[v >> 4 & 15], hex[v & 15] };
    buf_put(out, str_of(text, sizeof text));
}

static void put_code_point(struct buf *out, uint32_t v)
{
    if (v < 0x10000) {
        put_u16(out, v);
    } else {
        v -= 0x10000;
        put_u16(out, 0xd800 | v >> 10);
        put_u16(out, 0xdc00 | (v & 0x3ff));
    }
}

void json_put_str(struct buf *out, struct str s)
{
    buf_putc(out, '"');
    while (s.n) {
        size_t plain = 0;
        while (plain < s.n && (unsigned char)s.p[plain] >= 0x20 && (unsigned char)s.p[plain] < 0x7f && s.p[plain] != '"' &&
               s.p[plain] != '\\')
            plain++;
        buf_put(out, str_sub(s, 0, plain));
        s = str_from(s, plain);
        if (!s.n)
            break;
        uint32_t v;
        size_t n = utf8_take(s, &v);
        if (v = n ? v : 0xfffd, v == '"' || v == '\\') {
            buf_putc(out, '\\');
            buf_putc(out, (char)v);
        } else {
            put_code_point(out, v);
        }
        s = str_from(s, n ? n : 1);
    }
    buf_putc(out, '"');
}

void json_put_str_or_null(struct buf *out, struct str s)
{
    if (s.p)
        json_put_str(out, s);
    else
        buf_put(out, STR("null"));
}
