/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the ones above */
#include <cmocka.h>

enum { GREEDY = 1, SECOND = 2, MODEST = 3 };

static unsigned take_all(struct fair_stock *f, uint64_t owner, uint64_t all)
{
    unsigned n = 0;
    while (fair_take(f, owner, 1, all))
        n++;
    return n;
}

static void the_last_places_are_for_others(void **state)
{
    (void)state;
    struct fair_stock f = { 0 };
    assert_int_equal(take_all(&f, GREEDY, 100), 75);
    assert_int_equal(take_all(&f, SECOND, 100), 19); /* three quarters of what is left */
    assert_true(fair_take(&f, MODEST, 1, 100));
    assert_false(fair_take(&f, GREEDY, 1, 100));
    fair_give(&f, MODEST, 1);
    for (int i = 0; i < 40; i++) /* what one gives back is not all another's */
        fair_give(&f, GREEDY, 1);
    assert_true(fair_take(&f, MODEST, 1, 100));
    assert_int_equal(take_all(&f, SECOND, 100) + 19, 48);
    assert_true(f.used < 100);
}

static void few_places(void **state)
{
    (void)state;
    struct fair_stock f = { 0 };
    assert_false(fair_take(&f, GREEDY, 1, 0));
    assert_true(fair_take(&f, GREEDY, 1, 1));
    assert_false(fair_take(&f, MODEST, 1, 1));
    assert_false(fair_take(&f, GREEDY, 1, 0)); /* fewer than are taken */
    fair_give(&f, GREEDY, 1);
    assert_int_equal(f.used, 0);
    assert_int_equal(take_all(&f, GREEDY, 2), 2);
}

static void many_at_once(void **state)
{
    (void)state;
    struct fair_stock f = { 0 };
    assert_false(fair_take(&f, GREEDY, 101, 100)); /* all or none */
    assert_int_equal(f.used, 0);
    assert_true(fair_take(&f, GREEDY, 70, 100));
    assert_true(fair_take(&f, GREEDY, 10, 100));
    assert_false(fair_take(&f, GREEDY, 1, 100));
    assert_false(fair_take(&f, MODEST, 21, 100));
    assert_true(fair_take(&f, MODEST, 20, 100));
    assert_false(fair_take(&f, SECOND, 0, 100)); /* none are left */
    fair_give(&f, GREEDY, 80);
    assert_int_equal(f.used, 20);
    assert_false(fair_take(&f, MODEST, UINT64_MAX, 100));
}

static unsigned rate_all(struct fair_rate *f, uint64_t owner, uint64_t now_ms)
{
    unsigned n = 0;
    while (fair_rate_take(f, owner, 100, now_ms))
        n++;
    return n;
}

static void a_burst_leaves_a_quarter(void **state)
{
    (void)state;
    struct fair_rate f = { 0 };
    assert_int_equal(rate_all(&f, GREEDY, 5000), 750);
    assert_true(fair_rate_take(&f, MODEST, 100, 5000));
    assert_false(fair_rate_take(&f, GREEDY, 100, 5000));
}

/* Alone, an owner has the whole rate; whoever comes meanwhile has a burst at once. */
static void all_of_the_rate_in_the_long_run(void **state)
{
    (void)state;
    struct fair_rate f = { 0 };
    uint64_t now = 5000;
    unsigned n = 0;
    for (; now < 205000; now += 7)
        n += rate_all(&f, GREEDY, now);
    assert_in_range(n, 200 * 100 * 98 / 100, 200 * 100 + 1000);
    assert_in_range(rate_all(&f, MODEST, now), 200, 400); /* of a thousand: three quarters of the third that is there */
    for (n = 0; now < 225000; now += 7) { /* and then both have about half */
        n += rate_all(&f, MODEST, now);
        rate_all(&f, GREEDY, now);
    }
    assert_in_range(n, 700, 1400);
}

/* Nothing of the past counts after a while, and a clock that starts anywhere is fine. */
static void what_was_taken_fades(void **state)
{
    (void)state;
    struct fair_rate f = { 0 };
    assert_int_equal(rate_all(&f, GREEDY, 0), 750);
    assert_int_equal(rate_all(&f, GREEDY, 20000), 750);
    assert_false(fair_rate_take(&f, MODEST, 0, 20000)); /* a rate of none */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_places_are_for_others), cmocka_unit_test(few_places),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(a_burst_leaves_a_quarter),       cmocka_unit_test(all_of_the_rate_in_the_long_run),
        cmocka_unit_test(what_was_taken_fades),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
