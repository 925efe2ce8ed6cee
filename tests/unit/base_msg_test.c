/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/msg.h"
#include "base/sealed.h"
#include "base/secret.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs the ones above */
#include <cmocka.h>

struct end {
    struct msg_channel *ch;
    int messages, closed, got_fd, refuse;
    uint64_t last_id;
    char last[64];
};

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct end *e = ctx;
    e->messages++;
    e->last_id = m->id;
    snprintf(e->last, sizeof e->last, "%.*s", STR_ARG(m->body));
    if (m->nfds) {
        e->got_fd = m->fds[0];
        m->fds[0] = -1;
    }
    return e->refuse ? -1 : 0;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    ((struct end *)ctx)->closed++;
}

static const struct msg_ops ops = { on_message, on_closed };

static void open_pair(struct loop *l, struct end *a, struct end *b)
{
    int s[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    a->ch = msg_channel_new(l, s[0], &ops, a);
    b->ch = msg_channel_new(l, s[1], &ops, b);
    assert_non_null(a->ch);
    assert_non_null(b->ch);
}

static void bodies_ids_and_descriptors_arrive(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct end a = { 0 }, b = { .got_fd = -1 };
    open_pair(l, &a, &b);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(msg_send(a.ch, 7, 42, STR("hello"), &fd, 1), 0);
    loop_run_once(l, 100);
    assert_int_equal(b.messages, 1);
    assert_int_equal(b.last_id, 42);
    assert_string_equal(b.last, "hello");
    assert_true(b.got_fd >= 0 && fcntl(b.got_fd, F_GETFD) == FD_CLOEXEC);
    close(b.got_fd);
    close(fd);
    msg_channel_free(&a.ch);
    loop_run_once(l, 100);
    assert_int_equal(b.closed, 1);
    msg_channel_free(&b.ch);
    loop_free(l);
}

static void a_full_peer_queues_in_order_and_the_queue_ends(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct end a = { 0 }, b = { 0 };
    open_pair(l, &a, &b);
    static char big[3000];
    int sent = 0;
    while (msg_send(a.ch, 1, (uint64_t)sent, str_of(big, sizeof big), NULL, 0) == 0)
        sent++;
    assert_true(sent >= MSG_QUEUE_MAX);
    assert_true(msg_channel_open(a.ch));
    while (b.messages < sent)
        loop_run_once(l, 1000);
    assert_int_equal(b.last_id, (uint64_t)sent - 1);
    msg_channel_free(&a.ch);
    msg_channel_free(&b.ch);
    loop_free(l);
}

static void a_packet_that_disagrees_with_its_head_closes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        { "x", 1 },                                                        /* shorter than a head */
        { "\x47\x4f\x01\x00\x05\x00\x00\x00\0\0\0\0\0\0\0\0abcd", 20 },    /* says 5, brings 4 */
        { "\x47\x4f\x01\x00\x03\x00\x00\x00\0\0\0\0\0\0\0\0abcd", 20 },    /* says 3, brings 4 */
        { "\x00\x00\x01\x00\x04\x00\x00\x00\0\0\0\0\0\0\0\0abcd", 20 },    /* not ours */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases + 1; i++) {
        struct loop *l = loop_new();
        struct end b = { 0 };
        int s[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
        b.ch = msg_channel_new(l, s[1], &ops, &b);
        bool control = i == sizeof cases / sizeof *cases;
        if (control)
            assert_int_equal(write(s[0], "\x47\x4f\x01\x00\x04\x00\x00\x00\0\0\0\0\0\0\0\0abcd", 20), 20);
        else
            assert_int_equal(write(s[0], cases[i].bytes, cases[i].n), (ssize_t)cases[i].n);
        loop_run_once(l, 100);
        loop_run_once(l, 0);
        assert_int_equal(b.messages, control ? 1 : 0);
        assert_int_equal(b.closed, control ? 0 : 1);
        msg_channel_free(&b.ch);
        close(s[0]);
        loop_free(l);
    }
}

static void readers_stop_at_the_end(void **state)
{
    (void)state;
    struct msg_writer w;
    msg_writer_init(&w);
    msg_put_u8(&w, 1);
    msg_put_u16(&w, 2);
    msg_put_u32(&w, 3);
    msg_put_u64(&w, 4);
    msg_put_str(&w, STR("five"));
    struct str all = buf_str(&w.buf);
    struct msg_reader r = msg_reader(all);
    assert_int_equal(msg_get_u8(&r), 1);
    assert_int_equal(msg_get_u16(&r), 2);
    assert_int_equal(msg_get_u32(&r), 3);
    assert_int_equal(msg_get_u64(&r), 4);
    assert_true(str_eq(msg_get_str(&r, 10), STR("five")));
    assert_true(msg_reader_end(&r));
    for (size_t cut = 0; cut < all.n; cut++) {
        r = msg_reader(str_sub(all, 0, cut));
        msg_get_u8(&r), msg_get_u16(&r), msg_get_u32(&r), msg_get_u64(&r), msg_get_str(&r, 10);
        assert_true(r.bad);
        assert_false(msg_reader_end(&r));
    }
    r = msg_reader(all);
    msg_get_u8(&r), msg_get_u16(&r), msg_get_u32(&r), msg_get_u64(&r), msg_get_str(&r, 3); /* longer than allowed */
    assert_true(r.bad);
    buf_done(&w.buf);
}

static void sealed_bytes_cannot_change(void **state)
{
    (void)state;
    struct err err;
    int fd = sealed_new("test", STR("abc"), &err);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 1), -1);
    struct str got;
    assert_int_equal(sealed_map(fd, 10, &got, &err), 0);
    assert_true(str_eq(got, STR("abc")));
    sealed_unmap(got);
    assert_int_equal(sealed_map(fd, 2, &got, &err), -1);
    close(fd);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(sealed_map(fd, 10, &got, &err), -1);
    close(fd);
}

static void secrets_are_wiped_and_reused(void **state)
{
    (void)state;
    assert_int_equal(secret_init(), 0);
    struct secret *s = secret_new("ghs_REALREALREAL", 16);
    assert_non_null(s);
    const char *where = secret_reveal(s).p;
    struct secret *t = secret_ref(s);
    secret_unref(&s);
    assert_null(s);
    assert_memory_equal(where, "ghs_REAL", 8);
    secret_unref(&t);
    for (int i = 0; i < 16; i++)
        assert_int_equal(where[i], 0);
    static char big[SECRET_MAX];
    s = secret_new(big, sizeof big);
    assert_non_null(s);
    secret_unref(&s);
    assert_null(secret_new(big, SECRET_MAX + 1));
    assert_null(secret_new(big, 0));
    assert_true(secret_equal(STR("abc"), STR("abc")));
    assert_false(secret_equal(STR("abc"), STR("abd")));
    assert_false(secret_equal(STR("abc"), STR("abcd")));
    assert_false(secret_equal(STR(""), STR("a")));
}

static void dates_round_trip_and_bad_ones_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "2026-01-01T00:10:00Z", 1767226200000000 },
        { "2026-01-01T01:10:00.5+01:00", 1767226200500000 },
        { "2024-02-29T23:59:59.123456789Z", 1709251199123456 },
        { "2025-12-31t19:10:00-05:00", 1767226200000000 },
    };
    static const char *const bad[] = { "", "2026-01-01", "2026-01-01T00:10:00", "2026-13-01T00:00:00Z", "2025-02-29T00:00:00Z",
                                       "2026-01-01T24:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00+0100",
                                       "2026-01-01T00:00:00Zx", "1735689600" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t us = -1;
        assert_int_equal(clock_parse_rfc3339(good[i].text, strlen(good[i].text), &us), 0);
        assert_int_equal(us, good[i].us);
        char text[28];
        int64_t again;
        clock_format_us(us, text);
        assert_int_equal(clock_parse_rfc3339(text, strlen(text), &again), 0);
        assert_int_equal(again, us);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t us = 77;
        assert_int_equal(clock_parse_rfc3339(bad[i], strlen(bad[i]), &us), -1);
        assert_int_equal(us, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_ids_and_descriptors_arrive),
        cmocka_unit_test(a_full_peer_queues_in_order_and_the_queue_ends),
        cmocka_unit_test(a_packet_that_disagrees_with_its_head_closes),
        cmocka_unit_test(readers_stop_at_the_end),
        cmocka_unit_test(sealed_bytes_cannot_change),
        cmocka_unit_test(secrets_are_wiped_and_reused),
        cmocka_unit_test(dates_round_trip_and_bad_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
