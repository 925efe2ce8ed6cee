/* SPDX-License-Identifier: Apache-2.0
 *
 * str: borrowed bytes with a length. Everything that comes from outside is a struct str: it is never NUL-terminated
 * and may hold any byte. A str owns nothing; whoever made the bytes keeps them alive. All case folding is ASCII only
 * (the C locale is never asked). Not for secrets: those are a struct secret (base/secret.h). */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str) { "" literal, sizeof(literal) - 1 })
#define STR_NONE     ((struct str) { NULL, 0 })
/* For printf: "%.*s", STR_ARG(s). Only for trusted text; outside bytes go through str_escape. */
#define STR_ARG(s) (int)((s).n > 4096 ? 4096 : (s).n), ((s).p ? (s).p : "")

static inline struct str str_of(const void *p, size_t n)
{
    return (struct str) { p, n };
}

/* The bytes of a NUL-terminated string of our own (an argv word, a literal). */
static inline struct str str_c(const char *z)
{
    return (struct str) { z, z ? strlen(z) : 0 };
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* n bytes from offset; both are clamped to what is there. */
static inline struct str str_sub(struct str s, size_t offset, size_t n)
{
    if (offset > s.n)
        offset = s.n;
    if (n > s.n - offset)
        n = s.n - offset;
    return (struct str) { s.p ? s.p + offset : NULL, n };
}

static inline struct str str_from(struct str s, size_t offset)
{
    return str_sub(s, offset, s.n);
}

static inline bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

static inline bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + (s.n - suffix.n), suffix.p, suffix.n) == 0);
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}
static inline bool ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline bool ascii_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
/* RFC 9110 5.6.2: tchar. */
bool ascii_tchar(char c);
/* Value of a hex digit, or -1. */
int ascii_hex(char c);

bool str_eq_nocase(struct str a, struct str b);
/* Byte order, shorter first on a tie: -1, 0, 1. */
int str_cmp(struct str a, struct str b);
/* Offset of the first occurrence, or -1. */
ptrdiff_t str_find(struct str s, struct str needle);
ptrdiff_t str_find_char(struct str s, char c);
ptrdiff_t str_rfind_char(struct str s, char c);
/* Without leading and trailing SP and HTAB (RFC 9110 5.5 OWS). */
struct str str_trim(struct str s);
/* Splits at the first `sep`: *ret_head is what comes before, *s becomes what follows. At the end of the string the head
 * is all that is left, *s becomes STR_NONE. False when *s was already STR_NONE (p == NULL). */
bool str_split(struct str *s, char sep, struct str *ret_head);
/* Decimal digits only, no sign, no space, at least one digit; false on overflow past max. */
bool str_to_u64(struct str s, uint64_t max, uint64_t *ret);
/* 64-bit hash with a per-process random key (SipHash-1-3), for tables keyed by outside bytes. */
uint64_t str_hash(struct str s);
/* The same under a key of the caller's, for hashes that outlive the process. */
uint64_t str_hash_keyed(uint64_t k0, uint64_t k1, struct str s);
/* Sets the hash key; called once by each process before its first table (clock_rand seeds it). */
void str_hash_seed(uint64_t k0, uint64_t k1);
/* A NUL-terminated printable copy for messages: control bytes, DEL, non-ASCII, `"` and `\` become \xNN; cut to fit with
 * "…" as "...". Always terminates. Returns out. */
const char *str_escape(struct str s, char *out, size_t size);

#endif
