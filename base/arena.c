/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ARENA_BLOCK = 4032 };

struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    alignas(max_align_t) char mem[];
};

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena) { .max = max };
}

void arena_done(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
    const size_t align = alignof(max_align_t);
    if (n > a->max || n > SIZE_MAX / 2)
        return NULL;
    n = (n + align - 1) & ~(align - 1);
    if (!n)
        n = align;
    struct arena_block *b = a->blocks;
    if (!b || b->cap - b->used < n) {
        size_t cap = n > ARENA_BLOCK ? n : ARENA_BLOCK;
        if (a->used + n > a->max)
            return NULL;
        b = calloc(1, sizeof *b + cap);
        if (!b)
            return NULL;
        b->cap = cap;
        b->next = a->blocks;
        a->blocks = b;
    } else if (a->used + n > a->max) {
        return NULL;
    }
    void *p = b->mem + b->used;
    b->used += n;
    a->used += n;
    return p;
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (!p)
        return STR_NONE;
    if (s.n)
        memcpy(p, s.p, s.n);
    return str_of(p, s.n);
}

struct str arena_printf(struct arena *a, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    struct str s = STR_NONE;
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p) {
        vsnprintf(p, (size_t)n + 1, format, again);
        s = str_of(p, (size_t)n);
    }
    va_end(again);
    return s;
}
