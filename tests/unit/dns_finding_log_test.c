/* SPDX-License-Identifier: Apache-2.0
 *
 * What is found in a name is in the log before the name leaves: a log without room refuses the name, and says it later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "audit/record.h"
#include "audit/ring.h"
#include "base/clock.h"
#include "dns/name_guard.h"

#include <stdio.h>
#include <sys/eventfd.h>

static struct {
    struct loop *loop;
    struct policy *policy;
    struct snapshot *snapshot;
    struct sink *sink;
    struct ring_reader ring;
    struct name_guard *guard;
} lab;

static void start(const char *exfiltration)
{
    struct diag d;
    struct err err = { "" };
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             "version: 1\nstate_dir: state\nlimits: {refusals_per_second: 3}\nexfiltration: {%s}\n"
             "agents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
             "rules:\n  - {name: wild, hosts: [\"*.up.test\"], action: allow}\n",
             exfiltration);
    diag_init(&d);
    struct config *c = config_parse(STR("test.yaml"), STR("/test"), str_c(yaml), &d);
    lab.policy = c ? policy_new(c, NULL, 0, &d) : NULL;
    diag_done(&d);
    assert_non_null(lab.policy);
    lab.loop = loop_new();
    lab.snapshot = snapshot_new(lab.policy, STR_NONE);
    int ring = sink_ring_new(RING_MIN_BYTES, &err);
    assert_int_equal(ring_reader_init(&lab.ring, ring, &err), 0);
    lab.sink = sink_open(ring, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &err);
    assert_non_null(lab.sink);
    lab.guard = name_guard_new(lab.loop, lab.sink, &err);
    assert_non_null(lab.guard);
    assert_int_equal(name_guard_set(lab.guard, lab.snapshot, NULL, &err), 0);
}

static void stop(void)
{
    name_guard_free(&lab.guard);
    sink_free(&lab.sink);
    ring_reader_done(&lab.ring);
    snapshot_unref(&lab.snapshot);
    policy_unref(&lab.policy);
    loop_free(lab.loop);
}

static enum end judge(const char *name)
{
    char dns_id[ANSWER_ID] = "";
    struct host host;
    assert_int_equal(host_parse(str_c(name), &host, NULL), 0);
    struct name_guard_ask ask = { .agent = policy_agent(lab.policy, STR("coder")),
                                  .rule = snapshot_rule(lab.snapshot, STR("wild")),
                                  .host = &host,
                                  .name = host_str(&host),
                                  .qtype = 1,
                                  .client = STR("10.77.0.2"),
                                  .dns_id = dns_id,
                                  .event = DETECTOR_QUESTION };
    struct name_guard_ruling ruling = name_guard_judge(lab.guard, &ask);
    assert_int_equal(ruling.end == END_OK, ruling.why == NULL);
    assert_int_equal(ruling.finding != NULL, dns_id[0] != '\0');
    return ruling.end;
}

/* The findings in the ring, and of how many events the counted ones speak. */
static unsigned drain(uint64_t *ret_counted)
{
    static unsigned char bytes[EVENT_MAX];
    static struct record r;
    size_t n;
    unsigned findings = 0;
    *ret_counted = 0;
    while (ring_reader_next(&lab.ring, bytes, &n) == RING_RECORD) {
        uint64_t count = 0;
        ring_reader_commit(&lab.ring);
        assert_true(record_decode(bytes, n, &r));
        if (r.type != EVENT_FINDING)
            continue;
        assert_true(str_eq(record_str(&r, FIELD_AGENT), STR("coder")));
        if (record_has(&r, FIELD_COUNT))
            memcpy(&count, r.v[FIELD_COUNT].p, 8);
        *ret_counted += count;
        findings++;
    }
    return findings;
}

static void fill(void)
{
    static struct event e;
    char text[1024];
    event_init(&e, EVENT_LIFECYCLE);
    memset(text, 'x', sizeof text);
    event_put_str(&e, FIELD_MESSAGE, str_of(text, sizeof text));
    while (sink_write(lab.sink, &e, false) == 0)
        ;
    event_init(&e, EVENT_LIFECYCLE);
    while (sink_write(lab.sink, &e, false) == 0)
        ;
}

#define CODED "q7w2e9r4t8y1u3x5z6k0m4n8b2v7c1"

static void test_no_room_no_name(void **state)
{
    (void)state;
    uint64_t counted;
    start("dns_tunnel: {action: flag}");
    assert_int_equal(judge("www.up.test"), END_OK);
    assert_int_equal(drain(&counted), 0);
    assert_int_equal(judge(CODED ".up.test"), END_OK); /* the control: room */
    assert_int_equal(drain(&counted), 1);
    fill();
    assert_int_equal(judge(CODED "a.up.test"), END_AUDIT_UNAVAILABLE);
    assert_int_equal(judge("api.up.test"), END_OK); /* the control: nothing to tell of it */
    drain(&counted);
    name_guard_free(&lab.guard);
    assert_int_equal(drain(&counted), 1); /* it came after all */
    assert_int_equal(counted, 1);
    stop();
}

/* Beyond the number a second they are counted, which needs no room, and each is in some line. */
static void test_counted(void **state)
{
    (void)state;
    enum { N = 40 };
    char name[80];
    uint64_t counted;
    start("dns_tunnel: {action: flag}");
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, CODED "%u.up.test", i);
        assert_int_equal(judge(name), END_OK);
    }
    name_guard_free(&lab.guard);
    unsigned lines = drain(&counted);
    assert_true(counted > 0 && lines < N);
    assert_int_equal(lines - 1 + counted, N);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_room_no_name), cmocka_unit_test(test_counted) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
