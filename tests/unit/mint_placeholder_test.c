/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/placeholder.h"
#include "mint/placeholder_shape.h"
#include "tests/unit/mint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const unsigned char key_a[SHAPE_KEY] = "0123456789abcdef0123456789abcde";
static const unsigned char key_b[SHAPE_KEY] = "0123456789abcdef0123456789abcdf";

/* CRC-32 (as zlib computes it) in base62, padded with zeros to six: GitHub's scheme. */
static void test_checksum(void **state)
{
    (void)state;
    const struct shape *s = placeholder_shape_named(STR("github"));
    static const struct {
        const char *token;
        bool fits;
    } cases[] = {
        { "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", true }, /* published as an example of the scheme */
        { "ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18", false }, { "ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ1mLq17", false },
        { "ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq1", false },  { "ghs_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17", false },
        { "ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq-7", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (placeholder_shape_fits(s, str_c(cases[i].token)) != cases[i].fits)
            fail_msg("%s", cases[i].token);
}

static void test_every_shape(void **state)
{
    (void)state;
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; i < n; i++) {
        const struct shape *s = &v[i];
        char a[SHAPE_MAX + 1], b[SHAPE_MAX + 1], c[SHAPE_MAX + 1], d[SHAPE_MAX + 1], r[SHAPE_MAX + 1];
        unsigned id, mac;
        placeholder_shape_bits(s, &id, &mac);
        print_message("%.*s: %u characters, id %u bits, MAC %u bits\n", STR_ARG(s->name), s->n, id, mac);
        if (!str_eq(s->name, STR("aws"))) {
            assert_true(mac >= 95); /* 96 of gitlab, less the rounding of centibits */
            assert_true(s->n >= 20);
        }
        placeholder_shape_derive(s, key_a, STR("coder"), STR("one"), a);
        placeholder_shape_derive(s, key_a, STR("coder"), STR("two"), b);
        placeholder_shape_derive(s, key_a, STR("code"), STR("rone"), c);
        placeholder_shape_derive(s, key_b, STR("coder"), STR("one"), d);
        placeholder_shape_random(s, r);
        const char *all[] = { a, b, c, d, r };
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(strlen(all[k]), s->n);
            assert_true(placeholder_shape_fits(s, str_c(all[k])));
            for (size_t m = 0; m < k; m++)
                assert_string_not_equal(all[k], all[m]);
        }
        assert_true(placeholder_shape_is_ours(s, key_a, str_c(a)));
        assert_true(placeholder_shape_is_ours(s, key_a, str_c(b)));
        assert_true(placeholder_shape_is_ours(s, key_a, str_c(c)));
        assert_true(placeholder_shape_is_ours(s, key_b, str_c(d)));
        assert_false(placeholder_shape_is_ours(s, key_a, str_c(d)));
        assert_false(placeholder_shape_is_ours(s, key_b, str_c(a)));
        assert_false(placeholder_shape_is_ours(s, key_a, str_c(r)));
        /* any one character changed (and the checksum made good again by nobody) is not ours */
        for (size_t k = s->prefix; k < s->n; k++) {
            char t[SHAPE_MAX + 1];
            memcpy(t, a, s->n + 1u);
            t[k] = t[k] == 'b' ? 'c' : t[k] == '5' ? '6' : ascii_digit(t[k]) ? '5' : 'b';
            assert_false(placeholder_shape_is_ours(s, key_a, str_c(t)));
        }
        /* no other shape takes it, and no prefix begins another */
        for (size_t k = 0; k < n; k++)
            if (k != i)
                assert_false(str_starts(str_of(s->literal, s->prefix), str_of(v[k].literal, v[k].prefix)));
        for (size_t k = 0; k < n; k++)
            if (k != i)
                assert_false(placeholder_shape_is_ours(&v[k], key_a, str_c(a)));
    }
}

/* Names are framed: ("ab", "c") and ("a", "bc") differ. And what is derived must not change between releases: agents
 * hold it. */
static void test_stable(void **state)
{
    (void)state;
    struct agent a = { .name = STR("coder") };
    struct credential c = { .name = STR("github"), .env = STR("GITHUB_TOKEN") };
    char out[PLACEHOLDER_MAX + 1];
    struct err err;
    assert_int_equal(placeholder_derive(FIXTURE_KEY, &a, &c, out, sizeof out, &err), 0);
    assert_string_equal(out, "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");
    char shorter[20];
    assert_int_equal(placeholder_derive(FIXTURE_KEY, &a, &c, shorter, sizeof shorter, &err), -1);
    assert_int_equal(placeholder_derive(STR("short key"), &a, &c, out, sizeof out, &err), -1);
}

static void test_guess(void **state)
{
    (void)state;
    struct host_pattern h = { .kind = PATTERN_EXACT };
    assert_int_equal(host_parse(STR("api.anthropic.com"), &h.host, NULL), 0);
    static const struct {
        const char *like, *env;
        bool host;
        const char *prefix; /* NULL: an error */
    } cases[] = {
        { "", "GITHUB_TOKEN", false, "ghp_" },        { "", "COPILOT_GITHUB_TOKEN", false, "github_pat_" },
        { "", "MY_KEY", true, "sk-ant-api03-" },      { "", "MY_KEY", false, "og_" },
        { "gitlab", "GITHUB_TOKEN", true, "glpat-" }, { "no-such", "GITHUB_TOKEN", false, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct agent a = { .name = STR("coder") };
        struct credential c = { .name = STR("x"),
                                .like = str_c(cases[i].like),
                                .env = str_c(cases[i].env),
                                .hosts = &h,
                                .nhosts = cases[i].host };
        char out[PLACEHOLDER_MAX + 1];
        struct err err;
        int r = placeholder_derive(FIXTURE_KEY, &a, &c, out, sizeof out, &err);
        assert_int_equal(r, cases[i].prefix ? 0 : -1);
        if (!r)
            assert_true(str_starts(str_c(out), str_c(cases[i].prefix)));
        else
            assert_non_null(strstr(err.text, "no-such"));
    }
}

static void test_random(void **state)
{
    (void)state;
    char out[PLACEHOLDER_MAX + 1], again[PLACEHOLDER_MAX + 1];
    struct err err;
    assert_true(placeholder_shape_known(STR("npm")));
    assert_false(placeholder_shape_known(STR("npmm")));
    assert_int_equal(placeholder_random(STR("npm"), out, sizeof out, &err), 0);
    assert_int_equal(placeholder_random(STR("npm"), again, sizeof again, &err), 0);
    assert_string_not_equal(out, again);
    assert_int_equal(placeholder_random(STR("npm"), out, 40, &err), -1); /* 40 characters and a NUL */
    assert_int_equal(placeholder_random(STR("npm"), out, 41, &err), 0);
    assert_int_equal(placeholder_random(STR("nothing"), out, sizeof out, &err), -1);
    struct buf b;
    buf_init(&b, 65536);
    placeholder_shapes_put(&b);
    assert_true(str_find(buf_str(&b), STR("ghp_")) >= 0);
    buf_done(&b);
}

static void test_table(void **state)
{
    (void)state;
    struct fixture f = fixture_new();
    assert_int_equal(placeholder_count(f.table), 5);
    const struct placeholder *mine = placeholder_of(f.table, f.coder, f.github);
    const struct placeholder *theirs = placeholder_of(f.table, f.other, f.github);
    assert_non_null(mine);
    assert_non_null(theirs);
    assert_false(str_eq(mine->text, theirs->text));
    assert_null(placeholder_of(f.table, f.other, f.key));
    assert_ptr_equal(placeholder_find(f.table, mine->text), mine);
    assert_null(placeholder_find(f.table, str_sub(mine->text, 0, mine->text.n - 1)));
    assert_null(placeholder_find(f.table, STR("")));
    assert_true(str_eq(placeholder_of(f.table, f.coder, f.literal)->text, STR("LITERAL-placeholder.0123456789")));
    assert_true(placeholder_is_ours(f.table, mine->text));
    /* an agent and a credential of another snapshot, with other indexes */
    struct agent a = { .name = STR("coder"), .index = 1 };
    assert_null(placeholder_of(f.table, &a, f.github));
    struct agent far = { .name = STR("coder"), .index = 99 };
    assert_null(placeholder_of(f.table, &far, f.github));
    for (size_t i = 0; i < placeholder_count(f.table); i++) {
        const struct placeholder *ph = placeholder_at(f.table, (unsigned)i);
        struct needle_match m;
        assert_true(needles_find(placeholder_needles(f.table), ph->text, 0, &m));
        assert_int_equal(m.id, i);
    }
    assert_null(placeholder_at(f.table, 5));
    fixture_done(&f);
}

/* Ours, but of a snapshot that is no more. */
static void stale(const struct fixture *f, char out[PLACEHOLDER_MAX + 1])
{
    struct agent a = { .name = STR("gone") };
    struct err err;
    assert_int_equal(placeholder_derive(FIXTURE_KEY, &a, f->github, out, PLACEHOLDER_MAX + 1, &err), 0);
}

static void test_scan(void **state)
{
    (void)state;
    struct fixture f = fixture_new();
    const struct placeholder *gh = placeholder_of(f.table, f.coder, f.github);
    const struct placeholder *og = placeholder_of(f.table, f.coder, f.key);
    const struct placeholder *lit = placeholder_of(f.table, f.coder, f.literal);
    char old[PLACEHOLDER_MAX + 1], foreign[PLACEHOLDER_MAX + 1];
    stale(&f, old);
    placeholder_random(STR("github"), foreign, sizeof foreign, NULL);
    assert_true(placeholder_is_ours(f.table, str_c(old)));
    assert_false(placeholder_is_ours(f.table, str_c(foreign)));
    struct buf b;
    buf_init(&b, 4096);
    buf_putf(&b, "x%.*sy ghp_ghp_ghp_%.*sog_og_%.*s%s,%s %.*s", STR_ARG(gh->text), STR_ARG(gh->text), STR_ARG(og->text),
             foreign, old, STR_ARG(lit->text));
    const struct placeholder *want[] = { gh, gh, og, NULL, lit };
    struct placeholder_hit h;
    size_t from = 0;
    unsigned doubts = 0;
    for (size_t i = 0; i < 5; i++) {
        assert_true(placeholder_scan(f.table, buf_str(&b), from, &doubts, &h));
        assert_ptr_equal(h.ph, want[i]);
        assert_true(str_eq(str_sub(buf_str(&b), h.at, h.n), want[i] ? want[i]->text : str_c(old)));
        from = h.at + h.n;
    }
    assert_false(placeholder_scan(f.table, buf_str(&b), from, &doubts, &h));
    /* cut short by one at either end it is none */
    assert_false(placeholder_scan(f.table, str_from(gh->text, 1), 0, &doubts, &h));
    assert_false(placeholder_scan(f.table, str_sub(gh->text, 0, gh->text.n - 1), 0, &doubts, &h));
    assert_false(placeholder_scan(f.table, STR(""), 0, &doubts, &h));
    buf_done(&b);
    fixture_done(&f);
}

static void test_redact(void **state)
{
    (void)state;
    struct fixture f = fixture_new();
    struct str gh = placeholder_of(f.table, f.coder, f.github)->text;
    char old[PLACEHOLDER_MAX + 1];
    stale(&f, old);
    struct buf in, out, coded;
    buf_init(&in, 4096);
    buf_init(&out, 4096);
    buf_init(&coded, 4096);
    for (size_t i = 0; i < gh.n; i++)
        buf_putf(&coded, i % 3 ? "%c" : "%%%02x", gh.p[i]);
    buf_putf(&in, "/a%%2Fb?k=%.*s&o=%s&c=%.*s%%", STR_ARG(gh), old, STR_ARG(buf_str(&coded)));
    unsigned doubts = 0;
    placeholder_redact(f.table, buf_str(&in), &doubts, &out);
    assert_true(str_eq(buf_str(&out), STR("/a%2Fb?k=[CRED:github]&o=[CRED:?]&c=[CRED:github]%")));
    buf_reset(&out);
    placeholder_redact(f.table, STR("/plain?x=%41"), &doubts, &out);
    assert_true(str_eq(buf_str(&out), STR("/plain?x=%41")));
    buf_done(&in);
    buf_done(&out);
    buf_done(&coded);
    fixture_done(&f);
}

static void test_table_refuses(void **state)
{
    (void)state;
    struct fixture f = fixture_new();
    struct err err;
    assert_null(placeholder_table_new(f.policy, STR("short"), &err));
    fixture_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum), cmocka_unit_test(test_every_shape), cmocka_unit_test(test_stable),
        cmocka_unit_test(test_guess),    cmocka_unit_test(test_random),      cmocka_unit_test(test_table),
        cmocka_unit_test(test_scan),     cmocka_unit_test(test_redact),      cmocka_unit_test(test_table_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
