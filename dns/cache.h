/* SPDX-License-Identifier: Apache-2.0
 *
 * cache: answer sets by name, both families of a name together. Holds at most `max` names, the least recently used goes
 * first; no set is given out past its time. Knows no policy: what is in here is what servers said. */
#ifndef DNS_CACHE_H
#define DNS_CACHE_H

#include "dns/answer_set.h"

enum answer_family { FAMILY_V4 = 0, FAMILY_V6 = 1, FAMILIES = 2 };

struct cache;

/* NULL when out of memory. max is at least 1. */
struct cache *cache_new(size_t max);
void cache_free(struct cache **c);
/* Borrowed until the next cache_put, or NULL: not known or no longer good. */
struct answer_set *cache_get(struct cache *c, struct str name, enum answer_family f, uint64_t now_ms);
/* Takes a reference of its own; replaces what was there. Out of memory: nothing is kept. */
void cache_put(struct cache *c, struct str name, enum answer_family f, struct answer_set *s);
void cache_set_max(struct cache *c, size_t max);
void cache_flush(struct cache *c);
size_t cache_count(const struct cache *c);

#endif
