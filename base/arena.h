/* SPDX-License-Identifier: Apache-2.0
 *
 * arena: memory that lives as long as its owner (an exchange, a snapshot) and is freed at once. Has a maximum; a request
 * past it returns NULL. Memory is zeroed. Not for secrets (nothing is wiped). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/str.h"

struct arena_block;
struct arena {
    struct arena_block *blocks;
    size_t used, max;
};

void arena_init(struct arena *a, size_t max);
void arena_done(struct arena *a);
/* Zeroed, aligned for any type; NULL when the maximum is reached or memory is out. */
void *arena_alloc(struct arena *a, size_t n);
/* A copy of the bytes (n = 0 gives a non-NULL pointer), NUL-terminated past the end for C interfaces; p == NULL on
 * failure. */
struct str arena_str(struct arena *a, struct str s);
struct str arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
