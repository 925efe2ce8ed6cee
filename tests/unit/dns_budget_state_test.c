/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/budget_state.h"

#include "dns/name_cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { DAY = 86400000 };

static const struct budget_limits limits = {
    .bits = 100, .refill = 100, .agent_bits = 1000, .agent_refill = 1000, .zones = 50, .unsaved = 20
};

static enum budget_verdict charge(struct budget *b, const char *agent, const char *zone, const char *name,
                                  unsigned bits, uint64_t now)
{
    struct budget_account a;
    struct budget_event e = {
        .agent = str_c(agent), .zone = str_c(zone), .name = str_c(name), .in_zone = bits * COST_BIT, .naming = COST_BIT
    };
    return budget_charge(b, &e, now, &a);
}

static struct budget *fresh(uint64_t now)
{
    struct budget *b = budget_new(&limits, now, NULL);
    assert_non_null(b);
    return b;
}

/* A budget with some spent, as bytes. */
static void save(struct buf *out, bool last)
{
    struct budget *b = fresh(5000);
    buf_init(out, BUDGET_STATE_MAX);
    assert_int_equal(charge(b, "a", "z.test", "x.z.test", 18, 5000), BUDGET_OK);
    assert_int_equal(budget_state_put(b, false, 5000, out), 0);
    budget_kept(b, true);
    assert_int_equal(budget_unsaved(b), 0);
    buf_reset(out);
    assert_int_equal(charge(b, "b", "y.test", "x.y.test", 12, 5000), BUDGET_OK);
    assert_int_equal(budget_state_put(b, last, 5000, out), 0);
    budget_free(&b);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct buf bytes;
    save(&bytes, true);
    /* The machine started anew: its monotonic clock is behind. Nothing is refilled, whatever time it is. */
    struct budget *b = fresh(7);
    assert_int_equal(budget_state_load(b, buf_str(&bytes), 7, NULL), BUDGET_STATE_WHOLE);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 7), 18);
    assert_int_equal(budget_spent(b, STR("b"), STR("y.test"), 7), 12);
    assert_int_equal(budget_agent_spent(b, STR("a"), 7), 18 + 2);
    assert_int_equal(charge(b, "a", "z.test", "long.z.test", 83, 7), BUDGET_ZONE_SPENT);
    assert_int_equal(charge(b, "a", "new.test", "x.new.test", 15, 7), BUDGET_OK);
    /* From there time passes as ever: it refills, and it never locks. */
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 7 + DAY / 100), 17);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 7 + DAY), 0);
    budget_free(&b);
    buf_done(&bytes);
}

/* Saved, and saved again by who loaded it: nothing is lost or gained on the way. */
static void test_many_restarts(void **state)
{
    (void)state;
    struct buf bytes;
    save(&bytes, true);
    for (unsigned i = 0; i < 200; i++) {
        struct budget *b = fresh(1);
        assert_int_equal(budget_state_load(b, buf_str(&bytes), 1, NULL), BUDGET_STATE_WHOLE);
        buf_reset(&bytes);
        assert_int_equal(budget_state_put(b, true, 1 + DAY / 100000, &bytes), 0);
        budget_free(&b);
    }
    struct budget *b = fresh(1);
    budget_state_load(b, buf_str(&bytes), 1, NULL);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1), 18); /* 200 pieces of time: 0.2 bits */
    budget_free(&b);
    buf_done(&bytes);
}

/* Saved while it went on: what may be missing is charged to all there is and to all that comes. */
static void test_not_last(void **state)
{
    (void)state;
    struct buf bytes;
    save(&bytes, false);
    struct budget *b = fresh(1);
    assert_int_equal(budget_state_load(b, buf_str(&bytes), 1, NULL), BUDGET_STATE_NOT_LAST);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1), 18 + 20);
    assert_int_equal(budget_agent_spent(b, STR("a"), 1), 18 + 2 + 20);
    assert_int_equal(charge(b, "new", "new.test", "x.new.test", 18, 1), BUDGET_OK);
    assert_int_equal(budget_spent(b, STR("new"), STR("new.test"), 1), 18 + 20);
    budget_free(&b);
    buf_done(&bytes);
}

/* What was refilled before it was saved is no credit for what is added. */
static void test_not_last_much_later(void **state)
{
    (void)state;
    struct buf bytes;
    struct budget *b = fresh(5000);
    buf_init(&bytes, BUDGET_STATE_MAX);
    assert_int_equal(charge(b, "a", "z.test", "x.z.test", 18, 5000), BUDGET_OK);
    assert_int_equal(budget_state_put(b, false, 5000 + 7ull * DAY, &bytes), 0);
    budget_free(&b);
    b = fresh(1);
    assert_int_equal(budget_state_load(b, buf_str(&bytes), 1, NULL), BUDGET_STATE_NOT_LAST);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1), 20);
    assert_int_equal(budget_agent_spent(b, STR("a"), 1), 20);
    budget_free(&b);
    buf_done(&bytes);
}

/* Again and again: an account is empty at worst, and has its day's bits a day later. The control: without the limits it owes. */
static void test_many_crashes(void **state)
{
    (void)state;
    for (unsigned capped = 0; capped < 2; capped++) {
        struct buf bytes;
        struct budget *b = NULL;
        save(&bytes, false);
        for (unsigned i = 0; i < 30; i++) {
            b = fresh(1);
            assert_int_equal(budget_state_load(b, buf_str(&bytes), 1, NULL), BUDGET_STATE_NOT_LAST);
            if (capped)
                assert_int_equal(budget_set_limits(b, &limits, NULL), 0);
            buf_reset(&bytes);
            assert_int_equal(budget_state_put(b, false, 1, &bytes), 0);
            if (i < 29)
                budget_free(&b);
        }
        assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1), capped ? 100 : 18 + 30 * 20);
        assert_int_equal(charge(b, "a", "z.test", "x.z.test", 1, 1), BUDGET_ZONE_SPENT);
        assert_int_equal(charge(b, "a", "z.test", "x.z.test", 90, DAY), capped ? BUDGET_OK : BUDGET_ZONE_SPENT);
        /* So has a zone that nobody knew, of an agent that nobody knew: they begin where all were charged. */
        assert_int_equal(charge(b, "new", "new.test", "x.new.test", 1, 1), BUDGET_ZONE_SPENT);
        assert_int_equal(charge(b, "new", "new.test", "x.new.test", 90, DAY), capped ? BUDGET_OK : BUDGET_ZONE_SPENT);
        budget_free(&b);
        buf_done(&bytes);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    struct buf bytes;
    struct err err;
    save(&bytes, true);
    size_t n = buf_size(&bytes);
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    for (size_t i = 0; i <= n; i++) { /* every byte wrong; and one byte more */
        memcpy(copy, buf_str(&bytes).p, n);
        copy[i] = (char)(i < n ? copy[i] ^ 0x40 : 0);
        struct budget *b = fresh(1);
        if (budget_state_load(b, str_of(copy, i < n ? n : n + 1), 1, &err) != BUDGET_STATE_DAMAGED)
            fail_msg("byte %zu of %zu was changed and nobody saw it", i, n);
        budget_free(&b);
    }
    for (size_t i = 0; i < n; i++) { /* cut */
        struct budget *b = fresh(1);
        assert_int_equal(budget_state_load(b, str_of(copy, i), 1, &err), BUDGET_STATE_DAMAGED);
        budget_free(&b);
    }
    free(copy);
    /* Every budget begins half spent, and the message says so. */
    struct budget *b = fresh(1);
    budget_state_load(b, STR("no state"), 1, &err);
    assert_non_null(strstr(err.text, "half spent"));
    assert_int_equal(charge(b, "a", "z.test", "x.z.test", 51, 1), BUDGET_ZONE_SPENT);
    assert_int_equal(charge(b, "a", "z.test", "x.z.test", 18, 1), BUDGET_OK);
    assert_int_equal(budget_spent(b, STR("a"), STR("z.test"), 1), 50 + 18);
    assert_int_equal(budget_agent_spent(b, STR("a"), 1), 500 + 18 + 2);
    budget_free(&b);
    buf_done(&bytes);
}

static void test_full(void **state)
{
    (void)state;
    struct budget_limits l = { .bits = 1000, .refill = 1000, .agent_bits = BUDGET_BITS_MAX, .agent_refill = 1000, .zones = BUDGET_BITS_MAX };
    struct budget *b = budget_new(&l, 1, NULL);
    struct buf bytes, small;
    char zone[32], agent[32];
    assert_non_null(b);
    for (unsigned i = 0; i < 4 * BUDGET_ZONES; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        snprintf(agent, sizeof agent, "a%u", i % (2 * BUDGET_AGENTS));
        charge(b, agent, zone, zone, 10, 1);
    }
    buf_init(&bytes, BUDGET_STATE_MAX);
    buf_init(&small, 1000);
    assert_int_equal(budget_state_put(b, true, 1, &small), -1);
    assert_int_equal(budget_state_put(b, true, 1, &bytes), 0);
    print_message("%zu bytes\n", buf_size(&bytes));
    struct budget *again = budget_new(&l, 1, NULL);
    assert_non_null(again);
    assert_int_equal(budget_state_load(again, buf_str(&bytes), 1, NULL), BUDGET_STATE_WHOLE);
    unsigned known = 0;
    for (unsigned i = 0; i < 4 * BUDGET_ZONES; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        snprintf(agent, sizeof agent, "a%u", i % (2 * BUDGET_AGENTS));
        uint32_t spent = budget_spent(b, str_c(agent), str_c(zone), 1);
        assert_int_equal(spent, budget_spent(again, str_c(agent), str_c(zone), 1));
        known += spent > 0;
    }
    assert_int_equal(known, BUDGET_ZONES);
    budget_free(&again);
    budget_free(&b);
    buf_done(&small);
    buf_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_many_restarts),
        cmocka_unit_test(test_not_last),   cmocka_unit_test(test_not_last_much_later),
        cmocka_unit_test(test_many_crashes), cmocka_unit_test(test_damaged), cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
