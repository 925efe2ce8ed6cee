/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases that a newer one followed: each row is one that is noted, at what time, and which of all are known then. */
#include "proxy/ws_leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static const char *add(struct ws_leases *ls, const char *id, int64_t expires_us, int64_t now_us, size_t most)
{
    const struct lease_spec spec = { .id = str_c(id),
                                     .credential = STR("c"),
                                     .agent = STR("coder"),
                                     .value = STR("a real value 0123456789"),
                                     .expires_us = expires_us,
                                     .refresh_us = 1 };
    struct lease *l = lease_new(&spec, NULL);
    assert_non_null(l);
    const char *why = ws_leases_add(ls, l, now_us, most);
    lease_unref(&l);
    return why;
}

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        int64_t expires_us, now_us;
        bool noted;
        const char *known; /* of a to f */
    } rows[] = {
        { "a", 100, 1, true, "a" },     { "b", 50, 1, true, "ab" },    { "b", 60, 2, true, "ab" }, /* again */
        { "c", 200, 3, true, "abc" },   { "d", 200, 4, false, "abc" }, /* three is the limit */
        { "d", 200, 59, false, "abc" },                                /* b lives as it was noted last */
        { "d", 200, 60, true, "acd" },                                 /* over: it makes room */
        { "e", 70, 70, true, "acd" },                                  /* itself over: nothing to keep */
        { "c", 300, 70, true, "acd" },                                 /* full, but known */
        { "f", 400, 200, true, "cf" },                                 /* all that are over, wherever they stand */
        { "e", 500, 1000, true, "" },
    };
    struct ws_leases ls = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = add(&ls, rows[i].id, rows[i].expires_us, rows[i].now_us, 3);
        if (rows[i].noted != !why)
            fail_msg("row %zu: %s", i, why ? why : "noted");
        for (char id[] = "a"; id[0] <= 'f'; id[0]++)
            if (ws_leases_has(&ls, id) != (strchr(rows[i].known, id[0]) != NULL))
                fail_msg("row %zu: %s", i, id);
    }
    assert_null(ls.first);
    ws_leases_done(&ls);
}

/* As many as the limit says, each found, and no more. */
static void test_many(void **state)
{
    (void)state;
    enum { MOST = 256 };
    struct ws_leases ls = { 0 };
    char id[LEASE_ID_MAX + 1];
    for (size_t i = 0; i <= MOST; i++) {
        snprintf(id, sizeof id, "%0*zu", i % 2 ? LEASE_ID_MAX : 3, i);
        const char *why = add(&ls, id, 100, 1, MOST);
        assert_int_equal(i < MOST, why == NULL);
        assert_int_equal(i < MOST, ws_leases_has(&ls, id));
    }
    for (size_t i = 0; i < MOST; i++) {
        snprintf(id, sizeof id, "%0*zu", i % 2 ? LEASE_ID_MAX : 3, i);
        assert_true(ws_leases_has(&ls, id));
    }
    ws_leases_done(&ls);
    assert_false(ws_leases_has(&ls, "000"));
    ws_leases_done(&ls); /* harmless */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_many) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
