/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "policy/host.h"
#include "policy/host_pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define L63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define N253                                                                                                           \
    L63 "." L63 "." L63 "."                                                                                            \
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* What stands on the wire, and its one canonical form; NULL: refused. */
static const struct {
    const char *text, *canonical;
} wire_cases[] = {
    { "api.test", "api.test" },
    { "API.Test", "api.test" },
    { "api.test.", "api.test" },
    { "a_b.test", "a_b.test" },
    { "xn--bcher-kva.test", "xn--bcher-kva.test" },
    { "XN--BCHER-KVA.TEST", "xn--bcher-kva.test" },
    { "localhost", "localhost" },
    { "r3---sn-x.test", "r3---sn-x.test" },
    { "1e100.net", "1e100.net" },
    { "4chan.test", "4chan.test" },
    { "0x7f.test", "0x7f.test" },
    { L63 ".test", L63 ".test" },
    { N253, N253 },
    { N253 ".", N253 },
    { N253 "a", NULL },
    { "a" L63 ".test", NULL },
    { "", NULL },
    { ".", NULL },
    { "..", NULL },
    { ".test", NULL },
    { "a..test", NULL },
    { "api.test..", NULL },
    { "-a.test", NULL },
    { "a.-b.test", NULL },
    { "a-.test", "a-.test" },
    { "a b.test", NULL },
    { " a.test", NULL },
    { "a.test ", NULL },
    { "a\t.test", NULL },
    { "a.test\n", NULL },
    { "a%2etest", NULL },
    { "a.test%00.evil.test", NULL },
    { "b\xc3\xbc"
      "cher.test",
      NULL },
    { "a\xe3\x80\x82test", NULL },  /* ideographic full stop */
    { "\xe2\x91\xa0.2.3.4", NULL }, /* circled digit */
    { "user@a.test", NULL },
    { "a.test/x", NULL },
    { "a.test\\x", NULL },
    { "a.test#x", NULL },
    { "a.test?x", NULL },
    { "a.test,b.test", NULL },
    { "a.test:443", NULL },
    { "*.test", NULL },
    /* numeric forms are addresses, or nothing */
    { "127.0.0.1", "127.0.0.1" },
    { "127.0.0.1.", "127.0.0.1" },
    { "127.0.0.1..", NULL },
    { "127.1", "127.0.0.1" },
    { "0x7f000001", "127.0.0.1" },
    { "0x7F.1", "127.0.0.1" },
    { "0177.1", "127.0.0.1" },
    { "2130706433", "127.0.0.1" },
    { "0", "0.0.0.0" },
    { "0xa9fea9fe", "169.254.169.254" },
    { "256.1.1.1", NULL },
    { "1.2.3.4.5", NULL },
    { "a.1", NULL },
    { "a.0x1", NULL },
    { "test.09", NULL },
    { "4294967296", NULL },
    { "::1", "::1" },
    { "0:0:0:0:0:FFFF:7F00:1", "::ffff:127.0.0.1" },
    { "[::1]", NULL },
    { "fe80::1%lo", NULL },
    { "fe80::1%25lo", NULL },
    { "::1::", NULL },
};

static void test_wire(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wire_cases / sizeof *wire_cases; i++) {
        struct host h, again;
        struct err err = { "" };
        int rc = host_parse(str_c(wire_cases[i].text), &h, &err);
        if (rc != (wire_cases[i].canonical ? 0 : -1))
            fail_msg("%s: %d %s", wire_cases[i].text, rc, err.text);
        if (rc) {
            assert_true(err.text[0]);
            continue;
        }
        assert_string_equal(h.name, wire_cases[i].canonical);
        assert_int_equal(h.n, strlen(h.name));
        assert_int_equal(host_parse(host_str(&h), &again, NULL), 0); /* canonical text is its own canonical form */
        assert_true(host_eq(&h, &again));
        assert_int_equal(host_is_ip(&h), host_is_ip(&again));
    }
    struct host h;
    assert_int_equal(host_parse(str_of("a\0.test", 7), &h, NULL), -1);
    assert_int_equal(host_parse(STR_NONE, &h, NULL), -1);
}

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
        bool converted;
    } cases[] = {
        { "api.test", "api.test", false },
        { "API.test.", "api.test", false },
        { "a_b.test", "a_b.test", false },
        { "b\xc3\xbc"
          "cher.test",
          "xn--bcher-kva.test", true },
        { "B\xc3\x9c"
          "CHER.test",
          "xn--bcher-kva.test", true },
        { "fa\xc3\x9f.test", "xn--fa-hia.test", true }, /* non-transitional: what today's clients do */
        { "a\xe3\x80\x82test", "a.test", true },
        { "\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.1", "127.0.0.1", true }, /* fullwidth digits */
        { "\xff.test", NULL, false },
        { "a\xe2\x80\x8b"
          "b c.test",
          NULL, false },
        { "", NULL, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h;
        struct err err = { "" };
        bool converted = !cases[i].converted;
        int rc = host_parse_config(str_c(cases[i].text), &h, &converted, &err);
        if (rc != (cases[i].canonical ? 0 : -1))
            fail_msg("%s: %d %s", cases[i].text, rc, err.text);
        if (!rc) {
            assert_string_equal(h.name, cases[i].canonical);
            assert_int_equal(converted, cases[i].converted);
        }
    }
}

static void test_authority(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint16_t dflt;
        const char *host; /* NULL: refused */
        uint16_t port;
    } cases[] = {
        { "a.test:443", 0, "a.test", 443 },
        { "a.test", 443, "a.test", 443 },
        { "a.test", 0, NULL, 0 },
        { "A.test.:8443", 443, "a.test", 8443 },
        { "a.test:", 443, NULL, 0 },
        { "a.test:0", 443, NULL, 0 },
        { "a.test:65535", 443, "a.test", 65535 },
        { "a.test:65536", 443, NULL, 0 },
        { "a.test:0443", 443, NULL, 0 },
        { "a.test:+443", 443, NULL, 0 },
        { "a.test:443x", 443, NULL, 0 },
        { "a.test: 443", 443, NULL, 0 },
        { "a.test:443:443", 443, NULL, 0 },
        { ":443", 443, NULL, 0 },
        { "", 443, NULL, 0 },
        { "[::1]:443", 0, "::1", 443 },
        { "[::1]", 443, "::1", 443 },
        { "[::1]443", 443, NULL, 0 },
        { "[::1", 443, NULL, 0 },
        { "[]", 443, NULL, 0 },
        { "[127.0.0.1]:443", 443, NULL, 0 },
        { "[a.test]:443", 443, NULL, 0 },
        { "[fe80::1%25eth0]:443", 443, NULL, 0 },
        { "::1", 443, NULL, 0 },
        { "::1:443", 443, NULL, 0 },
        { "127.0.0.1:80", 443, "127.0.0.1", 80 },
        { "127.0.0.1..:80", 443, NULL, 0 },
        { "user@a.test:443", 443, NULL, 0 },
        { "user:pass@a.test", 443, NULL, 0 },
        { "a.test/", 443, NULL, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h;
        uint16_t port = 0;
        struct err err = { "" };
        int rc = authority_parse(str_c(cases[i].text), cases[i].dflt, &h, &port, &err);
        if (rc != (cases[i].host ? 0 : -1))
            fail_msg("%s: %d %s", cases[i].text, rc, err.text);
        if (rc) {
            assert_true(err.text[0]);
            continue;
        }
        assert_string_equal(h.name, cases[i].host);
        assert_int_equal(port, cases[i].port);
        struct buf out;
        buf_init(&out, 512);
        assert_int_equal(authority_put(&out, &h, port, 0), 0);
        struct host again;
        uint16_t port_again = 0;
        assert_int_equal(authority_parse(buf_str(&out), 0, &again, &port_again, NULL), 0);
        assert_true(host_eq(&h, &again) && port == port_again);
        buf_reset(&out);
        assert_int_equal(authority_put(&out, &h, port, port), 0);
        assert_int_equal(str_find(buf_str(&out), STR("]:")), -1);
        buf_done(&out);
    }
}

/* Whole labels only: one label or more for "*.", never the bare name, never a name that merely ends alike. */
static void test_pattern(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *host;
        bool matches;
    } cases[] = {
        { "x.test", "x.test", true },
        { "X.Test.", "x.test", true },
        { "x.test", "a.x.test", false },
        { "x.test", "xx.test", false },
        { "x.test", "x.test.evil.test", false },
        { "*.x.test", "a.x.test", true },
        { "*.x.test", "a.b.x.test", true },
        { "*.x.test", "x.test", false },
        { "*.x.test", "evilx.test", false },
        { "*.x.test", "a.x.test.evil.test", false },
        { "*.x.test", "ax.test", false },
        { "*.test", "x.test", true },
        { "*.test", "test", false },
        { "*", "x.test", true },
        { "*", "localhost", true },
        { "*", "127.0.0.1", false },
        { "*", "::1", false },
        { "127.0.0.1", "127.0.0.1", true },
        { "127.0.0.1", "127.0.0.2", false },
        { "[::1]", "::1", true },
        { "::1", "0:0::1", true },
        { "*.0.0.1.test", "127.0.0.1", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host_pattern p;
        struct host h;
        bool converted;
        assert_int_equal(host_pattern_parse(str_c(cases[i].pattern), &p, &converted, NULL), 0);
        assert_int_equal(host_parse(str_c(cases[i].host), &h, NULL), 0);
        if (host_pattern_matches(&p, &h) != cases[i].matches)
            fail_msg("%s %s", cases[i].pattern, cases[i].host);
    }
    static const char *const bad[] = { "",         "**",     "**.x.test", "*x.test",    "x.*.test",       "x.*",
                                       "*.",       "*.*",    "*.1.2.3.4", "10.0.0.0/8", "https://x.test", "x.test:443",
                                       "[x.test]", "*.[::1]" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct host_pattern p;
        struct err err = { "" };
        bool converted;
        if (!host_pattern_parse(str_c(bad[i]), &p, &converted, &err))
            fail_msg("%s", bad[i]);
        assert_true(strstr(err.text, "expected"));
    }
}

static void test_pattern_covers(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool covers;
    } cases[] = {
        { "*", "x.test", true },
        { "*", "*.x.test", true },
        { "*", "*", true },
        { "*", "127.0.0.1", false },
        { "*.x.test", "*", false },
        { "*.x.test", "*.x.test", true },
        { "*.x.test", "*.a.x.test", true },
        { "*.a.x.test", "*.x.test", false },
        { "*.x.test", "x.test", false },
        { "*.x.test", "*.evilx.test", false },
        { "x.test", "x.test", true },
        { "x.test", "*.x.test", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host_pattern a, b;
        bool converted;
        assert_int_equal(host_pattern_parse(str_c(cases[i].a), &a, &converted, NULL), 0);
        assert_int_equal(host_pattern_parse(str_c(cases[i].b), &b, &converted, NULL), 0);
        if (host_pattern_covers(&a, &b) != cases[i].covers)
            fail_msg("%s %s", cases[i].a, cases[i].b);
    }
}

/* Real host names of other people's agents must all be accepted. */
static void test_corpus(void **state)
{
    (void)state;
    const char *folder = getenv("OUTGATE_CORPORA");
    char path[1024], line[1024];
    if (!folder) {
        printf("skipped: OUTGATE_CORPORA is not set\n");
        return;
    }
    static const char *const files[] = { "dns/benign-agent-egress-hosts.txt",
                                         "dns/benign-debian12-homepage-hosts.txt" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        FILE *f = fopen(path, "r");
        if (!f) {
            printf("skipped: %s is not there\n", path);
            continue;
        }
        size_t n = 0, bad = 0;
        while (fgets(line, sizeof line, f)) {
            struct str s = str_c(line);
            while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r' || s.p[s.n - 1] == ' '))
                s.n--;
            struct host_pattern p;
            bool converted;
            struct err err;
            if (!s.n || s.p[0] == '#')
                continue;
            n++;
            if (host_pattern_parse(s, &p, &converted, &err)) {
                bad++;
                printf("%s: %s\n", files[i], err.text);
            }
        }
        fclose(f);
        printf("%s: %zu names, %zu refused\n", files[i], n, bad);
        assert_true(n > 0 && bad * 200 <= n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire),    cmocka_unit_test(test_config),         cmocka_unit_test(test_authority),
        cmocka_unit_test(test_pattern), cmocka_unit_test(test_pattern_covers), cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
