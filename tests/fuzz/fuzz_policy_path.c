/* SPDX-License-Identifier: Apache-2.0
 *
 * The input is PATTERN LF TARGET. The matcher is compared with a plain table of "pattern prefix matches path prefix",
 * and what policy_path_check lets through has no dot segment once decoded. */
#include "policy/path_pattern.h"
#include "policy/policy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

enum { MODEL_MAX = 200 };

static bool unreserved(unsigned c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static size_t normalise(struct str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '%' && i + 2 < s.n && ascii_hex(s.p[i + 1]) >= 0 && ascii_hex(s.p[i + 2]) >= 0) {
            unsigned v = (unsigned)(ascii_hex(s.p[i + 1]) << 4 | ascii_hex(s.p[i + 2]));
            if (unreserved(v)) {
                out[n++] = (char)v;
            } else {
                out[n++] = '%';
                out[n++] = "0123456789ABCDEF"[v >> 4];
                out[n++] = "0123456789ABCDEF"[v & 15];
            }
            i += 2;
        } else {
            out[n++] = s.p[i];
        }
    }
    return n;
}

/* row[j]: the pattern so far matches the first j bytes. */
static bool model(struct str pattern, struct str path)
{
    bool row[MODEL_MAX + 1] = { true }, next[MODEL_MAX + 1];
    for (size_t i = 0; i < pattern.n; i++) {
        memset(next, 0, sizeof next);
        if (pattern.p[i] == '*') {
            bool across = i + 1 < pattern.n && pattern.p[i + 1] == '*';
            i += across;
            for (size_t j = 0; j <= path.n; j++)
                next[j] = row[j] || (j && next[j - 1] && (across || path.p[j - 1] != '/'));
        } else {
            for (size_t j = 1; j <= path.n; j++)
                next[j] = row[j - 1] && path.p[j - 1] == pattern.p[i];
        }
        memcpy(row, next, sizeof row);
    }
    return row[path.n];
}

static void check_segments(struct str target)
{
    char out[4096];
    if (target.n > sizeof out)
        return;
    ptrdiff_t query = str_find_char(target, '?');
    struct str path = query < 0 ? target : str_sub(target, 0, (size_t)query);
    struct str rest = str_of(out, normalise(path, out)), segment;
    while (str_split(&rest, '/', &segment))
        CHECK(!str_eq(segment, STR(".")) && !str_eq(segment, STR("..")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str target = str_of(data, size), text;
    struct path_pattern p;
    struct arena a;
    struct err err;
    if (!str_split(&target, '\n', &text) || !target.p)
        return 0;
    arena_init(&a, 65536);
    bool ok = !policy_path_check(target, &err);
    if (ok)
        check_segments(target);
    if (!path_pattern_parse(text, &a, &p, &err)) {
        bool matches = path_pattern_matches(&p, target);
        char path[MODEL_MAX];
        if (target.n <= MODEL_MAX)
            CHECK(matches == model(p.text, str_of(path, normalise(target, path))));
        CHECK(path_pattern_covers(&p, &p));
    }
    arena_done(&a);
    return 0;
}
