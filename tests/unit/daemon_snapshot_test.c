/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct side_file files[] = {
    { { "/etc/a.token", 12 }, { "secret-token", 12 } },
    { { "system", 6 }, { "-----ROOTS-----", 15 } },
    { { "/empty", 6 }, { "", 0 } },
};

static struct snapshot sample(void)
{
    return (struct snapshot) {
        .number = 7,
        .file = STR("outgate.yaml"),
        .dir = STR("/etc/outgate"),
        .text = STR("version: 1\n"),
        .install_key = STR("0123456789abcdef0123456789abcdef"),
        .placeholders = STR("a list"),
        .own_ca = STR("-----CA-----"),
        .system_roots = STR("-----ROOTS-----"),
        .resolv_conf = STR("nameserver 192.0.2.1\n"),
        .mint_socket = STR("mint.7.sock"),
        .mint_uid = 61104,
        .files = files,
        .nfiles = 3,
    };
}

static void pack(const struct snapshot *s, struct buf *out)
{
    buf_init(out, SNAPSHOT_MAX);
    assert_int_equal(snapshot_pack(s, out), 0);
}

static void check_str(struct str got, struct str want)
{
    assert_true(str_eq(got, want));
}

static void test_round_trip(void **state)
{
    (void)state;
    struct snapshot s = sample(), got;
    struct buf out;
    struct err err = { "" };
    pack(&s, &out);
    assert_int_equal(snapshot_unpack(buf_str(&out), &got, &err), 0);
    assert_int_equal(got.number, 7);
    assert_int_equal(got.mint_uid, 61104);
    check_str(got.file, s.file);
    check_str(got.dir, s.dir);
    check_str(got.text, s.text);
    check_str(got.install_key, s.install_key);
    check_str(got.placeholders, s.placeholders);
    check_str(got.own_ca, s.own_ca);
    check_str(got.system_roots, s.system_roots);
    check_str(got.resolv_conf, s.resolv_conf);
    check_str(got.mint_socket, s.mint_socket);
    assert_int_equal(got.nfiles, 3);
    for (size_t i = 0; i < 3; i++) {
        check_str(got.files[i].path, files[i].path);
        check_str(got.files[i].bytes, files[i].bytes);
    }
    snapshot_done(&got);
    buf_done(&out);
}

/* The roots are large and travel once, though they are also a side file. */
static void test_roots_once(void **state)
{
    (void)state;
    struct snapshot s = sample();
    struct buf out;
    pack(&s, &out);
    ptrdiff_t first = str_find(buf_str(&out), STR("-----ROOTS-----"));
    assert_true(first > 0);
    assert_int_equal(str_find(str_from(buf_str(&out), (size_t)first + 1), STR("-----ROOTS-----")), -1);
    buf_done(&out);
}

/* Every prefix is an error, and so is one byte more. */
static void test_cut_and_surplus(void **state)
{
    (void)state;
    struct snapshot s = sample(), got;
    struct buf out;
    pack(&s, &out);
    for (size_t n = 0; n < buf_size(&out); n++)
        assert_int_equal(snapshot_unpack(str_sub(buf_str(&out), 0, n), &got, NULL), -1);
    buf_putc(&out, 'x');
    assert_int_equal(snapshot_unpack(buf_str(&out), &got, NULL), -1);
    buf_done(&out);
}

static void test_too_many_files(void **state)
{
    (void)state;
    struct snapshot s = sample();
    struct buf out;
    buf_init(&out, SNAPSHOT_MAX);
    s.nfiles = SNAPSHOT_FILES_MAX + 1;
    assert_int_equal(snapshot_pack(&s, &out), -1);
    buf_done(&out);
}

static void test_no_room(void **state)
{
    (void)state;
    struct snapshot s = sample();
    struct buf out;
    buf_init(&out, 32);
    assert_int_equal(snapshot_pack(&s, &out), -1);
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_roots_once),
        cmocka_unit_test(test_cut_and_surplus), cmocka_unit_test(test_too_many_files),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
