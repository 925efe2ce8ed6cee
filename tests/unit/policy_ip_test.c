/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ip.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Text that is an address, and its canonical text; NULL: refused. */
static const struct {
    const char *text, *canonical;
} parse_cases[] = {
    { "127.0.0.1", "127.0.0.1" },
    { "0.0.0.0", "0.0.0.0" },
    { "255.255.255.255", "255.255.255.255" },
    { "256.0.0.1", NULL },
    { "1.2.3", NULL },
    { "1.2.3.4.5", NULL },
    { "01.2.3.4", NULL },
    { "1.2.3.04", NULL },
    { "1.2.3.4 ", NULL },
    { " 1.2.3.4", NULL },
    { "1..2.3", NULL },
    { "1.2.3.", NULL },
    { "0x7f.0.0.1", NULL },
    { "", NULL },
    { "1", NULL },
    { "::", "::" },
    { "::1", "::1" },
    { "1::", "1::" },
    { "2001:DB8::1", "2001:db8::1" },
    { "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1" },
    { "2001:0:0:1:0:0:0:1", "2001:0:0:1::1" },
    { "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1" },
    { "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8" },
    { "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0" },
    { "::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8" },
    { "1:2:3:4:5:6:7:8::", NULL },
    { "1:2:3:4::5:6:7:8", NULL },
    { "1:2:3:4:5:6:7", NULL },
    { "1:2:3:4:5:6:7:8:9", NULL },
    { "1::2::3", NULL },
    { ":::", NULL },
    { ":1", NULL },
    { "1:", NULL },
    { "::1:", NULL },
    { "12345::", NULL },
    { "::g", NULL },
    { "::ffff:192.0.2.1", "::ffff:192.0.2.1" },
    { "::ffff:c000:201", "::ffff:192.0.2.1" },
    { "::192.0.2.1", "::c000:201" },
    { "64:ff9b::192.0.2.33", "64:ff9b::c000:221" },
    { "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304" },
    { "1:2:3:4:5:6:7:1.2.3.4", NULL },
    { "::1.2.3.4:5", NULL },
    { "::1.2.3", NULL },
    { "::01.2.3.4", NULL },
    { "fe80::1%eth0", NULL },
    { "fe80::1%25eth0", NULL },
    { "[::1]", NULL },
};

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parse_cases / sizeof *parse_cases; i++) {
        struct ip ip = { 0 }, again = { 0 };
        char text[46];
        int rc = ip_parse(str_c(parse_cases[i].text), &ip);
        if (rc != (parse_cases[i].canonical ? 0 : -1))
            fail_msg("%s: %d", parse_cases[i].text, rc);
        if (rc)
            continue;
        assert_string_equal(ip_format(&ip, text), parse_cases[i].canonical);
        assert_int_equal(ip_parse(str_c(text), &again), 0);
        assert_true(ip_equal(&ip, &again));
    }
}

/* WHATWG number forms: 1 and the address, 0: a name, -1: out of range. */
static const struct {
    const char *text;
    int result;
    const char *address;
} numeric_cases[] = {
    { "127.0.0.1", 1, "127.0.0.1" },
    { "0x7f.1", 1, "127.0.0.1" },
    { "0x7f000001", 1, "127.0.0.1" },
    { "2130706433", 1, "127.0.0.1" },
    { "0177.0.0.1", 1, "127.0.0.1" },
    { "0177.1", 1, "127.0.0.1" },
    { "127.1", 1, "127.0.0.1" },
    { "0", 1, "0.0.0.0" },
    { "0x", 1, "0.0.0.0" },
    { "0XA9.0xFE.0xa9.0xfe", 1, "169.254.169.254" },
    { "4294967295", 1, "255.255.255.255" },
    { "1.2.65535", 1, "1.2.255.255" },
    { "4294967296", -1, NULL },
    { "99999999999999999999999", -1, NULL },
    { "256.0.0.1", -1, NULL },
    { "1.2.3.256", -1, NULL },
    { "1.2.65536", -1, NULL },
    { "1.2.3.4.5", -1, NULL },
    { "09.1.1.1", -1, NULL },
    { "1.2.3.08", -1, NULL },
    { "1.2.3.foo", 0, NULL },
    { "foo", 0, NULL },
    { "0xzz", 0, NULL },
    { "1..2", 0, NULL },
    { "", 0, NULL },
};

static void test_numeric(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numeric_cases / sizeof *numeric_cases; i++) {
        struct ip ip = { 0 };
        char text[46];
        int rc = ip_parse_numeric(str_c(numeric_cases[i].text), &ip);
        if (rc != numeric_cases[i].result)
            fail_msg("%s: %d", numeric_cases[i].text, rc);
        if (rc == 1)
            assert_string_equal(ip_format(&ip, text), numeric_cases[i].address);
    }
}

static const struct {
    const char *cidr, *ip;
    int result; /* 1: contains, 0: does not, -1: refused */
} cidr_cases[] = {
    { "10.0.0.0/8", "10.255.255.255", 1 },
    { "10.0.0.0/8", "11.0.0.0", 0 },
    { "10.0.0.0/8", "::ffff:10.0.0.1", 0 },
    { "0.0.0.0/0", "255.255.255.255", 1 },
    { "0.0.0.0/0", "::1", 0 },
    { "192.0.2.1", "192.0.2.1", 1 },
    { "192.0.2.1", "192.0.2.2", 0 },
    { "192.0.2.128/25", "192.0.2.129", 1 },
    { "192.0.2.128/25", "192.0.2.127", 0 },
    { "2001:db8::/33", "2001:db8:7fff::1", 1 },
    { "2001:db8::/33", "2001:db8:8000::1", 0 },
    { "::/0", "ffff::", 1 },
    { "10.0.0.1/8", "10.0.0.1", -1 },
    { "10.0.0.0/33", "10.0.0.1", -1 },
    { "10.0.0.0/08", "10.0.0.1", -1 },
    { "10.0.0.0/", "10.0.0.1", -1 },
    { "10.0.0.0/-1", "10.0.0.1", -1 },
    { "::/129", "::1", -1 },
    { "2001:db8::1/32", "2001:db8::1", -1 },
    { "10/8", "10.0.0.1", -1 },
    { "example.test/8", "10.0.0.1", -1 },
};

static void test_cidr(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cidr_cases / sizeof *cidr_cases; i++) {
        struct cidr c = { 0 };
        struct ip ip = { 0 };
        assert_int_equal(ip_parse(str_c(cidr_cases[i].ip), &ip), 0);
        int rc = cidr_parse(str_c(cidr_cases[i].cidr), &c) ? -1 : cidr_contains(&c, &ip);
        if (rc != cidr_cases[i].result)
            fail_msg("%s %s: %d", cidr_cases[i].cidr, cidr_cases[i].ip, rc);
    }
}

static void test_sockaddr(void **state)
{
    (void)state;
    static const char *const texts[] = { "192.0.2.7", "2001:db8::7" };
    for (size_t i = 0; i < 2; i++) {
        struct ip ip = { 0 }, again = { 0 };
        uint16_t port = 0;
        struct sockaddr_storage sa;
        assert_int_equal(ip_parse(str_c(texts[i]), &ip), 0);
        assert_int_equal(ip_to_sockaddr(&ip, 8443, &sa), i ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
        assert_int_equal(ip_from_sockaddr(&sa, &again, &port), 0);
        assert_true(ip_equal(&ip, &again));
        assert_int_equal(port, 8443);
    }
    struct sockaddr_storage local = { .ss_family = AF_UNIX };
    struct ip ip;
    assert_int_equal(ip_from_sockaddr(&local, &ip, NULL), -1);
    struct ip none = { 0 };
    assert_false(ip_equal(&none, &none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_numeric),
        cmocka_unit_test(test_cidr),
        cmocka_unit_test(test_sockaddr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
