/* SPDX-License-Identifier: Apache-2.0
 *
 * The slot of whole texts: {a} and {b} stand for two placeholders of the agent with the slot, {n} for one without it, {o} for another
 * agent's, {s} for one that is no longer live. Each refusal has its control in the row after it. */
#include "mint/swap_text.h"
#include "tests/unit/mint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char yaml[] =
    "version: 1\n"
    "state_dir: state\n"
    "agents:\n"
    "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
    "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
    "sidecars: [{name: local, socket: /run/mint.sock}]\n"
    "rules: [{name: all, hosts: [\"*\"], ports: [443, 8443], action: allow}]\n"
    "credentials:\n"
    "  - {name: a, agents: [coder, other], hosts: [ws.test], slots: [websocket], like: github, source: {sidecar: local}}\n"
    "  - {name: b, agents: [coder], hosts: [ws.test], paths: [\"/b/**\"], slots: [websocket, \"header:x\"], max_occurrences: 2,\n"
    "     placeholder: 'literal-0123456789-abcdef', source: {sidecar: local}}\n"
    "  - {name: n, agents: [coder], hosts: [ws.test], slots: [\"header:authorization\"], like: npm, source: {sidecar: local}}\n";

static const char value_a[] = "ghs_REALREALREALREAL", value_b[] = "literal real value";
static struct policy *policy, *policy_before;
static struct placeholder_table *table, *table_before;

static struct str text_of(struct placeholder_table *t, struct policy *p, const char *agent, size_t credential)
{
    return placeholder_of(t, policy_agent(p, str_c(agent)), &policy_config(p)->credentials[credential])->text;
}

static struct str mark(char c)
{
    switch (c) {
    case 'a':
        return text_of(table, policy, "coder", 0);
    case 'b':
        return text_of(table, policy, "coder", 1);
    case 'n':
        return text_of(table, policy, "coder", 2);
    case 'o':
        return text_of(table, policy, "other", 0);
    case 'A':
        return str_c(value_a);
    case 'B':
        return str_c(value_b);
    default:
        return text_of(table_before, policy_before, "gone", 0);
    }
}

static void expand(const char *in, struct buf *out)
{
    buf_init(out, 1 << 20);
    for (; *in; in++)
        if (*in == '{' && in[1] && in[2] == '}') {
            buf_put(out, mark(in[1]));
            in += 2;
        } else {
            buf_putc(out, *in);
        }
}

static const struct row {
    const char *text;
    enum end end;
    const char *out; /* {A}, {B}: the values */
    char inert;
    const char *host, *path;
    uint16_t port;
} rows[] = {
    { "{a}", END_OK, "{A}", 0, "ws.test", "/", 443 },
    { "nothing of ours", END_OK, "nothing of ours", 0, "ws.test", "/", 443 },
    { "", END_OK, "", 0, "ws.test", "/", 443 },
    { "Bearer {a}.", END_OK, "Bearer {A}.", 0, "ws.test", "/", 443 },
    { "{\"d\":{\"token\":\"{a}\"}}", END_OK, "{\"d\":{\"token\":\"{A}\"}}", 0, "ws.test", "/", 443 },
    { "{\"d\":\"\\n{a}\\n\"}", END_OK, "{\"d\":\"\\n{A}\\n\"}", 0, "ws.test", "/", 443 },
    { "{a} {a}", END_PLACEHOLDER_WRONG_SLOT, NULL, 0, "ws.test", "/", 443 }, /* one more than max_occurrences */
    { "{b} {b}", END_OK, "{B} {B}", 0, "ws.test", "/b/x", 443 },
    { "{b} {b} {b}", END_PLACEHOLDER_WRONG_SLOT, NULL, 0, "ws.test", "/b/x", 443 },
    { "{a} {b}", END_OK, "{A} {B}", 0, "ws.test", "/b/x", 443 },
    { "x{a}", END_PLACEHOLDER_WRONG_SLOT, NULL, 0, "ws.test", "/", 443 }, /* within a longer word */
    { "{a}x", END_PLACEHOLDER_WRONG_SLOT, NULL, 0, "ws.test", "/", 443 },
    { "_{a}", END_PLACEHOLDER_WRONG_SLOT, NULL, 0, "ws.test", "/", 443 },
    { ":{a}/", END_OK, ":{A}/", 0, "ws.test", "/", 443 },
    { "{o}", END_UNKNOWN_PLACEHOLDER, NULL, 0, "ws.test", "/", 443 },
    { "{s}", END_UNKNOWN_PLACEHOLDER, NULL, 0, "ws.test", "/", 443 },
    { "x{a} {o}", END_UNKNOWN_PLACEHOLDER, NULL, 0, "ws.test", "/", 443 }, /* the graver one is told, wherever it stands */
    { "{o} x{a}", END_UNKNOWN_PLACEHOLDER, NULL, 0, "ws.test", "/", 443 },
    { "{n} {a}", END_OK, "{n} {A}", 'n', "ws.test", "/", 443 }, /* not in its slot: inert as in any body */
    { "{b}", END_OK, "{b}", 'b', "ws.test", "/other", 443 },    /* out of scope: the same */
    { "{a}", END_OK, "{a}", 'a', "else.test", "/", 443 },
    { "{a}", END_OK, "{a}", 'a', "ws.test", "/", 8443 },
};

static struct lease *lease_of(const char *credential, const char *value)
{
    const struct lease_spec s = {
        .id = STR("l1"), .credential = str_c(credential), .agent = STR("coder"), .value = str_c(value), .expires_us = 1, .refresh_us = 1
    };
    struct lease *l = lease_new(&s, NULL);
    assert_non_null(l);
    return l;
}

static void ask_init(struct ask *ask, struct host *host, const struct row *r)
{
    assert_int_equal(host_parse(str_c(r->host), host, NULL), 0);
    *ask = (struct ask) { .agent = policy_agent(policy, STR("coder")),
                          .scheme = SCHEME_HTTPS,
                          .host = host,
                          .port = r->port,
                          .method = STR("GET"),
                          .path = str_c(r->path) };
}

static void check_by(size_t most, const struct row *r, const char *value, const char *want)
{
    struct ask ask;
    struct host host;
    struct buf in, out;
    struct swap_plan plan;
    struct swap_text_walk walk = { 0 };
    ask_init(&ask, &host, r);
    expand(r->text, &in);
    enum end end;
    do
        end = swap_text_plan(table, policy, &ask, SLOT_WEBSOCKET, buf_str(&in), most, &walk, &plan);
    while (end == END_UNSET);
    const struct placeholder *inert = walk.inert;
    if (end != r->end)
        fail_msg("%s: %s instead of %s", r->text, end_code(end), end_code(r->end));
    assert_int_equal(inert != NULL, r->inert != 0);
    if (inert)
        assert_true(str_eq(inert->text, mark(r->inert)));
    assert_int_equal(walk.fault.finding != NULL, end != END_OK);
    if (end == END_OK) {
        struct lease *leases[SWAP_MAX] = { 0 };
        for (size_t i = 0; i < plan.nwanted; i++)
            leases[i] = lease_of("x", value == value_a && str_eq(plan.wanted[i]->name, STR("b")) ? value_b : value);
        buf_init(&out, 65536);
        out.wipe = true;
        end = swap_text_put(&plan, buf_str(&in), leases, &out);
        if (!want) {
            assert_int_equal(end, END_CREDENTIAL_UNAVAILABLE);
        } else {
            assert_int_equal(end, END_OK);
            if (!str_eq(buf_str(&out), str_c(want)))
                fail_msg("%s became %.*s instead of %s", r->text, STR_ARG(buf_str(&out)), want);
        }
        for (size_t i = 0; i < plan.nwanted; i++)
            lease_unref(&leases[i]);
        buf_done(&out);
    } else {
        assert_int_equal(plan.n, 0);
    }
    buf_done(&in);
}

/* In one piece, and in pieces that end anywhere. */
static void check(const struct row *r, const char *value, const char *want)
{
    for (size_t most = 1; most <= 64; most++)
        check_by(most, r, value, want);
    check_by(SIZE_MAX, r, value, want);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf want;
        expand(rows[i].out ? rows[i].out : "", &want);
        check(&rows[i], value_a, rows[i].out ? buf_z(&want) : NULL);
        buf_done(&want);
    }
}

/* A value with characters of JSON is escaped in JSON, and stands as it is elsewhere; one that is no text stands nowhere. */
static void test_values(void **state)
{
    (void)state;
    const struct row json = { "[\"{a}\"]", END_OK, NULL, 0, "ws.test", "/", 443 },
                     plain = { "token {a}", END_OK, NULL, 0, "ws.test", "/", 443 };
    check(&json, "a\"b\\c-0123456789", "[\"a\\\"b\\\\c-0123456789\"]");
    check(&plain, "a\"b\\c-0123456789", "token a\"b\\c-0123456789");
    check(&json, "tab\there-0123456789", NULL);
    check(&plain, "tab\there-0123456789", NULL);
    check(&plain, "\xff\xfe-0123456789abcdef", NULL);
}

#define RAW "a\"b\\c-0123456789"
#define ESCAPED "a\\\"b\\\\c-0123456789"

/* What is between quotes is escaped, whatever the text begins with; what would have to be escaped twice is refused. A value that is the
 * same in JSON is put everywhere: the control of each. {a} and {b} have the same value here. */
static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *out; /* V: the value as it is, E: escaped; NULL: refused */
    } cases[] = {
        { "42[\"identify\",{\"token\":\"{a}\"}]", "42[\"identify\",{\"token\":\"E\"}]" }, /* Socket.IO */
        { "42/ns,[\"{a}\"]", "42/ns,[\"E\"]" },
        { "42/ns,7[\"{a}\"]", "42/ns,7[\"E\"]" },
        { "\xef\xbb\xbf{\"token\":\"{a}\"}", "\xef\xbb\xbf{\"token\":\"E\"}" },
        { "send\ntoken:{a}\n\n{\"token\":\"{b}\"}", "send\ntoken:V\n\n{\"token\":\"E\"}" }, /* STOMP: its header is no JSON */
        { "{\"a\":1}\n{\"token\":\"{a}\"}", "{\"a\":1}\n{\"token\":\"E\"}" },
        { "5\" disk {\"token\":\"{a}\"}", "5\" disk {\"token\":\"E\"}" }, /* an odd quote before */
        { "{\"token\":\"Bearer {a}, {b}\"}", "{\"token\":\"Bearer E, E\"}" },
        { "42[\"{a}\",\"{b}\"]", "42[\"E\",\"E\"]" },
        { "42[\"{b}\"] {b}", "42[\"E\"] V" },
        { "{'token':'{a}'}", "{'token':'E'}" },
        { "login \"me\" {a}", "login \"me\" V" }, /* not between quotes, and no JSON */
        { "login {a} \"me\"", "login V \"me\"" },
        { "login {a}", "login V" },
        { "42[\"\\\\{a}\\\\\"]", "42[\"\\\\E\\\\\"]" }, /* a backslash at either end */
        { "42[\"say \\\"hi\\\" {a}\"]", "42[\"say \\\"hi\\\" E\"]" }, /* behind an inner string, not in one */
        { "42[\"{a} \\\"hi\\\"\"]", "42[\"E \\\"hi\\\"\"]" },
        { "[\"{\\\"token\\\":\\\"{a}\\\"}\"]", NULL }, /* SockJS: JSON in a string of JSON */
        { "[\"{\\\"token\\\":\\\"x\\\\\\\"{a}\\\\\\\"\\\"}\"]", NULL },
        { "[\"{\\\"a\\\":1}\",\"{b}\"]", "[\"{\\\"a\\\":1}\",\"E\"]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct row row = { cases[i].text, END_OK, NULL, 0, "ws.test", "/b/x", 443 };
        struct buf want;
        buf_init(&want, 4096);
        for (const char *p = cases[i].out ? cases[i].out : ""; *p; p++)
            buf_put(&want, *p == 'V' ? STR(RAW) : *p == 'E' ? STR(ESCAPED) : str_of(p, 1));
        check(&row, RAW, cases[i].out ? buf_z(&want) : NULL);
        buf_reset(&want);
        for (const char *p = cases[i].text; *p; p++) {
            bool is_mark = p[0] == '{' && p[1] && p[2] == '}';
            buf_put(&want, is_mark ? STR("same-0123456789") : str_of(p, 1));
            p += is_mark ? 2 : 0;
        }
        check(&row, "same-0123456789", buf_z(&want));
        buf_done(&want);
    }
}

/* So many are looked at that only look like ours; past them none that is not live is found any more, and all that are. */
static void test_doubts(void **state)
{
    (void)state;
    static const struct {
        size_t fakes;
        const char *behind;
        enum end end;
    } cases[] = {
        { PLACEHOLDER_DOUBTS_MAX - 1, "{s}", END_UNKNOWN_PLACEHOLDER },
        { PLACEHOLDER_DOUBTS_MAX, "{s}", END_OK },
        { PLACEHOLDER_DOUBTS_MAX, "{o}", END_UNKNOWN_PLACEHOLDER },
        { 10000, "x{a}", END_PLACEHOLDER_WRONG_SLOT },
        { 10000, "{a}", END_OK },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text;
        buf_init(&text, 1 << 20);
        for (size_t k = 0; k < cases[i].fakes; k++)
            buf_put(&text, STR("AKIABBBBBBBBBBBBBBBB "));
        buf_put(&text, str_c(cases[i].behind));
        struct row r = { buf_z(&text), cases[i].end, NULL, 0, "ws.test", "/", 443 };
        struct ask ask;
        struct host host;
        struct buf in;
        struct swap_plan plan;
        struct swap_text_walk walk = { 0 };
        ask_init(&ask, &host, &r);
        expand(r.text, &in);
        assert_int_equal(swap_text_plan(table, policy, &ask, SLOT_WEBSOCKET, buf_str(&in), SIZE_MAX, &walk, &plan), r.end);
        assert_int_equal(plan.n, strcmp(cases[i].behind, "{a}") ? 0 : 1);
        buf_done(&in);
        buf_done(&text);
    }
}

static void test_wanted(void **state)
{
    (void)state;
    struct ask ask;
    struct host host;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ask_init(&ask, &host, &rows[i]);
        assert_int_equal(swap_text_wanted(policy, &ask, SLOT_WEBSOCKET), !strcmp(rows[i].host, "ws.test") && rows[i].port == 443);
    }
}

static int set_up(void **state)
{
    (void)state;
    static const char before[] =
        "version: 1\nstate_dir: state\nagents: [{name: gone, identify: [{source: 10.77.0.9/32}]}]\n"
        "sidecars: [{name: local, socket: /run/mint.sock}]\nrules: [{name: all, hosts: [\"*\"], action: allow}]\n"
        "credentials: [{name: a, agents: [gone], hosts: [ws.test], slots: [websocket], like: github, source: {sidecar: local}}]\n";
    policy = fixture_policy(str_c(yaml));
    policy_before = fixture_policy(str_c(before));
    table = placeholder_table_new(policy, FIXTURE_KEY, NULL);
    table_before = placeholder_table_new(policy_before, FIXTURE_KEY, NULL);
    return table && table_before ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    placeholder_table_unref(&table);
    placeholder_table_unref(&table_before);
    policy_unref(&policy);
    policy_unref(&policy_before);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_values), cmocka_unit_test(test_strings),
                                        cmocka_unit_test(test_doubts), cmocka_unit_test(test_wanted) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
