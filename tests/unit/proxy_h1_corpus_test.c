/* SPDX-License-Identifier: Apache-2.0
 *
 * Request bytes of other projects' smuggling tests, read from OUTGATE_CORPORA/http1/NAME.jsonl ({"id", "class",
 * "raw_b64"} a line; none of it is in this tree). Each is refused, or it is exactly one clean request: its head comes
 * through writing unchanged, its body ends by its framing, and no bytes are left that another reader could take for a
 * second request. Bytes after a request are pipelining where the corpus calls the case compliant, or where they are a
 * whole request themselves and the first one said its length in a way that nobody can read otherwise (which the strict
 * checker here looks at again). At least 70 % of the compliant ones pass. */
#include "tests/lib/h1_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct h1_field fields[H1_FIELDS_MAX];
static const struct h1_limits limits = { .head_bytes = 65536, .fields = 128, .target_bytes = 32768 };

static struct str json_string(struct str line, const char *key)
{
    char quoted[32];
    int n = snprintf(quoted, sizeof quoted, "\"%s\": \"", key);
    ptrdiff_t at = str_find(line, str_of(quoted, (size_t)n));
    if (at < 0)
        return STR_NONE;
    struct str rest = str_from(line, (size_t)at + (size_t)n);
    ptrdiff_t end = str_find_char(rest, '"');
    return end < 0 ? STR_NONE : str_sub(rest, 0, (size_t)end);
}

static void base64_put(struct str s, struct buf *out)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned n = 0;
    for (size_t i = 0; i < s.n && s.p[i] != '='; i++) {
        const char *q = memchr(set, s.p[i], sizeof set - 1);
        assert_non_null(q);
        bits = bits << 6 | (uint32_t)(q - set);
        n += 6;
        if (n >= 8) {
            n -= 8;
            buf_putc(out, (char)(bits >> n & 0xff));
        }
    }
}

static void host_put(struct str raw, struct buf *out)
{
    ptrdiff_t at;
    while ((at = str_find(raw, STR("@HOST@"))) >= 0) {
        buf_put(out, str_sub(raw, 0, (size_t)at));
        buf_put(out, STR("api.test"));
        raw = str_from(raw, (size_t)at + 6);
    }
    buf_put(out, raw);
}

enum taken { REFUSED, UNFINISHED, CLEAN, LEFTOVER, UNCLEAN };

/* One request from the front of *rest. */
static enum taken take(struct str *rest, const char **ret_why)
{
    struct h1_head h;
    struct h1_fault fault = { .why = "" };
    size_t from = 0;
    enum h1_result r = h1_request_parse(*rest, &limits, fields, &from, &h, &fault);
    *ret_why = fault.why;
    if (r == H1_MORE)
        return UNFINISHED;
    if (r != H1_DONE)
        return REFUSED;
    struct buf out;
    buf_init(&out, 1 << 20);
    *ret_why = h1_round_trip(true, &h, STR_NONE, &out);
    buf_done(&out);
    if (*ret_why)
        return UNCLEAN;
    *rest = str_from(*rest, h.bytes);
    struct h1_body_in b;
    h1_body_in_init(&b, &h, 4096, 16384);
    for (;;) {
        struct str data;
        size_t used;
        enum h1_body_event e = h1_body_next(&b, *rest, &used, &data, &fault);
        *rest = str_from(*rest, used);
        *ret_why = fault.why;
        if (e == H1_BODY_END)
            return rest->n ? LEFTOVER : CLEAN;
        if (e == H1_BODY_BAD)
            return REFUSED;
        if (e == H1_BODY_MORE)
            return UNFINISHED;
    }
}

/* Could anybody read another framing out of this head? Loosely: any line with these words in any spelling, beyond the
 * one that counts. */
static bool framing_doubtful(struct str head)
{
    size_t n = 0, crlf = 0, lf = 0;
    for (size_t i = 0; i < head.n; i++) {
        static const char *const words[] = { "content-length", "transfer-encoding" };
        for (size_t w = 0; w < 2; w++) {
            size_t len = strlen(words[w]), hits = 0;
            for (size_t k = 0; k < len && i + k < head.n; k++)
                hits += ascii_lower(head.p[i + k]) == words[w][k] || words[w][k] == '-';
            n += hits == len;
        }
        lf += head.p[i] == '\n';
        crlf += head.p[i] == '\n' && i && head.p[i - 1] == '\r';
    }
    return n > 1 || lf != crlf;
}

/* Codings besides chunked, which no client sends and which servers do not agree about; a fragment, and an empty target
 * (which that corpus calls compliant and RFC 9112 3.2 does not). */
static bool deliberate(const char *why)
{
    static const char *const reasons[] = { "a Transfer-Encoding other than chunked", "a fragment in the request target",
                                           "more than one space after the method" };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (!strcmp(why, reasons[i]))
            return true;
    return false;
}

struct counts {
    unsigned cases, compliant, deliberate, passed, refused, clean, pipelined, unfinished, wrong;
};

static void judge(struct str id, struct str class, struct str raw, struct counts *n)
{
    struct str rest = raw;
    const char *why;
    enum taken t = take(&rest, &why);
    bool compliant = str_eq(class, STR("Compliant"));
    bool may_pipeline = compliant || str_eq(class, STR("Acceptable"));
    n->cases++;
    n->compliant += compliant;
    n->passed += compliant && (t == CLEAN || t == LEFTOVER || t == UNFINISHED);
    n->deliberate += compliant && t == REFUSED && deliberate(why);
    n->refused += t == REFUSED;
    n->unfinished += t == UNFINISHED;
    n->clean += t == CLEAN;
    bool wrong = t == UNCLEAN;
    if (t == LEFTOVER) {
        struct str first = str_sub(raw, 0, raw.n - rest.n), second = rest;
        enum taken t2 = take(&second, &why);
        n->pipelined++;
        wrong = !may_pipeline && (framing_doubtful(first) || t2 == UNCLEAN);
    }
    if (wrong || (compliant && t == REFUSED) || getenv("OUTGATE_TEST_VERBOSE"))
        print_message("%.*s (%.*s): %s %s\n", STR_ARG(id), STR_ARG(class),
                      (const char *[]) { "refused", "unfinished", "clean", "left over", "UNCLEAN" }[t], why ? why : "");
    n->wrong += wrong;
}

static bool run_file(const char *folder, const char *file, struct counts *n)
{
    char path[4096], *line = NULL;
    snprintf(path, sizeof path, "%s/http1/%s", folder, file);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, f)) > 0) {
        struct str s = str_of(line, (size_t)len), b64 = json_string(s, "raw_b64");
        if (!b64.n)
            continue;
        struct buf decoded, raw;
        buf_init(&decoded, 1 << 20);
        buf_init(&raw, 1 << 20);
        base64_put(b64, &decoded);
        host_put(buf_str(&decoded), &raw);
        char *exact = malloc(buf_size(&raw) + 1);
        assert_non_null(exact);
        memcpy(exact, buf_str(&raw).p, buf_size(&raw));
        judge(json_string(s, "id"), json_string(s, "class"), str_of(exact, buf_size(&raw)), n);
        free(exact);
        buf_done(&decoded);
        buf_done(&raw);
    }
    free(line);
    fclose(f);
    return true;
}

static void corpora(void **state)
{
    (void)state;
    const char *folder = getenv("OUTGATE_CORPORA");
    if (!folder) {
        print_message(
            "skipped: OUTGATE_CORPORA is not set (a folder with http1/guardian.jsonl and http1/smuggler.jsonl)\n");
        skip();
    }
    struct counts n = { 0 };
    bool any = run_file(folder, "guardian.jsonl", &n);
    any |= run_file(folder, "smuggler.jsonl", &n);
    if (!any) {
        print_message("skipped: no http1/*.jsonl under OUTGATE_CORPORA\n");
        skip();
    }
    print_message(
        "%u cases: %u refused, %u clean, %u pipelined, %u unfinished; compliant %u of %u, %u refused on purpose\n",
        n.cases, n.refused, n.clean, n.pipelined, n.unfinished, n.passed, n.compliant, n.deliberate);
    assert_int_equal(n.wrong, 0);
    assert_int_equal(n.passed + n.deliberate, n.compliant);
    assert_true(n.passed * 2 >= n.compliant);
}

/* The checker itself sees what it must: a case of each kind, ours. */
static void checker(void **state)
{
    (void)state;
    struct counts n = { 0 };
    struct str smuggled = STR("POST / HTTP/1.1\r\nHost: a.test\r\nX: y\r\nContent-Length: 4\r\nX-Transfer-Encoding: "
                              "chunked\r\n\r\n0\r\n\rGET /");
    judge(STR("own"), STR("Severe"), smuggled, &n);
    assert_int_equal(n.wrong, 1); /* a doubtful head and bytes left over */
    judge(STR("own"), STR("Severe"), str_sub(smuggled, 0, smuggled.n - 5), &n);
    assert_int_equal(n.wrong, 1); /* the same without bytes left over */
    judge(STR("own"), STR("Compliant"), STR("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), &n);
    assert_int_equal(n.wrong, 1);
    assert_int_equal(n.pipelined, 2);
    judge(STR("own"), STR("Severe"), STR("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n"), &n);
    assert_int_equal(n.refused, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(checker), cmocka_unit_test(corpora) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
