/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether bytes that a role calls JSON are one JSON value (RFC 8259), in the subset that every reader agrees on. No
 * recursion: the open brackets are bits in a word. */
#include "audit/encode.h"

enum { DEPTH_MAX = 16, NUMBER_MAX = 18 };

enum want { WANT_VALUE, WANT_VALUE_OR_END, WANT_KEY, WANT_KEY_OR_END, WANT_COLON, WANT_COMMA_OR_END, WANT_NOTHING };

struct cursor {
    const char *p, *end;
};

static bool hex4(struct cursor *c, unsigned *ret)
{
    unsigned v = 0;
    if (c->end - c->p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int d = ascii_hex(*c->p++);
        if (d < 0)
            return false;
        v = v << 4 | (unsigned)d;
    }
    *ret = v;
    return true;
}

/* After `\u`: no U+0000, a high surrogate only with its low one. */
static bool unicode_escape(struct cursor *c)
{
    unsigned v, low;
    if (!hex4(c, &v) || v == 0 || (v >= 0xdc00 && v <= 0xdfff))
        return false;
    if (v < 0xd800 || v > 0xdbff)
        return true;
    if (c->end - c->p < 2 || c->p[0] != '\\' || c->p[1] != 'u')
        return false;
    c->p += 2;
    return hex4(c, &low) && low >= 0xdc00 && low <= 0xdfff;
}

/* After the opening quote. */
static bool string(struct cursor *c)
{
    while (c->p < c->end) {
        unsigned char ch = (unsigned char)*c->p++;
        if (ch == '"')
            return true;
        if (ch < 0x20 || ch >= 0x7f)
            return false;
        if (ch != '\\')
            continue;
        if (c->p == c->end)
            return false;
        char e = *c->p++;
        if (e == 'u' ? !unicode_escape(c) : !e || !strchr("\"\\/bfnrt", e))
            return false;
    }
    return false;
}

static size_t digits(struct cursor *c)
{
    const char *start = c->p;
    while (c->p < c->end && ascii_digit(*c->p))
        c->p++;
    return (size_t)(c->p - start);
}

static bool number(struct cursor *c)
{
    const char *start = c->p;
    if (c->p < c->end && *c->p == '-')
        c->p++;
    bool zero = c->p < c->end && *c->p == '0';
    size_t n = digits(c);
    if (!n || (zero && n > 1))
        return false;
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (!digits(c))
            return false;
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
            c->p++;
        n = digits(c);
        if (!n || n > 2)
            return false;
    }
    return c->p - start <= NUMBER_MAX;
}

static bool word(struct cursor *c, struct str w)
{
    if (!str_starts(str_of(c->p, (size_t)(c->end - c->p)), w))
        return false;
    c->p += w.n;
    return true;
}

static bool scalar(struct cursor *c)
{
    switch (*c->p) {
    case '"':
        c->p++;
        return string(c);
    case 't':
        return word(c, STR("true"));
    case 'f':
        return word(c, STR("false"));
    case 'n':
        return word(c, STR("null"));
    default:
        return number(c);
    }
}

bool encode_raw_ok(struct str s)
{
    struct cursor c = { s.p, s.p + s.n };
    enum want want = WANT_VALUE;
    uint32_t objects = 0; /* bit i: bracket i is an object's */
    unsigned depth = 0;
    while (c.p < c.end) {
        char ch = *c.p;
        if (ch == ' ') {
            c.p++;
            continue;
        }
        bool in_object = depth && objects >> (depth - 1) & 1;
        bool closes = want == WANT_COMMA_OR_END || (want == WANT_VALUE_OR_END && !in_object) ||
                      (want == WANT_KEY_OR_END && in_object);
        if (depth && closes && ch == (in_object ? '}' : ']')) {
            c.p++;
            depth--;
            want = depth ? WANT_COMMA_OR_END : WANT_NOTHING;
            continue;
        }
        switch (want) {
        case WANT_VALUE:
        case WANT_VALUE_OR_END:
            if (ch == '{' || ch == '[') {
                if (depth == DEPTH_MAX)
                    return false;
                objects = (objects & ~(1u << depth)) | (uint32_t)(ch == '{') << depth;
                depth++;
                c.p++;
                want = ch == '{' ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
                break;
            }
            if (!scalar(&c))
                return false;
            want = depth ? WANT_COMMA_OR_END : WANT_NOTHING;
            break;
        case WANT_KEY:
        case WANT_KEY_OR_END:
            c.p++;
            if (ch != '"' || !string(&c))
                return false;
            want = WANT_COLON;
            break;
        case WANT_COLON:
            if (ch != ':')
                return false;
            c.p++;
            want = WANT_VALUE;
            break;
        case WANT_COMMA_OR_END:
            if (ch != ',')
                return false;
            c.p++;
            want = in_object ? WANT_KEY : WANT_VALUE;
            break;
        case WANT_NOTHING:
            return false;
        }
    }
    return want == WANT_NOTHING;
}
