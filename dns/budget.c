/* SPDX-License-Identifier: Apache-2.0
 *
 * A charge has two halves: what it would cost each account (ask), and then the charge itself (take), which cannot fail.
 * Places in the tables are taken only by the second, so that what is refused leaves nothing behind. */
#include "dns/budget_impl.h"

#include "base/clock.h"
#include "base/fair.h"

#include <stdlib.h>

void budget_limits_default(struct budget_limits *l)
{
    *l = (struct budget_limits) {
        .bits = 1024, .refill = 1024, .agent_bits = 8192, .agent_refill = 8192, .zones = 64,
        .any_bits = 65536, .any_refill = 65536, .unsaved = 128
    };
}

static int check_limits(const struct budget_limits *l, struct err *err)
{
    const uint32_t v[] = { l->bits,  l->refill,   l->agent_bits, l->agent_refill,
                           l->zones, l->any_bits, l->any_refill, l->unsaved };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        if (v[i] > BUDGET_BITS_MAX)
            return err_set(err, "exfiltration: expected budgets of at most %d bits, got %u", BUDGET_BITS_MAX, v[i]);
    return 0;
}

struct budget *budget_new(const struct budget_limits *l, uint64_t now_ms, struct err *err)
{
    if (check_limits(l, err) < 0)
        return NULL;
    struct budget *b = calloc(1, sizeof *b);
    if (b)
        b->seen = seen_new();
    if (!b || !b->seen) {
        free(b);
        err_set(err, "resolver: out of memory for budgets");
        return NULL;
    }
    b->limits = *l;
    b->from_ms = now_ms;
    rand_bytes(&b->k0, sizeof b->k0);
    rand_bytes(&b->k1, sizeof b->k1);
    return b;
}

void budget_free(struct budget **b)
{
    if (*b)
        seen_free(&(*b)->seen);
    free(*b);
    *b = NULL;
}

static void cap(struct spent *s, uint64_t bits)
{
    if (s->units > bits * COST_BIT)
        s->units = (uint32_t)(bits * COST_BIT);
}

/* An account that is empty is as good as one with a debt: otherwise each crash would lock all of them for some hours more. */
static void cap_all(struct budget *b)
{
    const struct budget_limits *l = &b->limits;
    cap(&b->floor, l->bits);
    cap(&b->floor_agent, l->agent_bits);
    cap(&b->floor_any, l->any_bits);
    for (size_t i = 0; i < BUDGET_ZONES; i++)
        cap(&b->zones[i].spent, (uint64_t)l->bits * b->zones[i].times);
    for (size_t i = 0; i < BUDGET_AGENTS; i++) {
        cap(&b->agents[i].spent, l->agent_bits);
        cap(&b->agents[i].any, l->any_bits);
        cap(&b->agents[i].pushed, l->bits);
    }
}

int budget_set_limits(struct budget *b, const struct budget_limits *l, struct err *err)
{
    if (check_limits(l, err) < 0)
        return -1;
    b->limits = *l;
    if (b->overdrawn)
        cap_all(b);
    b->overdrawn = false;
    return 0;
}

size_t budget_bytes(void)
{
    return sizeof(struct budget) + seen_bytes();
}

uint64_t budget_unsaved(const struct budget *b)
{
    return b->unsaved + b->saving;
}

bool budget_must_save(const struct budget *b)
{
    return budget_unsaved(b) > (uint64_t)b->limits.unsaved * COST_BIT;
}

bool budget_should_save(const struct budget *b)
{
    return b->unsaved > 0 && 2 * budget_unsaved(b) > (uint64_t)b->limits.unsaved * COST_BIT;
}

void budget_kept(struct budget *b, bool kept)
{
    b->unsaved += kept ? 0 : b->saving;
    b->saving = 0;
}

void budget_owe(struct budget *b)
{
    b->unsaved += (uint64_t)b->limits.unsaved * COST_BIT + 1;
}

void budget_refill(struct spent *s, uint64_t a_day, uint64_t now)
{
    if (now <= s->at_ms)
        return;
    uint64_t gone = now - s->at_ms;
    if (s->units == 0 || (a_day > 0 && gone / DAY_MS > s->units / a_day)) {
        *s = (struct spent) { .at_ms = now };
        return;
    }
    uint64_t due = (gone / DAY_MS) * a_day + (gone % DAY_MS) * a_day / DAY_MS;
    if (due >= s->units) {
        *s = (struct spent) { .at_ms = now };
        return;
    }
    s->units -= (uint32_t)due;
    if (due > 0)
        s->at_ms += (due * DAY_MS + a_day - 1) / a_day;
}

/* --- places --- */

static uint64_t agent_key(const struct budget *b, struct str agent)
{
    uint64_t key = str_hash_keyed(b->k0, b->k1, agent);
    return key ? key : 1;
}

static uint64_t zone_key(const struct budget *b, uint64_t agent, struct str zone, unsigned times)
{
    uint64_t key = str_hash_keyed(b->k0 ^ agent, b->k1 + times, zone);
    return key ? key : 1;
}

/* The agent's place, or the one that it will take, or, where none is free, the one that it shares. */
static struct budget_agent *agent_place(struct budget *b, uint64_t key)
{
    for (size_t i = 0; i < BUDGET_AGENTS; i++) {
        struct budget_agent *a = &b->agents[(key + i) % BUDGET_AGENTS];
        if (a->key == key || a->key == 0)
            return a;
    }
    return &b->agents[key % BUDGET_AGENTS];
}

static struct budget_zone *zone_find(struct budget *b, uint64_t key)
{
    for (size_t i = 0; i < BUDGET_PROBES; i++) {
        struct budget_zone *z = &b->zones[(key + i) % BUDGET_ZONES];
        if (z->key == key)
            return z;
    }
    return NULL;
}

static uint64_t zone_a_day(const struct budget *b, unsigned times)
{
    return (uint64_t)b->limits.refill * COST_BIT * times;
}

/* Where zones of this agent begin that are not in the table. */
static struct spent *pushed(struct budget *b, struct budget_agent *a, uint64_t now)
{
    budget_refill(&a->pushed, zone_a_day(b, 1), now);
    return &a->pushed;
}

static void push_out(struct budget *b, struct budget_zone *z, uint64_t now)
{
    struct spent *p = pushed(b, &b->agents[z->agent], now);
    uint32_t units = (z->spent.units + z->times - 1) / z->times;
    if (units > p->units)
        *p = (struct spent) { .at_ms = now, .units = units };
}

static void zone_drop(struct budget *b, struct budget_zone *z)
{
    b->agents[z->agent].places--;
    b->places--;
    z->key = 0;
}

/* Of an agent with more zones before that of one with fewer; of one agent, the less spent. */
static bool goes_before(const struct budget *b, const struct budget_zone *z, const struct budget_zone *other)
{
    uint32_t places = b->agents[z->agent].places, others = b->agents[other->agent].places;
    return places != others ? places > others : z->spent.units < other->spent.units;
}

/* A place for a zone that has none: a free one, or one of those probed, but not that of `keep`. */
static struct budget_zone *zone_take(struct budget *b, const struct budget_agent *a, uint64_t key,
                                     const struct budget_zone *keep, uint64_t now)
{
    bool over = !fair_may(a->places, b->places, BUDGET_ZONES);
    struct budget_zone *room = NULL, *own = NULL, *first = NULL;
    for (size_t i = 0; i < BUDGET_PROBES; i++) {
        struct budget_zone *z = &b->zones[(key + i) % BUDGET_ZONES];
        if (z->key == 0) {
            room = room ? room : z;
            continue;
        }
        budget_refill(&z->spent, zone_a_day(b, z->times), now);
        if (z == keep)
            continue;
        if (!first || goes_before(b, z, first))
            first = z;
        if (&b->agents[z->agent] == a && (!own || z->spent.units < own->spent.units))
            own = z;
    }
    struct budget_zone *goes = over && own ? own : room ? NULL : first;
    if (!goes)
        return room;
    if (goes->spent.units > 0)
        push_out(b, goes, now);
    zone_drop(b, goes);
    return goes;
}

/* --- agents that come and go --- */

/* Has nothing spent, nor any zone of it. busy: by agent, whose zones have. */
static bool agent_is_idle(struct budget *b, struct budget_agent *a, const bool *busy, uint64_t now)
{
    budget_refill(&a->spent, (uint64_t)b->limits.agent_refill * COST_BIT, now);
    budget_refill(&a->zones, (uint64_t)b->limits.zones * 24, now);
    budget_refill(&a->any, (uint64_t)b->limits.any_refill * COST_BIT, now);
    return !busy[a - b->agents] && a->spent.units == 0 && a->zones.units == 0 && a->any.units == 0 && pushed(b, a, now)->units == 0;
}

/* The idle agent with the fewest zones gives up its place, and they go; NULL: there is none. */
static struct budget_agent *agent_leave(struct budget *b, uint64_t now)
{
    bool busy[BUDGET_AGENTS] = { false };
    struct budget_agent *least = NULL;
    for (size_t i = 0; i < BUDGET_ZONES; i++) {
        struct budget_zone *z = &b->zones[i];
        if (z->key == 0)
            continue;
        budget_refill(&z->spent, zone_a_day(b, z->times), now);
        busy[z->agent] |= z->spent.units > 0;
    }
    for (size_t i = 0; i < BUDGET_AGENTS; i++) {
        struct budget_agent *a = &b->agents[i];
        if (agent_is_idle(b, a, busy, now) && (!least || a->places < least->places))
            least = a;
    }
    for (size_t i = 0; least && i < BUDGET_ZONES; i++)
        if (b->zones[i].key != 0 && &b->agents[b->zones[i].agent] == least)
            zone_drop(b, &b->zones[i]);
    return least;
}

/* The agent's place. Where none is free and nobody leaves one, it shares one; what was spent there while it shared is
 * its own, too, when it gets one. */
static struct budget_agent *agent_enter(struct budget *b, uint64_t key, uint64_t now)
{
    struct budget_agent *a = agent_place(b, key);
    if (a->key == key)
        return a;
    struct budget_agent begin = { .key = key, .spent = b->floor_agent, .any = b->floor_any, .pushed = b->floor };
    if (a->key != 0) {
        if (b->searched_ms && now - b->searched_ms < SEARCH_MS)
            return a;
        struct budget_agent *left = agent_leave(b, now);
        b->searched_ms = left ? 0 : now ? now : 1;
        if (!left)
            return a;
        begin = *a;
        begin.key = key;
        begin.known = begin.places = 0;
        a = left;
    }
    *a = begin;
    return a;
}

/* --- what it would cost --- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* One zone's account in one event. */
struct entry {
    uint64_t key, fingerprint;
    struct budget_zone *zone; /* NULL: not in the table */
    uint64_t cost, before, limit;
    unsigned times;
    bool fresh; /* a name not seen before */
};

static void entry_ask(struct budget *b, const struct budget_event *e, struct budget_agent *a, uint64_t agent,
                      struct str zone, unsigned in_zone, unsigned times, uint64_t name, uint64_t now, struct entry *t)
{
    *t = (struct entry) { .key = zone_key(b, agent, zone, times), .times = times, .fresh = true };
    t->limit = (uint64_t)b->limits.bits * COST_BIT * times;
    t->cost = (uint64_t)e->each + in_zone;
    t->zone = zone_find(b, t->key);
    if (!t->zone) {
        t->before = (uint64_t)pushed(b, a, now)->units * times;
        return;
    }
    budget_refill(&t->zone->spent, zone_a_day(b, times), now);
    t->before = t->zone->spent.units;
    t->fingerprint = mix(name + t->zone->serial * 0x9e3779b97f4a7c15u);
    if (t->zone->names == UINT16_MAX || !seen_has(b->seen, t->fingerprint))
        return;
    t->fresh = false;
    unsigned choice = name_cost_log2(t->zone->names);
    if (e->free_seen)
        t->cost = 0;
    else if (choice < in_zone)
        t->cost = (uint64_t)e->each + choice;
}

/* What naming the zone says to who sees all of them: which of those known, or a new one's name; one bit for which. */
static uint64_t naming_cost(const struct budget_event *e, const struct budget_agent *a, const struct entry *t)
{
    bool known = t->zone && t->zone->counted;
    return COST_BIT + (known ? name_cost_log2(a->known) : e->naming);
}

/* --- the charge --- */

static void entry_take(struct budget *b, struct budget_agent *a, struct entry *t, const struct entry *other,
                       uint64_t name, uint64_t now)
{
    if (!t->zone) {
        struct budget_zone *z = zone_take(b, a, t->key, other->zone, now);
        /* Making room may have raised where zones of this agent begin; the check was against what it was before, so
         * that what is charged here is at most the limit. */
        *z = (struct budget_zone) { .key = t->key,
                                    .spent = { .at_ms = now, .units = (uint32_t)t->before },
                                    .serial = ++b->serial,
                                    .agent = (uint16_t)(a - b->agents),
                                    .times = (uint8_t)t->times };
        a->places++;
        b->places++;
        t->zone = z;
        t->fingerprint = mix(name + z->serial * 0x9e3779b97f4a7c15u);
    }
    t->zone->spent.units += (uint32_t)t->cost;
    if (!t->fresh)
        return;
    seen_add(b->seen, t->fingerprint);
    if (t->zone->names < UINT16_MAX)
        t->zone->names++;
}

static enum budget_verdict refuse(struct budget_account *ret, uint64_t cost, uint64_t before, uint64_t limit,
                                  unsigned names, enum budget_verdict v)
{
    *ret = (struct budget_account) { .cost = cost, .before = before, .limit = limit, .names = names, .of = v };
    return v;
}

static unsigned names_of(const struct entry *t)
{
    unsigned names = t->zone ? t->zone->names : 0;
    return names + (t->fresh && names < UINT16_MAX ? 1 : 0);
}

/* The agent's own accounts. *ret_cost: what its bits are charged. */
static enum budget_verdict agent_ask(struct budget *b, const struct budget_event *e, struct budget_agent *a,
                                     const struct entry *t, uint64_t now, uint64_t *ret_cost,
                                     struct budget_account *ret)
{
    uint64_t limit = (uint64_t)b->limits.agent_bits * COST_BIT;
    *ret_cost = t->cost + naming_cost(e, a, t);
    budget_refill(&a->zones, (uint64_t)b->limits.zones * 24, now);
    budget_refill(&a->spent, (uint64_t)b->limits.agent_refill * COST_BIT, now);
    if (!(t->zone && t->zone->counted) && a->zones.units >= b->limits.zones)
        return refuse(ret, *ret_cost, (uint64_t)a->zones.units * COST_BIT, (uint64_t)b->limits.zones * COST_BIT,
                      names_of(t), BUDGET_NEW_ZONES);
    if (a->spent.units + *ret_cost > limit)
        return refuse(ret, *ret_cost, a->spent.units, limit, names_of(t), BUDGET_AGENT_SPENT);
    return BUDGET_OK;
}

/* True: the zone was not among those that the agent is known to have named. */
static bool count_zone(struct budget_agent *a, const struct entry *t)
{
    if (t->zone->counted)
        return false;
    t->zone->counted = true;
    a->known++;
    return true;
}

static void agent_take(struct budget_agent *a, const struct entry *t, uint64_t cost)
{
    a->spent.units += (uint32_t)cost;
    a->zones.units += count_zone(a, t);
}

/* What a new name under `*` says over all zones: itself, and which zone. */
static bool any_fits(struct budget *b, const struct budget_event *e, struct budget_agent *a, const struct entry *t,
                     uint64_t now, struct budget_account *ret)
{
    *ret = (struct budget_account) { .names = names_of(t), .of = BUDGET_ANY_SPENT };
    ret->limit = (uint64_t)b->limits.any_bits * COST_BIT;
    budget_refill(&a->any, (uint64_t)b->limits.any_refill * COST_BIT, now);
    ret->before = a->any.units;
    ret->cost = t->cost > 0 ? t->cost + naming_cost(e, a, t) : 0;
    return ret->cost == 0 || ret->before + ret->cost <= ret->limit;
}

static void any_take(struct budget_agent *a, const struct entry *t, uint64_t cost)
{
    a->any.units += (uint32_t)cost;
    if (cost > 0)
        (void)count_zone(a, t);
}

/* By its share. */
static bool fuller(const struct budget_account *a, const struct budget_account *b)
{
    return (a->before + a->cost) * b->limit > (b->before + b->cost) * a->limit;
}

static struct budget_account account_of(const struct entry *t, enum budget_verdict of)
{
    return (struct budget_account) {
        .cost = t->cost, .before = t->before, .limit = t->limit, .names = names_of(t), .of = of
    };
}

enum budget_verdict budget_charge(struct budget *b, const struct budget_event *e, uint64_t now_ms,
                                  struct budget_account *ret)
{
    uint64_t now = budget_time(b, now_ms), key = agent_key(b, e->agent), agent_cost = 0;
    uint64_t name = str_hash_keyed(~b->k0, ~b->k1, e->name);
    struct budget_agent *a = agent_enter(b, key, now);
    struct entry zone, above = { 0 };
    entry_ask(b, e, a, key, e->zone, e->in_zone, 1, name, now, &zone);
    if (zone.before + zone.cost > zone.limit && zone.cost > 0)
        return refuse(ret, zone.cost, zone.before, zone.limit, names_of(&zone), BUDGET_ZONE_SPENT);
    if (e->above.n > 0) {
        entry_ask(b, e, a, key, e->above, e->in_above, BUDGET_ABOVE, name, now, &above);
        if (above.before + above.cost > above.limit && above.cost > 0)
            return refuse(ret, above.cost, above.before, above.limit, names_of(&above), BUDGET_ABOVE_SPENT);
    }
    if (!e->approved) {
        enum budget_verdict v = agent_ask(b, e, a, &zone, now, &agent_cost, ret);
        if (v != BUDGET_OK)
            return v;
    }
    struct budget_account any = { 0 };
    if (e->any && !any_fits(b, e, a, &zone, now, &any)) {
        *ret = any;
        return BUDGET_ANY_SPENT;
    }
    uint64_t all = zone.cost > above.cost ? zone.cost : above.cost;
    all = all > agent_cost ? all : agent_cost;
    all = all > any.cost ? all : any.cost;
    if (e->hold && all > 0 && budget_unsaved(b) + all > (uint64_t)b->limits.unsaved * COST_BIT)
        return refuse(ret, zone.cost, zone.before, zone.limit, names_of(&zone), BUDGET_HELD);
    *ret = account_of(&zone, BUDGET_ZONE_SPENT);
    struct budget_account of_above = account_of(&above, BUDGET_ABOVE_SPENT);
    if (e->above.n > 0 && fuller(&of_above, ret))
        *ret = of_above;
    if (e->any && fuller(&any, ret))
        *ret = any;
    entry_take(b, a, &zone, &above, name, now);
    if (!e->approved)
        agent_take(a, &zone, agent_cost);
    else
        any_take(a, &zone, any.cost);
    if (e->above.n > 0)
        entry_take(b, a, &above, &zone, name, now);
    b->unsaved += all;
    ret->charged = all;
    return BUDGET_OK;
}

size_t budget_accounts(struct budget *b, const struct budget_event *e, uint64_t now_ms, struct budget_account ret[BUDGET_ACCOUNTS])
{
    uint64_t now = budget_time(b, now_ms), key = agent_key(b, e->agent), cost;
    uint64_t name = str_hash_keyed(~b->k0, ~b->k1, e->name);
    struct budget_agent *a = agent_enter(b, key, now);
    struct budget_account refused;
    struct entry zone, above;
    size_t n = 0;
    entry_ask(b, e, a, key, e->zone, e->in_zone, 1, name, now, &zone);
    ret[n++] = account_of(&zone, BUDGET_ZONE_SPENT);
    if (e->above.n > 0) {
        entry_ask(b, e, a, key, e->above, e->in_above, BUDGET_ABOVE, name, now, &above);
        ret[n++] = account_of(&above, BUDGET_ABOVE_SPENT);
    }
    if (!e->approved) {
        (void)agent_ask(b, e, a, &zone, now, &cost, &refused);
        ret[n++] = (struct budget_account) { .cost = cost, .before = a->spent.units, .limit = (uint64_t)b->limits.agent_bits * COST_BIT, .of = BUDGET_AGENT_SPENT };
        if (!(zone.zone && zone.zone->counted))
            ret[n++] = (struct budget_account) { .cost = COST_BIT, .before = (uint64_t)a->zones.units * COST_BIT, .limit = (uint64_t)b->limits.zones * COST_BIT, .of = BUDGET_NEW_ZONES };
    }
    if (e->any)
        (void)any_fits(b, e, a, &zone, now, &ret[n++]);
    return n;
}

static uint32_t whole_bits(struct spent s, uint64_t a_day, uint64_t now)
{
    budget_refill(&s, a_day, now);
    return (s.units + COST_BIT - 1) / COST_BIT;
}

uint32_t budget_spent(const struct budget *b, struct str agent, struct str zone, uint64_t now_ms)
{
    uint64_t key = zone_key(b, agent_key(b, agent), zone, 1), now = budget_time(b, now_ms);
    for (size_t i = 0; i < BUDGET_PROBES; i++) {
        const struct budget_zone *z = &b->zones[(key + i) % BUDGET_ZONES];
        if (z->key == key)
            return whole_bits(z->spent, zone_a_day(b, 1), now);
    }
    return 0;
}

/* NULL: it has no place. */
static const struct budget_agent *agent_find(const struct budget *b, struct str agent)
{
    uint64_t key = agent_key(b, agent);
    for (size_t i = 0; i < BUDGET_AGENTS; i++) {
        const struct budget_agent *a = &b->agents[(key + i) % BUDGET_AGENTS];
        if (a->key == key)
            return a;
    }
    return NULL;
}

uint32_t budget_agent_spent(const struct budget *b, struct str agent, uint64_t now_ms)
{
    const struct budget_agent *a = agent_find(b, agent);
    return a ? whole_bits(a->spent, (uint64_t)b->limits.agent_refill * COST_BIT, budget_time(b, now_ms)) : 0;
}

uint32_t budget_any_spent(const struct budget *b, struct str agent, uint64_t now_ms)
{
    const struct budget_agent *a = agent_find(b, agent);
    return a ? whole_bits(a->any, (uint64_t)b->limits.any_refill * COST_BIT, budget_time(b, now_ms)) : 0;
}
