/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout, all numbers little-endian: magic and version (8 bytes), checksum of all that follows (8), flags (4: bit 0
 * last), zones (4), agents (4), unsaved bits that may be missing (4), time (8), the two halves of the hash key (16);
 * then each zone: place 2, key 8, at 8, units 4, agent 2, times 1, counted 1; each agent: place 4, known 4, key 8, and
 * four times at 8, units 4. */
#include "dns/budget_state.h"

#include "dns/budget_impl.h"

#include <assert.h>

enum { HEAD = 92, ZONE = 26, AGENT = 64, LAST = 1 };
static const char magic[8] = "OGBUDG\0\2";
static_assert(HEAD + ZONE * BUDGET_ZONES + AGENT * BUDGET_AGENTS <= BUDGET_STATE_MAX, "all of it fits");

static void put(struct buf *out, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        buf_putc(out, (char)(v >> (8 * i) & 0xff));
}

static uint64_t get(struct str *s, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)(unsigned char)s->p[i] << (8 * i);
    *s = str_from(*s, n);
    return v;
}

/* No secret is in it: it finds what broke, and says nothing about who wrote it. */
uint64_t budget_state_checksum(struct str s)
{
    return str_hash_keyed(0x6f75746761746521u, 0x6275646765747321u, s);
}

static void put_spent(struct buf *out, const struct spent *s)
{
    put(out, s->at_ms, 8);
    put(out, s->units, 4);
}

static void put_zone(struct buf *out, const struct budget *b, size_t i)
{
    const struct budget_zone *z = &b->zones[i];
    put(out, i, 2);
    put(out, z->key, 8);
    put_spent(out, &z->spent);
    put(out, z->agent, 2);
    put(out, z->times, 1);
    put(out, z->counted, 1);
}

static void put_agent(struct buf *out, const struct budget *b, size_t i)
{
    const struct budget_agent *a = &b->agents[i];
    put(out, i, 4);
    put(out, a->known, 4);
    put(out, a->key, 8);
    put_spent(out, &a->spent);
    put_spent(out, &a->zones);
    put_spent(out, &a->any);
    put_spent(out, &a->pushed);
}

int budget_state_put(struct budget *b, bool last, uint64_t now_ms, struct buf *out)
{
    struct buf body;
    size_t zones = 0, agents = 0;
    for (size_t i = 0; i < BUDGET_ZONES; i++)
        zones += b->zones[i].key != 0;
    for (size_t i = 0; i < BUDGET_AGENTS; i++)
        agents += b->agents[i].key != 0;
    buf_init(&body, BUDGET_STATE_MAX);
    put(&body, last ? LAST : 0, 4);
    put(&body, zones, 4);
    put(&body, agents, 4);
    put(&body, b->limits.unsaved, 4);
    put(&body, budget_time(b, now_ms), 8);
    put(&body, b->k0, 8);
    put(&body, b->k1, 8);
    put_spent(&body, &b->floor);
    put_spent(&body, &b->floor_agent);
    put_spent(&body, &b->floor_any);
    for (size_t i = 0; i < BUDGET_ZONES; i++)
        if (b->zones[i].key != 0)
            put_zone(&body, b, i);
    for (size_t i = 0; i < BUDGET_AGENTS; i++)
        if (b->agents[i].key != 0)
            put_agent(&body, b, i);
    buf_put(out, str_of(magic, sizeof magic));
    put(out, budget_state_checksum(buf_str(&body)), 8);
    buf_put(out, buf_str(&body));
    bool failed = body.failed || out->failed;
    buf_done(&body);
    if (!failed) {
        b->saving += b->unsaved;
        b->unsaved = 0;
    }
    return failed ? -1 : 0;
}

static struct spent get_spent(struct str *s)
{
    struct spent v = { .at_ms = get(s, 8) };
    v.units = (uint32_t)get(s, 4);
    return v;
}

static bool plausible(const struct spent *s, uint64_t now)
{
    return s->at_ms <= now && s->units <= (uint32_t)BUDGET_BITS_MAX * COST_BIT * BUDGET_ABOVE;
}

static const char *get_zone(struct budget *b, struct str *s)
{
    uint64_t place = get(s, 2), key = get(s, 8);
    struct budget_zone z = { .key = key, .spent = get_spent(s) };
    z.agent = (uint16_t)get(s, 2);
    z.times = (uint8_t)get(s, 1);
    z.counted = get(s, 1) != 0;
    z.serial = ++b->serial;
    if (key == 0 || z.agent >= BUDGET_AGENTS || (z.times != 1 && z.times != BUDGET_ABOVE) ||
        !plausible(&z.spent, b->base_ms))
        return "a zone that cannot be";
    if (place >= BUDGET_ZONES || (place - key) % BUDGET_ZONES >= BUDGET_PROBES || b->zones[place].key != 0)
        return "a zone in another's place";
    b->zones[place] = z;
    return NULL;
}

static const char *get_agent(struct budget *b, struct str *s)
{
    uint64_t place = get(s, 4), known = get(s, 4);
    struct budget_agent a = { .key = get(s, 8), .known = (uint32_t)known };
    a.spent = get_spent(s);
    a.zones = get_spent(s);
    a.any = get_spent(s);
    a.pushed = get_spent(s);
    if (place >= BUDGET_AGENTS || a.key == 0 || b->agents[place].key != 0 || !plausible(&a.spent, b->base_ms) ||
        !plausible(&a.zones, b->base_ms) || !plausible(&a.any, b->base_ms) || !plausible(&a.pushed, b->base_ms))
        return "an agent that cannot be";
    b->agents[place] = a;
    return NULL;
}

static const char *get_all(struct budget *b, struct str s, bool *ret_last, uint32_t *ret_missing)
{
    if (s.n < HEAD || s.n > BUDGET_STATE_MAX)
        return "another size";
    if (memcmp(s.p, magic, sizeof magic) != 0)
        return "another version";
    s = str_from(s, sizeof magic);
    if (get(&s, 8) != budget_state_checksum(s))
        return "another checksum";
    uint64_t flags = get(&s, 4), zones = get(&s, 4), agents = get(&s, 4), missing = get(&s, 4);
    b->base_ms = get(&s, 8);
    b->k0 = get(&s, 8);
    b->k1 = get(&s, 8);
    b->floor = get_spent(&s);
    b->floor_agent = get_spent(&s);
    b->floor_any = get_spent(&s);
    if (!plausible(&b->floor, b->base_ms) || !plausible(&b->floor_agent, b->base_ms) ||
        !plausible(&b->floor_any, b->base_ms))
        return "a beginning that cannot be";
    if (flags > LAST || missing > BUDGET_BITS_MAX || b->base_ms > (uint64_t)INT64_MAX / 2 || zones > BUDGET_ZONES ||
        agents > BUDGET_AGENTS || s.n != zones * ZONE + agents * AGENT)
        return "numbers that cannot be";
    *ret_last = flags & LAST;
    *ret_missing = (uint32_t)missing;
    const char *why = NULL;
    for (uint64_t i = 0; i < zones && !why; i++)
        why = get_zone(b, &s);
    for (uint64_t i = 0; i < agents && !why; i++)
        why = get_agent(b, &s);
    for (size_t i = 0; i < BUDGET_ZONES && !why; i++)
        if (b->zones[i].key != 0 && b->agents[b->zones[i].agent].key == 0)
            why = "a zone of no agent";
    for (size_t i = 0; i < BUDGET_ZONES && !why; i++)
        if (b->zones[i].key != 0) {
            b->agents[b->zones[i].agent].places++;
            b->places++;
        }
    return why;
}

/* What was refilled until then is taken off first: it is no credit for what is added. */
static void add(struct budget *b, struct spent *s, uint64_t bits_a_day, uint64_t units)
{
    uint64_t most = (uint64_t)BUDGET_BITS_MAX * COST_BIT * BUDGET_ABOVE;
    budget_refill(s, bits_a_day * COST_BIT, b->base_ms);
    s->units = (uint32_t)(s->units + units < most ? s->units + units : most);
}

/* So many units more on every account there is, and on every one that there will be. */
static void charge_all(struct budget *b, uint64_t units)
{
    const struct budget_limits *l = &b->limits;
    add(b, &b->floor, l->refill, units);
    add(b, &b->floor_agent, l->agent_refill, units);
    add(b, &b->floor_any, l->any_refill, units);
    for (size_t i = 0; i < BUDGET_ZONES; i++)
        if (b->zones[i].key != 0)
            add(b, &b->zones[i].spent, (uint64_t)l->refill * b->zones[i].times, units);
    for (size_t i = 0; i < BUDGET_AGENTS; i++)
        if (b->agents[i].key != 0) {
            add(b, &b->agents[i].spent, l->agent_refill, units);
            add(b, &b->agents[i].any, l->any_refill, units);
            add(b, &b->agents[i].pushed, l->refill, units);
        }
}

static void half_spent(struct budget *b)
{
    memset(b->zones, 0, sizeof b->zones);
    memset(b->agents, 0, sizeof b->agents);
    b->places = 0;
    b->base_ms = 0;
    b->floor = (struct spent) { .units = b->limits.bits * COST_BIT / 2 };
    b->floor_agent = (struct spent) { .units = b->limits.agent_bits * COST_BIT / 2 };
    b->floor_any = (struct spent) { .units = b->limits.any_bits * COST_BIT / 2 };
}

enum budget_state budget_state_load(struct budget *b, struct str bytes, uint64_t now_ms, struct err *err)
{
    bool last = false;
    uint32_t missing = 0;
    b->from_ms = now_ms;
    const char *why = get_all(b, bytes, &last, &missing);
    if (why) {
        half_spent(b);
        err_set(err, "budgets: expected a state as it was saved, got %s (%zu bytes): every budget begins half spent",
                why, bytes.n);
        return BUDGET_STATE_DAMAGED;
    }
    if (last)
        return BUDGET_STATE_WHOLE;
    charge_all(b, (uint64_t)missing * COST_BIT);
    b->overdrawn = true;
    return BUDGET_STATE_NOT_LAST;
}
