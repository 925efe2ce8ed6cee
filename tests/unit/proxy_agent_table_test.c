/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/agent_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static void one_state_for_each_name(void **state)
{
    (void)state;
    struct agent_table *t = agent_table_new();
    struct agent_state *coder = agent_table_get(t, STR("coder")), *none = agent_table_get(t, STR(""));
    assert_non_null(coder);
    assert_non_null(none);
    assert_ptr_not_equal(coder, none);
    assert_ptr_equal(agent_table_get(t, STR("coder")), coder);
    assert_ptr_equal(agent_table_get(t, STR("")), none);
    for (int i = 0; i < 2000; i++) { /* more than buckets */
        char name[16];
        int n = snprintf(name, sizeof name, "a%d", i);
        struct agent_state *a = agent_table_get(t, str_of(name, (size_t)n));
        assert_int_equal(a->connections, 0);
        a->connections = (uint64_t)i + 1;
        assert_ptr_equal(agent_table_get(t, str_of(name, (size_t)n)), a);
    }
    assert_int_equal(agent_table_get(t, STR("a7"))->connections, 8);
    agent_table_free(&t);
    assert_null(t);
    agent_table_free(&t);
}

static bool inside(struct agent_state *a, int host, const struct limits *lim, uint64_t now_ms)
{
    char name[32];
    int n = snprintf(name, sizeof name, "h%d.test", host);
    return agent_denied_inside(a, str_of(name, (size_t)n), lim, now_ms);
}

static void denied_names_have_a_bucket(void **state)
{
    (void)state;
    struct limits lim;
    limits_default(&lim);
    lim.denied_names_burst = 5;
    lim.denied_names_rate = 2;
    struct agent_table *t = agent_table_new();
    struct agent_state *a = agent_table_get(t, STR("coder"));
    uint64_t now = 1000000;
    for (int i = 0; i < 5; i++)
        assert_true(inside(a, i, &lim, now));
    assert_false(inside(a, 5, &lim, now));
    for (int i = 0; i < 5; i++) /* known ones cost nothing */
        assert_true(inside(a, i, &lim, now));
    assert_false(inside(a, 6, &lim, now + 400));
    assert_true(inside(a, 6, &lim, now + 500)); /* two a second */
    assert_false(inside(a, 7, &lim, now + 600));
    now += 3600000;
    for (int i = 10; i < 15; i++) /* never more than the burst, however long ago */
        assert_true(inside(a, i, &lim, now));
    assert_false(inside(a, 15, &lim, now));
    assert_true(inside(agent_table_get(t, STR("other")), 15, &lim, now)); /* each agent its own */
    agent_table_free(&t);
}

static void no_burst_means_never_inside(void **state)
{
    (void)state;
    struct limits lim;
    limits_default(&lim);
    lim.denied_names_burst = 0;
    struct agent_table *t = agent_table_new();
    assert_false(inside(agent_table_get(t, STR("coder")), 1, &lim, 5000));
    assert_false(inside(agent_table_get(t, STR("coder")), 1, &lim, 500000));
    agent_table_free(&t);
}

static void a_second_takes_so_many_events(void **state)
{
    (void)state;
    struct limits lim;
    limits_default(&lim);
    lim.refusals_per_second = 3;
    struct agent_table *t = agent_table_new();
    struct agent_state *a = agent_table_get(t, STR("coder"));
    for (uint64_t second = 7; second < 10; second++) {
        for (int i = 0; i < 3; i++)
            assert_true(agent_event_fits(a, &lim, second * 1000 + 10));
        assert_false(agent_event_fits(a, &lim, second * 1000 + 990));
        agent_event_count(&a->refusals, "deny", END_HOST_DENIED, "host_denied", STR("evil.test"), second * 1000);
    }
    assert_int_equal(a->refusals.n, 3); /* what waits for its line does not hold up the next second */
    agent_table_free(&t);
}

struct seen {
    int calls;
    bool take;
    uint64_t refusals, conns;
    char host[128];
    enum end code;
};
static bool on_count(void *ctx, const struct agent_state *a, const struct agent_count *c)
{
    struct seen *s = ctx;
    s->calls++;
    *(c == &a->conns ? &s->conns : &s->refusals) += c->n;
    snprintf(s->host, sizeof s->host, "%s", c->host);
    s->code = c->code;
    return s->take;
}

static void counts_are_told_when_their_second_is_over(void **state)
{
    (void)state;
    struct agent_table *t = agent_table_new();
    struct agent_state *a = agent_table_get(t, STR("coder"));
    struct seen s = { .take = false };
    agent_event_count(&a->refusals, "deny", END_HOST_DENIED, "host_denied", STR("evil.test"), 5100);
    agent_event_count(&a->refusals, "deny", END_PORT_DENIED, "port_denied", STR("a\nb"), 5900);
    agent_event_count(&a->conns, "allow", END_UNSET, "client_closed", STR("open.test"), 5900);
    agent_table_counted(t, 5999, false, on_count, &s);
    assert_int_equal(s.calls, 0);
    agent_table_counted(t, 6000, false, on_count, &s); /* the log has no room */
    assert_int_equal(s.calls, 2);
    agent_event_count(&a->refusals, "deny", END_PATH_DENIED, "path_denied", STR("c.test"), 6100);
    s = (struct seen) { .take = true };
    agent_table_counted(t, 6200, false, on_count, &s); /* nothing was forgotten */
    assert_int_equal(s.refusals, 3);
    assert_int_equal(s.conns, 1);
    agent_table_counted(t, 7200, false, on_count, &s);
    assert_int_equal(s.refusals, 3);
    agent_event_count(&a->refusals, "deny", END_HOST_DENIED, "host_denied", STR("x\r\ny"), 8000);
    agent_table_counted(t, 8001, true, on_count, &s); /* the end: also this second's */
    assert_int_equal(s.refusals, 4);
    assert_string_equal(s.host, "x\\x0d\\x0ay");
    assert_int_equal(s.code, END_HOST_DENIED);
    agent_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_state_for_each_name),
        cmocka_unit_test(denied_names_have_a_bucket),
        cmocka_unit_test(no_burst_means_never_inside),
        cmocka_unit_test(a_second_takes_so_many_events),
        cmocka_unit_test(counts_are_told_when_their_second_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
