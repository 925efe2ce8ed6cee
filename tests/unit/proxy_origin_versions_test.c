/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/origin_versions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static struct host named(const char *name)
{
    struct host h;
    assert_int_equal(host_parse(str_c(name), &h, NULL), 0);
    return h;
}

static void by_host_and_port_and_for_a_while(void **state)
{
    (void)state;
    static struct origin_versions t;
    struct host a = named("a.test"), b = named("b.test");
    assert_int_equal(origin_versions_get(&t, &a, 443, 5), VERSIONS_UNKNOWN);
    origin_versions_set(&t, &a, 443, VERSIONS_TOOK_H2, 1000);
    assert_int_equal(origin_versions_get(&t, &a, 443, 1000), VERSIONS_TOOK_H2);
    assert_int_equal(origin_versions_get(&t, &a, 8443, 1000), VERSIONS_UNKNOWN);
    assert_int_equal(origin_versions_get(&t, &b, 443, 1000), VERSIONS_UNKNOWN);
    origin_versions_set(&t, &a, 443, VERSIONS_HAS_H1, 2000);
    assert_int_equal(origin_versions_get(&t, &a, 443, 1999 + VERSIONS_MS), VERSIONS_HAS_H1);
    assert_int_equal(origin_versions_get(&t, &a, 443, 2000 + VERSIONS_MS), VERSIONS_UNKNOWN);
}

/* More hosts than places: what is known of one is never taken for another's. */
static void never_anothers(void **state)
{
    (void)state;
    static struct origin_versions t;
    unsigned kept = 0;
    for (int i = 0; i < 3 * VERSIONS_PLACES; i++) {
        char name[32];
        snprintf(name, sizeof name, "h%d.test", i);
        struct host h = named(name);
        assert_int_equal(origin_versions_get(&t, &h, 443, 1), VERSIONS_UNKNOWN);
        origin_versions_set(&t, &h, 443, VERSIONS_ONLY_H2, 1);
        kept += origin_versions_get(&t, &h, 443, 1) == VERSIONS_ONLY_H2;
    }
    assert_int_equal(kept, 3 * VERSIONS_PLACES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_host_and_port_and_for_a_while),
        cmocka_unit_test(never_anothers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
