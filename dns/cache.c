/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table with chains (keyed hash: str_hash) and one list in order of use. The table doubles with its contents. */
#include "dns/cache.h"

#include <stdlib.h>

struct entry {
    struct entry *chain;
    struct entry *newer, *older;
    uint64_t hash;
    struct answer_set *sets[FAMILIES];
    uint8_t n;
    char name[];
};

struct cache {
    struct entry **table;
    size_t slots; /* power of two */
    size_t count, max;
    struct entry *newest, *oldest;
};

struct cache *cache_new(size_t max)
{
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->slots = 64;
    c->max = max > 0 ? max : 1;
    c->table = calloc(c->slots, sizeof(struct entry *));
    if (!c->table) {
        free(c);
        return NULL;
    }
    return c;
}

static void use_unlink(struct cache *c, struct entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void use_link(struct cache *c, struct entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static struct entry **find(struct cache *c, struct str name, uint64_t hash)
{
    struct entry **at = &c->table[hash & (c->slots - 1)];
    while (*at && !((*at)->hash == hash && str_eq(str_of((*at)->name, (*at)->n), name)))
        at = &(*at)->chain;
    return at;
}

static void drop(struct cache *c, struct entry *e)
{
    struct entry **at = &c->table[e->hash & (c->slots - 1)];
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    use_unlink(c, e);
    c->count--;
    for (int f = 0; f < FAMILIES; f++)
        answer_set_unref(&e->sets[f]);
    free(e);
}

void cache_flush(struct cache *c)
{
    while (c->oldest)
        drop(c, c->oldest);
}

void cache_free(struct cache **c)
{
    if (!*c)
        return;
    cache_flush(*c);
    free((*c)->table);
    free(*c);
    *c = NULL;
}

struct answer_set *cache_get(struct cache *c, struct str name, enum answer_family f, uint64_t now_ms)
{
    struct entry *e = *find(c, name, str_hash(name));
    if (!e || !e->sets[f])
        return NULL;
    if (e->sets[f]->expires_ms <= now_ms) {
        answer_set_unref(&e->sets[f]);
        if (!e->sets[f == FAMILY_V4 ? FAMILY_V6 : FAMILY_V4])
            drop(c, e);
        return NULL;
    }
    if (c->newest != e) {
        use_unlink(c, e);
        use_link(c, e);
    }
    return e->sets[f];
}

/* Best effort: a table that cannot grow only gets slower. */
static void grow(struct cache *c)
{
    size_t slots = c->slots * 2;
    struct entry **table = calloc(slots, sizeof(struct entry *));
    if (!table)
        return;
    for (struct entry *e = c->oldest; e; e = e->newer) {
        struct entry **at = &table[e->hash & (slots - 1)];
        e->chain = *at;
        *at = e;
    }
    free(c->table);
    c->table = table;
    c->slots = slots;
}

void cache_put(struct cache *c, struct str name, enum answer_family f, struct answer_set *s)
{
    if (name.n > UINT8_MAX)
        return;
    uint64_t hash = str_hash(name);
    struct entry *e = *find(c, name, hash);
    if (!e) {
        e = calloc(1, sizeof *e + name.n);
        if (!e)
            return;
        e->hash = hash;
        e->n = (uint8_t)name.n;
        memcpy(e->name, name.p, name.n);
        while (c->count >= c->max)
            drop(c, c->oldest);
        if (c->count >= c->slots)
            grow(c);
        struct entry **at = &c->table[hash & (c->slots - 1)];
        e->chain = *at;
        *at = e;
        c->count++;
    } else {
        use_unlink(c, e);
    }
    use_link(c, e);
    struct answer_set *old = e->sets[f];
    e->sets[f] = answer_set_ref(s);
    answer_set_unref(&old);
}

void cache_set_max(struct cache *c, size_t max)
{
    c->max = max > 0 ? max : 1;
    while (c->count > c->max)
        drop(c, c->oldest);
}

size_t cache_count(const struct cache *c)
{
    return c->count;
}
