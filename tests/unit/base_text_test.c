/* SPDX-License-Identifier: Apache-2.0
 *
 * str, buf, arena, json: what everything else stands on. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>
#include <jansson.h>

#define assert_str(a, b) assert_true(str_eq((a), (b)))

/* --- str --- */

static void parts_are_clamped(void **state)
{
    (void)state;
    struct str s = STR("abcdef");
    assert_str(str_sub(s, 2, 3), STR("cde"));
    assert_str(str_sub(s, 2, SIZE_MAX), STR("cdef"));
    assert_str(str_sub(s, 7, 1), STR(""));
    assert_str(str_sub(s, SIZE_MAX, SIZE_MAX), STR(""));
    assert_str(str_from(s, 6), STR(""));
    assert_null(str_from(STR_NONE, 3).p);
    assert_null(str_sub(STR_NONE, 0, 3).p);
    assert_int_equal(str_c(NULL).n, 0);
}

static void equality_and_order(void **state)
{
    (void)state;
    assert_true(str_eq(STR_NONE, STR("")));
    assert_false(str_eq(STR("a"), STR("A")));
    assert_true(str_eq_nocase(STR("aZ-09"), STR("Az-09")));
    assert_false(str_eq_nocase(STR("a[`"), STR("A{@"))); /* the neighbours of letters are no letters */
    assert_false(str_eq_nocase(STR("\xe4"), STR("\xc4")));
    assert_false(str_eq_nocase(STR("ab"), STR("abc")));
    assert_int_equal(str_cmp(STR("a"), STR("b")), -1);
    assert_int_equal(str_cmp(STR("b"), STR("a")), 1);
    assert_int_equal(str_cmp(STR("a"), STR("ab")), -1);
    assert_int_equal(str_cmp(STR("\xff"), STR("a")), 1); /* bytes are unsigned */
    assert_int_equal(str_cmp(STR_NONE, STR("")), 0);
    assert_true(str_starts(STR("abc"), STR("")));
    assert_true(str_ends(STR("abc"), STR("bc")));
    assert_false(str_starts(STR("ab"), STR("abc")));
    assert_false(str_ends(STR("bc"), STR("abc")));
}

static void finding(void **state)
{
    (void)state;
    struct str s = str_of("a\0b\0b", 5);
    assert_int_equal(str_find(s, str_of("\0b", 2)), 1);
    assert_int_equal(str_find(s, STR("x")), -1);
    assert_int_equal(str_find(s, STR("")), 0);
    assert_int_equal(str_find(STR_NONE, STR("x")), -1);
    assert_int_equal(str_find_char(s, 'b'), 2);
    assert_int_equal(str_rfind_char(s, 'b'), 4);
    assert_int_equal(str_find_char(STR_NONE, 'b'), -1);
    assert_int_equal(str_rfind_char(STR_NONE, 'b'), -1);
}

static void trimming_and_splitting(void **state)
{
    (void)state;
    assert_str(str_trim(STR(" \t a b\t ")), STR("a b"));
    assert_str(str_trim(STR(" \t ")), STR(""));
    assert_str(str_trim(STR("\na\r")), STR("\na\r")); /* only SP and HTAB */
    struct str s = STR("a,,b,"), head;
    const char *expected[] = { "a", "", "b", "" };
    for (size_t i = 0; i < 4; i++) {
        assert_true(str_split(&s, ',', &head));
        assert_str(head, str_c(expected[i]));
    }
    assert_false(str_split(&s, ',', &head));
    s = STR("");
    assert_true(str_split(&s, ',', &head)); /* one empty element */
    assert_false(str_split(&s, ',', &head));
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max, value;
        bool ok;
    } rows[] = {
        { "0", 0, 0, true },
        { "18446744073709551615", UINT64_MAX, UINT64_MAX, true },
        { "18446744073709551616", UINT64_MAX, 0, false },
        { "99999999999999999999", UINT64_MAX, 0, false },
        { "184467440737095516150", UINT64_MAX, 0, false },
        { "00000000000000000000007", 7, 7, true },
        { "8", 7, 0, false },
        { "", 7, 0, false },
        { "+1", 7, 0, false },
        { "-1", UINT64_MAX, 0, false },
        { " 1", 7, 0, false },
        { "1 ", 7, 0, false },
        { "0x1", 7, 0, false },
        { "1.0", 7, 0, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t v = 4711;
        assert_int_equal(str_to_u64(str_c(rows[i].text), rows[i].max, &v), rows[i].ok);
        assert_true(v == (rows[i].ok ? rows[i].value : 4711));
    }
}

static void characters(void **state)
{
    (void)state;
    int tokens = 0;
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        tokens += ascii_tchar(c);
        bool hex = (i >= '0' && i <= '9') || (i >= 'a' && i <= 'f') || (i >= 'A' && i <= 'F');
        assert_int_equal(ascii_hex(c) >= 0, hex);
        assert_true(ascii_lower(c) == c || (i >= 'A' && i <= 'Z'));
    }
    assert_int_equal(tokens, 26 + 26 + 10 + 15);
    assert_int_equal(ascii_hex('F'), 15);
    assert_false(ascii_tchar(0));
    assert_false(ascii_tchar(':'));
    assert_false(ascii_tchar((char)0x80));
}

static void escaping_for_messages(void **state)
{
    (void)state;
    char out[64], small[12];
    assert_string_equal(str_escape(STR("a\"\\\n\x7f\xc3\xa4~"), out, sizeof out), "a\\x22\\x5c\\x0a\\x7f\\xc3\\xa4~");
    assert_string_equal(str_escape(STR_NONE, out, sizeof out), "");
    assert_string_equal(str_escape(STR("0123456789012345"), small, sizeof small), "01234567...");
    for (size_t size = 0; size <= sizeof small; size++) { /* always terminated, never past the end */
        memset(small, 'x', sizeof small);
        const char *z = str_escape(STR("\x01\x01\x01\x01\x01\x01"), small, size);
        assert_true(strlen(z) < (size ? size : 1));
        for (size_t i = size; i < sizeof small; i++)
            assert_int_equal(small[i], 'x');
    }
}

static void hashes_depend_on_the_key(void **state)
{
    (void)state;
    str_hash_seed(1, 2);
    uint64_t a = str_hash(STR("some name")), b = str_hash(STR("some namf"));
    assert_true(a != b);
    assert_true(str_hash(STR("some name")) == a);
    assert_true(str_hash(str_of("\0", 1)) != str_hash(str_of("\0\0", 2)));
    str_hash_seed(1, 3);
    assert_true(str_hash(STR("some name")) != a);
}

/* --- buf --- */

static void text_in_lower_case(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 5);
    assert_int_equal(buf_put_lower(&b, STR("")), 0);
    assert_int_equal(buf_put_lower(&b, STR("@AZ[\xc4")), 0);
    assert_str(buf_str(&b), STR("@az[\xc4"));
    assert_int_equal(buf_put_lower(&b, STR("A")), -1);
    assert_true(b.failed);
    buf_done(&b);
}

static void a_buffer_has_a_maximum(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    assert_int_equal(buf_put(&b, STR("12345678")), 0);
    assert_int_equal(buf_put(&b, STR("90a")), -1); /* takes nothing of it */
    assert_true(b.failed);
    assert_str(buf_str(&b), STR("12345678"));
    assert_int_equal(buf_putc(&b, '9'), 0);
    assert_true(b.failed); /* and stays so until it is looked at */
    assert_int_equal(buf_put(&b, STR("0")), 0);
    assert_int_equal(buf_putc(&b, 'x'), -1);
    assert_int_equal(buf_room(&b), 0);
    buf_consume(&b, 4);
    assert_int_equal(buf_room(&b), 4);
    assert_int_equal(buf_put(&b, STR("abcd")), 0); /* what was read makes room */
    assert_str(buf_str(&b), STR("567890abcd"));
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_null(buf_reserve(&b, 1));
    buf_reset(&b);
    assert_false(b.failed);
    assert_non_null(buf_reserve(&b, 10));
    assert_null(buf_reserve(&b, 11));
    buf_done(&b);
    assert_int_equal(b.max, 10);
}

static void numbers_and_formats(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64);
    buf_put_u64(&b, 0);
    buf_putc(&b, ' ');
    buf_put_u64(&b, UINT64_MAX);
    assert_int_equal(buf_putf(&b, " %s %d", "x", -5), 0);
    assert_string_equal(buf_z(&b), "0 18446744073709551615 x -5");
    assert_int_equal(buf_size(&b), strlen(buf_z(&b)));
    assert_int_equal(buf_putf(&b, "%100d", 1), -1);
    assert_true(b.failed);
    buf_done(&b);
}

/* In and out at random, against a plain copy. */
static void what_goes_in_comes_out(void **state)
{
    (void)state;
    for (int wipe = 0; wipe < 2; wipe++) {
        struct buf b;
        buf_init(&b, 5000);
        b.wipe = wipe;
        char model[5000];
        size_t n = 0;
        srandom(3);
        unsigned char next = 0;
        for (int i = 0; i < 20000; i++) {
            size_t k = (size_t)random() % 300;
            if (random() % 2 && n + k <= sizeof model) {
                char piece[300];
                for (size_t j = 0; j < k; j++)
                    model[n + j] = piece[j] = (char)next++;
                assert_int_equal(buf_put(&b, str_of(piece, k)), 0);
                n += k;
            } else {
                k = k > n ? n : k;
                buf_consume(&b, k);
                n -= k;
                memmove(model, model + k, n);
            }
            if (random() % 50 == 0)
                buf_release_if_empty(&b);
            assert_int_equal(buf_size(&b), n);
            if (n)
                assert_memory_equal(buf_str(&b).p, model, n);
            for (size_t j = 0; wipe && j < b.head; j++) /* nothing is left of what was read */
                assert_int_equal(b.mem[j], 0);
        }
        buf_done(&b);
        assert_null(b.mem);
    }
}

static void a_wiped_buffer_leaves_nothing(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4096);
    b.wipe = true;
    buf_put(&b, STR("secret secret secret"));
    const char *mem = b.mem;
    buf_consume(&b, 6);
    assert_memory_equal(mem, "\0\0\0\0\0\0", 6);
    buf_reset(&b);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(mem[i], 0);
    buf_put(&b, STR("secret"));
    buf_consume(&b, 6);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(mem[i], 0);
    buf_done(&b);
    assert_true(b.wipe); /* a property of the buffer, not of its memory */
}

/* --- arena --- */

static void an_arena_has_a_maximum_and_alignment(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 100000);
    size_t total = 0;
    for (size_t n = 0;; n = (n * 7 + 3) % 5000) {
        unsigned char *p = arena_alloc(&a, n);
        if (!p)
            break;
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
        total += n;
    }
    assert_true(total <= 100000 && total > 90000);
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 8));
    assert_null(arena_alloc(&a, 100001));
    arena_done(&a);
    assert_non_null(arena_alloc(&a, 100000 - 32)); /* empty again */
    arena_done(&a);
}

static void strings_in_an_arena(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 4096);
    struct str s = arena_str(&a, str_of("a\0b", 3));
    assert_memory_equal(s.p, "a\0b\0", 4);
    assert_non_null(arena_str(&a, STR_NONE).p);
    assert_str(arena_printf(&a, "%s-%d", "x", 7), STR("x-7"));
    assert_null(arena_printf(&a, "%5000d", 1).p);
    arena_done(&a);
}

/* --- json --- */

static void json_is_ascii_on_one_line(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        const char *out;
    } rows[] = {
        { STR("plain"), "\"plain\"" },
        { STR("a\"b\\c/"), "\"a\\\"b\\\\c/\"" },
        { STR("\r\n\t\x01\x7f"), "\"\\u000d\\u000a\\u0009\\u0001\\u007f\"" },
        { STR("\xc3\xa4"), "\"\\u00e4\"" },
        { STR("\xf0\x9f\x98\x80"), "\"\\ud83d\\ude00\"" },
        { STR("\xe2\x80\xae"), "\"\\u202e\"" }, /* a direction mark */
        { STR("\xe2\x80\xa8"), "\"\\u2028\"" },
        { STR("\xff\xfe"), "\"\\ufffd\\ufffd\"" },
        { STR("\xc0\xaf"), "\"\\ufffd\\ufffd\"" },                       /* overlong */
        { STR("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"" },            /* a surrogate */
        { STR("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" }, /* past U+10FFFF */
        { STR("\xc3"), "\"\\ufffd\"" },                                  /* cut */
        { STR("\xe2\x82"), "\"\\ufffd\\ufffd\"" },
        { STR("\xc3\"x"), "\"\\ufffd\\\"x\"" }, /* the quote is not eaten */
        { STR(""), "\"\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        buf_init(&b, 256);
        json_put_str(&b, rows[i].in);
        assert_string_equal(buf_z(&b), rows[i].out);
        buf_done(&b);
    }
    struct buf b;
    buf_init(&b, 64);
    json_put_str_or_null(&b, STR_NONE);
    json_put_str_or_null(&b, STR(""));
    assert_string_equal(buf_z(&b), "null\"\"");
    buf_done(&b);
}

/* Whatever bytes go in, a strict reader takes what comes out. */
static void any_bytes_make_json(void **state)
{
    (void)state;
    srandom(11);
    for (int round = 0; round < 5000; round++) {
        char in[40];
        size_t n = (size_t)random() % sizeof in;
        for (size_t i = 0; i < n; i++)
            in[i] = (char)(random() % 3 ? random() : random() % 64 + 0x80 + 0x40 * (random() % 2));
        struct buf b;
        buf_init(&b, 1024);
        json_put_str(&b, str_of(in, n));
        assert_false(b.failed);
        for (size_t i = 0; i < buf_size(&b); i++)
            assert_true(buf_str(&b).p[i] >= 0x20 && buf_str(&b).p[i] < 0x7f);
        json_t *j = json_loadb(buf_str(&b).p, buf_size(&b), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        json_decref(j);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_clamped),
        cmocka_unit_test(equality_and_order),
        cmocka_unit_test(finding),
        cmocka_unit_test(trimming_and_splitting),
        cmocka_unit_test(numbers),
        cmocka_unit_test(characters),
        cmocka_unit_test(escaping_for_messages),
        cmocka_unit_test(hashes_depend_on_the_key),
        cmocka_unit_test(text_in_lower_case),
        cmocka_unit_test(a_buffer_has_a_maximum),
        cmocka_unit_test(numbers_and_formats),
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(a_wiped_buffer_leaves_nothing),
        cmocka_unit_test(an_arena_has_a_maximum_and_alignment),
        cmocka_unit_test(strings_in_an_arena),
        cmocka_unit_test(json_is_ascii_on_one_line),
        cmocka_unit_test(any_bytes_make_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
