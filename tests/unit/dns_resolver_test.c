/* SPDX-License-Identifier: Apache-2.0
 *
 * The resolver as a worker meets it: a dial by message, a connected socket or a refusal back, real sockets on loopback,
 * a scripted DNS server that counts what reached it. Loopback stands for the internet here: rules open it with
 * allow_addresses, and 10.0.0.0/8 stands for what must not be reached. Each refusal has its control. */
#include "dns_lab.h"

#include "base/lockdown.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char rules[] =
    "  - {name: never, hosts: [no.a.test], action: deny}\n"
    "  - {name: web, agents: [coder], hosts: [\"*.a.test\", a.test], ports: [%PORT%], allow_addresses: [127.0.0.0/8, "
    "\"::1/128\"], action: "
    "allow}\n"
    "  - {name: closed, hosts: [\"*.a.test\", \"*.b.test\", fixed.test, bad-fixed.test, 127.0.0.1], ports: [%PORT%], "
    "action: allow}\n"
    "  - {name: hosts, hosts: [fixed.test, bad-fixed.test, 127.0.0.1, 169.254.169.254], ports: [%PORT%], "
    "allow_addresses: [127.0.0.0/8, 169.254.0.0/16], "
    "action: allow}\n"
    "  - {name: old, hosts: [\"*.a.test\"], ports: [%PORT%], expires: \"2020-01-01T00:00:00Z\", action: allow}\n"
    "  - {name: asked, hosts: [\"*.c.test\"], ports: [%PORT%], action: ask}\n"
    "  - {name: any, hosts: [\"*\"], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: allow}\n";

#define SOA "+@ SOA ns.test 30"
#define NONE                                                                                                           \
    {                                                                                                                  \
        NULL, 28, 0, 0, SOA, NULL                                                                                      \
    }
#define A(name, how, records)                                                                                          \
    {                                                                                                                  \
        name, 1, 0, how, records, NULL                                                                                 \
    }
#define ROWS(v)            v, sizeof(v) / sizeof *(v)
#define START(lab, script) lab_start_with(lab, ROWS(script), NULL, 0, "", rules)

static const struct reply good[] = { A(NULL, 0, "@ A 127.0.0.1 60"), NONE };

static void test_good(void **state)
{
    (void)state;
    struct lab lab;
    START(&lab, good);
    struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" });
    char want[64];
    snprintf(want, sizeof want, "127.0.0.1:%u", lab.port);
    assert_int_equal(r.end, END_OK);
    assert_string_equal(r.addr, want);
    assert_int_equal(strlen(r.dns_id), 26);
    assert_int_equal(lab.servers[0].asked, 2);

    /* One event a question, both under the id that the exchange will carry. */
    for (int i = 0; i < 2; i++) {
        struct lab_event e = lab_event(&lab);
        assert_true(e.ok);
        assert_string_equal(e.qname, "x.a.test");
        assert_string_equal(e.verdict, "allow");
        assert_string_equal(e.rcode, "NOERROR");
        assert_string_equal(e.dns_id, r.dns_id);
        assert_string_equal(e.agent, "coder");
        assert_string_equal(e.rule, "web");
    }
    assert_false(lab_event(&lab).ok);

    /* From the cache: no packet, no event, the same id. */
    struct lab_result again = lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" });
    assert_int_equal(again.end, END_OK);
    assert_string_equal(again.dns_id, r.dns_id);
    assert_int_equal(lab.servers[0].asked, 2);
    assert_false(lab_event(&lab).ok);
    lab_stop(&lab);
    assert_int_equal(lab_fds(), lab.fds_before);
}

/* What policy denies causes no packet: counted at the server. */
static void test_denied(void **state)
{
    (void)state;
    static const struct {
        struct lab_dial dial;
        const char *why;
    } table[] = {
        { { .host = "no.a.test", .rule = "web" }, "host_denied" },
        { { .host = "no.a.test", .rule = "never" }, "host_denied" },
        { { .host = "x.a.test", .rule = "web", .port = 1 }, "port_denied" },
        { { .host = "x.a.test", .rule = "web", .agent = "other" }, "the rule does not cover this host and port" },
        { { .host = "x.a.test", .rule = "web", .agent = "nobody" }, "no such agent" },
        { { .host = "x.a.test", .rule = "unknown" }, "the rule is not in force" },
        { { .host = "x.a.test", .rule = "old" }, "the rule does not cover this host and port" },
        { { .host = "x.a.test" }, "no rule was named" },
        { { .host = "x.c.test", .rule = "asked" }, "the rule does not allow" },
        { { .host = "x.b.test", .rule = "web" }, "the rule does not cover this host and port" },
        { { .host = "localhost", .rule = "any" }, "special name: localhost" },
        { { .host = "x.localhost", .rule = "any" }, "special name: localhost" },
        { { .host = "printer.local", .rule = "any" }, "special name: .local" },
        { { .host = "metadata.google.internal", .rule = "any" }, "special name: .internal" },
        { { .host = "x.invalid", .rule = "any" }, "special name: .invalid" },
        { { .host = "x.onion", .rule = "any" }, "special name: .onion" },
        { { .host = "1.0.0.10.in-addr.arpa", .rule = "any" }, "special name: .arpa" },
        { { .host = "intranet", .rule = "any" }, "special name: a single label" },
        { { .host = "other.test", .rule = "any" }, "special name: .test" },
    };
    struct lab lab;
    START(&lab, good);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct lab_result r = lab_dial(&lab, &table[i].dial);
        assert_string_equal(r.why, table[i].why);
        assert_int_equal(r.end, END_HOST_DENIED);
        struct lab_event e = lab_event(&lab);
        assert_true(e.ok);
        assert_string_equal(e.verdict, "deny");
        assert_string_equal(e.code, "host_denied");
        assert_string_equal(e.qname, table[i].dial.host);
    }
    struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = "x.nonexistent-top-level", .rule = "any" });
    assert_int_equal(r.end, END_ORIGIN_DNS);
    assert_int_equal(lab.servers[0].asked, 0);

    /* Controls: the same kind of name, allowed or written in a rule, is asked for. */
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "www.example.com", .rule = "any" }).end, END_OK);
    assert_int_equal(server_count(&lab.servers[0], "x.a.test"), 2);
    assert_int_equal(server_count(&lab.servers[0], "www.example.com"), 2);
    lab_stop(&lab);
}

static void test_special_written(void **state)
{
    (void)state;
    struct lab lab;
    lab_start_with(&lab, ROWS(good), NULL, 0, "",
                   "  - {name: own, hosts: [printer.local, intranet, \"*.corp.internal\"], ports: [%PORT%], "
                   "allow_addresses: [127.0.0.0/8], "
                   "action: allow}\n");
    static const char *const names[] = { "printer.local", "intranet", "git.corp.internal" };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = names[i], .rule = "own" }).end, END_OK);
    lab_stop(&lab);
}

#define CHAIN(n) "c" #n ".a.test CNAME d" #n ".a.test 60;"
static const struct reply odd[] = {
    { "nx.a.test", 0, 3, 0, SOA, NULL },
    { "servfail.a.test", 0, 2, 0, NULL, NULL },
    { "refused.a.test", 0, 5, 0, NULL, NULL },
    { "nodata.a.test", 0, 0, 0, SOA, NULL },
    { "lame.a.test", 0, 0, 0, NULL, NULL },
    A("garbage.a.test", REPLY_GARBAGE, "@ A 127.0.0.1 60"),
    A("loop.a.test", 0, "@ CNAME l2.a.test 60; l2.a.test CNAME loop.a.test 60"),
    A("other.a.test", 0, "else.a.test A 127.0.0.1 60;" SOA),
    A("two.a.test", 0, "@ CNAME l2.a.test 60; @ CNAME l3.a.test 60; l2.a.test A 127.0.0.1 60"),
    A("both.a.test", 0, "@ CNAME l2.a.test 60; @ A 127.0.0.1 60"),
    A("extra.a.test", 0, SOA "; !@ A 127.0.0.1 60; +@ A 127.0.0.1 60"),
    A("chain9.a.test", 0,
      "@ CNAME 1.t 60; 1.t CNAME 2.t 60; 2.t CNAME 3.t 60; 3.t CNAME 4.t 60; 4.t CNAME 5.t 60; 5.t CNAME 6.t 60;"
      "6.t CNAME 7.t 60; 7.t CNAME 8.t 60; 8.t CNAME 9.t 60; 9.t A 127.0.0.1 60"),
    A("chain8.a.test", 0,
      "8.t A 127.0.0.1 60; 7.t CNAME 8.t 60; 6.t CNAME 7.t 60; 5.t CNAME 6.t 60; 4.t CNAME 5.t 60; 3.t CNAME 4.t 60;"
      "2.t CNAME 3.t 60; 1.t CNAME 2.t 60; @ CNAME 1.t 60"),
    A("mixed.a.test", 0, "@ A 127.0.0.1 60; @ A 10.9.9.9 60"),
    A("private.a.test", 0, "@ A 10.9.9.9 60"),
    A("alias.a.test", 0, "@ CNAME in.corp.internal 60; in.corp.internal A 10.9.9.9 60"),
    A("alias-ok.a.test", 0, "@ CNAME in.corp.internal 60; in.corp.internal A 127.0.0.1 60"),
    A("fine.a.test", 0, "@ A 127.0.0.1 60; @ A 127.0.0.9 60"),
    { "six.a.test", 28, 0, 0, "@ AAAA ::ffff:10.9.9.9 60", NULL },
    A("six.a.test", 0, "@ A 127.0.0.1 60"),
    { "meta.a.test", 1, 0, 0, "@ A 169.254.169.254 60", NULL },
    A("cut.a.test", REPLY_CUT, "@ A 127.0.0.1 60"),
    A("case.a.test", REPLY_WRONG_CASE, "@ A 127.0.0.1 60"),
    A("id.a.test", REPLY_WRONG_ID, "@ A 127.0.0.1 60"),
    A("name.a.test", REPLY_OTHER_NAME, "@ A 127.0.0.1 60"),
    A("empty.a.test", REPLY_EMPTY, "@ A 127.0.0.1 60"),
    A("plain.b.test", 0, "@ A 127.0.0.1 60"),
    NONE,
    A(NULL, 0, "@ A 127.0.0.1 60"),
};

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        enum end end;
        const char *why; /* NULL: any */
    } table[] = {
        { "nx.a.test", END_ORIGIN_DNS, "the name does not exist" },
        { "servfail.a.test", END_ORIGIN_DNS_SERVERS, "the DNS servers could not answer" },
        { "refused.a.test", END_ORIGIN_DNS_SERVERS, "the DNS servers could not answer" },
        { "nodata.a.test", END_ORIGIN_DNS, "the name has no address" },
        { "lame.a.test", END_ORIGIN_DNS, "the name has no address" },
        { "garbage.a.test", END_ORIGIN_DNS_SERVERS, "the DNS answer is malformed" },
        { "loop.a.test", END_ORIGIN_DNS_SERVERS, "the DNS answer is malformed" },
        { "other.a.test", END_ORIGIN_DNS, "the name has no address" },
        { "two.a.test", END_ORIGIN_DNS_SERVERS, "the DNS answer is malformed" },
        { "both.a.test", END_ORIGIN_DNS_SERVERS, "the DNS answer is malformed" },
        { "extra.a.test", END_ORIGIN_DNS, "the name has no address" },
        { "chain9.a.test", END_ORIGIN_DNS_SERVERS, "the DNS answer is malformed" },
        { "chain8.a.test", END_OK, NULL },
        { "mixed.a.test", END_ADDRESS_DENIED, "rebind: 10.9.9.9 is refused (private)" },
        { "private.a.test", END_ADDRESS_DENIED, "rebind: 10.9.9.9 is refused (private)" },
        { "alias.a.test", END_ADDRESS_DENIED, "rebind: 10.9.9.9 is refused (private)" },
        { "alias-ok.a.test", END_OK, NULL },
        { "fine.a.test", END_OK, NULL },
        { "six.a.test", END_ADDRESS_DENIED, NULL },
        { "meta.a.test", END_ADDRESS_DENIED, "rebind: 169.254.169.254 is refused (metadata)" },
        { "cut.a.test", END_OK, NULL },
        { "case.a.test", END_OK, NULL },
        { "id.a.test", END_OK, NULL },
        { "name.a.test", END_OK, NULL },
        { "empty.a.test", END_OK, NULL },
    };
    struct lab lab;
    START(&lab, odd);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = table[i].host, .rule = "web" });
        if (r.end != table[i].end || (table[i].why && strcmp(r.why, table[i].why) != 0))
            fail_msg("%s: %s, %s", table[i].host, end_code(r.end), r.why);
        for (struct lab_event e; (e = lab_event(&lab)).ok;)
            if (strcmp(e.verdict, "deny") == 0)
                assert_true(table[i].end == END_ADDRESS_DENIED || table[i].end == END_ORIGIN_DNS_SERVERS);
    }
    assert_int_equal(lab.servers[0].asked_tcp, 1);
    /* A name that came along in another answer was not kept. */
    size_t before = lab.servers[0].asked;
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "else.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab.servers[0].asked, before + 2);
    /* Negative answers are kept, too: no new question. */
    before = lab.servers[0].asked;
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "nx.a.test", .rule = "web" }).end, END_ORIGIN_DNS);
    assert_int_equal(lab.servers[0].asked, before);
    lab_stop(&lab);
    assert_int_equal(lab_fds(), lab.fds_before);
}

/* The same address under a rule that opens it and one that does not; fixed hosts and literals likewise. */
static void test_guard(void **state)
{
    (void)state;
    static const struct {
        const char *host, *rule;
        enum end end;
    } table[] = {
        { "plain.b.test", "closed", END_ADDRESS_DENIED },
        { "plain.c.test", "any", END_HOST_DENIED /* .test by "*" only */ },
        { "plain.b.test", "any", END_OK /* "closed" writes "*.b.test" */ },
        { "plain.a.test", "closed", END_ADDRESS_DENIED },
        { "plain.a.test", "web", END_OK },
        { "fixed.test", "closed", END_ADDRESS_DENIED },
        { "fixed.test", "hosts", END_OK },
        { "bad-fixed.test", "hosts", END_ADDRESS_DENIED },
        { "127.0.0.1", "closed", END_ADDRESS_DENIED },
        { "127.0.0.1", "hosts", END_OK },
        { "169.254.169.254", "hosts", END_ADDRESS_DENIED },
        { "127.0.0.1", "any", END_HOST_DENIED },
    };
    struct lab lab;
    START(&lab, odd);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = table[i].host, .rule = table[i].rule });
        if (r.end != table[i].end)
            fail_msg("%s by %s: %s, %s", table[i].host, table[i].rule, end_code(r.end), r.why);
    }
    assert_int_equal(server_count(&lab.servers[0], "fixed.test"), 0);
    lab_stop(&lab);
}

static void test_own_listeners(void **state)
{
    (void)state;
    struct lab lab;
    START(&lab, good);
    struct lab_dial d = { .host = "x.a.test", .rule = "web" };
    struct ip ip;
    uint16_t port = lab.port;
    struct own_addresses own = { &ip, &port, 1 };
    ip_parse(STR("127.0.0.1"), &ip);
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    resolver_set_own(lab.resolver, &own);
    assert_int_equal(lab_dial(&lab, &d).end, END_ADDRESS_DENIED);
    resolver_set_own(lab.resolver, &(struct own_addresses) { 0 });
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    lab_stop(&lab);
}

/* The server that looks names up is no host to connect to, by name or address, whatever a rule opens. The control: its address, another
 * port. */
static void test_dns_servers_are_not_dialled(void **state)
{
    (void)state;
    struct lab lab;
    START(&lab, good);
    char text[512], yaml[8192];
    snprintf(text, sizeof text, "  - {name: both, hosts: [\"*.a.test\", 127.0.0.1], ports: [%u, %u], allow_addresses: [127.0.0.0/8], action: allow}\n",
             lab.servers[0].port, lab.port);
    lab_yaml(&lab, yaml, "", text);
    struct policy *p = lab_policy(yaml);
    resolver_set_policy(lab.resolver, p, STR_NONE, NULL);
    policy_unref(&p);
    static const char *const hosts[] = { "x.a.test", "127.0.0.1" };
    for (size_t i = 0; i < 2; i++) {
        struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = hosts[i], .rule = "both", .port = lab.servers[0].port });
        assert_int_equal(r.end, END_ADDRESS_DENIED);
        assert_non_null(strstr(r.why, "127.0.0.1 is refused (a DNS server of ours)"));
        assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = hosts[i], .rule = "both" }).end, END_OK);
    }
    lab_stop(&lab);
}

/* Public first, private afterwards, TTL 0: an address is dialled in the same breath as it was vetted, or not at all. */
static void test_rebinding(void **state)
{
    (void)state;
    static const struct reply script[] = { { NULL, 1, 0, 0, "@ A 127.0.0.1 0", "@ A 10.9.9.9 0" }, NONE };
    struct lab lab;
    START(&lab, script);
    struct lab_dial d = { .host = "rb.a.test", .rule = "web" };
    uint64_t start = clock_mono_ms();
    unsigned dialled = 0, refused = 0;
    while (refused == 0 && clock_mono_ms() - start < 5000) {
        struct lab_result r = lab_dial(&lab, &d);
        if (r.end == END_OK) {
            assert_true(str_starts(str_c(r.addr), STR("127.0.0.1:")));
            dialled++;
        } else {
            assert_int_equal(r.end, END_ADDRESS_DENIED);
            refused++;
        }
        lab_idle(&lab, 5);
    }
    assert_true(dialled > 10 && refused == 1);
    assert_true(clock_mono_ms() - start >= 990); /* a TTL of 0 counts as one second */
    bool denied = false;
    for (struct lab_event e; (e = lab_event(&lab)).ok;)
        denied |= strcmp(e.verdict, "deny") == 0 && strstr(e.message, "rebind");
    assert_true(denied);
    lab_stop(&lab);
}

/* Who joins a look-up of somebody else's is refused in its own name. */
static void test_rebinding_joined(void **state)
{
    (void)state;
    static const struct reply script[] = { { NULL, 1, 0, 0, "@ A 10.9.9.9 60", NULL }, NONE };
    struct lab lab;
    struct lab_result r[2];
    unsigned denied[2] = { 0 };
    START(&lab, script);
    for (size_t i = 0; i < 2; i++)
        lab_begin(&lab, &(struct lab_dial) { .host = "rb.a.test", .rule = "any", .agent = i ? "other" : "coder" }, &r[i]);
    for (size_t i = 0; i < 2; i++) {
        lab_run(&lab, &r[i], 5000);
        assert_int_equal(r[i].end, END_ADDRESS_DENIED);
    }
    lab_idle(&lab, 20);
    for (struct lab_event e; (e = lab_event(&lab)).ok;)
        if (strcmp(e.verdict, "deny") == 0 && strstr(e.message, "rebind"))
            denied[strcmp(e.agent, "other") == 0]++;
    assert_int_equal(lab.servers[0].asked, 2);
    assert_true(denied[0] == 1 && denied[1] == 1);
    lab_stop(&lab);
}

static void test_failover(void **state)
{
    (void)state;
    static const struct reply first[] = {
        { "refused.a.test", 0, 5, 0, NULL, NULL },
        { "lame.a.test", 0, 0, 0, NULL, NULL },
        { "bad.a.test", 1, 0, REPLY_GARBAGE, "@ A 127.0.0.1 60", NULL },
        { "nx.a.test", 0, 3, 0, SOA, NULL },
        { "forged.a.test", 0, 0, REPLY_WRONG_CASE | REPLY_WRONG_ID | REPLY_ONLY_FORGED, "@ A 10.9.9.9 60", NULL },
        { NULL, 0, 0, REPLY_SILENT, NULL, NULL },
    };
    static const char *const names[] = { "refused.a.test", "lame.a.test", "bad.a.test" };
    for (size_t i = 0; i < 3; i++) {
        struct lab lab;
        lab_start_with(&lab, ROWS(first), ROWS(good), "", rules);
        struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = names[i], .rule = "web" });
        assert_int_equal(r.end, END_OK);
        assert_true(r.resolve_ms < 500);
        assert_true(server_count(&lab.servers[0], names[i]) > 0);
        lab_stop(&lab);
    }
    struct lab lab;
    lab_start_with(&lab, ROWS(first), ROWS(good), "", rules);
    /* A server's "there is none" with proof is final. */
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "nx.a.test", .rule = "web" }).end, END_ORIGIN_DNS);
    assert_int_equal(lab.servers[1].asked, 0);
    /* Forgeries do not end a question; silence sends it to the next server. */
    struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = "forged.a.test", .rule = "web" });
    assert_int_equal(r.end, END_OK);
    assert_true(r.resolve_ms >= 900);
    /* … which is asked first from then on. */
    r = lab_dial(&lab, &(struct lab_dial) { .host = "silent.a.test", .rule = "web" });
    assert_int_equal(r.end, END_OK);
    assert_true(r.resolve_ms < 500);
    lab_stop(&lab);

    /* Control: with no second server the silent one fails the dial, within its time. */
    START(&lab, first);
    r = lab_dial(&lab, &(struct lab_dial) { .host = "silent.a.test", .rule = "web", .timeout_ms = 700 });
    assert_int_equal(r.end, END_ORIGIN_DNS_SERVERS);
    assert_true(r.resolve_ms >= 650 && r.resolve_ms < 1500);
    lab_stop(&lab);
}

/* One family is fine, the other fails or is silent. */
static void test_half(void **state)
{
    (void)state;
    static const struct reply script[] = {
        { "silent.a.test", 28, 0, REPLY_SILENT, NULL, NULL },
        { "fail.a.test", 28, 2, 0, NULL, NULL },
        { "late.a.test", 28, 0, REPLY_SILENT, NULL, NULL },
        A(NULL, 0, "@ A 127.0.0.1 60"),
    };
    struct lab lab;
    START(&lab, script);
    static const char *const names[] = { "silent.a.test", "fail.a.test" };
    for (size_t i = 0; i < 2; i++) {
        struct lab_result r = lab_dial(&lab, &(struct lab_dial) { .host = names[i], .rule = "web" });
        assert_int_equal(r.end, END_OK);
        assert_true(r.resolve_ms < 250);
    }
    lab_stop(&lab);
}

static void test_single_flight(void **state)
{
    (void)state;
    enum { N = 40 };
    struct lab lab;
    START(&lab, good);
    struct lab_result r[N];
    for (size_t i = 0; i < N; i++)
        lab_begin(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }, &r[i]);
    for (size_t i = 0; i < N; i++) {
        lab_run(&lab, &r[i], 5000);
        assert_int_equal(r[i].end, END_OK);
        close(r[i].fd);
    }
    assert_int_equal(lab.servers[0].asked, 2);
    lab_stop(&lab);
    assert_int_equal(lab_fds(), lab.fds_before);
}

/* One agent has more look-ups under way than there is room for, and among them names that another wants too: the other waits neither
 * for its places nor behind its questions, and no failure that was due to them is kept. */
static void test_room_for_others(void **state)
{
    (void)state;
    static const struct reply script[] = {
        A("first.a.test", 0, "@ A 127.0.0.1 60"),
        A("last.a.test", 0, "@ A 127.0.0.1 60"),
        A("own.a.test", 0, "@ A 127.0.0.1 60"),
        { NULL, 0, 0, REPLY_SILENT, NULL, NULL },
    };
    enum { N = 1600 };
    static struct lab_result r[N];
    struct lab_result busy, other[3];
    struct lab lab;
    START(&lab, script);
    for (unsigned i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "slow%u.a.test", i);
        lab_begin(&lab, &(struct lab_dial) { .host = i == 500 ? "first.a.test" : name, .rule = "any", .timeout_ms = 20000 }, &r[i]);
        if (i % 20 == 19)
            loop_run_once(lab.loop, 0);
    }
    lab_begin(&lab, &(struct lab_dial) { .host = "last.a.test", .rule = "any" }, &busy);
    lab_run(&lab, &busy, 2000);
    assert_int_equal(busy.end, END_ORIGIN_DNS_SERVERS); /* the control: it has its share */
    static const char *const names[] = { "first.a.test", "last.a.test", "own.a.test" };
    uint64_t start = clock_mono_ms();
    for (size_t i = 0; i < 3; i++) {
        lab_begin(&lab, &(struct lab_dial) { .host = names[i], .rule = "any", .agent = "other" }, &other[i]);
        lab_run(&lab, &other[i], 2000);
        assert_int_equal(other[i].end, END_OK);
        close(other[i].fd);
    }
    assert_true(clock_mono_ms() - start < 1000); /* one that it asked has 3 s, and hundreds are before it */
    for (unsigned i = 0; i < N; i++)
        if (r[i].fd >= 0)
            close(r[i].fd);
    lab_stop(&lab);
}

/* Ports, ids and letter case of many questions: drawn, not counted up. */
static void test_unpredictable(void **state)
{
    (void)state;
    enum { N = 100 };
    struct lab lab;
    START(&lab, good);
    for (unsigned i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "abcdefghij%u.a.test", i);
        assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = name, .rule = "web" }).end, END_OK);
    }
    const struct dns_server_fake *s = &lab.servers[0];
    size_t same_port = 0, same_id = 0, upper = 0, letters = 0;
    for (size_t i = 0; i < s->asked; i++) {
        for (size_t k = 0; k < i; k++) {
            same_port += s->log[i].port == s->log[k].port;
            same_id += s->log[i].id == s->log[k].id;
        }
        for (const char *p = s->log[i].name; *p; p++) {
            letters += ascii_alpha(*p);
            upper += *p >= 'A' && *p <= 'Z';
        }
    }
    assert_int_equal(s->asked, 2 * N);
    /* 19,900 pairs: among 28,232 ports some 0.7 pairs are expected to be the same, among 65,536 ids 0.3 */
    assert_true(same_port < 20 && same_id < 10);
    assert_true(upper > letters * 2 / 5 && upper < letters * 3 / 5);
    lab_stop(&lab);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct reply silent[] = { { NULL, 0, 0, REPLY_SILENT, NULL, NULL } };
    struct lab lab;
    struct lab_result r[24];
    /* burst is ten seconds' worth */
    lab_start_with(&lab, ROWS(good), NULL, 0, "limits: {dial_rate: 1}", rules);
    for (int i = 0; i < 8; i++) /* of ten: one agent does not take the last ones */
        assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_RATE_LIMITED);
    lab_idle(&lab, 1100);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    lab_stop(&lab);

    lab_start_with(&lab, ROWS(silent), NULL, 0, "limits: {dials: 16}", rules);
    struct dial_wait *w[13];
    for (int i = 0; i < 13; i++) /* three quarters are one agent's, if it is alone */
        w[i] = lab_begin(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }, &r[i]);
    lab_run(&lab, &r[12], 1000);
    assert_int_equal(r[12].end, END_RATE_LIMITED);
    assert_int_equal(r[0].calls, 0);
    dial_cancel(&w[0]); /* makes room for one */
    lab_begin(&lab, &(struct lab_dial) { .host = "fixed.test", .rule = "hosts" }, &r[17]);
    lab_run(&lab, &r[17], 1000);
    assert_int_equal(r[17].end, END_OK);
    close(r[17].fd);
    lab_stop(&lab);
    assert_int_equal(lab_fds(), lab.fds_before);
}

/* A log that takes nothing: nothing leaves; it takes again: the same dial passes. */
static void test_audit_unavailable(void **state)
{
    (void)state;
    struct lab lab;
    START(&lab, good);
    struct event e;
    event_init(&e, EVENT_DNS);
    event_put_str(&e, FIELD_QNAME, STR("filler.test"));
    while (sink_write(lab.sink, &e, false) == 0)
        ;
    struct lab_dial d = { .host = "x.a.test", .rule = "web" };
    assert_int_equal(lab_dial(&lab, &d).end, END_AUDIT_UNAVAILABLE);
    assert_int_equal(lab.servers[0].asked, 0);
    while (lab_event(&lab).ok)
        ;
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    assert_int_equal(lab.servers[0].asked, 2);
    lab_stop(&lab);
}

static void test_aggregates(void **state)
{
    (void)state;
    struct lab lab;
    lab_start_with(&lab, ROWS(good), NULL, 0, "limits: {refusals_per_second: 5}", rules);
    for (int i = 0; i < 100; i++)
        assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "no.a.test", .rule = "web" }).end,
                         END_HOST_DENIED);
    lab_dial(&lab,
             &(struct lab_dial) { .host = "www.example.com", .rule = "web" }); /* another zone: a line of its own */
    lab_idle(&lab, 1600);
    unsigned singles = 0, others = 0;
    uint64_t counted = 0;
    for (struct lab_event e; (e = lab_event(&lab)).ok;) {
        others += strcmp(e.qname, "www.example.com") == 0;
        if (strcmp(e.qname, "no.a.test") != 0)
            continue;
        singles += e.count == 0;
        counted += e.count;
    }
    assert_int_equal(others, 1);
    assert_true(singles >= 5 && singles <= 10); /* the loop may straddle two seconds */
    assert_int_equal(singles + counted, 100);
    lab_stop(&lab);
}

static void test_reload(void **state)
{
    (void)state;
    struct lab lab;
    START(&lab, good);
    struct lab_dial d = { .host = "x.a.test", .rule = "web" };
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    char yaml[8192];
    lab_yaml(&lab, yaml, "", "  - {name: web, hosts: [else.test], action: allow}\n");
    struct policy *p = lab_policy(yaml);
    resolver_set_policy(lab.resolver, p, STR_NONE, NULL);
    policy_unref(&p);
    assert_int_equal(lab_dial(&lab, &d).end, END_HOST_DENIED);
    assert_int_equal(lab.servers[0].asked, 2);
    resolver_set_policy(lab.resolver, lab.policy, STR_NONE, NULL);
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    assert_int_equal(lab.servers[0].asked, 2); /* same servers: what they said is still known */
    lab_stop(&lab);
}

/* A question to the servers of before is under way when the servers change: who waits gets its answer, the cache does
 * not. */
static void test_servers_change_under_way(void **state)
{
    (void)state;
    struct lab lab;
    struct lab_result first;
    struct lab_dial d = { .host = "x.a.test", .rule = "web" };
    START(&lab, good);
    lab_begin(&lab, &d, &first);
    while (lab.servers[0].asked < 2)
        loop_run_once(lab.loop, 100);
    char yaml[8192], text[4096] = "";
    lab_expand(&lab, rules, text);
    lab_scheme = "tcp://";
    lab_yaml(&lab, yaml, "", text);
    lab_scheme = "";
    struct policy *p = lab_policy(yaml);
    resolver_set_policy(lab.resolver, p, STR_NONE, NULL);
    policy_unref(&p);
    lab_run(&lab, &first, 15000);
    assert_int_equal(first.end, END_OK);
    close(first.fd);
    assert_int_equal(lab_dial(&lab, &d).end, END_OK);
    assert_int_equal(lab.servers[0].asked_tcp, 2);
    assert_int_equal(lab_dial(&lab, &d).end, END_OK); /* the control: what the new ones say is kept */
    assert_int_equal(lab.servers[0].asked_tcp, 2);
    lab_stop(&lab);
}

/* Observe mode: what rules would refuse passes, with the guard still in place. */
static void test_observe(void **state)
{
    (void)state;
    struct lab lab;
    static const struct reply script[] = { A("in.example.com", 0, "@ A 10.9.9.9 60"), A(NULL, 0, "@ A 127.0.0.1 60"),
                                           NONE };
    static const char observed[] =
        "  - {name: never, hosts: [\"*.example.com\"], ports: [%PORT%], action: deny}\n"
        "  - {name: web, hosts: [x.a.test], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: allow}\n";
    lab_start_with(&lab, ROWS(script), NULL, 0, "mode: observe\norigin: {allow_addresses: [127.0.0.0/8]}", observed);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "www.example.com" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "www.example.com", .rule = "never" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "in.example.com" }).end, END_ADDRESS_DENIED);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "printer.local" }).end, END_HOST_DENIED);
    assert_string_equal(lab_event(&lab).verdict, "observe");
    lab_stop(&lab);
    /* control: enforced, the same dials are refused */
    lab_start_with(&lab, ROWS(script), NULL, 0, "origin: {allow_addresses: [127.0.0.0/8]}", observed);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "www.example.com" }).end, END_HOST_DENIED);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "www.example.com", .rule = "never" }).end,
                     END_HOST_DENIED);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    lab_stop(&lab);
}

/* A tunnel rule opens its hosts, and its exceptions to the guard are its own. */
static void test_tunnel(void **state)
{
    (void)state;
    static const struct reply script[] = { A(NULL, 0, "@ A 127.0.0.1 60"), NONE };
    static const char tunnels[] = "  - {name: raw, hosts: [raw.a.test], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: tunnel, tls: none}\n"
                                  "  - {name: narrow, hosts: [narrow.a.test], ports: [%PORT%], action: tunnel}\n"
                                  "  - {name: part, hosts: [part.a.test], ports: [%PORT%], paths: [\"/x\"], action: deny}\n"
                                  "  - {name: late, hosts: [part.a.test], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: tunnel}\n"
                                  "  - {name: web, hosts: [\"*.a.test\"], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: allow}\n";
    struct lab lab;
    lab_start_with(&lab, ROWS(script), NULL, 0, "", tunnels);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "raw.a.test", .rule = "raw" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "narrow.a.test", .rule = "narrow" }).end, END_ADDRESS_DENIED);
    /* a rule that never takes the connection permits nothing */
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "part.a.test", .rule = "late" }).end, END_HOST_DENIED);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "part.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "other.a.test", .rule = "raw" }).end, END_HOST_DENIED);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "other.a.test", .rule = "web" }).end, END_OK);
    lab_stop(&lab);
}

/* Through a parent proxy: the target is judged as ever, the parent is dialled. */
static void test_parent(void **state)
{
    (void)state;
    static const struct reply script[] = {
        A("proxy.corp.internal", 0, "@ A 127.0.0.3 60"),
        A("in.a.test", 0, "@ A 10.9.9.9 60"),
        NONE,
        A(NULL, 0, "@ A 127.0.0.1 60"),
    };
    static const char web[] = "  - {name: never, hosts: [no.a.test], action: deny}\n"
                              "  - {name: web, hosts: [\"*.a.test\"], allow_addresses: [127.0.0.0/8], action: allow}\n";
    struct lab lab;
    struct lab_dial d = { .host = "x.a.test", .rule = "web", .port = 443, .via_parent = true };

    /* the parent resolves: the name stays here, unless the host gets a credential */
    lab_start_with(&lab, ROWS(script), NULL, 0,
                   "origin: {parent_proxy: {address: \"127.0.0.1:%PORT%\", resolve: parent}}\n"
                   "sidecars: [{name: local, socket: /run/mint.sock}]\n"
                   "credentials:\n"
                   "  - {name: k, agents: [coder], hosts: [key.a.test], slots: [\"header:x-key\"], env: K, source: "
                   "{sidecar: local}}",
                   web);
    struct lab_result r = lab_dial(&lab, &d);
    assert_int_equal(r.end, END_OK);
    assert_string_equal(r.addr, ""); /* no address: the parent is asked for the name */
    assert_int_equal(lab.servers[0].asked, 0);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { "no.a.test", "web", NULL, 443, 0, true }).end,
                     END_HOST_DENIED);
    lab_idle(&lab, 20);
    assert_int_equal(lab.accepted, 1);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { "key.a.test", "web", NULL, 443, 0, true }).end, END_OK);
    assert_int_equal(server_count(&lab.servers[0], "key.a.test"), 2);
    /* never ourselves, whoever wrote it down */
    struct ip ip;
    ip_parse(STR("127.0.0.1"), &ip);
    resolver_set_own(lab.resolver, &(struct own_addresses) { &ip, &lab.port, 1 });
    assert_int_equal(lab_dial(&lab, &d).end, END_ADDRESS_DENIED);
    lab_stop(&lab);

    /* we resolve, and vet: the target's addresses and the parent's name, which is special and nobody's rule */
    lab_start_with(&lab, ROWS(script), NULL, 0,
                   "origin: {parent_proxy: {address: \"proxy.corp.internal:%PORT%\", resolve: self}}", web);
    r = lab_dial(&lab, &d);
    assert_int_equal(r.end, END_OK);
    assert_string_equal(r.addr, "127.0.0.1:443"); /* the vetted address of the target, for the parent to connect to */
    assert_int_equal(server_count(&lab.servers[0], "x.a.test"), 2);
    assert_int_equal(server_count(&lab.servers[0], "proxy.corp.internal"), 2);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { "in.a.test", "web", NULL, 443, 0, true }).end,
                     END_ADDRESS_DENIED);
    lab_idle(&lab, 20);
    assert_int_equal(lab.accepted, 1);
    lab_stop(&lab);

    /* none configured */
    START(&lab, good);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { "x.a.test", "web", NULL, 0, 0, true }).end,
                     END_ORIGIN_CONNECT);
    lab_stop(&lab);
}

/* Servers that are asked over TCP only, alone and with one over UDP behind them. */
static void test_tcp_upstream(void **state)
{
    (void)state;
    static const struct reply failing[] = { { NULL, 0, 2, 0, NULL, NULL } };
    static const struct reply script[] = { A("garbage.a.test", REPLY_GARBAGE, "@ A 127.0.0.1 60"),
                                           A("case.a.test", REPLY_WRONG_CASE, "@ A 127.0.0.1 60"),
                                           A(NULL, 0, "@ A 127.0.0.1 60"), NONE };
    struct lab lab;
    lab_scheme = "tcp://";
    START(&lab, script);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab.servers[0].asked_tcp, 2);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "garbage.a.test", .rule = "web" }).end,
                     END_ORIGIN_DNS_SERVERS);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "case.a.test", .rule = "web" }).end, END_ORIGIN_DNS_SERVERS);
    lab_stop(&lab);
    lab_start_with(&lab, ROWS(failing), ROWS(good), "", rules);
    assert_int_equal(lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end, END_OK);
    assert_int_equal(lab.servers[0].asked, 2);
    assert_int_equal(lab.servers[1].asked, 2);
    lab_stop(&lab);
    lab_scheme = "";
    assert_int_equal(lab_fds(), lab.fds_before);
}

/* Under the role's own filter: look-ups, dials and a reload with other servers open no file. */
static int locked_down(bool open_a_file)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct lab lab;
        char yaml[8192];
        struct err err;
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        lockdown_prime();
        START(&lab, good);
        if (lockdown_filter(LOCKDOWN_DIAL_INET | LOCKDOWN_ACCEPT, &err) < 0)
            _exit(2);
        if (lab_dial(&lab, &(struct lab_dial) { .host = "x.a.test", .rule = "web" }).end != END_OK)
            _exit(3);
        uint16_t port = lab.servers[0].port;
        lab.servers[0].port = 1;
        lab_yaml(&lab, yaml, "", "  - {name: web, hosts: [\"*.a.test\"], action: allow}\n");
        lab.servers[0].port = port;
        struct policy *p = lab_policy(yaml);
        resolver_set_policy(lab.resolver, p, STR("nameserver 127.0.0.9\n"), NULL);
        lab_dial(&lab, &(struct lab_dial) { .host = "y.a.test", .rule = "web", .port = 443, .timeout_ms = 100 });
        resolver_set_policy(lab.resolver, lab.policy, STR_NONE, NULL);
        if (lab_dial(&lab, &(struct lab_dial) { .host = "z.a.test", .rule = "web" }).end != END_OK)
            _exit(4);
        if (open_a_file)
            (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_locked_down(void **state)
{
    (void)state;
    assert_int_equal(locked_down(false), 0);
#ifdef OUTGATE_SANITIZE
    print_message("a sanitizer build loads no filter: only the release build shows that no file is opened\n");
#else
    assert_int_equal(locked_down(true), -SIGSYS); /* control */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_denied),
        cmocka_unit_test(test_special_written),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_own_listeners),
        cmocka_unit_test(test_dns_servers_are_not_dialled),
        cmocka_unit_test(test_rebinding),
        cmocka_unit_test(test_rebinding_joined),
        cmocka_unit_test(test_failover),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_single_flight),
        cmocka_unit_test(test_room_for_others),
        cmocka_unit_test(test_unpredictable),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_audit_unavailable),
        cmocka_unit_test(test_aggregates),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_servers_change_under_way),
        cmocka_unit_test(test_observe),
        cmocka_unit_test(test_tunnel), cmocka_unit_test(test_parent),
        cmocka_unit_test(test_tcp_upstream),
        cmocka_unit_test(test_locked_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
