/* SPDX-License-Identifier: Apache-2.0 */
#include "audit_lab.h"

#include "tests/fakes/clock_fake.c"

#include <sys/mount.h>
#include <sys/wait.h>

/* Bytes allocated for the one segment. */
static long long lab_blocks(const struct lab *lab)
{
    struct dirent **v;
    struct stat st;
    char path[512];
    int n = lab_segments(lab, &v);
    assert_int_equal(n, 1);
    snprintf(path, sizeof path, "%s/%s", lab->audit, v[0]->d_name);
    assert_int_equal(stat(path, &st), 0);
    lab_segments_free(v, n);
    return (long long)st.st_blocks * 512;
}

static void test_open_and_close_become_lines(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 2, 1);
    lab_write(&ring, EVENT_OPEN, "R1");
    lab_write(&ring, EVENT_CLOSE, "R1");
    lab_settle(&lab, &ring);
    assert_true(lab_blocks(&lab) > 65536); /* room for what is open, and more, is there */
    logger_flush(lab.logger);              /* a role that ends frees nothing */
    json_t *all = lab_lines(&lab), *line;
    size_t i, closes = 0;
    const char *id = "";
    json_array_foreach(all, i, line)
    {
        assert_int_equal(json_integer_value(json_object_get(line, "seq")), i + 1);
        assert_true(strcmp(lab_text(line, "id"), id) > 0);
        id = lab_text(line, "id");
        if (strcmp(lab_text(line, "type"), "close"))
            continue;
        closes++;
        assert_string_equal(lab_text(line, "host"), "api.test");
        assert_string_equal(lab_text(line, "end"), "ok");
        assert_string_equal(lab_text(line, "role"), "worker");
        assert_int_equal(json_integer_value(json_object_get(line, "worker")), 2);
        assert_int_equal(json_array_size(json_object_get(line, "findings")), 0);
        assert_true(json_is_array(json_object_get(line, "findings")));
    }
    assert_int_equal(closes, 1);
    json_decref(all);
    assert_int_equal(lab_count(&lab, "open", "request_id", "R1"), 1);
    assert_true(lab_blocks(&lab) < 32768);
    assert_int_equal(lab_count(&lab, "checkpoint", NULL, NULL), 1);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "audit_stopped"), 1);
    assert_verifies(&lab);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_segment_files(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    lab_init(&lab, "/tmp");
    lab.options.segment_bytes = 20000;
    mode_t old = umask(077);
    lab_start(&lab);
    lab_ring_init(&lab, &ring, 1 << 20);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    for (int i = 0; i < 100; i++) {
        char id[16];
        snprintf(id, sizeof id, "R%d", i);
        lab_write(&ring, EVENT_OPEN, id);
        lab_write(&ring, EVENT_CLOSE, id);
        lab_settle(&lab, &ring);
    }
    lab_stop(&lab);
    umask(old);
    struct dirent **v;
    int n = lab_segments(&lab, &v);
    assert_true(n >= 3);
    for (int i = 0; i < n; i++) {
        struct stat st;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", lab.audit, v[i]->d_name);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        assert_true(st.st_blocks * 512 < st.st_size + 65536); /* nothing stays allocated ahead */
    }
    lab_segments_free(v, n);
    assert_verifies(&lab);
    assert_int_equal(lab_count(&lab, "close", NULL, NULL), 100);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_chain_goes_on_after_restart(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    lab_init(&lab, "/tmp");
    for (unsigned i = 0; i < 3; i++) {
        lab_start(&lab);
        lab_ring_init(&lab, &ring, RING_MIN_BYTES);
        lab_ring_add(&lab, &ring, "worker", 0, i);
        lab_write(&ring, EVENT_CLOSE, "R");
        lab_settle(&lab, &ring);
        assert_verifies(&lab); /* while it runs */
        lab_stop(&lab);
        lab_ring_done(&ring);
    }
    assert_verifies(&lab);
    assert_int_equal(lab_count(&lab, "close", NULL, NULL), 3);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "chain_broken"), 0);
    struct dirent **v;
    int n = lab_segments(&lab, &v);
    assert_int_equal(n, 1);
    lab_segments_free(v, n);
    lab_done(&lab);
}

/* A logger that was killed (no flush), its last line cut at every byte. */
static void test_torn_line(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < 400; cut += 37) {
        struct lab lab;
        struct lab_ring ring;
        struct dirent **v;
        size_t size;
        lab_init(&lab, "/tmp");
        lab_start(&lab);
        lab_ring_init(&lab, &ring, RING_MIN_BYTES);
        lab_ring_add(&lab, &ring, "worker", 0, 1);
        for (int i = 0; i < 3; i++)
            lab_write(&ring, EVENT_CLOSE, "R");
        lab_settle(&lab, &ring);
        logger_free(&lab.logger);
        int n = lab_segments(&lab, &v);
        char *text = lab_read(lab.audit, v[0]->d_name, &size);
        /* zeros behind it, as after a power cut, every other time */
        size_t pad = cut % 2 ? 0 : 5000;
        char *p = calloc(1, size + pad);
        memcpy(p, text, size - cut);
        lab_put(lab.audit, v[0]->d_name, p, size - cut + pad);
        free(p);
        free(text);
        lab_segments_free(v, n);
        lab_start(&lab);
        lab_stop(&lab);
        assert_int_equal(lab_count(&lab, "close", NULL, NULL), 2);
        assert_int_equal(lab_count(&lab, "lifecycle", "what", "torn_line"), 1);
        assert_verifies(&lab);
        bool torn = false;
        DIR *d = opendir(lab.audit);
        for (struct dirent *e; (e = readdir(d));)
            torn |= strstr(e->d_name, ".torn") != NULL;
        closedir(d);
        assert_true(torn);
        lab_ring_done(&ring);
        lab_done(&lab);
    }
}

static void test_dead_writer_is_closed(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring, other;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_init(&lab, &other, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_ring_add(&lab, &other, "worker", 1, 1);
    lab_write(&ring, EVENT_OPEN, "A");
    lab_write(&ring, EVENT_OPEN, "B");
    lab_write(&ring, EVENT_OPEN, "C");
    lab_write(&ring, EVENT_CLOSE, "B");
    lab_write(&other, EVENT_OPEN, "D");
    lab_write(&other, EVENT_CLOSE, "A"); /* nobody closes another's exchange */
    logger_ring_died(lab.logger, "worker", 0, 1);
    logger_flush(lab.logger);
    json_t *all = lab_lines(&lab), *line;
    size_t i, died = 0;
    json_array_foreach(all, i, line)
    {
        if (strcmp(lab_text(line, "end"), "worker_died"))
            continue;
        died++;
        assert_string_equal(lab_text(line, "type"), "close");
        assert_string_equal(lab_text(line, "request_id"), died == 1 ? "A" : "C");
        assert_string_equal(lab_text(line, "host"), "api.test");
        assert_string_equal(lab_text(line, "rule"), "github");
        assert_string_equal(lab_text(line, "verdict"), "allow");
        assert_string_equal(json_string_value(json_array_get(json_object_get(line, "credentials"), 0)), "github");
    }
    assert_int_equal(died, 2);
    json_decref(all);
    assert_verifies(&lab);
    sink_free(&ring.sink);
    lab_ring_done(&ring);
    lab_ring_done(&other);
    lab_done(&lab);
}

/* The logger is killed while a worker has exchanges open: a new logger with the same ring neither closes nor repeats
 * them; for a worker that did not come back it does. */
static void test_logger_restart_keeps_opens(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring, gone;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_init(&lab, &gone, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_ring_add(&lab, &gone, "worker", 1, 1);
    lab_write(&ring, EVENT_OPEN, "A");
    lab_write(&gone, EVENT_OPEN, "B");
    lab_settle(&lab, &ring);
    lab_settle(&lab, &gone);
    logger_free(&lab.logger);
    lab_write(&ring, EVENT_OPEN, "C"); /* taken while there is no logger */
    lab_start(&lab);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    logger_ring_died(lab.logger, "worker", 1, 1);
    lab_settle(&lab, &ring);
    for (int i = 0; i < 200 && !lab_count(&lab, "close", "request_id", "B"); i++)
        loop_run_once(lab.loop, 10);
    assert_int_equal(lab_count(&lab, "close", NULL, NULL), 1);
    assert_int_equal(lab_count(&lab, "close", "end", "worker_died"), 1);
    assert_int_equal(lab_count(&lab, "open", NULL, NULL), 3);
    lab_write(&ring, EVENT_CLOSE, "A");
    lab_settle(&lab, &ring);
    logger_ring_died(lab.logger, "worker", 0, 1);
    logger_flush(lab.logger);
    assert_int_equal(lab_count(&lab, "close", "request_id", "A"), 1);
    assert_int_equal(lab_count(&lab, "close", "end", "ok"), 1);
    assert_int_equal(lab_count(&lab, "close", "request_id", "C"), 1);
    assert_verifies(&lab);
    lab_ring_done(&ring);
    lab_ring_done(&gone);
    lab_done(&lab);
}

/* Killed between the write of a batch and giving the ring its room back: what the successor finds in pend_* tells it.
 */
static void test_written_batch_is_not_repeated(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    struct ring view;
    assert_int_equal(ring_map(ring.fd, &view, NULL), 0);
    uint64_t pos = atomic_load(&view.head->read_pos);
    struct logger_stats stats;
    for (int i = 0; i < 4; i++)
        loop_run_once(lab.loop, 1);
    logger_stats(lab.logger, &stats);
    for (int i = 0; i < 5; i++)
        lab_write(&ring, EVENT_CLOSE, "R");
    lab_settle(&lab, &ring);
    logger_free(&lab.logger);
    atomic_store(&view.head->read_pos, pos); /* as if it had not come to that */
    atomic_store(&view.head->pend_seq, stats.seq + 1);
    atomic_store(&view.head->pend_n, 5);
    lab_write(&ring, EVENT_CLOSE, "S");
    lab_start(&lab);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_settle(&lab, &ring);
    assert_int_equal(lab_count(&lab, "close", "request_id", "R"), 5);
    assert_int_equal(lab_count(&lab, "close", "request_id", "S"), 1);
    assert_verifies(&lab);
    ring_unmap(&view);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_hostile_ring(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring, good;
    static struct event e;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_init(&lab, &good, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_ring_add(&lab, &good, "worker", 1, 1);
    struct ring view;
    assert_int_equal(ring_map(ring.fd, &view, NULL), 0);
    event_init(&e, EVENT_CHECKPOINT); /* not a ring's */
    assert_int_equal(sink_write(ring.sink, &e, false), 0);
    event_init(&e, EVENT_LEASE); /* not a worker's */
    event_put_str(&e, FIELD_RESULT, STR("given"));
    assert_int_equal(sink_write(ring.sink, &e, false), 0);
    event_init(&e, EVENT_LEASE); /* the control: this one is */
    event_put_str(&e, FIELD_RESULT, STR("used"));
    assert_int_equal(sink_write(ring.sink, &e, false), 0);
    lab_settle(&lab, &ring);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "bad_record"), 2);
    assert_int_equal(lab_count(&lab, "lease", "result", "used"), 1);
    assert_true(sink_ready(ring.sink, 1, 2000));
    atomic_store(&view.head->write_pos, UINT64_MAX - 7); /* absurd */
    loop_run_once(lab.loop, 10);
    logger_flush(lab.logger);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "ring_broken"), 1);
    assert_int_equal(atomic_load(&view.head->blocked), 1);
    lab_write(&good, EVENT_CLOSE, "G"); /* the others go on */
    lab_settle(&lab, &good);
    assert_int_equal(lab_count(&lab, "close", "request_id", "G"), 1);
    assert_verifies(&lab);
    ring_unmap(&view);
    lab_ring_done(&ring);
    lab_ring_done(&good);
    lab_done(&lab);
}

static void test_sync_always_tells_the_writer(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    uint64_t n;
    lab_init(&lab, "/tmp");
    lab.options.sync_always = true;
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_write(&ring, EVENT_OPEN, "A");
    uint64_t position = sink_position(ring.sink);
    assert_true(sink_synced(ring.sink) < position);
    sink_want_sync(ring.sink, position);
    assert_true(read(ring.done_fd, &n, sizeof n) < 0);
    for (int i = 0; i < 500 && sink_synced(ring.sink) < position; i++)
        loop_run_once(lab.loop, 10);
    assert_true(sink_synced(ring.sink) >= position);
    assert_int_equal(read(ring.done_fd, &n, sizeof n), sizeof n);
    sink_want_sync(ring.sink, position); /* already there: told at once */
    assert_int_equal(read(ring.done_fd, &n, sizeof n), sizeof n);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_period_sync(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    lab_write(&ring, EVENT_CLOSE, "A");
    lab_settle(&lab, &ring);
    assert_true(sink_synced(ring.sink) < sink_position(ring.sink));
    for (int i = 0; i < 500 && sink_synced(ring.sink) < sink_position(ring.sink); i++)
        loop_run_once(lab.loop, 10);
    assert_true(sink_synced(ring.sink) == sink_position(ring.sink));
    lab_ring_done(&ring);
    lab_done(&lab);
}

/* A writer that never pauses: no record of its own waits longer than the period, the logger's doze included. */
static void period_holds(uint64_t sync_ms)
{
    struct lab lab;
    struct lab_ring ring;
    uint64_t position[1024] = { 0 };
    const uint64_t steps = 60 + 4 * sync_ms;
    bool waited = false;
    assert_true(steps <= 1024);
    lab_init(&lab, "/tmp");
    lab.options.sync_ms = sync_ms;
    lab_start(&lab);
    lab_ring_init(&lab, &ring, RING_MIN_BYTES);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    clock_fake_stand(0);
    for (uint64_t t = 0; t < steps; t++) {
        lab_write(&ring, EVENT_CLOSE, "A");
        position[t] = sink_position(ring.sink);
        clock_fake_advance_ms(1);
        for (int i = 0; i < 3; i++)
            loop_run_once(lab.loop, 0);
        if (t + 1 >= sync_ms && sink_synced(ring.sink) < position[t + 1 - sync_ms])
            fail_msg("sync: %d ms, and a record waits longer", (int)sync_ms);
        waited |= sink_synced(ring.sink) < position[t];
    }
    assert_true(waited || sync_ms <= 2); /* in periods, not always */
    clock_fake_run();
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_the_period_is_the_longest_wait(void **state)
{
    (void)state;
    const uint64_t periods[] = { 1, 2, 3, 10, 50, 200 };
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
        period_holds(periods[i]);
}

static void test_max_bytes_blocks_within_keep(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_ring ring;
    struct logger_stats stats;
    char id[16];
    int i = 0;
    lab_init(&lab, "/tmp");
    lab.options.segment_bytes = 16384;
    lab.options.max_bytes = 200000;
    lab_start(&lab);
    lab_ring_init(&lab, &ring, 1 << 20);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    assert_true(sink_ready(ring.sink, 1, 60000));
    for (; i < 1000 && sink_ready(ring.sink, 1, 60000); i++) {
        snprintf(id, sizeof id, "R%d", i);
        lab_write(&ring, EVENT_OPEN, id);
        lab_settle(&lab, &ring);
    }
    assert_in_range(i, 10, 999);
    logger_stats(lab.logger, &stats);
    assert_true(stats.blocked);
    assert_non_null(strstr(stats.blocked_why, "max_bytes"));
    for (int k = 0; k < i; k++) { /* what is open is closed all the same */
        snprintf(id, sizeof id, "R%d", k);
        lab_write(&ring, EVENT_CLOSE, id);
    }
    lab_settle(&lab, &ring);
    assert_int_equal(lab_count(&lab, "close", NULL, NULL), i);
    /* their room is free again; single closes use it up */
    for (int k = 0; k < 1000 && sink_ready(ring.sink, 1, 60000); k++) {
        lab_write(&ring, EVENT_CLOSE, "S");
        lab_settle(&lab, &ring);
    }
    assert_false(sink_ready(ring.sink, 1, 60000));
    /* once the old ones are past keep, it goes on by itself */
    lab.options.keep_ms = 0;
    logger_configure(lab.logger, &lab.options);
    usleep(1100000); /* segment names count seconds */
    logger_stats(lab.logger, &stats);
    for (int k = 0; k < 300 && stats.blocked; k++) {
        loop_run_once(lab.loop, 10);
        logger_stats(lab.logger, &stats);
    }
    assert_false(stats.blocked);
    assert_verifies(&lab); /* now, and not only when the anchor next moves */
    lab_stop(&lab);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "pruned"), 1);
    assert_verifies(&lab);
    lab_ring_done(&ring);
    lab_done(&lab);
}

static void test_disk_full(void **state)
{
    (void)state;
    char mount_point[] = "/tmp/outgate-full-XXXXXX";
    assert_non_null(mkdtemp(mount_point));
    if (mount("none", mount_point, "tmpfs", 0, "size=1m")) {
        rmdir(mount_point);
        print_message("skipped: mounting a small tmpfs needs root\n");
        skip();
    }
    struct lab lab;
    struct lab_ring ring;
    struct logger_stats stats;
    char id[16], path[64];
    int i = 0;
    lab_init(&lab, mount_point);
    lab_start(&lab);
    lab_ring_init(&lab, &ring, 4 << 20);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    for (; i < 4000 && sink_ready(ring.sink, 1, 60000); i++) {
        snprintf(id, sizeof id, "R%d", i);
        lab_write(&ring, EVENT_OPEN, id);
        if (i % 8 == 0)
            lab_settle(&lab, &ring);
    }
    lab_settle(&lab, &ring);
    assert_in_range(i, 100, 3999);
    logger_stats(lab.logger, &stats);
    assert_true(stats.blocked);
    /* every open gets its close into what was kept free */
    for (int k = 0; k < i; k++) {
        snprintf(id, sizeof id, "R%d", k);
        lab_write(&ring, EVENT_CLOSE, id);
    }
    lab_settle(&lab, &ring);
    assert_int_equal(lab_count(&lab, "close", NULL, NULL), i);
    assert_verifies(&lab);

    /* now to the last byte: another file takes the rest, records wait in the ring and none is lost */
    snprintf(path, sizeof path, "%s/filler", mount_point);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    char zeros[4096] = { 0 };
    while (write(fd, zeros, sizeof zeros) > 0)
        ;
    close(fd);
    static struct event e;
    int extra = 0;
    for (; extra < 2000; extra++) {
        snprintf(id, sizeof id, "X%d", extra);
        lab_close_event(&e, id);
        if (sink_write(ring.sink, &e, false))
            break;
    }
    for (int k = 0; k < 20; k++)
        loop_run_once(lab.loop, 10);
    assert_true(sink_written(ring.sink) < sink_position(ring.sink));
    logger_stats(lab.logger, &stats);
    assert_true(stats.blocked);
    unlink(path);
    uint64_t stuck_at = sink_written(ring.sink);
    for (int k = 0; k < 300 && sink_written(ring.sink) == stuck_at; k++)
        loop_run_once(lab.loop, 10);
    /* 1 MiB cannot hold them all; what is in the file is whole and in order */
    assert_true(lab_count(&lab, "close", NULL, NULL) > (size_t)i);
    assert_true(lab_count(&lab, "lifecycle", "what", "audit_blocked") >= 1);
    assert_verifies(&lab);
    logger_free(&lab.logger);
    lab_ring_done(&ring);
    lab_done(&lab);
    assert_int_equal(umount2(mount_point, MNT_DETACH), 0);
    rmdir(mount_point);
}

static void test_start_refuses(void **state)
{
    (void)state;
    struct lab lab;
    struct err err = { "" };
    char path[200];
    lab_init(&lab, "/tmp");
    snprintf(path, sizeof path, "%s/0000000000000001-20260101T000000Z.jsonl", lab.audit);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(lab_try_start(&lab, &err), -1);
    assert_non_null(strstr(err.text, "symbolic link"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lab_try_start(&lab, &err), -1);
    assert_non_null(strstr(err.text, "special file"));
    unlink(path);
    chmod(lab.audit, 0777);
    assert_int_equal(lab_try_start(&lab, &err), -1);
    assert_non_null(strstr(err.text, "others may write"));
    chmod(lab.audit, 0750);
    if (geteuid() == 0) {
        assert_int_equal(chown(lab.audit, 12345, 12345), 0);
        assert_int_equal(lab_try_start(&lab, &err), -1);
        assert_non_null(strstr(err.text, "uid"));
        assert_int_equal(chown(lab.audit, 0, 0), 0);
    }
    lab_start(&lab); /* the control: nothing else was wrong */
    lab_done(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_and_close_become_lines),
        cmocka_unit_test(test_segment_files),
        cmocka_unit_test(test_chain_goes_on_after_restart),
        cmocka_unit_test(test_torn_line),
        cmocka_unit_test(test_dead_writer_is_closed),
        cmocka_unit_test(test_logger_restart_keeps_opens),
        cmocka_unit_test(test_written_batch_is_not_repeated),
        cmocka_unit_test(test_hostile_ring),
        cmocka_unit_test(test_sync_always_tells_the_writer),
        cmocka_unit_test(test_period_sync),
        cmocka_unit_test(test_the_period_is_the_longest_wait),
        cmocka_unit_test(test_max_bytes_blocks_within_keep),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_start_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
