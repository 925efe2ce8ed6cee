/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk that fails, and a logger that is killed. The system calls that touch the segments are replaced here, in the
 * test's own program, so that they fail on demand; everything else passes through. */
#include "audit_lab.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct {
    int sync_errno;     /* fdatasync fails once with it */
    int write_errno;    /* writes to segments fail with it ... */
    size_t write_bytes; /* ... after so many bytes */
    bool write_once;
    bool no_truncate;
} faults;

int fdatasync(int fd)
{
    if (faults.sync_errno) {
        errno = faults.sync_errno;
        faults.sync_errno = 0;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t size)
{
    if (faults.no_truncate) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, size);
}

ssize_t write(int fd, const void *p, size_t n)
{
    int flags = faults.write_errno ? fcntl(fd, F_GETFL) : 0;
    if (flags & O_APPEND) { /* a segment */
        if (!faults.write_bytes) {
            errno = faults.write_errno;
            if (faults.write_once)
                faults.write_errno = 0;
            return -1;
        }
        n = n < faults.write_bytes ? n : faults.write_bytes;
        faults.write_bytes -= n;
    }
    return (ssize_t)syscall(SYS_write, fd, p, n);
}

static void setup(struct lab *lab, struct lab_ring *ring, bool sync_always)
{
    memset(&faults, 0, sizeof faults);
    lab_init(lab, "/tmp");
    lab->options.sync_always = sync_always;
    lab_start(lab);
    lab_ring_init(lab, ring, 1 << 20);
    lab_ring_add(lab, ring, "worker", 0, 1);
    lab_write(ring, EVENT_CLOSE, "BEFORE");
    lab_settle(lab, ring);
}

static void write_some(struct lab_ring *ring, int n)
{
    static struct event e;
    char id[16];
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "R%d", i);
        lab_close_event(&e, id);
        assert_int_equal(sink_write(ring->sink, &e, false), 0);
    }
}

/* Each of n written exactly once, and the log is whole (segments 0: however many). */
static void finish(struct lab *lab, struct lab_ring *ring, int n, int segments, const char *note)
{
    struct dirent **v;
    lab_stop(lab);
    json_t *all = lab_lines(lab), *line;
    size_t i;
    int next = 0;
    json_array_foreach(all, i, line)
    {
        char id[16];
        if (strcmp(lab_text(line, "type"), "close") || !strcmp(lab_text(line, "request_id"), "BEFORE"))
            continue;
        snprintf(id, sizeof id, "R%d", next++);
        assert_string_equal(lab_text(line, "request_id"), id);
    }
    json_decref(all);
    assert_int_equal(next, n);
    int k = lab_segments(lab, &v);
    if (segments)
        assert_int_equal(k, segments);
    lab_segments_free(v, k);
    assert_true(lab_count(lab, "lifecycle", "what", note) >= 1);
    assert_verifies(lab);
    lab_ring_done(ring);
    lab_done(lab);
}

static void test_sync_always_writes_again(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    setup(&lab, &ring, true);
    faults.sync_errno = EIO;
    write_some(&ring, 5);
    uint64_t before = sink_synced(ring.sink);
    for (int i = 0; i < 3000 && faults.sync_errno; i++)
        loop_run_once(lab.loop, 10);
    assert_true(sink_synced(ring.sink) == before); /* nobody was told */
    lab_settle(&lab, &ring);
    assert_true(sink_synced(ring.sink) == sink_position(ring.sink));
    assert_true(sink_ready(ring.sink, 1, 1000));
    finish(&lab, &ring, 5, 2, "sync_failed");
}

static void test_period_sync_failure_is_said(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    setup(&lab, &ring, false);
    write_some(&ring, 5);
    lab_settle(&lab, &ring);
    faults.sync_errno = EIO;
    for (int i = 0; i < 3000 && faults.sync_errno; i++)
        loop_run_once(lab.loop, 10);
    assert_int_equal(faults.sync_errno, 0);
    loop_run_once(lab.loop, 10);
    finish(&lab, &ring, 5, 2, "sync_failed");
}

/* The write fails at every place of the batch: at a line's edge, within a line, at once. */
static void test_write_error(void **state)
{
    (void)state;
    for (int no_truncate = 0; no_truncate < 2; no_truncate++) {
        static const size_t places[] = { 0, 311, 700, 1500 };
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            struct lab lab;
            struct lab_ring ring;
            setup(&lab, &ring, k % 2);
            faults.write_errno = EIO;
            faults.write_bytes = places[k];
            faults.write_once = true;
            faults.no_truncate = no_truncate;
            write_some(&ring, 6);
            for (int i = 0; i < 3000 && faults.write_errno; i++)
                loop_run_once(lab.loop, 10);
            assert_int_equal(faults.write_errno, 0);
            lab_settle(&lab, &ring);
            faults.no_truncate = false;
            /* a torn line that could not be cut off is in no line reader's way but lab_lines': it has no LF */
            finish(&lab, &ring, 6, 2, "write_failed");
        }
    }
}

static void test_no_space_goes_on_in_the_same_file(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    struct logger_stats stats;
    setup(&lab, &ring, false);
    faults.write_errno = ENOSPC;
    faults.write_bytes = 700;
    write_some(&ring, 6);
    for (int i = 0; i < 20; i++)
        loop_run_once(lab.loop, 10);
    logger_stats(lab.logger, &stats);
    assert_true(stats.blocked);
    assert_false(sink_ready(ring.sink, 1, 60000));
    assert_verifies(&lab); /* half a line at the end is no fault while it is written */
    faults.write_errno = 0;
    lab_settle(&lab, &ring);
    logger_stats(lab.logger, &stats);
    assert_false(stats.blocked);
    assert_true(sink_ready(ring.sink, 1, 60000));
    finish(&lab, &ring, 6, 1, "audit_resumed");
}

/* The logger is killed at random moments while a writer goes on; the next one takes over the same ring. Every record is
 * in the log exactly once, in order. */
static void test_killed_logger(void **state)
{
    (void)state;
    enum { ROUNDS = 40 };
    struct lab lab;
    struct lab_ring ring;
    static struct event e;
    memset(&faults, 0, sizeof faults);
    lab_init(&lab, "/tmp");
    lab_ring_init(&lab, &ring, 1 << 20);
    unsigned seed = 7;
    int n = 0;
    char id[16];
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            struct loop *own = loop_new();
            lab.loop = own;
            lab_start(&lab);
            lab_ring_add(&lab, &ring, "worker", 0, 1);
            for (;;)
                loop_run_once(own, 1);
        }
        seed = seed * 1103515245 + 12345;
        uint64_t until = clock_mono_us() + 3000 + seed / 65536 % 20000;
        while (clock_mono_us() < until) {
            snprintf(id, sizeof id, "R%d", n);
            lab_close_event(&e, id);
            if (sink_write(ring.sink, &e, false) == 0)
                n++;
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    lab_start(&lab);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_settle(&lab, &ring);
    assert_true(n > 1000);
    finish(&lab, &ring, n, 0, "audit_started");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_always_writes_again),
        cmocka_unit_test(test_period_sync_failure_is_said),
        cmocka_unit_test(test_write_error),
        cmocka_unit_test(test_no_space_goes_on_in_the_same_file),
        cmocka_unit_test(test_killed_logger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
