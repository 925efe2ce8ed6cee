/* SPDX-License-Identifier: Apache-2.0 */
#include "base/saver.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* The disk: this one is what the code under test syncs with. Hangs until it is let go. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static atomic_int syncs;
int fdatasync(int fd)
{
    (void)fd;
    pthread_mutex_lock(&lock);
    while (hangs)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    syncs++;
    return 0;
}

static void disk_hangs(bool yes)
{
    pthread_mutex_lock(&lock);
    hangs = yes;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

struct end {
    int calls, error;
};

static void on_end(void *ctx, int error)
{
    struct end *e = ctx;
    e->calls++;
    e->error = error;
}

static struct end run(struct loop *l, struct saver *s, struct end *e, int fd, uint64_t at, struct str bytes)
{
    *e = (struct end) { 0 };
    saver_start(s, fd, at, bytes);
    while (e->calls == 0)
        loop_run_once(l, 1000);
    assert_false(saver_busy(s));
    return *e;
}

static int file(void)
{
    int fd = memfd_create("saver", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_saves(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct end e;
    struct saver *s = saver_new(l, on_end, &e, NULL);
    char got[16] = "";
    int fd = file(), pipes[2], before = syncs;
    assert_non_null(s);
    assert_int_equal(run(l, s, &e, fd, 4, STR("abcd")).error, 0);
    assert_int_equal(run(l, s, &e, fd, 0, STR("0123")).error, 0);
    assert_int_equal(pread(fd, got, sizeof got, 0), 8);
    assert_string_equal(got, "0123abcd");
    assert_int_equal(syncs, before + 2);
    assert_int_equal(e.calls, 1);
    /* What cannot be written is told, and the next is written. */
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(run(l, s, &e, pipes[1], 0, STR("x")).error, ESPIPE);
    assert_int_equal(run(l, s, &e, -1, 0, STR("x")).error, EBADF);
    assert_int_equal(run(l, s, &e, fd, 0, STR("x")).error, 0);
    assert_true(saver_free(&s));
    assert_null(s);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
    loop_free(l);
}

/* The loop goes on while the disk hangs; who must end waits for so long and no longer. */
static void test_hangs(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct end e = { 0 };
    struct saver *s = saver_new(l, on_end, &e, NULL);
    int fd = file();
    disk_hangs(true);
    saver_start(s, fd, 0, STR("abcd"));
    for (int i = 0; i < 20; i++)
        loop_run_once(l, 1);
    assert_true(saver_busy(s) && e.calls == 0);
    assert_int_equal(saver_wait(s, 5), ETIMEDOUT);
    assert_true(saver_busy(s));
    disk_hangs(false);
    assert_int_equal(saver_wait(s, 60000), 0); /* the control */
    assert_false(saver_busy(s));
    loop_run_once(l, 0);
    assert_int_equal(e.calls, 0); /* who waited knows */
    assert_int_equal(run(l, s, &e, fd, 0, STR("x")).error, 0);
    assert_true(saver_free(&s));
    /* One that hangs at the end is left behind. */
    s = saver_new(l, on_end, &e, NULL);
    disk_hangs(true);
    saver_start(s, fd, 0, STR("abcd"));
    assert_false(saver_free(&s));
    assert_null(s);
    int before = syncs;
    disk_hangs(false);
    while (syncs == before)
        usleep(100);
    loop_free(l);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves),
        cmocka_unit_test(test_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
