/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: growing bytes with a maximum that must be given. A buffer that would pass its maximum (or for which there is no
 * memory) takes nothing of that write and remembers it: `failed` stays set until buf_reset, so a writer may append many
 * pieces and look once. Bytes are consumed from the front without moving them until room is needed. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/str.h"

struct buf {
    char *mem;   /* owned; NULL until the first byte */
    size_t head; /* offset of the first unread byte */
    size_t tail; /* offset past the last byte */
    size_t cap;
    size_t max; /* never hold more than this many bytes */
    bool failed;
    bool wipe; /* contents are zeroed before they are freed or moved: for bytes that hold a real value */
};

static inline void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf) { .max = max };
}

/* Frees the memory and leaves an empty buffer with the same maximum. */
void buf_done(struct buf *b);
/* Empties it, keeps the memory. */
void buf_reset(struct buf *b);
/* Frees the memory when the buffer is empty (an idle connection holds no buffer). */
void buf_release_if_empty(struct buf *b);

static inline size_t buf_size(const struct buf *b)
{
    return b->tail - b->head;
}
/* Borrowed view of the unread bytes; valid until the next write. */
static inline struct str buf_str(const struct buf *b)
{
    return (struct str) { b->mem ? b->mem + b->head : NULL, b->tail - b->head };
}
static inline size_t buf_room(const struct buf *b)
{
    return b->max - buf_size(b);
}

/* Makes n contiguous writable bytes and returns them, or NULL (failed is set). Follow with buf_wrote. */
char *buf_reserve(struct buf *b, size_t n);
static inline void buf_wrote(struct buf *b, size_t n)
{
    b->tail += n;
}
/* Drops n bytes from the front (n <= size). */
void buf_consume(struct buf *b, size_t n);

/* 0, or -1 with failed set and nothing written. */
int buf_put(struct buf *b, struct str s);
/* In ASCII lower case. */
int buf_put_lower(struct buf *b, struct str s);
int buf_putc(struct buf *b, char c);
int buf_put_u64(struct buf *b, uint64_t v);
int buf_putf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a NUL that is not counted, for C interfaces; NULL on failure. */
const char *buf_z(struct buf *b);

#endif
