/* SPDX-License-Identifier: Apache-2.0
 *
 * role_msg, role_values and control_msg: what the processes of one server, and its operator, say to each other. */
#include "daemon/control_msg.h"
#include "daemon/role_msg.h"
#include "daemon/role_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static int fds[3] = { 10, 11, 12 };

static const struct {
    struct role_msg m;
    bool to_role;
} samples[] = {
    { { .type = ROLE_START, .kind = ROLE_KIND_WORKER, .index = 3, .generation = 9, .number = 61101, .other = 61101 },
      true },
    { { .type = ROLE_RING, .fds = fds, .nfds = 3 }, true },
    { { .type = ROLE_FILE, .flag = ROLE_FILE_CA_KEY, .fds = fds, .nfds = 1 }, true },
    { { .type = ROLE_SOURCE, .text = { "abc", 3 } }, true },
    { { .type = ROLE_SOURCE, .text = { "abc", 3 }, .fds = fds, .nfds = 1 }, true },
    { { .type = ROLE_GO }, true },
    { { .type = ROLE_CHANNEL, .kind = ROLE_KIND_CA, .index = 0, .fds = fds, .nfds = 1 }, true },
    { { .type = ROLE_LISTENER, .text = { "127.0.0.1:1", 11 }, .fds = fds, .nfds = 1 }, true },
    { { .type = ROLE_REVOKE, .id = 5, .text = { "a", 1 }, .more = { "bc", 2 }, .who = { "uid 0", 5 } }, true },
    { { .type = ROLE_READY, .id = 77 }, false },
    { { .type = ROLE_PREPARED, .flag = 1, .number = 4, .text = { "", 0 } }, false },
    { { .type = ROLE_RING_CLOSED, .kind = ROLE_KIND_WORKER, .index = 1, .generation = 2 }, false },
};

static struct msg packet(const struct role_msg *m, struct msg_writer *w)
{
    msg_writer_init(w);
    assert_int_equal(role_msg_put(m, w), 0);
    return (struct msg) { (uint16_t)m->type, m->id, buf_str(&w->buf), m->fds, m->nfds };
}

static void test_role_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct role_msg *m = &samples[i].m;
        struct msg_writer w;
        struct role_msg got;
        struct msg raw = packet(m, &w);
        assert_int_equal(role_msg_parse(&raw, samples[i].to_role, &got), 0);
        assert_int_equal(got.type, m->type);
        assert_int_equal(got.id, m->id);
        assert_int_equal(got.kind, m->kind);
        assert_int_equal(got.flag, m->flag);
        assert_int_equal(got.index, m->index);
        assert_int_equal(got.generation, m->generation);
        assert_int_equal(got.number, m->number);
        assert_int_equal(got.other, m->other);
        assert_true(str_eq(got.text, m->text) && str_eq(got.more, m->more) && str_eq(got.who, m->who));
        buf_done(&w.buf);
    }
}

/* A role must not say what only the supervisor says, and the other way round. */
static void test_role_direction(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct msg_writer w;
        struct role_msg got;
        struct msg raw = packet(&samples[i].m, &w);
        assert_int_equal(role_msg_parse(&raw, !samples[i].to_role, &got), -1);
        buf_done(&w.buf);
    }
}

static void test_role_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct msg_writer w;
        struct role_msg got;
        struct msg raw = packet(&samples[i].m, &w), bad = raw;
        if (raw.body.n) { /* short by one */
            bad.body.n--;
            assert_int_equal(role_msg_parse(&bad, samples[i].to_role, &got), -1);
        }
        buf_putc(&w.buf, 0); /* long by one */
        bad = raw;
        bad.body = buf_str(&w.buf);
        assert_int_equal(role_msg_parse(&bad, samples[i].to_role, &got), -1);
        bad = raw;
        bad.body = str_sub(buf_str(&w.buf), 0, raw.body.n);
        bad.nfds = 4; /* no row takes that many */
        assert_int_equal(role_msg_parse(&bad, samples[i].to_role, &got), -1);
        if (samples[i].m.type == ROLE_RING || samples[i].m.type == ROLE_LISTENER) {
            bad.nfds = 0;
            assert_int_equal(role_msg_parse(&bad, samples[i].to_role, &got), -1);
        }
        bad.nfds = raw.nfds;
        bad.type = 60; /* in no row */
        assert_int_equal(role_msg_parse(&bad, true, &got), -1);
        buf_done(&w.buf);
    }
}

static void test_role_kind(void **state)
{
    (void)state;
    for (unsigned k = ROLE_KIND_SUPERVISOR; k < ROLE_KIND_COUNT; k++)
        assert_int_equal(role_kind_from_name(role_kind_name((enum role_kind)k)), k);
    assert_int_equal(role_kind_from_name("none"), ROLE_KIND_NONE);
    assert_int_equal(role_kind_from_name("root"), ROLE_KIND_NONE);
    char body[] = { ROLE_KIND_COUNT, 0, 0, 0, 0 };
    int fd[1] = { 9 };
    struct role_msg got;
    struct msg raw = { ROLE_CHANNEL, 1, str_of(body, sizeof body), fd, 1 };
    assert_int_equal(role_msg_parse(&raw, true, &got), -1);
    body[0] = ROLE_KIND_CA; /* the control */
    assert_int_equal(role_msg_parse(&raw, true, &got), 0);
}

static void test_values(void **state)
{
    (void)state;
    struct msg_writer w;
    struct tune t = { 1, 2, 3, 4, true, 6 }, t2;
    msg_writer_init(&w);
    tune_put(&t, &w);
    assert_int_equal(tune_parse(buf_str(&w.buf), &t2), 0);
    assert_int_equal(t2.max_bytes, 3);
    assert_true(t2.sync_always);
    assert_int_equal(t2.leaf_rate, 6);
    assert_int_equal(tune_parse(str_sub(buf_str(&w.buf), 0, 3), &t2), -1);
    buf_done(&w.buf);

    struct str argv[] = { STR("/bin/echo"), STR("x") };
    struct mint_source s = { .credential = STR("github"),
                             .kind = MINTER_EXEC,
                             .text = STR(""),
                             .argv = argv,
                             .argc = 2,
                             .ttl_ms = 900000,
                             .peer_uid = 61103 },
                       s2;
    msg_writer_init(&w);
    mint_source_put(&s, &w);
    assert_int_equal(mint_source_parse(buf_str(&w.buf), &s2), 0);
    assert_int_equal(s2.argc, 2);
    assert_true(str_eq(s2.argv[0], argv[0]) && str_eq(s2.credential, s.credential));
    assert_int_equal(s2.ttl_ms, 900000);
    assert_int_equal(s2.peer_uid, 61103);
    free(s2.argv);
    for (size_t n = 0; n < buf_size(&w.buf); n++)
        assert_int_equal(mint_source_parse(str_sub(buf_str(&w.buf), 0, n), &s2), -1);
    buf_done(&w.buf);
}

static void test_values_lists(void **state)
{
    (void)state;
    struct msg_writer w;
    struct ip ips[] = { { 4, { 127, 0, 0, 1 } }, { 6, { [15] = 1 } } };
    uint16_t ports[] = { 3128, 443 };
    struct own_list o = { ips, ports, 2 }, o2;
    msg_writer_init(&w);
    own_list_put(&o, &w);
    assert_int_equal(own_list_parse(buf_str(&w.buf), &o2), 0);
    assert_int_equal(o2.n, 2);
    assert_true(ip_equal(&o2.ips[1], &ips[1]));
    assert_int_equal(o2.ports[0], 3128);
    own_list_done(&o2);
    for (size_t n = 0; n < buf_size(&w.buf); n++)
        assert_int_equal(own_list_parse(str_sub(buf_str(&w.buf), 0, n), &o2), -1);
    buf_done(&w.buf);

    struct ticket_key keys[3], got[3];
    size_t n = 0;
    memset(keys, 0x5a, sizeof keys);
    msg_writer_init(&w);
    tickets_put(keys, 3, &w);
    assert_int_equal(tickets_parse(buf_str(&w.buf), got, &n), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(keys, got, sizeof keys);
    assert_int_equal(tickets_parse(str_sub(buf_str(&w.buf), 0, buf_size(&w.buf) - 1), got, &n), -1);
    assert_int_equal(tickets_parse(STR("\0"), got, &n), -1);
    buf_done(&w.buf);
}

static void test_run_logins(void **state)
{
    (void)state;
    struct run_logins l = { .n = RUN_LOGINS_MAX }, got;
    struct msg_writer w;
    for (size_t i = 0; i < l.n; i++) {
        char token[32];
        l.v[i].id = i + 1;
        memset(l.v[i].agent, 'a', CONFIG_NAME_MAX);
        snprintf(token, sizeof token, "token%zu", i);
        run_login_digest(str_c(token), l.v[i].digest);
    }
    msg_writer_init(&w);
    run_logins_put(&l, &w);
    assert_int_equal(run_logins_parse(buf_str(&w.buf), &got), 0);
    assert_memory_equal(&l, &got, sizeof l);
    for (size_t n = 0; n < buf_size(&w.buf); n++)
        assert_int_equal(run_logins_parse(str_sub(buf_str(&w.buf), 0, n), &got), -1);
    unsigned char digest[RUN_LOGIN_DIGEST];
    run_login_digest(STR("token63"), digest);
    assert_ptr_equal(run_logins_find(&l, digest), &l.v[63]);
    run_login_digest(STR("token64"), digest);
    assert_null(run_logins_find(&l, digest));
    assert_true(run_logins_has(&l, 64) && !run_logins_has(&l, 65));
    buf_done(&w.buf);
    /* an id of 0 means none */
    l.n = 1;
    l.v[0].id = 0;
    msg_writer_init(&w);
    run_logins_put(&l, &w);
    assert_int_equal(run_logins_parse(buf_str(&w.buf), &got), -1);
    buf_done(&w.buf);
    l.n = 0;
    run_login_digest(STR("token0"), digest);
    assert_null(run_logins_find(&l, digest));
    msg_writer_init(&w);
    run_logins_put(&l, &w);
    assert_int_equal(run_logins_parse(buf_str(&w.buf), &got), 0);
    assert_int_equal(got.n, 0);
    buf_done(&w.buf);
}

static void test_control_requests(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum control_command want; /* NONE: refused */
    } cases[] = {
        { "{\"v\":1,\"command\":\"status\"}", CONTROL_STATUS },
        { "{\"v\":1,\"command\":\"reload\",\"config\":\"/a/b.yaml\"}", CONTROL_RELOAD },
        { "{\"v\":1,\"command\":\"lease.revoke\",\"credential\":\"github\"}", CONTROL_LEASE_REVOKE },
        { "{\"v\":1,\"command\":\"lease.revoke\",\"lease_id\":\"l1\"}", CONTROL_LEASE_REVOKE },
        { "{\"v\":1,\"command\":\"login\",\"agent\":\"coder\"}", CONTROL_LOGIN },
        { "{\"v\":1,\"command\":\"login\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"login\",\"agent\":1}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"lease.revoke\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"lease.revoke\",\"lease_id\":\"l1\",\"credential\":\"github\"}", CONTROL_NONE },
        { "{\"v\":2,\"command\":\"status\"}", CONTROL_NONE },
        { "{\"command\":\"status\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"shutdown\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":7}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"status\",\"command\":\"drain\"}", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"status\",\"config\":3}", CONTROL_NONE },
        { "[1]", CONTROL_NONE },
        { "", CONTROL_NONE },
        { "{\"v\":1,\"command\":\"status\"} x", CONTROL_NONE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct control_request q, again;
        struct err err = { "" };
        int r = control_request_parse(str_c(cases[i].line), &q, &err);
        assert_int_equal(r, cases[i].want == CONTROL_NONE ? -1 : 0);
        if (r) {
            assert_true(err.text[0]);
            continue;
        }
        assert_int_equal(q.command, cases[i].want);
        struct buf out;
        buf_init(&out, CONTROL_LINE_MAX);
        assert_int_equal(control_request_put(&q, &out), 0);
        assert_int_equal(control_request_parse(str_sub(buf_str(&out), 0, buf_size(&out) - 1), &again, &err), 0);
        assert_memory_equal(&q, &again, sizeof q);
        buf_done(&out);
    }
}

/* Each refusal with the peer that may. */
static void test_control_access(void **state)
{
    (void)state;
    static const struct {
        struct control_peer peer;
        enum control_command command;
        enum control_access want;
    } cases[] = {
        { { 0, 0, true, false }, CONTROL_DRAIN, CONTROL_ALLOWED },
        { { 1000, 0, true, false }, CONTROL_DRAIN, CONTROL_ALLOWED }, /* let in by the socket's group */
        { { 1000, 0, true, true }, CONTROL_DRAIN, CONTROL_REFUSED },
        { { 1000, 0, true, true }, CONTROL_STATUS, CONTROL_REFUSED },
        { { 0, 0, true, true }, CONTROL_STATUS, CONTROL_ALLOWED }, /* an agent that is root: shared */
        { { 0, 0, true, true }, CONTROL_DRAIN, CONTROL_TOKEN },
        { { 1000, 1000, false, false }, CONTROL_STATUS, CONTROL_ALLOWED },
        { { 1000, 1000, false, false }, CONTROL_RELOAD, CONTROL_ALLOWED },
        { { 1000, 1000, false, false }, CONTROL_DRAIN, CONTROL_TOKEN },
        { { 1000, 1000, false, false }, CONTROL_LEASE_LIST, CONTROL_TOKEN },
        { { 1000, 1000, false, true }, CONTROL_LEASE_REVOKE, CONTROL_TOKEN },
        { { 1001, 1000, false, true }, CONTROL_STATUS, CONTROL_REFUSED },
        { { 1000, 0, true, true }, CONTROL_LOGIN, CONTROL_REFUSED },
        { { 1000, 1000, false, false }, CONTROL_LOGIN, CONTROL_ALLOWED }, /* it can read the agents' tokens */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(control_access(&cases[i].peer, cases[i].command), cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_role_round_trip),  cmocka_unit_test(test_role_direction),
        cmocka_unit_test(test_role_refused),     cmocka_unit_test(test_role_kind),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_values_lists),
        cmocka_unit_test(test_run_logins), cmocka_unit_test(test_control_requests), cmocka_unit_test(test_control_access),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
