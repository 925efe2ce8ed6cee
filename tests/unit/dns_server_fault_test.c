/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of DNS servers that did not help: how each is named, how many fit, and a line a minute for the operator. */
#include "dns/server_fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct dns_server server(const char *ip, uint16_t port)
{
    struct dns_server s = { .port = port };
    assert_int_equal(ip_parse(str_c(ip), &s.ip), 0);
    return s;
}

static void test_names(void **state)
{
    (void)state;
    char text[SERVER_TEXT];
    struct host name;
    struct dns_server s = server("192.0.2.53", 53);
    assert_string_equal(dns_server_text(&s, text), "192.0.2.53:53");
    s.tcp = true;
    assert_string_equal(dns_server_text(&s, text), "tcp://192.0.2.53:53");
    s = server("2001:db8::53", 853);
    assert_string_equal(dns_server_text(&s, text), "[2001:db8::53]:853");
    assert_int_equal(host_parse(STR("dns.test"), &name, NULL), 0);
    s.tls = &name;
    assert_string_equal(dns_server_text(&s, text), "tls://[2001:db8::53]:853#dns.test");
}

static void test_blame(void **state)
{
    (void)state;
    struct server_blame b = { .n = 0 };
    char what[SERVER_FAULT_WORDS];
    struct dns_server s = server("192.0.2.53", 53), t = server("192.0.2.54", 5353);
    server_blame_add(&b, &s, "Connection refused");
    server_blame_add(&b, &t, "it did not answer in time");
    assert_string_equal(b.text, "192.0.2.53:53 (Connection refused), 192.0.2.54:5353 (it did not answer in time)");
    memset(what, 'x', sizeof what);
    what[sizeof what - 1] = '\0';
    for (int i = 0; i < DNS_SERVERS_MAX; i++)
        server_blame_add(&b, &s, what);
    assert_true(strlen(b.text) < sizeof b.text);
    assert_non_null(strstr(b.text, "xxx), and others"));
    assert_string_equal(b.text + strlen(b.text) - strlen("x), and others"), "x), and others");
    assert_null(strstr(strstr(b.text, "others") + 1, "others"));
}

/* How many lines of log there are since. */
static size_t lines_of(FILE *log)
{
    size_t n = 0;
    rewind(log);
    for (int c; (c = fgetc(log)) != EOF;)
        n += c == '\n';
    return n;
}

static void test_a_line_a_minute(void **state)
{
    (void)state;
    struct dns_server s = server("192.0.2.53", 53), t = server("192.0.2.54", 53);
    struct server_fault f = { .say_ms = 0 }, g = { .say_ms = 0 };
    FILE *log = tmpfile();
    assert_non_null(log);
    int kept = dup(2);
    assert_true(kept >= 0 && dup2(fileno(log), 2) == 2);
    server_fault_note(&f, &s, 1000, "Connection refused", "", "is it there?");
    size_t first = lines_of(log);
    server_fault_note(&f, &s, 60999, "No route to host", "", "is it there?");
    size_t same = lines_of(log);
    server_fault_note(&g, &t, 60999, "Connection refused", "", "is it there?"); /* another server's minute */
    size_t other = lines_of(log);
    server_fault_note(&f, &s, 61000, "No route to host", "", "is it there?");
    size_t later = lines_of(log);
    dup2(kept, 2);
    close(kept);
    fclose(log);
    assert_int_equal(first, 1);
    assert_int_equal(same, 1);
    assert_int_equal(other, 2);
    assert_int_equal(later, 3);
    assert_string_equal(f.what, "No route to host"); /* what is remembered is the last one, said or not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_blame),
        cmocka_unit_test(test_a_line_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
