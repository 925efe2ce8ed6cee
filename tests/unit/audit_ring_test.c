/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring between two processes: nothing taken is lost whenever the writer dies, no wake-up is lost, an open can
 * always be closed. */
#include "audit_lab.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct sink *open_sink(int fd, int *ret_wake, int *ret_done)
{
    struct err err = { "" };
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sink *s = sink_open(dup(fd), dup(wake), dup(done), &err);
    if (!s)
        fail_msg("%s", err.text);
    *ret_wake = wake;
    *ret_done = done;
    return s;
}

/* n-th event of a writer: its number, and a text whose length and bytes follow from it. */
static void numbered(struct event *e, uint64_t i)
{
    char text[600];
    size_t n = (size_t)(i * 7919 % sizeof text);
    memset(text, (int)('a' + i % 26), sizeof text);
    event_init(e, EVENT_LIFECYCLE);
    event_put_u64(e, FIELD_COUNT, i);
    event_put_str(e, FIELD_MESSAGE, str_of(text, n));
}
static void check_numbered(const unsigned char *bytes, size_t n, uint64_t i)
{
    static struct event expect;
    numbered(&expect, i);
    assert_int_equal(n, expect.n);
    assert_memory_equal(bytes + EVENT_HEAD, expect.bytes + EVENT_HEAD, n - EVENT_HEAD);
}

static void test_seals(void **state)
{
    (void)state;
    struct err err = { "" };
    assert_int_equal(sink_ring_new(1000, &err), -1);
    assert_int_equal(sink_ring_new(RING_MIN_BYTES + 4096, &err), -1);
    int fd = sink_ring_new(RING_MIN_BYTES, &err);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    struct ring r;
    assert_int_equal(ring_map(fd, &r, &err), 0);
    ring_unmap(&r);
    close(fd);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, RING_HEAD_BYTES + RING_MIN_BYTES), 0);
    assert_int_equal(ring_map(fd, &r, &err), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(ring_map(fd, &r, &err), -1); /* sealed, but all zeros */
    close(fd);
}

/* The child writes and, after each sink_write, counts in shared memory; it is killed at a random instant. Every event
 * it counted is there, whole; at most one more (taken, not yet counted). */
static void test_killed_writer_loses_nothing(void **state)
{
    (void)state;
    volatile uint64_t *taken = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static unsigned char out[EVENT_MAX];
    uint64_t total = 0;
    unsigned seed = 1;
    for (int round = 0; round < 200; round++) {
        struct err err = { "" };
        int fd = sink_ring_new(1 << 20, &err), wake, done;
        *taken = 0;
        struct sink *s = open_sink(fd, &wake, &done);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            static struct event e;
            for (uint64_t i = 0;; i++) {
                numbered(&e, i);
                while (sink_write(s, &e, false))
                    ;
                *taken = i + 1;
            }
        }
        struct ring_reader rd;
        assert_int_equal(ring_reader_init(&rd, fd, &err), 0);
        seed = seed * 1103515245 + 12345;
        uint64_t until = clock_mono_us() + 200 + seed / 65536 % 3000, n = 0;
        size_t size;
        while (clock_mono_us() < until) {
            while (ring_reader_next(&rd, out, &size) == RING_RECORD)
                check_numbered(out, size, n++);
            ring_reader_commit(&rd);
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        enum ring_next next;
        while ((next = ring_reader_next(&rd, out, &size)) == RING_RECORD)
            check_numbered(out, size, n++);
        assert_int_equal(next, RING_EMPTY);
        if (n != *taken && n != *taken + 1)
            fail_msg("round %d: %llu taken, %llu found", round, (unsigned long long)*taken, (unsigned long long)n);
        total += n;
        ring_reader_done(&rd);
        sink_free(&s);
        close(fd);
        close(wake);
        close(done);
    }
    assert_true(total > 1000);
    munmap((void *)(uintptr_t)taken, 4096);
}

/* The reader sleeps for real (poll, no timeout short of failure) and the writer stops at odd moments: a lost wake-up
 * would end in that timeout. */
static void test_no_lost_wakeup(void **state)
{
    (void)state;
    enum { EVENTS = 60000 };
    struct err err = { "" };
    int fd = sink_ring_new(1 << 16, &err), wake, done;
    struct sink *s = open_sink(fd, &wake, &done);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        static struct event e;
        for (uint64_t i = 0; i < EVENTS; i++) {
            numbered(&e, i);
            while (sink_write(s, &e, false)) {
                struct pollfd p = { .fd = done, .events = POLLIN };
                uint64_t n;
                if (poll(&p, 1, 10000) != 1) /* told that there is room: the other direction's wake-up */
                    _exit(3);
                (void)!read(done, &n, sizeof n);
            }
            if (i % 5) /* bursts, and between them a wait for the reader: whoever was not woken is not rescued by the
                          next */
                continue;
            uint64_t until = clock_mono_ms() + 5000;
            while (sink_written(s) != sink_position(s))
                if (clock_mono_ms() > until)
                    _exit(4);
            for (volatile unsigned k = 0; k < i % 700; k++)
                ;
        }
        _exit(0);
    }
    struct ring_reader rd;
    static unsigned char out[EVENT_MAX];
    assert_int_equal(ring_reader_init(&rd, fd, &err), 0);
    uint64_t n = 0, sleeps = 0;
    size_t size;
    while (n < EVENTS) {
        while (ring_reader_next(&rd, out, &size) == RING_RECORD)
            check_numbered(out, size, n++);
        ring_reader_commit(&rd);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_exchange(&rd.ring.head->want_room, 0)) {
            uint64_t one = 1;
            assert_int_equal(write(done, &one, sizeof one), sizeof one);
        }
        atomic_store(&rd.ring.head->sleeping, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (ring_reader_pending(&rd) || n == EVENTS) {
            atomic_store(&rd.ring.head->sleeping, 0);
            continue;
        }
        struct pollfd p = { .fd = wake, .events = POLLIN };
        uint64_t count;
        sleeps++;
        if (poll(&p, 1, 4000) != 1)
            fail_msg("a wake-up was lost after %llu events", (unsigned long long)n);
        (void)!read(wake, &count, sizeof count);
        atomic_store(&rd.ring.head->sleeping, 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(sleeps > 100); /* else it proved nothing */
    ring_reader_done(&rd);
    sink_free(&s);
    close(fd);
    close(wake);
    close(done);
}

/* Nobody reads. Opens until there is no room, then every one of them is closed, with closes far too big for it. */
static void test_every_open_can_be_closed(void **state)
{
    (void)state;
    struct err err = { "" };
    static struct event e;
    char id[16], big[2048];
    memset(big, 'p', sizeof big);
    int fd = sink_ring_new(RING_MIN_BYTES, &err), wake, done;
    struct sink *s = open_sink(fd, &wake, &done);
    unsigned opens = 0;
    for (;; opens++) {
        snprintf(id, sizeof id, "R%u", opens);
        lab_open_event(&e, id);
        if (sink_write(s, &e, false))
            break;
    }
    assert_in_range(opens, 40, 128);
    assert_false(sink_ready(s, 1, 1000));
    event_init(&e, EVENT_FINDING); /* nothing else may take a close's room */
    event_put_str(&e, FIELD_SENTENCE, str_of(big, 500));
    assert_int_equal(sink_write(s, &e, false), -1);
    for (unsigned i = 0; i < opens; i++) {
        snprintf(id, sizeof id, "R%u", i);
        lab_close_event(&e, id);
        event_put_str(&e, FIELD_HINT, str_of(big, 512));
        event_put_str(&e, FIELD_PATH, str_of(big, 2048));
        event_put_str(&e, FIELD_ORIGIN_ADDR, STR("192.0.2.1"));
        for (int k = 0; k < 120; k++) /* whatever its reservation holds is used, to the last byte */
            event_add(&e, FIELD_FINDINGS, STR("x"));
        assert_int_equal(sink_write(s, &e, true), 0);
    }
    assert_int_equal(sink_write(s, &e, true), -1); /* no reservation, no room */
    struct ring_reader rd;
    static unsigned char out[EVENT_MAX];
    static struct record r;
    size_t n;
    unsigned closes = 0, whole = 0;
    assert_int_equal(ring_reader_init(&rd, fd, &err), 0);
    while (ring_reader_next(&rd, out, &n) == RING_RECORD) {
        assert_true(record_decode(out, n, &r));
        if (r.type != EVENT_CLOSE)
            continue;
        snprintf(id, sizeof id, "R%u", closes++);
        assert_true(str_eq(record_str(&r, FIELD_REQUEST_ID), str_c(id)));
        assert_true(str_eq(record_str(&r, FIELD_END), STR("ok")));
        assert_true(str_eq(record_str(&r, FIELD_ORIGIN_ADDR), STR("192.0.2.1")));
        whole += !(r.flags & EVENT_FLAG_COMPACT);
    }
    assert_int_equal(closes, opens);
    assert_true(whole < opens);
    ring_reader_done(&rd);
    sink_free(&s);
    close(fd);
    close(wake);
    close(done);
}

/* A squeezed close has, in its line, what its open said. */
static void test_squeezed_close_is_completed(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    char id[16];
    static struct event e;
    unsigned opens = 0;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    for (;; opens++) {
        snprintf(id, sizeof id, "R%u", opens);
        lab_open_event(&e, id);
        if (sink_write(ring.sink, &e, false))
            break;
    }
    for (unsigned i = 0; i < opens; i++) {
        char hint[512];
        memset(hint, 'h', sizeof hint);
        snprintf(id, sizeof id, "R%u", i);
        lab_close_event(&e, id);
        event_put_str(&e, FIELD_HINT, str_of(hint, sizeof hint));
        assert_int_equal(sink_write(ring.sink, &e, true), 0);
    }
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_settle(&lab, &ring);
    json_t *all = lab_lines(&lab), *line;
    size_t i, closes = 0, squeezed = 0;
    json_array_foreach(all, i, line)
    {
        if (strcmp(lab_text(line, "type"), "close"))
            continue;
        closes++;
        assert_string_equal(lab_text(line, "host"), "api.test");
        assert_string_equal(lab_text(line, "path"), "/user?z=1");
        assert_string_equal(lab_text(line, "agent"), "coder");
        assert_int_equal(json_integer_value(json_object_get(line, "port")), 443);
        assert_string_equal(json_string_value(json_array_get(json_object_get(line, "credentials"), 0)), "github");
        assert_int_equal(json_array_size(json_object_get(line, "credentials")), 1);
        assert_string_equal(lab_text(line, "end"), "ok");
        squeezed += !json_object_get(line, "hint");
    }
    assert_int_equal(closes, opens);
    assert_true(squeezed > 0);
    json_decref(all);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_ready(void **state)
{
    (void)state;
    struct err err = { "" };
    static struct event e;
    int fd = sink_ring_new(RING_MIN_BYTES, &err), wake, done;
    struct sink *s = open_sink(fd, &wake, &done);
    struct ring_reader rd;
    static unsigned char out[EVENT_MAX];
    size_t n;
    assert_int_equal(ring_reader_init(&rd, fd, &err), 0);
    assert_true(sink_ready(s, 1000, 100));
    lab_open_event(&e, "R");
    assert_int_equal(sink_write(s, &e, false), 0);
    assert_true(sink_ready(s, 5000, 100)); /* waiting since now, not since the last look */
    assert_true(sink_ready(s, 5100, 100));
    assert_false(sink_ready(s, 5101, 100));
    assert_int_equal(ring_reader_next(&rd, out, &n), RING_RECORD);
    ring_reader_commit(&rd);
    assert_true(sink_ready(s, 9000, 100));
    assert_int_equal(sink_write(s, &e, false), 0); /* progress between two looks counts */
    assert_true(sink_ready(s, 9050, 100));
    assert_int_equal(ring_reader_next(&rd, out, &n), RING_RECORD);
    ring_reader_commit(&rd);
    assert_int_equal(sink_write(s, &e, false), 0);
    assert_true(sink_ready(s, 9160, 100));
    assert_int_equal(ring_reader_next(&rd, out, &n), RING_RECORD);
    ring_reader_commit(&rd);
    atomic_store(&rd.ring.head->blocked, 1); /* the disk is full */
    assert_false(sink_ready(s, 9200, 100));
    assert_int_equal(atomic_load(&rd.ring.head->want_room), 1);
    assert_int_equal(sink_write(s, &e, false), 0); /* what is decided is still taken */
    atomic_store(&rd.ring.head->blocked, 0);
    assert_true(sink_ready(s, 9201, 100));
    ring_reader_done(&rd);
    sink_free(&s);
    close(fd);
    close(wake);
    close(done);
}

static bool told(int fd)
{
    uint64_t n;
    return read(fd, &n, sizeof n) == sizeof n;
}

/* Most of the ring is promised to closes: it has no room for more work long before it is half full, and then a logger
 * that dozes (it says not that it sleeps) is told so: once, and again when there is more for it to take. */
static void test_no_room_wakes_a_dozing_logger(void **state)
{
    (void)state;
    struct err err = { "" };
    static struct event e;
    char id[16];
    int fd = sink_ring_new(RING_MIN_BYTES, &err), wake, done, events = 0;
    struct sink *s = open_sink(fd, &wake, &done);
    struct ring_reader rd;
    static unsigned char out[EVENT_MAX];
    size_t n;
    assert_int_equal(ring_reader_init(&rd, fd, &err), 0);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "R%d", i);
        lab_open_event(&e, id);
        assert_int_equal(sink_write(s, &e, false), 0);
    }
    for (event_init(&e, EVENT_LIFECYCLE); sink_ready(s, 1, 1000); events++) {
        assert_false(told(wake)); /* a write costs no system call */
        assert_int_equal(sink_write(s, &e, false), 0);
    }
    assert_true(events > 0 && sink_position(s) < RING_MIN_BYTES / 2);
    assert_true(told(wake));
    assert_false(sink_ready(s, 1, 1000));
    assert_false(told(wake));
    assert_int_equal(sink_write(s, &e, false), 0);
    assert_false(sink_ready(s, 1, 1000));
    assert_true(told(wake));
    while (ring_reader_next(&rd, out, &n) == RING_RECORD)
        ;
    ring_reader_commit(&rd);
    assert_int_equal(atomic_exchange(&rd.ring.head->want_room, 0), 1);
    assert_true(sink_ready(s, 1, 1000));
    assert_false(told(wake));
    ring_reader_done(&rd);
    sink_free(&s);
    close(fd);
    close(wake);
    close(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seals),
        cmocka_unit_test(test_killed_writer_loses_nothing),
        cmocka_unit_test(test_no_lost_wakeup),
        cmocka_unit_test(test_every_open_can_be_closed),
        cmocka_unit_test(test_squeezed_close_is_completed),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_no_room_wakes_a_dozing_logger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
