/* SPDX-License-Identifier: Apache-2.0
 *
 * An open-addressing table over the distinct names of the patterns, at most half full. The keys come from the
 * configuration, so nobody outside can aim for one slot. */
#include "policy/host_index.h"

#include <stdlib.h>

struct slot_of_name {
    uint64_t hash;
    struct str name; /* p == NULL: empty */
    struct id_list exact, suffix;
};

struct host_index {
    struct slot_of_name *slots;
    size_t mask;
    uint32_t *ids;
    struct id_list any;
};

/* FNV-1a, from the last byte to the first: continued at each dot it is the hash of each suffix. */
static const uint64_t fnv_start = 0xcbf29ce484222325u;
static inline uint64_t fnv_step(uint64_t h, char c)
{
    return (h ^ (unsigned char)c) * 0x100000001b3u;
}

static inline size_t spread(uint64_t h)
{
    return (size_t)((h ^ h >> 29) * 0x9e3779b97f4a7c15u >> 20);
}

static struct slot_of_name *slot_of(const struct host_index *x, uint64_t hash, struct str name)
{
    for (size_t i = spread(hash) & x->mask;; i = (i + 1) & x->mask) {
        struct slot_of_name *s = &x->slots[i];
        if (!s->name.p || (s->hash == hash && str_eq(s->name, name)))
            return s;
    }
}

static int by_kind_name_id(const void *a, const void *b)
{
    const struct host_index_entry *x = a, *y = b;
    if (x->pattern->kind != y->pattern->kind)
        return x->pattern->kind < y->pattern->kind ? -1 : 1;
    int c = str_cmp(host_str(&x->pattern->host), host_str(&y->pattern->host));
    if (c)
        return c;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint64_t hash_of(struct str name)
{
    uint64_t h = fnv_start;
    for (size_t i = name.n; i-- > 0;)
        h = fnv_step(h, name.p[i]);
    return h;
}

static struct id_list *list_of(struct host_index *x, const struct host_pattern *p)
{
    if (p->kind == PATTERN_ANY)
        return &x->any;
    struct str name = host_str(&p->host);
    uint64_t hash = hash_of(name);
    struct slot_of_name *s = slot_of(x, hash, name);
    s->hash = hash;
    s->name = name;
    return p->kind == PATTERN_EXACT ? &s->exact : &s->suffix;
}

struct host_index *host_index_new(struct host_index_entry *entries, size_t n)
{
    struct host_index *x = calloc(1, sizeof *x);
    size_t size = 16;
    while (size < 2 * n + 2)
        size *= 2;
    if (x) {
        x->slots = calloc(size, sizeof *x->slots);
        x->ids = calloc(n + 1, sizeof *x->ids);
        x->mask = size - 1;
    }
    if (!x || !x->slots || !x->ids) {
        host_index_free(x);
        return NULL;
    }
    if (n)
        qsort(entries, n, sizeof *entries, by_kind_name_id);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        struct id_list *list = list_of(x, entries[i].pattern);
        if (list->n && list->v[list->n - 1] == entries[i].id)
            continue;
        if (!list->n)
            list->v = x->ids + used; /* entries of one list are neighbours */
        x->ids[used++] = entries[i].id;
        list->n++;
    }
    return x;
}

void host_index_free(struct host_index *x)
{
    if (!x)
        return;
    free(x->slots);
    free(x->ids);
    free(x);
}

size_t host_index_find(const struct host_index *x, const struct host *h, struct id_list *lists)
{
    size_t n = 0;
    uint64_t hash = fnv_start;
    struct str name = host_str(h);
    bool is_name = !host_is_ip(h);
    for (size_t i = name.n; i-- > 0;) {
        if (name.p[i] == '.' && is_name) {
            const struct slot_of_name *s = slot_of(x, hash, str_from(name, i + 1));
            if (s->suffix.n)
                lists[n++] = s->suffix;
        }
        hash = fnv_step(hash, name.p[i]);
    }
    const struct slot_of_name *s = slot_of(x, hash, name);
    if (s->exact.n)
        lists[n++] = s->exact;
    if (is_name && name.n && x->any.n)
        lists[n++] = x->any;
    return n;
}

bool id_walk_next(struct id_walk *w, uint32_t *ret)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < w->n; i++)
        if (w->lists[i].n && w->lists[i].v[0] < least)
            least = w->lists[i].v[0];
    if (least == UINT32_MAX)
        return false;
    for (size_t i = 0; i < w->n; i++)
        if (w->lists[i].n && w->lists[i].v[0] == least) {
            w->lists[i].v++;
            w->lists[i].n--;
        }
    *ret = least;
    return true;
}
