/* SPDX-License-Identifier: Apache-2.0
 *
 * Beside the table, in the writer's own memory: chains by hash, free places, and each agent's entries in the order in
 * which they were used last. */
#include "dns/virtual_names.h"

#include "base/fair.h"
#include "base/log.h"

#include <stdlib.h>

#define NONE UINT32_MAX
enum { TRIES = 8 /* places that a name may have by its hash alone */ };

struct entry {
    uint32_t chain;      /* next of the same bucket */
    uint32_t prev, next; /* of the same owner, by use */
    uint32_t owner;      /* NONE: the place is free */
    uint32_t free_at;    /* where in `free` */
    uint64_t hash, used_ms;
};
struct owner {
    char name[VIRTUAL_AGENT_MAX];
    uint8_t n;
    uint32_t oldest, newest, count;
};

struct virtual_names {
    struct virtual_table *table;
    uint64_t key[2];
    uint32_t places, nfree;
    struct entry *entries;
    uint32_t *buckets, *free;
    uint32_t nbuckets; /* a power of two */
    struct owner *owners;
    uint32_t nowners, owners_max;
};

static uint64_t hash_of(const struct virtual_names *v, struct str agent, struct str name)
{
    char both[VIRTUAL_AGENT_MAX + 1 + HOST_MAX]; /* a name has no NUL in it */
    MUST(agent.n <= VIRTUAL_AGENT_MAX && name.n <= HOST_MAX);
    memcpy(both, agent.p, agent.n);
    both[agent.n] = '\0';
    memcpy(both + agent.n + 1, name.p, name.n);
    return str_hash_keyed(v->key[0], v->key[1], str_of(both, agent.n + 1 + name.n));
}

static uint32_t *bucket(struct virtual_names *v, uint64_t hash)
{
    return &v->buckets[(hash >> 32) & (v->nbuckets - 1)];
}

/* --- owners --- */

static struct str owner_name(const struct owner *o)
{
    return str_of(o->name, o->n);
}

/* NONE: out of memory. */
static uint32_t owner_get(struct virtual_names *v, struct str agent)
{
    uint32_t spare = NONE;
    for (uint32_t i = 0; i < v->nowners; i++) {
        if (str_eq(owner_name(&v->owners[i]), agent))
            return i;
        if (v->owners[i].count == 0)
            spare = i;
    }
    if (spare == NONE) {
        if (v->nowners == v->owners_max) {
            uint32_t max = v->owners_max ? 2 * v->owners_max : 16;
            struct owner *more = realloc(v->owners, max * sizeof *more);
            if (!more)
                return NONE;
            v->owners = more;
            v->owners_max = max;
        }
        spare = v->nowners++;
    }
    struct owner *o = &v->owners[spare];
    *o = (struct owner) { .n = (uint8_t)agent.n, .oldest = NONE, .newest = NONE };
    memcpy(o->name, agent.p, agent.n);
    return spare;
}

static void by_use_add(struct virtual_names *v, uint32_t place)
{
    struct entry *e = &v->entries[place];
    struct owner *o = &v->owners[e->owner];
    e->prev = o->newest;
    e->next = NONE;
    if (o->newest == NONE)
        o->oldest = place;
    else
        v->entries[o->newest].next = place;
    o->newest = place;
    o->count++;
}

static void by_use_del(struct virtual_names *v, uint32_t place)
{
    struct entry *e = &v->entries[place];
    struct owner *o = &v->owners[e->owner];
    if (e->prev == NONE)
        o->oldest = e->next;
    else
        v->entries[e->prev].next = e->next;
    if (e->next == NONE)
        o->newest = e->prev;
    else
        v->entries[e->next].prev = e->prev;
    o->count--;
}

/* --- entries --- */

static uint32_t find(struct virtual_names *v, struct str agent, struct str name, uint64_t hash)
{
    for (uint32_t at = *bucket(v, hash); at != NONE; at = v->entries[at].chain) {
        struct virtual_record r;
        uint64_t ms;
        if (v->entries[at].hash == hash && str_eq(owner_name(&v->owners[v->entries[at].owner]), agent) &&
            virtual_table_read(v->table, at, &r, &ms) && str_eq(str_of(r.name, r.name_n), name))
            return at;
    }
    return NONE;
}

static void free_add(struct virtual_names *v, uint32_t place)
{
    v->entries[place].owner = NONE;
    v->entries[place].free_at = v->nfree;
    v->free[v->nfree++] = place;
}

static void free_del(struct virtual_names *v, uint32_t place)
{
    uint32_t at = v->entries[place].free_at, last = v->free[--v->nfree];
    v->free[at] = last;
    v->entries[last].free_at = at;
}

static void add(struct virtual_names *v, uint32_t place, uint32_t owner, uint64_t hash, uint64_t used_ms)
{
    struct entry *e = &v->entries[place];
    free_del(v, place);
    e->owner = owner;
    e->hash = hash;
    e->used_ms = used_ms;
    e->chain = *bucket(v, hash);
    *bucket(v, hash) = place;
    by_use_add(v, place);
}

static void use(struct virtual_names *v, uint32_t place, uint64_t now_ms)
{
    by_use_del(v, place);
    by_use_add(v, place);
    v->entries[place].used_ms = now_ms;
    virtual_table_touch(v->table, place, now_ms);
}

static void take_back(struct virtual_names *v, uint32_t place)
{
    uint32_t *at = bucket(v, v->entries[place].hash);
    while (*at != place)
        at = &v->entries[*at].chain;
    *at = v->entries[place].chain;
    by_use_del(v, place);
    free_add(v, place);
    virtual_table_clear(v->table, place);
}

static bool is_old(const struct virtual_names *v, uint32_t place, uint64_t now_ms, uint64_t hold_ms)
{
    return place != NONE && now_ms >= v->entries[place].used_ms && now_ms - v->entries[place].used_ms >= hold_ms;
}

/* Are there so many that were not used for hold_ms? */
static bool are_old(const struct virtual_names *v, uint64_t wanted, uint64_t now_ms, uint64_t hold_ms)
{
    for (uint32_t i = 0; i < v->nowners; i++)
        for (uint32_t at = v->owners[i].oldest; is_old(v, at, now_ms, hold_ms); at = v->entries[at].next)
            if (--wanted == 0)
                return true;
    return false;
}

/* The one that was not used for the longest time, and for hold_ms: this owner's, or else anybody's. NONE: none was. */
static uint32_t oldest(const struct virtual_names *v, uint32_t owner, uint64_t now_ms, uint64_t hold_ms)
{
    uint32_t found = v->owners[owner].oldest;
    if (is_old(v, found, now_ms, hold_ms))
        return found;
    found = NONE;
    for (uint32_t i = 0; i < v->nowners; i++) {
        uint32_t at = v->owners[i].oldest;
        if (at != NONE && (found == NONE || v->entries[at].used_ms < v->entries[found].used_ms))
            found = at;
    }
    return is_old(v, found, now_ms, hold_ms) ? found : NONE;
}

/* A free place: by the hash alone as long as one of its first is free. */
static uint32_t choose(const struct virtual_names *v, uint64_t hash)
{
    uint64_t step = hash >> 40 | 1;
    for (uint64_t i = 0; i < TRIES; i++) {
        uint32_t place = (uint32_t)((hash + i * step) % v->places);
        if (v->entries[place].owner == NONE)
            return place;
    }
    return v->free[hash % v->nfree];
}

/* For one more of this owner's. Nothing is taken back in vain. */
static bool make_room(struct virtual_names *v, uint32_t owner, uint64_t now_ms, uint64_t hold_ms)
{
    for (bool sure = false; !fair_may(v->owners[owner].count, v->places - v->nfree, v->places); sure = true) {
        uint64_t wanted = v->owners[owner].count / FAIR_SHARE + 1 - v->nfree; /* of others'; of its own, fewer do */
        uint32_t old = oldest(v, owner, now_ms, hold_ms);
        if (old == NONE || (!sure && !are_old(v, wanted, now_ms, hold_ms)))
            return false;
        take_back(v, old);
    }
    return true;
}

bool virtual_names_give(struct virtual_names *v, struct str agent, struct str name, uint64_t now_ms, uint64_t hold_ms,
                        uint32_t *ret)
{
    uint64_t hash = hash_of(v, agent, name);
    uint32_t place = find(v, agent, name, hash);
    if (place != NONE) {
        use(v, place, now_ms);
        *ret = place;
        return true;
    }
    uint32_t owner = owner_get(v, agent);
    if (owner == NONE)
        return false;
    if (!make_room(v, owner, now_ms, hold_ms))
        return false;
    place = choose(v, hash);
    add(v, place, owner, hash, now_ms);
    virtual_table_write(v->table, place, agent, name, now_ms);
    *ret = place;
    return true;
}

void virtual_names_use(struct virtual_names *v, struct str agent, struct str name, uint64_t now_ms)
{
    if (agent.n > VIRTUAL_AGENT_MAX || name.n > HOST_MAX)
        return;
    uint32_t place = find(v, agent, name, hash_of(v, agent, name));
    if (place != NONE)
        use(v, place, now_ms);
}

const struct virtual_table *virtual_names_table(const struct virtual_names *v)
{
    return v->table;
}

/* --- from what is there --- */

struct known {
    uint32_t place;
    uint64_t ms;
};

static int by_ms(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    return x->ms < y->ms ? -1 : x->ms > y->ms;
}

static bool is_name(struct str text)
{
    struct host h;
    return host_parse(text, &h, NULL) == 0 && !host_is_ip(&h) && str_eq(host_str(&h), text);
}

static void read_back(struct virtual_names *v, const struct known *k)
{
    struct virtual_record r;
    uint64_t ms;
    if (!virtual_table_read(v->table, k->place, &r, &ms))
        return;
    struct str agent = str_of(r.agent, r.agent_n), name = str_of(r.name, r.name_n);
    uint64_t hash = hash_of(v, agent, name);
    uint32_t owner = is_name(name) && find(v, agent, name, hash) == NONE ? owner_get(v, agent) : NONE;
    if (owner == NONE)
        virtual_table_clear(v->table, k->place);
    else
        add(v, k->place, owner, hash, k->ms);
}

static int read_table(struct virtual_names *v, uint64_t now_ms)
{
    struct known *known = calloc(v->places, sizeof *known);
    struct virtual_record r;
    uint32_t n = 0;
    if (!known)
        return -1;
    for (uint32_t i = 0; i < v->places; i++) {
        free_add(v, i);
        if (virtual_table_taken(v->table, i)) {
            if (virtual_table_read(v->table, i, &r, &known[n].ms))
                known[n++].place = i;
            else
                virtual_table_clear(v->table, i);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (known[i].ms > now_ms)
            known[i].ms = now_ms;
    qsort(known, n, sizeof *known, by_ms);
    for (uint32_t i = 0; i < n; i++)
        read_back(v, &known[i]);
    free(known);
    return 0;
}

struct virtual_names *virtual_names_new(struct virtual_table *t, uint64_t now_ms, struct err *err)
{
    struct virtual_names *v = calloc(1, sizeof *v);
    if (v) {
        v->table = virtual_table_ref(t);
        virtual_table_key(t, v->key);
        v->places = virtual_table_places(t);
        v->nbuckets = 16;
        while (v->nbuckets < v->places)
            v->nbuckets *= 2;
        v->entries = calloc(v->places, sizeof *v->entries);
        v->free = calloc(v->places, sizeof *v->free);
        v->buckets = malloc(v->nbuckets * sizeof *v->buckets);
    }
    if (!v || !v->entries || !v->free || !v->buckets) {
        virtual_names_free(&v);
        err_set(err, "virtual names: out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < v->nbuckets; i++)
        v->buckets[i] = NONE;
    if (read_table(v, now_ms)) {
        virtual_names_free(&v);
        err_set(err, "virtual names: out of memory");
        return NULL;
    }
    return v;
}

void virtual_names_free(struct virtual_names **vp)
{
    struct virtual_names *v = *vp;
    *vp = NULL;
    if (!v)
        return;
    virtual_table_unref(&v->table);
    free(v->entries);
    free(v->free);
    free(v->buckets);
    free(v->owners);
    free(v);
}
