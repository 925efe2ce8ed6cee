/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/form.h"

#include "mint/base64.h"

enum { FORM_MIN = 4, FORM_BASE64_MIN = 6 };

static const char hex_lower[] = "0123456789abcdef", hex_upper[] = "0123456789ABCDEF";

static void put_hex(struct str v, const char *digits, struct buf *out)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        buf_put(out, str_of((char[]) { digits[c >> 4], digits[c & 15] }, 2));
    }
}

static void put_percent(struct str v, const char *digits, bool all, struct buf *out)
{
    for (size_t i = 0; i < v.n; i++) {
        char c = v.p[i];
        if (!all && (ascii_alpha(c) || ascii_digit(c) || c == '-' || c == '.' || c == '_' || c == '~')) {
            buf_putc(out, c);
            continue;
        }
        buf_putc(out, '%');
        put_hex(str_of(&c, 1), digits, out);
    }
}

static void put_json(struct str v, bool slash, struct buf *out)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c == '\t') {
            buf_put(out, STR("\\t"));
        } else if (c < 0x20) {
            buf_put(out, STR("\\u00"));
            put_hex(str_of(&v.p[i], 1), hex_lower, out);
        } else {
            if (c == '"' || c == '\\' || (slash && c == '/'))
                buf_putc(out, '\\');
            buf_putc(out, v.p[i]);
        }
    }
}

static bool is_base64(enum form f)
{
    return f >= FORM_BASE64_0 && f <= FORM_BASE64URL_2;
}

void form_put(enum form f, struct str value, struct buf *out)
{
    switch (f) {
    case FORM_RAW:
    case FORM_COUNT:
        buf_put(out, value);
        break;
    case FORM_BASE64_0:
    case FORM_BASE64_1:
    case FORM_BASE64_2:
        base64_put_inner(out, value, (unsigned)(f - FORM_BASE64_0), false);
        break;
    case FORM_BASE64URL_0:
    case FORM_BASE64URL_1:
    case FORM_BASE64URL_2:
        base64_put_inner(out, value, (unsigned)(f - FORM_BASE64URL_0), true);
        break;
    case FORM_HEX_LOWER:
    case FORM_HEX_UPPER:
        put_hex(value, f == FORM_HEX_LOWER ? hex_lower : hex_upper, out);
        break;
    case FORM_PERCENT_UPPER:
    case FORM_PERCENT_LOWER:
        put_percent(value, f == FORM_PERCENT_UPPER ? hex_upper : hex_lower, false, out);
        break;
    case FORM_PERCENT_ALL_UPPER:
    case FORM_PERCENT_ALL_LOWER:
        put_percent(value, f == FORM_PERCENT_ALL_UPPER ? hex_upper : hex_lower, true, out);
        break;
    case FORM_JSON:
    case FORM_JSON_SLASH:
        put_json(value, f == FORM_JSON_SLASH, out);
        break;
    }
}

static bool any_of(struct str s, const char *set)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] && strchr(set, s.p[i]))
            return true;
    return false;
}

bool form_wanted(enum form f, struct str value, struct str text)
{
    if (text.n < (is_base64(f) ? (size_t)FORM_BASE64_MIN : (size_t)FORM_MIN))
        return false;
    switch (f) {
    case FORM_BASE64URL_0:
    case FORM_BASE64URL_1:
    case FORM_BASE64URL_2:
        return any_of(text, "-_");
    case FORM_PERCENT_UPPER:
        return !str_eq(text, value);
    case FORM_PERCENT_LOWER:
    case FORM_PERCENT_ALL_LOWER:
        for (size_t i = 0; i + 2 < text.n; i++)
            if (text.p[i] == '%' && (ascii_alpha(text.p[i + 1]) || ascii_alpha(text.p[i + 2])))
                return true;
        return false;
    case FORM_HEX_UPPER:
        return any_of(text, "ABCDEF");
    case FORM_JSON:
        return !str_eq(text, value);
    case FORM_JSON_SLASH:
        return str_find_char(value, '/') >= 0;
    case FORM_RAW:
    case FORM_BASE64_0:
    case FORM_BASE64_1:
    case FORM_BASE64_2:
    case FORM_HEX_LOWER:
    case FORM_PERCENT_ALL_UPPER:
        return true;
    case FORM_COUNT:
        break;
    }
    return false;
}

void form_put_instead(enum form f, struct str placeholder, size_t value_n, struct buf *out)
{
    if (!is_base64(f)) {
        form_put(f, placeholder, out);
        return;
    }
    struct buf fitted;
    buf_init(&fitted, value_n);
    buf_put(&fitted, str_sub(placeholder, 0, value_n));
    while (buf_size(&fitted) < value_n && !fitted.failed)
        buf_putc(&fitted, '_');
    if (fitted.failed)
        out->failed = true;
    else
        form_put(f, buf_str(&fitted), out);
    buf_done(&fitted);
}
