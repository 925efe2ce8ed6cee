/* SPDX-License-Identifier: Apache-2.0
 *
 * The minting protocol's JSON: what a lying sidecar may say (each lie beside the honest answer it differs from by one
 * edit), what we ask, and that writing and reading agree. */
#include "base/clock.h"
#include "mint/sidecar_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define RID   "\"request_id\":\"r1\""
#define LID   ",\"lease_id\":\"L-1._x\""
#define EXP   ",\"expires_at\":\"2030-01-01T00:10:00Z\""
#define VALUE ",\"value\":\"ghs_0123456789abcdef\""

struct grant_case {
    const char *name, *body;
    bool allow_short;
    const char *why; /* NULL: taken; else a piece of the reason */
};

static const struct grant_case grants[] = {
    { "honest", "{" RID LID EXP VALUE "}", false, NULL },
    { "an unknown key is passed over", "{" RID LID EXP VALUE ",\"token_type\":\"x\",\"more\":[1,{\"a\":null}]}", false,
      NULL },
    { "refresh_after", "{" RID LID EXP VALUE ",\"refresh_after\":\"2030-01-01T00:05:00+00:00\"}", false, NULL },
    { "scope", "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":[\"a.test\"],\"methods\":[\"GET\"],\"paths\":[\"/**\"]}}",
      false, NULL },
    { "empty scope", "{" RID LID EXP VALUE ",\"scope\":{}}", false, NULL },
    { "scope lists that are empty", "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":[]}}", false, NULL },
    { "short value where allowed", "{" RID LID EXP ",\"value\":\"abcdef\"}", true, NULL },
    { "tab in a value", "{" RID LID EXP ",\"value\":\"ghs_0123456789\\tabcdef\"}", false, NULL },
    { "spaces around", " \n{" RID LID EXP VALUE "}\n ", false, NULL },

    { "empty body", "", false, "JSON" },
    { "not JSON", "ghs_0123456789abcdef", false, "JSON" },
    { "half of it", "{" RID LID EXP, false, "JSON" },
    { "something after it", "{" RID LID EXP VALUE "}x", false, "JSON" },
    { "two objects", "{" RID LID EXP VALUE "}{}", false, "JSON" },
    { "single quotes", "{'request_id':'r1'}", false, "JSON" },
    { "a list", "[{" RID LID EXP VALUE "}]", false, "object" },
    { "a string", "\"ghs_0123456789abcdef\"", false, "JSON" },
    { "null", "null", false, "JSON" },
    { "value twice", "{" RID LID EXP VALUE VALUE "}", false, "twice" },
    { "request_id twice", "{" RID "," RID LID EXP VALUE "}", false, "twice" },
    { "twice, in the scope", "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":[],\"hosts\":[]}}", false, "twice" },
    { "no request_id", "{\"x\":1" LID EXP VALUE "}", false, "request_id" },
    { "another's request_id", "{\"request_id\":\"r2\"" LID EXP VALUE "}", false, "request_id" },
    { "request_id in another case", "{\"request_id\":\"R1\"" LID EXP VALUE "}", false, "request_id" },
    { "request_id is a number", "{\"request_id\":1" LID EXP VALUE "}", false, "request_id" },
    { "no lease_id", "{" RID EXP VALUE "}", false, "lease_id" },
    { "empty lease_id", "{" RID ",\"lease_id\":\"\"" EXP VALUE "}", false, "lease_id" },
    { "slash in lease_id", "{" RID ",\"lease_id\":\"../x\"" EXP VALUE "}", false, "lease_id" },
    { "lease_id with NUL", "{" RID ",\"lease_id\":\"a\\u0000b\"" EXP VALUE "}", false, "JSON" },
    { "no value", "{" RID LID EXP "}", false, "value" },
    { "value is null", "{" RID LID EXP ",\"value\":null}", false, "value" },
    { "value is a list", "{" RID LID EXP ",\"value\":[\"ghs_0123456789abcdef\"]}", false, "value" },
    { "value is a number", "{" RID LID EXP ",\"value\":12345678901234567}", false, "value" },
    { "fields without signing slots", "{" RID LID EXP ",\"fields\":{\"access_key_id\":\"AKIA0123456789\"}}", false,
      "fields" },
    { "value and fields", "{" RID LID EXP VALUE ",\"fields\":{}}", false, "fields" },
    { "CR in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\rX\"}", false, "control" },
    { "LF in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\nX: y\"}", false, "control" },
    { "LF at its end", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\n\"}", false, "control" },
    { "NUL in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\u0000\"}", false, "JSON" },
    { "ESC in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\u001b\"}", false, "control" },
    { "DEL in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\\u007f\"}", false, "control" },
    { "raw LF in value", "{" RID LID EXP ",\"value\":\"ghs_0123456789abcdef\nX\"}", false, "JSON" },
    { "15 bytes", "{" RID LID EXP ",\"value\":\"ghs_0123456789a\"}", false, "16 bytes" },
    { "empty value", "{" RID LID EXP ",\"value\":\"\"}", false, "16 bytes" },
    { "too short to be found again", "{" RID LID EXP ",\"value\":\"abc\"}", true, "too short" },
    { "broken UTF-8", "{" RID LID EXP ",\"value\":\"ghs_0123456789abc\xff\xfe\"}", false, "JSON" },
    { "lone surrogate", "{" RID LID EXP ",\"value\":\"ghs_0123456789abc\\ud800\"}", false, "JSON" },
    { "no expires_at", "{" RID LID VALUE "}", false, "expires_at" },
    { "expires_at is a number", "{" RID LID VALUE ",\"expires_at\":1893456600}", false, "expires_at" },
    { "expires_at without zone", "{" RID LID VALUE ",\"expires_at\":\"2030-01-01T00:10:00\"}", false, "expires_at" },
    { "expires_at of another kind", "{" RID LID VALUE ",\"expires_at\":\"Tue, 01 Jan 2030 00:10:00 GMT\"}", false,
      "expires_at" },
    { "expires_at on the 31st of February", "{" RID LID VALUE ",\"expires_at\":\"2030-02-31T00:10:00Z\"}", false,
      "expires_at" },
    { "expires_at empty", "{" RID LID VALUE ",\"expires_at\":\"\"}", false, "expires_at" },
    { "refresh_after is no time", "{" RID LID EXP VALUE ",\"refresh_after\":\"soon\"}", false, "refresh_after" },
    { "refresh_after is a number", "{" RID LID EXP VALUE ",\"refresh_after\":60}", false, "refresh_after" },
    { "scope is a list", "{" RID LID EXP VALUE ",\"scope\":[]}", false, "scope" },
    { "scope of something unknown", "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":[\"a.test\"],\"ports\":[443]}}", false,
      "scope" },
    { "scope.hosts is a string", "{" RID LID EXP VALUE ",\"scope\":{\"hosts\":\"a.test\"}}", false, "scope" },
    { "scope.methods of numbers", "{" RID LID EXP VALUE ",\"scope\":{\"methods\":[1]}}", false, "scope" },
    { "scope.paths with an empty one", "{" RID LID EXP VALUE ",\"scope\":{\"paths\":[\"\"]}}", false, "scope" },
    { "deep", "{" RID LID EXP VALUE ",\"x\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", false, "deep" },
};

static void test_grants(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grants / sizeof *grants; i++) {
        const struct grant_case *c = &grants[i];
        struct sidecar_grant g;
        const char *why = NULL;
        int r = sidecar_json_read_grant(str_c(c->body), STR("r1"), c->allow_short, &g, &why);
        if ((r == 0) != (c->why == NULL) || (c->why && !strstr(why, c->why)))
            fail_msg("%s: got %d, %s", c->name, r, why ? why : "taken");
        if (c->why) /* no reason quotes what came */
            assert_null(strstr(why, "ghs_"));
        if (r == 0) {
            assert_true(str_eq(g.lease_id, STR("L-1._x")));
            sidecar_grant_done(&g);
        }
    }
}

static void test_size(void **state)
{
    (void)state;
    struct buf b;
    struct sidecar_grant g;
    const char *why;
    /* Exactly at the limit it is taken, one byte more and it is not. */
    for (size_t extra = 0; extra < 2; extra++) {
        buf_init(&b, 1 << 20);
        buf_put(&b, STR("{" RID LID EXP VALUE "}"));
        while (buf_size(&b) < SIDECAR_BODY_MAX + extra)
            buf_putc(&b, ' ');
        assert_int_equal(sidecar_json_read_grant(buf_str(&b), STR("r1"), false, &g, &why), extra ? -1 : 0);
        if (!extra)
            sidecar_grant_done(&g);
        buf_done(&b);
    }
    char id[300];
    for (size_t n = LEASE_ID_MAX; n <= LEASE_ID_MAX + 1; n++) {
        memset(id, 'a', n);
        buf_init(&b, 4096);
        buf_putf(&b, "{" RID ",\"lease_id\":\"%.*s\"" EXP VALUE "}", (int)n, id);
        assert_int_equal(sidecar_json_read_grant(buf_str(&b), STR("r1"), false, &g, &why), n > LEASE_ID_MAX ? -1 : 0);
        if (n <= LEASE_ID_MAX)
            sidecar_grant_done(&g);
        buf_done(&b);
    }
    for (size_t n = LEASE_SCOPE_ENTRIES; n <= LEASE_SCOPE_ENTRIES + 1; n++) {
        buf_init(&b, 1 << 16);
        buf_putf(&b, "{" RID LID EXP VALUE ",\"scope\":{\"methods\":[\"M\"");
        for (size_t i = 1; i < n; i++)
            buf_putf(&b, ",\"M\"");
        buf_putf(&b, "]}}");
        assert_int_equal(sidecar_json_read_grant(buf_str(&b), STR("r1"), false, &g, &why),
                         n > LEASE_SCOPE_ENTRIES ? -1 : 0);
        if (n <= LEASE_SCOPE_ENTRIES) {
            assert_int_equal(g.methods.n, n);
            sidecar_grant_done(&g);
        }
        buf_done(&b);
    }
}

static void test_ask_round_trip(void **state)
{
    (void)state;
    const struct sidecar_ask a = { .credential = STR("git\"hub\\"),
                                   .agent = STR("coder"),
                                   .host = STR("api.test"),
                                   .port = 8443,
                                   .method = STR("GET"),
                                   .path = STR("/a\"b\\c\xff\x7f%2f"),
                                   .request_id = STR("01ABC"),
                                   .reason = LEASE_REJECTED,
                                   .min_ttl_s = 60 };
    struct buf b;
    struct sidecar_question q;
    const char *why = "";
    buf_init(&b, SIDECAR_REQUEST_MAX);
    assert_int_equal(sidecar_json_put_ask(&b, &a), 0);
    assert_int_equal(sidecar_json_read_ask(buf_str(&b), &q, &why), 0);
    assert_true(str_eq(q.ask.credential, a.credential) && str_eq(q.ask.agent, a.agent) && str_eq(q.ask.host, a.host));
    assert_true(str_eq(q.ask.path, STR("/a\"b\\c%FF%7F%2f")));
    assert_int_equal(q.ask.port, 8443);
    assert_int_equal(q.ask.reason, LEASE_REJECTED);
    assert_int_equal(q.ask.min_ttl_s, 60);
    sidecar_question_done(&q);
    buf_done(&b);
}

#define ASK "\"version\":1,\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h.test\",\"port\":443,\"request_id\":\"r\""

static void test_ask_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool fine;
    } cases[] = {
        { "{" ASK "}", true },
        { "{" ASK ",\"method\":\"GET\",\"path\":\"/\",\"reason\":\"refresh\",\"min_ttl_s\":1}", true },
        { "{" ASK ",\"reason\":\"other\"}", false },
        { "{" ASK ",\"min_ttl_s\":-1}", false },
        { "{" ASK ",\"method\":1}", false },
        { "{" ASK "," ASK "}", false },
        { "{\"version\":2,\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h\",\"port\":443,\"request_id\":\"r\"}",
          false },
        { "{\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h\",\"port\":443,\"request_id\":\"r\"}", false },
        { "{\"version\":1,\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h\",\"port\":0,\"request_id\":\"r\"}",
          false },
        { "{\"version\":1,\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h\",\"port\":\"443\",\"request_id\":\"r\"}",
          false },
        { "{\"version\":1,\"credential\":\"c\",\"agent\":\"a\",\"host\":\"h\",\"port\":443}", false },
        { "{\"version\":1,\"credential\":\"\",\"agent\":\"a\",\"host\":\"h\",\"port\":443,\"request_id\":\"r\"}",
          false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sidecar_question q;
        const char *why;
        int r = sidecar_json_read_ask(str_c(cases[i].body), &q, &why);
        if ((r == 0) != cases[i].fine)
            fail_msg("%s: %d", cases[i].body, r);
        if (r == 0)
            sidecar_question_done(&q);
    }
}

static void test_grant_round_trip(void **state)
{
    (void)state;
    struct sidecar_grant g, back;
    const char *why = "";
    struct buf b;
    assert_int_equal(
        sidecar_json_read_grant(STR("{" RID LID EXP ",\"value\":\"v\xc3\xa4lue \\\"quoted\\\" \\u2028 0123\""
                                    ",\"scope\":{\"hosts\":[\"*.a.test\",\"b.test\"],\"paths\":[]}}"),
                                STR("r1"), false, &g, &why),
        0);
    buf_init(&b, SIDECAR_BODY_MAX);
    b.wipe = true;
    assert_int_equal(sidecar_json_put_grant(&b, STR("r9"), &g), 0);
    assert_int_equal(sidecar_json_read_grant(buf_str(&b), STR("r9"), false, &back, &why), 0);
    assert_true(str_eq(g.value, back.value) && str_eq(g.lease_id, back.lease_id) && g.expires_us == back.expires_us);
    assert_int_equal(back.hosts.n, 2);
    assert_true(back.paths.given && back.paths.n == 0 && !back.methods.given);
    sidecar_grant_done(&g);
    sidecar_grant_done(&back);
    buf_reset(&b);
    g = (struct sidecar_grant) { .lease_id = STR("L"), .value = STR("\xff\xfe 0123456789abcdef"), .expires_us = 1 };
    assert_int_equal(sidecar_json_put_grant(&b, STR("r"), &g), -1); /* cannot travel */
    buf_done(&b);
}

static void test_utf8(void **state)
{
    (void)state;
    assert_true(sidecar_json_utf8(STR("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf")));
    static const char *const bad[] = { "\x80",
                                       "\xc0\xaf",
                                       "\xc3",
                                       "\xe0\x80\xaf",
                                       "\xed\xa0\x80",
                                       "\xf0\x80\x80\x80",
                                       "\xf4\x90\x80\x80",
                                       "\xf8\x88\x80\x80\x80",
                                       "\xff" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sidecar_json_utf8(str_c(bad[i])));
}

static void test_revoke(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool fine;
    } cases[] = {
        { "{\"lease_id\":\"L1\"}", true },
        { "{\"credential\":\"github\"}", true },
        { "{}", false },
        { "{\"lease_id\":\"L1\",\"credential\":\"github\"}", false },
        { "{\"lease_id\":\"L1\",\"more\":1}", false },
        { "{\"lease_id\":\"a/b\"}", false },
        { "{\"lease_id\":1}", false },
        { "{\"credential\":\"\"}", false },
        { "{\"credential\":null}", false },
        { "[]", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str id = STR_NONE, credential = STR_NONE;
        void *json = NULL;
        int r = sidecar_json_read_revoke(str_c(cases[i].body), &id, &credential, &json);
        if ((r == 0) != cases[i].fine || (r == 0 && !id.n == !credential.n))
            fail_msg("%s: %d", cases[i].body, r);
        sidecar_json_free(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grants),           cmocka_unit_test(test_size),
        cmocka_unit_test(test_ask_round_trip),   cmocka_unit_test(test_ask_refused),
        cmocka_unit_test(test_grant_round_trip), cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_revoke),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
