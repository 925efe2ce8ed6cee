/* SPDX-License-Identifier: Apache-2.0
 *
 * Records in words, whole ones and such as end early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dns/record_text.h"
#include "policy/dns_type.h"

#include <stdlib.h>

#define D(s) { (s), sizeof(s) - 1 }

static const struct {
    uint16_t type;
    struct str data;
    const char *text;
} table[] = {
    { DNS_TYPE_TXT, D("\5hello\0\3abc"), "\"hello\" \"\" \"abc\"" },
    { DNS_TYPE_TXT, D("\7a\"b\\\n\0\xff"), "\"a\\\"b\\\\\\010\\000\\255\"" },
    { DNS_TYPE_TXT, D("\11short"), "\"short\"" },
    { DNS_TYPE_NS, D("\2ns\4test\0"), "ns.test" },
    { DNS_TYPE_NS, D("\0"), "." },
    { DNS_TYPE_NS, D(""), "." },
    { DNS_TYPE_PTR, D("\77ab"), "ab" },
    { DNS_TYPE_MX, D("\0\12\4mail\4test\0"), "10 mail.test" },
    { DNS_TYPE_MX, D("\1"), "256 ." },
    { DNS_TYPE_SRV, D("\0\1\0\2\24\72\1a\4test\0"), "1 2 5178 a.test" },
    { DNS_TYPE_CAA, D("\0\5issueca.test"), "0 issue \"ca.test\"" },
    { DNS_TYPE_CAA, D("\200\5iss"), "128 iss \"\"" },
    { DNS_TYPE_TLSA, D("\3\1\1\xab\xcd"), "3 1 1 abcd" },
    { DNS_TYPE_SSHFP, D("\1\2\xab\xcd"), "1 2 abcd" },
    { 65280, D("\1\2\3"), "\\# 3 010203" },
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char out[RECORD_TEXT];
        assert_string_equal(record_text(table[i].type, table[i].data, out), table[i].text);
    }
}

/* Any length of any bytes: printable, and cut where there is no more room. */
static void test_long(void **state)
{
    (void)state;
    static const uint16_t types[] = { DNS_TYPE_TXT, DNS_TYPE_NS, DNS_TYPE_MX, DNS_TYPE_CAA, DNS_TYPE_TLSA, 65280 };
    for (size_t n = 0; n < 1000; n += 7)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            char out[RECORD_TEXT];
            char *data = malloc(n + 1); /* a byte too many read is seen by the sanitizer */
            for (size_t i = 0; i < n; i++)
                data[i] = (char)(i * 37 + n);
            size_t got = strlen(record_text(types[t], str_of(data, n), out));
            assert_true(got < RECORD_TEXT && (n < 200 || got > RECORD_TEXT / 8));
            for (size_t i = 0; i < got; i++)
                assert_in_range((unsigned char)out[i], 0x20, 0x7e);
            free(data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table), cmocka_unit_test(test_long) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
