/* SPDX-License-Identifier: Apache-2.0
 *
 * A sidecar that lies, in forty ways, end to end: the value reaches nobody, the refusal is an event that quotes
 * nothing, another credential still works, and the honest answer a pause later is taken (the control). And keeper.sock.
 */
#include "mint/revoke_server.h"
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

#define RID   "\"request_id\":\"{rid}\""
#define LID   ",\"lease_id\":\"L{n}\""
#define EXP   ",\"expires_at\":\"{in:600}\""
#define VALUE ",\"value\":\"REAL-value-of-lease-{n}\""

struct lie {
    const char *name;
    struct fake_step step;
};
static const struct lie lies[] = {
    { "empty", { .body = "" } },
    { "not JSON", { .body = "REAL-value-of-lease-{n}" } },
    { "HTML", { .body = "<html>{rid}</html>" } },
    { "a list", { .body = "[{" RID LID EXP VALUE "}]" } },
    { "half", { .body = "{" RID LID EXP VALUE } },
    { "trailing rubbish", { .body = "{" RID LID EXP VALUE "}{}" } },
    { "value twice", { .body = "{" RID LID EXP VALUE VALUE "}" } },
    { "request_id twice", { .body = "{\"request_id\":\"x\"," RID LID EXP VALUE "}" } },
    { "expires_at twice", { .body = "{" RID LID EXP EXP VALUE "}" } },
    { "no request_id", { .body = "{\"ok\":true" LID EXP VALUE "}" } },
    { "another's request_id", { .body = "{\"request_id\":\"rid-0-99\"" LID EXP VALUE "}" } },
    { "request_id with a space", { .body = "{\"request_id\":\"{rid} \"" LID EXP VALUE "}" } },
    { "request_id null", { .body = "{\"request_id\":null" LID EXP VALUE "}" } },
    { "no lease_id", { .body = "{" RID EXP VALUE "}" } },
    { "lease_id with a slash", { .body = "{" RID ",\"lease_id\":\"a/../b\"" EXP VALUE "}" } },
    { "lease_id with CRLF", { .body = "{" RID ",\"lease_id\":\"a\\r\\nX: y\"" EXP VALUE "}" } },
    { "lease_id a number", { .body = "{" RID ",\"lease_id\":7" EXP VALUE "}" } },
    { "no expiry", { .body = "{" RID LID VALUE "}" } },
    { "expiry null", { .body = "{" RID LID VALUE ",\"expires_at\":null}" } },
    { "expiry a number", { .body = "{" RID LID VALUE ",\"expires_at\":1999999999}" } },
    { "expiry words", { .body = "{" RID LID VALUE ",\"expires_at\":\"in ten minutes\"}" } },
    { "expiry in the past", { .body = "{" RID LID VALUE ",\"expires_at\":\"{in:-5}\"}" } },
    { "expiry long ago", { .body = "{" RID LID VALUE ",\"expires_at\":\"1970-01-01T00:00:01Z\"}" } },
    { "expiry within the skew", { .body = "{" RID LID VALUE ",\"expires_at\":\"{in:29}\"}" } },
    { "no value", { .body = "{" RID LID EXP "}" } },
    { "value null", { .body = "{" RID LID EXP ",\"value\":null}" } },
    { "value an object", { .body = "{" RID LID EXP ",\"value\":{\"v\":\"REAL-value-of-lease-{n}\"}}" } },
    { "value with CRLF", { .body = "{" RID LID EXP ",\"value\":\"REAL-value-of-lease\\r\\nX-Injected: 1\"}" } },
    { "value with LF", { .body = "{" RID LID EXP ",\"value\":\"REAL-value-of-lease\\n\"}" } },
    { "value with NUL", { .body = "{" RID LID EXP ",\"value\":\"REAL-value-of-lease\\u0000x\"}" } },
    { "value with ESC", { .body = "{" RID LID EXP ",\"value\":\"REAL-value-of-lease\\u001b[31m\"}" } },
    { "short value", { .body = "{" RID LID EXP ",\"value\":\"REAL-value\"}" } },
    { "empty value", { .body = "{" RID LID EXP ",\"value\":\"\"}" } },
    { "fields", { .body = "{" RID LID EXP ",\"fields\":{\"access_key_id\":\"REAL-value-of-lease-{n}\"}}" } },
    { "value and fields", { .body = "{" RID LID EXP VALUE ",\"fields\":{}}" } },
    { "refresh_after rubbish", { .body = "{" RID LID EXP VALUE ",\"refresh_after\":1}" } },
    { "a scope that is not understood", { .body = "{" RID LID EXP VALUE ",\"scope\":{\"audience\":[\"api.test\"]}}" } },
    { "scope of the wrong type", { .body = "{" RID LID EXP VALUE ",\"scope\":\"api.test\"}" } },
    { "scope with a broken pattern", { .body = "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":[\"api.test:443\"]}}" } },
    { "a value of 1 MiB", { .body = "{" RID LID EXP VALUE "}", .pad = 1 << 20 } },
    { "one byte over 64 KiB", { .body = "{" RID LID EXP VALUE "}", .pad = 64 * 1024 } },
    { "nests deep", { .body = "{" RID LID EXP VALUE ",\"x\":[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]}" } },
    { "201 with an honest body", { .status = 201 } },
    { "204", { .status = 204, .body = "" } },
    { "500 with an honest body", { .status = 500 } },
    { "redirect", { .status = 307, .headers = "Location: http://localhost/v1/lease\r\n" } },
    { "403 with an honest body", { .status = 403 } },
    { "cut in the middle", { .cut = true } },
};

static void test_lies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake_step steps[2] = { lies[i].step, { 0 } };
        rig_forget(&R);
        rig_watch(&R, 1, "coder", "github", LEASE_WATCH);
        fake_sidecar_script(&R.sidecar, steps, 2);
        struct rig_seen a = rig_ask(&R, 0, &(struct rig_ask) { 0 });
        enum end want = lies[i].step.status == 403 ? END_CREDENTIAL_DENIED : END_CREDENTIAL_UNAVAILABLE;
        if (a.end != want || a.value[0] || strstr(a.why, "REAL"))
            fail_msg("%s: %s (%s)", lies[i].name, end_code(a.end), a.why);
        if (R.nevents != 1 || strcmp(R.events[0].result, "refused") || !R.events[0].why[0])
            fail_msg("%s: %zu events", lies[i].name, R.nevents);
        assert_int_equal(rig_count_seen(&R, 1, LEASE_LIVE), 0);
        assert_int_equal(keeper_count(R.keeper), 0);
        /* Fail closed for that credential only. */
        assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .credential = "second", .path = "/v1/x" }).end, END_OK);
        /* The control: the honest answer is taken once the pause is over. */
        rig_pass(&R, 10100);
        a = rig_ask(&R, 0, &(struct rig_ask) { 0 });
        if (a.end != END_OK || !str_starts(str_c(a.value), STR("REAL-value-of-lease-")))
            fail_msg("%s: the control: %s (%s)", lies[i].name, end_code(a.end), a.why);
        keeper_revoke(R.keeper, STR_NONE, STR("github"), "test");
        keeper_revoke(R.keeper, STR_NONE, STR("second"), "test");
        rig_settle(&R);
    }
    assert_true(sizeof lies / sizeof *lies >= 40);
}

/* allow_short lets the short one through, and nothing else. */
static void test_allow_short(void **state)
{
    (void)state;
    struct policy *p = rig_policy(&R, "", "", ", allow_short: true");
    static const struct fake_step steps[] = { { .body = "{" RID LID EXP ",\"value\":\"REAL-value\"}" },
                                              { .body = "{" RID LID EXP ",\"value\":\"abc\"}" } };
    keeper_set_policy(R.keeper, p, STR_NONE);
    fake_sidecar_script(&R.sidecar, steps, 2);
    assert_string_equal(rig_ask(&R, 0, &(struct rig_ask) { 0 }).value, "REAL-value");
    assert_int_equal(rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" }).end, END_CREDENTIAL_UNAVAILABLE);
    policy_unref(&p);
}

/* --- keeper.sock --- */

static void test_revoke_request(void **state)
{
    (void)state;
#define LINE "POST /v1/revoke HTTP/1.1\r\nHost: x\r\n"
    static const struct {
        const char *in;
        unsigned status;
    } cases[] = {
        { LINE "Content-Length: 2\r\n\r\n{}", 200 },
        { "POST /v1/revoke HTTP/1.0\r\ncontent-length:2\r\n\r\n{}", 200 },
        { LINE "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200 },
        { "", 0 },
        { "POST /v1/rev", 0 },
        { LINE "Content-Length: 2\r\n\r\n{", 0 },
        { LINE "Content-Length: 2\r\n\r\n{}x", 400 },
        { LINE "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { LINE "Content-Length: +2\r\n\r\n{}", 400 },
        { LINE "Content-Length: 2, 2\r\n\r\n{}", 400 },
        { LINE "Content-Length : 2\r\n\r\n{}", 400 },
        { LINE " folded: 2\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { LINE "Content-Length: 4097\r\n\r\n", 413 },
        { LINE "\r\n", 411 },
        { LINE "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411 },
        { "GET /v1/revoke HTTP/1.1\r\nHost: x\r\n\r\n", 405 },
        { "DELETE /v1/revoke HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 405 },
        { "POST /v1/revoke/ HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 404 },
        { "POST /v1/lease HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 404 },
        { "POST /v1/revoke HTTP/2\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { "POST /v1/revoke\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { "\r\n\r\n", 400 },
        { ": \r\n\r\n", 400 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str body;
        unsigned got = revoke_request_parse(str_c(cases[i].in), &body);
        if (got != cases[i].status)
            fail_msg("%s: %u", cases[i].in, got);
        if (got == 200)
            assert_true(str_eq(body, STR("{}")));
    }
    char big[REVOKE_HEAD_MAX + 10];
    struct str body;
    memset(big, 'a', sizeof big);
    assert_int_equal(revoke_request_parse(str_of(big, sizeof big), &body), 431);
}

static void post(const char *path, const char *request, char *ret, size_t size)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)(const void *)&a, sizeof a), 0);
    size_t half = strlen(request) / 2, n = 0;
    assert_int_equal(write(fd, request, half), half); /* in two pieces */
    rig_settle(&R);
    assert_int_equal(write(fd, request + half, strlen(request) - half), strlen(request) - half);
    rig_settle(&R);
    for (ssize_t k; n + 1 < size && (k = recv(fd, ret + n, size - 1 - n, MSG_DONTWAIT)) > 0;)
        n += (size_t)k;
    ret[n] = 0;
    close(fd);
}

static void test_revoke_socket(void **state)
{
    (void)state;
    char path[108], got[512];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct err err;
    snprintf(path, sizeof path, "%s/keeper.sock", R.dir);
    memcpy(a.sun_path, path, sizeof a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(keeper_listen(R.keeper, fd, &err), 0);
    rig_ask(&R, 0, &(struct rig_ask) { .host = "api.test" });
    rig_ask(&R, 0, &(struct rig_ask) { .host = "git.test" });
    post(path, "POST /v1/revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n{\"lease_id\":\"L9\"}", got,
         sizeof got);
    assert_non_null(strstr(got, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(got, "{\"revoked\":0}"));
    post(path, "POST /v1/revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n{\"lease_id\":\"L2\"}", got,
         sizeof got);
    assert_non_null(strstr(got, "{\"revoked\":1}"));
    char who[32];
    snprintf(who, sizeof who, "uid %u", (unsigned)geteuid());
    assert_string_equal(rig_last_event(&R)->who, who);
    assert_string_equal(rig_last_event(&R)->lease, "L2");
    post(path, "POST /v1/revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 23\r\n\r\n{\"credential\":\"github\"}", got,
         sizeof got);
    assert_non_null(strstr(got, "{\"revoked\":1}"));
    assert_int_equal(keeper_count(R.keeper), 0);
    post(path, "POST /v1/revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", got, sizeof got);
    assert_non_null(strstr(got, "HTTP/1.1 400 "));
    post(path, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", got, sizeof got);
    assert_non_null(strstr(got, "HTTP/1.1 404 "));
    unlink(path);
}

/* Who may not, reads 403 whatever was asked, and nothing is revoked. */
static bool nobody_may(void *ctx, uid_t uid)
{
    (void)ctx;
    (void)uid;
    return false;
}
static size_t must_not(void *ctx, struct str id, struct str credential, uid_t uid)
{
    (void)ctx;
    (void)id;
    (void)credential;
    (void)uid;
    abort();
}

static void test_revoke_forbidden(void **state)
{
    (void)state;
    static const struct revoke_ops ops = { .may = nobody_may, .revoke = must_not };
    char path[108], got[512];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct err err;
    snprintf(path, sizeof path, "%s/keeper.sock", R.dir);
    memcpy(a.sun_path, path, sizeof a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a) || listen(fd, 8), 0);
    struct revoke_server *s = revoke_server_new(R.loop, fd, &ops, NULL, &err);
    assert_non_null(s);
    post(path, "POST /v1/revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n{\"lease_id\":\"L1\"}", got,
         sizeof got);
    assert_non_null(strstr(got, "HTTP/1.1 403 "));
    /* One that says nothing is dropped after five seconds. */
    int silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(silent, (const struct sockaddr *)(const void *)&a, sizeof a), 0);
    rig_settle(&R);
    assert_int_equal(recv(silent, got, 1, MSG_DONTWAIT), -1);
    rig_pass(&R, 5100);
    assert_int_equal(recv(silent, got, 1, MSG_DONTWAIT), 0);
    close(silent);
    revoke_server_free(&s);
    unlink(path);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        T(test_lies),          T(test_allow_short),      cmocka_unit_test(test_revoke_request),
        T(test_revoke_socket), T(test_revoke_forbidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
