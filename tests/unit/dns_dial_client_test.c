/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's end against a resolver that the test plays by hand, message by message. */
#include "dns_lab.h"

#include <fcntl.h>

enum { HEARD = 64 };

struct hand {
    struct msg_channel *channel;
    bool closed;
    size_t n;
    struct {
        uint16_t type;
        uint64_t id;
        char body[512];
        size_t body_n;
    } heard[HEARD];
};

static int on_heard(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct hand *h = ctx;
    assert_true(h->n < HEARD && m->body.n <= sizeof h->heard[0].body);
    h->heard[h->n].type = m->type;
    h->heard[h->n].id = m->id;
    h->heard[h->n].body_n = m->body.n;
    if (m->body.n > 0)
        memcpy(h->heard[h->n].body, m->body.p, m->body.n);
    h->n++;
    return 0;
}
static void on_hand_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    ((struct hand *)ctx)->closed = true;
}
static const struct msg_ops hand_ops = { on_heard, on_hand_closed };

static void hand_connect(struct lab *lab, struct hand *h)
{
    int pair[2];
    *h = (struct hand) { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    h->channel = msg_channel_new(lab->loop, pair[0], &hand_ops, h);
    assert_non_null(h->channel);
    assert_int_equal(dial_client_connect(lab->client, pair[1], NULL), 0);
}

static void hand_answer(struct hand *h, uint64_t id, enum end end, int fd, bool extra)
{
    struct msg_writer m;
    msg_writer_init(&m);
    msg_put_u16(&m, (uint16_t)end);
    msg_put_str(&m, STR("192.0.2.1:443"));
    msg_put_str(&m, STR("because"));
    msg_put_str(&m, STR("01ABC"));
    msg_put_str(&m, STR("host_label"));
    msg_put_u32(&m, 12);
    msg_put_u32(&m, 34);
    if (extra)
        msg_put_u8(&m, 0);
    assert_int_equal(msg_send(h->channel, DIALLED, id, buf_str(&m.buf), &fd, fd >= 0), 0);
    buf_done(&m.buf);
}

static void begin(struct lab *lab)
{
    memset(lab, 0, sizeof *lab);
    lab->fds_before = lab_fds();
    lab->loop = loop_new();
    lab->client = dial_client_new(lab->loop, NULL);
    lab->port = 443;
    assert_non_null(lab->client);
}
static void end(struct lab *lab, struct hand *h)
{
    dial_client_free(&lab->client);
    if (h)
        msg_channel_free(&h->channel);
    loop_free(lab->loop);
    assert_int_equal(lab_fds(), lab->fds_before);
}

static const struct lab_dial target = { .host = "x.a.test", .rule = "web" };

static void test_answer(void **state)
{
    (void)state;
    struct lab lab;
    struct hand h;
    struct lab_result r, r2;
    begin(&lab);
    hand_connect(&lab, &h);
    lab_begin(&lab, &target, &r);
    lab_begin(&lab, &target, &r2);
    lab_idle(&lab, 5);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.heard[0].type, DIAL);
    struct msg_reader m = msg_reader(str_of(h.heard[0].body, h.heard[0].body_n));
    assert_true(str_eq(msg_get_str(&m, 99), STR("coder")));
    assert_true(str_eq(msg_get_str(&m, 99), STR("web")));
    assert_true(str_eq(msg_get_str(&m, 99), STR("x.a.test")));
    assert_int_equal(msg_get_u16(&m), 443);
    assert_int_equal(msg_get_u32(&m), 8000);
    assert_int_equal(msg_get_u8(&m), 0);
    assert_true(str_eq(msg_get_str(&m, 99), STR("10.77.0.2")));
    assert_true(str_eq(msg_get_str(&m, 99), STR("c1")));
    assert_true(str_eq(msg_get_str(&m, 99), STR("r1")));
    assert_true(msg_reader_end(&m));

    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hand_answer(&h, h.heard[1].id, END_OK, fd, false); /* the second first */
    hand_answer(&h, h.heard[0].id, END_ADDRESS_DENIED, -1, false);
    hand_answer(&h, 999, END_OK, fd, false);           /* nobody's: dropped, its descriptor closed */
    hand_answer(&h, h.heard[0].id, END_OK, fd, false); /* answered already: likewise */
    close(fd);
    lab_run(&lab, &r, 1000);
    lab_run(&lab, &r2, 1000);
    lab_idle(&lab, 5);
    assert_int_equal(r2.end, END_OK);
    assert_true(r2.fd >= 0);
    assert_string_equal(r2.addr, "192.0.2.1:443");
    assert_string_equal(r2.dns_id, "01ABC");
    assert_string_equal(r2.finding, "host_label");
    assert_int_equal(r2.resolve_ms, 12);
    assert_int_equal(r2.connect_ms, 34);
    assert_int_equal(r.end, END_ADDRESS_DENIED);
    assert_string_equal(r.why, "because");
    assert_int_equal(r.calls, 1);
    close(r2.fd);
    end(&lab, &h);
}

static void test_cancel(void **state)
{
    (void)state;
    struct lab lab;
    struct hand h;
    struct lab_result r;
    begin(&lab);
    hand_connect(&lab, &h);
    struct dial_wait *w = lab_begin(&lab, &target, &r);
    lab_idle(&lab, 5);
    dial_cancel(&w);
    assert_null(w);
    dial_cancel(&w); /* NULL is fine */
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hand_answer(&h, h.heard[0].id, END_OK, fd, false); /* too late */
    close(fd);
    lab_idle(&lab, 10);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.heard[1].type, DIAL_CANCEL);
    assert_int_equal(h.heard[1].id, h.heard[0].id);
    assert_int_equal(r.calls, 0);

    /* Cancelled with the answer on its way. */
    w = lab_begin(&lab, &target, &r);
    lab_idle(&lab, 5);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hand_answer(&h, h.heard[2].id, END_OK, fd, false);
    close(fd);
    lab_idle(&lab, 0);
    if (r.calls == 0)
        dial_cancel(&w);
    else
        close(r.fd);
    end(&lab, &h);
}

static void test_reconnect(void **state)
{
    (void)state;
    struct lab lab;
    struct hand h;
    struct lab_result before, r, gone;
    begin(&lab);
    lab_begin(&lab, &target, &before); /* no channel yet: it waits for one */
    hand_connect(&lab, &h);
    lab_begin(&lab, &target, &r);
    struct dial_wait *w = lab_begin(&lab, &target, &gone);
    lab_idle(&lab, 5);
    assert_int_equal(h.n, 3);
    dial_cancel(&w);
    lab_idle(&lab, 5);

    msg_channel_free(&h.channel); /* the resolver dies */
    lab_idle(&lab, 10);
    assert_int_equal(before.calls + r.calls, 0);
    hand_connect(&lab, &h); /* and is back: what was under way is asked again, what was cancelled is not */
    lab_idle(&lab, 5);
    assert_int_equal(h.n, 2);
    hand_answer(&h, h.heard[0].id, END_ORIGIN_DNS, -1, false);
    lab_idle(&lab, 5);
    assert_int_equal(before.calls + r.calls, 1);

    msg_channel_free(&h.channel); /* twice is enough */
    lab_idle(&lab, 10);
    assert_int_equal(before.calls, 1);
    assert_int_equal(r.calls, 1);
    assert_true(before.end == END_ORIGIN_CONNECT || r.end == END_ORIGIN_CONNECT);
    hand_connect(&lab, &h);
    lab_idle(&lab, 5);
    assert_int_equal(h.n, 0);

    /* A new channel while the old one is still open takes over. */
    struct hand h2;
    lab_begin(&lab, &target, &r);
    lab_idle(&lab, 5);
    assert_int_equal(h.n, 1);
    hand_connect(&lab, &h2);
    lab_idle(&lab, 5);
    assert_true(h.closed);
    assert_int_equal(h2.n, 1);
    msg_channel_free(&h.channel);
    end(&lab, &h2);
}

/* A resolver that says something malformed is broken: the channel is closed, its requests wait for the next. */
static void test_malformed(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        struct lab lab;
        struct hand h;
        struct lab_result r;
        begin(&lab);
        hand_connect(&lab, &h);
        lab_begin(&lab, &target, &r);
        lab_idle(&lab, 5);
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        uint64_t id = h.heard[0].id;
        switch (what) {
        case 0:
            hand_answer(&h, id, END_OK, -1, false); /* no descriptor */
            break;
        case 1:
            hand_answer(&h, id, END_ORIGIN_DNS, fd, false); /* one too many */
            break;
        case 2:
            hand_answer(&h, id, END_COUNT, -1, false);
            break;
        case 3:
            hand_answer(&h, id, END_ORIGIN_DNS, -1, true); /* a byte too many */
            break;
        case 4:
            assert_int_equal(msg_send(h.channel, DIAL, id, STR_NONE, NULL, 0), 0);
            break;
        }
        close(fd);
        lab_idle(&lab, 10);
        assert_true(h.closed);
        assert_int_equal(r.calls, 0);
        end(&lab, &h);
    }
}

static void test_silent(void **state)
{
    (void)state;
    struct lab lab;
    struct hand h;
    struct lab_result r;
    begin(&lab);
    hand_connect(&lab, &h);
    lab_begin(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web", .timeout_ms = 100 }, &r);
    lab_run(&lab, &r, 5000);
    assert_int_equal(r.end, END_ORIGIN_TIMEOUT);
    lab_idle(&lab, 5);
    assert_int_equal(h.heard[h.n - 1].type, DIAL_CANCEL);
    end(&lab, &h);
}

static void free_client(void *ctx, const struct dial_result *r)
{
    struct lab *lab = ctx;
    assert_int_equal(r->end, END_ORIGIN_DNS);
    dial_client_free(&lab->client);
}

/* The client may go in a callback, with others still waiting. */
static void test_freed_in_callback(void **state)
{
    (void)state;
    struct lab lab;
    struct hand h;
    struct lab_result r;
    struct host host;
    begin(&lab);
    hand_connect(&lab, &h);
    assert_int_equal(host_parse(STR("x.a.test"), &host, NULL), 0);
    struct dial_request q = { .agent = STR("coder"), .host = &host, .port = 443, .timeout_ms = 1000 };
    assert_non_null(dial_start(lab.client, &q, free_client, &lab));
    lab_begin(&lab, &target, &r);
    lab_idle(&lab, 5);
    for (size_t i = 0; i < 2; i++)
        hand_answer(&h, h.heard[i].id, END_ORIGIN_DNS, -1, false);
    lab_idle(&lab, 10);
    assert_null(lab.client);
    assert_int_equal(r.calls, 0);
    end(&lab, &h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),    cmocka_unit_test(test_cancel), cmocka_unit_test(test_reconnect),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_silent), cmocka_unit_test(test_freed_in_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
