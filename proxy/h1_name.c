/* SPDX-License-Identifier: Apache-2.0
 *
 * Known names by length, then a case-insensitive compare of eight bytes at a time. The length is a constant in every
 * branch of h1_name_of, so the compiler keeps of the table only the names of that length and turns each into one or two
 * compares of words. */
#include "proxy/h1_scan.h"

#include <assert.h>

enum { NAME_MAX_KNOWN = 22 };

/* ASCII lower case of eight bytes; other bytes (also >= 0x80) stay. */
static inline uint64_t lower8(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t low7 = x & ~high;
    uint64_t from_a = low7 + (0x80 - 'A') * ones, past_z = low7 + (0x7f - 'Z') * ones;
    uint64_t upper = (from_a ^ past_z) & ~x & high;
    return x | (upper >> 2);
}

static inline uint64_t load(const char *p, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, p, n);
    return x;
}

/* n is a constant where this is inlined; `want` is lower case. */
static inline __attribute__((always_inline)) bool same(const char *p, const char *want, size_t n)
{
    if (n <= 8)
        return lower8(load(p, n)) == load(want, n);
    if (lower8(load(p, 8)) != load(want, 8))
        return false;
    if (n > 16 && lower8(load(p + 8, 8)) != load(want + 8, 8))
        return false;
    return lower8(load(p + n - 8, 8)) == load(want + n - 8, 8);
}

/* Bit c - 'a': some known name of this length begins with c. Folds to a constant where n is one. */
static inline __attribute__((always_inline)) uint32_t first_letters(size_t n)
{
    uint32_t mask = n >= 6 ? 1u << ('p' - 'a') : 0;
#define H1_NAME(id, text, flags)                                                                                       \
    if (n == sizeof(text) - 1)                                                                                         \
        mask |= 1u << (text[0] - 'a');
#include "proxy/h1_names.def"
#undef H1_NAME
    return mask;
}

static inline __attribute__((always_inline)) enum h1_name of_length(const char *p, size_t n)
{
    unsigned letter = (((unsigned char)p[0] | 0x20u) - 'a') & 31;
    if (!(first_letters(n) >> letter & 1)) /* most names end here */
        return H1_OTHER;
#define H1_NAME(id, text, flags)                                                                                       \
    static_assert(sizeof(text) - 1 <= NAME_MAX_KNOWN, "NAME_MAX_KNOWN");                                               \
    if (n == sizeof(text) - 1 && same(p, text, sizeof(text) - 1))                                                      \
        return H1_##id;
#include "proxy/h1_names.def"
#undef H1_NAME
    return n >= 6 && same(p, "proxy-", 6) ? H1_PROXY_OTHER : H1_OTHER;
}

enum h1_name h1_name_of(struct str name)
{
    switch (name.n) {
#define CASE(n)                                                                                                        \
    case n:                                                                                                            \
        return of_length(name.p, n);
        CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
                        CASE(15) CASE(16) CASE(17) CASE(18) CASE(19) CASE(20) CASE(21) CASE(22)
#undef CASE
                            default : return name.n >= 6 &&
                same(name.p, "proxy-", 6)
            ? H1_PROXY_OTHER
            : H1_OTHER;
    }
}

/* One id may have several names in the table, with the same flags. */
#pragma GCC diagnostic push
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
static const uint8_t name_flags[H1_NAME_COUNT] = {
    [H1_OTHER] = H1_N_TRAILER,
    [H1_PROXY_OTHER] = H1_N_HOP,
#define H1_NAME(id, text, f) [H1_##id] = (f),
#include "proxy/h1_names.def"
#undef H1_NAME
};
#pragma GCC diagnostic pop

unsigned h1_name_flags(enum h1_name id)
{
    return name_flags[id];
}

enum h1_name h1_name_alias(struct str name)
{
    char dashed[NAME_MAX_KNOWN];
    if (name.n > sizeof dashed)
        return H1_OTHER;
    for (size_t i = 0; i < name.n; i++)
        dashed[i] = h1_class[(unsigned char)name.p[i]] & H1_C_MARK ? '-' : name.p[i];
    return h1_name_of(str_of(dashed, name.n));
}
