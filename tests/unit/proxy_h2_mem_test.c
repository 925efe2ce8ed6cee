/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocator of HTTP/2 sessions is one. That what it gives back is wiped is seen from outside, in a worker (test_h2_origins.py): a freed
 * block may not be looked at from within. */
#include "proxy/h2_mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static void a_moved_block_keeps_its_bytes(void **state)
{
    (void)state;
    nghttp2_mem *m = h2_mem_wiping();
    for (size_t from = 1; from < 5000; from = from * 3 + 1)
        for (size_t to = 1; to < 5000; to = to * 2 + 1) {
            unsigned char *p = m->malloc(from, m->mem_user_data);
            assert_non_null(p);
            for (size_t i = 0; i < from; i++)
                p[i] = (unsigned char)(i * 7 + 1);
            unsigned char *q = m->realloc(p, to, m->mem_user_data);
            assert_non_null(q);
            for (size_t i = 0; i < from && i < to; i++)
                assert_int_equal(q[i], (unsigned char)(i * 7 + 1));
            m->free(q, m->mem_user_data);
        }
}

static void new_ones_are_as_asked(void **state)
{
    (void)state;
    nghttp2_mem *m = h2_mem_wiping();
    unsigned char *p = m->calloc(100, 10, m->mem_user_data);
    assert_non_null(p);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    m->free(p, m->mem_user_data);
    p = m->realloc(NULL, 10, m->mem_user_data);
    assert_non_null(p);
    m->free(p, m->mem_user_data);
    m->free(NULL, m->mem_user_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_block_keeps_its_bytes),
        cmocka_unit_test(new_ones_are_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
