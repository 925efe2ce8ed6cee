/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/zone.h"

#include "policy/shared_suffix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_zones(void **state)
{
    (void)state;
    static const struct {
        const char *name, *zone, *above;
    } table[] = {
        { "evil.test", "evil.test", "" }, /* below no suffix of the list: two labels */
        { "a.b.c.evil.test", "evil.test", "" },
        { "onelabel", "onelabel", "" },
        { "com", "com", "" },
        { "example.com", "example.com", "" },
        { "x.y.example.co.uk", "example.co.uk", "" },
        { "a.b.c.d.e.f.g.h.i.j.k.example.com", "example.com", "" },
        { "tenant.github.io", "tenant.github.io", "github.io" },
        { "data.tenant.github.io", "tenant.github.io", "github.io" },
        { "github.io", "github.io", "" }, /* the letter's own */
        { "d1234.cloudfront.net", "d1234.cloudfront.net", "cloudfront.net" },
        { "bucket.s3.amazonaws.com", "bucket.s3.amazonaws.com", "amazonaws.com" },
        { "s3.amazonaws.com", "amazonaws.com", "" },
        { "x.bucket.s3.eu-central-1.amazonaws.com", "bucket.s3.eu-central-1.amazonaws.com", "amazonaws.com" },
        { "host.eu-central-1.compute.amazonaws.com", "host.eu-central-1.compute.amazonaws.com", "amazonaws.com" },
        { "bucket.storage.googleapis.com", "bucket.storage.googleapis.com", "googleapis.com" }, /* our own table */
        { "www.ck", "www.ck", "" }, /* an exception of the list */
        { "a.b.kobe.jp", "a.b.kobe.jp", "" },
        { "x.city.kobe.jp", "city.kobe.jp", "" },
    };
    const size_t n = sizeof table / sizeof *table;
    for (size_t i = 0; i < 3 * n; i++) { /* asked for the first time, kept, and after many others took the places */
        struct zone z;
        for (unsigned other = 0; i == 2 * n && other < 50000; other++) {
            char name[64];
            int len = snprintf(name, sizeof name, "n%u.x%u.%s", other, other % 7, table[other % n].name);
            zone_of(str_of(name, (size_t)len), &z);
            assert_true(z.zone.n > 0 && z.zone.p + z.zone.n == name + len);
        }
        zone_of(str_c(table[i % n].name), &z);
        if (!str_eq(z.zone, str_c(table[i % n].zone)) || !str_eq(z.above, str_c(table[i % n].above)))
            fail_msg("%s: zone %.*s above %.*s", table[i % n].name, STR_ARG(z.zone), STR_ARG(z.above));
        /* Both are ends of the name itself. */
        assert_true(z.zone.p + z.zone.n == table[i % n].name + strlen(table[i % n].name));
        assert_true(z.above.n == 0 || z.above.p + z.above.n == z.zone.p + z.zone.n);
    }
}

static void test_before(void **state)
{
    (void)state;
    assert_true(str_eq(zone_before(STR("a.b.evil.test"), STR("evil.test")), STR("a.b")));
    assert_int_equal(zone_before(STR("evil.test"), STR("evil.test")).n, 0);
}

/* Names that no parser made: whatever comes, a part of it is the answer. */
static void test_odd_names(void **state)
{
    (void)state;
    char longest[400];
    memset(longest, 'a', sizeof longest);
    const struct str odd[] = {
        { "", 0 },       { ".", 1 },        { "..", 2 },      { "a.", 2 },      { ".com", 4 },
        { "a..com", 6 }, { "a\0b.com", 7 }, { longest, 253 }, { longest, 400 }, { "\xff.com", 5 }
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct zone z;
        zone_of(odd[i], &z);
        assert_true(z.zone.n <= odd[i].n && z.above.n <= z.zone.n);
    }
}

static void test_shared_suffixes(void **state)
{
    (void)state;
    assert_true(str_eq(shared_suffix_tenant(STR("x.b.s3.eu-1.amazonaws.com")), STR("b.s3.eu-1.amazonaws.com")));
    assert_int_equal(shared_suffix_tenant(STR("s3.eu-1.amazonaws.com")).n, 0);
    assert_int_equal(shared_suffix_tenant(STR("b.s4.eu-1.amazonaws.com")).n, 0);
    assert_int_equal(shared_suffix_tenant(STR("")).n, 0);
    assert_true(shared_suffix_reaches(STR("amazonaws.com")));
    assert_true(shared_suffix_reaches(STR("s3.eu-1.amazonaws.com")));
    assert_false(shared_suffix_reaches(STR("b.s3.eu-1.amazonaws.com")));
    assert_false(shared_suffix_reaches(STR("example.com")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zones),
        cmocka_unit_test(test_before),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_shared_suffixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
