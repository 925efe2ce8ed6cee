/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/grpc_frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static void whose_type_it_is(void **state)
{
    (void)state;
    static const struct {
        struct str type;
        bool grpc;
    } rows[] = {
        { STR("application/grpc"), true },       { STR("Application/GRPC"), true },          { STR("application/grpc+proto"), true },
        { STR("application/grpc;x=y"), true },   { STR("application/grpc ; x=y"), true },    { STR("application/grpc-web"), false },
        { STR("application/grpc-web+proto"), false }, { STR("application/grp"), false },     { STR("application/json"), false },
        { STR(""), false },                      { STR_NONE, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (grpc_type(rows[i].type) != rows[i].grpc)
            fail_msg("%.*s", STR_ARG(rows[i].type));
}

/* Two messages, one of no bytes and a compressed one, in pieces of every size: the ends are where they are. */
static void ends_in_any_pieces(void **state)
{
    (void)state;
    static const char body[] = "\0\0\0\0\3abc" "\0\0\0\0\1z" "\0\0\0\0\0" "\1\0\0\0\2xy" "\0\0\0\1";
    static const size_t ends[] = { 8, 14, 19, 26 };
    const size_t n = sizeof body - 1;
    for (size_t piece = 1; piece <= n; piece++) {
        struct grpc_frames g = { 0 };
        size_t k = 0;
        for (size_t at = 0; at < n;) {
            bool end, compressed;
            size_t have = piece - at % piece < n - at ? piece - at % piece : n - at;
            size_t used = grpc_frames_next(&g, str_of(body + at, have), &end, &compressed);
            assert_true(used > 0 && used <= have);
            assert_int_equal(compressed, at + used > 19 && at < 26);
            at += used;
            if (!end)
                continue;
            assert_true(k < 4);
            assert_int_equal(at, ends[k++]);
        }
        assert_int_equal(k, 4);
    }
}

static void the_longest(void **state)
{
    (void)state;
    struct grpc_frames g = { 0 };
    bool end, compressed;
    assert_int_equal(grpc_frames_next(&g, STR("\0\xff\xff\xff\xff" "a"), &end, &compressed), 6);
    assert_false(end);
    assert_int_equal(g.left, UINT32_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whose_type_it_is),
        cmocka_unit_test(ends_in_any_pieces),
        cmocka_unit_test(the_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
