/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/budget_file.h"

#include "dns/name_cost.h"
#include "tests/lib/budget_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const struct budget_limits limits = {
    .bits = 1000, .refill = 0, .agent_bits = 10000, .agent_refill = 0, .zones = 50, .unsaved = 20
};

static struct budget *fresh(void)
{
    struct budget *b = budget_new(&limits, 1, NULL);
    assert_non_null(b);
    return b;
}

static void charge(struct budget *b, unsigned bits)
{
    static unsigned n;
    char name[32];
    struct budget_account a;
    snprintf(name, sizeof name, "x%u.z.test", n++);
    struct budget_event e = { .agent = STR("a"), .zone = STR("z.test"), .name = str_c(name), .in_zone = bits * COST_BIT };
    assert_int_equal(budget_charge(b, &e, 1, &a), BUDGET_OK);
}

/* What a process that starts now finds spent. */
static uint32_t found(int fd, enum budget_state want)
{
    struct budget *b = fresh();
    struct budget_file f;
    struct err err;
    assert_int_equal(budget_file_open(&f, fd, b, 1, &err), want);
    uint32_t n = budget_spent(b, STR("a"), STR("z.test"), 1);
    budget_free(&b);
    return n;
}

/* Of a damaged file: half of every account is spent, also of those that are not in it. */
static void half_spent(int fd)
{
    struct budget *b = fresh();
    struct budget_file f;
    struct err err;
    struct budget_account a;
    struct budget_event e = { .agent = STR("a"), .zone = STR("z.test"), .name = STR("x.z.test"), .in_zone = 600 * COST_BIT };
    assert_int_equal(budget_file_open(&f, fd, b, 1, &err), BUDGET_STATE_DAMAGED);
    assert_int_equal(budget_charge(b, &e, 1, &a), BUDGET_ZONE_SPENT);
    e.in_zone = 400 * COST_BIT;
    assert_int_equal(budget_charge(b, &e, 1, &a), BUDGET_OK);
    budget_free(&b);
}

static int new_file(void)
{
    int fd = memfd_create("budgets", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void flip(int fd, off_t at)
{
    unsigned char c;
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x40;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
}

static void test_by_turns(void **state)
{
    (void)state;
    struct budget *b = fresh();
    struct budget_file f;
    struct err err;
    int fd = new_file();
    assert_int_equal(found(fd, BUDGET_STATE_WHOLE), 0); /* a new one */
    assert_int_equal(budget_file_open(&f, fd, b, 1, &err), BUDGET_STATE_WHOLE);
    uint32_t before = 0;
    for (int i = 0; i < 5; i++) {
        charge(b, 30);
        budget_disk_save(&f, b, false, 1);
        uint32_t n = found(fd, BUDGET_STATE_NOT_LAST);
        assert_true(n >= before + 30); /* the newest, whichever place it is in */
        before = n;
    }
    budget_disk_save(&f, b, true, 1);
    assert_int_equal(found(fd, BUDGET_STATE_WHOLE), budget_spent(b, STR("a"), STR("z.test"), 1));
    budget_free(&b);
    close(fd);
}

/* The write that a crash cut in two: the one before it counts, with what may have gone since. Any byte may be the one that broke. */
static void test_torn(void **state)
{
    (void)state;
    struct budget *b = fresh();
    struct budget_file f;
    struct err err;
    int fd = new_file();
    assert_int_equal(budget_file_open(&f, fd, b, 1, &err), BUDGET_STATE_WHOLE);
    charge(b, 100);
    budget_disk_save(&f, b, false, 1); /* number 1, in the second place */
    uint32_t first = found(fd, BUDGET_STATE_NOT_LAST);
    charge(b, 100);
    budget_disk_save(&f, b, false, 1); /* number 2, in the first */
    uint32_t second = found(fd, BUDGET_STATE_NOT_LAST);
    assert_true(second > first);
    for (off_t at = 0; at < BUDGET_FILE_HEAD + 100; at++) {
        flip(fd, at);
        assert_int_equal(found(fd, BUDGET_STATE_NOT_LAST), first);
        flip(fd, at);
    }
    assert_int_equal(found(fd, BUDGET_STATE_NOT_LAST), second); /* the control: as it was */
    flip(fd, 8);
    flip(fd, BUDGET_FILE_PLACE + 8);
    half_spent(fd); /* none is whole */
    budget_free(&b);
    close(fd);
}

static void test_no_file(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    half_spent(fds[0]);
    close(fds[0]);
    close(fds[1]);
}

/* One that was not written: it is as unsaved as before, and the next goes to the same place. */
static void test_not_kept(void **state)
{
    (void)state;
    struct budget *b = fresh();
    struct budget_file f;
    struct err err;
    struct buf bytes;
    uint64_t first, second;
    int fd = new_file();
    buf_init(&bytes, BUDGET_FILE_PLACE);
    assert_int_equal(budget_file_open(&f, fd, b, 1, &err), BUDGET_STATE_WHOLE);
    charge(b, 15);
    assert_int_equal(budget_file_put(&f, b, false, 1, &bytes, &first, &err), 0);
    charge(b, 10);
    assert_true(budget_must_save(b)); /* 25 of 20 bits are in no file, whatever is being written */
    budget_file_kept(&f, b, false);
    assert_true(budget_must_save(b));
    assert_int_equal(budget_file_put(&f, b, false, 1, &bytes, &second, &err), 0);
    assert_int_equal(first, second);
    budget_file_kept(&f, b, true);
    assert_int_equal(budget_unsaved(b), 0); /* the control */
    assert_int_equal(budget_file_put(&f, b, false, 1, &bytes, &second, &err), 0);
    assert_true(first != second);
    buf_done(&bytes);
    budget_free(&b);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_turns),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
