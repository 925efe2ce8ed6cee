/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a name, as a table: each refused one beside one that differs in one thing and is answered. */
#include "dns/name_ruling.h"
#include "dns/snapshot.h"

#include "policy/dns_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const int64_t noon = 1767268800000000; /* 2026-01-01T12:00:00Z */

static const char yaml[] =
    "version: 1\n"
    "resolver:\n"
    "  hosts: {fixed.internal: [10.0.0.1], unreached.test: [10.0.0.1], fixed-txt.test: [10.0.0.1]}\n"
    "  %s\n"
    "agents:\n"
    "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
    "  - {name: wide, identify: [{source: 10.77.0.3/32}]}\n"
    "rules:\n"
    "  - {name: deny, hosts: [deny.test, denied.internal], action: deny}\n"
    "  - {name: api, hosts: [api.test, \"*.wild.test\", here.internal, printer.local, box], action: allow}\n"
    "  - {name: ssh, hosts: [ssh.test], ports: [22], tls: none, action: tunnel}\n"
    "  - {name: ask, hosts: [ask.test], action: ask}\n"
    "  - {name: v4, hosts: [v4.test], dns_types: [A], action: allow}\n"
    "  - {name: txt, hosts: [txt.test, fixed-txt.test], dns_types: [A, TXT], action: allow}\n"
    "  - {name: gone, hosts: [gone.test], action: allow, expires: 2026-01-01T12:00:00Z}\n"
    "  - {name: all, agents: [wide], hosts: [\"*\"], action: allow}\n"
    "%s";

static struct snapshot *make(const char *resolver, const char *tail)
{
    char text[4096];
    struct diag diag;
    diag_init(&diag);
    snprintf(text, sizeof text, yaml, resolver, tail);
    struct config *c = config_parse(STR("t.yaml"), STR("/etc/outgate"), str_c(text), &diag);
    struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
    if (!p)
        fail_msg("%s", diag.n ? diag.lines[0].text.p : "?");
    diag_done(&diag);
    struct snapshot *s = snapshot_new(p, STR_NONE);
    policy_unref(&p);
    assert_non_null(s);
    return s;
}

static struct name_ruling rule(const struct snapshot *s, const char *agent, const char *name, uint16_t type)
{
    static struct query q;
    struct name_ruling r;
    memset(&q, 0, sizeof q);
    q.type = type;
    q.n = (uint16_t)strlen(name);
    memcpy(q.name, name, q.n);
    q.odd = strchr(name, '\\') != NULL;
    name_rule(s, policy_agent(s->policy, str_c(agent)), &q, noon, &r);
    return r;
}

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *agent, *name;
        enum name_fate fate;
        enum verdict_kind verdict;
        const char *rule;
    } rows[] = {
        { "coder", "api.test", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "coder", "a.wild.test", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "coder", "a.b.wild.test", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "coder", "wild.test", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "ssh.test", NAME_ADDRESS, VERDICT_ALLOW, "ssh" },
        { "coder", "ask.test", NAME_ADDRESS, VERDICT_ASK, "ask" },
        { "coder", "v4.test", NAME_ADDRESS, VERDICT_ALLOW, "v4" },
        { "coder", "deny.test", NAME_REFUSED, VERDICT_DENY, "deny" },
        { "coder", "evil.test", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "gone.test", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "api.test.evil.test", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "x-api.test", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "unreached.test", NAME_REFUSED, VERDICT_DENY, NULL }, /* in hosts, and in no rule */
        { "coder", "fixed.internal", NAME_REFUSED, VERDICT_DENY, NULL },
        /* what a rule or hosts writes beats the special names */
        { "coder", "here.internal", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "coder", "printer.local", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "coder", "box", NAME_ADDRESS, VERDICT_ALLOW, "api" },
        { "wide", "fixed.internal", NAME_ADDRESS, VERDICT_ALLOW, "all" },
        { "wide", "other.internal", NAME_ABSENT, VERDICT_DENY, "all" },
        { "wide", "www.example.com", NAME_ADDRESS, VERDICT_ALLOW, "all" },
        { "wide", "www.test", NAME_REFUSED, VERDICT_DENY, "all" },
        { "wide", "single", NAME_REFUSED, VERDICT_DENY, "all" },
        { "wide", "deny.test", NAME_REFUSED, VERDICT_DENY, "deny" },
        { "coder", "denied.internal", NAME_REFUSED, VERDICT_DENY, "deny" },
        /* names that clients make of others */
        { "coder", "api.test.ns.svc.cluster.local", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "api.test.compute.internal", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "api.test.lan", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "1.0.0.10.in-addr.arpa", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "localhost", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "a.onion", NAME_ABSENT, VERDICT_DENY, NULL },
        { "coder", "www.example.com", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "www.example", NAME_REFUSED, VERDICT_DENY, NULL },
        { "coder", "single", NAME_REFUSED, VERDICT_DENY, NULL },
        /* no host names */
        { "wide", "", NAME_REFUSED, VERDICT_DENY, NULL },
        { "wide", "10.0.0.1", NAME_REFUSED, VERDICT_DENY, NULL },
        { "wide", "0x7f.1", NAME_REFUSED, VERDICT_DENY, NULL },
        { "wide", "a\\046b.example.com", NAME_REFUSED, VERDICT_DENY, NULL },
    };
    struct snapshot *s = make("answer: synthetic", "");
    static const uint16_t types[] = { DNS_TYPE_A, DNS_TYPE_AAAA, 16, DNS_TYPE_HTTPS, 255, 10 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            struct name_ruling r = rule(s, rows[i].agent, rows[i].name, types[t]);
            bool address =
                types[t] == DNS_TYPE_A || (types[t] == DNS_TYPE_AAAA && strcmp(rows[i].name, "v4.test") != 0);
            enum name_fate want = rows[i].fate == NAME_ADDRESS && !address ? NAME_NO_DATA : rows[i].fate;
            bool same = rows[i].rule ? r.rule && str_eq(r.rule->name, str_c(rows[i].rule)) : !r.rule;
            if (r.fate != want || r.verdict != rows[i].verdict || !same)
                fail_msg("%s %s %u: fate %d, verdict %d, rule %s", rows[i].agent, rows[i].name, types[t], r.fate,
                         r.verdict, r.rule ? r.rule->name.p : "none");
        }
    snapshot_unref(&s);
}

/* Forwarding sends the name away: not before a person said yes. */
static void test_ask_forward(void **state)
{
    (void)state;
    struct snapshot *s = make("answer: forward", "");
    assert_int_equal(rule(s, "coder", "ask.test", DNS_TYPE_A).fate, NAME_REFUSED);
    assert_int_equal(rule(s, "coder", "ask.test", DNS_TYPE_A).code, END_APPROVAL_REQUIRED);
    assert_int_equal(rule(s, "coder", "api.test", DNS_TYPE_A).fate, NAME_ADDRESS);
    /* what a rule lists, and no more; nothing but addresses of a name in hosts */
    assert_int_equal(rule(s, "coder", "txt.test", DNS_TYPE_TXT).fate, NAME_RECORDS);
    assert_int_equal(rule(s, "coder", "txt.test", DNS_TYPE_A).fate, NAME_ADDRESS);
    assert_int_equal(rule(s, "coder", "txt.test", DNS_TYPE_AAAA).fate, NAME_NO_DATA);
    assert_int_equal(rule(s, "coder", "txt.test", DNS_TYPE_MX).fate, NAME_NO_DATA);
    assert_int_equal(rule(s, "coder", "fixed-txt.test", DNS_TYPE_TXT).fate, NAME_NO_DATA);
    assert_int_equal(rule(s, "coder", "fixed-txt.test", DNS_TYPE_A).fate, NAME_ADDRESS);
    assert_int_equal(rule(s, "coder", "api.test", DNS_TYPE_TXT).fate, NAME_NO_DATA);
    snapshot_unref(&s);
    s = make("answer: synthetic", ""); /* nothing leaves, whatever a rule lists */
    assert_int_equal(rule(s, "coder", "txt.test", DNS_TYPE_TXT).fate, NAME_NO_DATA);
    snapshot_unref(&s);
}

static void test_observe(void **state)
{
    (void)state;
    struct snapshot *s = make("answer: synthetic", "mode: observe\n");
    struct name_ruling r = rule(s, "coder", "www.example.com", DNS_TYPE_A);
    assert_int_equal(r.fate, NAME_ADDRESS);
    assert_int_equal(r.verdict, VERDICT_OBSERVE);
    assert_int_equal(rule(s, "coder", "x.cluster.local", DNS_TYPE_A).fate, NAME_ABSENT);
    assert_int_equal(rule(s, "coder", "api.test", DNS_TYPE_A).verdict, VERDICT_ALLOW);
    snapshot_unref(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_ask_forward),
        cmocka_unit_test(test_observe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
