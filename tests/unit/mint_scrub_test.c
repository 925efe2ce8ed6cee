/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming against whole, for every split; every alignment and form by an encoder of the test's own; and the canary:
 * after scrubbing, the value is found in no form. */
#include "mint/base64.h"
#include "mint/form.h"
#include "mint/scrub.h"
#include "tests/unit/mint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fixture f;
static const char value_a[] = "ghs_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
static const char value_b[] = "ghs_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-longer"; /* value_a begins it */
static const char value_c[] = "p/+=&\"\\w?rd>>>~~~\xc3\xa9";                     /* differs in every form */
static const char value_d[] = "aaaaaaab";                                        /* overlaps with itself */

static struct lease *make_lease(const char *credential, const char *value)
{
    struct lease_spec s = { .id = STR("id"),
                            .credential = str_c(credential),
                            .agent = STR("coder"),
                            .value = str_c(value),
                            .expires_us = INT64_MAX };
    struct lease *l = lease_new(&s, NULL);
    assert_non_null(l);
    return l;
}

static struct lease_set *make_set(const char *const *values, const char *const *placeholders, size_t n)
{
    struct lease_set_item items[8];
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct lease_set_item) { make_lease(i ? "key" : "github", values[i]), str_c(placeholders[i]) };
    struct lease_set *s = lease_set_new(f.table, items, n, 1, NULL);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++)
        lease_unref(&items[i].lease);
    return s;
}

static struct lease_set *usual_set(void)
{
    static const char *const values[] = { value_a, value_b, value_c, value_d };
    static const char *const placeholders[] = {
        "ghp_PLACEHOLDER-A", "PLACEHOLDER-B-that-is-much-longer-than-the-value-that-it-stands-for-in-every-way", "P\"C",
        "PD"
    };
    return make_set(values, placeholders, 4);
}

/* As the answer's pump does it: what is clean goes on as it is. Every other time, so that both ways meet in one text. */
static int feed(struct scrub *s, struct str in, struct buf *out)
{
    static unsigned turn;
    struct str clean;
    if (turn++ % 2 == 0 && scrub_clean(s, in, &clean))
        return buf_put(out, clean);
    return scrub_feed(s, in, false, out);
}

static void scrub_all(struct lease_set *set, struct str in, size_t cut_a, size_t cut_b, struct buf *out, uint64_t *hits)
{
    struct scrub s;
    scrub_init(&s, set);
    assert_int_equal(feed(&s, str_sub(in, 0, cut_a), out), 0);
    assert_int_equal(feed(&s, str_sub(in, cut_a, cut_b - cut_a), out), 0);
    assert_int_equal(scrub_feed(&s, str_from(in, cut_b), true, out), 0);
    assert_int_equal(buf_size(&s.held), 0);
    *hits = s.hits;
    scrub_done(&s);
}

static void test_forms(void **state)
{
    (void)state;
    static const struct {
        enum form form;
        const char *value, *want;
    } cases[] = {
        { FORM_RAW, "a/b", "a/b" },
        { FORM_BASE64_0, "abcd", "YWJjZ" }, /* YWJjZA== without the A that d shares */
        { FORM_BASE64_1, "abcd", "FiY2" },  /* base64 of xabcd = eGFiY2Q= */
        { FORM_BASE64_2, "abcd", "hYmNk" }, /* base64 of xxabcd = eHhhYmNk */
        { FORM_BASE64_0, "\xfb\xff\xbf", "+/+/" },
        { FORM_BASE64URL_0, "\xfb\xff\xbf", "-_-_" },
        { FORM_HEX_LOWER, "\xab\x01z", "ab017a" },
        { FORM_HEX_UPPER, "\xab\x01z", "AB017A" },
        { FORM_PERCENT_UPPER, "a/+ ~\xab", "a%2F%2B%20~%AB" },
        { FORM_PERCENT_LOWER, "a/+ ~\xab", "a%2f%2b%20~%ab" },
        { FORM_PERCENT_ALL_UPPER, "a/\xab", "%61%2F%AB" },
        { FORM_PERCENT_ALL_LOWER, "a/\xab", "%61%2f%ab" },
        { FORM_JSON, "a\"b\\c/d\te\x01", "a\\\"b\\\\c/d\\te\\u0001" },
        { FORM_JSON_SLASH, "a\"b\\c/d", "a\\\"b\\\\c\\/d" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        buf_init(&b, 256);
        form_put(cases[i].form, str_c(cases[i].value), &b);
        if (!str_eq(buf_str(&b), str_c(cases[i].want)))
            fail_msg("form %d of %s: %.*s", cases[i].form, cases[i].value, STR_ARG(buf_str(&b)));
        buf_done(&b);
    }
}

/* Text around the value in plain, and the whole encoded: as an origin would. */
static void encode(enum form form, struct str plain, struct buf *out)
{
    switch (form) {
    case FORM_BASE64_0:
    case FORM_BASE64_1:
    case FORM_BASE64_2:
        base64_put(out, plain, true);
        break;
    case FORM_BASE64URL_0:
    case FORM_BASE64URL_1:
    case FORM_BASE64URL_2: {
        size_t from = buf_size(out);
        base64_put(out, plain, false);
        char *p = out->mem + out->head;
        for (size_t i = from; i < buf_size(out); i++)
            p[i] = p[i] == '+' ? '-' : p[i] == '/' ? '_' : p[i];
        break;
    }
    case FORM_RAW:
    case FORM_HEX_LOWER:
    case FORM_HEX_UPPER:
    case FORM_PERCENT_UPPER:
    case FORM_PERCENT_LOWER:
    case FORM_PERCENT_ALL_UPPER:
    case FORM_PERCENT_ALL_LOWER:
    case FORM_JSON:
    case FORM_JSON_SLASH:
    case FORM_COUNT:
        form_put(form, plain, out);
        break;
    }
}

/* Every form at every alignment: hit, gone, and (base64) the length kept and the surroundings still decodable. */
static void test_every_form(void **state)
{
    (void)state;
    struct lease_set *set = usual_set();
    static const char *const values[] = { value_a, value_b, value_c };
    for (size_t v = 0; v < 3; v++)
        for (enum form form = 0; form < FORM_COUNT; form++)
            for (size_t before = 0; before < 6; before++)
                for (size_t after = 0; after < 4; after++) {
                    struct buf plain, in, out;
                    buf_init(&plain, 1024);
                    buf_init(&in, 4096);
                    buf_init(&out, 4096);
                    buf_put(&plain, str_sub(STR("xyzuvw"), 0, before));
                    buf_put(&plain, str_c(values[v]));
                    buf_put(&plain, str_sub(STR(">>>"), 0, after));
                    encode(form, buf_str(&plain), &in);
                    uint64_t hits = 0;
                    assert_true(scrub_text(set, buf_str(&in), &out, &hits));
                    assert_int_equal(hits, 1);
                    struct needle_match m;
                    assert_false(needles_find(set->needles, buf_str(&out), 0, &m));
                    if (form >= FORM_BASE64_0 && form <= FORM_BASE64_2) {
                        char text[1024];
                        size_t n;
                        bool padded;
                        assert_int_equal(buf_size(&out), buf_size(&in));
                        assert_int_equal(base64_decode(buf_str(&out), text, &n, &padded), 0);
                        assert_int_equal(n, buf_size(&plain));
                        assert_memory_equal(text, "xyzuvw", before);
                        assert_memory_equal(text + n - after, ">>>", after);
                        assert_true(str_find(str_of(text, n), STR("LACEHOLDER")) >= 0 || v == 2);
                    }
                    buf_done(&plain);
                    buf_done(&in);
                    buf_done(&out);
                }
    lease_set_unref(&set);
}

static void expect(struct lease_set *set, const char *in, const char *want, uint64_t want_hits)
{
    size_t n = strlen(in);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            struct buf out;
            uint64_t hits;
            buf_init(&out, 65536);
            scrub_all(set, str_of(in, n), a, b, &out, &hits);
            if (!str_eq(buf_str(&out), str_c(want)) || hits != want_hits)
                fail_msg("\"%s\" cut at %zu and %zu: \"%.*s\", %u hits", in, a, b, STR_ARG(buf_str(&out)),
                         (unsigned)hits);
            buf_done(&out);
        }
}

static void test_every_split(void **state)
{
    (void)state;
    static const char *const values[] = { "secret-one", "secret-one-and-more", "one-and-other", "aaaaaaab", "more" };
    static const char *const placeholders[] = { "[1]", "[2]", "[3]", "[4]", "[5]" };
    struct lease_set *set = make_set(values, placeholders, 5);
    static const struct {
        const char *in, *want;
        unsigned hits;
    } cases[] = {
        { "", "", 0 },
        { "nothing here", "nothing here", 0 },
        { "secret-one", "[1]", 1 },
        { "xsecret-oney", "x[1]y", 1 },
        { "secret-one-and-more", "[2]", 1 },            /* the longest wins, also when cut before -and */
        { "secret-one-and-mor!", "[1]-and-mor!", 1 },   /* and when it is none after all, the shorter */
        { "secret-one-and-other", "[1]-and-other", 1 }, /* leftmost wins over what begins within it */
        { "secret-on-one-and-other", "secret-on-[3]", 1 },
        { "secretsecret-one", "secret[1]", 1 },
        { "aaaaaaaaaaab", "aaaa[4]", 1 },
        { "aaaaaaabaaaaaaab", "[4][4]", 2 },
        { "aaaaaaa", "aaaaaaa", 0 },
        { "secret-onesecret-one", "[1][1]", 2 },
        { "secret-one-and-mormore", "[1]-and-mor[5]", 2 },
        { "one-and-morsecret-one-andmore", "one-and-mor[1]-and[5]", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(set, cases[i].in, cases[i].want, cases[i].hits);
    lease_set_unref(&set);
}

/* Random texts of pieces of needles, cut at random: streaming must equal whole, and nothing must be left. */
static uint64_t rng_state = 88172645463325252u;
static size_t rng(size_t below)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (size_t)(rng_state % below);
}

static void put_random_text(struct buf *b)
{
    static const char *const values[] = { value_a, value_b, value_c, value_d };
    for (size_t k = rng(12); k > 0; k--) {
        struct buf form;
        buf_init(&form, 4096);
        form_put((enum form)rng(FORM_COUNT), str_c(values[rng(4)]), &form);
        size_t from = rng(4) ? 0 : rng(buf_size(&form)), n = rng(3) ? SIZE_MAX : rng(buf_size(&form) + 1);
        buf_put(b, str_sub(buf_str(&form), from, n));
        if (rng(2))
            buf_put(b, str_sub(STR("\n, filler: \0 <a>\r\n"), rng(8), rng(10)));
        buf_done(&form);
    }
}

static void test_random_splits(void **state)
{
    (void)state;
    struct lease_set *set = usual_set();
    uint64_t hits_total = 0;
    for (int round = 0; round < 4000; round++) {
        struct buf in, whole, out;
        uint64_t want_hits = 0;
        buf_init(&in, 65536);
        buf_init(&whole, 1 << 20);
        buf_init(&out, 1 << 20);
        put_random_text(&in);
        if (!scrub_text(set, buf_str(&in), &whole, &want_hits))
            buf_put(&whole, buf_str(&in));
        struct scrub s;
        scrub_init(&s, set);
        size_t at = 0, n = buf_size(&in);
        while (at < n) {
            size_t piece = 1 + rng(rng(2) ? 4 : 64);
            assert_int_equal(feed(&s, str_sub(buf_str(&in), at, piece), &out), 0);
            at += piece;
            assert_true(buf_size(&s.held) < needles_longest(set->needles));
        }
        assert_int_equal(scrub_feed(&s, STR(""), true, &out), 0);
        assert_true(str_eq(buf_str(&out), buf_str(&whole)));
        assert_int_equal(s.hits, want_hits);
        hits_total += s.hits;
        scrub_done(&s);
        buf_done(&in);
        buf_done(&whole);
        buf_done(&out);
    }
    assert_true(hits_total > 4000);
    lease_set_unref(&set);
}

/* An event stream: an event that ends in LF goes on whole, at once; of the rest only a live prefix waits. */
static void test_no_delay(void **state)
{
    (void)state;
    struct lease_set *set = usual_set();
    struct scrub s;
    struct buf out;
    scrub_init(&s, set);
    buf_init(&out, 65536);
    static const char event[] = "data: {\"delta\":\"ghs_AbCd\"}\n\n";
    assert_int_equal(scrub_feed(&s, str_c(event), false, &out), 0);
    assert_true(str_eq(buf_str(&out), str_c(event)));
    assert_int_equal(buf_size(&s.held), 0);
    buf_reset(&out);
    assert_int_equal(scrub_feed(&s, STR("data: ghs_"), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("data: ")));
    assert_int_equal(scrub_feed(&s, STR("xyz"), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("data: ghs_xyz")));
    scrub_done(&s);
    buf_done(&out);
    lease_set_unref(&set);
}

/* A tail that began inside what was replaced is none. */
static void test_no_delay_after_match(void **state)
{
    (void)state;
    static const char *const values[] = { "secret-one", "one-and-other" }, *const p[] = { "[1]", "[2]" };
    struct lease_set *set = make_set(values, p, 2);
    struct scrub s;
    struct buf out;
    scrub_init(&s, set);
    buf_init(&out, 65536);
    assert_int_equal(scrub_feed(&s, STR("secret-one-and"), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("[1]-and")));
    assert_int_equal(buf_size(&s.held), 0);
    scrub_done(&s);
    buf_done(&out);
    lease_set_unref(&set);
}

/* What scrub_clean says no to is as if it had not been asked. */
static void test_clean(void **state)
{
    (void)state;
    struct lease_set *set = usual_set();
    struct scrub s;
    struct str clean = STR_NONE;
    scrub_init(&s, set);
    assert_true(scrub_clean(&s, STR("nothing here"), &clean));
    assert_true(str_eq(clean, STR("nothing here")));
    assert_false(scrub_clean(&s, str_c(value_a), &clean)); /* something to replace */
    assert_int_equal(buf_size(&s.held), 0);
    assert_int_equal(s.hits, 0);
    assert_true(scrub_clean(&s, STR("text ghs_AbCd"), &clean)); /* the beginning of one waits */
    assert_true(str_eq(clean, STR("text ")));
    assert_true(str_eq(buf_str(&s.held), STR("ghs_AbCd")));
    assert_false(scrub_clean(&s, STR(" and more"), &clean)); /* behind which nothing goes on by itself */
    scrub_done(&s);
    scrub_init(&s, NULL);
    assert_true(scrub_clean(&s, str_c(value_a), &clean));
    assert_true(str_eq(clean, str_c(value_a)));
    scrub_done(&s);
    lease_set_unref(&set);
}

static void test_large(void **state)
{
    (void)state;
    struct lease_set *set = usual_set();
    struct buf in, out;
    size_t filler = 3 * 16384 - 20; /* the value straddles the border between two pieces */
    buf_init(&in, 1 << 20);
    buf_init(&out, 1 << 20);
    for (size_t i = 0; i < filler; i++)
        buf_putc(&in, "g\nxx"[i % 4]);
    buf_put(&in, str_c(value_a));
    buf_put(&in, STR("\ntail g"));
    struct scrub s;
    scrub_init(&s, set);
    assert_int_equal(scrub_feed(&s, buf_str(&in), false, &out), 0);
    assert_int_equal(buf_size(&s.held), 1);
    assert_int_equal(scrub_feed(&s, STR(""), true, &out), 0);
    assert_int_equal(s.hits, 1);
    assert_int_equal(s.hit_credentials, 1);
    assert_int_equal(buf_size(&out), buf_size(&in) - sizeof value_a + sizeof "ghp_PLACEHOLDER-A");
    assert_true(str_ends(buf_str(&out), STR("ghp_PLACEHOLDER-A\ntail g")));
    scrub_done(&s);
    buf_done(&in);
    buf_done(&out);
    lease_set_unref(&set);
}

static void test_update(void **state)
{
    (void)state;
    static const char *const old_values[] = { "first-value", "other-value" }, *const new_values[] = { "unrelated",
                                                                                                      "newer-value",
                                                                                                      "first-value-2" };
    static const char *const p[] = { "[1]", "[2]", "[3]" };
    struct lease_set *old = make_set(old_values, p, 2), *new = make_set(new_values, p, 3);
    struct scrub s;
    struct buf out;
    scrub_init(&s, old);
    buf_init(&out, 65536);
    assert_int_equal(scrub_feed(&s, STR("other-value first-val"), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("[2] ")));
    assert_int_equal(s.hit_credentials, 2);
    scrub_update(&s, new);
    assert_int_equal(s.hit_credentials, 2); /* "key" is item 1 here too */
    assert_int_equal(scrub_feed(&s, STR("ue-2 newer-value"), false, &out), 0);
    assert_int_equal(scrub_feed(&s, STR("."), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("[2] [3] [2].")));
    assert_int_equal(scrub_feed(&s, STR("newer"), false, &out), 0);
    scrub_update(&s, NULL); /* nothing is live any more: what is held goes on */
    assert_int_equal(scrub_feed(&s, STR("-value"), false, &out), 0);
    assert_true(str_eq(buf_str(&out), STR("[2] [3] [2].newer-value")));
    assert_int_equal(s.hits, 3);
    scrub_done(&s);
    buf_done(&out);
    lease_set_unref(&old);
    lease_set_unref(&new);
}

static void test_none(void **state)
{
    (void)state;
    struct scrub s;
    struct buf out;
    uint64_t hits = 0;
    scrub_init(&s, NULL);
    buf_init(&out, 40);
    assert_int_equal(scrub_feed(&s, str_c(value_a), true, &out), 0);
    assert_true(str_eq(buf_str(&out), str_c(value_a)));
    assert_int_equal(scrub_feed(&s, STR("x"), false, &out), -1); /* out is full */
    assert_false(scrub_text(NULL, str_c(value_a), &out, &hits));
    scrub_done(&s);
    buf_done(&out);
    struct lease_set *set = usual_set(), *empty = lease_set_new(f.table, NULL, 0, 1, NULL);
    buf_init(&out, 4); /* no room for the replacement */
    scrub_init(&s, set);
    assert_int_equal(scrub_feed(&s, str_c(value_a), true, &out), -1);
    scrub_done(&s);
    assert_non_null(empty);
    assert_false(scrub_text(empty, str_c(value_a), &out, &hits));
    assert_int_equal(hits, 0);
    buf_done(&out);
    lease_set_unref(&set);
    lease_set_unref(&empty);
}

/* Of a short value the raw form is looked for; base64 where six characters of it are sure. */
static void test_short(void **state)
{
    (void)state;
    static const char *const values[] = { "pin7", "12345" };
    static const char *const p[] = { "[P]", "[N]" };
    struct lease_set *set = make_set(values, p, 2);
    struct buf out;
    uint64_t hits = 0;
    buf_init(&out, 256);
    assert_true(scrub_text(set, STR("a pin7 and 12345."), &out, &hits));
    assert_true(str_eq(buf_str(&out), STR("a [P] and [N].")));
    buf_reset(&out);
    assert_false(scrub_text(set, STR("pin pin8 1234"), &out, &hits));
    assert_true(scrub_text(set, STR("x MTIzNDU= 70696e37"), &out, &hits)); /* base64 of 12345, hex of pin7 */
    assert_int_equal(hits, 4);
    buf_done(&out);
    lease_set_unref(&set);
}

/* Equal values stand in a set once; the longest value there may be. */
static void test_set(void **state)
{
    (void)state;
    static const char *const same[] = { value_a, value_a, value_a };
    static const char *const p[] = { "[1]", "[2]", "[3]" };
    struct lease_set *set = make_set(same, p, 3);
    assert_int_equal(set->n, 1);
    lease_set_unref(&set);
    char *huge = malloc(LEASE_VALUE_MAX + 1);
    memset(huge, 1, LEASE_VALUE_MAX); /* a control character: six times as long in JSON */
    huge[LEASE_VALUE_MAX] = 0;
    const char *const values[] = { huge };
    struct err err;
    struct lease_set_item item = { make_lease("github", huge), STR("[H]") };
    set = lease_set_new(f.table, &item, 1, 1, &err);
    assert_non_null(set);
    struct buf out;
    uint64_t hits = 0;
    buf_init(&out, 256);
    assert_true(scrub_text(set, str_c(values[0]), &out, &hits));
    assert_true(str_eq(buf_str(&out), STR("[H]")));
    buf_done(&out);
    lease_unref(&item.lease);
    lease_set_unref(&set);
    free(huge);
}

static int setup(void **state)
{
    (void)state;
    if (secret_init())
        return -1;
    f = fixture_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_done(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_random_splits),
        cmocka_unit_test(test_no_delay),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_no_delay_after_match),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
