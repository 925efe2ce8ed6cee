/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct answer_set *set(uint64_t expires_ms, uint8_t last)
{
    struct ip ip = { .family = 4, .b = { 192, 0, 2, last } };
    struct answer_set *s = answer_set_new(ANSWER_ADDRESSES, &ip, 1);
    assert_non_null(s);
    s->expires_ms = expires_ms;
    return s;
}

static void put(struct cache *c, struct str name, enum answer_family f, uint64_t expires_ms, uint8_t last)
{
    struct answer_set *s = set(expires_ms, last);
    cache_put(c, name, f, s);
    answer_set_unref(&s);
}

static void test_time(void **state)
{
    (void)state;
    struct cache *c = cache_new(8);
    put(c, STR("a.test"), FAMILY_V4, 100, 1);
    put(c, STR("a.test"), FAMILY_V6, 200, 2);
    assert_non_null(cache_get(c, STR("a.test"), FAMILY_V4, 99));
    assert_null(cache_get(c, STR("a.test"), FAMILY_V4, 100)); /* no longer */
    assert_non_null(cache_get(c, STR("a.test"), FAMILY_V6, 100));
    assert_int_equal(cache_count(c), 1);
    assert_null(cache_get(c, STR("a.test"), FAMILY_V6, 200));
    assert_int_equal(cache_count(c), 0); /* a name without sets is gone */
    assert_null(cache_get(c, STR("b.test"), FAMILY_V4, 0));
    cache_free(&c);
    assert_null(c);
}

static void test_replace(void **state)
{
    (void)state;
    struct cache *c = cache_new(8);
    put(c, STR("a.test"), FAMILY_V4, 100, 1);
    struct answer_set *held = answer_set_ref(cache_get(c, STR("a.test"), FAMILY_V4, 0));
    put(c, STR("a.test"), FAMILY_V4, 100, 2);
    assert_int_equal(held->ips[0].b[3], 1); /* who holds the old one keeps it */
    assert_int_equal(cache_get(c, STR("a.test"), FAMILY_V4, 0)->ips[0].b[3], 2);
    assert_int_equal(cache_count(c), 1);
    cache_flush(c);
    assert_null(cache_get(c, STR("a.test"), FAMILY_V4, 0));
    answer_set_unref(&held);
    cache_free(&c);
}

static void test_least_recently_used(void **state)
{
    (void)state;
    struct cache *c = cache_new(3);
    put(c, STR("a.test"), FAMILY_V4, 100, 1);
    put(c, STR("b.test"), FAMILY_V4, 100, 2);
    put(c, STR("c.test"), FAMILY_V4, 100, 3);
    assert_non_null(cache_get(c, STR("a.test"), FAMILY_V4, 0)); /* used: b is the oldest now */
    put(c, STR("d.test"), FAMILY_V4, 100, 4);
    assert_int_equal(cache_count(c), 3);
    assert_null(cache_get(c, STR("b.test"), FAMILY_V4, 0));
    assert_non_null(cache_get(c, STR("a.test"), FAMILY_V4, 0));
    cache_set_max(c, 1);
    assert_int_equal(cache_count(c), 1);
    assert_non_null(cache_get(c, STR("a.test"), FAMILY_V4, 0));
    assert_null(cache_get(c, STR("d.test"), FAMILY_V4, 0));
    cache_free(&c);
}

static void test_many(void **state)
{
    (void)state;
    struct cache *c = cache_new(5000);
    char name[32];
    for (unsigned i = 0; i < 20000; i++) {
        int n = snprintf(name, sizeof name, "n%u.test", i);
        put(c, str_of(name, (size_t)n), FAMILY_V4, 100, (uint8_t)i);
        assert_true(cache_count(c) <= 5000);
    }
    for (unsigned i = 0; i < 20000; i++) {
        int n = snprintf(name, sizeof name, "n%u.test", i);
        const struct answer_set *s = cache_get(c, str_of(name, (size_t)n), FAMILY_V4, 0);
        assert_int_equal(s != NULL, i >= 15000);
        if (s)
            assert_int_equal(s->ips[0].b[3], (uint8_t)i);
    }
    cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_least_recently_used),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
