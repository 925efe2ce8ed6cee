/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ydoc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct ydoc *parse(const char *text)
{
    struct ydoc_fault fault;
    struct ydoc *d = ydoc_parse(str_c(text), 1 << 20, &fault);
    if (!d)
        fail_msg("%u:%u: %s", fault.line, fault.col, fault.err.text);
    return d;
}

static void test_tree(void **state)
{
    (void)state;
    struct ydoc *d =
        parse("# comment\na: 1\nb:\n  - x\n  - {c: 'q', d: }\n\ne: \"null\"\nf: null\ng: |\n  two\n  lines\n");
    const struct ynode *root = ydoc_root(d), *b = ynode_get(root, STR("b"));
    assert_int_equal(root->kind, YNODE_MAP);
    assert_int_equal(root->n, 5);
    assert_true(str_eq(ynode_get(root, STR("a"))->text, STR("1")));
    assert_int_equal(root->first->key_line, 2);
    assert_int_equal(root->first->key_col, 1);
    assert_int_equal(root->first->col, 4);
    assert_int_equal(b->kind, YNODE_LIST);
    assert_int_equal(b->n, 2);
    assert_true(b->first->plain);
    const struct ynode *map = b->first->next;
    assert_int_equal(map->line, 5);
    assert_false(ynode_get(map, STR("c"))->plain);
    assert_true(ynode_is_null(ynode_get(map, STR("d"))));
    assert_false(ynode_is_null(ynode_get(root, STR("e"))));
    assert_true(ynode_is_null(ynode_get(root, STR("f"))));
    assert_true(str_eq(ynode_get(root, STR("g"))->text, STR("two\nlines\n")));
    assert_null(ynode_get(root, STR("z")));
    assert_null(ynode_get(b, STR("a")));
    ydoc_free(d);
    d = parse("");
    assert_null(ydoc_root(d));
    ydoc_free(d);
    ydoc_free(NULL);
}

/* Text is text: the keyword tables decide what it means. */
static void test_scalars_stay_text(void **state)
{
    (void)state;
    struct ydoc *d = parse("[no, yes, 010, 1e3, .inf, 12:30:45, 2026-01-01, \"\\u00e4\"]");
    static const char *const texts[] = { "no", "yes", "010", "1e3", ".inf", "12:30:45", "2026-01-01", "\xc3\xa4" };
    const struct ynode *n = ydoc_root(d)->first;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++, n = n->next)
        assert_true(str_eq(n->text, str_c(texts[i])));
    assert_null(n);
    ydoc_free(d);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, col;
        const char *key, *words;
    } cases[] = {
        { "a: &x 1\n", 1, 4, "", "anchor" },
        { "a: &x [1]\n", 1, 4, "", "anchor" },
        { "a: &x {b: 1}\n", 1, 4, "", "anchor" },
        { "a: *x\n", 1, 4, "", "alias" },
        { "*x : 1\n", 1, 1, "", "alias" },
        { "a: !!str 1\n", 1, 4, "", "tag" },
        { "a: ! 1\n", 1, 4, "", "tag" },
        { "a: !x [1]\n", 1, 4, "", "tag" },
        { "!x a: 1\n", 1, 1, "", "tag" },
        { "%TAG ! tag:x,2000:\n---\na: 1\n", 1, 1, "", "directive" },
        { "---\na: 1\n---\nb: 1\n", 3, 1, "", "second" },
        { "a: 1\n...\nb: 1\n", 3, 1, "", "" }, /* a second document without a marker */
        { "a: 1\nb: 2\na: 3\n", 3, 1, "a", "first on line 1" },
        { "a: 1\n\"a\": 3\n", 2, 1, "a", "first on line 1" },
        { "x: {k: 1, k: 2}\n", 1, 11, "k", "first on line 1" },
        { "<<: 1\n", 1, 1, "", "merge" },
        { "? [a]\n: b\n", 1, 3, "", "a list" },
        { "? {a: b}\n: c\n", 1, 3, "", "a map" },
        { "{: b}\n", 1, 2, "", "well-formed" },
        { "\"\": b\n", 1, 1, "", "nothing" },
        { "a: [\n", 2, 1, "", "well-formed" },
        { "a: b: c\n", 1, 5, "", "well-formed" },
        { "a: @x\n", 1, 4, "", "well-formed" },
        { "a: \"x\\0y\"\n", 1, 4, "", "NUL" },
        { "a: \x01\n", 1, 4, "", "control characters" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ydoc_fault fault;
        if (ydoc_parse(str_c(cases[i].text), 1 << 20, &fault))
            fail_msg("%s", cases[i].text);
        if (fault.line != cases[i].line || fault.col != cases[i].col || !strstr(fault.err.text, cases[i].words) ||
            strcmp(fault.key, cases[i].key) != 0)
            fail_msg("%zu: %s%u:%u: [%s] %s", i, cases[i].text, fault.line, fault.col, fault.key, fault.err.text);
    }
    /* the control: the same without what was refused */
    static const char *const fine[] = {
        "a: 1\n", "---\na: 1\n", "---\na: 1\n...\n", "a: 1\nb: 1\n", "x: {k: 1}\ny: {k: 1}\n", "\"*x\": 1\n"
    };
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        ydoc_free(parse(fine[i]));
}

static void test_bounds(void **state)
{
    (void)state;
    struct ydoc_fault fault;
    char text[256];
    assert_null(ydoc_parse(STR("aaaa"), 3, &fault));
    struct ydoc *d = ydoc_parse(STR("aaa"), 3, &fault);
    assert_non_null(d);
    ydoc_free(d);
    memset(text, '[', YDOC_DEPTH);
    memset(text + YDOC_DEPTH, ']', YDOC_DEPTH);
    d = ydoc_parse(str_of(text, 2 * YDOC_DEPTH), sizeof text, &fault);
    assert_non_null(d);
    ydoc_free(d);
    memset(text, '[', YDOC_DEPTH + 1);
    memset(text + YDOC_DEPTH + 1, ']', YDOC_DEPTH + 1);
    assert_null(ydoc_parse(str_of(text, 2 * YDOC_DEPTH + 2), sizeof text, &fault));
    assert_non_null(strstr(fault.err.text, "levels"));
}

/* A large map is checked for duplicates without comparing all pairs. */
static void test_large_map(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(N * 12 + 32);
    size_t n = 0;
    struct ydoc_fault fault;
    assert_non_null(text);
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "k%d: 1\n", i);
    struct ydoc *d = ydoc_parse(str_of(text, n), 1 << 22, &fault);
    assert_non_null(d);
    assert_int_equal(ydoc_root(d)->n, N);
    ydoc_free(d);
    n += (size_t)sprintf(text + n, "k500: 1\n");
    assert_null(ydoc_parse(str_of(text, n), 1 << 22, &fault));
    assert_int_equal(fault.line, N + 1);
    assert_string_equal(fault.key, "k500");
    assert_non_null(strstr(fault.err.text, "first on line 501"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),   cmocka_unit_test(test_scalars_stay_text), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_large_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
