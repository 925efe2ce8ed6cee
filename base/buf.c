/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUF_FIRST = 256 };

static void buf_free_mem(struct buf *b)
{
    if (b->wipe && b->mem)
        explicit_bzero(b->mem, b->cap);
    free(b->mem);
    b->mem = NULL;
}

void buf_done(struct buf *b)
{
    buf_free_mem(b);
    *b = (struct buf) { .max = b->max, .wipe = b->wipe };
}

void buf_reset(struct buf *b)
{
    if (b->wipe && b->mem)
        explicit_bzero(b->mem, b->tail);
    b->head = b->tail = 0;
    b->failed = false;
}

void buf_release_if_empty(struct buf *b)
{
    if (b->mem && b->head == b->tail && !b->failed)
        buf_done(b);
}

char *buf_reserve(struct buf *b, size_t n)
{
    size_t size = buf_size(b);
    if (n > b->max || size > b->max - n) {
        b->failed = true;
        return NULL;
    }
    if (b->cap - b->tail >= n)
        return b->mem + b->tail;
    if (b->cap >= size + n && b->head >= b->cap / 2) { /* cheap: at least half is free in front */
        memmove(b->mem, b->mem + b->head, size);
        if (b->wipe)
            explicit_bzero(b->mem + size, b->tail - size);
        b->head = 0;
        b->tail = size;
        return b->mem + b->tail;
    }
    size_t cap = b->cap ? b->cap : BUF_FIRST;
    while (cap < size + n)
        cap = cap > SIZE_MAX / 2 ? size + n : cap * 2;
    if (cap > b->max)
        cap = b->max;
    char *mem = malloc(cap);
    if (!mem) {
        b->failed = true;
        return NULL;
    }
    if (size)
        memcpy(mem, b->mem + b->head, size);
    buf_free_mem(b);
    b->mem = mem;
    b->cap = cap;
    b->head = 0;
    b->tail = size;
    return b->mem + b->tail;
}

void buf_consume(struct buf *b, size_t n)
{
    if (b->wipe && n)
        explicit_bzero(b->mem + b->head, n);
    b->head += n;
    if (b->head == b->tail)
        b->head = b->tail = 0;
}

int buf_put(struct buf *b, struct str s)
{
    if (!s.n)
        return 0;
    char *p = buf_reserve(b, s.n);
    if (!p)
        return -1;
    memcpy(p, s.p, s.n);
    b->tail += s.n;
    return 0;
}

int buf_put_lower(struct buf *b, struct str s)
{
    if (!s.n)
        return 0;
    char *p = buf_reserve(b, s.n);
    if (!p)
        return -1;
    for (size_t i = 0; i < s.n; i++)
        p[i] = ascii_lower(s.p[i]);
    buf_wrote(b, s.n);
    return 0;
}

int buf_putc(struct buf *b, char c)
{
    char *p = buf_reserve(b, 1);
    if (!p)
        return -1;
    *p = c;
    b->tail++;
    return 0;
}

int buf_put_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t n = 0;
    do
        digits[sizeof digits - ++n] = (char)('0' + v % 10);
    while (v /= 10);
    return buf_put(b, str_of(digits + sizeof digits - n, n));
}

int buf_putf(struct buf *b, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    int r = -1;
    if (n >= 0) {
        char *p = buf_reserve(b, (size_t)n + 1);
        if (p) {
            vsnprintf(p, (size_t)n + 1, format, again);
            b->tail += (size_t)n;
            r = 0;
        }
    }
    va_end(again);
    return r;
}

const char *buf_z(struct buf *b)
{
    char *p = buf_reserve(b, 1);
    if (!p)
        return NULL;
    *p = 0;
    return b->mem + b->head;
}
