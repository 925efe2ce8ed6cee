/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a name an operator wrote, whatever pattern lets it through besides: a table, each refused row beside a
 * control that differs in one thing. */
#include "policy/dns_type.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const int64_t noon = 1767268800000000; /* 2026-01-01T12:00:00Z */

#define ANY   "  - {name: any, hosts: [\"*\"], ports: [443, 8443], action: allow}\n"
#define EXACT "  - {name: exact, hosts: [a.x.test], action: allow}\n"

#define ALL "a.x.test"

static const struct row {
    const char *what, *rules;
    uint16_t port, type; /* 0: a question; 0: a dial */
    const char *written; /* by an operator */
} rows[] = {
    { "a pattern alone", ANY, 0, DNS_TYPE_A, "" },
    { "the exact rule first", EXACT ANY, 0, DNS_TYPE_A, ALL },
    { "the exact rule later", ANY EXACT, 0, DNS_TYPE_A, ALL },
    { "a suffix", ANY "  - {name: s, hosts: [\"*.x.test\"], action: allow}\n", 0, DNS_TYPE_A, "x.test" },
    { "a longer one", ANY "  - {name: s, hosts: [\"*.test\", \"*.x.test\"], action: allow}\n", 0, DNS_TYPE_A,
      "x.test" },
    { "a shorter one of another rule", "  - {name: s, hosts: [\"*.test\"], action: allow}\n" EXACT, 0, DNS_TYPE_A,
      ALL },
    { "a suffix that is refused", ANY "  - {name: s, hosts: [\"*.x.test\"], action: deny}\n", 0, DNS_TYPE_A, "" },
    { "another name of the zone", ANY "  - {name: b, hosts: [b.x.test], action: allow}\n", 0, DNS_TYPE_A, "" },
    { "both in one rule", "  - {name: two, hosts: [\"*.x.test\", a.x.test], action: allow}\n", 0, DNS_TYPE_A, ALL },
    { "a tunnel", ANY "  - {name: t, hosts: [a.x.test], action: tunnel, tls: required}\n", 0, DNS_TYPE_A, ALL },

    { "another agent's", ANY "  - {name: exact, agents: [other], hosts: [a.x.test], action: allow}\n", 0, DNS_TYPE_A,
      "" },
    { "this agent's", ANY "  - {name: exact, agents: [coder], hosts: [a.x.test], action: allow}\n", 0, DNS_TYPE_A,
      ALL },
    { "expired", ANY "  - {name: exact, hosts: [a.x.test], action: allow, expires: 2026-01-01T12:00:00Z}\n", 0,
      DNS_TYPE_A, "" },
    { "not yet", ANY "  - {name: exact, hosts: [a.x.test], action: allow, expires: 2026-01-01T12:00:01Z}\n", 0,
      DNS_TYPE_A, ALL },

    { "written out to be refused", ANY "  - {name: exact, hosts: [a.x.test], action: deny}\n", 0, DNS_TYPE_A, "" },
    { "written out to be asked about", ANY "  - {name: exact, hosts: [a.x.test], action: ask}\n", 0, DNS_TYPE_A, "" },
    { "a deny before it: it would let nothing through",
      ANY "  - {name: d, hosts: [\"*.x.test\"], action: deny}\n" EXACT, 0, DNS_TYPE_A, "" },
    { "a deny behind it", ANY EXACT "  - {name: d, hosts: [\"*.x.test\"], action: deny}\n", 0, DNS_TYPE_A, ALL },
    { "a deny for another name before it", ANY "  - {name: d, hosts: [b.x.test], action: deny}\n" EXACT, 0, DNS_TYPE_A,
      ALL },
    { "a deny of some methods before it", ANY "  - {name: d, hosts: [a.x.test], methods: [PUT], action: deny}\n" EXACT,
      0, DNS_TYPE_A, ALL },
    { "a deny of its port before it", ANY "  - {name: d, hosts: [a.x.test], ports: [443], action: deny}\n" EXACT, 0,
      DNS_TYPE_A, "" },
    { "a deny of another port before it", ANY "  - {name: d, hosts: [a.x.test], ports: [8443], action: deny}\n" EXACT,
      0, DNS_TYPE_A, ALL },
    { "a person is asked before it",
      ANY "  - {name: q, hosts: [\"*.x.test\"], schemes: [https, http], ports: [443], action: ask}\n" EXACT, 0,
      DNS_TYPE_A, "" },
    { "a person is asked behind it",
      ANY EXACT "  - {name: q, hosts: [\"*.x.test\"], schemes: [https, http], ports: [443], action: ask}\n", 0,
      DNS_TYPE_A, ALL },
    { "a tunnel behind a deny of some requests",
      ANY "  - {name: d, hosts: [a.x.test], paths: [\"/x\"], action: deny}\n"
          "  - {name: t, hosts: [a.x.test], action: tunnel, tls: required}\n",
      0, DNS_TYPE_A, "" },

    { "methods and paths do not matter to a name",
      ANY "  - {name: exact, hosts: [a.x.test], methods: [GET], paths: [\"/v1/**\"], action: allow}\n", 0, DNS_TYPE_A,
      ALL },
    { "a dial to its port", ANY EXACT, 443, 0, ALL },
    { "a dial to a port that only the pattern has", ANY EXACT, 8443, 0, "" },
    { "a dial to a port of its own", ANY "  - {name: exact, hosts: [a.x.test], ports: [8443], action: allow}\n", 8443,
      0, ALL },

    { "a type that it does not list", ANY EXACT, 0, DNS_TYPE_TXT, "" },
    { "a type that it lists", ANY "  - {name: exact, hosts: [a.x.test], dns_types: [TXT], action: allow}\n", 0,
      DNS_TYPE_TXT, ALL },
    { "addresses where others are listed",
      ANY "  - {name: exact, hosts: [a.x.test], dns_types: [TXT], action: allow}\n", 0, DNS_TYPE_A, "" },
    { "the second of two", ANY EXACT "  - {name: second, hosts: [a.x.test], dns_types: [TXT], action: allow}\n", 0,
      DNS_TYPE_TXT, ALL },
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char yaml[2048];
        struct diag diag;
        struct host host;
        diag_init(&diag);
        int n = snprintf(yaml, sizeof yaml,
                         "version: 1\nagents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
                         "  - {name: other, identify: [{source: 10.77.0.3/32}]}\nrules:\n%s",
                         rows[i].rules);
        assert_true(n > 0 && (size_t)n < sizeof yaml);
        struct config *c = config_parse(STR("t.yaml"), STR("/etc/outgate"), str_c(yaml), &diag);
        struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
        if (!p)
            fail_msg("%s: %s", rows[i].what, diag.n ? diag.lines[0].text.p : "?");
        diag_done(&diag);
        assert_int_equal(host_parse(STR("a.x.test"), &host, NULL), 0);
        const struct agent *agent = policy_agent(p, STR("coder"));
        size_t bytes = policy_written(p, agent, &host, rows[i].port, rows[i].type, noon);
        assert_true(bytes <= host.n);
        struct str got = str_from(host_str(&host), host.n - bytes);
        if (!str_eq(got, str_c(rows[i].written)))
            fail_msg("%s: '%.*s' instead of '%s'", rows[i].what, STR_ARG(got), rows[i].written);
        assert_int_equal(policy_written(p, NULL, &host, rows[i].port, rows[i].type, noon), 0);
        policy_unref(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
