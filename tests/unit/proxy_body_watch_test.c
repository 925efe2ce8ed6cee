/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict on a body must not depend on how it was cut: every way of cutting short texts in up to three pieces, byte
 * by byte, and random cuts of long ones, compared with what the whole says. */
#include "proxy/body_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static struct needles *placeholders, *values;

static int make_sets(void **state)
{
    (void)state;
    const struct needle p[] = { { STR("ghp_PLACE"), 3 }, { STR("ghp_PLACEHOLDER"), 4 }, { STR("aaaab"), 5 } };
    const struct needle v[] = { { STR("ghs_REAL"), 0 }, { STR("REALREALX"), 1 }, { STR("ghs_REALREALREALREAL"), 2 } };
    placeholders = needles_new(p, 3, false, NULL);
    values = needles_new(v, 3, true, NULL);
    return placeholders && values ? 0 : -1;
}

static int free_sets(void **state)
{
    (void)state;
    needles_unref(&placeholders);
    needles_unref(&values);
    return 0;
}

struct sights {
    bool placeholder, value;
    unsigned id;
    int told; /* how often the placeholder was told */
};

static void feed(struct body_watch *b, struct str piece, struct sights *s)
{
    if (s->value) /* the exchange is over */
        return;
    enum body_sight sight = body_watch_feed(b, piece);
    s->told += sight == BODY_PLACEHOLDER;
    s->placeholder |= sight == BODY_PLACEHOLDER;
    s->value |= sight == BODY_REAL_VALUE;
}

static struct sights look_at(struct str text, size_t cut1, size_t cut2)
{
    struct body_watch b;
    struct sights s = { 0 };
    body_watch_init(&b, placeholders, values);
    feed(&b, str_sub(text, 0, cut1), &s);
    feed(&b, str_sub(text, cut1, cut2 - cut1), &s);
    feed(&b, str_from(text, cut2), &s);
    s.id = b.placeholder_id;
    body_watch_done(&b);
    return s;
}

static const struct {
    struct str text;
    bool placeholder, value;
} cases[] = {
    { STR("nothing to see"), false, false },
    { STR("xx ghp_PLACE yy"), true, false },
    { STR("ghp_PLACEHOLDER"), true, false },
    { STR("ghp_PLACghp_PLACE"), true, false },
    { STR("ghp_ghp_ghp_PLAC"), false, false },
    { STR("aaaaaaaaaaaab"), true, false },
    { STR("aaaaaaaaaaaa"), false, false },
    { STR("ghs_REAL"), false, true },
    { STR("ghs_REA"), false, false },
    { STR("ghs_ghs_REA ghs_REAL"), false, true },
    { STR("RREALREALREALX"), false, true },
    { STR("ghp_PLACE and ghs_REAL"), true, true },
    { STR("ghs_REAL and ghp_PLACE"), false, true },
    { STR("ghp_PLACE ghp_PLACE ghp_PLACE"), true, false },
    { STR(""), false, false },
};

static void any_three_pieces_give_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str t = cases[i].text;
        for (size_t a = 0; a <= t.n; a++)
            for (size_t b = a; b <= t.n; b++) {
                struct sights s = look_at(t, a, b);
                assert_int_equal(s.value, cases[i].value);
                if (!s.value) /* where both lie in one piece the value alone is told */
                    assert_int_equal(s.placeholder, cases[i].placeholder);
                assert_true(s.told <= 1);
            }
    }
}

static void byte_by_byte_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct body_watch b;
        struct sights s = { 0 };
        body_watch_init(&b, placeholders, values);
        for (size_t k = 0; k < cases[i].text.n; k++)
            feed(&b, str_sub(cases[i].text, k, 1), &s);
        assert_int_equal(s.value, cases[i].value);
        if (cases[i].placeholder || !s.value)
            assert_int_equal(s.placeholder, cases[i].placeholder);
        assert_true(buf_size(&b.carry) < needles_longest(values));
        body_watch_done(&b);
        assert_null(b.carry.mem);
    }
}

/* Long pieces, so that the join and the piece are looked at apart; a value anywhere across the cuts. */
static void long_bodies_at_random(void **state)
{
    (void)state;
    enum { N = 600 };
    static const char letters[] = "ghs_REALPCX a";
    char text[N];
    srandom(7);
    for (int round = 0; round < 3000; round++) {
        for (size_t i = 0; i < N; i++)
            text[i] = letters[(size_t)random() % (sizeof letters - 1)];
        struct str put = round % 2 ? STR("ghs_REAL") : STR("ghs_REALREALREALREAL");
        size_t at = (size_t)random() % (N - put.n);
        bool there = round % 3 != 0;
        if (there)
            memcpy(text + at, put.p, put.n);
        struct needle_match m;
        bool expected = needles_find(values, str_of(text, N), 0, &m);
        assert_true(expected || !there);
        struct body_watch b;
        struct sights s = { 0 };
        body_watch_init(&b, placeholders, values);
        for (size_t k = 0; k < N;) {
            size_t n = 1 + (size_t)random() % (round % 5 ? 60 : 4);
            feed(&b, str_sub(str_of(text, N), k, n), &s);
            k += n;
        }
        assert_int_equal(s.value, expected);
        body_watch_done(&b);
    }
}

static void without_sets_nothing_is_seen_or_kept(void **state)
{
    (void)state;
    struct body_watch b;
    body_watch_init(&b, NULL, NULL);
    assert_int_equal(body_watch_feed(&b, STR("ghs_REAL ghp_PLACEHOLDER ghs_")), BODY_CLEAN);
    assert_int_equal(buf_size(&b.carry), 0);
    body_watch_done(&b);
    body_watch_init(&b, placeholders, NULL);
    assert_int_equal(body_watch_feed(&b, STR("ghs_REAL")), BODY_CLEAN);
    assert_int_equal(body_watch_feed(&b, STR("ghp_PLACE")), BODY_PLACEHOLDER);
    assert_int_equal(b.placeholder_id, 3);
    body_watch_done(&b);
}

static void what_is_carried_is_wiped(void **state)
{
    (void)state;
    struct body_watch b;
    body_watch_init(&b, placeholders, values);
    assert_int_equal(body_watch_feed(&b, STR("... ghs_REA")), BODY_CLEAN);
    assert_int_equal(buf_size(&b.carry), 7);
    const char *mem = b.carry.mem;
    assert_int_equal(body_watch_feed(&b, STR("no")), BODY_CLEAN);
    assert_int_equal(buf_size(&b.carry), 0);
    for (int i = 0; i < 9; i++)
        assert_int_equal(mem[i], 0);
    body_watch_done(&b);
}

static void other_values_in_mid_body(void **state)
{
    (void)state;
    static const char longer[] = "ghs_REAnother-value-that-is-longer-than-all-the-others-together-were-before-it";
    const struct needle v[] = { { str_of(longer, sizeof longer - 1), 0 } };
    struct needles *others = needles_new(v, 1, true, NULL);
    for (size_t cut = 1; cut < sizeof longer - 1; cut++) {
        struct body_watch b;
        body_watch_init(&b, placeholders, values);
        assert_int_equal(body_watch_feed(&b, STR("... ghs_REA")), BODY_CLEAN);
        body_watch_renew(&b, others); /* what was kept may begin the new one */
        struct str rest = str_of(longer + 7, sizeof longer - 8);
        enum body_sight sight = body_watch_feed(&b, str_sub(rest, 0, cut));
        if (cut < rest.n) {
            assert_int_equal(sight, BODY_CLEAN);
            sight = body_watch_feed(&b, str_from(rest, cut));
        }
        assert_int_equal(sight, BODY_REAL_VALUE);
        body_watch_renew(&b, NULL); /* none is live */
        assert_int_equal(body_watch_feed(&b, str_of(longer, sizeof longer - 1)), BODY_CLEAN);
        body_watch_renew(&b, values);
        assert_int_equal(body_watch_feed(&b, STR("ghs_REAL")), BODY_REAL_VALUE);
        body_watch_done(&b);
    }
    needles_unref(&others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_three_pieces_give_the_same), cmocka_unit_test(byte_by_byte_too),
        cmocka_unit_test(long_bodies_at_random),          cmocka_unit_test(without_sets_nothing_is_seen_or_kept),
        cmocka_unit_test(what_is_carried_is_wiped),       cmocka_unit_test(other_values_in_mid_body),
    };
    return cmocka_run_group_tests(tests, make_sets, free_sets);
}
