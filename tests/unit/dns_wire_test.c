/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/wire.h"

#include "dns_server.h"
#include "policy/dns_type.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const unsigned char plain[WIRE_CHANCE] = { 0x12, 0x34 };
static unsigned char packet[65535];

static void test_query(void **state)
{
    (void)state;
    struct wire_query q;
    static const unsigned char want[] = "\x12\x34\1\0\0\1\0\0\0\0\0\0\3www\3a_b\4test\0\0\x1c\0\1";
    assert_int_equal(wire_query_make(&q, STR("www.a_b.test"), WIRE_AAAA, plain), 0);
    assert_int_equal(q.n, sizeof want - 1);
    assert_memory_equal(q.bytes, want, q.n);
    unsigned char chance[WIRE_CHANCE];
    memset(chance, 0xff, sizeof chance);
    assert_int_equal(wire_query_make(&q, STR("www.a_b.test"), WIRE_A, chance), 0);
    assert_memory_equal(q.bytes + 12, "\3WWW\3A_B\4TEST", 13);
    char longest[254];
    memset(longest, 'a', 253);
    for (int i = 63; i < 253; i += 64)
        longest[i] = '.';
    assert_int_equal(wire_query_make(&q, str_of(longest, 253), WIRE_A, plain), 0);
    assert_int_equal(q.n, WIRE_QUERY_MAX);

    static const char *const refused[] = { "",         ".",      "a..test",  "a.test.",       ".a.test",
                                           "a b.test", "A.test", "a\\.test", "\xc3\xa4.test", "*.test" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(wire_query_make(&q, str_c(refused[i]), WIRE_A, plain), -1);
    assert_int_equal(wire_query_make(&q, STR("a\0b.test"), WIRE_A, plain), -1);
    longest[63] = 'a'; /* a label of 64 or more */
    assert_int_equal(wire_query_make(&q, str_of(longest, 253), WIRE_A, plain), -1);
}

static void test_echo(void **state)
{
    (void)state;
    struct wire_query q;
    unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34, 0xaa, 0x55 };
    assert_int_equal(wire_query_make(&q, STR("www.a.test"), WIRE_A, chance), 0);
    size_t n = make_reply(packet, q.bytes, q.n, 0, "@ A 192.0.2.1 60");
    assert_true(wire_echoes(&q, str_of(packet, n)));
    /* Every bit of id, opcode and question counts; the other flags and counts do not. */
    for (size_t at = 0; at < q.n; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bool counts = at < 2 || (at == 2 && bit >= 3) || at == 4 || at == 5 || at >= 12;
            packet[at] ^= (unsigned char)(1u << bit);
            assert_int_equal(wire_echoes(&q, str_of(packet, n)), !counts);
            packet[at] ^= (unsigned char)(1u << bit);
        }
    for (size_t less = 0; less < q.n; less++)
        assert_false(wire_echoes(&q, str_of(packet, less)));
}

static int parse(const char *records, unsigned rcode, struct wire_answer *a)
{
    struct wire_query q;
    struct err err;
    assert_int_equal(wire_query_make(&q, STR("www.a.test"), WIRE_A, plain), 0);
    size_t n = make_reply(packet, q.bytes, q.n, rcode, records);
    unsigned char *exact = malloc(n); /* so that the sanitizer sees an over-read */
    memcpy(exact, packet, n);
    assert_true(wire_echoes(&q, str_of(exact, n)));
    int r = wire_answer_parse(&q, str_of(exact, n), a, &err);
    /* Cut anywhere it is refused, or says no more than it did. */
    for (size_t less = q.n; less < n; less++) {
        struct wire_answer b;
        if (wire_answer_parse(&q, str_of(exact, less), &b, &err) == 0)
            assert_int_equal(b.n, a->n);
    }
    free(exact);
    return r;
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *records;
        int r;
        size_t n;
        uint32_t ttl;
        bool soa;
        unsigned aliases;
    } table[] = {
        { "", 0, 0, 0, false, 0 },
        { "@ A 192.0.2.1 60", 0, 1, 60, false, 0 },
        { "www.a.test A 192.0.2.1 60; WWW.A.TEST A 192.0.2.2 30", 0, 2, 30, false, 0 },
        { "@ A 192.0.2.1 60; @ A 192.0.2.1 60", 0, 1, 60, false, 0 }, /* once */
        { "@ AAAA 2001:db8::1 60", 0, 0, 0, false, 0 },               /* not what was asked */
        { "@ CNAME b.test 10; b.test A 192.0.2.1 60", 0, 1, 10, false, 1 },
        { "b.test A 192.0.2.1 5; @ CNAME b.test 10", 0, 1, 5, false, 1 }, /* in any order */
        { "@ CNAME b.test 10; b.test AAAA 2001:db8::1 60", 0, 0, 0, false, 1 },
        { "@ CNAME b.test 10; c.test A 192.0.2.1 60", 0, 0, 0, false, 1 },
        { "@ CNAME b.test 10; +b.test SOA ns.test 77", 0, 0, 77, true, 1 },
        { "+a.test SOA ns.test 30", 0, 0, 30, true, 0 },
        { "@ A 192.0.2.1 60; +a.test SOA ns.test 30", 0, 1, 60, false, 0 },
        { "!@ A 192.0.2.1 60", 0, 0, 0, false, 0 },
        { "+@ A 192.0.2.1 60", 0, 0, 0, false, 0 },
        { "@ A 192.0.2.1 2147483647", 0, 1, 2147483647, false, 0 },
        { "@ A 192.0.2.1 2147483648", 0, 1, 0, false, 0 }, /* RFC 2181 8 */
        { "@ A 192.0.2.1 4294967295", 0, 1, 0, false, 0 },
        { "@ CNAME www.a.test 10", -1, 0, 0, false, 0 },
        { "@ CNAME b.test 10; b.test CNAME www.a.test 10", -1, 0, 0, false, 0 },
        { "@ CNAME b.test 10; @ CNAME c.test 10; b.test A 192.0.2.1 60", -1, 0, 0, false, 0 },
        { "@ CNAME b.test 10; @ CNAME B.test 10; b.test A 192.0.2.1 60", 0, 1, 10, false, 1 },
        { "@ CNAME b.test 10; @ A 192.0.2.1 60", -1, 0, 0, false, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct wire_answer a;
        int r = parse(table[i].records, 0, &a);
        if (r != table[i].r || (r == 0 && (a.n != table[i].n || a.ttl_s != table[i].ttl || a.soa != table[i].soa ||
                                           a.aliases != table[i].aliases)))
            fail_msg("%s: %d, %zu addresses, ttl %u", table[i].records, r, a.n, a.ttl_s);
    }
    struct wire_answer a;
    assert_int_equal(parse("@ CNAME b-1.x_y.test 10; b-1.x_y.test A 192.0.2.1 60", 0, &a), 0);
    assert_string_equal(a.chain, "b-1.x_y.test");
    assert_int_equal(parse("@ CNAME b.test 10; b.test CNAME c.d.test 10; c.d.test A 192.0.2.1 60", 0, &a), 0);
    assert_string_equal(a.chain, "b.test, c.d.test");
    assert_int_equal(parse("@ CNAME \033[31m.test 10; \033[31m.test A 192.0.2.1 60", 0, &a), 0);
    assert_string_equal(a.chain, "??31m.test");
    assert_int_equal(parse("+a.test SOA ns.test 30", 3, &a), 0);
    assert_int_equal(a.rcode, WIRE_NXDOMAIN);
    assert_int_equal(a.ttl_s, 30);
    assert_int_equal(parse("@ A 192.0.2.1 60", 3, &a), -1); /* addresses of what does not exist */
    assert_int_equal(parse("@ A 192.0.2.1 60", 2, &a), 0);
    assert_int_equal(a.n, 0);
}

static void test_many_addresses(void **state)
{
    (void)state;
    static char records[20000];
    for (size_t count = 255; count <= 257; count++) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            n += (size_t)snprintf(records + n, sizeof records - n, "%s@ A 192.0.%zu.%zu 60", i ? ";" : "", i >> 8,
                                  i & 255);
        struct wire_query q;
        struct wire_answer a;
        assert_int_equal(wire_query_make(&q, STR("www.a.test"), WIRE_A, plain), 0);
        n = make_reply(packet, q.bytes, q.n, 0, records);
        int r = wire_answer_parse(&q, str_of(packet, n), &a, NULL);
        assert_int_equal(r, count <= WIRE_ADDRESSES_MAX ? 0 : -1);
        if (r == 0)
            assert_int_equal(a.n, count);
    }
}

/* Names that do not end: every pointer must go back, and further back each time. */
static void test_compression(void **state)
{
    (void)state;
    struct wire_query q;
    assert_int_equal(wire_query_make(&q, STR("www.a.test"), WIRE_A, plain), 0);
    static const unsigned char tail[] = "\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\1";
    static const struct {
        unsigned char owner[8];
        size_t n;
        int r;
        size_t addresses;
    } table[] = {
        { { 0xc0, 12 }, 2, 0, 1 },                   /* control */
        { { 3, 'w', 'w', 'w', 0xc0, 16 }, 6, 0, 1 }, /* the rest of the question's name */
        { { 0xc0, 28 }, 2, -1, 0 },                  /* itself */
        { { 0xc0, 200 }, 2, -1, 0 },                 /* forward, past the end */
        { { 0xc0, 30 }, 2, -1, 0 },                  /* forward */
        { { 1, 'a', 0xc0, 28 }, 4, -1, 0 },          /* a label, then back to its own start */
        { { 0xc0, 4 }, 2, -1, 0 },                   /* into the head */
        { { 0x80, 12 }, 2, -1, 0 },                  /* reserved */
        { { 0x40, 12 }, 2, -1, 0 },
    };
    assert_int_equal(q.n, 28);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct wire_answer a;
        size_t n = make_reply(packet, q.bytes, q.n, 0, NULL);
        packet[7] = 1;
        memcpy(packet + n, table[i].owner, table[i].n);
        n += table[i].n;
        memcpy(packet + n, tail, sizeof tail - 1);
        n += sizeof tail - 1;
        assert_int_equal(wire_answer_parse(&q, str_of(packet, n), &a, NULL), table[i].r);
        if (table[i].r == 0)
            assert_int_equal(a.n, table[i].addresses);
        /* a count that promises more than there is */
        packet[7] = 2;
        assert_int_equal(wire_answer_parse(&q, str_of(packet, n), &a, NULL), -1);
    }
}

/* Records that are no addresses: the data as it came, names in it written out; what does not fit its type is no answer. */
static void test_records(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        struct str data; /* of one record for www.a.test, whose name is at 12 */
        struct str want; /* p NULL: malformed */
    } rows[] = {
        { DNS_TYPE_TXT, STR("\5hello\0"), STR("\5hello\0") },
        { DNS_TYPE_TXT, STR("\6hello"), STR_NONE },
        { DNS_TYPE_TXT, STR(""), STR_NONE },
        { DNS_TYPE_MX, STR("\0\x0a\xc0\x10"), STR("\0\x0a\1a\4test\0") },
        { DNS_TYPE_MX, STR("\0\x0a\4MAIL\xc0\x10"), STR("\0\x0a\4mail\1a\4test\0") },
        { DNS_TYPE_MX, STR("\0\x0a\xc0\x10\0"), STR_NONE },
        { DNS_TYPE_MX, STR("\0\x0a"), STR_NONE },
        { DNS_TYPE_MX, STR("\0"), STR_NONE },
        { DNS_TYPE_MX, STR("\0\x0a\xc0\xff"), STR_NONE },
        { DNS_TYPE_SRV, STR("\0\1\0\2\0\3\1b\0"), STR("\0\1\0\2\0\3\1b\0") },
        { DNS_TYPE_SRV, STR("\0\1\0\2\1b"), STR_NONE },
        { DNS_TYPE_NS, STR("\2ns\xc0\x10"), STR("\2ns\1a\4test\0") },
        { DNS_TYPE_PTR, STR("\1b"), STR_NONE },
        { DNS_TYPE_CAA, STR("\0\5issue\xc0\x0c"), STR("\0\5issue\xc0\x0c") }, /* no name: nothing to write out */
    };
    static struct wire_answer a;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wire_query q;
        assert_int_equal(wire_query_make(&q, STR("www.a.test"), rows[i].type, plain), 0);
        memcpy(packet, q.bytes, q.n);
        packet[2] = 0x81;
        packet[7] = 1;
        size_t n = q.n;
        const unsigned char head[] = { 0xc0, 12, (unsigned char)(rows[i].type >> 8), (unsigned char)rows[i].type, 0, 1, 0, 0, 0,
                                       60,   0,  (unsigned char)rows[i].data.n };
        memcpy(packet + n, head, sizeof head);
        memcpy(packet + n + sizeof head, rows[i].data.p, rows[i].data.n);
        n += sizeof head + rows[i].data.n;
        int r = wire_answer_parse(&q, str_of(packet, n), &a, NULL);
        if (r != (rows[i].want.p ? 0 : -1))
            fail_msg("row %zu: %d", i, r);
        if (r < 0)
            continue;
        assert_int_equal(a.records, 1);
        assert_int_equal(a.n, 0);
        assert_int_equal(a.ttl_s, 60);
        assert_int_equal(a.data_n, 2 + rows[i].want.n);
        assert_int_equal(a.data[0] << 8 | a.data[1], rows[i].want.n);
        assert_memory_equal(a.data + 2, rows[i].want.p, rows[i].want.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),          cmocka_unit_test(test_echo),        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_many_addresses), cmocka_unit_test(test_records),     cmocka_unit_test(test_compression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
