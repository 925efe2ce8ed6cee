/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies: tests/http1/bodies.txt, each whole, byte by byte and cut in two at every place: the same body, the same end,
 * the same verdict. A refused case must pass once its fix is applied. */
#include "tests/lib/h1_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct outcome {
    struct buf data, trailers;
    enum h1_body_event end; /* END, MORE or BAD */
    size_t used;
    unsigned sections; /* TRAILERS events */
    bool closed;
    struct h1_fault fault;
};

static size_t failures;

static void complain(const struct h1_case *c, const char *what, const char *more)
{
    fprintf(stderr, "%.*s (line %u): %s%s%s\n", STR_ARG(c->name), c->line, what, more ? ": " : "", more ? more : "");
    failures++;
}

static struct h1_head head_of(const struct h1_case *c)
{
    struct h1_head h = { .body = H1_BODY_CHUNKED };
    struct str kind = c->kind, word;
    if (!kind.n || str_eq(kind, STR("chunked")))
        return h;
    if (str_eq(kind, STR("close"))) {
        h.body = H1_BODY_UNTIL_CLOSE;
    } else if (str_eq(kind, STR("none"))) {
        h.body = H1_BODY_NONE;
    } else {
        str_split(&kind, ' ', &word);
        h.body = H1_BODY_LENGTH;
        h.length = case_number(c, kind);
    }
    return h;
}

/* The reader of a connection: takes `step` bytes at a time (first `first`), keeps what was not used, on an exact copy.
 */
static struct outcome run(const struct h1_case *c, struct str in, size_t first, size_t step)
{
    struct outcome o = { .end = H1_BODY_MORE };
    buf_init(&o.data, CASE_BYTES);
    buf_init(&o.trailers, CASE_BYTES);
    struct h1_head h = head_of(c);
    struct h1_body_in b;
    h1_body_in_init(&b, &h, c->ext, c->trailer);
    size_t have = 0, next = first;
    while (o.end == H1_BODY_MORE) {
        size_t n = in.n - have < next ? in.n - have : next;
        have += n;
        next = step;
        char *copy = malloc(have - o.used ? have - o.used : 1);
        assert_non_null(copy);
        if (have > o.used)
            memcpy(copy, in.p + o.used, have - o.used);
        struct str rest = str_of(copy, have - o.used), data;
        enum h1_body_event e;
        size_t used;
        do {
            e = h1_body_next(&b, rest, &used, &data, &o.fault);
            if (e == H1_BODY_DATA)
                buf_put(&o.data, data);
            if (e == H1_BODY_TRAILERS) {
                buf_put(&o.trailers, data);
                o.sections++;
            }
            assert_true(used <= rest.n && (e != H1_BODY_DATA || (data.n && used >= data.n)));
            rest = str_from(rest, used);
            o.used += used;
        } while (e == H1_BODY_DATA || e == H1_BODY_TRAILERS);
        free(copy);
        o.end = e;
        if (!n)
            break;
    }
    enum h1_body_event before = o.end;
    o.closed = h1_body_closed(&b);
    assert_true(before != H1_BODY_END || o.closed); /* ended stays ended */
    size_t used;
    struct str data;
    struct h1_fault again;
    if (before == H1_BODY_BAD) /* and bad stays bad */
        assert_int_equal(h1_body_next(&b, STR("0\r\n\r\n"), &used, &data, &again), H1_BODY_BAD);
    return o;
}

static void outcome_done(struct outcome *o)
{
    buf_done(&o->data);
    buf_done(&o->trailers);
}

static void check_words(const struct h1_case *c, const struct outcome *o, struct str in)
{
    for (size_t i = 0; i < c->nwords; i++) {
        struct str word = c->words[i], key;
        str_split(&word, '=', &key);
        bool holds = str_eq(key, STR("data"))       ? str_eq(buf_str(&o->data), word)
                     : str_eq(key, STR("bytes"))    ? buf_size(&o->data) == case_number(c, word)
                     : str_eq(key, STR("trailers")) ? buf_size(&o->trailers) == case_number(c, word)
                     : str_eq(key, STR("left"))     ? in.n - o->used == case_number(c, word)
                                                    : false;
        if (!holds) {
            char text[80];
            complain(c, "does not hold", str_escape(c->words[i], text, sizeof text));
        }
    }
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return a->end == b->end && a->closed == b->closed && a->sections == b->sections &&
           str_eq(buf_str(&a->data), buf_str(&b->data)) && str_eq(buf_str(&a->trailers), buf_str(&b->trailers)) &&
           (a->end != H1_BODY_END || a->used == b->used);
}

static void check_cuts(const struct h1_case *c, struct str in, const struct outcome *whole)
{
    for (size_t cut = 0; cut <= in.n && cut < 400; cut++) {
        struct outcome o = run(c, in, cut ? cut : 1, cut ? in.n : 1);
        if (!same(whole, &o))
            complain(c, cut ? "cut in two it reads differently" : "byte by byte it reads differently", NULL);
        outcome_done(&o);
    }
}

static void run_case(struct h1_case *c, void *ctx)
{
    (void)ctx;
    struct str in = buf_str(&c->in);
    struct outcome o = run(c, in, in.n, 1);
    enum h1_body_event want = str_eq(c->outcome, STR("ok"))     ? H1_BODY_END
                              : str_eq(c->outcome, STR("more")) ? H1_BODY_MORE
                                                                : H1_BODY_BAD;
    if (want == H1_BODY_BAD && !str_eq(c->outcome, STR("bad")))
        case_die(c, "an unknown line");
    if (o.end != want) {
        complain(c,
                 o.end == H1_BODY_BAD   ? "refused"
                 : o.end == H1_BODY_END ? "accepted"
                                        : "wants more",
                 o.end == H1_BODY_BAD ? o.fault.why : NULL);
    } else {
        if (want == H1_BODY_BAD) {
            struct buf fixed;
            buf_init(&fixed, CASE_BYTES);
            if (!c->nfixes || !h1_case_fixed(c, &fixed)) {
                complain(c, "a refused case needs its control", NULL);
            } else {
                struct outcome f = run(c, buf_str(&fixed), buf_size(&fixed), 1);
                if (f.end != H1_BODY_END)
                    complain(c, "its control is refused", f.fault.why);
                outcome_done(&f);
            }
            buf_done(&fixed);
            if (str_find(str_c(o.fault.why), c->why) < 0 && !c->closed.n)
                complain(c, "refused in other words", o.fault.why);
        } else {
            check_words(c, &o, in);
        }
        if (c->closed.n && o.closed != str_eq(c->closed, STR("ok")))
            complain(c, "a close is taken wrongly", NULL);
        if (c->kind.n == 0 && want == H1_BODY_END && o.sections != 1)
            complain(c, "not exactly one trailer section", NULL);
        check_cuts(c, in, &o);
    }
    outcome_done(&o);
}

static void bodies(void **state)
{
    (void)state;
    size_t n = h1_cases("tests/http1/bodies.txt", run_case, NULL);
    print_message("%zu cases\n", n);
    assert_int_equal(failures, 0);
    assert_true(n >= 60);
}

/* What h1_put_* writes is read back: any sizes, with and without trailers. */
static void writing(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 9, 10, 15, 16, 17, 255, 256, 4095, 4096, 65535, 65536 };
    struct buf out, all;
    buf_init(&out, 1 << 20);
    buf_init(&all, 1 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t before = buf_size(&all);
        for (size_t k = 0; k < sizes[i]; k++)
            buf_putc(&all, (char)(k * 7 + i));
        h1_put_chunk(&out, str_from(buf_str(&all), before));
    }
    struct field trailers[] = { { STR("X-Sum"), STR("1") }, { STR("X-Empty"), STR("") } };
    h1_put_chunk_end(&out, trailers, 2);
    assert_false(out.failed);
    struct h1_case c;
    case_begin(&c, STR("writing"), 0);
    struct outcome o = run(&c, buf_str(&out), 1000, 777);
    assert_int_equal(o.end, H1_BODY_END);
    assert_int_equal(o.used, buf_size(&out));
    assert_true(str_eq(buf_str(&o.data), buf_str(&all)));
    assert_true(str_eq(buf_str(&o.trailers), STR("X-Sum: 1\r\nX-Empty: \r\n")));
    outcome_done(&o);
    case_end(&c);
    buf_done(&out);
    buf_init(&out, 10); /* a chunk that does not fit is not half written; an empty one would be the end */
    h1_put_chunk(&out, STR("0123456789"));
    assert_true(out.failed && !buf_size(&out));
    buf_reset(&out);
    h1_put_chunk(&out, STR(""));
    assert_true(out.failed && !buf_size(&out));
    buf_reset(&out);
    h1_put_chunk(&out, STR("01234"));
    assert_true(!out.failed && buf_size(&out) == 10);
    buf_done(&out);
    buf_done(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bodies), cmocka_unit_test(writing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
