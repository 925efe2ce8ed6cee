/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/special_name.h"

#include "dns/zone.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum special_kind kind;
        const char *zone;
    } table[] = {
        { "example.com", SPECIAL_NO, "example.com" },
        { "www.example.co.uk", SPECIAL_NO, "example.co.uk" },
        { "x.y.github.io", SPECIAL_NO, "y.github.io" }, /* a tenant of a shared suffix is a zone of its own */
        { "a.b.ck", SPECIAL_NO, "a.b.ck" },             /* only "*.ck" is listed */
        { "a.xn--p1ai", SPECIAL_NO, "a.xn--p1ai" },
        { "localhost", SPECIAL_USE, "localhost" },
        { "a.localhost", SPECIAL_USE, "a.localhost" },
        { "localhost.example.com", SPECIAL_NO, "example.com" },
        { "notlocal", SPECIAL_USE, "notlocal" },
        { "x.local", SPECIAL_USE, "x.local" },
        { "x.notlocal.com", SPECIAL_NO, "notlocal.com" },
        { "metadata.google.internal", SPECIAL_USE, "google.internal" },
        { "1.0.0.127.in-addr.arpa", SPECIAL_USE, "127.in-addr.arpa" },
        { "home.arpa", SPECIAL_USE, "home.arpa" },
        { "com", SPECIAL_USE, "com" },
        { "api.github.con", SPECIAL_UNDELEGATED, "github.con" },
        { "a.org.za", SPECIAL_NO, "a.org.za" }, /* "za" itself is not listed */
        { "x.lan", SPECIAL_UNDELEGATED, "x.lan" },
        { "x.example", SPECIAL_USE, "x.example" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *why = NULL;
        struct zone z;
        zone_of(str_c(table[i].name), &z);
        struct str zone = z.zone;
        enum special_kind kind = special_name(str_c(table[i].name), &why);
        if (kind != table[i].kind || !str_eq(zone, str_c(table[i].zone)) || (kind != SPECIAL_NO) != (why != NULL))
            fail_msg("%s: kind %d, zone %.*s", table[i].name, kind, STR_ARG(zone));
    }
}

/* Hosts that agent workflows really reach: none is special. */
static void test_real_hosts(void **state)
{
    (void)state;
    const char *folder = getenv("OUTGATE_CORPORA");
    char path[4096], line[512];
    snprintf(path, sizeof path, "%s/dns/benign-debian12-homepage-hosts.txt", folder ? folder : "");
    FILE *f = folder ? fopen(path, "r") : NULL;
    if (!f) {
        print_message("OUTGATE_CORPORA is not set: real host names are not tried\n");
        skip();
    }
    size_t n = 0, wrong = 0;
    while (fgets(line, sizeof line, f)) {
        const char *why;
        struct host h;
        if (host_parse(str_trim(str_of(line, strcspn(line, "\r\n"))), &h, NULL) != 0 || host_is_ip(&h))
            continue;
        n++;
        if (special_name(host_str(&h), &why) != SPECIAL_NO && ++wrong <= 10)
            print_message("%s: %s\n", h.name, why);
    }
    fclose(f);
    print_message("%zu names, %zu special\n", n, wrong);
    assert_true(n > 1000);
    assert_true(wrong * 1000 < n * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_real_hosts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
