/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper against PRODUCT's table of leases: cache key, single flight, order of what goes out, scope, refusals by
 * its own snapshot, audit, rations, revocation, reload. Time and back-off are in mint_keeper_time_test.c, lies in
 * mint_keeper_lies_test.c. */
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

static void test_given(void **state)
{
    (void)state;
    struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { .path = "/repos/x" });
    if (a.end != END_OK)
        fail_msg("%s: %s", end_code(a.end), a.why);
    assert_string_equal(a.value, "REAL-value-of-lease-1");
    assert_string_equal(a.lease, "L1");
    assert_int_equal(R.sidecar.calls, 1);
    assert_string_equal(R.sidecar.reason, "first");
    assert_string_equal(R.sidecar.path_asked, "/repos/x");
    assert_string_equal(R.sidecar.last_id, "rid-0-100");
    struct str asked = buf_str(&R.sidecar.last);
    static const char *const parts[] = { "\"version\":1",       "\"credential\":\"github\"",
                                         "\"agent\":\"coder\"", "\"host\":\"api.test\"",
                                         "\"port\":443",        "\"method\":\"GET\"",
                                         "\"min_ttl_s\":60" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_true(str_find(asked, str_c(parts[i])) >= 0);
    assert_int_equal(R.nevents, 1);
    assert_string_equal(R.events[0].result, "given");
    assert_string_equal(R.events[0].credential, "github");
    assert_string_equal(R.events[0].agent, "coder");
    assert_string_equal(R.events[0].lease, "L1");
    assert_string_equal(R.events[0].request_id, "rid-0-100");
    assert_int_equal(R.events[0].expires_us, a.expires_us);
}

/* The cache key is (credential, agent, host, port); method, path and worker are not in it. */
static void test_cache_key(void **state)
{
    (void)state;
    static const struct {
        struct rig_ask ask;
        unsigned worker, calls;
    } steps[] = {
        { { .host = "api.test" }, 0, 1 },
        { { .host = "api.test" }, 0, 1 },
        { { .host = "api.test" }, 1, 1 },
        { { .host = "api.test", .path = "/other", .method = "POST" }, 2, 1 },
        { { .host = "git.test" }, 0, 2 },
        { { .host = "git.test", .port = 8443 }, 0, 3 },
        { { .host = "git.test", .port = 8443, .agent = "other" }, 0, 4 },
        { { .credential = "second", .path = "/v1/x" }, 0, 5 },
        { { .host = "git.test", .port = 8443, .agent = "other" }, 1, 5 },
        { { .credential = "second", .path = "/v1/y" }, 0, 5 },
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct rig_seen a = rig_ask(&R, steps[i].worker, &steps[i].ask);
        assert_int_equal(a.end, END_OK);
        assert_int_equal(R.sidecar.calls, steps[i].calls);
    }
    assert_int_equal(rig_count_events(&R, "given"), 10);
    assert_int_equal(keeper_count(R.keeper), 5);
}

static void test_single_flight(void **state)
{
    (void)state;
    static const struct fake_step held[] = { { .hold = true } };
    fake_sidecar_script(&R.sidecar, held, 1);
    uint64_t ids[RIG_WORKERS][4];
    for (unsigned w = 0; w < RIG_WORKERS; w++)
        for (unsigned i = 0; i < 4; i++)
            ids[w][i] = rig_get(&R, w, &(struct rig_ask) { .path = i % 2 ? "/a" : "/b" });
    rig_settle(&R);
    assert_int_equal(R.sidecar.calls, 1);
    assert_int_equal(R.workers[0].n + R.workers[1].n + R.workers[2].n, 0);
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_int_equal(R.sidecar.calls, 1);
    for (unsigned w = 0; w < RIG_WORKERS; w++)
        for (unsigned i = 0; i < 4; i++) {
            const struct rig_seen *s = rig_find(&R, w, LEASE_ANSWER, ids[w][i]);
            assert_non_null(s);
            assert_string_equal(s->value, "REAL-value-of-lease-1");
        }
    assert_int_equal(rig_count_events(&R, "given"), 12);
}

/* Every watcher has the value before the worker that asked for it. */
static void test_live_before_answer(void **state)
{
    (void)state;
    uint64_t w0 = rig_watch(&R, 0, "coder", "github", LEASE_WATCH),
             w1 = rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    uint64_t w2 = rig_watch(&R, 2, "other", "github", LEASE_WATCH);
    rig_settle(&R);
    assert_non_null(rig_find(&R, 0, LEASE_WATCHED, w0));
    assert_non_null(rig_find(&R, 1, LEASE_WATCHED, w1));
    assert_non_null(rig_find(&R, 2, LEASE_WATCHED, w2));
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    const struct rig_seen *answer = rig_find(&R, 0, LEASE_ANSWER, id), *live = rig_find(&R, 0, LEASE_LIVE, 0);
    const struct rig_seen *live1 = rig_find(&R, 1, LEASE_LIVE, 0);
    assert_true(answer && live && live1);
    assert_true(live->order < answer->order && live1->order < answer->order);
    assert_string_equal(live1->value, "REAL-value-of-lease-1");
    assert_null(rig_find(&R, 2, LEASE_LIVE, 0)); /* another agent's */

    /* Who watches later is told of what is live, with an event, before WATCHED. */
    rig_forget(&R);
    w2 = rig_watch(&R, 2, "coder", "github", LEASE_WATCH);
    rig_settle(&R);
    assert_int_equal(R.workers[2].n, 2);
    assert_int_equal(R.workers[2].seen[0].type, LEASE_LIVE);
    assert_int_equal(R.workers[2].seen[1].type, LEASE_WATCHED);
    assert_int_equal(rig_count_events(&R, "given"), 1);

    /* Who no longer watches is not told of the next. */
    rig_watch(&R, 1, "coder", "github", LEASE_UNWATCH);
    rig_settle(&R);
    rig_forget(&R);
    rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" });
    assert_int_equal(rig_count_seen(&R, 1, LEASE_LIVE), 0);
    assert_int_equal(rig_count_seen(&R, 2, LEASE_LIVE), 1);
}

/* What the keeper's own snapshot refuses, whoever asks; nobody is asked for it. Each beside what passes. */
static void test_own_decision(void **state)
{
    (void)state;
    static const struct {
        struct rig_ask ask;
        enum end end;
    } cases[] = {
        { { .host = "api.test" }, END_OK },
        { { .host = "evil.test" }, END_PLACEHOLDER_WRONG_HOST },
        { { .host = "deny.test" }, END_HOST_DENIED }, /* in the credential's scope, but no rule */
        { { .host = "api.test", .port = 444 }, END_PLACEHOLDER_OUT_OF_SCOPE },
        { { .host = "api.test", .scheme = SCHEME_HTTP }, END_PLACEHOLDER_OUT_OF_SCOPE },
        { { .host = "api.test", .agent = "nobody" }, END_CREDENTIAL_UNAVAILABLE },
        { { .host = "api.test", .credential = "nothing" }, END_CREDENTIAL_UNAVAILABLE },
        { { .credential = "second", .path = "/v1/x" }, END_OK },
        { { .credential = "second", .path = "/v1/x", .agent = "other" }, END_PLACEHOLDER_WRONG_HOST },
        { { .credential = "second", .path = "/v2/x" }, END_PLACEHOLDER_OUT_OF_SCOPE },
        { { .credential = "second", .path = "/v1/x", .method = "POST" }, END_PLACEHOLDER_OUT_OF_SCOPE },
        { { .credential = "second", .path = "/v1/../v2/x" }, END_BAD_REQUEST },
        { { .credential = "second", .path = "/v1/%2e%2e/x" }, END_BAD_REQUEST },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned calls = R.sidecar.calls;
        rig_forget(&R);
        struct rig_seen a = rig_ask(&R, 0, &cases[i].ask);
        if (a.end != cases[i].end)
            fail_msg("case %zu: got %s", i, end_code(a.end));
        assert_int_equal(R.nevents, 1);
        assert_string_equal(R.events[0].result, a.end == END_OK ? "given" : "refused");
        if (a.end != END_OK) {
            assert_int_equal(R.sidecar.calls, calls);
            assert_string_equal(R.events[0].code, end_code(a.end));
            assert_string_equal(a.value, "");
        }
    }
}

static void test_observe(void **state)
{
    (void)state;
    struct policy *observe = rig_policy(&R, "mode: observe", "", ""), *enforce = R.policy;
    keeper_set_policy(R.keeper, observe, STR_NONE);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "deny.test" }).end, END_OK);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "evil.test" }).end, END_PLACEHOLDER_WRONG_HOST);
    keeper_set_policy(R.keeper, enforce, STR_NONE);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "deny.test" }).end, END_HOST_DENIED);
    policy_unref(&observe);
}

#define SCOPED(scope)                                                                                                  \
    "{\"request_id\":\"{rid}\",\"lease_id\":\"L{n}\",\"expires_at\":\"{in:600}\",\"value\":\"REAL-value-of-lease-{n}"  \
    "\",\"scope\":" scope "}"

static void test_scope(void **state)
{
    (void)state;
    static const struct {
        const char *scope, *path;
        enum end end;
        unsigned calls;
    } cases[] = {
        { SCOPED("{\"paths\":[\"/a/**\"]}"), "/a/b", END_OK, 1 },
        { SCOPED("{\"paths\":[\"/a/**\"]}"), "/c", END_PLACEHOLDER_OUT_OF_SCOPE, 2 },
        { SCOPED("{\"methods\":[\"GET\",\"HEAD\"]}"), "/", END_OK, 1 },
        { SCOPED("{\"methods\":[\"POST\"]}"), "/", END_PLACEHOLDER_OUT_OF_SCOPE, 2 },
        { SCOPED("{\"hosts\":[\"api.test\"]}"), "/", END_OK, 1 },
        { SCOPED("{\"hosts\":[\"*.test\"]}"), "/", END_OK, 1 },
        { SCOPED("{\"hosts\":[\"git.test\"]}"), "/", END_PLACEHOLDER_OUT_OF_SCOPE, 2 },
        { SCOPED("{\"hosts\":[]}"), "/", END_PLACEHOLDER_OUT_OF_SCOPE, 2 },
        { SCOPED("{\"paths\":[]}"), "/", END_PLACEHOLDER_OUT_OF_SCOPE, 2 },
        { SCOPED("{}"), "/", END_OK, 1 },
        { SCOPED("{\"hosts\":[\"no host\"]}"), "/", END_CREDENTIAL_UNAVAILABLE, 1 },
        { SCOPED("{\"paths\":[\"no path\"]}"), "/", END_CREDENTIAL_UNAVAILABLE, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_step step = { .body = cases[i].scope };
        fake_sidecar_script(&R.sidecar, &step, 1);
        rig_forget(&R);
        struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { .path = cases[i].path });
        if (a.end != cases[i].end || R.sidecar.calls != cases[i].calls)
            fail_msg("case %zu: %s after %u calls", i, end_code(a.end), R.sidecar.calls);
        if (a.end != END_OK) /* what nobody may use is given back */
            assert_int_equal(R.sidecar.deletes, cases[i].calls);
        assert_string_equal(rig_last_event(&R)->result, a.end == END_OK ? "given" : "refused");
        keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
        rig_pass(&R, 61000);
    }
}

/* Leases that differ in scope live side by side: going back to the first path makes no call. */
static void test_scope_variants(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .body = SCOPED("{\"paths\":[\"/a/**\"]}") },
                                              { .body = SCOPED("{\"paths\":[\"/b/**\"]}") } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .path = "/a/1" }).value, "REAL-value-of-lease-1");
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .path = "/b/1" }).value, "REAL-value-of-lease-2");
    assert_string_equal(rig_ask(&R, 1, &(struct rig_ask) { .path = "/a/2" }).value, "REAL-value-of-lease-1");
    assert_int_equal(R.sidecar.calls, 2);
}

/* A second call that covers the request is as good as a first. */
static void test_scope_second_call(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .body = SCOPED("{\"paths\":[\"/b/**\"]}") }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .path = "/a/1" }).value, "REAL-value-of-lease-2");
}

static void block(bool on)
{
    atomic_store(&R.ring.head->blocked, on ? 1u : 0u);
}

/* No event, no value: neither for who asked nor for who watches. */
static void test_audit(void **state)
{
    (void)state;
    static const struct fake_step held[] = { { .hold = true } };
    rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    block(true);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).end, END_AUDIT_UNAVAILABLE);
    assert_int_equal(R.sidecar.calls, 0);
    block(false);
    fake_sidecar_script(&R.sidecar, held, 1);
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    assert_int_equal(R.sidecar.calls, 1);
    block(true);
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_int_equal(rig_find(&R, 0, LEASE_ANSWER, id)->end, END_AUDIT_UNAVAILABLE);
    assert_int_equal(rig_count_seen(&R, 1, LEASE_LIVE), 0);
    assert_int_equal(keeper_count(R.keeper), 0);
    assert_string_equal(R.sidecar.deleted, "L1");
    block(false);
    fake_sidecar_script(&R.sidecar, NULL, 0);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).end, END_OK);
    assert_int_equal(rig_count_seen(&R, 1, LEASE_LIVE), 1);
}

/* Asks until one is refused. At a rate of one a second each second that passes meanwhile may bring one more. */
static void ration(unsigned n)
{
    unsigned got = 0;
    uint64_t start = clock_mono_ms();
    struct rig_seen a;
    while ((a = rig_ask(&R, 0, &(struct rig_ask) { 0 })).end == END_OK)
        got++;
    assert_in_range(got, n, n + 1 + (clock_mono_ms() - start) / 1000);
    assert_int_equal(a.end, END_RATE_LIMITED);
    assert_int_equal(a.retry_after_s, 1);
}

static void test_worker_ration(void **state)
{
    (void)state;
    struct policy *tight = rig_policy(&R, "limits: {lease_rate: 1}", "", "");
    keeper_set_policy(R.keeper, tight, STR_NONE);
    ration(8); /* of ten: one agent does not take the last ones */
    assert_int_equal(rig_ask(&R, 1, &(struct rig_ask) { 0 }).end, END_OK); /* another worker's own ration */
    rig_pass(&R, 1100);
    ration(1);
    policy_unref(&tight);
}

/* While a sidecar takes its time, one agent's long questions do not take the room for another's. */
static void test_waiting_is_shared(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    struct policy *patient = rig_policy(&R, "", ", timeout: 60s", "");
    keeper_set_policy(R.keeper, patient, STR_NONE);
    static char path[32 * 1024];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    const struct rig_ask long_one = { .path = path }, others = { .path = path, .agent = "other", .host = "git.test" };
    for (int i = 0; i < 300; i++) { /* more than there is room for */
        rig_get(&R, 0, &long_one);
        loop_run_once(R.loop, 0);
    }
    rig_settle(&R);
    size_t refused = R.workers[0].n;
    assert_in_range(refused, 300 - 256 * 3 / 4, 300 - 180);
    for (size_t i = 0; i < refused; i++) {
        assert_int_equal(R.workers[0].seen[i].end, END_RATE_LIMITED);
        assert_string_equal(R.workers[0].seen[i].why, "too many questions of this agent wait for its sidecars");
    }
    rig_forget(&R);
    assert_int_equal(rig_ask(&R, 0, &others).end, END_OK);
    /* Control: when its questions have their answers, the same one is answered too. */
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_int_equal(rig_count_seen(&R, 0, LEASE_ANSWER), 1 + 300 - refused);
    for (size_t i = 0; i < R.workers[0].n; i++)
        assert_true(R.workers[0].seen[i].type != LEASE_ANSWER || R.workers[0].seen[i].end == END_OK);
    assert_int_equal(rig_ask(&R, 0, &long_one).end, END_OK);
    policy_unref(&patient);
}

static void test_lease_count(void **state)
{
    (void)state;
    struct policy *tight = rig_policy(&R, "limits: {lease_count: 16}", "", "");
    keeper_set_policy(R.keeper, tight, STR_NONE);
    char host[32];
    for (int i = 0; i < 16; i++) {
        snprintf(host, sizeof host, "h%d.wild.test", i);
        assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = host }).end, END_OK);
    }
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "more.wild.test" }).end, END_RATE_LIMITED);
    assert_int_equal(keeper_count(R.keeper), 16);
    assert_string_equal(R.sidecar.deleted, "L17");
    rig_pass(&R, 121000); /* what nobody used for two minutes makes room: the oldest */
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "more.wild.test" }).end, END_OK);
    assert_int_equal(keeper_count(R.keeper), 16);
    assert_string_equal(R.sidecar.deleted, "L1");
    policy_unref(&tight);
}

/* A worker that goes away while its question is under way: the lease is given back; its successor starts anew. */
static void test_worker_dies(void **state)
{
    (void)state;
    static const struct fake_step held[] = { { .hold = true } };
    fake_sidecar_script(&R.sidecar, held, 1);
    rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    rig_worker_connect(&R, 0);
    rig_settle(&R);
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_int_equal(keeper_count(R.keeper), 0);
    assert_string_equal(R.sidecar.deleted, "L1");
    assert_int_equal(R.nevents, 0);
    fake_sidecar_script(&R.sidecar, NULL, 0);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).end, END_OK);
}

static void test_broken_worker(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        struct str body;
    } bad[] = {
        { LEASE_GET, { "x", 1 } }, { LEASE_WATCH, { "", 0 } }, { LEASE_ANSWER, { "", 0 } },
        { LEASE_GONE, { "", 0 } }, { 99, { "", 0 } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(msg_send_blocking(R.workers[1].fd, bad[i].type, 1, bad[i].body, NULL, 0), 0);
        rig_settle(&R);
        assert_true(R.workers[1].closed);
        rig_worker_connect(&R, 1);
        assert_int_equal(rig_ask(&R, 1, &(struct rig_ask) { 0 }).end, END_OK);
    }
    assert_false(R.workers[0].closed);
}

/* A sidecar that calls all its leases the same: workers are not confused. */
static void test_same_id(void **state)
{
    (void)state;
    static const struct fake_step same[] = {
        { .body = "{\"request_id\":\"{rid}\",\"lease_id\":\"same\",\"expires_at\":\"{in:600}\","
                  "\"value\":\"REAL-value-of-lease-{n}\"}" }
    };
    fake_sidecar_script(&R.sidecar, same, 1);
    struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    struct rig_seen b = rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" });
    assert_string_equal(a.lease, "same");
    assert_string_not_equal(b.lease, "same");
    assert_string_equal(rig_last_event(&R)->lease, "same"); /* the log has the sidecar's own word */
    assert_int_equal(keeper_revoke(R.keeper, str_c(b.lease), STR_NONE, "test"), 1);
    rig_settle(&R);
    assert_int_equal(R.sidecar.deletes, 0); /* the other still uses that id */
    assert_int_equal(keeper_revoke(R.keeper, STR("same"), STR_NONE, "test"), 1);
    rig_settle(&R);
    assert_int_equal(R.sidecar.deletes, 1);
}

static void test_revoke(void **state)
{
    (void)state;
    rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" });
    rig_ask(&R, 0, &(struct rig_ask) { .credential = "second", .path = "/v1/x" });
    rig_forget(&R);
    assert_int_equal(keeper_revoke(R.keeper, STR("L9"), STR_NONE, "uid 7"), 0);
    rig_settle(&R);
    for (unsigned w = 0; w < 3; w++) { /* not known here: a keeper of before may have given it to anybody */
        assert_string_equal(rig_find(&R, w, LEASE_GONE, 0)->lease, "L9");
        assert_int_equal(R.workers[w].n, 1);
    }
    rig_forget(&R);
    assert_int_equal(keeper_revoke(R.keeper, STR("L1"), STR_NONE, "uid 7"), 1);
    rig_settle(&R);
    for (unsigned w = 0; w < 2; w++) { /* the one that used it and the one that watched */
        const struct rig_seen *gone = rig_find(&R, w, LEASE_GONE, 0);
        assert_non_null(gone);
        assert_string_equal(gone->lease, "L1");
        assert_int_equal(gone->gone, LEASE_GONE_REVOKED);
    }
    assert_int_equal(R.workers[2].n, 0);
    assert_string_equal(R.sidecar.deleted, "L1");
    assert_string_equal(rig_last_event(&R)->result, "revoked");
    assert_string_equal(rig_last_event(&R)->who, "uid 7");
    assert_int_equal(keeper_revoke(R.keeper, STR_NONE, STR("github"), "uid 7"), 1);
    assert_int_equal(keeper_count(R.keeper), 1);
    unsigned calls = R.sidecar.calls;
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" }).value, "REAL-value-of-lease-4");
    assert_int_equal(R.sidecar.calls, calls + 1);
}

/* What is under way when a credential is revoked was minted before: it is not used. */
static void test_revoke_in_flight(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    uint64_t id = rig_get(&R, 0, &(struct rig_ask) { 0 });
    rig_settle(&R);
    keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
    rig_settle(&R);
    assert_string_equal(rig_find(&R, 0, LEASE_ANSWER, id)->value, "REAL-value-of-lease-2");
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_string_equal(R.sidecar.deleted, "L1");
}

static void test_reload(void **state)
{
    (void)state;
    rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    struct policy *same = rig_policy(&R, "workers: 7", "", "");
    keeper_set_policy(R.keeper, same, STR_NONE); /* nothing of ours changed */
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" }).end, END_OK);
    assert_int_equal(R.sidecar.calls, 1);
    assert_int_equal(rig_count_seen(&R, 0, LEASE_GONE), 0);

    /* Another way to mint it: the old lease is used no more, but it stays known until its end. */
    struct policy *shorter = rig_policy(&R, "", "", ", max_ttl: 5m");
    keeper_set_policy(R.keeper, shorter, STR_NONE);
    rig_settle(&R);
    const struct rig_seen *gone = rig_find(&R, 0, LEASE_GONE, 0);
    assert_non_null(gone);
    assert_int_equal(gone->gone, LEASE_GONE_REPLACED);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" }).value, "REAL-value-of-lease-2");
    assert_int_equal(keeper_count(R.keeper), 2);
    policy_unref(&shorter);
    policy_unref(&same);
}

static struct policy *policy_without_github(void)
{
    struct buf b;
    buf_init(&b, 65536);
    const char *text = rig_yaml(&b, R.socket, "", "", "");
    struct buf cut;
    buf_init(&cut, 65536);
    const char *from = strstr(text, "  - {name: github"), *to = strstr(text, "  - {name: second");
    buf_put(&cut, str_of(text, (size_t)(from - text)));
    buf_put(&cut, str_c(to));
    struct policy *p = fixture_policy(buf_str(&cut));
    buf_done(&b);
    buf_done(&cut);
    return p;
}

static void test_reload_removes(void **state)
{
    (void)state;
    rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    rig_ask(&R, 0, &(struct rig_ask) { .credential = "second", .path = "/v1/x" });
    struct policy *p = policy_without_github();
    keeper_set_policy(R.keeper, p, STR_NONE);
    rig_settle(&R);
    const struct rig_seen *gone = rig_find(&R, 0, LEASE_GONE, 0);
    assert_non_null(gone);
    assert_int_equal(gone->gone, LEASE_GONE_REVOKED);
    assert_int_equal(keeper_count(R.keeper), 1);
    assert_string_equal(R.sidecar.deleted, "L1");
    assert_string_equal(rig_last_event(&R)->result, "revoked");
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" }).end, END_CREDENTIAL_UNAVAILABLE);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .credential = "second", .path = "/v1/x" }).end, END_OK);
    keeper_set_policy(R.keeper, R.policy, STR_NONE);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" }).end, END_OK);
    policy_unref(&p);
}

static void test_list(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 65536);
    keeper_list(R.keeper, &b);
    assert_true(str_eq(buf_str(&b), STR("[]")));
    rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test", .port = 8443 });
    buf_reset(&b);
    keeper_list(R.keeper, &b);
    assert_true(str_find(buf_str(&b),
                         STR("{\"lease_id\":\"L2\",\"credential\":\"github\",\"agent\":\"coder\",\"host\":\"git.test\","
                             "\"port\":8443,\"expires_at\":\"")) > 0);
    assert_true(str_find(buf_str(&b), STR("REAL")) < 0);
    buf_done(&b);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(test_given),
        T(test_cache_key),
        T(test_single_flight),
        T(test_live_before_answer),
        T(test_own_decision),
        T(test_observe),
        T(test_scope),
        T(test_scope_variants),
        T(test_scope_second_call),
        T(test_audit),
        T(test_worker_ration),
        T(test_waiting_is_shared),
        T(test_lease_count),
        T(test_worker_dies),
        T(test_broken_worker),
        T(test_same_id),
        T(test_revoke),
        T(test_revoke_in_flight),
        T(test_reload),
        T(test_reload_removes),
        T(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
