/* SPDX-License-Identifier: Apache-2.0
 *
 * opens: the exchanges that were opened and not closed yet, by request_id, in the order of their lines. One table per
 * ring, so that a writer can close nobody else's. Bounded by what the ring could reserve room for. */
#ifndef AUDIT_OPENS_H
#define AUDIT_OPENS_H

#include "audit/record.h"

struct open_entry {
    struct open_entry *bucket_next;
    struct open_entry *prev, *next; /* by age */
    uint64_t seq;                   /* of the open's line */
    uint64_t hash;                  /* of the request_id */
    unsigned worker;
    uint16_t n, id_at, id_n;
    unsigned char bytes[]; /* the encoded record */
};
struct opens {
    struct open_entry **buckets;
    size_t nbuckets; /* power of two */
    struct open_entry *oldest, *newest;
    size_t n, max;
};

/* 0 or -1 (memory). */
int opens_init(struct opens *t, size_t max);
void opens_done(struct opens *t);
/* Copies the record (which must decode and bear a request_id). 0; -1: full, no memory, or no id. A second open of one
 * id replaces the first. */
int opens_add(struct opens *t, const unsigned char *bytes, size_t n, uint64_t seq, unsigned worker);
struct open_entry *opens_find(const struct opens *t, struct str request_id);
/* Unlinks it; the caller frees it with free(). */
void opens_take(struct opens *t, struct open_entry *e);

#endif
