/* SPDX-License-Identifier: Apache-2.0
 *
 * Record types: every number has a name that leads back to it. */
#include "policy/dns_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_all(void **state)
{
    (void)state;
    char text[DNS_TYPE_NAME];
    for (unsigned type = 0; type <= UINT16_MAX; type++) {
        uint16_t back = (uint16_t)~type;
        assert_true(dns_type_parse(str_c(dns_type_format((uint16_t)type, text)), &back));
        assert_int_equal(back, type);
    }
}

static void test_names(void **state)
{
    (void)state;
    char text[DNS_TYPE_NAME];
    static const struct {
        uint16_t type;
        const char *name;
    } rows[] = { { DNS_TYPE_A, "A" },
                 { DNS_TYPE_AAAA, "AAAA" },
                 { DNS_TYPE_HTTPS, "HTTPS" },
                 { 65535, "TYPE65535" },
                 { 0, "TYPE0" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(dns_type_format(rows[i].type, text), rows[i].name);
    uint16_t type = 7;
    static const char *const none[] = { "", "a", "AAAAA", "TYPE", "TYPE65536", "TYPE-1", "TYPE 1", "A " };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(dns_type_parse(str_c(none[i]), &type));
    assert_int_equal(type, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all), cmocka_unit_test(test_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
