/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

static const char tchar_marks[] = "!#$%&'*+-.^_`|~";

bool ascii_tchar(char c)
{
    static bool table[256];
    static bool ready;
    if (!ready) {
        for (int i = 1; i < 128; i++)
            table[i] = ascii_alpha((char)i) || ascii_digit((char)i) || strchr(tchar_marks, i) != NULL;
        ready = true;
    }
    return table[(unsigned char)c];
}

int ascii_hex(char c)
{
    if (ascii_digit(c))
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n ? memcmp(a.p, b.p, n) : 0;
    if (r)
        return r < 0 ? -1 : 1;
    return a.n < b.n ? -1 : a.n > b.n;
}

ptrdiff_t str_find(struct str s, struct str needle)
{
    if (needle.n == 0)
        return 0;
    if (s.n < needle.n)
        return -1;
    const char *q = memmem(s.p, s.n, needle.p, needle.n);
    return q ? q - s.p : -1;
}

ptrdiff_t str_find_char(struct str s, char c)
{
    const char *q = s.n ? memchr(s.p, c, s.n) : NULL;
    return q ? q - s.p : -1;
}

ptrdiff_t str_rfind_char(struct str s, char c)
{
    const char *q = s.n ? memrchr(s.p, c, s.n) : NULL;
    return q ? q - s.p : -1;
}

struct str str_trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool str_split(struct str *s, char sep, struct str *ret_head)
{
    if (!s->p)
        return false;
    ptrdiff_t at = str_find_char(*s, sep);
    if (at < 0) {
        *ret_head = *s;
        *s = STR_NONE;
    } else {
        *ret_head = str_sub(*s, 0, (size_t)at);
        *s = str_from(*s, (size_t)at + 1);
    }
    return true;
}

bool str_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    if (!s.n)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (!ascii_digit(s.p[i]))
            return false;
        uint64_t d = (uint64_t)(s.p[i] - '0');
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, d, &v))
            return false;
    }
    if (v > max)
        return false;
    *ret = v;
    return true;
}

/* SipHash-1-3 (Aumasson, Bernstein 2012), the keyed hash of hash tables: an outsider who cannot read the key cannot
 * aim for one bucket. */
static uint64_t hash_k0 = 0x0706050403020100u, hash_k1 = 0x0f0e0d0c0b0a0908u;

void str_hash_seed(uint64_t k0, uint64_t k1)
{
    hash_k0 = k0;
    hash_k1 = k1;
}

static inline uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

#define SIP_ROUND                                                                                                      \
    do {                                                                                                               \
        v0 += v1, v1 = rotl(v1, 13), v1 ^= v0, v0 = rotl(v0, 32);                                                      \
        v2 += v3, v3 = rotl(v3, 16), v3 ^= v2;                                                                         \
        v0 += v3, v3 = rotl(v3, 21), v3 ^= v0;                                                                         \
        v2 += v1, v1 = rotl(v1, 17), v1 ^= v2, v2 = rotl(v2, 32);                                                      \
    } while (0)

uint64_t str_hash(struct str s)
{
    return str_hash_keyed(hash_k0, hash_k1, s);
}

uint64_t str_hash_keyed(uint64_t k0, uint64_t k1, struct str s)
{
    uint64_t v0 = k0 ^ 0x736f6d6570736575u, v1 = k1 ^ 0x646f72616e646f6du;
    uint64_t v2 = k0 ^ 0x6c7967656e657261u, v3 = k1 ^ 0x7465646279746573u;
    const char *p = s.p;
    size_t n = s.n;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t m;
        memcpy(&m, p, 8);
        v3 ^= m;
        SIP_ROUND;
        v0 ^= m;
    }
    uint64_t last = (uint64_t)s.n << 56;
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)(unsigned char)p[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

const char *str_escape(struct str s, char *out, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    if (!size)
        return "";
    size_t o = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        size_t need = plain ? 1 : 4;
        if (o + need + 4 > size) { /* keep room for "..." and the NUL */
            for (int k = 0; k < 3 && o + 1 < size; k++)
                out[o++] = '.';
            break;
        }
        if (plain) {
            out[o++] = (char)c;
        } else {
            out[o++] = '\\';
            out[o++] = 'x';
            out[o++] = hex[c >> 4];
            out[o++] = hex[c & 15];
        }
    }
    out[o] = 0;
    return out;
}
