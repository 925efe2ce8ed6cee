/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads: tests/http1/requests.txt and responses.txt. Every case is also fed byte by byte, must leave what follows it
 * alone, must come through writing unchanged when it is good, and must pass once its fix is applied when it is not (the
 * control). */
#include "tests/lib/h1_cases.h"

#include "proxy/h1_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

struct run {
    bool request;
    size_t failures;
};

static struct h1_field fields[H1_FIELDS_MAX], fields2[H1_FIELDS_MAX];

static void complain(struct run *r, const struct h1_case *c, const char *what, const char *more)
{
    fprintf(stderr, "%.*s (line %u): %s%s%s\n", STR_ARG(c->name), c->line, what, more ? ": " : "", more ? more : "");
    r->failures++;
}

/* On an exact copy, so that a read past the end is seen. */
static enum h1_result parse_copy(const struct run *r, const struct h1_case *c, struct str bytes, char **copy,
                                 struct h1_head *h, struct h1_fault *fault)
{
    size_t from = 0;
    *copy = malloc(bytes.n ? bytes.n : 1);
    assert_non_null(*copy);
    if (bytes.n)
        memcpy(*copy, bytes.p, bytes.n);
    *fault = (struct h1_fault) { .why = "", .at = SIZE_MAX };
    return h1_any_parse(r->request, str_of(*copy, bytes.n), c->method, &c->limits, fields, &from, h, fault);
}

static bool word_holds(const struct h1_head *h, struct str word)
{
    static const char *const bodies[] = { "none", "length", "chunked", "close" };
    struct str key;
    str_split(&word, '=', &key);
    uint64_t n = 0;
    if (str_eq(key, STR("method")))
        return str_eq(h->method, word);
    if (str_eq(key, STR("target")))
        return str_eq(h->target, word);
    if (str_eq(key, STR("reason")))
        return str_eq(h->reason, word);
    if (str_eq(key, STR("body")))
        return str_eq(str_c(bodies[h->body]), word);
    if (str_eq(key, STR("keep")))
        return h->keep_alive == str_eq(word, STR("yes"));
    if (str_eq(key, STR("upgrade")))
        return h->upgrade == str_eq(word, STR("yes"));
    if (str_eq(key, STR("expect")))
        return h->expect_continue == str_eq(word, STR("yes"));
    if (str_eq(key, STR("host")))
        return h->host < 0 ? str_eq(word, STR("-")) : str_eq(h->fields[h->host].f.value, word);
    if (str_eq(key, STR("last")))
        return h->nfields && str_eq(h->fields[h->nfields - 1].f.value, word);
    if (!str_to_u64(word, UINT64_MAX, &n))
        return false;
    if (str_eq(key, STR("status")))
        return h->status == n;
    if (str_eq(key, STR("fields")))
        return h->nfields == n;
    if (str_eq(key, STR("minor")))
        return h->minor == n;
    if (str_eq(key, STR("length")))
        return h->length == n && h->body == H1_BODY_LENGTH;
    if (str_eq(key, STR("left")))
        return h->bytes == n;
    return false;
}

static void check_good(struct run *r, const struct h1_case *c, const struct h1_head *h)
{
    for (size_t i = 0; i < c->nwords; i++) {
        struct str key, word = c->words[i];
        str_split(&word, '=', &key);
        if (str_eq(key, STR("left"))) { /* bytes after the head */
            if (buf_size(&c->in) - h->bytes != case_number(c, word))
                complain(r, c, "other bytes left than", c->words[i].p);
        } else if (!word_holds(h, c->words[i])) {
            char text[80];
            complain(r, c, "does not hold", str_escape(c->words[i], text, sizeof text));
        }
    }
    struct buf out;
    buf_init(&out, CASE_BYTES);
    const char *differs = h1_round_trip(r->request, h, c->method, &out);
    if (differs)
        complain(r, c, differs, NULL);
    buf_done(&out);
}

/* The same bytes, one more each time. */
static void check_pieces(struct run *r, const struct h1_case *c, const struct h1_head *whole, enum h1_result want)
{
    struct str in = buf_str(&c->in);
    size_t from = 0, n = 0;
    struct h1_head h;
    struct h1_fault fault;
    enum h1_result got = H1_MORE;
    while (got == H1_MORE && n < in.n)
        got = h1_any_parse(r->request, str_sub(in, 0, ++n), c->method, &c->limits, fields2, &from, &h, &fault);
    if (want == H1_DONE &&
        (got != H1_DONE || h.bytes != whole->bytes || n != whole->bytes || !h1_head_equal(whole, &h, false)))
        complain(r, c, "byte by byte it reads differently", NULL);
    bool ends = str_find(in, STR("\r\n\r\n")) >= 0;
    if (want < 0 && got >= 0 && (ends || got == H1_DONE))
        complain(r, c, "byte by byte it is not refused", NULL);
    if (want == H1_MORE && got != H1_MORE)
        complain(r, c, "byte by byte it does not wait for more", NULL);
}

static void check_fix(struct run *r, const struct h1_case *c)
{
    struct buf fixed;
    buf_init(&fixed, CASE_BYTES);
    if (!c->nfixes) {
        complain(r, c, "a refused case needs its control (fix: FROM => TO)", NULL);
    } else if (!h1_case_fixed(c, &fixed)) {
        complain(r, c, "its fix does not apply", NULL);
    } else {
        char *copy;
        struct h1_head h;
        struct h1_fault fault;
        if (parse_copy(r, c, buf_str(&fixed), &copy, &h, &fault) != H1_DONE)
            complain(r, c, "its control is refused", fault.why);
        free(copy);
    }
    buf_done(&fixed);
}

static void run_case(struct h1_case *c, void *ctx)
{
    struct run *r = ctx;
    char *copy;
    struct h1_head h = { 0 };
    struct h1_fault fault;
    enum h1_result got = parse_copy(r, c, buf_str(&c->in), &copy, &h, &fault);
    enum h1_result want = str_eq(c->outcome, STR("ok"))      ? H1_DONE
                          : str_eq(c->outcome, STR("bad"))   ? H1_BAD
                          : str_eq(c->outcome, STR("large")) ? H1_TOO_LARGE
                                                             : H1_MORE;
    if (want == H1_MORE && !str_eq(c->outcome, STR("more")))
        case_die(c, "an unknown line");
    if (got != want) {
        complain(r, c,
                 got == H1_DONE   ? "accepted"
                 : got == H1_MORE ? "waits for more"
                                  : "refused",
                 got < 0 ? fault.why : NULL);
    } else {
        if (want == H1_DONE)
            check_good(r, c, &h);
        if (want < 0 && (str_find(str_c(fault.why), c->why) < 0 || fault.at > buf_size(&c->in)))
            complain(r, c, "refused in other words", fault.why);
        check_pieces(r, c, &h, want);
        if (want < 0)
            check_fix(r, c);
    }
    free(copy);
}

static void run_file(const char *path, bool request, size_t least)
{
    struct run r = { .request = request };
    size_t n = h1_cases(path, run_case, &r);
    print_message("%s: %zu cases\n", path, n);
    assert_int_equal(r.failures, 0);
    assert_true(n >= least);
}

static void requests(void **state)
{
    (void)state;
    run_file("tests/http1/requests.txt", true, 90);
}

static void responses(void **state)
{
    (void)state;
    run_file("tests/http1/responses.txt", false, 40);
}

/* Every byte at every place where it could end a token, value, target or reason: only what the grammar lets through
 * passes. */
static void every_byte(void **state)
{
    (void)state;
    static const struct h1_limits lim = { .head_bytes = 4096, .fields = 16, .target_bytes = 1024 };
    for (unsigned c = 0; c < 256; c++) {
        struct h1_head h;
        struct h1_fault fault;
        char b = (char)c;
        bool token = ascii_tchar(b), value = h1_value_ok(str_of(&b, 1));
        char text[96];
        size_t from = 0;
        int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\nXX%cYY: v\r\n\r\n", c);
        assert_int_equal(h1_request_parse(str_of(text, (size_t)n), &lim, fields, &from, &h, &fault) == H1_DONE,
                         token || b == ':');
        from = 0;
        n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\nX: 0123456789abcdef%c0123456789abcdef\r\n\r\n",
                     c);
        assert_int_equal(h1_request_parse(str_of(text, (size_t)n), &lim, fields, &from, &h, &fault) == H1_DONE, value);
        assert_int_equal(value, c == '\t' || (c >= 0x20 && c != 0x7f));
        from = 0;
        n = snprintf(text, sizeof text, "GET /x%cy HTTP/1.1\r\nHost: a\r\n\r\n", c);
        assert_int_equal(h1_request_parse(str_of(text, (size_t)n), &lim, fields, &from, &h, &fault) == H1_DONE,
                         c > 0x20 && c < 0x7f && c != '#');
        from = 0;
        n = snprintf(text, sizeof text, "HTTP/1.1 200 O%cK\r\nContent-Length: 0\r\n\r\n", c);
        assert_int_equal(
            h1_response_parse(str_of(text, (size_t)n), STR("GET"), &lim, fields, &from, &h, &fault) == H1_DONE, value);
    }
}

/* Only the white space around a value goes; with the bytes of the value nothing happens. */
static void trimming(void **state)
{
    (void)state;
    static const struct h1_limits lim = { .head_bytes = 4096, .fields = 16, .target_bytes = 1024 };
    struct h1_head h;
    struct h1_fault fault;
    size_t from = 0;
    assert_int_equal(h1_request_parse(STR("GET / HTTP/1.1\r\nHost:\t a \r\nX: \t a \t b\t\xff \t\r\nY:b\r\n\r\n"), &lim,
                                      fields, &from, &h, &fault),
                     H1_DONE);
    assert_true(str_eq(h.fields[0].f.value, STR("a")));
    assert_true(str_eq(h.fields[1].f.value, STR("a \t b\t\xff")));
    assert_true(str_eq(h.fields[2].f.value, STR("b")));
}

/* The control scan agrees with the plain definition for every length and place (both its fast and its slow part). */
static void control_scan(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 70; n++) {
        char *p = malloc(n + 1);
        assert_non_null(p);
        for (size_t at = 0; at <= n; at++) {
            memset(p, 0x80, n + 1);
            p[at] = at % 3 ? '\r' : 0x7f;
            if (at)
                p[at - 1] = '\t';
            assert_ptr_equal(h1_control_find(p, p + n), p + at);
            assert_ptr_equal(h1_control_find_tail(p, p + n), p + at);
        }
        free(p);
    }
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum h1_name id;
    } table[] = {
#define H1_NAME(id, text, flags) { text, H1_##id },
#include "proxy/h1_names.def"
#undef H1_NAME
        { "proxy-status", H1_PROXY_OTHER },
        { "proxy-", H1_PROXY_OTHER },
        { "proxy-a-very-long-name-that-nobody-knows", H1_PROXY_OTHER },
        { "proxy", H1_OTHER },
        { "proxyx", H1_OTHER },
        { "x-proxy-status", H1_OTHER },
        { "", H1_OTHER },
        { "h", H1_OTHER },
        { "hosu", H1_OTHER },
        { "content-lengti", H1_OTHER },
        { "content_length", H1_OTHER },
        { "content-length-x", H1_OTHER },
        { "\xc8ost", H1_OTHER },           /* H with its high bit */
        { "content\x0dlength", H1_OTHER }, /* `-` less its 0x20 bit */
    };
    bool met[H1_NAME_COUNT] = { [H1_OTHER] = true, [H1_PROXY_OTHER] = true };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char upper[64];
        size_t n = strlen(table[i].text);
        for (size_t k = 0; k < n; k++)
            upper[k] = table[i].text[k] >= 'a' && table[i].text[k] <= 'z' && k % 2 == 0 ? (char)(table[i].text[k] - 32)
                                                                                        : table[i].text[k];
        char *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, upper, n);
        assert_int_equal(h1_name_of(str_of(exact, n)), table[i].id);
        assert_int_equal(h1_name_of(str_c(table[i].text)), table[i].id);
        free(exact);
        met[table[i].id] = true;
    }
    for (size_t i = 0; i < H1_NAME_COUNT; i++)
        if (!met[i])
            fail_msg("no name in h1_names.def gives id %zu", i);
}

static void lists(void **state)
{
    (void)state;
    assert_true(h1_list_has(STR("close"), STR("close")));
    assert_true(h1_list_has(STR("Keep-Alive ,\tCLOSE"), STR("close")));
    assert_true(h1_list_has(STR(",, upgrade,"), STR("upgrade")));
    assert_false(h1_list_has(STR("closed"), STR("close")));
    assert_false(h1_list_has(STR("x close"), STR("close")));
    assert_false(h1_list_has(STR(""), STR("close")));
    struct h1_field v[2] = { { { STR("connection"), STR("TE") }, H1_CONNECTION },
                             { { STR("Connection"), STR("X-Drop, close") }, H1_CONNECTION } };
    struct h1_head h = { .fields = v, .nfields = 2 };
    assert_true(h1_connection_names(&h, STR("x-drop")));
    assert_true(h1_connection_names(&h, STR("te")));
    assert_false(h1_connection_names(&h, STR("x-keep")));
}

/* What cannot be a field, a request line or a status line is not written. */
static void writing_gate(void **state)
{
    (void)state;
    static const struct {
        struct str name, value;
        bool ok;
    } table[] = {
        { { "X", 1 }, { "v", 1 }, true },        { { "X", 1 }, { "", 0 }, true },
        { { "X", 1 }, { "a\tb\xff", 4 }, true }, { { "X", 1 }, { "a\rb", 3 }, false },
        { { "X", 1 }, { "a\nb", 3 }, false },    { { "X", 1 }, { "a\0b", 3 }, false },
        { { "X", 1 }, { "a\x7f", 2 }, false },   { { "X:", 2 }, { "v", 1 }, false },
        { { "X Y", 3 }, { "v", 1 }, false },     { { "", 0 }, { "v", 1 }, false },
        { { "X\r\n", 3 }, { "v", 1 }, false },   { { "X\xe9", 2 }, { "v", 1 }, false },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct buf out;
        buf_init(&out, 100);
        h1_put_field(&out, table[i].name, table[i].value);
        assert_int_equal(!out.failed, table[i].ok);
        assert_int_equal(buf_size(&out) > 0, table[i].ok);
        buf_done(&out);
    }
    struct buf out;
    buf_init(&out, 1000);
    h1_put_request_line(&out, STR("GET"), STR("/a?b"));
    h1_put_status_line(&out, 200, STR(""));
    h1_put_status_line(&out, 404, STR("Not Found"));
    assert_false(out.failed);
    assert_true(str_eq(buf_str(&out), STR("GET /a?b HTTP/1.1\r\nHTTP/1.1 200 \r\nHTTP/1.1 404 Not Found\r\n")));
    static const struct {
        struct str method, target;
    } bad[] = { { STR("GE T"), STR("/") },  { STR(""), STR("/") },      { STR("GET"), STR("") },
                { STR("GET"), STR("/ x") }, { STR("GET"), STR("/#x") }, { STR("GET"), STR("/\r\n") } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf_reset(&out);
        h1_put_request_line(&out, bad[i].method, bad[i].target);
        assert_true(out.failed && !buf_size(&out));
    }
    buf_reset(&out);
    h1_put_status_line(&out, 99, STR("x"));
    assert_true(out.failed);
    buf_reset(&out);
    h1_put_status_line(&out, 200, STR("x\r\ny"));
    assert_true(out.failed && !buf_size(&out));
    buf_done(&out);
}

/* Byte by byte, total work stays linear: were it not, this would be 40 thousand million bytes. The margin is for
 * sanitizers. */
static void pieces_are_linear(void **state)
{
    (void)state;
    static const struct h1_limits lim = { .head_bytes = 65536, .fields = 128, .target_bytes = 32768 };
    struct buf head;
    buf_init(&head, 65536);
    buf_put(&head, STR("GET / HTTP/1.1\r\nHost: a\r\n"));
    for (int i = 0; i < 60; i++)
        buf_putf(&head, "X-%d: %01000d\r\n", i, 0);
    buf_put(&head, STR("\r\n"));
    clock_t t = clock();
    for (int round = 0; round < 20; round++) {
        size_t from = 0, n = 0;
        struct h1_head h;
        struct h1_fault fault;
        enum h1_result r = H1_MORE;
        while (r == H1_MORE)
            r = h1_request_parse(str_sub(buf_str(&head), 0, ++n), &lim, fields, &from, &h, &fault);
        assert_int_equal(r, H1_DONE);
        assert_int_equal(n, buf_size(&head));
        assert_int_equal(from, 0);
    }
    assert_true((clock() - t) / CLOCKS_PER_SEC < 4);
    buf_done(&head);
}

/* A start line that can only be wrong is refused when it is complete, in however many pieces it came; the end of the
 * head is not waited for. */
static void nonsense_is_not_waited_for(void **state)
{
    (void)state;
    static const struct h1_limits lim = { .head_bytes = 65536, .fields = 128, .target_bytes = 32768 };
    static const struct {
        const char *in;
        enum h1_result want;
    } table[] = { { "GET /\r\n", H1_BAD },
                  { "SSH-2.0-x\r\n", H1_BAD },
                  { "GET / HTTP/1.1\r\n", H1_MORE },
                  { "GET / HTTP/1.1\n", H1_BAD },
                  { "GET / HTTP/1.1\r\nX: \x01", H1_BAD },
                  { "GET / HTTP/1.1\r\nX: y\rz", H1_BAD } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct h1_head h;
        struct h1_fault fault;
        size_t from = 0;
        enum h1_result r = H1_MORE;
        for (size_t n = 1; n <= strlen(table[i].in) && r == H1_MORE; n++)
            r = h1_request_parse(str_of(table[i].in, n), &lim, fields, &from, &h, &fault);
        assert_int_equal(r, table[i].want);
    }
}

static void trailers(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        enum h1_result want;
        size_t fields, bytes;
    } table[] = {
        { "", H1_DONE, 0, 0 },
        { "\r\n", H1_DONE, 0, 2 },
        { "X: 1\r\n", H1_DONE, 1, 6 },
        { "X: 1\r\n\r\nGET", H1_DONE, 1, 8 },
        { "X: 1\r\ndate: 2\r\nX-Checksum: 3\r\n", H1_DONE, 3, 30 },
        { "Content-Length: 5\r\nX: 1\r\n", H1_DONE, 1, 25 }, /* left out, never merged */
        { "transfer-encoding: chunked\r\nHost: b.test\r\nAuthorization: x\r\nCookie: y\r\nX: 1\r\n", H1_DONE, 1, 77 },
        { "Connection: close\r\nTrailer: x\r\nproxy-foo: y\r\nSet-Cookie: a\r\n", H1_DONE, 0, 60 },
        { "X: 1", H1_MORE, 0, 0 },
        { "X: 1\r", H1_MORE, 0, 0 },
        { "X : 1\r\n", H1_BAD, 0, 0 },
        { " X: 1\r\n", H1_BAD, 0, 0 },
        { "X: 1\r\n y\r\n", H1_BAD, 0, 0 },
        { "X: 1\n", H1_BAD, 0, 0 },
        { "X\r\n", H1_BAD, 0, 0 },
        { "Content_Length: 5\r\n", H1_BAD, 0, 0 },
        { "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\nF: 1\r\n", H1_TOO_LARGE, 0, 0 },
        { "A: 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567\r\n",
          H1_TOO_LARGE, 0, 0 },
    };
    static const struct h1_limits lim = { .head_bytes = 90, .fields = 5 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t n = 99, used = 99;
        struct h1_fault fault;
        enum h1_result r = h1_trailers_parse(str_c(table[i].in), &lim, fields, &n, &used, &fault);
        if (r != table[i].want)
            fail_msg("trailers %zu: got %d", i, r);
        if (r == H1_DONE) {
            assert_int_equal(n, table[i].fields);
            assert_int_equal(used, table[i].bytes);
        } else {
            assert_int_equal(n, 99); /* untouched */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(responses),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(trimming),
        cmocka_unit_test(control_scan),
        cmocka_unit_test(names),
        cmocka_unit_test(lists),
        cmocka_unit_test(writing_gate),
        cmocka_unit_test(pieces_are_linear),
        cmocka_unit_test(nonsense_is_not_waited_for),
        cmocka_unit_test(trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
