/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_cost.h"

#include "dns/label_dictionary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* 2^-(units/24) */
static double part(unsigned units)
{
    double v = 1;
    for (; units >= COST_BIT; units -= COST_BIT)
        v /= 2;
    for (; units > 0; units--)
        v *= 0.97153194115360586;
    return v;
}

/* Every row of the letter model is a prefix code; so are the words. */
static void test_tables_are_codes(void **state)
{
    (void)state;
    for (unsigned a = 0; a < LETTER_SYMBOLS; a++)
        for (unsigned b = 0; b < LETTER_SYMBOLS; b++) {
            double sum = 0;
            for (unsigned c = 0; c < LETTER_SYMBOLS; c++) {
                sum += part(letter_model_costs[a][b][c]);
                assert_true(letter_model_costs[a][b][c] <=
                            9 * COST_BIT); /* the floor: nothing is free, nothing impossible */
            }
            if (sum > 1 || sum < 0.9)
                fail_msg("after %u, %u: %f", a, b, sum);
        }
    double words = 0;
    for (size_t i = 0; i < LABEL_WORDS; i++) {
        struct str word = str_c(label_dictionary_word(i));
        assert_true(label_dictionary_cost(word) > 0);
        assert_true(i == 0 || str_cmp(str_c(label_dictionary_word(i - 1)), word) < 0);
        words += part(label_dictionary_cost(word));
    }
    assert_null(label_dictionary_word(LABEL_WORDS));
    assert_true(words <= 1 && words > 0.9);
    assert_int_equal(label_dictionary_cost(STR("wwww")), 0);
    assert_int_equal(label_dictionary_cost(STR("")), 0);
    assert_true(label_dictionary_cost(STR("www")) < label_dictionary_cost(STR("zookeeper")));
}

static void test_words_are_printed(void **state)
{
    (void)state;
    char a[256], b[256];
    FILE *made = popen("python3 dns/name_tables.py words", "r"), *kept = fopen("dns/label_dictionary.inc", "r");
    assert_non_null(made);
    assert_non_null(kept);
    unsigned lines = 0;
    for (; fgets(a, sizeof a, kept); lines++) {
        assert_non_null(fgets(b, sizeof b, made));
        assert_string_equal(a, b);
    }
    assert_null(fgets(b, sizeof b, made));
    assert_int_equal(pclose(made), 0);
    fclose(kept);
    assert_int_equal(lines, 2 + LABEL_WORDS);
}

/* The code as a whole: all labels of up to three characters, and what the ends of lists take, stay below 1 together. */
static void test_labels_are_a_code(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    double sum = part(name_cost(STR("")));
    unsigned end = name_cost(STR(""));
    char label[3];
    for (size_t i = 0; i < LETTERS; i++) {
        label[0] = letters[i];
        sum += part(name_cost(str_of(label, 1)) - end);
        for (size_t k = 0; k < LETTERS; k++) {
            label[1] = letters[k];
            sum += part(name_cost(str_of(label, 2)) - end);
            for (size_t m = 0; m < LETTERS; m++) {
                label[2] = letters[m];
                sum += part(name_cost(str_of(label, 3)) - end);
            }
        }
    }
    print_message("labels of one to three characters and the end: %f\n", sum);
    assert_true(sum < 1 && sum > 0.3);
}

/* A uniform class holds labels of every length: the sum over lengths is what choosing the class costs, or less. */
static void test_lengths_are_paid(void **state)
{
    (void)state;
    static const struct {
        const char *label; /* 63 characters that the letter model finds dear */
        unsigned units;    /* of a character: log2 of the alphabet, exactly or rounded down */
    } table[] = {
        { "7f3a9c0e4b8d1f6a2c5e9b0d7f3a8c1e4b6d9f2a5c0e7b3d8f1a6c4e9b2d5f0", 96 },
        { "q7x2jzv5k3wg6yp4tq7xh2zj5vk3fw6gy4pq7tx2hz5jv3kw6fg4yq7px2tz5jk", 120 },
        { "730918264507391826450739182645073918264507391826450739182645073", 79 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double sum = 0;
        assert_int_equal(strlen(table[i].label), 63);
        for (unsigned n = 12; n <= 63; n++)
            sum += part(name_cost(str_of(table[i].label, n)) - name_cost(STR("")) - n * table[i].units);
        if (sum > 0.0263 || sum < 0.001)
            fail_msg("%s: %f", table[i].label, sum);
    }
}

static void test_cost(void **state)
{
    (void)state;
    /* Labels add up. */
    unsigned end = name_cost(STR("")), a = name_cost(STR("www")) - end, b = name_cost(STR("deadbeef01")) - end;
    assert_int_equal(name_cost(STR("www.deadbeef01")), a + b + end);
    assert_int_equal(name_cost(STR("deadbeef01.www")), a + b + end);
    /* At least what the bytes say, and not much more. */
    static const struct {
        const char *label;
        unsigned bits, most;
    } table[] = {
        { "3f9ac07714e2d0b85c6619aa02d7f3e1", 128, 142 }, /* 16 bytes, hex */
        { "n7q2zx5bwk3jd6vhg4ym2rt7cq", 128, 144 },       /* base32 */
        { "83920175930284756190", 66, 80 },               /* 20 digits */
        { "zk3-9xq_hw7vt0pj-28ydcub", 120, 140 },         /* base64url, folded */
        { "www", 1, 8 },
        { "download", 1, 14 },
        { "artifactory", 1, 16 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        unsigned bits = (name_cost(str_c(table[i].label)) - end) / COST_BIT;
        if (bits < table[i].bits || bits > table[i].most)
            fail_msg("%s: %u bits, expected %u to %u", table[i].label, bits, table[i].bits, table[i].most);
    }
}

static void test_known(void **state)
{
    (void)state;
    char label[65], name[255];
    memset(label, 'a', sizeof label);
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = i % 2 ? '.' : 'a';
    assert_true(name_cost_known(STR("a")) && name_cost_known(STR("_dmarc.a-b.test")));
    assert_true(name_cost_known(str_of(label, 63)));
    assert_false(name_cost_known(str_of(label, 64)));
    assert_true(name_cost_known(str_of(name, 253)));
    assert_false(name_cost_known(str_of(name, 255)));
    static const struct str bad[] = { { "", 0 },     { ".", 1 },        { "a.", 2 },    { ".a", 2 },
                                      { "a..b", 4 }, { "A.test", 6 },   { "a\0b", 3 },  { "a b", 3 },
                                      { "a=b", 3 },  { "\xc3\xa4", 2 }, { "a\\.b", 4 }, { "a*b", 3 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(name_cost_known(bad[i]));
}

static void test_log2(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 200000; n++) {
        double left = (double)n * part(name_cost_log2(n)); /* 1 where it is exact, less where it was rounded up */
        if (left > 1.000001 || left < 0.94)
            fail_msg("log2(%llu): %u units", (unsigned long long)n, name_cost_log2(n));
    }
    assert_int_equal(name_cost_log2(0), 0);
    assert_int_equal(name_cost_log2(UINT64_MAX), 64 * COST_BIT);
}

/* Bytes by chance, the same ones in every run. */
static uint64_t chance = 7;
static unsigned char random_byte(void)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned char)(chance >> 56);
}

static size_t encode(const unsigned char *bytes, size_t n, unsigned per, const char *set, char *out)
{
    unsigned acc = 0, bits = 0;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        acc = acc << 8 | bytes[i];
        for (bits += 8; bits >= per; bits -= per)
            out[len++] = set[acc >> (bits - per) & ((1u << per) - 1)];
        acc &= 0xff;
    }
    if (bits > 0)
        out[len++] = set[acc << (per - bits) & ((1u << per) - 1)];
    return len;
}

static void test_random_labels_score(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        size_t bytes;
        unsigned per;
        const char *set;
        unsigned of_thousand;
    } table[] = {
        { "hex, 8 bytes", 8, 4, "0123456789abcdef", 985 },
        { "hex, 16 bytes", 16, 4, "0123456789abcdef", 999 },
        { "base32, 16 bytes", 16, 5, "abcdefghijklmnopqrstuvwxyz234567", 990 },
        { "base32hex, 16 bytes", 16, 5, "0123456789abcdefghijklmnopqrstuv", 990 },
        { "base64url, case lost, 16 bytes", 16, 6, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789-_",
          985 },
    };
    enum { ROUNDS = 4000 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        unsigned found = 0;
        for (int r = 0; r < ROUNDS; r++) {
            unsigned char bytes[16];
            char label[64];
            struct name_score s;
            for (size_t k = 0; k < table[i].bytes; k++)
                bytes[k] = random_byte();
            name_score(str_of(label, encode(bytes, table[i].bytes, table[i].per, table[i].set, label)), &s);
            found += s.bits >= 20;
        }
        print_message("%s: %.4f\n", table[i].what, found / (double)ROUNDS);
        assert_true(found * 1000 >= table[i].of_thousand * ROUNDS);
    }
}

static void test_names_do_not_score(void **state)
{
    (void)state;
    static const char *const silent[] = {
        "www",
        "api-docs.staging.internal-tools",
        "connectivitycheck",
        "my-first-cluster-eu-west-1",
        "a.b.c.d.e",
        "ec2-198-51-100-7.eu-central-1",
        "cache-components-public-pages.labs",
        "build-2024-11-30",
        "registry.mirror.eu-west-1",
        "_acme-challenge.shop",
        "postgres-primary-0.postgres-headless",
        "selector1._domainkey",
        "productionresultssa17.blob",
        "xn--mnchen-3ya",
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct name_score s;
        name_score(str_c(silent[i]), &s);
        if (s.bits >= 20)
            fail_msg("%s: %u", silent[i], s.bits);
    }
    struct name_score s;
    /* A word beside it hides nothing; short pieces each say little. */
    name_score(STR("www.my-download-3f9ac07714e2d0b85c66.cdn"), &s);
    assert_true(s.bits >= 20 && s.class == CLASS_HEX && str_eq(s.part, STR("3f9ac07714e2d0b85c66")));
    name_score(STR("3f9a.c077.14e2.d0b8.5c66"), &s);
    assert_int_equal(s.bits, 0);
    name_score(STR(""), &s);
    assert_int_equal(s.bits, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_codes),
        cmocka_unit_test(test_words_are_printed),
        cmocka_unit_test(test_labels_are_a_code),
        cmocka_unit_test(test_lengths_are_paid),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_log2),
        cmocka_unit_test(test_random_labels_score),
        cmocka_unit_test(test_names_do_not_score),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
