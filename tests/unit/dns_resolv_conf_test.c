/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolv_conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* "ADDR[/tcp] …" */
        unsigned skipped;
    } table[] = {
        { "", "", 0 },
        { "nameserver 192.0.2.1\n", "192.0.2.1", 0 },
        { "nameserver 192.0.2.1", "192.0.2.1", 0 },
        { "nameserver\t192.0.2.1  \r\nnameserver 2001:db8::1 # comment\n", "192.0.2.1 2001:db8::1", 0 },
        { "# nameserver 192.0.2.1\n;nameserver 192.0.2.2\nnameserver 192.0.2.3\n", "192.0.2.3", 0 },
        { " nameserver 192.0.2.1\n", "", 0 }, /* resolv.conf(5): the keyword starts the line */
        { "nameserverx 192.0.2.1\nNAMESERVER 192.0.2.2\n", "", 0 },
        { "search corp.lan\ndomain x.lan\nsortlist 192.0.2.0\noptions ndots:5\nnameserver 192.0.2.1\n", "192.0.2.1",
          0 },
        { "nameserver fe80::1%eth0\nnameserver dns.test\nnameserver 192.0.2.999\nnameserver 127.0.0.53\n", "127.0.0.53",
          3 },
        { "nameserver\nnameserver 192.0.2.1\n", "192.0.2.1", 0 },
        { "options use-vc\nnameserver 192.0.2.1\n", "192.0.2.1/tcp", 0 },
        { "nameserver 192.0.2.1\noptions timeout:1 use-vc rotate\n", "192.0.2.1/tcp", 0 },
        { "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\nnameserver "
          "192.0.2.5\n"
          "nameserver 192.0.2.6\nnameserver 192.0.2.7\n",
          "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6", 1 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct resolv_conf c;
        char got[400] = "", text[46];
        resolv_conf_parse(str_c(table[i].text), &c);
        for (size_t k = 0; k < c.n; k++) {
            size_t n = strlen(got);
            snprintf(got + n, sizeof got - n, "%s%s%s", k ? " " : "", ip_format(&c.servers[k].ip, text),
                     c.servers[k].tcp ? "/tcp" : "");
            assert_int_equal(c.servers[k].port, 53);
        }
        assert_string_equal(got, table[i].want);
        assert_int_equal(c.skipped, table[i].skipped);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
