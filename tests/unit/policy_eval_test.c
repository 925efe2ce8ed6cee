/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions, as tables: each refusal stands beside a control that differs in one thing and passes. */
#include "base/buf.h"
#include "policy/path_pattern.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const int64_t noon = 1767268800000000; /* 2026-01-01T12:00:00Z */

static const char rules_yaml[] =
    "version: 1\n"
    "agents:\n"
    "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
    "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
    "rules:\n"
    "  - {name: no-secrets, hosts: [api.test], paths: [\"/admin/**\"], action: deny}\n"
    "  - {name: api, hosts: [api.test, \"*.api.test\"], methods: [GET, POST], paths: [\"/repos/*/x\", \"/v1/**\"], "
    "action: allow}\n"
    "  - {name: denied, hosts: [deny.test], action: deny}\n"
    "  - {name: wild, agents: [coder], hosts: [\"*.wild.test\"], action: allow}\n"
    "  - {name: plain, hosts: [plain.test], schemes: [http], action: allow}\n"
    "  - {name: both, hosts: [both.test], schemes: [http, https], action: allow}\n"
    "  - {name: port, hosts: [port.test], ports: [8443, 443], action: allow}\n"
    "  - {name: ask, hosts: [ask.test], action: ask}\n"
    "  - {name: gone, hosts: [gone.test], action: allow, expires: 2026-01-01T12:00:00Z}\n"
    "  - {name: first, hosts: [\"*.order.test\"], action: deny}\n"
    "  - {name: second, hosts: [a.order.test], action: allow}\n"
    "  - {name: get-only, hosts: [multi.test], methods: [GET], action: allow}\n"
    "  - {name: put-path, hosts: [multi.test], methods: [PUT], paths: [\"/put\"], action: allow}\n"
    "  - {name: address, hosts: [192.0.2.1], action: allow}\n"
    "  - {name: deny-http, hosts: [half.test], schemes: [http], action: deny}\n"
    "  - {name: allow-half, hosts: [half.test], schemes: [http, https], action: allow}\n"
    "  - {name: deny-post, hosts: [methods.test], methods: [POST], action: deny}\n"
    "  - {name: deny-put, hosts: [most.test], methods: [PUT], action: deny}\n"
    "  - {name: allow-most, hosts: [most.test], action: allow}\n"
    "  - {name: any, agents: [other], hosts: [\"*\"], action: allow}\n";

static struct policy *make(const char *yaml)
{
    struct diag diag;
    diag_init(&diag);
    struct config *c = config_parse(STR("t.yaml"), STR("/etc/outgate"), str_c(yaml), &diag);
    struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
    if (!p)
        fail_msg("%s", diag.n ? diag.lines[0].text.p : "?");
    diag_done(&diag);
    return p;
}

/* What the DNS port asks: a name and no port. */
static const char names_yaml[] =
    "version: 1\n"
    "agents:\n"
    "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
    "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
    "rules:\n"
    "  - {name: denied, hosts: [deny.test], action: deny}\n"
    "  - {name: deny-443, hosts: [part.test, none.test], ports: [443], action: deny}\n"
    "  - {name: part, hosts: [part.test], ports: [443, 8443], action: allow}\n"
    "  - {name: none, hosts: [none.test], action: allow}\n"
    "  - {name: deny-post, hosts: [post.test], methods: [POST], action: deny}\n"
    "  - {name: post, hosts: [post.test], action: allow}\n"
    "  - {name: late, hosts: [deny.test], action: allow}\n"
    "  - {name: ask, hosts: [ask.test, both.test], action: ask}\n"
    "  - {name: after-ask, hosts: [both.test], ports: [8443], action: allow}\n"
    "  - {name: same-as-ask, hosts: [ask.test], action: allow}\n"
    "  - {name: tunnel, hosts: [ssh.test], ports: [22], tls: none, action: tunnel}\n"
    "  - {name: path, hosts: [path.test], methods: [GET], paths: [\"/x\"], action: allow}\n"
    "  - {name: gone, hosts: [gone.test], action: allow, expires: 2026-01-01T12:00:00Z}\n"
    "  - {name: wild, agents: [other], hosts: [\"*.wild.test\"], action: allow}\n";

struct eval_case {
    const char *agent, *request; /* "GET https://host:port/path" in parts: */
    enum scheme scheme;
    const char *host;
    uint16_t port;
    const char *path;
    enum verdict_kind kind;
    enum end code;
    const char *rule, *near;
};

static const struct eval_case eval_cases[] = {
    /* host */
    { "coder", "GET", SCHEME_HTTPS, "evil.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "coder", "GET", SCHEME_HTTPS, "a.wild.test", 443, "/", VERDICT_ALLOW, END_OK, "wild", NULL },
    { "coder", "GET", SCHEME_HTTPS, "a.b.wild.test", 443, "/", VERDICT_ALLOW, END_OK, "wild", NULL },
    { "coder", "GET", SCHEME_HTTPS, "wild.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "coder", "GET", SCHEME_HTTPS, "evilwild.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "coder", "GET", SCHEME_HTTPS, "a.wild.test.evil.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "coder", "GET", SCHEME_HTTPS, "192.0.2.1", 443, "/", VERDICT_ALLOW, END_OK, "address", NULL },
    { "coder", "GET", SCHEME_HTTPS, "192.0.2.2", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    /* another agent's rule is not even a near miss */
    { "coder", "GET", SCHEME_HTTPS, "any.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "other", "GET", SCHEME_HTTPS, "any.test", 443, "/", VERDICT_ALLOW, END_OK, "any", NULL },
    /* "*" is any name, and no address */
    { "other", "GET", SCHEME_HTTPS, "192.0.2.9", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "other", "GET", SCHEME_HTTPS, "::1", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    /* explicit deny names its rule, on every port and scheme; first match decides */
    { "coder", "GET", SCHEME_HTTPS, "deny.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "denied", NULL },
    { "coder", "GET", SCHEME_HTTP, "deny.test", 80, "/", VERDICT_DENY, END_HOST_DENIED, "denied", NULL },
    { "coder", "GET", SCHEME_HTTPS, "deny.test", 8443, "/", VERDICT_DENY, END_HOST_DENIED, "denied", NULL },
    { "coder", "GET", SCHEME_HTTPS, "a.order.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "first", NULL },
    { "coder", "GET", SCHEME_HTTP, "half.test", 80, "/", VERDICT_DENY, END_HOST_DENIED, "deny-http", NULL },
    { "coder", "GET", SCHEME_HTTPS, "half.test", 443, "/", VERDICT_ALLOW, END_OK, "allow-half", NULL },
    { "coder", "GET", SCHEME_HTTPS, "methods.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { "coder", "POST", SCHEME_HTTPS, "methods.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "deny-post", NULL },
    /* port and scheme */
    { "coder", "GET", SCHEME_HTTPS, "port.test", 8443, "/", VERDICT_ALLOW, END_OK, "port", NULL },
    { "coder", "GET", SCHEME_HTTPS, "port.test", 8444, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "port" },
    { "coder", "GET", SCHEME_HTTP, "port.test", 8443, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "port" },
    { "coder", "GET", SCHEME_HTTP, "plain.test", 80, "/", VERDICT_ALLOW, END_OK, "plain", NULL },
    { "coder", "GET", SCHEME_HTTP, "plain.test", 8080, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "plain" },
    { "coder", "GET", SCHEME_HTTPS, "plain.test", 443, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "plain" },
    { "coder", "GET", SCHEME_HTTPS, "both.test", 443, "/", VERDICT_ALLOW, END_OK, "both", NULL },
    { "coder", "GET", SCHEME_HTTP, "both.test", 80, "/", VERDICT_ALLOW, END_OK, "both", NULL },
    { "coder", "GET", SCHEME_HTTP, "both.test", 443, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "both" },
    { "coder", "GET", SCHEME_HTTP, "a.wild.test", 80, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "wild" },
    { "coder", "GET", SCHEME_NONE, "a.wild.test", 443, "/", VERDICT_DENY, END_PORT_DENIED, NULL, "wild" },
    /* method: a token, case-sensitive */
    { "coder", "POST", SCHEME_HTTPS, "api.test", 443, "/v1/x", VERDICT_ALLOW, END_OK, "api", NULL },
    { "coder", "DELETE", SCHEME_HTTPS, "api.test", 443, "/v1/x", VERDICT_DENY, END_METHOD_DENIED, NULL, "api" },
    { "coder", "get", SCHEME_HTTPS, "api.test", 443, "/v1/x", VERDICT_DENY, END_METHOD_DENIED, NULL, "api" },
    /* but a deny rule's in any case: some server reads it so */
    { "coder", "GET", SCHEME_HTTPS, "most.test", 443, "/", VERDICT_ALLOW, END_OK, "allow-most", NULL },
    { "coder", "PUT", SCHEME_HTTPS, "most.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "deny-put", NULL },
    { "coder", "put", SCHEME_HTTPS, "most.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "deny-put", NULL },
    { "coder", "pUT", SCHEME_HTTPS, "most.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, "deny-put", NULL },
    { "coder", "GETX", SCHEME_HTTPS, "api.test", 443, "/v1/x", VERDICT_DENY, END_METHOD_DENIED, NULL, "api" },
    /* path */
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/repos/acme/x", VERDICT_ALLOW, END_OK, "api", NULL },
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/repos/a/b/x", VERDICT_DENY, END_PATH_DENIED, NULL, "api" },
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/admin/v1", VERDICT_DENY, END_HOST_DENIED, "no-secrets", NULL },
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/ADMIN/v1", VERDICT_DENY, END_HOST_DENIED, "no-secrets", NULL },
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/%41dmin/v1", VERDICT_DENY, END_HOST_DENIED, "no-secrets", NULL },
    { "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/V1/x", VERDICT_DENY, END_PATH_DENIED, NULL, "api" },
    { "coder", "GET", SCHEME_HTTPS, "x.api.test", 443, "/admin/v1", VERDICT_DENY, END_PATH_DENIED, NULL, "api" },
    /* the deepest miss gives the code */
    { "coder", "PUT", SCHEME_HTTPS, "multi.test", 443, "/no", VERDICT_DENY, END_PATH_DENIED, NULL, "put-path" },
    { "coder", "DELETE", SCHEME_HTTPS, "multi.test", 443, "/no", VERDICT_DENY, END_METHOD_DENIED, NULL, "get-only" },
    { "coder", "PUT", SCHEME_HTTPS, "multi.test", 443, "/put", VERDICT_ALLOW, END_OK, "put-path", NULL },
    { "coder", "GET", SCHEME_HTTPS, "ask.test", 443, "/", VERDICT_ASK, END_APPROVAL_REQUIRED, "ask", NULL },
    /* expired is as good as absent (the control is in test_expiry) */
    { "coder", "GET", SCHEME_HTTPS, "gone.test", 443, "/", VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
    { NULL, "GET", SCHEME_HTTPS, "a.wild.test", 443, "/", VERDICT_DENY, END_UNKNOWN_AGENT, NULL, NULL },
};

static bool rule_is(const struct rule *rule, const char *name)
{
    return name ? rule && str_eq(rule->name, str_c(name)) : !rule;
}

static struct ask ask_of(const struct policy *p, const struct eval_case *c, struct host *h)
{
    assert_int_equal(host_parse(str_c(c->host), h, NULL), 0);
    return (struct ask) { .agent = c->agent ? policy_agent(p, str_c(c->agent)) : NULL,
                          .scheme = c->scheme,
                          .host = h,
                          .port = c->port,
                          .method = str_c(c->request),
                          .path = str_c(c->path),
                          .now_us = noon };
}

static void test_eval(void **state)
{
    (void)state;
    struct policy *p = make(rules_yaml);
    for (size_t i = 0; i < sizeof eval_cases / sizeof *eval_cases; i++) {
        const struct eval_case *c = &eval_cases[i];
        struct host h;
        struct ask ask = ask_of(p, c, &h);
        struct verdict v;
        policy_eval(p, &ask, &v);
        if (v.kind != c->kind || v.code != c->code || !rule_is(v.rule, c->rule) || !rule_is(v.near, c->near))
            fail_msg("%s %s:%u%s: kind %d code %s rule %s near %s", c->request, c->host, c->port, c->path, (int)v.kind,
                     end_code(v.code), v.rule ? v.rule->name.p : "-", v.near ? v.near->name.p : "-");
        /* explain comes to the same end */
        struct buf out;
        buf_init(&out, 65536);
        assert_int_equal(policy_explain(p, &ask, &out), ask.agent ? 0 : -1);
        if (ask.agent) {
            assert_true(str_find(buf_str(&out), STR("the rules say ")) >= 0);
            assert_true(v.code == END_OK || str_find(buf_str(&out), str_c(end_code(v.code))) >= 0);
        }
        buf_done(&out);
    }
    policy_unref(&p);
}

/* mode: observe lets through, with the code that it would have had. */
static void test_observe(void **state)
{
    (void)state;
    char yaml[sizeof rules_yaml + 20];
    snprintf(yaml, sizeof yaml, "%smode: observe\n", rules_yaml);
    struct policy *p = make(yaml);
    for (size_t i = 0; i < sizeof eval_cases / sizeof *eval_cases; i++) {
        const struct eval_case *c = &eval_cases[i];
        struct host h;
        struct ask ask = ask_of(p, c, &h);
        struct verdict v;
        policy_eval(p, &ask, &v);
        assert_int_equal(v.kind, !ask.agent                 ? VERDICT_DENY
                                 : c->kind == VERDICT_ALLOW ? VERDICT_ALLOW
                                                            : VERDICT_OBSERVE);
        assert_int_equal(v.code, c->code);
    }
    policy_unref(&p);
}

static void test_expiry(void **state)
{
    (void)state;
    struct policy *p = make(rules_yaml);
    const struct eval_case c = { "coder", "GET", SCHEME_HTTPS, "gone.test", 443, "/", 0, 0, NULL, NULL };
    struct host h;
    struct ask ask = ask_of(p, &c, &h);
    struct verdict v;
    ask.now_us = noon - 1;
    policy_eval(p, &ask, &v);
    assert_int_equal(v.kind, VERDICT_ALLOW);
    policy_eval_connect(p, ask.agent, &h, 443, ask.now_us, &v);
    assert_int_equal(v.kind, VERDICT_ALLOW);
    ask.now_us = noon;
    policy_eval(p, &ask, &v);
    assert_int_equal(v.kind, VERDICT_DENY);
    policy_eval_connect(p, ask.agent, &h, 443, ask.now_us, &v);
    assert_int_equal(v.kind, VERDICT_DENY);
    policy_unref(&p);
}

static void test_connect(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        uint16_t port;
        enum verdict_kind kind;
        enum end code;
        const char *rule, *near;
    } cases[] = {
        { "evil.test", 443, VERDICT_DENY, END_HOST_DENIED, NULL, NULL },
        { "a.wild.test", 443, VERDICT_ALLOW, END_OK, "wild", NULL },
        { "a.wild.test", 22, VERDICT_DENY, END_PORT_DENIED, NULL, "wild" },
        { "a.wild.test", 80, VERDICT_DENY, END_PORT_DENIED, NULL, "wild" },
        { "plain.test", 80, VERDICT_ALLOW, END_OK, "plain", NULL },
        { "plain.test", 443, VERDICT_DENY, END_PORT_DENIED, NULL, "plain" },
        { "deny.test", 443, VERDICT_DENY, END_HOST_DENIED, "denied", NULL },
        { "deny.test", 22, VERDICT_DENY, END_HOST_DENIED, "denied", NULL },
        { "a.order.test", 443, VERDICT_DENY, END_HOST_DENIED, "first", NULL },
        /* a deny of some paths is a maybe: what follows may allow */
        { "api.test", 443, VERDICT_ALLOW, END_OK, "api", NULL },
        { "half.test", 443, VERDICT_ALLOW, END_OK, "allow-half", NULL },
        { "half.test", 80, VERDICT_ALLOW, END_OK, "allow-half", NULL },
        /* nothing after it: every request ends in a deny */
        { "methods.test", 443, VERDICT_DENY, END_HOST_DENIED, "deny-post", NULL },
        { "most.test", 443, VERDICT_ALLOW, END_OK, "allow-most", NULL },
        { "ask.test", 443, VERDICT_ALLOW, END_OK, "ask", NULL },
    };
    struct policy *p = make(rules_yaml);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h;
        struct verdict v;
        assert_int_equal(host_parse(str_c(cases[i].host), &h, NULL), 0);
        policy_eval_connect(p, policy_agent(p, STR("coder")), &h, cases[i].port, noon, &v);
        if (v.kind != cases[i].kind || v.code != cases[i].code || !rule_is(v.rule, cases[i].rule) ||
            !rule_is(v.near, cases[i].near))
            fail_msg("%s:%u: kind %d code %s rule %s near %s", cases[i].host, cases[i].port, (int)v.kind,
                     end_code(v.code), v.rule ? v.rule->name.p : "-", v.near ? v.near->name.p : "-");
    }
    /* certain means certain: where CONNECT is refused, no request inside could pass */
    static const char *const methods[] = { "GET", "POST", "PUT", "DELETE" };
    static const char *const paths[] = { "/", "/v1/x", "/admin/x", "/put", "/repos/a/x" };
    for (size_t i = 0; i < sizeof eval_cases / sizeof *eval_cases; i++)
        for (size_t m = 0; m < 4 * 5 * 2; m++) {
            struct host h;
            struct ask ask = ask_of(p, &eval_cases[i], &h);
            struct verdict v, at_connect;
            ask.method = str_c(methods[m % 4]);
            ask.path = str_c(paths[m / 4 % 5]);
            ask.scheme = m / 20 ? SCHEME_HTTP : SCHEME_HTTPS;
            policy_eval(p, &ask, &v);
            policy_eval_connect(p, ask.agent, &h, ask.port, noon, &at_connect);
            assert_false(at_connect.kind == VERDICT_DENY && v.kind != VERDICT_DENY);
        }
    policy_unref(&p);
}

/* tunnel applies when it is the first rule that is not "no"; no request ever fits it. */
static void test_tunnel(void **state)
{
    (void)state;
    static const char yaml[] =
        "version: 1\n"
        "agents: [{name: coder, identify: [{source: 10.77.0.2/32}]}, {name: other, identify: [{source: 10.77.0.3/32}]}]\n"
        "rules:\n"
        "  - {name: not-other, agents: [other], hosts: [raw.test], action: deny}\n"
        "  - {name: gone, hosts: [raw.test], action: deny, expires: 2026-01-01T12:00:00Z}\n"
        "  - {name: plain, hosts: [raw.test], schemes: [http], ports: [80], action: allow}\n"
        "  - {name: raw, hosts: [raw.test], action: tunnel}\n"
        "  - {name: after, hosts: [raw.test], ports: [443, 8443], action: allow}\n"
        "  - {name: ssh, hosts: [git.test], ports: [22, 2222], action: tunnel, tls: none}\n"
        "  - {name: git, hosts: [git.test], action: allow}\n"
        "  - {name: admin, hosts: [part.test], paths: [\"/admin/**\"], action: deny}\n"
        "  - {name: part, hosts: [part.test], action: tunnel}\n"
        "  - {name: get, hosts: [get.test], methods: [GET], action: allow}\n"
        "  - {name: rest, hosts: [get.test], action: tunnel}\n"
        "  - {name: http, hosts: [both.test], schemes: [http], ports: [443], action: deny}\n"
        "  - {name: both, hosts: [both.test], action: tunnel}\n"
        "  - {name: denied, hosts: [deny.test], action: deny}\n"
        "  - {name: too-late, hosts: [deny.test], action: tunnel}\n"
        "  - {name: any, hosts: [\"*.test\"], ports: [5432], action: tunnel, tls: none}\n";
    static const struct {
        const char *agent, *host;
        uint16_t port;
        enum verdict_kind kind;
        enum end code;
        const char *rule;
    } cases[] = {
        { "coder", "raw.test", 443, VERDICT_TUNNEL, END_OK, "raw" },
        { "other", "raw.test", 443, VERDICT_DENY, END_HOST_DENIED, "not-other" },
        { "coder", "raw.test", 80, VERDICT_ALLOW, END_OK, "plain" },
        { "coder", "raw.test", 8443, VERDICT_ALLOW, END_OK, "after" },
        { "coder", "raw.test", 22, VERDICT_DENY, END_PORT_DENIED, NULL },
        { "coder", "git.test", 22, VERDICT_TUNNEL, END_OK, "ssh" },
        { "coder", "git.test", 443, VERDICT_ALLOW, END_OK, "git" },
        { "coder", "part.test", 443, VERDICT_DENY, END_HOST_DENIED, "admin" },
        { "coder", "get.test", 443, VERDICT_ALLOW, END_OK, "get" },
        { "coder", "both.test", 443, VERDICT_DENY, END_HOST_DENIED, "http" },
        { "coder", "deny.test", 443, VERDICT_DENY, END_HOST_DENIED, "denied" },
        { "coder", "db.test", 5432, VERDICT_TUNNEL, END_OK, "any" },
        { "coder", "db.example", 5432, VERDICT_DENY, END_HOST_DENIED, NULL },
    };
    static const char *const modes[] = { "", "mode: observe\n" };
    for (size_t m = 0; m < 2; m++) {
        char text[4096];
        snprintf(text, sizeof text, "%s%s", yaml, modes[m]);
        struct policy *p = make(text);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct host h;
            struct verdict v;
            assert_int_equal(host_parse(str_c(cases[i].host), &h, NULL), 0);
            struct ask ask = { .agent = policy_agent(p, str_c(cases[i].agent)), .host = &h, .port = cases[i].port, .now_us = noon };
            policy_eval_connect(p, ask.agent, &h, ask.port, noon, &v);
            bool denied = v.kind == (m ? VERDICT_OBSERVE : VERDICT_DENY);
            if ((cases[i].kind == VERDICT_DENY ? !denied : v.kind != cases[i].kind) || v.code != cases[i].code || !rule_is(v.rule, cases[i].rule))
                fail_msg("%s:%u: kind %d code %s rule %s", cases[i].host, cases[i].port, (int)v.kind, end_code(v.code), v.rule ? v.rule->name.p : "-");
            assert_int_equal(policy_tunnels(p, &ask, &v), cases[i].kind == VERDICT_TUNNEL);
            ask.method = STR("GET");
            ask.path = STR("/");
            for (ask.scheme = SCHEME_NONE; ask.scheme <= SCHEME_HTTP; ask.scheme++) {
                policy_eval(p, &ask, &v);
                assert_true(v.kind != VERDICT_TUNNEL && (!v.rule || v.rule->action != RULE_TUNNEL));
            }
        }
        policy_unref(&p);
    }
}

static void test_empty(void **state)
{
    (void)state;
    struct policy *p = make("version: 1\nagents: [{name: coder}]\n");
    struct host h;
    struct verdict v;
    assert_int_equal(host_parse(STR("a.test"), &h, NULL), 0);
    struct ask ask = { .agent = policy_agent(p, STR("coder")),
                       .scheme = SCHEME_HTTPS,
                       .host = &h,
                       .port = 443,
                       .method = STR("GET"),
                       .path = STR("/"),
                       .now_us = noon };
    policy_eval(p, &ask, &v);
    assert_int_equal(v.kind, VERDICT_DENY);
    assert_int_equal(v.code, END_HOST_DENIED);
    policy_eval_connect(p, ask.agent, &h, 443, noon, &v);
    assert_int_equal(v.kind, VERDICT_DENY);
    assert_int_equal(policy_credentials(p, ask.agent, &h, NULL, 0), 0);
    assert_null(policy_agent(p, STR("nobody")));
    policy_unref(&p);
}

/* The index gives exactly the rules that a walk over all patterns gives. */
static void test_index_agrees(void **state)
{
    (void)state;
    static const char *const labels[] = { "a", "b", "ab", "x", "test" };
    enum { RULES = 300 };
    char *yaml = malloc(RULES * 120 + 200);
    size_t n = (size_t)sprintf(yaml, "version: 1\nagents: [{name: coder}]\nrules:\n");
    unsigned seed = 12345;
    for (int i = 0; i < RULES; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned r = seed >> 8;
        n += (size_t)sprintf(yaml + n, "  - {name: r%d, hosts: [\"%s%s.%s\", \"%s\"], paths: [\"/%d\"], action: %s}\n",
                             i, r & 1 ? "*." : "", labels[r / 2 % 5], labels[r / 16 % 5],
                             r % 97 ? labels[r / 128 % 5] : "*", r / 1024 % 3, r & 2 ? "allow" : "deny");
    }
    struct policy *p = make(yaml);
    const struct config *c = policy_config(p);
    for (unsigned k = 0; k < 5 * 5 * 5 * 3; k++) {
        char name[64], path[8];
        struct host h;
        struct verdict v;
        snprintf(name, sizeof name, "%s.%s.%s", labels[k % 5], labels[k / 5 % 5], labels[k / 25 % 5]);
        snprintf(path, sizeof path, "/%u", k / 125);
        assert_int_equal(host_parse(str_c(k % 7 ? name : strchr(name, '.') + 1), &h, NULL), 0);
        struct ask ask = { .agent = policy_agent(p, STR("coder")),
                           .scheme = SCHEME_HTTPS,
                           .host = &h,
                           .port = 443,
                           .method = STR("GET"),
                           .path = str_c(path),
                           .now_us = noon };
        const struct rule *expected = NULL;
        for (size_t i = 0; i < c->nrules && !expected; i++)
            for (size_t m = 0; m < c->rules[i].nhosts; m++) {
                const struct host_pattern *hp = &c->rules[i].hosts[m];
                struct str s = host_str(&h), x = host_str(&hp->host);
                bool hit = hp->kind == PATTERN_ANY ||
                           (hp->kind == PATTERN_EXACT ? str_eq(s, x)
                                                      : s.n > x.n + 1 && str_ends(s, x) && s.p[s.n - x.n - 1] == '.');
                if (hit && str_eq(c->rules[i].paths[0].text, str_c(path)))
                    expected = &c->rules[i];
            }
        policy_eval(p, &ask, &v);
        assert_ptr_equal(v.rule, expected);
    }
    policy_unref(&p);
    free(yaml);
}

/* --- credentials --- */

static const char credentials_yaml[] =
    "version: 1\n"
    "agents: [{name: coder}, {name: other}]\n"
    "rules:\n"
    "  - {name: all, hosts: [\"*\"], schemes: [https, http], action: allow}\n"
    "credentials:\n"
    "  - {name: gh, agents: [coder], hosts: [api.test, \"*.git.test\"], methods: [GET], paths: [\"/repos/**\"],\n"
    "     slots: [\"header:authorization\"], source: {file: /s}, tolerate: [known.test, \"*.known.test\"]}\n"
    "  - {name: plain, agents: [coder, other], hosts: [api.test], allow_plain_http: true, slots: [\"header:x-key\"], "
    "source: {file: /s}}\n"
    "  - {name: port, agents: [other], hosts: [port.test], ports: [8443], slots: [\"header:x-key\"], source: {file: "
    "/s}}\n";

static void test_credentials(void **state)
{
    (void)state;
    static const struct {
        const char *credential, *agent, *method;
        enum scheme scheme;
        const char *host;
        uint16_t port;
        const char *path;
        enum end code;
    } cases[] = {
        { "gh", "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/repos/a", END_OK },
        { "gh", "coder", "GET", SCHEME_HTTPS, "a.git.test", 443, "/repos/a", END_OK },
        { "gh", "coder", "GET", SCHEME_HTTPS, "git.test", 443, "/repos/a", END_PLACEHOLDER_WRONG_HOST },
        { "gh", "coder", "GET", SCHEME_HTTPS, "evil.test", 443, "/repos/a", END_PLACEHOLDER_WRONG_HOST },
        { "gh", "other", "GET", SCHEME_HTTPS, "api.test", 443, "/repos/a", END_PLACEHOLDER_WRONG_HOST },
        { "gh", "coder", "POST", SCHEME_HTTPS, "api.test", 443, "/repos/a", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "gh", "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/user", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "gh", "coder", "GET", SCHEME_HTTPS, "api.test", 8443, "/repos/a", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "gh", "coder", "GET", SCHEME_HTTP, "api.test", 80, "/repos/a", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "gh", "coder", "GET", SCHEME_HTTP, "api.test", 443, "/repos/a", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "gh", "coder", "GET", SCHEME_NONE, "api.test", 443, "/repos/a", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "plain", "coder", "GET", SCHEME_HTTP, "api.test", 80, "/", END_OK },
        { "plain", "coder", "GET", SCHEME_HTTPS, "api.test", 443, "/", END_OK },
        { "plain", "coder", "GET", SCHEME_HTTP, "api.test", 8080, "/", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "plain", "coder", "GET", SCHEME_HTTP, "api.test", 443, "/", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "port", "other", "GET", SCHEME_HTTPS, "port.test", 8443, "/", END_OK },
        { "port", "other", "GET", SCHEME_HTTPS, "port.test", 443, "/", END_PLACEHOLDER_OUT_OF_SCOPE },
        { "port", NULL, "GET", SCHEME_HTTPS, "port.test", 8443, "/", END_PLACEHOLDER_WRONG_HOST },
    };
    struct policy *p = make(credentials_yaml);
    const struct config *c = policy_config(p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h;
        const struct credential *cr = NULL;
        for (size_t k = 0; k < c->ncredentials; k++)
            if (str_eq(c->credentials[k].name, str_c(cases[i].credential)))
                cr = &c->credentials[k];
        assert_int_equal(host_parse(str_c(cases[i].host), &h, NULL), 0);
        struct ask ask = { .agent = cases[i].agent ? policy_agent(p, str_c(cases[i].agent)) : NULL,
                           .scheme = cases[i].scheme,
                           .host = &h,
                           .port = cases[i].port,
                           .method = str_c(cases[i].method),
                           .path = str_c(cases[i].path),
                           .now_us = noon };
        enum end code = policy_credential_scope(p, cr, &ask);
        if (code != cases[i].code)
            fail_msg("%zu %s %s: %s", i, cases[i].credential, cases[i].host, end_code(code));
    }
    struct host h, known, below, unknown;
    const struct credential *found[2] = { NULL, NULL };
    assert_int_equal(host_parse(STR("api.test"), &h, NULL), 0);
    assert_int_equal(host_parse(STR("known.test"), &known, NULL), 0);
    assert_int_equal(host_parse(STR("a.known.test"), &below, NULL), 0);
    assert_int_equal(host_parse(STR("unknown.test"), &unknown, NULL), 0);
    assert_int_equal(policy_credentials(p, policy_agent(p, STR("coder")), &h, found, 2), 2);
    assert_true(found[0] == &c->credentials[0] && found[1] == &c->credentials[1]);
    assert_int_equal(policy_credentials(p, policy_agent(p, STR("coder")), &h, found, 1), 2);
    assert_int_equal(policy_credentials(p, policy_agent(p, STR("other")), &h, found, 2), 1);
    assert_int_equal(policy_credentials(p, policy_agent(p, STR("other")), &unknown, found, 2), 0);
    assert_true(policy_credential_tolerates(&c->credentials[0], &known));
    assert_true(policy_credential_tolerates(&c->credentials[0], &below));
    assert_false(policy_credential_tolerates(&c->credentials[0], &unknown));
    /* a credential of another snapshot is never in scope */
    struct policy *q = make(credentials_yaml);
    struct ask ask = { .agent = policy_agent(p, STR("coder")),
                       .scheme = SCHEME_HTTPS,
                       .host = &h,
                       .port = 443,
                       .method = STR("GET"),
                       .path = STR("/repos/a"),
                       .now_us = noon };
    assert_int_equal(policy_credential_scope(p, &c->credentials[0], &ask), END_OK);
    assert_int_equal(policy_credential_scope(q, &c->credentials[0], &ask), END_PLACEHOLDER_WRONG_HOST);
    policy_unref(&q);
    policy_unref(&p);
}

/* --- paths --- */

static void test_path_pattern(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {
        { "/a", "/a", true },
        { "/a", "/a/", false },
        { "/a", "/A", false },
        { "/a", "/ab", false },
        { "/a", "/", false },
        { "/", "/", true },
        { "/**", "/", true },
        { "/**", "/a/b", true },
        { "/**", "*", false },
        { "/repos/acme/**", "/repos/acme/x/y", true },
        { "/repos/acme/**", "/repos/acme/", true },
        { "/repos/acme/**", "/repos/acme", false },
        { "/repos/acme/**", "/repos/acmex/y", false },
        { "/*", "/a", true },
        { "/*", "/", true },
        { "/*", "/a/b", false },
        { "/a/*/c", "/a/b/c", true },
        { "/a/*/c", "/a/b/b/c", false },
        { "/a/**/c", "/a/b/b/c", true },
        { "/a/**/c", "/a/c", false },
        { "/a/**/c", "/a//c", true },
        { "/*.git/**", "/o.git/info", true },
        { "/*.git/**", "/o/r.git/info", false },
        { "/**.git/**", "/o/r.git/info", true },
        { "/**.git/**", "/o/rgit/info", false },
        { "/a*b*c", "/aXbYc", true },
        { "/a*b*c", "/abbbc", true },
        { "/a*b*c", "/a/b/c", false },
        { "/*x/**y/*z", "/ax/1/2y/3z", true },
        { "/*x/**y/*z", "/ax/1/2y/3/z", false },
        /* unreserved characters are decoded, on both sides; the rest keeps its form, in any case of hex */
        { "/abc", "/%61bc", true },
        { "/%61bc", "/abc", true },
        { "/a-b", "/a%2Db", true },
        { "/a/b", "/a%2Fb", false },
        { "/a/b", "/a%2fb", false },
        { "/*", "/a%2Fb", true },
        { "/a%2fb", "/a%2Fb", true },
        { "/a%2Fb", "/a%2fb", true },
        { "/a%2Fb", "/a/b", false },
        { "/@scope%2F*", "/@scope%2fname", true },
        { "/a", "/%2561", false },
        { "/%2561", "/%2561", true },
        { "/a%20b", "/a%20b", true },
        { "/a+b", "/a%2Bb", false },
        { "/a", "/a%", false },
        { "/a**", "/a%", true },
        { "/a;x", "/a;x", true },
        { "/\xc3\xa4", "/\xc3\xa4", true },
    };
    struct arena a;
    arena_init(&a, 65536);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct path_pattern p;
        struct err err = { "" };
        if (path_pattern_parse(str_c(cases[i].pattern), &a, &p, &err))
            fail_msg("%s: %s", cases[i].pattern, err.text);
        if (path_pattern_matches(&p, str_c(cases[i].path)) != cases[i].matches)
            fail_msg("%s %s", cases[i].pattern, cases[i].path);
        assert_true(!cases[i].matches || path_pattern_matches_nocase(&p, str_c(cases[i].path)));
        assert_true(path_pattern_covers(&p, &p));
    }
    struct path_pattern mixed;
    assert_int_equal(path_pattern_parse(STR("/Ad*/**Z"), &a, &mixed, NULL), 0);
    assert_true(path_pattern_matches_nocase(&mixed, STR("/aDmin/x/z")));
    assert_false(path_pattern_matches(&mixed, STR("/aDmin/x/z")));
    assert_false(path_pattern_matches_nocase(&mixed, STR("/aDmin/x/y")));
    const struct path_pattern none = { STR_NONE };
    assert_false(path_pattern_matches(&none, STR("/")));
    assert_false(path_pattern_matches(&none, STR_NONE));
    const struct path_pattern raw = { STR("/a%") }; /* not canonical: ends inside an escape */
    assert_false(path_pattern_matches(&raw, STR("/a%2F")));
    arena_done(&a);
}

/* More than 64 literals, so more than one word of states; and a pattern that makes backtracking matchers explode. */
static void test_path_pattern_long(void **state)
{
    (void)state;
    struct arena a;
    char text[PATH_PATTERN_MAX + 8], *path = malloc(1 << 16);
    struct path_pattern p;
    arena_init(&a, 65536);
    assert_non_null(path);
    memset(text, 'a', sizeof text);
    memcpy(text, "/**", 3);
    for (size_t m = 1; m < PATH_PATTERN_MAX - 3; m++) {
        assert_int_equal(path_pattern_parse(str_of(text, 3 + m), &a, &p, NULL), 0);
        memset(path, 'a', m + 1);
        path[0] = '/';
        assert_true(path_pattern_matches(&p, str_of(path, m + 1)));
        assert_false(path_pattern_matches(&p, str_of(path, m)));
        path[1] = 'b';
        assert_false(path_pattern_matches(&p, str_of(path, m + 1)));
        arena_done(&a);
        arena_init(&a, 65536);
    }
    assert_int_equal(path_pattern_parse(str_of(text, PATH_PATTERN_MAX + 1), &a, &p, NULL), -1);
    text[0] = '/';
    for (size_t i = 1; i + 3 < PATH_PATTERN_MAX; i += 3)
        memcpy(text + i, "**a", 3);
    text[PATH_PATTERN_MAX - 3] = 'b';
    assert_int_equal(path_pattern_parse(str_of(text, PATH_PATTERN_MAX - 2), &a, &p, NULL), 0);
    memset(path, 'a', 1 << 16);
    path[0] = '/';
    assert_false(path_pattern_matches(&p, str_of(path, 1 << 16)));
    path[(1 << 16) - 1] = 'b';
    assert_true(path_pattern_matches(&p, str_of(path, 1 << 16)));
    free(path);
    arena_done(&a);
}

static void test_path_check(void **state)
{
    (void)state;
    static const char *const good[] = {
        "/",
        "/a/b",
        "//a",
        "/a//b",
        "/a.b",
        "/.a",
        "/...",
        "/a/...",
        "/a..",
        "/..a/b",
        "/.well-known/x",
        "/a?b/../c",
        "/allowed?/../admin",
        "/@scope%2Fname",
        "/@scope%2fname",
        "/a%20b",
        "/a%0d%0ab",
        "/a%5Cb",
        "/caf%c3%a9",
        "/caf\xc3\xa9",
        "/a;b=c",
        "/x?q=100%",
        "/x?a=%00",
        "/x?a=\\",
        "/a%2525b",
        "/~user",
        "/a+b",
        "/%e2%82%ac",
        "/%c0",
        "/a:b@c",
        "/x/%252",
        "/%2e%2ea",
    };
    static const char *const bad[] = {
        "",
        "a",
        "*",
        "?x",
        "http://a.test/",
        "/..",
        "/.",
        "/a/../b",
        "/a/..",
        "/a/./b",
        "/../..",
        "/%2e%2e/a",
        "/%2E%2e",
        "/.%2e/a",
        "/%2e./a",
        "/a/%2e/b",
        "/a/..;x/b",
        "/a/..;foo=bar/admin",
        "/a/.;/b",
        "/%2e%2e;x",
        "/a/..%2Fb",
        "/a%2F..%2Fb",
        "/a%2f%2e%2e",
        "/a/..%5Cb",
        "/%5c..%5ca",
        "/a/%252e%252e/b",
        "/a/%25252e%25252e/b",
        "/%252e",
        "/a/..%252fb",
        "/%c0%ae%c0%ae/a",
        "/..%c0%afa",
        "/%c0%ae",
        "/%e0%80%ae%e0%80%ae",
        "/%f0%80%80%ae",
        "/a\\b",
        "/..\\a",
        "/a%00b",
        "/a%00",
        "/%",
        "/%2",
        "/%zz",
        "/%u002f",
        "/a%2",
        "/a#b",
        "/a?b#c",
        "/a b",
        "/a\tb",
        "/a\x01",
        "/a\x7f",
        "/a?b c",
        "/a?\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct err err = { "" };
        if (policy_path_check(str_c(good[i]), &err))
            fail_msg("%s: %s", good[i], err.text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = { "" };
        if (!policy_path_check(str_c(bad[i]), &err))
            fail_msg("%s passed", bad[i]);
        assert_true(err.text[0]);
    }
    assert_int_equal(policy_path_check(str_of("/a\0b", 4), NULL), -1);
}

/* --- snapshot --- */

static void test_snapshot(void **state)
{
    (void)state;
    struct policy *p = make(credentials_yaml), *q = make(credentials_yaml), *r = make(rules_yaml);
    assert_int_equal(policy_hash(p).n, 16);
    assert_true(str_eq(policy_hash(p), policy_hash(q)));
    assert_false(str_eq(policy_hash(p), policy_hash(r)));
    struct policy *again = policy_ref(p);
    policy_unref(&again);
    assert_null(again);
    assert_true(str_eq(policy_hash(p), policy_hash(q)));
    /* side files are part of what the snapshot is */
    struct policy *with[2];
    for (int i = 0; i < 2; i++) {
        struct diag diag;
        diag_init(&diag);
        struct config *c =
            config_parse(STR("t.yaml"), STR("/e"), STR("version: 1\norigin: {ca_file: [ca.pem]}\n"), &diag);
        struct side_file f = { STR("/e/ca.pem"),
                               i ? STR("-----BEGIN CERTIFICATE-----\nB") : STR("-----BEGIN CERTIFICATE-----\nA") };
        with[i] = policy_new(c, &f, 1, &diag);
        assert_non_null(with[i]);
        assert_true(str_eq(policy_side_file(with[i], STR("/e/ca.pem")), f.bytes));
        assert_null(policy_side_file(with[i], STR("/e/other.pem")).p);
        diag_done(&diag);
    }
    assert_false(str_eq(policy_hash(with[0]), policy_hash(with[1])));
    policy_unref(&with[0]);
    policy_unref(&with[1]);
    policy_unref(&p);
    policy_unref(&q);
    policy_unref(&r);
    policy_unref(&r);
}

/* One code, two sentences: the address is not allowed or nobody's; the name is not there, or nobody says; it is what the
 * request carries, or its name alone. */
static enum end first_of(enum end e)
{
    switch ((unsigned)e) {
    case END_ADDRESS_UNKNOWN:
        return END_ADDRESS_DENIED;
    case END_ORIGIN_DNS_SERVERS:
        return END_ORIGIN_DNS;
    case END_EXFILTRATION_NAME:
        return END_EXFILTRATION;
    default:
        return e;
    }
}

static void test_end_table(void **state)
{
    (void)state;
    for (unsigned i = 0; i < END_COUNT; i++) {
        enum end e = (enum end)i;
        assert_int_equal(end_from_code(str_c(end_code(e))), first_of(e));
        assert_true(strlen(end_sentence(e)) <= 120);
        for (const char *c = end_sentence(e); *c; c++)
            assert_true(*c >= 0x20 && *c < 0x7f);
        assert_true(end_status(e) >= 200 && end_status(e) < 600);
        assert_non_null(end_hint(e));
    }
    assert_int_equal(end_from_code(STR("no_such_code")), END_UNSET);
    assert_int_equal(end_status((enum end)9999), 500);
}

static void test_name(void **state)
{
    (void)state;
    static const struct {
        const char *agent, *host;
        enum verdict_kind kind;
        const char *rule;
    } cases[] = {
        { "coder", "path.test", VERDICT_ALLOW, "path" },
        { "coder", "ssh.test", VERDICT_ALLOW, "tunnel" },
        { "coder", "post.test", VERDICT_ALLOW, "post" },
        { "coder", "part.test", VERDICT_ALLOW, "part" },
        { "coder", "none.test", VERDICT_DENY, "deny-443" },
        { "coder", "deny.test", VERDICT_DENY, "denied" },
        { "coder", "ask.test", VERDICT_ASK, "ask" },
        { "coder", "both.test", VERDICT_ALLOW, "after-ask" },
        { "coder", "gone.test", VERDICT_DENY, NULL },
        { "coder", "a.wild.test", VERDICT_DENY, NULL },
        { "other", "a.wild.test", VERDICT_ALLOW, "wild" },
        { "other", "wild.test", VERDICT_DENY, NULL },
        { "other", "evil.test", VERDICT_DENY, NULL },
        { NULL, "path.test", VERDICT_DENY, NULL },
    };
    static char observed[sizeof names_yaml + 32];
    snprintf(observed, sizeof observed, "%s%s", names_yaml, "mode: observe\n");
    struct policy *p = make(names_yaml), *watched = make(observed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host host;
        struct verdict v;
        assert_int_equal(host_parse(str_c(cases[i].host), &host, NULL), 0);
        policy_eval_name(p, cases[i].agent ? policy_agent(p, str_c(cases[i].agent)) : NULL, &host, noon, &v);
        const char *rule = v.rule ? v.rule->name.p : NULL;
        bool same = rule && cases[i].rule ? str_eq(v.rule->name, str_c(cases[i].rule)) : rule == cases[i].rule;
        if (v.kind != cases[i].kind || !same)
            fail_msg("%s: kind %d, rule %s", cases[i].host, v.kind, rule ? rule : "none");
        policy_eval_name(watched, cases[i].agent ? policy_agent(watched, str_c(cases[i].agent)) : NULL, &host, noon, &v);
        assert_int_equal(v.kind, !cases[i].agent                     ? VERDICT_DENY
                                 : cases[i].kind == VERDICT_ALLOW ? VERDICT_ALLOW
                                                                  : VERDICT_OBSERVE);
    }
    policy_unref(&p);
    policy_unref(&watched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_observe),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_tunnel),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_index_agrees),
        cmocka_unit_test(test_credentials),
        cmocka_unit_test(test_path_pattern),
        cmocka_unit_test(test_path_pattern_long),
        cmocka_unit_test(test_path_check),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_end_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
