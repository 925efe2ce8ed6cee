/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a SOCKS5 client: every prefix asks for more, the whole is read to its exact length, what is wrong says so as soon
 * as it can be seen. */
#include "proxy/socks5.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define BYTES(s) { s, sizeof(s) - 1 }

static struct str copy_of(struct str s, size_t n, char *mem)
{
    memcpy(mem, s.p, n); /* exact, for the sanitizer to see a byte too far */
    return str_of(mem, n);
}

static void test_greeting(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        enum socks5_result result;
        bool no_login, login;
        size_t n;
    } cases[] = {
        { BYTES("\x05\x01\x00"), SOCKS5_READY, true, false, 3 },
        { BYTES("\x05\x01\x02"), SOCKS5_READY, false, true, 3 },
        { BYTES("\x05\x03\x00\x01\x02rest"), SOCKS5_READY, true, true, 5 },
        { BYTES("\x05\x01\xff"), SOCKS5_READY, false, false, 3 },
        { BYTES("\x05\x00"), SOCKS5_BAD, false, false, 0 },
        { BYTES("\x04\x01"), SOCKS5_BAD, false, false, 0 },
        { BYTES("\x05\x02\x00"), SOCKS5_MORE, false, false, 0 },
        { BYTES(""), SOCKS5_MORE, false, false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct socks5_greeting g;
        struct err err = { "" };
        size_t n = 0;
        enum socks5_result r = socks5_greeting(cases[i].in, &g, &n, &err);
        assert_int_equal(r, cases[i].result);
        assert_int_equal(r == SOCKS5_BAD, err.text[0] != 0);
        if (r != SOCKS5_READY)
            continue;
        assert_true(g.no_login == cases[i].no_login && g.login == cases[i].login && n == cases[i].n);
        for (size_t k = 0; k < n; k++) {
            char mem[600];
            assert_int_equal(socks5_greeting(copy_of(cases[i].in, k, mem), &g, &n, &err), SOCKS5_MORE);
        }
    }
}

static void test_login(void **state)
{
    (void)state;
    char longest[SOCKS5_MESSAGE_MAX];
    memset(longest, 'a', sizeof longest);
    longest[0] = 1;
    longest[1] = longest[257] = (char)255;
    const struct {
        struct str in;
        enum socks5_result result;
        struct str user, password;
    } cases[] = {
        { BYTES("\x01\x02ro\x03pwd"), SOCKS5_READY, STR("ro"), STR("pwd") },
        { BYTES("\x01\x02ro\x03pwdnext"), SOCKS5_READY, STR("ro"), STR("pwd") },
        { BYTES("\x01\x03r\x00o\x01\x00"), SOCKS5_READY, BYTES("r\0o"), BYTES("\0") },
        { BYTES("\x01\x00\x00"), SOCKS5_READY, STR(""), STR("") },
        { { longest, sizeof longest }, SOCKS5_READY, { longest + 2, 255 }, { longest + 258, 255 } },
        { BYTES("\x05\x02ro\x03pwd"), SOCKS5_BAD, STR(""), STR("") },
        { BYTES("\x00"), SOCKS5_BAD, STR(""), STR("") },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct socks5_login l;
        struct err err = { "" };
        size_t n = 0;
        enum socks5_result r = socks5_login(cases[i].in, &l, &n, &err);
        assert_int_equal(r, cases[i].result);
        assert_int_equal(r == SOCKS5_BAD, err.text[0] != 0);
        if (r != SOCKS5_READY)
            continue;
        assert_true(str_eq(l.user, cases[i].user) && str_eq(l.password, cases[i].password));
        assert_int_equal(n, 3 + l.user.n + l.password.n);
        for (size_t k = 0; k < n; k++) {
            char mem[600];
            size_t ignored;
            assert_int_equal(socks5_login(copy_of(cases[i].in, k, mem), &l, &ignored, &err), SOCKS5_MORE);
        }
    }
}

static void test_request(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        enum socks5_result result;
        const char *host;
        uint16_t port;
        enum socks5_reply reply;
        size_t seen; /* after so many bytes it is known to be wrong */
    } cases[] = {
        { BYTES("\x05\x01\x00\x03\x09OPEN.test\x01\xbbrest"), SOCKS5_READY, "open.test", 443, 0, 0 },
        { BYTES("\x05\x01\x00\x03\x0aopen.test.\x00\x50"), SOCKS5_READY, "open.test", 80, 0, 0 },
        { BYTES("\x05\x01\x00\x01\x7f\x00\x00\x01\xff\xff"), SOCKS5_READY, "127.0.0.1", 65535, 0, 0 },
        { BYTES("\x05\x01\x00\x03\x0a""0x7f000001\x00\x50"), SOCKS5_READY, "127.0.0.1", 80, 0, 0 },
        { BYTES("\x05\x01\x00\x03\x03""::1\x00\x50"), SOCKS5_READY, "::1", 80, 0, 0 },
        { BYTES("\x05\x01\x00\x04\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50"), SOCKS5_READY, "2001:db8::1", 80, 0, 0 },
        { BYTES("\x05\x01\x00\x03\x00\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 7 },
        { BYTES("\x05\x01\x00\x03\x06op\x00n.t\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 13 },
        { BYTES("\x05\x01\x00\x03\x06op n.t\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 13 },
        { BYTES("\x05\x01\x00\x03\x06" "a@b.te\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 13 },
        { BYTES("\x05\x01\x00\x03\x06" "a.b:80\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 13 },
        { BYTES("\x05\x01\x00\x03\x05" "[::1]\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 12 },
        { BYTES("\x05\x01\x00\x03\x09open.test\x00\x00"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 16 },
        { BYTES("\x05\x02\x00\x03\x09open.test\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_NO_COMMAND, 2 },
        { BYTES("\x05\x03\x00\x03\x09open.test\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_NO_COMMAND, 2 },
        { BYTES("\x05\x01\x01\x03\x09open.test\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 3 },
        { BYTES("\x05\x01\x00\x02\x09open.test\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_NO_ADDRESS_TYPE, 4 },
        { BYTES("\x04\x01\x00\x50"), SOCKS5_BAD, NULL, 0, SOCKS5_FAILURE, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct socks5_request q;
        struct err err = { "" };
        enum socks5_reply reply;
        size_t n = 0;
        enum socks5_result r = socks5_request(cases[i].in, &q, &n, &reply, &err);
        if (r != cases[i].result)
            fail_msg("%zu: %d", i, (int)r);
        size_t known = cases[i].seen;
        if (r == SOCKS5_READY) {
            assert_string_equal(q.host.name, cases[i].host);
            assert_int_equal(q.port, cases[i].port);
            known = n;
        } else {
            assert_int_equal(reply, cases[i].reply);
            assert_true(err.text[0]);
        }
        for (size_t k = 0; k <= known; k++) {
            char mem[600];
            r = socks5_request(copy_of(cases[i].in, k, mem), &q, &n, &reply, &err);
            if (r != (k < known ? SOCKS5_MORE : cases[i].result))
                fail_msg("%zu: %d after %zu bytes", i, (int)r, k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_greeting), cmocka_unit_test(test_login), cmocka_unit_test(test_request) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
