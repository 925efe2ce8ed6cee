/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/budget.h"

#include "dns/name_cost.h"
#include "dns/seen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HOUR = 3600000, DAY = 24 * HOUR };

static struct budget *with(const struct budget_limits *l)
{
    struct budget *b = budget_new(l, 1000, NULL);
    assert_non_null(b);
    return b;
}

static const struct budget_limits wide = {
    .bits = 100, .refill = 100, .agent_bits = BUDGET_BITS_MAX, .agent_refill = 1000, .zones = BUDGET_BITS_MAX
};

/* An event of an approved zone that costs so many bits the first time. */
static struct budget_event event(const char *zone, const char *name, unsigned bits)
{
    return (struct budget_event) {
        .agent = STR("a"), .zone = str_c(zone), .name = str_c(name), .in_zone = bits * COST_BIT, .approved = true
    };
}

static enum budget_verdict charge(struct budget *b, const struct budget_event *e, uint64_t now)
{
    struct budget_account a;
    return budget_charge(b, e, now, &a);
}

static void test_spends_and_refills(void **state)
{
    (void)state;
    struct budget *b = with(&wide);
    struct budget_account a;
    char name[16];
    for (unsigned i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "n%u.z.test", i);
        struct budget_event e = event("z.test", name, 10);
        assert_int_equal(budget_charge(b, &e, 1000, &a), BUDGET_OK);
        assert_int_equal(a.before, i * 10 * COST_BIT);
        assert_int_equal(a.cost, 10 * COST_BIT);
        assert_int_equal(a.limit, 100 * COST_BIT);
        assert_int_equal(a.names, i + 1);
    }
    struct budget_event e = event("z.test", "more.z.test", 1);
    assert_int_equal(budget_charge(b, &e, 1000, &a), BUDGET_ZONE_SPENT);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1000), 100);
    /* Another agent and another zone have their own. */
    e.agent = STR("other");
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e = event("y.test", "more.y.test", 100);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    /* One bit is refilled after a hundredth of a day, and not a millisecond before. */
    e = event("z.test", "more.z.test", 1);
    assert_int_equal(charge(b, &e, 1000 + DAY / 100 - 1), BUDGET_ZONE_SPENT);
    assert_int_equal(charge(b, &e, 1000 + DAY / 100), BUDGET_OK);
    assert_int_equal(
        charge(b,
               &(struct budget_event) {
                   .agent = STR("a"), .zone = STR("z.test"), .name = STR("x.z.test"), .in_zone = 1, .approved = true },
               1000 + DAY / 100),
        BUDGET_ZONE_SPENT);
    /* A clock that falls back gives nothing. */
    e = event("z.test", "back.z.test", 1);
    assert_int_equal(charge(b, &e, 0), BUDGET_ZONE_SPENT);
    assert_int_equal(charge(b, &e, 1000 + DAY / 100), BUDGET_ZONE_SPENT);
    /* Never more than all of it, however long nothing was asked. */
    e = event("z.test", "long.z.test", 101);
    assert_int_equal(charge(b, &e, 1000 + 40ull * DAY), BUDGET_ZONE_SPENT);
    e = event("z.test", "long.z.test", 100);
    assert_int_equal(charge(b, &e, 1000 + 40ull * DAY), BUDGET_OK);
    budget_free(&b);
    assert_null(b);
}

/* What an event is said to cost of each account is what it is charged there, and saying it charges nothing. */
static void test_accounts(void **state)
{
    (void)state;
    static const struct {
        bool approved, any, above;
        size_t n;
    } cases[] = { { true, false, false, 1 }, { true, false, true, 2 }, { true, true, false, 2 }, { false, false, false, 3 }, { false, false, true, 4 } };
    struct budget_limits l = wide;
    l.any_bits = l.any_refill = 1000;
    l.bits = l.refill = 400;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct budget *b = with(&l);
        struct budget_account v[BUDGET_ACCOUNTS], after[BUDGET_ACCOUNTS];
        struct budget_event e = event("z.cloud.test", "n.z.cloud.test", 10);
        e.approved = e.free_seen = cases[i].approved;
        e.any = cases[i].any;
        e.naming = 7 * COST_BIT;
        e.each = 2 * COST_BIT;
        e.above = cases[i].above ? STR("cloud.test") : STR_NONE;
        e.in_above = cases[i].above ? 15 * COST_BIT : 0;
        for (unsigned k = 0; k < 2; k++) {
            assert_int_equal(budget_accounts(b, &e, 1000, v), cases[i].n);
            assert_int_equal(budget_unsaved(b), 0);
        }
        assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
        /* A name that is known costs nothing where a rule lets it through, and what was spent is said. */
        assert_int_equal(budget_accounts(b, &e, 1000, after), cases[i].approved ? cases[i].n : cases[i].n - 1);
        assert_int_equal(after[0].cost > 0, !cases[i].approved);
        assert_int_equal(after[0].before, 12 * COST_BIT);
        for (size_t k = 0; k < cases[i].n; k++) {
            bool zones = v[k].of == BUDGET_NEW_ZONES;
            uint32_t spent = v[k].of == BUDGET_ZONE_SPENT    ? budget_spent(b, e.agent, e.zone, 1000)
                             : v[k].of == BUDGET_ABOVE_SPENT ? (uint32_t)(after[1].before / COST_BIT)
                             : v[k].of == BUDGET_AGENT_SPENT ? budget_agent_spent(b, e.agent, 1000)
                             : v[k].of == BUDGET_ANY_SPENT   ? budget_any_spent(b, e.agent, 1000)
                                                             : 1;
            uint64_t limit = v[k].of == BUDGET_ZONE_SPENT    ? 400
                             : v[k].of == BUDGET_ABOVE_SPENT ? 1600
                             : v[k].of == BUDGET_ANY_SPENT   ? 1000
                             : zones                         ? l.zones
                                                             : l.agent_bits;
            assert_int_equal(v[k].cost, spent * COST_BIT);
            assert_int_equal(v[k].limit, limit * COST_BIT);
            assert_int_equal(v[k].before, 0);
        }
        budget_free(&b);
    }
}

/* Asking often neither refills more nor less: over a day of polling what passes is the bucket and a day's refill. */
static void test_polling(void **state)
{
    (void)state;
    static const unsigned steps[] = { 1, 7, 977, 60000, 863999, 864000, 3600000 };
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        struct budget *b = with(&wide);
        uint64_t passed = 0, n = 0;
        char name[32];
        for (uint64_t t = 0; t <= DAY && n < 2000000; t += steps[s], n++) {
            snprintf(name, sizeof name, "n%llu.z.test", (unsigned long long)n);
            struct budget_event e = event("z.test", name, 1);
            passed += charge(b, &e, 1000 + t) == BUDGET_OK;
        }
        uint64_t days_refill = (n - 1) * steps[s] / (DAY / 100), most = 100 + days_refill, asked = n;
        if (passed > most || passed + 1 < (asked < most ? asked : most))
            fail_msg("every %u ms: %llu bits of at most %llu", steps[s], (unsigned long long)passed,
                     (unsigned long long)most);
        budget_free(&b);
    }
}

/* Not a unit too much, in forty days of asking for one unit at a time. */
static void test_exact(void **state)
{
    (void)state;
    struct budget_limits l = wide;
    l.refill = 97; /* a unit takes no whole number of milliseconds */
    struct budget *b = with(&l);
    uint64_t passed = 0, t = 0;
    for (unsigned n = 0; t < 40ull * DAY; t += 17, n++) {
        char name[32];
        snprintf(name, sizeof name, "n%u.z.test", n % 50000);
        struct budget_event e = event("z.test", name, 0);
        e.each = 1;
        while (charge(b, &e, 1000 + t) == BUDGET_OK)
            passed++;
        t += n < 100 ? 0 : 37000;
        uint64_t most = 100 * COST_BIT + t * 97 * COST_BIT / DAY;
        if (passed > most)
            fail_msg("%llu units of %llu after %llu ms", (unsigned long long)passed, (unsigned long long)most,
                     (unsigned long long)t);
    }
    assert_true(passed + 2 >= 100 * COST_BIT + 40 * 97 * COST_BIT);
    budget_free(&b);
}

static void test_seen_names(void **state)
{
    (void)state;
    struct budget_limits l = wide;
    l.bits = 100000;
    struct budget *b = with(&l);
    struct budget_account a;
    char name[16];
    for (unsigned i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "n%u.z.test", i);
        struct budget_event e = event("z.test", name, 30);
        e.each = 6 * COST_BIT;
        assert_int_equal(budget_charge(b, &e, 1000, &a), BUDGET_OK);
        assert_int_equal(a.cost, 36 * COST_BIT);
    }
    struct budget_event e = event("z.test", "n7.z.test", 30);
    e.each = 6 * COST_BIT;
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 12 * COST_BIT); /* one of 64 */
    assert_int_equal(a.names, 64);
    e.in_zone = 2 * COST_BIT; /* a name that is cheaper than the choice */
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 8 * COST_BIT);
    /* Where names that are known are free, in whatever order they come; a new one is not. */
    e.in_zone = 30 * COST_BIT;
    e.free_seen = true;
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 0);
    e.name = STR("n8.z.test");
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 0);
    e.name = STR("n99.z.test");
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 36 * COST_BIT);
    e.name = STR("n8.z.test");
    e.free_seen = false;
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 12 * COST_BIT + 1); /* one of 65 */
    /* The same name for another agent is new. */
    e.agent = STR("other");
    budget_charge(b, &e, 1000, &a);
    assert_int_equal(a.cost, 36 * COST_BIT);
    budget_free(&b);
}

/* Nothing that was not added is ever seen, however full the set is. */
static void test_seen_set(void **state)
{
    (void)state;
    struct seen *s = seen_new();
    assert_non_null(s);
    uint64_t x = 1;
    unsigned kept = 0;
    for (unsigned i = 0; i < 300000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        assert_false(seen_has(s, x ^ 0x5555));
        seen_add(s, x);
        kept += seen_has(s, x);
    }
    assert_int_equal(kept, 300000);
    assert_false(seen_has(s, 0));
    seen_free(&s);
}

static void test_zone_above(void **state)
{
    (void)state;
    struct budget *b = with(&wide);
    struct budget_account a;
    char zone[32], name[48];
    unsigned passed = 0;
    for (unsigned i = 0; i < 50; i++) {
        snprintf(zone, sizeof zone, "t%u.cloud.test", i);
        snprintf(name, sizeof name, "x.%s", zone);
        struct budget_event e = event(zone, name, 4);
        e.above = STR("cloud.test");
        e.in_above = 20 * COST_BIT;
        enum budget_verdict v = budget_charge(b, &e, 1000, &a);
        passed += v == BUDGET_OK;
        assert_true(v == BUDGET_OK || v == BUDGET_ABOVE_SPENT);
        /* All or nothing: where the one has no room the other is not charged. */
        assert_int_equal(budget_spent(b, STR("a"), str_c(zone), 1000), v == BUDGET_OK ? 4 : 0);
        if (v == BUDGET_OK)
            assert_int_equal(a.limit, BUDGET_ABOVE * 100 * COST_BIT); /* the fuller one is told */
    }
    assert_int_equal(passed, 4 * 100 / 20);
    /* The control: without a zone above it passes. Names of the zone above itself have their own account. */
    struct budget_event e = event("t49.cloud.test", "x.t49.cloud.test", 5);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e = event("cloud.test", "www.cloud.test", 100);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    budget_free(&b);
}

static void test_agent(void **state)
{
    (void)state;
    struct budget_limits l = { .bits = 100, .refill = 100, .agent_bits = 200, .agent_refill = 200, .zones = 4 };
    struct budget *b = with(&l);
    struct budget_account a;
    char zone[16], name[32];
    enum budget_verdict v = BUDGET_OK;
    for (unsigned i = 0; i < 5; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        snprintf(name, sizeof name, "x.%s", zone);
        struct budget_event e = event(zone, name, 10);
        e.approved = false;
        e.naming = 20 * COST_BIT;
        v = budget_charge(b, &e, 1000, &a);
        assert_int_equal(v, i < 4 ? BUDGET_OK : BUDGET_NEW_ZONES);
    }
    assert_int_equal(budget_agent_spent(b, STR("a"), 1000), 4 * (10 + 20 + 1));
    /* The control: approved, or a known zone, or fifteen minutes later. */
    struct budget_event e = event("z4.test", "x.z4.test", 10);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e.approved = false;
    e.naming = 20 * COST_BIT;
    assert_int_equal(charge(b, &e, 1000), BUDGET_NEW_ZONES);
    assert_int_equal(charge(b, &e, 1000 + HOUR / 4 - 1), BUDGET_NEW_ZONES);
    assert_int_equal(charge(b, &e, 1000 + HOUR / 4), BUDGET_OK);
    /* A known zone: which of five. */
    e = event("z0.test", "y.z0.test", 10);
    e.approved = false;
    e.naming = 20 * COST_BIT;
    uint32_t before = budget_agent_spent(b, STR("a"), 1000 + HOUR / 4);
    assert_int_equal(charge(b, &e, 1000 + HOUR / 4), BUDGET_OK);
    assert_in_range(budget_agent_spent(b, STR("a"), 1000 + HOUR / 4) - before, 10 + 1 + 2, 10 + 1 + 3);
    /* All zones together. */
    e = event("z1.test", "long.z1.test", 80);
    e.approved = false;
    assert_int_equal(budget_charge(b, &e, 1000 + HOUR / 4, &a), BUDGET_AGENT_SPENT);
    assert_int_equal(a.limit, 200 * COST_BIT);
    assert_int_equal(budget_spent(b, STR("a"), STR("z1.test"), 1000 + HOUR / 4), 9); /* refilled one */
    e.approved = true;
    assert_int_equal(charge(b, &e, 1000 + HOUR / 4), BUDGET_OK);
    budget_free(&b);
}

static void test_unsaved(void **state)
{
    (void)state;
    struct budget_limits l = wide;
    l.unsaved = 30;
    struct budget *b = with(&l);
    struct budget_event e = event("z.test", "a.z.test", 20);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    assert_int_equal(budget_unsaved(b), 20 * COST_BIT);
    assert_false(budget_must_save(b));
    e.name = STR("b.z.test");
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    assert_true(budget_must_save(b));
    budget_free(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct err err;
    struct budget_limits l;
    budget_limits_default(&l);
    assert_true(l.bits == 1024 && l.refill == 1024 && l.agent_bits == 8192 && l.zones == 64 &&
                l.any_bits == 65536 && l.any_refill == 65536);
    l.agent_bits = BUDGET_BITS_MAX + 1;
    assert_null(budget_new(&l, 0, &err));
    assert_true(strstr(err.text, "4194304") != NULL);
    /* Nothing at all: nothing passes. The largest: no sum runs over. */
    struct budget *b = with(&(struct budget_limits) { 0 });
    struct budget_event e = event("z.test", "a.z.test", 1);
    assert_int_equal(charge(b, &e, 1000), BUDGET_ZONE_SPENT);
    assert_int_equal(budget_set_limits(b, &l, &err), -1);
    l = (struct budget_limits) {
        BUDGET_BITS_MAX, BUDGET_BITS_MAX, BUDGET_BITS_MAX, BUDGET_BITS_MAX, BUDGET_BITS_MAX, BUDGET_BITS_MAX,
        BUDGET_BITS_MAX, 0
    };
    assert_int_equal(budget_set_limits(b, &l, &err), 0);
    e.in_zone = BUDGET_BITS_MAX * COST_BIT;
    e.above = STR("test");
    e.in_above = e.in_zone;
    assert_int_equal(charge(b, &e, UINT64_MAX / 2), BUDGET_OK);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), UINT64_MAX / 2), BUDGET_BITS_MAX);
    /* A smaller budget than what is spent waits for its refill. */
    assert_int_equal(budget_set_limits(b, &wide, &err), 0);
    e.name = STR("b.z.test");
    e.in_zone = COST_BIT;
    assert_int_equal(charge(b, &e, UINT64_MAX / 2), BUDGET_ZONE_SPENT);
    budget_free(&b);
    print_message("%zu bytes for %d zones\n", budget_bytes(), BUDGET_ZONES);
    assert_true(budget_bytes() <= 3 * 1024 * 1024 / 2);
}

/* Zones that nobody wrote: each has its bits, and all together theirs, in which a new zone's own name counts. */
static void test_any(void **state)
{
    (void)state;
    struct budget_limits l = wide;
    l.any_bits = l.any_refill = 1000;
    struct budget *b = with(&l);
    struct budget_account a;
    char zone[32], name[48];
    for (unsigned i = 0; i < 100; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        snprintf(name, sizeof name, "x.%s", zone);
        struct budget_event e = event(zone, name, 10);
        e.naming = 29 * COST_BIT;
        e.free_seen = e.any = true;
        enum budget_verdict v = budget_charge(b, &e, 1000, &a);
        assert_int_equal(v, i < 25 ? BUDGET_OK : BUDGET_ANY_SPENT); /* 10, 29 and one for new or known */
        assert_int_equal(a.of, i < 2 ? BUDGET_ZONE_SPENT : BUDGET_ANY_SPENT); /* the fuller one is told */
        assert_int_equal(a.limit, (i < 2 ? 100 : 1000) * COST_BIT);
        assert_int_equal(budget_spent(b, STR("a"), str_c(zone), 1000), v == BUDGET_OK ? 10 : 0);
    }
    assert_int_equal(budget_any_spent(b, STR("a"), 1000), 1000);
    /* What is known goes on, a zone that somebody wrote goes on, and another agent has its own. */
    struct budget_event e = event("z3.test", "x.z3.test", 10);
    e.free_seen = e.any = true;
    assert_int_equal(budget_charge(b, &e, 1000, &a), BUDGET_OK);
    assert_int_equal(a.charged, 0);
    e.name = STR("y.z3.test");
    assert_int_equal(charge(b, &e, 1000), BUDGET_ANY_SPENT);
    e.any = false;
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e = event("z99.test", "x.z99.test", 10);
    e.any = true;
    e.agent = STR("other");
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    /* Which of 25 zones, and one bit: with 10 for the name it is 16 after 16 thousandths of a day. */
    e = event("z4.test", "y.z4.test", 10);
    e.naming = 29 * COST_BIT;
    e.any = true;
    assert_int_equal(charge(b, &e, 1000 + DAY / 1000 * 15), BUDGET_ANY_SPENT);
    assert_int_equal(charge(b, &e, 1000 + DAY / 1000 * 16), BUDGET_OK);
    budget_free(&b);
}

/* More zones than there are places, each with a zone above it, in an order that pushes out and comes back: with no time
 * passing, no account ever passes more than its bits. */
static void test_pushing_out_wins_nothing(void **state)
{
    (void)state;
    enum { NAMES = 2 * BUDGET_ZONES, ROUNDS = 24 };
    static uint16_t sent[NAMES], sent_above[NAMES];
    struct budget *b = with(&wide);
    uint64_t x = 5;
    unsigned gone = 0, refused = 0;
    char zone[32], name[48];
    memset(sent, 0, sizeof sent);
    memset(sent_above, 0, sizeof sent_above);
    for (unsigned i = 0; i < NAMES * ROUNDS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        unsigned z = (unsigned)(x >> 33) % NAMES, bits = 1 + (unsigned)(x >> 20) % 20, above = 4 * bits + i % 50;
        snprintf(zone, sizeof zone, "z%u.test", z);
        snprintf(name, sizeof name, "n%u.%s", i, zone);
        gone += sent[z] > 0 && budget_spent(b, STR("a"), str_c(zone), 1000) == 0;
        struct budget_event e = event(zone, name, bits);
        e.above = str_from(str_c(zone), 1);
        e.in_above = above * COST_BIT;
        if (charge(b, &e, 1000) != BUDGET_OK) {
            refused++;
            continue;
        }
        sent[z] = (uint16_t)(sent[z] + bits);
        sent_above[z] = (uint16_t)(sent_above[z] + above);
        if (sent[z] > 100 || sent_above[z] > 400)
            fail_msg("%s: %u bits of 100 went out, above %u of 400", zone, sent[z], sent_above[z]);
    }
    print_message("%u events of zones that had been pushed out, %u refused\n", gone, refused);
    assert_true(gone > 1000 && refused > 1000);
    /* A zone that nobody ever asked for begins where the pushed out ones were; a day later it is empty. */
    struct budget_event e = event("new.test", "x.new.test", 100);
    assert_int_equal(charge(b, &e, 1000), BUDGET_ZONE_SPENT);
    assert_int_equal(charge(b, &e, 1000 + DAY), BUDGET_OK);
    /* And none of it is another agent's. */
    e = event("new2.test", "x.new2.test", 100);
    e.agent = STR("other");
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    budget_free(&b);
}

/* What is refused takes no place: a flood of refused zones pushes nothing out. */
static void test_refused_leaves_nothing(void **state)
{
    (void)state;
    struct budget_limits l = { .bits = 100, .refill = 100, .agent_bits = 50, .agent_refill = 50, .zones = 1 };
    struct budget *b = with(&l);
    char zone[32];
    struct budget_event e = event("mine.test", "x.mine.test", 40);
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    for (unsigned i = 0; i < 4 * BUDGET_ZONES; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        e = event(zone, zone, 10);
        e.agent = STR("flood");
        e.approved = false;
        assert_true(charge(b, &e, 1000) == (i ? BUDGET_NEW_ZONES : BUDGET_OK));
    }
    assert_int_equal(budget_spent(b, STR("a"), STR("mine.test"), 1000), 40);
    budget_free(&b);
}

/* Past BUDGET_AGENTS agents share: nobody gets more by it. */
static void test_many_agents(void **state)
{
    (void)state;
    struct budget_limits l = { .bits = 100, .refill = 100, .agent_bits = 100, .agent_refill = 100, .zones = 100 };
    struct budget *b = with(&l);
    unsigned passed = 0;
    char agent[16];
    for (unsigned i = 0; i < 3 * BUDGET_AGENTS; i++) {
        snprintf(agent, sizeof agent, "agent%u", i);
        struct budget_event e = event("z.test", "x.z.test", 99);
        e.agent = str_c(agent);
        e.approved = false;
        passed += charge(b, &e, 1000) == BUDGET_OK;
    }
    assert_int_equal(passed, BUDGET_AGENTS);
    budget_free(&b);
}

/* So many zones of one agent, each charged so many bits once. */
static void charge_zones(struct budget *b, const char *agent, unsigned n, unsigned bits, uint64_t now)
{
    char zone[48];
    for (unsigned i = 0; i < n; i++) {
        snprintf(zone, sizeof zone, "%s-z%u.test", agent, i);
        struct budget_event e = event(zone, zone, bits);
        e.agent = str_c(agent);
        e.free_seen = true;
        (void)charge(b, &e, now);
    }
}

/* How many of these zones still know the name that was asked there. */
static unsigned known_zones(struct budget *b, const char *agent, unsigned n, uint64_t now)
{
    unsigned known = 0;
    char zone[48];
    for (unsigned i = 0; i < n; i++) {
        struct budget_account a;
        snprintf(zone, sizeof zone, "%s-z%u.test", agent, i);
        struct budget_event e = event(zone, zone, 1000); /* a name that is not known does not fit */
        e.agent = str_c(agent);
        e.free_seen = true;
        known += budget_charge(b, &e, now, &a) == BUDGET_OK && a.charged == 0;
    }
    return known;
}

/* One agent's zones, however many and however much is spent there, leave others theirs; its own still known ones are its
 * share. */
static void test_shares(void **state)
{
    (void)state;
    static const struct {
        unsigned floods, before, after, least_before, least_after;
    } rows[] = {
        { 0, 300, 300, 300, 300 },  /* the control */
        { 1, 300, 300, 297, 270 },  /* who was there, and who comes to a table that is full */
        { 6, 300, 300, 290, 250 },  /* several, one after the other */
        { 1, 1, 1500, 0, 1200 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct budget *b = with(&wide);
        char flood[16];
        charge_zones(b, "before", rows[i].before, 1, 1000);
        for (unsigned f = 0; f < rows[i].floods; f++) {
            snprintf(flood, sizeof flood, "flood%u", f);
            charge_zones(b, flood, 4 * BUDGET_ZONES, 50, 1000);
        }
        charge_zones(b, "after", rows[i].after, 1, 1000);
        for (unsigned f = 0; f < rows[i].floods; f++) {
            snprintf(flood, sizeof flood, "flood%u", f);
            charge_zones(b, flood, 4 * BUDGET_ZONES, 50, 1000);
        }
        unsigned before = known_zones(b, "before", rows[i].before, 1000);
        unsigned after = known_zones(b, "after", rows[i].after, 1000);
        print_message("%u floods: %u of %u zones are known, of those that came later %u of %u\n", rows[i].floods, before,
                      rows[i].before, after, rows[i].after);
        assert_true(before >= rows[i].least_before && after >= rows[i].least_after);
        /* No zone of theirs begins at what was pushed out of the floods'. */
        struct budget_event e = event("new.test", "x.new.test", 99);
        e.agent = STR("before");
        assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
        budget_free(&b);
    }
}

/* An agent that has nothing spent anywhere leaves its place to one that has none. Nobody gets more by it: who shared an
 * account takes what was spent there with it. */
static void test_agents_come_and_go(void **state)
{
    (void)state;
    struct budget_limits l = { .bits = 1000, .refill = 1000, .agent_bits = 100, .agent_refill = 100, .zones = 24 };
    struct budget *b = with(&l);
    char agent[16], zone[32];
    struct budget_event e = event("z.test", "x.z.test", 50);
    e.approved = false;
    for (unsigned i = 0; i < BUDGET_AGENTS; i++) {
        snprintf(agent, sizeof agent, "agent%u", i);
        e.agent = str_c(agent);
        assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    }
    e.agent = STR("late"); /* shares an account in which 51 bits are spent */
    e.in_zone = 40 * COST_BIT;
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e.name = STR("y.z.test");
    assert_int_equal(charge(b, &e, 1000), BUDGET_AGENT_SPENT);
    assert_int_equal(budget_agent_spent(b, STR("late"), 1000), 0); /* it has none of its own */
    /* Half a day later everybody has some of it spent still: nobody leaves. */
    uint64_t half = 1000 + DAY / 2, two = 1000 + 2ull * DAY;
    e.in_zone = 60 * COST_BIT;
    assert_int_equal(charge(b, &e, half), BUDGET_AGENT_SPENT);
    /* After two days all is refilled: it gets a place, and with it nothing that was not refilled. */
    e.name = STR("w.z.test");
    e.in_zone = 90 * COST_BIT;
    assert_int_equal(charge(b, &e, two), BUDGET_OK);
    assert_in_range(budget_agent_spent(b, STR("late"), two), 91, 92);
    /* So does everybody who comes then, one for one, and who left and comes back. */
    unsigned own = 0;
    for (unsigned i = 0; i < 3 * BUDGET_AGENTS; i++) {
        snprintf(agent, sizeof agent, "agent%u", i);
        snprintf(zone, sizeof zone, "z%u.test", i);
        e = event(zone, zone, 80);
        e.agent = str_c(agent);
        e.approved = false;
        (void)charge(b, &e, two);
        own += budget_agent_spent(b, str_c(agent), two) > 0;
    }
    assert_int_equal(own, BUDGET_AGENTS - 1);
    budget_free(&b);
    /* While it shared it spent 60 bits: of these 40 are left when the others' 11 are refilled, and it gets a place. */
    b = with(&l);
    for (unsigned i = 0; i < BUDGET_AGENTS; i++) {
        snprintf(agent, sizeof agent, "agent%u", i);
        e = event("z.test", "x.z.test", 10);
        e.agent = str_c(agent);
        e.approved = false;
        assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    }
    e = event("s.test", "x.s.test", 48);
    e.agent = STR("sharer");
    e.approved = false;
    assert_int_equal(charge(b, &e, 1000), BUDGET_OK);
    e.name = STR("y.s.test");
    e.in_zone = 60 * COST_BIT;
    assert_int_equal(charge(b, &e, 1000 + DAY / 5), BUDGET_AGENT_SPENT);
    assert_in_range(budget_agent_spent(b, STR("sharer"), 1000 + DAY / 5), 38, 41);
    e.in_zone = 50 * COST_BIT;
    assert_int_equal(charge(b, &e, 1000 + DAY / 5), BUDGET_OK); /* the control */
    budget_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spends_and_refills),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_seen_names),
        cmocka_unit_test(test_seen_set),
        cmocka_unit_test(test_zone_above),
        cmocka_unit_test(test_agent),
        cmocka_unit_test(test_unsaved),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_pushing_out_wins_nothing),
        cmocka_unit_test(test_refused_leaves_nothing),
        cmocka_unit_test(test_many_agents),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_agents_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
