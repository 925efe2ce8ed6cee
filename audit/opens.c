/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/opens.h"

#include <stdlib.h>

int opens_init(struct opens *t, size_t max)
{
    size_t n = 64;
    while (n < max && n < 1 << 20)
        n *= 2;
    *t = (struct opens) { .nbuckets = n, .max = max };
    t->buckets = calloc(n, sizeof(struct open_entry *));
    return t->buckets ? 0 : -1;
}

void opens_done(struct opens *t)
{
    while (t->oldest) {
        struct open_entry *e = t->oldest;
        t->oldest = e->next;
        free(e);
    }
    free(t->buckets);
    *t = (struct opens) { 0 };
}

/* The last request_id of a decoded record is its request_id (record_decode); found without decoding the rest again. */
static struct str record_id(const unsigned char *p, size_t n)
{
    struct str id = STR_NONE;
    for (size_t at = EVENT_HEAD; at + 4 <= n;) {
        uint16_t length;
        memcpy(&length, p + at + 2, 2);
        if (length > n - at - 4)
            break;
        if (p[at] == FIELD_REQUEST_ID && p[at + 1] == KIND_STR)
            id = str_of(p + at + 4, length);
        at += 4 + (size_t)length;
    }
    return id;
}

static struct open_entry **bucket(const struct opens *t, uint64_t hash)
{
    return &t->buckets[hash & (t->nbuckets - 1)];
}

static struct open_entry *find(const struct opens *t, struct str id, uint64_t hash)
{
    for (struct open_entry *e = *bucket(t, hash); e; e = e->bucket_next)
        if (e->hash == hash && str_eq(str_of((const char *)e->bytes + e->id_at, e->id_n), id))
            return e;
    return NULL;
}

struct open_entry *opens_find(const struct opens *t, struct str id)
{
    return id.n && t->n ? find(t, id, str_hash(id)) : NULL;
}

int opens_add(struct opens *t, const unsigned char *bytes, size_t n, uint64_t seq, unsigned worker)
{
    struct str id = record_id(bytes, n);
    if (!id.n || n > EVENT_MAX)
        return -1;
    uint64_t hash = str_hash(id);
    struct open_entry *old = find(t, id, hash);
    if (old) {
        opens_take(t, old);
        free(old);
    }
    if (t->n >= t->max)
        return -1;
    struct open_entry *e = malloc(sizeof *e + n);
    if (!e)
        return -1;
    *e = (struct open_entry) {
        .seq = seq,
        .hash = hash,
        .worker = worker,
        .n = (uint16_t)n,
        .id_at = (uint16_t)(id.p - (const char *)bytes),
        .id_n = (uint16_t)id.n,
        .prev = t->newest,
    };
    memcpy(e->bytes, bytes, n);
    struct open_entry **b = bucket(t, hash);
    e->bucket_next = *b;
    *b = e;
    if (t->newest)
        t->newest->next = e;
    else
        t->oldest = e;
    t->newest = e;
    t->n++;
    return 0;
}

void opens_take(struct opens *t, struct open_entry *e)
{
    struct open_entry **b = bucket(t, e->hash);
    while (*b != e)
        b = &(*b)->bucket_next;
    *b = e->bucket_next;
    if (e->prev)
        e->prev->next = e->next;
    else
        t->oldest = e->next;
    if (e->next)
        e->next->prev = e->prev;
    else
        t->newest = e->prev;
    e->bucket_next = e->prev = e->next = NULL;
    t->n--;
}
