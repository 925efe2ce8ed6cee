/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static unsigned take_all(struct bucket *b, uint64_t burst, uint64_t rate, uint64_t now)
{
    unsigned n = 0;
    while (n < 100000 && bucket_take(b, burst, rate, now))
        n++;
    return n;
}

static void full_at_first_and_refilled(void **state)
{
    (void)state;
    struct bucket b = { 0 };
    assert_int_equal(take_all(&b, 100, 10, 5000), 100);
    assert_int_equal(take_all(&b, 100, 10, 5099), 0);
    assert_int_equal(take_all(&b, 100, 10, 5100), 1);
    assert_int_equal(take_all(&b, 100, 10, 6100), 10);
    assert_int_equal(take_all(&b, 100, 10, 1000000), 100); /* never more than full */
    assert_int_equal(take_all(&b, 100, 10, UINT64_MAX / 2), 100);
    assert_int_equal(take_all(&b, 20, 10, UINT64_MAX / 2 + 1000000), 20); /* a smaller one after a reload */
}

static void without_a_refill_or_room(void **state)
{
    (void)state;
    struct bucket once = { 0 }, none = { 0 };
    assert_int_equal(take_all(&once, 3, 0, 0), 3);
    assert_int_equal(take_all(&once, 3, 0, UINT64_MAX / 2), 0);
    assert_int_equal(take_all(&none, 0, 5, 0), 0);
    assert_int_equal(take_all(&none, 0, 5, 100000), 0);
}

static void what_is_given_back(void **state)
{
    (void)state;
    struct bucket b = { 0 };
    bucket_give(&b, 5, 10); /* it was full */
    assert_int_equal(take_all(&b, 10, 0, 0), 10);
    bucket_give(&b, 4, 10);
    assert_int_equal(take_all(&b, 10, 0, 0), 4);
    bucket_give(&b, UINT64_MAX, 10);
    assert_int_equal(take_all(&b, 10, 0, 0), 10);
    bucket_give(&b, 7, 10);
    bucket_give(&b, 7, 10);
    assert_int_equal(take_all(&b, 10, 0, 0), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_at_first_and_refilled),
        cmocka_unit_test(without_a_refill_or_room),
        cmocka_unit_test(what_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
