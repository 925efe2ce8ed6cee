/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers as bytes, and what does not fit. */
#include "dns/answer.h"

#include "dns/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define QUESTION "\3wWw\1a\4test\0\0\1\0\1"
#define OPT      "\0\0\x29\x04\xd0\0\0\0\0\0\0"

static struct query q;
static unsigned char out[ANSWER_TCP_BYTES];

static void ask(struct str message)
{
    assert_int_not_equal(query_parse(message, &q), QUERY_IGNORE);
}

static void same(size_t n, struct str want)
{
    assert_int_equal(n, want.n);
    assert_memory_equal(out, want.p, n);
}

static void test_bytes(void **state)
{
    (void)state;
    struct answer r;
    struct ip v4 = { 4, { 192, 0, 2, 1 } }, v6 = { 6, { 0x20, 1, 0xd, 0xb8, [15] = 1 } };
    ask(STR("\x12\x34\1\x10\0\1\0\0\0\0\0\0" QUESTION));
    answer_start(&r, &q, WIRE_NOERROR, out, q.udp_bytes);
    answer_address(&r, &v4, 60);
    answer_address(&r, &v6, 61);
    same(answer_end(&r), STR("\x12\x34\x81\x90\0\1\0\2\0\0\0\0" QUESTION "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\1"
                             "\xc0\x0c\0\x1c\0\1\0\0\0\x3d\0\x10\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1"));
    /* no recursion desired, EDNS with DO: copied, and no more */
    ask(STR("\x12\x34\0\0\0\1\0\0\0\0\0\1" QUESTION "\0\0\x29\x10\0\0\0\x80\0\0\0"));
    answer_start(&r, &q, WIRE_REFUSED, out, q.udp_bytes);
    same(answer_end(&r), STR("\x12\x34\x80\x85\0\1\0\0\0\0\0\1" QUESTION "\0\0\x29\x04\xd0\0\0\x80\0\0\0"));
    /* a code of more than four bits */
    ask(STR("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION "\0\0\x29\x10\0\0\1\0\0\0\0"));
    answer_start(&r, &q, q.rcode, out, q.udp_bytes);
    same(answer_end(&r), STR("\x12\x34\x81\x80\0\1\0\0\0\0\0\1" QUESTION "\0\0\x29\x04\xd0\1\0\0\0\0\0"));
    /* no question that can be repeated */
    ask(STR("\x12\x34\x29\0\0\1\0\0\0\0\0\0" QUESTION));
    answer_start(&r, &q, q.rcode, out, q.udp_bytes);
    same(answer_end(&r), STR("\x12\x34\xa9\x84\0\0\0\0\0\0\0\0"));
}

static void test_soa(void **state)
{
    (void)state;
    static const unsigned char data[] =
        "\7outgate\7invalid\0\7outgate\7invalid\0\0\0\0\1\0\0\x0e\x10\0\0\2\x58\0\1\x51\x80\0\0\0\x1e";
    struct answer r;
    ask(STR("\x12\x34\1\0\0\1\0\0\0\0\0\0" QUESTION));
    for (int i = 0; i < 2; i++) {
        answer_start(&r, &q, i ? WIRE_NXDOMAIN : WIRE_NOERROR, out, q.udp_bytes);
        answer_soa(&r, ANSWER_NEGATIVE_S);
        size_t at = QUERY_HEADER + q.question.n, n = answer_end(&r);
        assert_int_equal(n, at + 12 + sizeof data - 1);
        assert_int_equal(out[at], 0xc0);
        assert_int_equal(out[at + 1], i ? 16 : 12); /* "a.test", "www.a.test" */
        assert_memory_equal(out + at + 2, "\0\6\0\1\0\0\0\x1e\0\x36", 10);
        assert_memory_equal(out + at + 12, data, sizeof data - 1);
        assert_int_equal(out[9], 1);
    }
    /* our own parser believes it */
    static const unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34 };
    struct wire_query w;
    static struct wire_answer a;
    assert_int_equal(wire_query_make(&w, STR("www.a.test"), WIRE_A, chance), 0);
    ask(str_of(w.bytes, w.n));
    answer_start(&r, &q, WIRE_NXDOMAIN, out, q.udp_bytes);
    answer_soa(&r, 7);
    size_t n = answer_end(&r);
    assert_true(wire_echoes(&w, str_of(out, n)));
    assert_int_equal(wire_answer_parse(&w, str_of(out, n), &a, NULL), 0);
    assert_true(a.soa && a.rcode == WIRE_NXDOMAIN && a.ttl_s == 7);
}

/* As many whole records as fit, and TC exactly when one did not. */
static void test_cut(void **state)
{
    (void)state;
    static const unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34 };
    static struct wire_answer a;
    struct wire_query w;
    assert_int_equal(wire_query_make(&w, STR("www.a.test"), WIRE_AAAA, chance), 0);
    for (size_t max = QUERY_PLAIN_BYTES; max < 700; max++)
        for (size_t count = 14; count < 26; count++) {
            struct answer r;
            ask(str_of(w.bytes, w.n));
            answer_start(&r, &q, WIRE_NOERROR, out, max);
            for (size_t i = 0; i < count; i++)
                answer_address(&r, &(struct ip) { 6, { 0x20, 1, [15] = (uint8_t)i } }, 60);
            size_t n = answer_end(&r), fit = (max - w.n) / 28;
            assert_true(n <= max);
            assert_int_equal(wire_truncated(str_of(out, n)), fit < count);
            assert_int_equal(wire_answer_parse(&w, str_of(out, n), &a, NULL), 0);
            assert_int_equal(a.n, fit < count ? fit : count);
        }
    /* room for OPT is kept */
    ask(STR("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION OPT));
    struct answer r;
    answer_start(&r, &q, WIRE_NOERROR, out, q.udp_bytes);
    for (int i = 0; i < 200; i++)
        answer_address(&r, &(struct ip) { 4, { 192, 0, 2, (uint8_t)i } }, 60);
    size_t n = answer_end(&r);
    assert_true(n <= QUERY_UDP_BYTES && n > QUERY_UDP_BYTES - 16);
    assert_true(wire_truncated(str_of(out, n)));
    assert_memory_equal(out + n - 11, OPT, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_soa),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
