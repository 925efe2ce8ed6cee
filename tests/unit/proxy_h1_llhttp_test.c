/* SPDX-License-Identifier: Apache-2.0
 *
 * llhttp (the parser of Node) as an oracle: whatever we accept, it accepts with the same method, target, status, fields
 * and body. Its C comes with Debian's node-llhttp; it is compiled into a shared object here and loaded, so
 * that nothing else links it. Skipped with a printed reason where it is absent.
 *
 * Deliberate differences, where we accept and llhttp 8.1 does not:
 *   a method it has no name for (extension methods pass; rules judge them)
 *   a target it does not take for an URL in its own, narrower reading (see url_differs)
 *   HTAB behind the digits of a Content-Length, which RFC 9110 5.5 takes off like a space; what is sent on has none
 *   a chunk extension of other bytes than NAME or NAME=TOKEN; none is sent on
 * What an answer to HEAD or CONNECT and a 304 with a length have for a body, it is told by the caller, as Node does.
 * Everything it accepts and we do not is our strictness, which tests/http1 lists. */
#include "tests/lib/h1_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#if __has_include("/usr/share/include/llhttp/llhttp.h") && __has_include("/usr/share/llhttp/llhttp.c")

#include <dlfcn.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "/usr/share/include/llhttp/llhttp.h"
#pragma GCC diagnostic pop

static struct {
    void *handle;
    void (*init)(llhttp_t *, llhttp_type_t, const llhttp_settings_t *);
    void (*settings_init)(llhttp_settings_t *);
    llhttp_errno_t (*execute)(llhttp_t *, const char *, size_t);
    llhttp_errno_t (*finish)(llhttp_t *);
} lib;

static int symbol(const char *name, void *ret)
{
    void *p = dlsym(lib.handle, name);
    memcpy(ret, &p, sizeof p);
    return p ? 0 : -1;
}

static bool lib_load(void)
{
    char dir[] = "/tmp/outgate-llhttp-XXXXXX", so[64], command[512];
    if (!mkdtemp(dir))
        return false;
    snprintf(so, sizeof so, "%s/l.so", dir);
    snprintf(
        command, sizeof command,
        "cc -w -O1 -shared -fPIC -I/usr/share/include/llhttp -o %s /usr/share/llhttp/llhttp.c /usr/share/llhttp/api.c "
        "/usr/share/llhttp/http.c 2>/dev/null",
        so);
    bool ok = !system(command);
    lib.handle = ok ? dlopen(so, RTLD_NOW) : NULL;
    unlink(so);
    rmdir(dir);
    return lib.handle && !symbol("llhttp_init", &lib.init) && !symbol("llhttp_settings_init", &lib.settings_init) &&
           !symbol("llhttp_execute", &lib.execute) && !symbol("llhttp_finish", &lib.finish);
}

struct seen {
    llhttp_t parser; /* first: callbacks get its address */
    struct buf method, url, name, value, fields, body; /* fields: "name:value\n" each */
    unsigned complete;
    int skip; /* what on_headers_complete answers */
};

static int on_method(llhttp_t *p, const char *at, size_t n)
{
    return buf_put(&((struct seen *)(void *)p)->method, str_of(at, n));
}
static int on_url(llhttp_t *p, const char *at, size_t n)
{
    return buf_put(&((struct seen *)(void *)p)->url, str_of(at, n));
}
static int on_name(llhttp_t *p, const char *at, size_t n)
{
    return buf_put(&((struct seen *)(void *)p)->name, str_of(at, n));
}
static int on_value(llhttp_t *p, const char *at, size_t n)
{
    return buf_put(&((struct seen *)(void *)p)->value, str_of(at, n));
}
static void field_put(struct buf *out, struct str name, struct str value)
{
    buf_put(out, name);
    buf_putc(out, ':');
    buf_put(out, value);
    buf_putc(out, '\n');
}
static int on_field_end(llhttp_t *p)
{
    struct seen *s = (struct seen *)(void *)p;
    field_put(&s->fields, buf_str(&s->name), str_trim(buf_str(&s->value))); /* it leaves white space at the end to the caller */
    buf_reset(&s->name);
    buf_reset(&s->value);
    return 0;
}
static int on_headers(llhttp_t *p)
{
    return ((struct seen *)(void *)p)->skip;
}
static int on_body(llhttp_t *p, const char *at, size_t n)
{
    return buf_put(&((struct seen *)(void *)p)->body, str_of(at, n));
}
static int on_complete(llhttp_t *p)
{
    ((struct seen *)(void *)p)->complete++;
    return 0;
}

/* What llhttp makes of the bytes of one message. */
static llhttp_errno_t ask(struct seen *s, bool request, int skip, struct str bytes, bool until_close)
{
    static llhttp_settings_t settings;
    memset(s, 0, sizeof *s);
    buf_init(&s->method, 1 << 16);
    buf_init(&s->url, 1 << 20);
    buf_init(&s->name, 1 << 20);
    buf_init(&s->value, 1 << 20);
    buf_init(&s->fields, 1 << 20);
    buf_init(&s->body, 1 << 20);
    s->skip = skip;
    lib.settings_init(&settings);
    settings.on_method = on_method;
    settings.on_url = on_url;
    settings.on_header_field = on_name;
    settings.on_header_value = on_value;
    settings.on_header_value_complete = on_field_end;
    settings.on_headers_complete = on_headers;
    settings.on_body = on_body;
    settings.on_message_complete = on_complete;
    lib.init(&s->parser, request ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
    llhttp_errno_t e = lib.execute(&s->parser, bytes.p, bytes.n);
    if (e == HPE_PAUSED_UPGRADE)
        e = HPE_OK;
    if (e == HPE_OK && until_close)
        e = lib.finish(&s->parser);
    return e;
}

struct tally {
    size_t asked, agreed, refused, waiting, differ;
    bool request;
};

static bool method_known(struct str m)
{
    static const char *const known[] = {
#define XX(number, name, string) #string,
        HTTP_METHOD_MAP(XX)
#undef XX
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_eq(m, str_c(known[i])))
            return true;
    return false;
}

/* llhttp reads the target as an URL: an authority of letters, digits and few marks after a scheme of letters, and
 * nothing but a path otherwise. */
static bool url_differs(const struct h1_head *h)
{
    if (h->target.p[0] == '/' || h->target.p[0] == '*')
        return false;
    ptrdiff_t slashes = str_find(h->target, STR("://"));
    for (ptrdiff_t i = 0; i < slashes; i++)
        if (!ascii_alpha(h->target.p[i]))
            return true;
    struct str rest = slashes < 0 ? h->target : str_from(h->target, (size_t)slashes + 3), authority;
    str_split(&rest, '/', &authority);
    for (size_t i = 0; i < authority.n; i++)
        if (!ascii_alpha(authority.p[i]) && !ascii_digit(authority.p[i]) && !strchr(".-_:[]%", authority.p[i]))
            return true;
    return false;
}

static bool length_differs(const struct h1_head *h)
{
    for (size_t i = 0; i < h->nfields; i++) {
        struct str v = h->fields[i].f.value;
        for (const char *p = v.p + v.n; h->fields[i].id == H1_CONTENT_LENGTH && *p != '\r'; p++)
            if (*p == '\t')
                return true;
    }
    return false;
}

static size_t tokens(struct str s)
{
    size_t n = 0;
    while (n < s.n && ascii_tchar(s.p[n]))
        n++;
    return n;
}

/* Any semicolon of a chunked body that does not begin such an extension. */
static bool ext_differs(struct str body)
{
    for (ptrdiff_t at; (at = str_find_char(body, ';')) >= 0;) {
        body = str_from(body, (size_t)at + 1);
        size_t n = tokens(body);
        if (n && n < body.n && body.p[n] == '=') {
            size_t value = tokens(str_from(body, n + 1));
            n = value ? n + 1 + value : 0;
        }
        if (!n || n == body.n || (body.p[n] != ';' && body.p[n] != '\r'))
            return true;
    }
    return false;
}

/* Our reading of one whole message, then llhttp's. */
static void compare(struct str in, struct str method, struct tally *t, const char *name)
{
    static struct h1_field fields[256];
    static const struct h1_limits lim = { .head_bytes = 65536, .fields = 256, .target_bytes = 32768 };
    struct h1_head h;
    struct h1_fault fault;
    size_t from = 0;
    enum h1_result r = h1_any_parse(t->request, in, method, &lim, fields, &from, &h, &fault);
    t->asked++;
    if (r != H1_DONE) {
        *(r == H1_MORE ? &t->waiting : &t->refused) += 1;
        return;
    }
    size_t total = h.bytes;
    struct buf ours, body;
    buf_init(&ours, 1 << 20);
    buf_init(&body, 1 << 20);
    for (size_t i = 0; i < h.nfields; i++)
        field_put(&ours, h.fields[i].f.name, h.fields[i].f.value);
    struct h1_body_in b;
    h1_body_in_init(&b, &h, 4096, 16384);
    for (bool end = false; !end;) {
        struct str data;
        size_t used;
        enum h1_body_event e = h1_body_next(&b, str_from(in, total), &used, &data, &fault);
        total += used;
        if (e == H1_BODY_DATA) {
            buf_put(&body, data);
        } else if (e == H1_BODY_TRAILERS) {
            static struct h1_field trailers[256];
            size_t n, bytes;
            if (h1_trailers_parse(data, &lim, trailers, &n, &bytes, &fault) != H1_DONE) {
                t->refused++;
                goto out;
            }
            for (struct str line; str_find_char(data, '\n') >= 0;) {
                str_split(&data, '\n', &line);
                ptrdiff_t colon = str_find_char(line, ':');
                field_put(&ours, str_sub(line, 0, (size_t)colon),
                          str_trim(str_sub(line, (size_t)colon + 1, line.n - (size_t)colon - 2)));
            }
        } else if (e == H1_BODY_END || (e == H1_BODY_MORE && h1_body_closed(&b))) {
            end = true;
        } else {
            *(e == H1_BODY_MORE ? &t->waiting : &t->refused) += 1;
            goto out;
        }
    }
    if ((t->request && (!method_known(h.method) || url_differs(&h))) || length_differs(&h) ||
        (h.body == H1_BODY_CHUNKED && ext_differs(str_sub(in, h.bytes, total - h.bytes)))) {
        t->differ++;
        goto out;
    }
    struct seen s;
    bool connected = !t->request && str_eq(method, STR("CONNECT")) && h.status / 100 == 2;
    int skip = connected ? 2 : !t->request && (str_eq(method, STR("HEAD")) || h.status == 304) ? 1 : 0;
    llhttp_errno_t e = ask(&s, t->request, skip, str_sub(in, 0, total), h.body == H1_BODY_UNTIL_CLOSE);
    bool same = e == HPE_OK && s.complete == 1 && str_eq(buf_str(&s.fields), buf_str(&ours)) &&
                str_eq(buf_str(&s.body), buf_str(&body));
    if (t->request)
        same = same && str_eq(buf_str(&s.method), h.method) && str_eq(buf_str(&s.url), h.target);
    else
        same = same && s.parser.status_code == h.status;
    if (!same) {
        char text[400], fields_seen[400];
        fail_msg("%s: llhttp: error %d, %u messages, %zu body bytes of %zu, fields %s: %s", name, (int)e, s.complete,
                 buf_size(&s.body), buf_size(&body), str_escape(buf_str(&s.fields), fields_seen, sizeof fields_seen),
                 str_escape(in, text, sizeof text));
    }
    buf_done(&s.method);
    buf_done(&s.url);
    buf_done(&s.name);
    buf_done(&s.value);
    buf_done(&s.fields);
    buf_done(&s.body);
    t->agreed++;
out:
    buf_done(&ours);
    buf_done(&body);
}

static void each_case(struct h1_case *c, void *ctx)
{
    char name[80];
    compare(buf_str(&c->in), c->method, ctx, str_escape(c->name, name, sizeof name));
}

static void cases(void **state)
{
    (void)state;
    struct tally q = { .request = true }, p = { 0 };
    h1_cases("tests/http1/requests.txt", each_case, &q);
    h1_cases("tests/http1/responses.txt", each_case, &p);
    print_message(
        "requests: %zu agreed, %zu differ on purpose, %zu refused, %zu waiting; responses: %zu, -, %zu, %zu\n",
        q.agreed, q.differ, q.refused, q.waiting, p.agreed, p.refused, p.waiting);
    assert_true(q.agreed > 40 && p.agreed > 25);
}

static uint64_t seed;
static size_t pick(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}
#define PICK(list) list[pick(sizeof list / sizeof *list)]

static const char *const fragments[] = {
    "Content-Length: 0\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 005\r\n",
    "content-length:5 \r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: +5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:\tCHUNKED\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Host: b.test\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Upgrade\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "X: \r\n",
    "X:y\r\n",
    "X: a\tb \t\r\n",
    "X: \xc3\xa9\r\n",
    "X_Y: z\r\n",
    ": z\r\n",
    "X Y: z\r\n",
    "X\r\n",
    " folded\r\n",
    "X: a\rb\r\n",
    "X: a\n",
    "X: a\x01\r\n",
    "Proxy-Connection: keep-alive\r\n",
    "Trailer: X\r\n",
    "TE: trailers\r\n",
    "Cookie: a=b; c=d\r\n",
};
static const char *const bodies[] = {
    "",
    "hello",
    "hello!",
    "5\r\nhello\r\n0\r\n\r\n",
    "0\r\n\r\n",
    "5;x=y\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "a\r\n0123456789\r\n1\r\nx\r\n000\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
};

static void put_rest(struct buf *b)
{
    for (size_t n = pick(5); n; n--)
        buf_put(b, str_c(PICK(fragments)));
    buf_put(b, str_c(pick(50) ? "\r\n" : "\n"));
    buf_put(b, str_c(PICK(bodies)));
}

/* One byte or few of it changed, dropped or doubled. */
static void damage(struct buf *b, struct buf *out)
{
    static const char bytes[] = "\0\t\n\v\r !\"#%*,/09:;=?@A_a{\x7f\x80\xff";
    struct str s = buf_str(b);
    size_t at = pick(s.n), n = 1 + pick(3);
    buf_reset(out);
    buf_put(out, str_sub(s, 0, at));
    switch (pick(4)) {
    case 0: /* another */
        buf_putc(out, bytes[pick(sizeof bytes - 1)]);
        n = 1;
        break;
    case 1: /* one more */
        buf_putc(out, bytes[pick(sizeof bytes - 1)]);
        n = 0;
        break;
    case 2: /* twice */
        buf_put(out, str_sub(s, at, n));
        n = 0;
        break;
    default: /* less */
        break;
    }
    buf_put(out, str_from(s, at + n));
}

static void generated(void **state)
{
    (void)state;
    static const char *const starts[] = { "GET /",
                                          "POST /a?b=c",
                                          "PUT /%2f",
                                          "HEAD /x",
                                          "DELETE //x",
                                          "OPTIONS *",
                                          "CONNECT a.test:443",
                                          "PATCH http://a.test/x",
                                          "GET https://a.test:8443/?q",
                                          "get /",
                                          "GET  /",
                                          "GET x",
                                          "POST /a|b{c}\"^`\\" };
    static const char *const versions[] = { " HTTP/1.1\r\n",  " HTTP/1.1\r\n", " HTTP/1.1\r\n", " HTTP/1.0\r\n",
                                            " HTTP/1.1 \r\n", " HTTP/2.0\r\n", "\r\n" };
    static const char *const answers[] = { "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200\r\n",
                                           "HTTP/1.0 200 OK\r\n", "HTTP/1.1 204 No Content\r\n",
                                           "HTTP/1.1 304 X\r\n",  "HTTP/1.1 404 \xc3\xa9\r\n",
                                           "HTTP/1.1 500 \r\n",   "HTTP/1.1 20 X\r\n" };
    static const struct str methods[] = { { "GET", 3 }, { "GET", 3 }, { "HEAD", 4 }, { "CONNECT", 7 } };
    const char *given = getenv("OUTGATE_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : 20260101;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct tally q = { .request = true }, p = { 0 };
    struct buf b, damaged;
    buf_init(&b, 1 << 16);
    buf_init(&damaged, 1 << 16);
    for (size_t i = 0; i < 60000; i++) {
        buf_reset(&b);
        if (i & 1) {
            buf_put(&b, str_c(PICK(starts)));
            buf_put(&b, str_c(PICK(versions)));
            buf_put(&b, str_c(pick(10) ? "Host: a.test\r\n" : ""));
            put_rest(&b);
            compare(buf_str(&b), STR("GET"), &q, "generated request");
            damage(&b, &damaged);
            compare(buf_str(&damaged), STR("GET"), &q, "damaged request");
        } else {
            buf_put(&b, str_c(PICK(answers)));
            put_rest(&b);
            struct str method = PICK(methods);
            compare(buf_str(&b), method, &p, "generated response");
            damage(&b, &damaged);
            compare(buf_str(&damaged), method, &p, "damaged response");
        }
    }
    buf_done(&b);
    buf_done(&damaged);
    print_message("requests: %zu agreed, %zu refused; responses: %zu agreed, %zu refused\n", q.agreed, q.refused,
                  p.agreed, p.refused);
    assert_true(q.agreed > 500 && p.agreed > 500 && q.refused > 500 && p.refused > 500);
}

static int setup(void **state)
{
    (void)state;
    if (!lib_load()) {
        print_message("skipped: llhttp's sources are here but cannot be compiled and loaded (no cc?)\n");
        return 0;
    }
    return 0;
}

static void guarded_cases(void **state)
{
    if (!lib.handle)
        skip();
    cases(state);
}
static void guarded_generated(void **state)
{
    if (!lib.handle)
        skip();
    generated(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(guarded_cases), cmocka_unit_test(guarded_generated) };
    return cmocka_run_group_tests(tests, setup, NULL);
}

#else

int main(void)
{
    puts("skipped: llhttp's C sources are not here (Debian: node-llhttp)");
    return 0;
}

#endif
