/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/record_text.h"

#include "policy/dns_type.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
    char *out;
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->out + t->n, RECORD_TEXT - t->n, format, ap);
    va_end(ap);
    if (n > 0)
        t->n += (size_t)n < RECORD_TEXT - t->n ? (size_t)n : RECORD_TEXT - t->n - 1;
}

static unsigned byte_at(struct str s, size_t i)
{
    return i < s.n ? (unsigned char)s.p[i] : 0;
}

static unsigned u16_at(struct str s, size_t i)
{
    return byte_at(s, i) << 8 | byte_at(s, i + 1);
}

/* RFC 1035 5.1: what is no printable character, or means something, with a backslash. */
static void put_bytes(struct text *t, struct str s)
{
    for (size_t i = 0; i < s.n && t->n + 1 < RECORD_TEXT; i++) {
        unsigned c = byte_at(s, i);
        if (c < 0x20 || c > 0x7e)
            put(t, "\\%03u", c);
        else
            put(t, c == '"' || c == '\\' ? "\\%c" : "%c", (int)c);
    }
}

static void put_name(struct text *t, struct str s)
{
    size_t at = 0;
    if (byte_at(s, 0) == 0)
        put(t, ".");
    for (unsigned n; (n = byte_at(s, at)) > 0; at += n + 1) {
        put_bytes(t, str_sub(s, at + 1, n));
        if (byte_at(s, at + n + 1) > 0)
            put(t, ".");
    }
}

static void put_strings(struct text *t, struct str s)
{
    for (size_t at = 0; at < s.n; at += byte_at(s, at) + 1) {
        put(t, at > 0 ? " \"" : "\"");
        put_bytes(t, str_sub(s, at + 1, byte_at(s, at)));
        put(t, "\"");
    }
}

static void put_hex(struct text *t, struct str s)
{
    for (size_t i = 0; i < s.n && t->n + 1 < RECORD_TEXT; i++)
        put(t, "%02x", byte_at(s, i));
}

static void put_caa(struct text *t, struct str s)
{
    size_t tag = byte_at(s, 1);
    put(t, "%u ", byte_at(s, 0));
    put_bytes(t, str_sub(s, 2, tag));
    put(t, " \"");
    put_bytes(t, str_from(s, 2 + tag));
    put(t, "\"");
}

const char *record_text(uint16_t type, struct str data, char out[RECORD_TEXT])
{
    struct text t = { .out = out };
    out[0] = '\0';
    switch (type) {
    case DNS_TYPE_NS:
    case DNS_TYPE_PTR:
        put_name(&t, data);
        break;
    case DNS_TYPE_MX:
        put(&t, "%u ", u16_at(data, 0));
        put_name(&t, str_from(data, 2));
        break;
    case DNS_TYPE_SRV:
        put(&t, "%u %u %u ", u16_at(data, 0), u16_at(data, 2), u16_at(data, 4));
        put_name(&t, str_from(data, 6));
        break;
    case DNS_TYPE_TXT:
        put_strings(&t, data);
        break;
    case DNS_TYPE_CAA:
        put_caa(&t, data);
        break;
    case DNS_TYPE_TLSA:
        put(&t, "%u %u %u ", byte_at(data, 0), byte_at(data, 1), byte_at(data, 2));
        put_hex(&t, str_from(data, 3));
        break;
    case DNS_TYPE_SSHFP:
        put(&t, "%u %u ", byte_at(data, 0), byte_at(data, 1));
        put_hex(&t, str_from(data, 2));
        break;
    default:
        put(&t, "\\# %zu ", data.n);
        put_hex(&t, data);
        break;
    }
    return out;
}
