/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/unsaved_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct unsaved_names u;

static void add(uint64_t from, uint64_t to, uint64_t owner)
{
    for (uint64_t k = from; k < to; k++) {
        assert_true(unsaved_names_may(&u, owner, UNSAVED_NAMES_MAX));
        assert_true(
            unsaved_names_add(&u, k * UNSAVED_NAMES_HEADS / 4, owner, UNSAVED_NAMES_MAX)); /* many to one head */
    }
}

static unsigned has(uint64_t from, uint64_t to)
{
    unsigned n = 0;
    bool saving;
    for (uint64_t k = from; k < to; k++)
        n += unsaved_names_has(&u, k * UNSAVED_NAMES_HEADS / 4, &saving);
    return n;
}

/* Those that were there when the bytes were made go when they are in the file; those that came later stay. */
static void test_in_order(void **state)
{
    (void)state;
    memset(&u, 0, sizeof u);
    add(1, 101, 7);
    unsaved_names_saving(&u);
    add(101, 151, 7);
    add(120, 130, 7); /* there already */
    assert_int_equal(u.n, 150);
    assert_int_equal(has(1, 1000), 150);
    bool saving;
    assert_true(unsaved_names_has(&u, 100 * UNSAVED_NAMES_HEADS / 4, &saving) && saving);
    assert_true(unsaved_names_has(&u, 101 * UNSAVED_NAMES_HEADS / 4, &saving) && !saving);
    unsaved_names_saved(&u);
    assert_int_equal(has(1, 101), 0);
    assert_int_equal(has(101, 151), 50);
    assert_int_equal(u.held.used, 50);
    unsaved_names_saved(&u); /* nothing was being written */
    assert_int_equal(has(101, 151), 50);
    unsaved_names_clear(&u);
    assert_int_equal(has(1, 1000), 0);
    assert_int_equal(u.held.used, 0);
}

static void test_bounded(void **state)
{
    (void)state;
    uint64_t k = 1, n = 0;
    bool saving;
    memset(&u, 0, sizeof u);
    for (; unsaved_names_may(&u, 1, UNSAVED_NAMES_MAX); k++)
        assert_true(unsaved_names_add(&u, k, 1, UNSAVED_NAMES_MAX));
    assert_int_equal(k - 1, UNSAVED_NAMES_MAX * 3 / 4);
    assert_false(unsaved_names_add(&u, k, 1, UNSAVED_NAMES_MAX));
    assert_false(unsaved_names_has(&u, k, &saving));
    for (uint64_t owner = 2; owner < 200; owner++)
        for (; unsaved_names_may(&u, owner, UNSAVED_NAMES_MAX); n++)
            assert_true(unsaved_names_add(&u, ++k, owner, UNSAVED_NAMES_MAX));
    assert_in_range(u.n, UNSAVED_NAMES_MAX - 4, UNSAVED_NAMES_MAX);
    assert_true(n > UNSAVED_NAMES_MAX / 8);
    assert_false(unsaved_names_may(&u, 1, 16)); /* a smaller bound holds at once */
    unsaved_names_clear(&u);
    assert_true(unsaved_names_may(&u, 1, 16)); /* the control */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
