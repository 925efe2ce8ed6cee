/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/canary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Made for this test: the form of placeholders, the key of nobody. */
#define TOKEN "og_k7q2mz5xwv3njd6thg4yb2rcf7lqesp6aoi3u5xk"
#define BODY  "k7q2mz5xwv3njd6thg4yb2rcf7lqesp6aoi3u5xk"
#define OTHER "og_zzp4vd7ykq2hw6ttb3nj5xfomg7rcl4seaiu2q6d"

static struct canary *two(void)
{
    struct canary_source v[] = {
        { .text = STR(TOKEN), .fixed = 3, .agent = STR("coder"), .credential = STR("github") },
        { .text = STR(OTHER), .fixed = 3, .agent = STR("tester"), .credential = STR("npm") },
    };
    struct canary *c = canary_new(v, 2, NULL);
    assert_non_null(c);
    return c;
}

static size_t encode(struct str s, unsigned per, const char *set, char *out)
{
    unsigned acc = 0, bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        acc = acc << 8 | (unsigned char)s.p[i];
        for (bits += 8; bits >= per; bits -= per)
            out[n++] = set[acc >> (bits - per) & ((1u << per) - 1)];
        acc &= 0xff;
    }
    if (bits > 0)
        out[n++] = set[acc << (per - bits) & ((1u << per) - 1)];
    return n;
}

static const char *const hex = "0123456789abcdef", *const base32 = "abcdefghijklmnopqrstuvwxyz234567",
                         *const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static bool find(const struct canary *c, const char *before, struct str piece, const char *behind,
                 enum canary_form form)
{
    char text[1024];
    struct canary_hit hit;
    int n = snprintf(text, sizeof text, "%s%.*s%s", before, STR_ARG(piece), behind);
    if (!canary_find(c, str_of(text, (size_t)n), &hit))
        return false;
    if (hit.form != form || !str_eq(hit.agent, STR("coder")) || !str_eq(hit.credential, STR("github")))
        fail_msg("%s: found as %s of %.*s", text, canary_form_text(hit.form), STR_ARG(hit.agent));
    return true;
}

/* Every piece, wherever it is cut, in every form. The control: a piece one shorter, or of another token, is none. */
static void test_every_piece(void **state)
{
    (void)state;
    struct canary *c = two();
    for (size_t i = 0; i + 10 <= strlen(BODY); i++) {
        struct str ten = str_of(&BODY[i], 10), nine = str_of(&BODY[i], 9);
        char text[64], back[16];
        assert_true(find(c, "", ten, ".evil.test", CANARY_PLAIN));
        assert_true(find(c, "x.-", ten, "9.evil.test", CANARY_PLAIN));
        assert_false(find(c, "9", nine, "9.evil.test", CANARY_PLAIN));
        for (size_t k = 0; k < 10; k++)
            back[k] = ten.p[9 - k];
        assert_true(find(c, "", str_of(back, 10), ".evil.test", CANARY_REVERSED));
        struct str six = str_of(&BODY[i], 6), five = str_of(&BODY[i], 5);
        assert_true(find(c, "", str_of(text, encode(six, 4, hex, text)), ".evil.test", CANARY_HEX));
        assert_true(find(c, "0", str_of(text, encode(six, 4, hex, text)), ".evil.test", CANARY_HEX));
        assert_false(find(c, "", str_of(text, encode(five, 4, hex, text)), ".evil.test", CANARY_HEX));
        assert_true(find(c, "", str_of(text, encode(six, 5, base32, text)), ".evil.test", CANARY_BASE32));
    }
    canary_unref(&c);
    assert_null(c);
}

/* Any ten characters of the base32 and base64 of a text that holds it, wherever it stands in that. */
static void test_alignment(void **state)
{
    (void)state;
    struct canary *c = two();
    for (size_t pad = 0; pad < 8; pad++) {
        char text[128], out[256];
        int n = snprintf(text, sizeof text, "%.*s%s", (int)pad, "!!!!!!!!", BODY);
        size_t m = encode(str_of(text, (size_t)n), 6, base64, out);
        size_t from = (pad * 8 + 5) / 6 + 2, to = m - 3;
        for (size_t i = from; i + 14 <= to; i++)
            if (!find(c, "", str_of(out + i, 14), ".evil.test", CANARY_BASE64))
                fail_msg("base64, %zu before it, %.14s", pad, out + i);
        m = encode(str_of(text, (size_t)n), 5, base32, out);
        from = (pad * 8 + 4) / 5;
        for (size_t i = from; i + 11 <= m - 1; i++)
            if (!find(c, "", str_of(out + i, 11), ".evil.test", CANARY_BASE32))
                fail_msg("base32, %zu before it, %.11s", pad, out + i);
    }
    canary_unref(&c);
}

static void test_strewn_and_folded(void **state)
{
    (void)state;
    struct canary *c = two();
    assert_true(find(c, "", STR("K7Q2MZ5XWV"), ".evil.test", CANARY_PLAIN));
    assert_true(find(c, "", STR("k7q.2mz.5xw.v3n"), ".evil.test", CANARY_PLAIN));
    assert_true(find(c, "", STR("k-7_q-2_m-z_5-x_w-v"), ".evil.test", CANARY_PLAIN));
    assert_true(find(c, "", STR("6b377132.6d7a3578.7776"), ".evil.test", CANARY_HEX));
    assert_false(find(c, "", STR("k7q2m,z5xwv"), ".evil.test", CANARY_PLAIN)); /* not in a name, and no strewn byte */
    canary_unref(&c);
}

static void test_what_is_none(void **state)
{
    (void)state;
    static const char *const none[] = { "www.example.com",
                                        "og",
                                        "og_",
                                        "",
                                        "abcdefghijklmnopqrstuvwxyz234567.evil.test",
                                        "0123456789abcdef0123456789abcdef.evil.test",
                                        "a.b.c.d.e.f.g.h.i.j.k.l" };
    struct canary *c = two();
    struct canary_hit hit;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(canary_find(c, str_c(none[i]), &hit));
    /* Whose it is. */
    assert_true(canary_find(c, STR("zzp4vd7ykq.evil.test"), &hit));
    assert_true(str_eq(hit.agent, STR("tester")) && str_eq(hit.credential, STR("npm")));
    canary_unref(&c);
    /* The fixed beginning is nobody's piece; with a longer one the same bytes are. */
    struct canary_source v = { .text = STR("verylongprefix_k7q2mz5xwv3njd"), .fixed = 15 };
    c = canary_new(&v, 1, NULL);
    assert_false(canary_find(c, STR("verylongprefix.test"), &hit));
    canary_unref(&c);
    v.fixed = 0;
    c = canary_new(&v, 1, NULL);
    assert_true(canary_find(c, STR("verylongprefix.test"), &hit));
    canary_unref(&c);
    /* No placeholders: nothing is found. Long ones and long texts have their limits. */
    c = canary_new(NULL, 0, NULL);
    assert_false(canary_find(c, STR(BODY), &hit));
    canary_unref(&c);
    char longest[CANARY_LOOK_MAX + 64];
    struct err err;
    memset(longest, 'a', sizeof longest);
    v.text = str_of(longest, CANARY_TEXT_MAX + 1);
    assert_null(canary_new(&v, 1, &err));
    assert_true(strstr(err.text, "1024") != NULL);
    c = two();
    memcpy(longest + sizeof longest - 20, BODY, 20);
    assert_false(canary_find(c, str_of(longest, sizeof longest), &hit)); /* past the limit */
    assert_true(canary_find(c, str_of(longest + 64, CANARY_LOOK_MAX), &hit));
    canary_unref(&c);
}

/* Thousands of them, many with the same middle. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    static char texts[MANY][48];
    static struct canary_source v[MANY];
    uint64_t x = 3;
    for (size_t i = 0; i < MANY; i++) {
        memcpy(texts[i], "sk-", 3);
        for (size_t k = 3; k < 47; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            texts[i][k] = base32[x >> 59];
        }
        memcpy(texts[i] + 20, "samemiddle", 10);
        v[i] = (struct canary_source) { .text = str_of(texts[i], 47), .fixed = 3, .agent = str_of(texts[i] + 3, 8) };
    }
    struct canary *c = canary_new(v, MANY, NULL);
    assert_non_null(c);
    for (size_t i = 0; i < MANY; i++) {
        struct canary_hit hit;
        char text[32];
        assert_true(canary_find(c, str_of(texts[i] + 5, 10), &hit));
        assert_true(str_eq(hit.agent, v[i].agent));
        /* Six of its own and four of what all share. */
        memcpy(text, texts[i] + 14, 10);
        assert_true(canary_find(c, str_of(text, 10), &hit));
        size_t n = encode(str_of(texts[i] + 31, 9), 5, base32, text);
        assert_true(canary_find(c, str_of(text, n), &hit));
        assert_true(str_eq(hit.agent, v[i].agent));
    }
    print_message("%d placeholders: %zu KiB\n", MANY, canary_bytes(c) / 1024);
    assert_true(canary_bytes(c) < (size_t)MANY * 8192);
    canary_unref(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_piece),  cmocka_unit_test(test_alignment), cmocka_unit_test(test_strewn_and_folded),
        cmocka_unit_test(test_what_is_none), cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
