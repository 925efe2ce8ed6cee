/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames and questions of one stream, without one: what comes in any pieces gives the same answers, and what is no
 * answer to a question breaks it. */
#include "dns/pipeline.h"

#include "dns_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 100 };

struct question {
    struct pipeline_ask ask;
    struct wire_query wire;
};

static void put(struct pipeline *p, struct question *q, const char *name)
{
    static const unsigned char plain[WIRE_CHANCE];
    assert_int_equal(wire_query_make(&q->wire, str_c(name), WIRE_A, plain), 0);
    q->ask = (struct pipeline_ask) { .wire = &q->wire };
    assert_int_equal(pipeline_put(p, &q->ask), 0);
}

/* The frame of an answer, behind what is there. */
static void answer(struct buf *out, const struct wire_query *q, const char *records)
{
    unsigned char frame[1024];
    size_t n = make_reply(frame + 2, q->bytes, q->n, 0, records);
    put16(frame, (unsigned)n);
    assert_int_equal(buf_put(out, str_of(frame, n + 2)), 0);
}

static void feed(struct pipeline *p, struct str bytes)
{
    assert_int_equal(buf_put(&p->in, bytes), 0);
}

static enum pipeline_got next(struct pipeline *p, struct question **ret)
{
    struct pipeline_ask *ask = NULL;
    struct str packet;
    enum pipeline_got got = pipeline_next(p, &ask, &packet);
    *ret = (struct question *)ask;
    if (got == PIPELINE_ANSWER)
        assert_true(wire_echoes((*ret)->ask.wire, packet));
    return got;
}

/* Every question has an id of its own and stands in `out` as one padded frame. */
static void test_put(void **state)
{
    (void)state;
    static struct question q[N];
    struct pipeline p;
    pipeline_init(&p);
    for (size_t i = 0; i < N; i++)
        put(&p, &q[i], "a.test");
    assert_int_equal(p.waiting, N);
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(q[i].wire.bytes, q[k].wire.bytes, 2);
    struct str out = buf_str(&p.out);
    assert_int_equal(out.n, N * 130);
    for (size_t i = 0; i < N; i++) {
        assert_memory_equal(out.p + i * 130, "\0\x80", 2);
        assert_memory_equal(out.p + i * 130 + 2, q[i].wire.bytes, 2);
    }
    size_t left = 0;
    while (pipeline_lost(&p))
        left++;
    assert_int_equal(left, N);
    pipeline_done(&p);
}

/* No room: the question is not in it, and what was to be sent is as it was. */
static void test_full(void **state)
{
    (void)state;
    static struct question q[600];
    static const unsigned char plain[WIRE_CHANCE];
    struct pipeline p;
    size_t n = 0;
    pipeline_init(&p);
    for (; n < 600; n++) {
        assert_int_equal(wire_query_make(&q[n].wire, STR("a.test"), WIRE_A, plain), 0);
        q[n].ask = (struct pipeline_ask) { .wire = &q[n].wire };
        if (pipeline_put(&p, &q[n].ask) < 0)
            break;
    }
    assert_int_equal(n, PIPELINE_OUT_MAX / 130);
    assert_int_equal(p.waiting, n);
    assert_int_equal(buf_size(&p.out), n * 130);
    assert_false(p.out.failed);
    buf_consume(&p.out, 130);
    assert_int_equal(pipeline_put(&p, &q[n].ask), 0);
    while (pipeline_lost(&p))
        ;
    pipeline_done(&p);
}

/* Last first, cut at every byte. */
static void test_pieces(void **state)
{
    (void)state;
    static struct question q[3];
    struct buf all;
    for (size_t cut = 0;; cut++) {
        struct pipeline p;
        struct question *got;
        size_t found = 0;
        pipeline_init(&p);
        buf_init(&all, 65536);
        for (size_t i = 0; i < 3; i++)
            put(&p, &q[i], i ? "b.test" : "a.test");
        for (size_t i = 3; i-- > 0;)
            answer(&all, &q[i].wire, "@ A 192.0.2.1 60");
        bool end = cut >= buf_size(&all);
        feed(&p, str_sub(buf_str(&all), 0, cut));
        for (int half = 0; half < 2; half++) {
            enum pipeline_got g;
            while ((g = next(&p, &got)) == PIPELINE_ANSWER)
                assert_ptr_equal(got, &q[2 - found++]);
            assert_int_equal(g, PIPELINE_NONE);
            if (half == 0)
                feed(&p, str_from(buf_str(&all), cut));
        }
        assert_int_equal(found, 3);
        assert_int_equal(p.messages, 3);
        assert_int_equal(p.waiting, 0);
        assert_null(p.in.mem); /* given back */
        pipeline_done(&p);
        buf_done(&all);
        if (end)
            return;
    }
}

/* What is no answer to what is under way; the control of each is the answer itself. */
static void test_broken(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        size_t at;
        unsigned char flip;
    } rows[] = {
        { "id", 2 + 1, 1 },        { "other id", 2, 0x80 },     { "a question", 2 + 2, 0x80 },
        { "opcode", 2 + 2, 0x08 }, { "name", 2 + 13, 1 },       { "letter case", 2 + 13, 0x20 },
        { "type", 2 + 12 + 9, 1 }, { "class", 2 + 12 + 11, 2 }, { "two questions", 2 + 5, 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int right = 0; right < 2; right++) {
            struct pipeline p;
            struct question q, *got;
            struct buf all;
            pipeline_init(&p);
            buf_init(&all, 65536);
            put(&p, &q, "a.test");
            answer(&all, &q.wire, "@ A 192.0.2.1 60");
            if (!right)
                all.mem[rows[i].at] = (char)((unsigned char)all.mem[rows[i].at] ^ rows[i].flip);
            feed(&p, buf_str(&all));
            if (next(&p, &got) != (right ? PIPELINE_ANSWER : PIPELINE_BROKEN))
                fail_msg("%s", rows[i].what);
            pipeline_lost(&p);
            pipeline_done(&p);
            buf_done(&all);
        }
    struct pipeline p;
    struct question q, *got;
    for (unsigned n = 0; n <= 12; n++) { /* a length below a header's is none of DNS */
        char bytes[2 + 12] = { 0, (char)n };
        pipeline_init(&p);
        put(&p, &q, "a.test");
        feed(&p, str_of(bytes, 2));
        assert_int_equal(next(&p, &got), n < 12 ? PIPELINE_BROKEN : PIPELINE_NONE);
        pipeline_lost(&p);
        pipeline_done(&p);
    }
}

/* A failure without the question is one of the question with that id, if it is a header and nothing else. */
static void test_bare_failure(void **state)
{
    (void)state;
    static const struct {
        const char *bytes; /* behind the id */
        size_t n;
        enum pipeline_got got;
    } rows[] = {
        { "\x81\x85\0\0\0\0\0\0\0\0", 10, PIPELINE_REFUSED },  { "\x81\x81\0\0\0\0\0\0\0\0", 10, PIPELINE_REFUSED },
        { "\x81\x80\0\0\0\0\0\0\0\0", 10, PIPELINE_BROKEN },   /* no failure */
        { "\x81\x83\0\0\0\0\0\0\0\0", 10, PIPELINE_BROKEN },   /* "does not exist": of what? */
        { "\x01\x85\0\0\0\0\0\0\0\0", 10, PIPELINE_BROKEN },   /* a question */
        { "\x89\x85\0\0\0\0\0\0\0\0", 10, PIPELINE_BROKEN },   /* another opcode */
        { "\x81\x85\0\1\0\0\0\0\0\0", 10, PIPELINE_BROKEN },   /* a question that is not there */
        { "\x81\x85\0\0\0\0\0\0\0\0\0", 11, PIPELINE_BROKEN }, /* a byte more */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int right = 0; right < 2; right++) {
            struct pipeline p;
            struct question q, *got;
            unsigned char frame[16];
            pipeline_init(&p);
            put(&p, &q, "a.test");
            put16(frame, (unsigned)rows[i].n + 2);
            frame[2] = q.wire.bytes[0];
            frame[3] = q.wire.bytes[1] ^ (right ? 0 : 0x40); /* the slot of the question, and not its id */
            memcpy(frame + 4, rows[i].bytes, rows[i].n);
            feed(&p, str_of(frame, rows[i].n + 4));
            struct pipeline_ask *ask = NULL;
            struct str packet;
            if (pipeline_next(&p, &ask, &packet) != (right ? rows[i].got : PIPELINE_BROKEN))
                fail_msg("row %zu", i);
            got = (struct question *)ask;
            assert_true(got == NULL || got == &q);
            pipeline_lost(&p);
            pipeline_done(&p);
        }
}

/* As many answers to nobody as questions were given up. */
static void test_late(void **state)
{
    (void)state;
    struct pipeline p;
    struct question q[2], *got;
    struct buf all;
    pipeline_init(&p);
    buf_init(&all, 65536);
    put(&p, &q[0], "a.test");
    put(&p, &q[1], "b.test");
    pipeline_remove(&p, &q[0].ask);
    answer(&all, &q[0].wire, "@ A 192.0.2.1 60");
    answer(&all, &q[1].wire, "@ A 192.0.2.1 60");
    answer(&all, &q[0].wire, "@ A 192.0.2.1 60");
    feed(&p, buf_str(&all));
    assert_int_equal(next(&p, &got), PIPELINE_LATE);
    assert_int_equal(next(&p, &got), PIPELINE_ANSWER);
    assert_ptr_equal(got, &q[1]);
    assert_int_equal(next(&p, &got), PIPELINE_BROKEN);
    pipeline_done(&p);
    buf_done(&all);
}

/* The longest message there can be, and a read behind it, fit; nothing more does. */
static void test_longest(void **state)
{
    (void)state;
    struct pipeline p;
    struct question q, *got;
    char *bytes = calloc(1, PIPELINE_IN_MAX + 1);
    pipeline_init(&p);
    put(&p, &q, "a.test");
    memcpy(bytes, "\xff\xff", 2);
    make_reply((unsigned char *)bytes + 2, q.wire.bytes, q.wire.n, 0, NULL);
    feed(&p, str_of(bytes, 2 + WIRE_MESSAGE_MAX - 1));
    assert_int_equal(next(&p, &got), PIPELINE_NONE);
    assert_non_null(buf_reserve(&p.in, PIPELINE_READ));
    feed(&p, str_of(bytes, 1));
    assert_int_equal(next(&p, &got), PIPELINE_ANSWER);
    assert_int_equal(buf_put(&p.in, str_of(bytes, PIPELINE_IN_MAX + 1)), -1);
    pipeline_done(&p);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),     cmocka_unit_test(test_full), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_late), cmocka_unit_test(test_bare_failure),
        cmocka_unit_test(test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
