/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs run to their end, or to the end of their time; what root may run. */
#include "daemon/tool_run.h"

#include "base/clock.h"
#include "daemon/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* What /bin/sh -c SCRIPT says and how it ends. */
static int sh(const char *script, unsigned ms, struct buf *said, struct err *err)
{
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    buf_init(said, 4096);
    return tool_run_within(argv, STR("input\n"), ms, said, err);
}

static void test_ends(void **unused)
{
    (void)unused;
    struct buf said;
    struct err err = { "" };
    assert_int_equal(sh("read x; echo \"got $x\"; echo more >&2; exit 3", 20000, &said, &err), 3);
    assert_true(str_eq(buf_str(&said), STR("got input\nmore\n")));
    buf_done(&said);
    assert_int_equal(sh("kill -9 $$", 20000, &said, &err), 128 + 9);
    buf_done(&said);
}

/* The program itself; one that it started and that holds its stdout; one that says no more but does not end. */
static void test_time(void **unused)
{
    (void)unused;
    static const char *const scripts[] = { "echo begun; exec sleep 50", "echo begun; sleep 50 & exit 0",
                                           "echo begun; exec >/dev/null 2>&1; sleep 50" };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct buf said;
        struct err err = { "" };
        uint64_t before = clock_mono_ms();
        assert_int_equal(sh(scripts[i], 300, &said, &err), -1);
        assert_true(clock_mono_ms() - before < 20000);
        assert_true(str_eq(buf_str(&said), STR("begun\n")));
        assert_true(str_find(str_c(err.text), STR("within 1 s, it was killed")) >= 0);
        buf_done(&said);
    }
}

static void test_not_started(void **unused)
{
    (void)unused;
    const char *argv[] = { "/nowhere/at/all", NULL };
    struct buf said;
    struct err err = { "" };
    buf_init(&said, 4096);
    assert_int_equal(tool_run(argv, STR(""), &said, &err), 127);
    assert_true(str_find(tool_last_line(buf_str(&said)), STR("No such file")) >= 0);
    buf_done(&said);
}

static void test_roots(void **unused)
{
    (void)unused;
    struct err err = { "" };
    char folder[] = "/tmp/outgate-tool-XXXXXX";
    assert_int_equal(tool_is_roots("/usr/bin/env", &err), 0);
    assert_int_equal(tool_is_roots("/", &err), 0);
    assert_int_equal(tool_is_roots("usr/bin/env", &err), -1);
    assert_int_equal(tool_is_roots("/usr/bin/there-is-none", &err), -1);
    assert_non_null(mkdtemp(folder));
    char *link = z_printf("%s/link", folder);
    assert_int_equal(symlink("/usr/bin/env", link), 0);
    assert_int_equal(tool_is_roots(link, &err), -1);
    if (geteuid() == 0) {
        assert_int_equal(tool_is_roots(folder, &err), 0); /* /tmp is everybody's, but has the sticky bit */
        assert_int_equal(chmod(folder, 0777), 0);
        assert_int_equal(tool_is_roots(folder, &err), -1);
        assert_int_equal(chmod(folder, 0755), 0);
        assert_int_equal(chown(folder, 65534, 0), 0);
    }
    assert_int_equal(tool_is_roots(folder, &err), -1);
    assert_true(str_find(str_c(err.text), STR("run this as that user")) >= 0);
    unlink(link);
    rmdir(folder);
    free(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ends), cmocka_unit_test(test_time),
                                        cmocka_unit_test(test_not_started), cmocka_unit_test(test_roots) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
