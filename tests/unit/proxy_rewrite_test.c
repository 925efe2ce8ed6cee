/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads in, heads out: each row is a request (or an answer) as received and as it is sent on. */
#include "proxy/rewrite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>
#include <nghttp2/nghttp2.h>

static struct h1_field fields[64];

/* An exchange as far as rewrite reads it. */
static void make(struct exchange *x, const char *raw, const char *host, enum scheme scheme, uint16_t port)
{
    const struct h1_limits lim = { 65536, 64, 8192 };
    struct h1_head h;
    struct h1_fault fault = { 0 };
    size_t from = 0;
    *x = (struct exchange) { .scheme = scheme, .port = port };
    if (h1_request_parse(str_c(raw), &lim, fields, &from, &h, &fault) != H1_DONE)
        fail_msg("%s: %s", raw, fault.why ? fault.why : "not whole");
    assert_int_equal(host_parse(str_c(host), &x->host, NULL), 0);
    x->req = (struct request) {
        .method = h.method,
        .target = h.target,
        .fields = h.fields,
        .nfields = h.nfields,
        .body = h.body,
        .length = h.length,
        .expect_continue = h.expect_continue,
        .upgrade = h.upgrade,
    };
}

static void rewritten(struct exchange *x, const char *expected)
{
    struct buf out;
    buf_init(&out, 65536);
    out.wipe = true;
    assert_int_equal(rewrite_request_h1(x, &out), END_OK);
    assert_string_equal(buf_z(&out), expected);
    buf_done(&out);
}

static const struct {
    const char *what, *in, *out;
    bool covered;
} requests[] = {
    { "order, case and values stay", "GET /a?b HTTP/1.1\r\nHost: h.test\r\nx-A:  1 \r\nX-a: 2\r\nUser-Agent: u\r\n\r\n",
      "GET /a?b HTTP/1.1\r\nHost: h.test\r\nx-A: 1\r\nX-a: 2\r\nUser-Agent: u\r\n\r\n", false },
    { "the host is the one decided on", "GET / HTTP/1.1\r\nhOST: H.TEST.:443\r\nA: 1\r\n\r\n",
      "GET / HTTP/1.1\r\nhOST: h.test\r\nA: 1\r\n\r\n", false },
    { "without one it is made", "GET / HTTP/1.0\r\nA: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: h.test\r\nA: 1\r\n\r\n",
      false },
    { "hop-by-hop fields go",
      "GET / HTTP/1.1\r\nHost: h.test\r\nConnection: keep-alive, x-hop\r\nKeep-Alive: 5\r\nTE: trailers\r\nTrailer: "
      "a\r\nUpgrade: h2c\r\n"
      "HTTP2-Settings: AA\r\nProxy-Connection: close\r\nProxy-Authorization: Basic eDp5\r\nProxy-Anything: 1\r\nX-Hop: "
      "1\r\nX-Other: 1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h.test\r\nX-Other: 1\r\n\r\n", false },
    { "a length is written anew, where it stood",
      "POST / HTTP/1.1\r\nA: 1\r\ncontent-length: 0003\r\nHost: h.test\r\n\r\n",
      "POST / HTTP/1.1\r\nA: 1\r\ncontent-length: 3\r\nHost: h.test\r\n\r\n", false },
    { "a length of nothing too", "POST / HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n", false },
    { "chunks", "POST / HTTP/1.1\r\nHost: h.test\r\ntransfer-encoding: Chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h.test\r\ntransfer-encoding: chunked\r\n\r\n", false },
    { "an expectation goes on with its body",
      "POST / HTTP/1.1\r\nHost: h.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", false },
    { "and means nothing without one", "GET / HTTP/1.1\r\nHost: h.test\r\nExpect: 100-continue\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h.test\r\n\r\n", false },
    { "codings are asked for as they were",
      "GET / HTTP/1.1\r\nHost: h.test\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h.test\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1\r\n\r\n", false },
    { "but none where the answer must be read", "GET / HTTP/1.1\r\nHost: h.test\r\naccept-encoding: gzip\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h.test\r\naccept-encoding: identity\r\n\r\n", true },
    { "also where none was named", "GET / HTTP/1.1\r\nHost: h.test\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h.test\r\nAccept-Encoding: identity\r\n\r\n", true },
};

static void requests_are_sent_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct exchange x;
        make(&x, requests[i].in, "h.test", SCHEME_HTTPS, 443);
        x.covered = requests[i].covered;
        rewritten(&x, requests[i].out);
    }
}

static void a_port_that_is_not_the_schemes_is_written(void **state)
{
    (void)state;
    static const struct {
        enum scheme scheme;
        uint16_t port;
        const char *host, *out;
    } rows[] = {
        { SCHEME_HTTPS, 443, "h.test", "h.test" },
        { SCHEME_HTTPS, 80, "h.test", "h.test:80" },
        { SCHEME_HTTP, 80, "h.test", "h.test" },
        { SCHEME_HTTP, 443, "h.test", "h.test:443" },
        { SCHEME_HTTPS, 8443, "h.test", "h.test:8443" },
        { SCHEME_HTTPS, 443, "2001:db8::1", "[2001:db8::1]" },
        { SCHEME_HTTP, 8080, "2001:db8::1", "[2001:db8::1]:8080" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exchange x;
        char expected[128];
        make(&x, "GET / HTTP/1.1\r\nHost: whatever.test\r\n\r\n", rows[i].host, rows[i].scheme, rows[i].port);
        snprintf(expected, sizeof expected, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", rows[i].out);
        rewritten(&x, expected);
    }
}

static void a_head_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct exchange x;
    struct buf out;
    make(&x, "GET / HTTP/1.1\r\nHost: h.test\r\nA: 0123456789\r\n\r\n", "h.test", SCHEME_HTTPS, 443);
    for (size_t max = 1; max < 47; max++) {
        buf_init(&out, max);
        assert_int_equal(rewrite_request_h1(&x, &out), END_HEAD_TOO_LARGE);
        buf_done(&out);
    }
    buf_init(&out, 256);
    assert_int_equal(rewrite_request_h1(&x, &out), END_OK);
    buf_done(&out);
}

/* --- HTTP/2 --- */

/* "name: value" of each field, one a line; a secret one begins with "!". */
static void rewritten_h2(struct exchange *x, const char *expected)
{
    static struct rewrite_field f[REWRITE_FIELDS_MAX];
    struct buf out, lines;
    size_t n = 0;
    buf_init(&out, 65536);
    out.wipe = true;
    buf_init(&lines, 65536);
    assert_int_equal(rewrite_request_h2(x, f, &n, &out), END_OK);
    for (size_t i = 0; i < n; i++) {
        buf_putf(&lines, "%s%.*s: ", f[i].secret ? "!" : "", STR_ARG(f[i].f.name));
        buf_put(&lines, f[i].f.value);
        buf_putc(&lines, '\n');
    }
    assert_string_equal(buf_z(&lines), expected);
    buf_done(&out);
    buf_done(&lines);
}

#define PSEUDO(method, path) ":method: " method "\n:scheme: https\n:authority: h.test\n:path: " path "\n"

static void requests_are_sent_on_in_http2(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
        bool covered;
    } rows[] = {
        { "GET /a?b HTTP/1.1\r\nHost: H.TEST.:443\r\nx-A:  1 \r\nX-a: 2\r\nUser-Agent: u\r\n\r\n",
          PSEUDO("GET", "/a?b") "x-a: 1\nx-a: 2\nuser-agent: u\n", false },
        { "OPTIONS * HTTP/1.1\r\nHost: h.test\r\n\r\n", PSEUDO("OPTIONS", "*"), false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\nConnection: keep-alive, x-hop, te\r\nKeep-Alive: 5\r\nTE: gzip, trailers\r\nTE: trailers\r\n"
          "Trailer: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nProxy-Connection: close\r\nProxy-Authorization: Basic eDp5\r\n"
          "Proxy-Anything: 1\r\nX-Hop: 1\r\nX-Other: 1\r\n\r\n",
          PSEUDO("GET", "/") "te: trailers\nx-other: 1\n", false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\nTE: deflate\r\n\r\n", PSEUDO("GET", "/"), false },
        { "POST / HTTP/1.1\r\nA: 1\r\ncontent-length: 0003\r\nHost: h.test\r\nB: 2\r\n\r\n",
          PSEUDO("POST", "/") "a: 1\ncontent-length: 3\nb: 2\n", false },
        { "POST / HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n", PSEUDO("POST", "/") "content-length: 0\n", false },
        { "POST / HTTP/1.1\r\nHost: h.test\r\ntransfer-encoding: Chunked\r\n\r\n", PSEUDO("POST", "/"), false },
        { "POST / HTTP/1.1\r\nHost: h.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
          PSEUDO("POST", "/") "expect: 100-continue\ncontent-length: 3\n", false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\nExpect: 100-continue\r\n\r\n", PSEUDO("GET", "/"), false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\nAuthorization: own\r\nCookie: a=b; c=d\r\nX-Key: k\r\n\r\n",
          PSEUDO("GET", "/") "!authorization: own\n!cookie: a=b; c=d\nx-key: k\n", false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1\r\n\r\n",
          PSEUDO("GET", "/") "accept-encoding: gzip\nrange: bytes=0-1\n", false },
        { "GET / HTTP/1.1\r\nHost: h.test\r\naccept-encoding: gzip\r\n\r\n", PSEUDO("GET", "/") "accept-encoding: identity\n", true },
        { "GET / HTTP/1.1\r\nHost: h.test\r\n\r\n", PSEUDO("GET", "/") "accept-encoding: identity\n", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exchange x;
        make(&x, rows[i].in, "h.test", SCHEME_HTTPS, 443);
        x.covered = rows[i].covered;
        rewritten_h2(&x, rows[i].out);
    }
}

static void a_head_that_does_not_fit_is_refused_in_http2(void **state)
{
    (void)state;
    static struct rewrite_field f[REWRITE_FIELDS_MAX];
    struct exchange x;
    struct buf out;
    size_t n, whole = strlen(":methodGET:schemehttps:authorityh.test:path/a0123456789");
    make(&x, "GET / HTTP/1.1\r\nHost: h.test\r\nA: 0123456789\r\n\r\n", "h.test", SCHEME_HTTPS, 443);
    for (size_t max = 1; max <= whole; max++) {
        buf_init(&out, max);
        assert_int_equal(rewrite_request_h2(&x, f, &n, &out), max < whole ? END_HEAD_TOO_LARGE : END_OK);
        buf_done(&out);
    }
    /* The last gate: a value that only a fault of ours could have put there. */
    fields[1].f.value = STR("a\r\nb: c");
    buf_init(&out, 1024);
    assert_int_equal(rewrite_request_h2(&x, f, &n, &out), END_HEAD_TOO_LARGE);
    buf_done(&out);
}

/* What HPACK makes of the fields: a secret one is a literal that is never indexed, each time the same; the control's second is an index. */
static void secrets_are_never_indexed(void **state)
{
    (void)state;
    static struct rewrite_field f[REWRITE_FIELDS_MAX];
    struct exchange x;
    struct buf out;
    size_t n, sizes[2][2];
    unsigned char block[2][2][256];
    nghttp2_hd_deflater *d;
    make(&x, "GET / HTTP/1.1\r\nHost: h.test\r\nAuthorization: Bearer some-value-of-mine\r\nX-Plain: some-value-of-mine\r\n\r\n", "h.test",
         SCHEME_HTTPS, 443);
    buf_init(&out, 1024);
    assert_int_equal(rewrite_request_h2(&x, f, &n, &out), END_OK);
    assert_int_equal(n, 6);
    assert_int_equal(nghttp2_hd_deflate_new(&d, 4096), 0);
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < 2; k++) {
            const struct rewrite_field *w = &f[4 + k];
            nghttp2_nv nv = { (uint8_t *)(uintptr_t)w->f.name.p, (uint8_t *)(uintptr_t)w->f.value.p, w->f.name.n, w->f.value.n,
                              w->secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE };
            ssize_t got = nghttp2_hd_deflate_hd(d, block[round][k], sizeof block[round][k], &nv, 1);
            assert_true(got > 0);
            sizes[round][k] = (size_t)got;
        }
    assert_int_equal(block[0][0][0] & 0xf0, 0x10);
    assert_int_equal(sizes[0][0], sizes[1][0]);
    assert_memory_equal(block[0][0], block[1][0], sizes[0][0]);
    assert_int_equal(block[0][1][0] & 0xc0, 0x40);
    assert_int_equal(sizes[1][1], 1);
    assert_int_equal(nghttp2_hd_deflate_get_num_table_entries(d), 61 + 1); /* the static ones, and the control's */
    nghttp2_hd_deflate_del(d);
    buf_done(&out);
}

static void some_requests_cannot_be_sent_on(void **state)
{
    (void)state;
    enum limited { NOTHING = 0, METHODS = 1, PATHS = 2 };
    static const struct {
        const char *field;
        enum limited limited;
        enum end end;
    } rows[] = {
        { "X-HTTP-Method-Override: DELETE", METHODS, END_METHOD_DENIED },
        { "x-http-method: DELETE", METHODS, END_METHOD_DENIED },
        { "X-Method-Override: DELETE", METHODS, END_METHOD_DENIED },
        { "X-HTTP-Method-Override: DELETE", NOTHING, END_OK },
        { "X-HTTP-Method-Override: DELETE", PATHS, END_OK },
        { "X-Original-URL: /admin", PATHS, END_PATH_DENIED },
        { "x-rewrite-url: /admin", PATHS, END_PATH_DENIED },
        { "X-Rewrite-URL: /admin", METHODS, END_OK },
        { "Connection: upgrade\r\nUpgrade: websocket", NOTHING, END_UPGRADE_DENIED },
        { "Connection: upgrade\r\nUpgrade: h2c, websocket", NOTHING, END_UPGRADE_DENIED },
        { "Connection: upgrade\r\nUpgrade: H2C", NOTHING, END_OK },
        { "Upgrade: websocket", NOTHING, END_OK }, /* not nominated: taken off like any hop-by-hop field */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exchange x;
        char raw[256];
        enum end end = END_OK;
        snprintf(raw, sizeof raw, "GET / HTTP/1.1\r\nHost: h.test\r\n%s\r\n\r\n", rows[i].field);
        make(&x, raw, "h.test", SCHEME_HTTPS, 443);
        x.verdict.by_method = rows[i].limited == METHODS;
        x.verdict.by_path = rows[i].limited == PATHS;
        const char *why = rewrite_request_check(&x, &end);
        assert_int_equal(why != NULL, rows[i].end != END_OK);
        if (why)
            assert_int_equal(end, rows[i].end);
    }
}

static void answers_are_sent_on(void **state)
{
    (void)state;
    static const char raw[] =
        "HTTP/1.1 200 OK\r\nServer: s\r\nAlt-Svc: h3\r\nnel: {}\r\nReport-To: {}\r\nReporting-Endpoints: a\r\n"
        "Connection: x-hop, close\r\nX-Hop: 1\r\nKeep-Alive: 3\r\nProxy-Authenticate: Basic\r\nTransfer-Encoding: "
        "chunked\r\n"
        "Set-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Encoding: gzip\r\nVia: 1.1 x\r\n\r\n";
    const struct h1_limits lim = { 65536, 64, 8192 };
    struct exchange x = { 0 };
    struct h1_head h;
    struct h1_fault fault;
    struct field out[64];
    struct buf scratch;
    size_t from = 0;
    buf_init(&scratch, 1024);
    assert_int_equal(h1_response_parse(str_c(raw), STR("GET"), &lim, fields, &from, &h, &fault), H1_DONE);
    size_t n = rewrite_answer_fields(&x, &h, out, 64, &scratch);
    static const char *expected[][2] = {
        { "Server", "s" },  { "Set-Cookie", "a=1" }, { "set-cookie", "b=2" }, { "Content-Encoding", "gzip" },
        { "Via", "1.1 x" },
    };
    assert_int_equal(n, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < n; i++) {
        assert_true(str_eq(out[i].name, str_c(expected[i][0])));
        assert_true(str_eq(out[i].value, str_c(expected[i][1])));
    }
    assert_int_equal(rewrite_answer_fields(&x, &h, out, 2, &scratch), 2);
    buf_done(&scratch);
}

static void some_trailers_pass(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool passes;
    } rows[] = {
        { "grpc-status", true },     { "X-Checksum", true },         { "Date", true },
        { "Content-Length", false }, { "transfer-encoding", false }, { "Host", false },
        { "Trailer", false },        { "Authorization", false },     { "Set-Cookie", false },
        { "Cookie", false },         { "Proxy-Foo", false },         { "Proxy-Authorization", false },
        { "Connection", false },     { "Content-Encoding", false },  { "Range", false },
        { "Alt-Svc", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(rewrite_trailer_passes(str_c(rows[i].name)), rows[i].passes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_sent_on),
        cmocka_unit_test(a_port_that_is_not_the_schemes_is_written),
        cmocka_unit_test(a_head_that_does_not_fit_is_refused),
        cmocka_unit_test(requests_are_sent_on_in_http2),
        cmocka_unit_test(a_head_that_does_not_fit_is_refused_in_http2),
        cmocka_unit_test(secrets_are_never_indexed),
        cmocka_unit_test(some_requests_cannot_be_sent_on),
        cmocka_unit_test(answers_are_sent_on),
        cmocka_unit_test(some_trailers_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
