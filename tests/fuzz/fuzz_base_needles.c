/* SPDX-License-Identifier: Apache-2.0
 *
 * needles against the obvious code. Input: a byte of options, a number of needles, each a length byte and its bytes,
 * then the text. */
#include "base/needles.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

enum { COUNT = 24, TEXT = 2048 };

static bool naive_find(const struct needle *v, size_t n, struct str text, size_t from, struct needle_match *ret)
{
    for (size_t at = from; at < text.n; at++) {
        const struct needle *best = NULL;
        for (size_t i = 0; i < n; i++)
            if (str_starts(str_from(text, at), v[i].bytes) && (!best || v[i].bytes.n > best->bytes.n))
                best = &v[i];
        if (best) {
            *ret = (struct needle_match) { at, best->bytes.n, best->id };
            return true;
        }
    }
    return false;
}

static size_t naive_tail(const struct needle *v, size_t n, struct str text)
{
    for (size_t r = text.n; r > 0; r--)
        for (size_t i = 0; i < n; i++)
            if (v[i].bytes.n > r && str_starts(v[i].bytes, str_from(text, text.n - r)))
                return r;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    unsigned options = data[0];
    size_t wanted = data[1] % COUNT, n = 0, at = 2;
    struct needle v[COUNT];
    for (; n < wanted && at < size; n++) {
        size_t len = data[at++];
        if (len > size - at)
            len = size - at;
        v[n] = (struct needle) { str_of(data + at, len), (unsigned)n };
        at += len;
    }
    struct str text = str_of(data + at, size - at > TEXT ? TEXT : size - at);
    bool short_one = false;
    for (size_t i = 0; i < n; i++)
        short_one |= v[i].bytes.n < 4;
    needles_limit_level(options % 3);
    struct needles *s = needles_new(v, n, options & 4, NULL);
    MUST((s == NULL) == short_one);
    if (!s)
        return 0;
    struct needle_match a = { 0 }, b = { 0 };
    for (size_t from = 0;;) {
        bool fa = needles_find(s, text, from, &a), fb = naive_find(v, n, text, from, &b);
        MUST(fa == fb);
        if (!fa)
            break;
        MUST(a.at == b.at && a.n == b.n && a.id == b.id);
        from = a.at + (options & 8 ? 1 : a.n);
    }
    for (size_t cut = text.n; cut + 8 > text.n; cut--) {
        MUST(needles_tail(s, str_sub(text, 0, cut)) == naive_tail(v, n, str_sub(text, 0, cut)));
        if (!cut)
            break;
    }
    needles_unref(&s);
    return 0;
}
