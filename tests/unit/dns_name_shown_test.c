/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a name the log shows: the encoded and the canary parts not, and everything else; each masked one beside one that
 * differs in one thing and is shown whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dns/name_shown.h"
#include "policy/host.h"

#include <stdio.h>

#define BODY "k7q2mz4xw9c3vbn5"
#define B32 "onvs2ylooqwwc4djgazs2rkyifgvatcffvhe6vbniewverkb" /* base32 of a key */
#define MASK "[+42 sha256:d64e607b4d8c6a16]"

static const struct {
    const char *name;
    enum detector_approval approval;
    size_t fixed;
    const char *shown; /* NULL: as it is */
} table[] = {
    { "www.evil.test", DETECTOR_UNAPPROVED, 0, NULL },
    { "some-long-service-name.eu-central.evil.test", DETECTOR_UNAPPROVED, 0, NULL },
    /* data in a label */
    { B32 ".evil.test", DETECTOR_UNAPPROVED, 0, "onvs2y..." MASK ".evil.test" },
    { B32 ".evil.test", DETECTOR_WILDCARD, 9, "onvs2y..." MASK ".evil.test" },
    { B32 ".evil.test", DETECTOR_EXACT, 58, NULL },
    { "x." B32 ".t.evil.test", DETECTOR_UNAPPROVED, 0, "x.onvs2y..." MASK ".t.evil.test" },
    /* ... in the registrable one */
    { "www." B32 ".test", DETECTOR_UNAPPROVED, 0, "www.onvs2y..." MASK ".test" },
    { "www." B32 ".test", DETECTOR_WILDCARD, 53, NULL }, /* an operator wrote it */
    /* what services call their instances, where a pattern lets it through */
    { "a1b2c3d4e5.evil.test", DETECTOR_WILDCARD, 9, NULL },
    /* pieces of placeholders */
    { BODY ".evil.test", DETECTOR_UNAPPROVED, 0, "[CRED:github].evil.test" },
    { BODY ".evil.test", DETECTOR_EXACT, 0, "[CRED:github].evil.test" },
    { "a." BODY ".b.evil.test", DETECTOR_WILDCARD, 9, "[CRED:github].evil.test" },
    { "k7q2m.z4xw9.c3vbn5.evil.test", DETECTOR_UNAPPROVED, 0, "[CRED:github].evil.test" },
    { "www." BODY ".test", DETECTOR_UNAPPROVED, 0, "[CRED:github].test" },
    { BODY, DETECTOR_UNAPPROVED, 0, "[CRED:github]" },
    { BODY ".evil.test", DETECTOR_EXACT, 26, NULL }, /* an operator wrote it */
    { "k7q2mz.evil.test", DETECTOR_UNAPPROVED, 0, NULL }, /* the control: six characters */
    /* bytes that no name has */
    { "\\001\\002abc.evil.test", DETECTOR_UNAPPROVED, 0, NULL },
};

static void scan(struct detector_finding *f, const struct canary *c, size_t i)
{
    struct detector_ask ask = { .name = str_c(table[i].name), .approval = table[i].approval, .fixed = table[i].fixed };
    detector_scan(c, &ask, f);
}

static void test_table(void **state)
{
    (void)state;
    struct err err;
    struct canary_source source = { STR("ghp_" BODY), 4, STR("coder"), STR("github") };
    struct canary *c = canary_new(&source, 1, &err);
    assert_non_null(c);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct detector_finding f;
        char out[NAME_SHOWN] = "?";
        scan(&f, c, i);
        bool masked = name_shown(&f, out);
        if (masked != (table[i].shown != NULL) || (masked && strcmp(out, table[i].shown) != 0) || (!masked && out[0]))
            fail_msg("row %zu: %s is shown as %s", i, table[i].name, out);
    }
    canary_unref(&c);
}

/* Nothing of any length or depth is shown whole, and no line is longer than its field. */
static void test_every_length(void **state)
{
    (void)state;
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint64_t x = 1;
    for (size_t n = 26; n <= 200; n++) {
        char name[HOST_MAX + 1], out[NAME_SHOWN];
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            name[at++] = digits[x >> 59];
            if (i % 50 == 49)
                name[at++] = '.';
        }
        snprintf(name + at, sizeof name - at, "%sevil.test", name[at - 1] == '.' ? "" : ".");
        struct detector_finding f;
        struct detector_ask ask = { .name = str_c(name) };
        detector_scan(NULL, &ask, &f);
        assert_true(name_shown(&f, out));
        assert_true(str_ends(str_c(out), STR(".evil.test")));
        assert_true(strlen(out) < 120);
        for (size_t i = 0; i + 12 < n; i++) /* no twelve of its characters */
            assert_true(str_find(str_c(out), str_of(name + i, 12)) < 0 || memchr(name + i, '.', 12));
    }
}

/* A secret of few bytes is not told by the sentence or the evidence either. */
static void test_texts(void **state)
{
    (void)state;
    static const char *const hidden[][2] = { { "x9K!q7Zw2#LmP4vB", "pa4uwilrg5nhomrdjrwvandwii" }, { "sk-ant-api03-EXAMPLE-NOT-A-REAL", "onvs2ylooqwwc4djgazs2rkyifgvatcffvhe6vbniewverkbjq" } };
    for (size_t k = 0; k < 2; k++) {
        char name[200], line[DETECTOR_LINE], evidence[DETECTOR_LINE], features[DETECTOR_FEATURES];
        snprintf(name, sizeof name, "%s.evil-zone.org", hidden[k][1]);
        struct detector_finding f;
        struct detector_ask ask = { .name = str_c(name) };
        detector_look(NULL, &ask, &f);
        assert_int_equal(f.severity, DETECTOR_FLAGGED);
        const char *texts[] = { detector_explain(&f, line), detector_evidence(&f, evidence), detector_features(&f, features) };
        for (size_t i = 0; i < 3; i++) {
            if (str_find(str_c(texts[i]), str_of(name, 12)) >= 0)
                fail_msg("%s", texts[i]);
            assert_true(str_find(str_c(texts[i]), str_of(hidden[k][0], 8)) < 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table), cmocka_unit_test(test_every_length),
                                        cmocka_unit_test(test_texts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
