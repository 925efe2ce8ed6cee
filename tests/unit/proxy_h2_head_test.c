/* SPDX-License-Identifier: Apache-2.0
 *
 * Header blocks of HTTP/2 as requests and trailers: each row is refused for what it says, and differs by that alone from a row that is
 * taken. */
#include "proxy/h2_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdio.h>

#include <cmocka.h>

static const struct h1_limits limits = { 4096, 32, 256 };

/* "name|value" each; a value may hold anything but NUL. */
static struct h2_head block(const char *const *fields)
{
    struct h2_head h;
    h2_head_init(&h);
    for (; *fields; fields++) {
        const char *bar = strchr(*fields, '|');
        h2_head_add(&h, str_of(*fields, (size_t)(bar - *fields)), str_c(bar + 1), &limits);
    }
    return h;
}

#define PLAIN ":method|GET", ":scheme|https", ":authority|a.test", ":path|/x"

static const struct row {
    const char *fields[12];
    const char *why; /* a part of the fault; NULL: taken */
} rows[] = {
    { { PLAIN }, NULL },
    { { PLAIN, "x-a|1" }, NULL },
    { { PLAIN, "x-a|" }, NULL },
    { { PLAIN, "x-a|caf\xc3\xa9" }, NULL },
    { { PLAIN, "x_a|1" }, NULL },
    { { ":method|OPTIONS", ":scheme|https", ":authority|a.test", ":path|*" }, NULL },
    { { ":method|M-SEARCH", ":scheme|https", ":authority|a.test", ":path|/" }, NULL },
    { { ":scheme|https", ":path|/x", ":authority|a.test", ":method|GET" }, NULL },
    { { ":method|CONNECT", ":authority|a.test:443" }, NULL },
    { { ":method|CONNECT", ":protocol|websocket", ":scheme|https", ":authority|a.test", ":path|/" }, NULL },
    { { ":method|GET", ":scheme|https", ":path|/x", "host|a.test" }, NULL },
    { { PLAIN, "te|trailers" }, NULL },
    { { PLAIN, "expect|100-continue" }, NULL },

    /* pseudo-fields */
    { { ":scheme|https", ":authority|a.test", ":path|/x" }, "no :method" },
    { { ":method|", ":scheme|https", ":authority|a.test", ":path|/x" }, "no :method" },
    { { ":method|G T", ":scheme|https", ":authority|a.test", ":path|/x" }, "no :method" },
    { { ":method|GET", ":authority|a.test", ":path|/x" }, "no :scheme" },
    { { ":method|GET", ":scheme|https", ":authority|a.test" }, "no :path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|x" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|*" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|http://a.test/" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|/a b" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|/a#b" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|/a\x80" }, "no path" },
    { { ":method|GET", ":scheme|https", ":authority|a.test", ":path|/a\r\nx: y" }, "control" },
    { { PLAIN, ":path|/y" }, "twice" },
    { { ":method|GET", ":method|GET", ":scheme|https", ":authority|a.test", ":path|/x" }, "twice" },
    { { PLAIN, ":authority|a.test" }, "twice" },
    { { PLAIN, ":status|200" }, "no request has" },
    { { PLAIN, ":x|1" }, "no request has" },
    { { PLAIN, ":|1" }, "no request has" },
    { { ":method|GET", "x-a|1", ":scheme|https", ":authority|a.test", ":path|/x" }, "behind" },
    { { PLAIN, ":protocol|websocket" }, ":protocol" },
    { { ":method|CONNECT", ":authority|a.test:443", ":path|/" }, "CONNECT" },
    { { ":method|CONNECT", ":authority|a.test:443", ":scheme|https" }, "CONNECT" },
    { { ":method|CONNECT" }, "CONNECT" },

    /* names */
    { { PLAIN, "X-A|1" }, "lower-case" },
    { { PLAIN, "|1" }, "lower-case" },
    { { PLAIN, "x a|1" }, "lower-case" },
    { { PLAIN, "x:a|1" }, "lower-case" },
    { { PLAIN, "x\ra|1" }, "lower-case" },
    { { PLAIN, "x\xc3\xa9|1" }, "lower-case" },
    { { PLAIN, "content_length|5" }, "lower-case" },
    { { PLAIN, "transfer_encoding|chunked" }, "lower-case" },

    /* values */
    { { PLAIN, "x-a|1\r\nx-b: 2" }, "control" },
    { { PLAIN, "x-a|1\n" }, "control" },
    { { PLAIN, "x-a|1\x7f" }, "control" },
    { { PLAIN, "x-a| 1" }, "white space" },
    { { PLAIN, "x-a|1\t" }, "white space" },

    /* what is about another connection */
    { { PLAIN, "connection|close" }, "HTTP/1.1 connection" },
    { { PLAIN, "keep-alive|5" }, "HTTP/1.1 connection" },
    { { PLAIN, "proxy-connection|close" }, "HTTP/1.1 connection" },
    { { PLAIN, "transfer-encoding|chunked" }, "HTTP/1.1 connection" },
    { { PLAIN, "upgrade|websocket" }, "HTTP/1.1 connection" },
    { { PLAIN, "te|gzip" }, "TE" },
    { { PLAIN, "te|trailers, gzip" }, "TE" },

    /* lengths, hosts, expectations */
    { { PLAIN, "content-length|5" }, "no body" },
    { { PLAIN, "content-length|0" }, NULL },
    { { PLAIN, "content-length|-1" }, "Content-Length" },
    { { PLAIN, "content-length|0", "content-length|0" }, "more than one Content-Length" },
    { { PLAIN, "content-length|9223372036854775808" }, "Content-Length" },
    { { PLAIN, "content-length|00000000000000000000" }, "Content-Length" }, /* 20 digits: no HTTP/1.1 head may say it, so none is made of it */
    { { PLAIN, "content-length|0000000000000000000" }, NULL },
    { { PLAIN, "host|a.test", "host|a.test" }, "more than one Host" },
    { { PLAIN, "expect|a-cookie" }, "Expect" },
    { { PLAIN, "expect|100-continue", "expect|100-continue" }, "Expect" },
};

static void a_request_or_why_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct h2_head h = block(rows[i].fields);
        struct h2_request q;
        assert_int_equal(h2_head_request(&h, true, &limits, &q), 0);
        if (!q.fault != !rows[i].why || (q.fault && !strstr(q.fault, rows[i].why)))
            fail_msg("row %zu (%s …): expected %s, was %s", i, rows[i].fields[0], rows[i].why ? rows[i].why : "a request",
                     q.fault ? q.fault : "a request");
        assert_null(q.r.fault);
        free(q.r.mem);
        h2_head_done(&h);
    }
}

static void every_byte(void **state)
{
    (void)state;
    for (unsigned c = 1; c < 256; c++) {
        char value[] = "x-a|1?1", name[] = "x?a|1", path[] = ":path|/?";
        value[5] = name[1] = path[7] = (char)c;
        const char *const in_value[] = { PLAIN, value, NULL }, *const in_name[] = { PLAIN, name, NULL },
                          *const in_path[] = { ":method|GET", ":scheme|https", ":authority|a.test", path, NULL };
        bool token = ascii_tchar((char)c), upper = c >= 'A' && c <= 'Z';
        struct {
            const char *const *fields;
            bool good;
        } cases[] = {
            { in_value, (c >= 0x20 && c != 0x7f) || c == '\t' },
            { in_name, c == '|' || (token && !upper) }, /* the bar is where this table cuts */
            { in_path, c > 0x20 && c < 0x7f && c != '#' },
        };
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            struct h2_head h = block(cases[k].fields);
            struct h2_request q;
            assert_int_equal(h2_head_request(&h, true, &limits, &q), 0);
            if (!q.fault != cases[k].good)
                fail_msg("byte %u, case %zu: %s", c, k, q.fault ? q.fault : "taken");
            free(q.r.mem);
            h2_head_done(&h);
        }
    }
    struct h2_head h;
    struct h2_request q;
    const char *const plain[] = { PLAIN, NULL };
    h = block(plain);
    h2_head_add(&h, STR("x-a"), str_of("a\0b", 3), &limits);
    assert_int_equal(h2_head_request(&h, true, &limits, &q), 0);
    assert_string_equal(q.fault, "a control character in a field value");
    free(q.r.mem);
    h2_head_done(&h);
}

static void what_the_exchange_gets(void **state)
{
    (void)state;
    const char *const fields[] = { ":method|POST", ":scheme|https", ":authority|a.test:443", ":path|/p?q", "cookie|a=1", "x-a|v",
                                   "cookie|b=2",   "host|a.test",   "cookie|",               "content-length|5", "expect|100-continue", NULL };
    struct h2_head h = block(fields);
    struct h2_request q;
    assert_int_equal(h2_head_request(&h, false, &limits, &q), 0);
    assert_null(q.fault);
    assert_true(str_eq(q.r.method, STR("POST")) && str_eq(q.r.target, STR("/p?q")) && str_eq(q.scheme, STR("https")));
    assert_true(str_eq(q.authority, STR("a.test:443")) && str_eq(q.host, STR("a.test")) && !q.protocol.p);
    assert_int_equal(q.r.nfields, 4);
    assert_true(q.r.fields[0].id == H1_COOKIE && str_eq(q.r.fields[0].f.value, STR("a=1; b=2; ")));
    assert_true(str_eq(q.r.fields[1].f.name, STR("x-a")) && str_eq(q.r.fields[1].f.value, STR("v")));
    assert_true(q.r.body == H1_BODY_LENGTH && q.r.length == 5 && q.r.expect_continue);
    assert_string_equal(q.r.version, "2");
    free(q.r.mem);
    h2_head_done(&h);

    const char *const plain[] = { ":method|POST", ":scheme|https", ":authority|a.test", ":path|/", NULL };
    h = block(plain);
    assert_int_equal(h2_head_request(&h, false, &limits, &q), 0);
    assert_int_equal(q.r.body, H1_BODY_CHUNKED);
    free(q.r.mem);
    assert_int_equal(h2_head_request(&h, true, &limits, &q), 0);
    assert_int_equal(q.r.body, H1_BODY_NONE);
    free(q.r.mem);
    h2_head_done(&h);
}

static void too_much(void **state)
{
    (void)state;
    const char *const plain[] = { PLAIN, NULL };
    struct h2_head h = block(plain);
    for (size_t i = h.n; i < limits.fields; i++)
        h2_head_add(&h, STR("a"), STR("b"), &limits);
    assert_false(h.too_large);
    h2_head_add(&h, STR("a"), STR("b"), &limits);
    assert_true(h.too_large);
    assert_int_equal(h.n, limits.fields);
    h2_head_done(&h);

    /* A field counts for 32 bytes more than it has (RFC 9113 6.5.2). */
    static const char big[4096];
    h2_head_init(&h);
    h2_head_add(&h, STR("a"), str_of(big, 4096 - 33), &limits);
    assert_false(h.too_large);
    h2_head_add(&h, STR(""), STR(""), &limits);
    assert_true(h.too_large);
    h2_head_done(&h);

    char path[300];
    memset(path, 'a', sizeof path);
    memcpy(path, ":path|/", 7);
    path[6 + 256] = 0;
    const char *const fits[] = { ":method|GET", ":scheme|https", ":authority|a.test", path, NULL };
    struct h2_request q;
    for (int over = 0; over < 2; over++) {
        h = block(fits);
        assert_int_equal(h2_head_request(&h, true, &limits, &q), 0);
        assert_null(q.fault);
        assert_int_equal(q.r.fault != NULL, over);
        free(q.r.mem);
        h2_head_done(&h);
        path[6 + 256] = 'a';
        path[6 + 257] = 0;
    }
}

static void trailers(void **state)
{
    (void)state;
    struct field f[4];
    size_t n;
    const char *const good[] = { "grpc-status|0", "content-length|5", "x-sum|1", "authorization|x", NULL };
    struct h2_head h = block(good);
    assert_null(h2_head_trailers(&h, f, 4, &n));
    assert_int_equal(n, 2);
    assert_true(str_eq(f[0].name, STR("grpc-status")) && str_eq(f[1].name, STR("x-sum")));
    assert_non_null(h2_head_trailers(&h, f, 1, &n));
    h2_head_done(&h);
    const char *const pseudo[] = { "x-sum|1", ":path|/", NULL }, *const split[] = { "x-sum|1\r\nx: y", NULL },
                      *const upper[] = { "X-Sum|1", NULL };
    const char *const *bad[] = { pseudo, split, upper };
    for (size_t i = 0; i < 3; i++) {
        h = block(bad[i]);
        assert_non_null(h2_head_trailers(&h, f, 4, &n));
        h2_head_done(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_or_why_not), cmocka_unit_test(every_byte), cmocka_unit_test(what_the_exchange_gets),
        cmocka_unit_test(too_much),             cmocka_unit_test(trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
