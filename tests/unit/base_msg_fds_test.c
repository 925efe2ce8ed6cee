/* SPDX-License-Identifier: Apache-2.0
 *
 * A descriptor that finds no room at the receiver: whoever asked to hear of it goes on, everybody else is cut off. */
#include "base/msg.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs the ones above */
#include <cmocka.h>

struct end {
    struct msg_channel *ch;
    int messages, lost, closed;
    size_t nfds;
    uint64_t id;
    int answer;
};

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct end *e = ctx;
    e->messages++;
    e->nfds = m->nfds;
    return 0;
}

static int on_lost(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct end *e = ctx;
    e->lost++;
    e->nfds = m->nfds;
    e->id = m->id;
    assert_true(str_eq(m->body, STR("hello")));
    return e->answer;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    ((struct end *)ctx)->closed++;
}

static const struct msg_ops ops = { .on_message = on_message, .on_closed = on_closed };

/* No descriptor is free past this. */
static rlim_t no_more(void)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    rlim_t was = r.rlim_cur;
    int next = fcntl(0, F_DUPFD, 0);
    assert_true(next > 0);
    close(next);
    r.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    return was;
}

static void as_before(rlim_t was)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = was;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static void play(bool hears, int answer, bool survives)
{
    int s[2], two[2];
    struct loop *l = loop_new();
    struct end a = { 0 }, b = { .answer = answer };
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    a.ch = msg_channel_new(l, s[0], &ops, &a);
    b.ch = msg_channel_new(l, s[1], &ops, &b);
    if (hears)
        msg_channel_on_lost_fds(b.ch, on_lost);
    assert_int_equal(pipe2(two, O_CLOEXEC), 0);
    assert_int_equal(msg_send(a.ch, 7, 42, STR("hello"), two, 2), 0);
    rlim_t was = no_more();
    loop_run_once(l, 100);
    as_before(was);
    loop_run_once(l, 0);
    assert_int_equal(b.messages, 0);
    assert_int_equal(b.lost, hears);
    assert_int_equal(b.nfds, 0);
    assert_int_equal(b.id, hears ? 42 : 0);
    assert_int_equal(msg_channel_open(b.ch), survives);
    if (survives) { /* and the next one arrives whole */
        assert_int_equal(msg_send(a.ch, 7, 43, STR("again"), two, 2), 0);
        loop_run_once(l, 100);
        assert_int_equal(b.messages, 1);
        assert_int_equal(b.nfds, 2);
    }
    close(two[0]);
    close(two[1]);
    msg_channel_free(&a.ch);
    msg_channel_free(&b.ch);
    loop_free(l);
}

static void lost_descriptors(void **state)
{
    (void)state;
    play(true, 0, true);
    play(true, -1, false);
    play(false, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lost_descriptors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
