/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions, well formed and not. Each refused one is one thing away from a row that is taken. */
#include "dns/query.h"

#include "dns/wire.h"
#include "policy/dns_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define ID      "\x12\x34"
#define ONE     "\0\1\0\0\0\0\0\0"
#define ONE_OPT "\0\1\0\0\0\0\0\1"
#define NAME    "\3wWw\3a_b\4test\0"
#define A_IN    "\0\1\0\1"
#define OPT     "\0\0\x29\x04\xd0\0\0\0\0\0\0"

struct row {
    const char *what;
    struct str message;
    enum query_result result;
    uint16_t rcode;
    const char *name;
    bool edns;
};
#define M(bytes) STR(bytes)

static const struct row rows[] = {
    { "a question", M(ID "\1\0" ONE NAME A_IN), QUERY_ASK, 0, "www.a_b.test", false },
    { "with OPT", M(ID "\1\0" ONE_OPT NAME A_IN OPT), QUERY_ASK, 0, "www.a_b.test", true },
    { "the root", M(ID "\1\0" ONE "\0\0\2\0\1"), QUERY_ASK, 0, "", false },
    { "no recursion desired, AD and CD", M(ID "\0\x30" ONE NAME A_IN), QUERY_ASK, 0, "www.a_b.test", false },
    { "type ANY", M(ID "\1\0" ONE NAME "\0\xff\0\1"), QUERY_ASK, 0, "www.a_b.test", false },
    { "type HTTPS", M(ID "\1\0" ONE NAME "\0\x41\0\1"), QUERY_ASK, 0, "www.a_b.test", false },
    { "OPT with options",
      M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08"
           "01234567"),
      QUERY_ASK, 0, "www.a_b.test", true },
    { "odd bytes", M(ID "\1\0" ONE "\4a.\0*\4test\0" A_IN), QUERY_ASK, 0, "a\\046\\000\\042.test", false },
    { "high bytes",
      M(ID "\1\0" ONE "\3\xc3\xa4"
           "b\4test\0" A_IN),
      QUERY_ASK, 0, "\\195\\164b.test", false },

    { "nothing", M(""), QUERY_IGNORE, 0, "", false },
    { "half a header", M(ID "\1\0\0\1\0\0\0\0\0"), QUERY_IGNORE, 0, "", false },
    { "an answer", M(ID "\x81\0" ONE NAME A_IN), QUERY_IGNORE, 0, "", false },
    { "an answer of another opcode", M(ID "\xa8\0" ONE NAME A_IN), QUERY_IGNORE, 0, "", false },

    { "a header alone", M(ID "\1\0" ONE), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "opcode IQUERY", M(ID "\x09\0" ONE NAME A_IN), QUERY_REFUSE, WIRE_NOTIMP, "", false },
    { "opcode STATUS", M(ID "\x11\0" ONE NAME A_IN), QUERY_REFUSE, WIRE_NOTIMP, "", false },
    { "opcode NOTIFY", M(ID "\x21\0" ONE NAME A_IN), QUERY_REFUSE, WIRE_NOTIMP, "", false },
    { "opcode UPDATE", M(ID "\x29\0" ONE NAME A_IN), QUERY_REFUSE, WIRE_NOTIMP, "", false },
    { "opcode 15", M(ID "\x79\0" ONE NAME A_IN), QUERY_REFUSE, WIRE_NOTIMP, "", false },
    { "no question", M(ID "\1\0\0\0\0\0\0\0\0\0" NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "two questions", M(ID "\1\0\0\2\0\0\0\0\0\0" NAME A_IN NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "256 questions", M(ID "\1\0\1\0\0\0\0\0\0\0" NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "an answer record", M(ID "\1\0\0\1\0\1\0\0\0\0" NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "an authority record", M(ID "\1\0\0\1\0\0\0\1\0\0" NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "two additional records", M(ID "\1\0\0\1\0\0\0\0\0\2" NAME A_IN OPT OPT), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "an additional record that is not there", M(ID "\1\0" ONE_OPT NAME A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "OPT that is not counted", M(ID "\1\0" ONE NAME A_IN OPT), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a byte behind the question", M(ID "\1\0" ONE NAME A_IN "\0"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a byte behind OPT", M(ID "\1\0" ONE_OPT NAME A_IN OPT "\0"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "OPT cut short", M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0"), QUERY_REFUSE, WIRE_FORMERR, "",
      false },
    { "OPT of another owner", M(ID "\1\0" ONE_OPT NAME A_IN "\1x\0\0\x29\x04\xd0\0\0\0\0\0\0"), QUERY_REFUSE,
      WIRE_FORMERR, "", false },
    { "TSIG in place of OPT", M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\xfa\0\xff\0\0\0\0\0\0"), QUERY_REFUSE, WIRE_FORMERR,
      "", false },
    { "OPT whose length lies", M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0\1"), QUERY_REFUSE,
      WIRE_FORMERR, "", false },
    { "an option whose length lies", M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0\4\0\x0a\0\1"),
      QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "EDNS version 1", M(ID "\1\0" ONE_OPT NAME A_IN "\0\0\x29\x04\xd0\0\1\0\0\0\0"), QUERY_REFUSE, WIRE_BADVERS,
      "www.a_b.test", true },
    { "a pointer to itself", M(ID "\1\0" ONE "\xc0\x0c" A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a pointer forward", M(ID "\1\0" ONE "\1a\xc0\x10" A_IN "\0"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a pointer into the header", M(ID "\1\0" ONE "\1a\xc0\0" A_IN), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a label type that is none",
      M(ID "\1\0" ONE "\x41"
           "a\0" A_IN),
      QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a label beyond the end", M(ID "\1\0" ONE "\4abc"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "a name without its root", M(ID "\1\0" ONE "\3abc"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "no class", M(ID "\1\0" ONE NAME "\0\1"), QUERY_REFUSE, WIRE_FORMERR, "", false },
    { "class CHAOS", M(ID "\1\0" ONE NAME "\0\x10\0\3"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
    { "class ANY", M(ID "\1\0" ONE NAME "\0\1\0\xff"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
    { "type AXFR", M(ID "\1\0" ONE NAME "\0\xfc\0\1"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
    { "type IXFR", M(ID "\1\0" ONE NAME "\0\xfb\0\1"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
    { "type OPT", M(ID "\1\0" ONE NAME "\0\x29\0\1"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
    { "type 0", M(ID "\1\0" ONE NAME "\0\0\0\1"), QUERY_REFUSE, WIRE_REFUSED, "www.a_b.test", false },
};

static void test_rows(void **state)
{
    (void)state;
    static struct query q;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        enum query_result result = query_parse(r->message, &q);
        if (result != r->result)
            fail_msg("%s: %d", r->what, result);
        if (result == QUERY_IGNORE)
            continue;
        if (q.id != 0x1234 || (result == QUERY_REFUSE && q.rcode != r->rcode) || q.edns != r->edns)
            fail_msg("%s: id %x, rcode %u, edns %d", r->what, q.id, q.rcode, q.edns);
        if (r->name[0] && strcmp(q.name, r->name) != 0)
            fail_msg("%s: %s", r->what, q.name);
        if (r->name[0])
            assert_int_equal(q.odd, strchr(q.name, '\\') != NULL);
    }
}

static size_t message(unsigned char *out, const size_t *labels, size_t n)
{
    static const unsigned char head[] = ID "\1\0" ONE;
    size_t at = sizeof head - 1;
    memcpy(out, head, at);
    for (size_t i = 0; i < n; i++) {
        out[at++] = (unsigned char)labels[i];
        memset(out + at, 'a', labels[i]);
        at += labels[i];
    }
    memcpy(out + at, "\0\0\1\0\1", 5);
    return at + 5;
}

static void test_lengths(void **state)
{
    (void)state;
    static struct query q;
    unsigned char m[600];
    static const size_t longest[] = { 63, 63, 63, 61 }, longer[] = { 63, 63, 63, 62 }, label[] = { 64, 1 };
    assert_int_equal(query_parse(str_of(m, message(m, longest, 4)), &q), QUERY_ASK);
    assert_int_equal(q.n, 253);
    assert_int_equal(query_parse(str_of(m, message(m, longer, 4)), &q), QUERY_REFUSE);
    assert_int_equal(q.rcode, WIRE_FORMERR);
    assert_int_equal(query_parse(str_of(m, message(m, label, 2)), &q), QUERY_REFUSE);
    size_t ones[128];
    for (size_t i = 0; i < 128; i++)
        ones[i] = 1;
    assert_int_equal(query_parse(str_of(m, message(m, ones, 127)), &q), QUERY_ASK);
    assert_int_equal(query_parse(str_of(m, message(m, ones, 128)), &q), QUERY_REFUSE);

    /* the longest name of odd bytes fits its text */
    size_t n = message(m, longest, 4);
    for (size_t i = QUERY_HEADER; i < n - 5; i++)
        if (m[i] == 'a')
            m[i] = 0xff;
    assert_int_equal(query_parse(str_of(m, n), &q), QUERY_ASK);
    assert_int_equal(q.n, 250 * 4 + 3);
    assert_int_equal(strlen(q.name), q.n);
}

static void test_sizes(void **state)
{
    (void)state;
    static const uint16_t says[] = { 0, 511, 512, 513, 1232, 1233, 65535 },
                          means[] = { 512, 512, 512, 513, 1232, 1232, 1232 };
    static struct query q;
    unsigned char m[64];
    static const unsigned char with[] = ID "\1\0" ONE_OPT NAME A_IN OPT;
    size_t n = sizeof with - 1;
    memcpy(m, with, n);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        m[n - 8] = (unsigned char)(says[i] >> 8);
        m[n - 7] = (unsigned char)says[i];
        assert_int_equal(query_parse(str_of(m, n), &q), QUERY_ASK);
        assert_int_equal(q.udp_bytes, means[i]);
        assert_false(q.dnssec_ok);
    }
    m[n - 4] = 0x80;
    assert_int_equal(query_parse(str_of(m, n), &q), QUERY_ASK);
    assert_true(q.dnssec_ok);
    static const unsigned char without[] = ID "\1\0" ONE NAME A_IN;
    assert_int_equal(query_parse(str_of(without, sizeof without - 1), &q), QUERY_ASK);
    assert_int_equal(q.udp_bytes, 512);
}

/* Every cut of a good message is malformed, and never read beyond its end. */
static void test_cuts(void **state)
{
    (void)state;
    static const unsigned char whole[] = ID "\1\0" ONE_OPT NAME A_IN OPT;
    static struct query q;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        unsigned char *m = test_malloc(n + 1); /* a read beyond its end is found */
        memcpy(m, whole, n);
        enum query_result want = n < QUERY_HEADER ? QUERY_IGNORE : QUERY_REFUSE;
        assert_int_equal(query_parse(str_of(m, n), &q), want);
        if (want == QUERY_REFUSE)
            assert_int_equal(q.rcode, WIRE_FORMERR);
        test_free(m);
    }
    assert_int_equal(query_parse(str_of(whole, sizeof whole - 1), &q), QUERY_ASK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
