/* SPDX-License-Identifier: Apache-2.0
 *
 * needles: streaming search for many fixed byte strings at once, with the state that a match may need across chunk borders.
 * Linear time whatever the input; several GB/s for text without matches (SSSE3/AVX2 where the processor has it, plain C
 * elsewhere, same results). At one position the longest needle wins. Built once, then read-only and shared.
 * Case-sensitive; a needle is 4 to 65,536 bytes. A set made of secrets is wiped on release. */
#ifndef BASE_NEEDLES_H
#define BASE_NEEDLES_H

#include "base/err.h"
#include "base/str.h"

struct needles; /* immutable set, reference-counted */

struct needle {
    struct str bytes; /* copied */
    unsigned id;      /* the caller's; several needles may share one */
};
/* NULL when a needle is too short or memory is out. An empty set is fine and matches nothing. */
struct needles *needles_new(const struct needle *v, size_t n, bool secret, struct err *err);
struct needles *needles_ref(struct needles *s);
void needles_unref(struct needles **s);
size_t needles_longest(const struct needles *s);

struct needle_match {
    size_t at, n; /* in the text given */
    unsigned id;
};
/* First match at or after `from` in text; false: none. */
bool needles_find(const struct needles *s, struct str text, size_t from, struct needle_match *ret);
/* For streams: the length of the longest tail of `text` that is a proper prefix of some needle (0: nothing to hold back). */
size_t needles_tail(const struct needles *s, struct str text);
/* For tests and benches: sets made from now on use at most this: 0 plain C, 1 SSSE3, 2 AVX2. */
void needles_limit_level(unsigned level);

#endif
