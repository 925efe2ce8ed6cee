/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper when two things meet: a revocation and the answer it is about, a watch and a log that takes nothing, a
 * worker that fills what all of them share. */
#include "tests/lib/keeper_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/fakes/clock_fake.c"

static struct rig R;

static int start(void **state)
{
    (void)state;
    rig_start(&R, "", "", "");
    return 0;
}

static int stop(void **state)
{
    (void)state;
    bool leaked = R.leaked;
    rig_stop(&R);
    return leaked ? -1 : 0;
}

static bool value_seen(unsigned worker, const char *value)
{
    for (size_t i = 0; i < R.workers[worker].n; i++)
        if (strcmp(R.workers[worker].seen[i].value, value) == 0)
            return true;
    return false;
}

/* The sidecar revokes L1 before its answer with L1 is here: the value reaches nobody, who asked gets the next. */
static void test_id_revoked_in_flight(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    keeper_revoke(R.keeper, STR("L1"), STR_NONE, "test");
    rig_settle(&R);
    assert_null(rig_find(&R, 0, LEASE_ANSWER, id));
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_non_null(rig_find(&R, 0, LEASE_ANSWER, id));
    assert_string_equal(rig_find(&R, 0, LEASE_ANSWER, id)->value, "REAL-value-of-lease-2");
    assert_false(value_seen(0, "REAL-value-of-lease-1"));
    assert_false(value_seen(1, "REAL-value-of-lease-1"));
    assert_string_equal(R.sidecar.deleted, "L1");
    assert_int_equal(rig_count_events(&R, "revoked"), 2); /* asked for, and met */
    assert_int_equal(keeper_count(R.keeper), 1);
}

/* A revocation of what this keeper does not know ends exchanges all the same: it is an event that says who. */
static void test_unknown_revoked(void **state)
{
    (void)state;
    assert_int_equal(keeper_revoke(R.keeper, STR("L9"), STR_NONE, "uid 7"), 0);
    assert_int_equal(keeper_revoke(R.keeper, STR_NONE, STR("github"), "uid 8"), 0);
    rig_settle(&R);
    assert_int_equal(R.nevents, 2);
    assert_string_equal(R.events[0].result, "revoked");
    assert_string_equal(R.events[0].lease, "L9");
    assert_string_equal(R.events[0].who, "uid 7");
    assert_string_equal(R.events[1].credential, "github");
    assert_string_equal(R.events[1].who, "uid 8");
}

/* The control: another id's revocation does not touch it, nor does one that came before the question. */
static void test_other_id_revoked_in_flight(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    keeper_revoke(R.keeper, STR("L1"), STR_NONE, "test");
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    keeper_revoke(R.keeper, STR("L7"), STR_NONE, "test");
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_string_equal(rig_find(&R, 0, LEASE_ANSWER, id)->value, "REAL-value-of-lease-1");
    assert_int_equal(R.sidecar.calls, 1);
}

/* More revocations while it is under way than are remembered: unsure means revoked. */
static void test_many_revoked_in_flight(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", i ? "M" : "L", i ? i : 1);
        keeper_revoke(R.keeper, str_c(name), STR_NONE, "test");
        loop_run_once(R.loop, 0);
        rig_read_workers(&R);
        R.workers[0].n = R.workers[1].n = R.workers[2].n = 0;
    }
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_string_equal(rig_find(&R, 0, LEASE_ANSWER, id)->value, "REAL-value-of-lease-2");
}

static void fill_log(void)
{
    struct event e;
    do {
        event_init(&e, EVENT_LEASE);
        event_put_str(&e, FIELD_RESULT, STR("filler"));
    } while (sink_write(R.sink, &e, false) == 0);
}

/* No value leaves without its event: a watch while the log takes nothing brings neither value nor WATCHED. */
static void test_watch_unrecorded(void **state)
{
    (void)state;
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).end, END_OK);
    rig_forget(&R);
    fill_log();
    uint64_t id = rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    loop_run_once(R.loop, 100);
    rig_read_workers(&R);
    assert_int_equal(R.workers[1].n, 0);
    while (R.nevents < RIG_EVENTS && ring_reader_pending(&R.reader)) { /* the logger is back */
        unsigned char bytes[EVENT_MAX];
        size_t n;
        while (ring_reader_next(&R.reader, bytes, &n) == RING_RECORD)
            ;
        ring_reader_commit(&R.reader);
    }
    assert_null(rig_find(&R, 1, LEASE_WATCHED, id));
    /* The control. */
    id = rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    rig_settle(&R);
    assert_non_null(rig_find(&R, 1, LEASE_WATCHED, id));
    assert_true(value_seen(1, "REAL-value-of-lease-1"));
    assert_int_equal(rig_count_events(&R, "given"), 1);
}

/* A worker that watches names of its own making is cut off long before the others find no room. */
static void test_strangers(void **state)
{
    (void)state;
    char name[32];
    int i = 0;
    for (; i < 4096 && !R.workers[0].closed; i++) {
        struct msg_writer m;
        snprintf(name, sizeof name, "nobody-%d", i);
        lease_wire_writer_init(&m);
        lease_wire_put_watch(&m, &(struct lease_wire_watch) { .agent = str_c(name), .credential = STR("github") });
        if (msg_send_blocking(R.workers[0].fd, LEASE_WATCH, 1, buf_str(&m.buf), NULL, 0))
            R.workers[0].closed = true;
        buf_done(&m.buf);
        loop_run_once(R.loop, 0);
        rig_read_workers(&R);
        R.workers[0].n = 0;
    }
    assert_true(R.workers[0].closed);
    assert_in_range(i, 1000, 1100);
    /* The control: one that is a little ahead of our snapshot is not. */
    uint64_t id = rig_watch(&R, 1, "newcomer", "github", LEASE_WATCH);
    rig_settle(&R);
    assert_non_null(rig_find(&R, 1, LEASE_WATCHED, id));
    assert_false(R.workers[1].closed);
}

/* A connection to the sidecar that is kept was looked at under the rule of then: after a reload that expects another
 * user there, it is not used. */
static void test_peer_rule_changes(void **state)
{
    (void)state;
    char rule[48];
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).end, END_OK);
    unsigned connections = R.sidecar.connections;
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_OK);
    assert_int_equal(R.sidecar.connections, connections); /* it is kept */
    snprintf(rule, sizeof rule, ", peer_uid: %u", (unsigned)getuid() + 1);
    struct policy *other = rig_policy(&R, "", rule, "");
    keeper_set_policy(R.keeper, other, STR_NONE);
    struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { .host = "x.wild.test" });
    assert_int_equal(a.end, END_CREDENTIAL_UNAVAILABLE);
    assert_non_null(strstr(a.why, "another user"));
    policy_unref(&other);
    rig_pass(&R, 10100); /* the control */
    snprintf(rule, sizeof rule, ", peer_uid: %u", (unsigned)getuid());
    struct policy *ours = rig_policy(&R, "", rule, "");
    keeper_set_policy(R.keeper, ours, STR_NONE);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "y.wild.test" }).end, END_OK);
    policy_unref(&ours);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(test_id_revoked_in_flight),
        T(test_other_id_revoked_in_flight),
        T(test_many_revoked_in_flight),
        T(test_watch_unrecorded),
        T(test_strangers),
        T(test_peer_rule_changes),
        T(test_unknown_revoked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
