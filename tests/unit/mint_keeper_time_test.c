/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper and time: expiry to the second, refresh ahead, a sidecar that is away, slow, busy or says no, back-off,
 * re-minting after a 401. Time moves only by the fake clock (but for one time-out of libcurl's, 500 ms). */
#include "tests/lib/keeper_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>

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

#define LEASE_OF(seconds)                                                                                              \
    "{\"request_id\":\"{rid}\",\"lease_id\":\"L{n}\",\"expires_at\":\"{in:" seconds                                    \
    "}\",\"value\":\"REAL-value-of-lease-{n}\"}"

static const struct rig_ask plain;

static void test_expiry(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .body = LEASE_OF("90") } };
    fake_sidecar_script(&R.sidecar, steps, 1);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-1");
    fake_sidecar_stop(&R.sidecar); /* away: nothing new to be had */
    rig_pass(&R, 58000);
    assert_string_equal(rig_ask(&R, 1, &plain).value, "REAL-value-of-lease-1"); /* to its expiry, 30 s before its end */
    rig_forget(&R);
    rig_pass(&R, 2100);
    struct rig_seen a = rig_ask(&R, 1, &plain); /* not a second longer */
    assert_int_equal(a.end, END_CREDENTIAL_EXPIRED);
    assert_true(a.retry_after_s > 0);
    assert_int_equal(rig_count_events(&R, "expired"), 1);
    /* Workers scrub answers of it until its end, then it is gone. */
    assert_int_equal(rig_count_seen(&R, 0, LEASE_GONE), 0);
    rig_pass(&R, 31000);
    const struct rig_seen *gone = rig_find(&R, 0, LEASE_GONE, 0);
    assert_non_null(gone);
    assert_int_equal(gone->gone, LEASE_GONE_EXPIRED);
    assert_int_equal(keeper_count(R.keeper), 0);
    /* Back again: a new lease. */
    fake_sidecar_start(&R.sidecar, R.loop, R.socket);
    rig_pass(&R, 61000);
    assert_int_equal(rig_ask(&R, 1, &plain).end, END_OK);
}

static void test_delete_at_end(void **state)
{
    (void)state;
    rig_ask(&R, 0, &plain);
    rig_pass(&R, 601000);
    assert_string_equal(R.sidecar.deleted, "L1");
    assert_int_equal(R.sidecar.deletes, 1);
}

/* A wall clock set back lengthens nothing; set forward, it ends the lease. */
static void test_wall_clock(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { 0 }, { .status = 500 } };
    fake_sidecar_script(&R.sidecar, steps, 2); /* nothing new to be had */
    rig_ask(&R, 0, &plain);
    clock_fake_jump_wall_ms(-7200 * 1000);
    rig_pass(&R, 568000);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-1");
    rig_pass(&R, 3000);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_CREDENTIAL_EXPIRED);
    rig_pass(&R, 61000);
    fake_sidecar_script(&R.sidecar, NULL, 0);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
    assert_int_equal(R.sidecar.calls, 1);
    clock_fake_jump_wall_ms(7200 * 1000);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-2");
}

/* Shorter than min_ttl_s: used while it lasts. Too short for the skew: not at all. */
static void test_short_lease(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        { .body = "{\"request_id\":\"{rid}\",\"lease_id\":\"L{n}\",\"expires_at\":\"{in:40}\","
                  "\"refresh_after\":\"{in:39}\",\"value\":\"REAL-value-of-lease-{n}\"}" },
        { .body = LEASE_OF("29") },
        { .body = LEASE_OF("40") }
    };
    fake_sidecar_script(&R.sidecar, steps, 3);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-1");
    rig_pass(&R, 8500);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-1");
    rig_pass(&R, 2000);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_CREDENTIAL_UNAVAILABLE);
    rig_pass(&R, 2000);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_OK);
}

static void test_clamp(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .body = LEASE_OF("315360000") } };
    fake_sidecar_script(&R.sidecar, steps, 1);
    struct rig_seen a = rig_ask(&R, 0, &plain);
    int64_t left_s = (a.expires_us - clock_wall_us()) / 1000000;
    assert_in_range(left_s, 898, 900);
    assert_int_equal(rig_last_event(&R)->expires_us, a.expires_us);
    /* A max_ttl under a minute would be eaten by the skew: it comes on top. */
    struct policy *p = rig_policy(&R, "", "", ", max_ttl: 10s");
    keeper_set_policy(R.keeper, p, STR_NONE);
    a = rig_ask(&R, 0, &plain);
    assert_in_range((a.expires_us - clock_wall_us()) / 1000000, 38, 40);
    unsigned calls = R.sidecar.calls;
    rig_pass(&R, 4000);
    rig_ask(&R, 0, &plain);
    assert_int_equal(R.sidecar.calls, calls);
    rig_pass(&R, 7000);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
    assert_true(R.sidecar.calls > calls);
    policy_unref(&p);
}

static void test_refresh_ahead(void **state)
{
    (void)state;
    rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
    rig_ask(&R, 0, &(struct rig_ask) { .path = "/used" });
    rig_forget(&R);
    rig_pass(&R, 390000);
    assert_int_equal(R.sidecar.calls, 1);
    rig_pass(&R, 15000); /* two thirds of 600 s */
    assert_int_equal(R.sidecar.calls, 2);
    assert_string_equal(R.sidecar.reason, "refresh");
    assert_string_equal(R.sidecar.path_asked, "/used");
    assert_int_equal(rig_count_events(&R, "refreshed"), 1);
    /* The watcher: the new one live, then the old one replaced. The user: the old one replaced. */
    assert_int_equal(R.workers[1].n, 2);
    assert_int_equal(R.workers[1].seen[0].type, LEASE_LIVE);
    assert_string_equal(R.workers[1].seen[0].lease, "L2");
    assert_int_equal(R.workers[1].seen[1].type, LEASE_GONE);
    assert_int_equal(R.workers[1].seen[1].gone, LEASE_GONE_REPLACED);
    assert_int_equal(R.workers[0].n, 1);
    assert_string_equal(R.workers[0].seen[0].lease, "L1");
    /* The old one stays known until its end; who watches now is told of both. */
    assert_int_equal(keeper_count(R.keeper), 2);
    rig_watch(&R, 2, "coder", "github", LEASE_WATCH);
    rig_settle(&R);
    assert_int_equal(rig_count_seen(&R, 2, LEASE_LIVE), 2);
    /* Nobody used the new one: it is not refreshed. */
    rig_pass(&R, 500000);
    assert_int_equal(R.sidecar.calls, 2);
    assert_int_equal(keeper_count(R.keeper), 1);
}

/* Used only after its time of refresh had come: refreshed then. */
static void test_refresh_late_use(void **state)
{
    (void)state;
    rig_ask(&R, 0, &plain);
    rig_pass(&R, 405000);
    assert_int_equal(R.sidecar.calls, 2);
    rig_pass(&R, 420000);
    assert_int_equal(R.sidecar.calls, 2);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-2");
    rig_pass(&R, 3000);
    assert_int_equal(R.sidecar.calls, 3);
}

static void test_refresh_after(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        { .body = "{\"request_id\":\"{rid}\",\"lease_id\":\"L{n}\",\"expires_at\":\"{in:600}\","
                  "\"refresh_after\":\"{in:100}\",\"value\":\"REAL-value-of-lease-{n}\"}" },
        { 0 }
    };
    fake_sidecar_script(&R.sidecar, steps, 2);
    rig_ask(&R, 0, &plain);
    rig_pass(&R, 97000);
    assert_int_equal(R.sidecar.calls, 1);
    rig_pass(&R, 5000);
    assert_int_equal(R.sidecar.calls, 2);
}

/* A refresh that fails takes nothing away: the lease serves to its expiry, and is tried again with growing pauses. */
static void test_refresh_fails(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { 0 }, { .status = 500 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    rig_ask(&R, 0, &plain);
    rig_forget(&R);
    rig_pass(&R, 402000);
    assert_true(R.sidecar.calls > 1);
    assert_true(rig_count_events(&R, "refused") >= 1);
    rig_pass(&R, 100000);
    assert_in_range(R.sidecar.calls, 4, 12);
    assert_string_equal(rig_ask(&R, 0, &plain).value, "REAL-value-of-lease-1");
    rig_pass(&R, 70000);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_CREDENTIAL_EXPIRED);
}

static void test_denied(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { .status = 403, .body = "the sidecar's own words REAL-value" }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    struct rig_seen a = rig_ask(&R, 0, &plain);
    assert_int_equal(a.end, END_CREDENTIAL_DENIED);
    assert_null(strstr(a.why, "own words"));
    assert_string_equal(rig_last_event(&R)->code, "credential_denied");
    assert_int_equal(rig_ask(&R, 1, &plain).end, END_CREDENTIAL_DENIED); /* remembered */
    assert_int_equal(R.sidecar.calls, 1);
    assert_int_equal(rig_ask(&R, 1, &(struct rig_ask) { .host = "git.test" }).end, END_OK); /* only for that key */
    rig_pass(&R, 9000);
    assert_int_equal(rig_ask(&R, 1, &plain).end, END_CREDENTIAL_DENIED);
    rig_pass(&R, 1100);
    assert_int_equal(rig_ask(&R, 1, &plain).end, END_OK);
}

static void test_retry_after(void **state)
{
    (void)state;
    static const struct {
        unsigned status;
        const char *headers;
        uint32_t pause_s;
    } cases[] = {
        { 429, "Retry-After: 7\r\n", 7 },
        { 503, "Retry-After: 20\r\n", 20 },
        { 503, "Retry-After: 99999\r\n", 300 },
        { 503, NULL, 1 },
        { 429, "Retry-After: soon\r\n", 1 },
        { 500, "Retry-After: 30\r\n", 1 },
        { 404, NULL, 1 },
        { 302, "Location: http://localhost/v1/lease\r\n", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_step steps[] = { { .status = cases[i].status, .headers = cases[i].headers }, { 0 } };
        fake_sidecar_script(&R.sidecar, steps, 2);
        struct rig_seen a = rig_ask(&R, 0, &plain);
        assert_int_equal(a.end, END_CREDENTIAL_UNAVAILABLE);
        if (a.retry_after_s != cases[i].pause_s)
            fail_msg("case %zu: retry after %u", i, a.retry_after_s);
        assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_CREDENTIAL_UNAVAILABLE);
        assert_int_equal(R.sidecar.calls, 1);
        /* The pause is this credential's and this agent's alone. */
        assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .agent = "other" }).end, END_OK);
        assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .credential = "second", .path = "/v1/x" }).end, END_OK);
        rig_pass(&R, (uint64_t)cases[i].pause_s * 1000 - 600);
        assert_int_equal(rig_ask(&R, 0, &plain).end, END_CREDENTIAL_UNAVAILABLE);
        rig_pass(&R, 700);
        assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
        keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
        keeper_revoke(R.keeper, STR_NONE, STR("second"), "test");
        rig_settle(&R);
    }
}

static void test_backoff_grows(void **state)
{
    (void)state;
    static const uint32_t pauses[] = { 1, 2, 4, 8, 16, 32, 60, 60 };
    static const struct fake_step steps[] = { { .status = 500 } };
    fake_sidecar_script(&R.sidecar, steps, 1);
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        assert_int_equal(rig_ask(&R, 0, &plain).retry_after_s, pauses[i]);
        assert_int_equal(R.sidecar.calls, i + 1);
        rig_pass(&R, (uint64_t)pauses[i] * 1000 + 50);
    }
    fake_sidecar_script(&R.sidecar, NULL, 0);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK); /* and a success starts it anew */
    keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
    fake_sidecar_script(&R.sidecar, steps, 1);
    assert_int_equal(rig_ask(&R, 0, &plain).retry_after_s, 1);
}

/* Slow, dead in mid answer, gone, or somebody else: unavailable for this credential only. */
static void test_bad_transport(void **state)
{
    (void)state;
    static const struct fake_step hang[] = { { .hang = true }, { 0 } }, cut[] = { { .cut = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, hang, 2);
    struct rig_seen a = rig_ask(&R, 0, &plain);
    assert_int_equal(a.end, END_CREDENTIAL_UNAVAILABLE);
    assert_non_null(strstr(a.why, "in time"));
    rig_pass(&R, 1100);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
    keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
    fake_sidecar_script(&R.sidecar, cut, 2);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_CREDENTIAL_UNAVAILABLE);
    rig_pass(&R, 1100);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
    keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
    fake_sidecar_stop(&R.sidecar);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_CREDENTIAL_UNAVAILABLE);
    rig_pass(&R, 1100);
    fake_sidecar_start(&R.sidecar, R.loop, R.socket);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
}

/* Another user at the socket hears not one byte of a question. */
static void test_peer(void **state)
{
    (void)state;
    char wrong[64], right[64];
    snprintf(wrong, sizeof wrong, ", peer_uid: %u", (unsigned)geteuid() + 12345);
    snprintf(right, sizeof right, ", peer_uid: %u", (unsigned)geteuid());
    struct policy *p = rig_policy(&R, "", wrong, ""), *q = rig_policy(&R, "", right, "");
    keeper_set_policy(R.keeper, p, STR_NONE);
    struct rig_seen a = rig_ask(&R, 0, &plain);
    assert_int_equal(a.end, END_CREDENTIAL_UNAVAILABLE);
    assert_non_null(strstr(a.why, "another user"));
    assert_int_equal(R.sidecar.calls, 0);
    assert_int_equal(R.sidecar.connections, 1);
    assert_string_equal(rig_last_event(&R)->result, "refused");
    assert_non_null(strstr(rig_last_event(&R)->why, "another user"));
    keeper_set_policy(R.keeper, q, STR_NONE);
    rig_pass(&R, 1100);
    assert_int_equal(rig_ask(&R, 0, &plain).end, END_OK);
    policy_unref(&p);
    policy_unref(&q);
}

/* An origin answered 401: one new lease, for everybody. */
static void test_rejected(void **state)
{
    (void)state;
    const struct rig_ask again = { .rejected = "L1" };
    rig_ask(&R, 0, &plain);
    rig_ask(&R, 1, &plain);
    rig_forget(&R);
    assert_string_equal(rig_ask(&R, 0, &again).value, "REAL-value-of-lease-2");
    assert_string_equal(R.sidecar.reason, "rejected");
    assert_int_equal(rig_count_events(&R, "refreshed"), 1);
    const struct rig_seen *gone = rig_find(&R, 1, LEASE_GONE, 0);
    assert_non_null(gone);
    assert_int_equal(gone->gone, LEASE_GONE_REPLACED);
    assert_string_equal(rig_ask(&R, 1, &plain).value, "REAL-value-of-lease-2");
    /* An agent that provokes 401s is rationed: after eight the value stays what it is. */
    char now[LEASE_ID_MAX + 1] = "L2";
    for (int i = 0; i < 20; i++) {
        struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { .rejected = now });
        assert_int_equal(a.end, END_OK);
        memcpy(now, a.lease, sizeof now);
    }
    assert_int_equal(R.sidecar.calls, 9);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .rejected = "L9" }).value, "REAL-value-of-lease-9");
    rig_pass(&R, 10500);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .rejected = "L9" }).value, "REAL-value-of-lease-10");
}

/* A 401 that comes late is to the old value: it is answered with the new one, which stays what it is. */
static void test_rejected_late(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { 0 }, { .hold = true }, { 0 } };
    fake_sidecar_script(&R.sidecar, steps, 3);
    const struct rig_ask stale = { .rejected = "L1" };
    rig_ask(&R, 0, &plain);
    uint64_t a = rig_get(&R, 0, &stale), b = rig_get(&R, 1, &stale); /* both before the new one is there */
    rig_settle(&R);
    assert_null(rig_find(&R, 1, LEASE_ANSWER, b));
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_string_equal(rig_find(&R, 0, LEASE_ANSWER, a)->lease, "L2");
    assert_string_equal(rig_find(&R, 1, LEASE_ANSWER, b)->lease, "L2");
    rig_forget(&R);
    for (unsigned i = 0; i < 10; i++) /* and after */
        assert_string_equal(rig_ask(&R, i % 2, &stale).lease, "L2");
    assert_int_equal(R.sidecar.calls, 2);
    assert_int_equal(rig_count_seen(&R, 0, LEASE_GONE), 0);
    /* Control: the same question about the value of now brings another; the late ones took nothing of its ration. */
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .rejected = "L2" }).lease, "L3");
    assert_int_equal(R.sidecar.calls, 3);
    assert_int_equal(rig_count_seen(&R, 0, LEASE_GONE), 1);
    for (int i = 3; i < 9; i++) {
        char id[8];
        snprintf(id, sizeof id, "L%d", i);
        rig_ask(&R, 0, &(struct rig_ask) { .rejected = id });
    }
    assert_int_equal(R.sidecar.calls, 9);
}

/* Of a value that this keeper never gave (another did, before it) nothing is known: the sidecar is asked, and told why. */
static void test_rejected_unknown(void **state)
{
    (void)state;
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .rejected = "of-another" }).lease, "L1");
    assert_string_equal(R.sidecar.reason, "rejected");
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { .rejected = "of-another" }).lease, "L1");
    assert_int_equal(R.sidecar.calls, 1);
}

/* The sidecar cannot give a new one: whoever was refused hears so, the rest keep what they have. */
static void test_rejected_and_away(void **state)
{
    (void)state;
    static const struct fake_step steps[] = { { 0 }, { .status = 500, .hold = true } };
    fake_sidecar_script(&R.sidecar, steps, 2);
    rig_ask(&R, 0, &plain);
    uint64_t a = rig_get(&R, 0, &(struct rig_ask) { .rejected = "L1" });
    rig_settle(&R);
    uint64_t b = rig_get(&R, 1, &plain); /* waits for the new one */
    rig_settle(&R);
    assert_null(rig_find(&R, 1, LEASE_ANSWER, b));
    fake_release(&R.sidecar);
    rig_settle(&R);
    assert_int_equal(rig_find(&R, 0, LEASE_ANSWER, a)->end, END_CREDENTIAL_UNAVAILABLE);
    assert_string_equal(rig_find(&R, 1, LEASE_ANSWER, b)->value, "REAL-value-of-lease-1");
}

/* One agent cannot make the sidecar work without end: 20 calls a second, 200 at once. */
static void test_mint_ration(void **state)
{
    (void)state;
    enum { ASKED = 320 }; /* a machine that takes six seconds for them would be given them all */
    char host[32];
    size_t limited = 0;
    for (int i = 0; i < ASKED; i++) {
        snprintf(host, sizeof host, "h%d.wild.test", i);
        uint64_t id = rig_get(&R, 0, &(struct rig_ask) { .host = host });
        loop_run_once(R.loop, 0);
        if (i % 20 == 19)
            rig_settle(&R);
        (void)id;
        if (i % 60 == 59 || i == ASKED - 1) {
            rig_settle(&R);
            for (size_t k = 0; k < R.workers[0].n; k++)
                limited += R.workers[0].seen[k].end == END_RATE_LIMITED;
            rig_forget(&R);
        }
    }
    assert_in_range(R.sidecar.calls, 200, ASKED - 1);
    assert_int_equal(limited, ASKED - R.sidecar.calls);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .agent = "other" }).end, END_OK);
}

/* At its end the keeper gives every lease back, though nobody runs its loop any more. The sidecar is another process
 * here. */
static void test_shutdown(void **state)
{
    (void)state;
    struct rig_seen a;
    fake_sidecar_stop(&R.sidecar);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct fake_sidecar s;
        struct loop *l = loop_new();
        fake_sidecar_start(&s, l, R.socket);
        if (write(ready[1], "x", 1) != 1)
            _exit(3);
        for (uint64_t until = clock_fake_real_ms() + 5000; s.deletes < 2 && clock_fake_real_ms() < until;)
            loop_run_once(l, 50);
        _exit(s.deletes == 2 && s.calls == 2 ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    a = rig_ask(&R, 0, &plain);
    assert_int_equal(a.end, END_OK);
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_OK);
    keeper_free(&R.keeper);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ready[0]);
    close(ready[1]);
    unlink(R.socket);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(test_expiry),        T(test_delete_at_end), T(test_wall_clock),       T(test_short_lease),
        T(test_clamp),         T(test_refresh_ahead), T(test_refresh_late_use), T(test_refresh_after),
        T(test_refresh_fails), T(test_denied),        T(test_retry_after),      T(test_backoff_grows),
        T(test_bad_transport), T(test_peer),          T(test_rejected),         T(test_rejected_and_away),
        T(test_rejected_late), T(test_rejected_unknown),
        T(test_mint_ration),   T(test_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
