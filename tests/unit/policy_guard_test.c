/* SPDX-License-Identifier: Apache-2.0
 *
 * The address guard, and who is who. */
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const char token[] = "0123456789abcdef0123456789abcdef", token2[] = "Vq3t-YbQ9pZ_k2LmN8sRxw";

static struct policy *make(const char *yaml)
{
    static const struct side_file files[] = { { { "/e/a.token", 10 }, { "0123456789abcdef0123456789abcdef\n", 33 } },
                                              { { "/e/b.token", 10 }, { "Vq3t-YbQ9pZ_k2LmN8sRxw", 22 } } };
    struct diag diag;
    diag_init(&diag);
    struct config *c = config_parse(STR("t.yaml"), STR("/e"), str_c(yaml), &diag);
    struct policy *p = c ? policy_new(c, files, 2, &diag) : NULL;
    if (!p)
        fail_msg("%s", diag.n ? diag.lines[0].text.p : "?");
    diag_done(&diag);
    return p;
}

/* `why` NULL: open without any exception. `open_by`: the narrowest exception that opens it; NULL: none does. */
static const struct {
    const char *ip, *why, *open_by;
} guard_cases[] = {
    { "8.8.8.8", NULL, NULL },
    { "1.1.1.1", NULL, NULL },
    { "9.255.255.255", NULL, NULL },
    { "11.0.0.0", NULL, NULL },
    { "100.63.255.255", NULL, NULL },
    { "100.128.0.0", NULL, NULL },
    { "172.15.255.255", NULL, NULL },
    { "172.32.0.0", NULL, NULL },
    { "198.17.255.255", NULL, NULL },
    { "198.20.0.0", NULL, NULL },
    { "223.255.255.255", NULL, NULL },
    { "203.0.113.7", NULL, NULL },
    { "0.0.0.0", "unspecified", NULL },
    { "0.1.2.3", "this network", "0.0.0.0/8" },
    { "10.0.0.1", "private", "10.0.0.0/8" },
    { "10.255.255.255", "private", "10.255.255.255" },
    { "100.64.0.1", "shared", "100.64.0.0/10" },
    { "100.127.255.255", "shared", "100.64.0.0/10" },
    { "127.0.0.1", "loopback", "127.0.0.0/8" },
    { "127.255.255.254", "loopback", "127.0.0.0/8" },
    { "169.254.0.1", "link-local", "169.254.0.0/16" },
    { "172.16.0.1", "private", "172.16.0.0/12" },
    { "172.31.255.255", "private", "172.16.0.0/12" },
    { "192.0.0.1", "reserved", "192.0.0.0/24" },
    { "192.88.99.1", "reserved", "192.88.99.0/24" },
    { "192.168.1.1", "private", "192.168.0.0/16" },
    { "198.18.0.1", "benchmark", "198.18.0.0/15" },
    { "198.19.255.255", "benchmark", "198.18.0.0/15" },
    { "224.0.0.1", "multicast", "224.0.0.0/4" },
    { "239.255.255.255", "multicast", "224.0.0.0/4" },
    { "240.0.0.1", "reserved", "240.0.0.0/4" },
    { "255.255.255.255", "broadcast", "255.255.255.255" },
    /* metadata: nothing opens it */
    { "169.254.169.254", "metadata", NULL },
    { "169.254.169.253", "metadata", NULL },
    { "169.254.170.2", "metadata", NULL },
    { "169.254.170.23", "metadata", NULL },
    { "100.100.100.200", "metadata", NULL },
    { "168.63.129.16", "metadata", NULL },
    { "192.0.0.192", "metadata", NULL },
    { "fd00:ec2::254", "metadata", NULL },
    { "fd00:ec2::23", "metadata", NULL },
    { "fd20:ce::254", "metadata", NULL },
    /* IPv6 */
    { "2606:4700::1111", NULL, NULL },
    { "2001:4860:4860::8888", NULL, NULL },
    { "::", "unspecified", NULL },
    { "::1", "loopback", "::1" },
    { "fe80::1", "link-local", "fe80::/10" },
    { "febf::1", "link-local", "fe80::/10" },
    { "fec0::1", "site-local", "fec0::/10" },
    { "fc00::1", "private", "fc00::/7" },
    { "fd12:3456::1", "private", "fc00::/7" },
    { "ff02::1", "multicast", "ff00::/8" },
    { "2001:db8::1", "documentation", "2001:db8::/32" },
    { "3fff::1", "documentation", "3fff::/20" },
    { "100::1", "reserved", "100::/64" },
    { "4000::1", "reserved", "4000::/3" },
    { "5f00::1", "reserved", "5f00::/16" },
    { "2001:2::1", "benchmark", "2001:2::/48" },
    { "2001:20::1", "reserved", "2001:20::/28" },
    /* IPv4 inside: mapped is the IPv4 address itself */
    { "::ffff:8.8.8.8", NULL, NULL },
    { "::ffff:10.0.0.1", "private", "10.0.0.0/8" },
    { "::ffff:127.0.0.1", "loopback", "127.0.0.0/8" },
    { "::ffff:169.254.169.254", "metadata", NULL },
    { "::ffff:0.0.0.0", "unspecified", NULL },
    /* 6to4, NAT64, Teredo, ISATAP, compatible, translated */
    { "2002:808:808::1", NULL, NULL },
    { "2002:a00:1::1", "private", "10.0.0.0/8" },
    { "2002:7f00:1::", "loopback", "127.0.0.0/8" },
    { "2002:a9fe:a9fe::1", "metadata", NULL },
    { "64:ff9b::8.8.8.8", NULL, NULL },
    { "64:ff9b::10.0.0.1", "private", "10.0.0.0/8" },
    { "64:ff9b::169.254.169.254", "metadata", NULL },
    { "64:ff9b:1::8.8.8.8", "reserved", "64:ff9b:1::/48" },
    { "64:ff9b:1:a9fe:a9:fe00::", "reserved", NULL },
    { "2001:0:808:808:0:0:f7f7:f7f7", NULL, NULL },
    { "2001:0:a00:1:0:0:f7f7:f7f7", "private", "10.0.0.0/8" },
    { "2001:0:808:808:0:0:5601:5601", "metadata", NULL }, /* ~169.254.169.254 */
    { "2606:4700::5efe:808:808", NULL, NULL },
    { "2606:4700::5efe:a00:1", "private", "10.0.0.0/8" },
    { "2606:4700::200:5efe:7f00:1", "loopback", "127.0.0.0/8" },
    { "2606:4700::5efe:a9fe:a9fe", "metadata", NULL },
    { "fe80::5efe:a00:1", "link-local", "fe80::/10 10.0.0.0/8" },
    { "::8.8.8.8", "reserved", "::/96" },
    { "::10.0.0.1", "reserved", "::/96 10.0.0.0/8" },
    { "::169.254.169.254", "reserved", NULL },
    { "::ffff:0:169.254.169.254", "reserved", NULL },
};

static enum end guard(const struct policy *p, const struct rule *rule, const char *text, const char **why)
{
    struct ip ip = { 0 };
    assert_int_equal(ip_parse(str_c(text), &ip), 0);
    return address_guard(p, rule, &ip, 443, NULL, why);
}

static struct policy *with_exceptions(const char *list, bool in_rule)
{
    char yaml[400], items[200];
    size_t n = 0;
    for (; list[n]; n++)
        items[n] = list[n] == ' ' ? ',' : list[n];
    items[n] = 0;
    /* quoted: "::1" is no YAML plain scalar in a flow list */
    char quoted[240] = "";
    struct str rest = str_of(items, n), one;
    while (str_split(&rest, ',', &one))
        snprintf(quoted + strlen(quoted), sizeof quoted - strlen(quoted), "%s\"%.*s\"", quoted[0] ? ", " : "",
                 STR_ARG(one));
    if (in_rule)
        snprintf(yaml, sizeof yaml,
                 "version: 1\nrules:\n  - {name: a, hosts: [a.test], action: allow, allow_addresses: [%s]}\n", quoted);
    else
        snprintf(yaml, sizeof yaml,
                 "version: 1\norigin: {allow_addresses: [%s]}\nrules:\n  - {name: a, hosts: [a.test], action: allow}\n",
                 quoted);
    return make(yaml);
}

static void test_guard(void **state)
{
    (void)state;
    struct policy *closed = with_exceptions("192.0.2.1", false), *wide = with_exceptions("0.0.0.0/0 ::/0", false);
    for (size_t i = 0; i < sizeof guard_cases / sizeof *guard_cases; i++) {
        const char *why = "", *ip = guard_cases[i].ip;
        enum end e = guard(closed, NULL, ip, &why);
        if (e != (guard_cases[i].why ? END_ADDRESS_DENIED : END_OK))
            fail_msg("%s: %s %s", ip, end_code(e), why);
        if (!guard_cases[i].why)
            continue;
        if (strcmp(why, guard_cases[i].why) != 0)
            fail_msg("%s: %s", ip, why);
        /* the control: what the exceptions open, and nothing else */
        e = guard(wide, NULL, ip, &why);
        if (e != (guard_cases[i].open_by ? END_OK : END_ADDRESS_DENIED))
            fail_msg("%s is %s by 0.0.0.0/0 and ::/0 (%s)", ip, e != END_OK ? "not opened" : "opened", why);
        for (int in_rule = 0; guard_cases[i].open_by && in_rule < 2; in_rule++) {
            struct policy *p = with_exceptions(guard_cases[i].open_by, in_rule);
            if (guard(p, &policy_config(p)->rules[0], ip, &why) != END_OK)
                fail_msg("%s is not opened by %s: %s", ip, guard_cases[i].open_by, why);
            if (in_rule && guard(p, NULL, ip, &why) == END_OK)
                fail_msg("%s is opened without the rule", ip);
            policy_unref(&p);
        }
    }
    const struct ip none = { 0 };
    const char *why = NULL;
    assert_int_equal(address_guard(wide, NULL, &none, 443, NULL, &why), END_ADDRESS_DENIED);
    assert_non_null(why);
    policy_unref(&closed);
    policy_unref(&wide);
}

/* An exception for an IPv4 range does not open what embeds other addresses, nor the other way round. */
static void test_guard_exceptions_are_narrow(void **state)
{
    (void)state;
    const char *why;
    struct policy *p = with_exceptions("10.0.0.0/8", false), *q = with_exceptions("2002::/16 64:ff9b::/96", false);
    assert_int_equal(guard(p, NULL, "10.1.2.3", &why), END_OK);
    assert_int_equal(guard(p, NULL, "172.16.0.1", &why), END_ADDRESS_DENIED);
    assert_int_equal(guard(p, NULL, "2002:ac10:1::", &why), END_ADDRESS_DENIED);
    assert_int_equal(guard(q, NULL, "2002:a00:1::1", &why), END_ADDRESS_DENIED);
    assert_int_equal(guard(q, NULL, "64:ff9b::10.0.0.1", &why), END_ADDRESS_DENIED);
    policy_unref(&p);
    policy_unref(&q);
}

static void test_guard_own(void **state)
{
    (void)state;
    static const struct {
        const char *own;
        uint16_t own_port;
        const char *ip;
        uint16_t port;
        bool refused;
    } cases[] = {
        { "127.0.0.1", 3128, "127.0.0.1", 3128, true },
        { "127.0.0.1", 3128, "127.0.0.1", 3129, false },
        { "127.0.0.1", 3128, "127.0.0.2", 3128, false },
        { "127.0.0.1", 3128, "::ffff:127.0.0.1", 3128, true },
        { "0.0.0.0", 3128, "127.0.0.9", 3128, true },
        { "0.0.0.0", 3128, "::1", 3128, true },
        { "::", 3128, "127.0.0.1", 3128, true },
        { "192.0.2.5", 443, "192.0.2.5", 443, true },
        { "192.0.2.5", 443, "2002:c000:205::1", 443, true },
        { "192.0.2.5", 443, "64:ff9b::192.0.2.5", 443, true },
        { "192.0.2.5", 443, "192.0.2.6", 443, false },
        { "2001:db8::5", 443, "2001:db8::5", 443, true },
    };
    struct policy *p = with_exceptions("0.0.0.0/0 ::/0", false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ip own = { 0 }, ip = { 0 };
        const char *why = "";
        assert_int_equal(ip_parse(str_c(cases[i].own), &own), 0);
        assert_int_equal(ip_parse(str_c(cases[i].ip), &ip), 0);
        const struct own_addresses list = { .ips = &own, .ports = &cases[i].own_port, .n = 1 };
        enum end e = address_guard(p, NULL, &ip, cases[i].port, &list, &why);
        if (e != (cases[i].refused ? END_ADDRESS_DENIED : END_OK))
            fail_msg("%s:%u: %s", cases[i].ip, cases[i].port, end_code(e));
        if (cases[i].refused)
            assert_string_equal(why, "own listener");
    }
    policy_unref(&p);
}

/* --- who --- */

static const char identity_yaml[] =
    "version: 1\n"
    "listen: {proxy: [127.0.0.1:3128, unix:main.sock, unix:a.sock, \"tls:10.0.0.1:3129\"]}\n"
    "agents:\n"
    "  - {name: source, identify: [{source: 10.1.0.0/16}, {source: 10.3.0.0/24}]}\n"
    "  - {name: login, identify: [{login: {user: u, token_file: a.token}}]}\n"
    "  - {name: both, identify: [{source: 10.2.0.0/16}, {login: {user: v, token_file: b.token}}]}\n"
    "  - {name: uid, identify: [{unix_uid: 1000}]}\n"
    "  - {name: socket, identify: [{listener: \"unix:a.sock\"}, {unix_uid: 1001}]}\n"
    "  - {name: v6, identify: [{source: \"fd00::/64\"}]}\n"
    "  - {name: nobody}\n";

static const struct {
    const char *source, *listener;
    long uid;
    const char *user, *token;
    enum identify_result result;
    const char *agent;
} identify_cases[] = {
    { "10.1.2.3", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_OK, "source" },
    { "10.3.0.255", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_OK, "source" },
    { "::ffff:10.1.2.3", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_OK, "source" },
    { "fd00::1", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_OK, "v6" },
    { "10.3.1.0", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_LOGIN, NULL },
    { "10.0.255.255", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_LOGIN, NULL },
    { "fd00:0:0:1::1", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_LOGIN, NULL },
    /* login */
    { "127.0.0.1", "127.0.0.1:3128", -1, "u", token, IDENTIFY_OK, "login" },
    { "127.0.0.1", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_LOGIN, NULL },
    { "127.0.0.1", "127.0.0.1:3128", -1, "u", token2, IDENTIFY_LOGIN, NULL },
    { "127.0.0.1", "127.0.0.1:3128", -1, "u", "0123456789abcdef0123456789abcdef\n", IDENTIFY_LOGIN, NULL },
    { "127.0.0.1", "127.0.0.1:3128", -1, "u", "", IDENTIFY_LOGIN, NULL },
    { "127.0.0.1", "127.0.0.1:3128", -1, "U", token, IDENTIFY_LOGIN, NULL },
    { "127.0.0.1", "127.0.0.1:3128", -1, "nobody", token, IDENTIFY_LOGIN, NULL },
    { NULL, "unix:main.sock", 5000, "u", token, IDENTIFY_OK, "login" },
    /* a source, where given, is required; a login is not */
    { "10.2.0.1", "127.0.0.1:3128", -1, NULL, NULL, IDENTIFY_OK, "both" },
    { "10.2.0.1", "127.0.0.1:3128", -1, "v", token2, IDENTIFY_OK, "both" },
    { "10.9.0.1", "127.0.0.1:3128", -1, "v", token2, IDENTIFY_LOGIN, NULL },
    { NULL, "unix:main.sock", 5000, "v", token2, IDENTIFY_OK, "both" },
    /* claims that lead to two agents; a wrong login beside a right source */
    { "10.1.2.3", "127.0.0.1:3128", -1, "u", token, IDENTIFY_UNKNOWN, NULL },
    { "10.1.2.3", "127.0.0.1:3128", -1, "v", token2, IDENTIFY_UNKNOWN, NULL },
    { "10.1.2.3", "127.0.0.1:3128", -1, "u", "wrong", IDENTIFY_UNKNOWN, NULL },
    { "10.2.0.1", "127.0.0.1:3128", -1, "v", token, IDENTIFY_LOGIN, NULL },
    { "10.2.0.1", "127.0.0.1:3128", -1, "u", token, IDENTIFY_LOGIN, NULL },
    /* unix */
    { NULL, "unix:main.sock", 1000, NULL, NULL, IDENTIFY_OK, "uid" },
    { NULL, "unix:main.sock", 1002, NULL, NULL, IDENTIFY_LOGIN, NULL },
    { NULL, "unix:main.sock", 1000, "u", token, IDENTIFY_UNKNOWN, NULL },
    { NULL, "unix:a.sock", 1001, NULL, NULL, IDENTIFY_OK, "socket" },
    { NULL, "unix:a.sock", 1000, NULL, NULL, IDENTIFY_UNKNOWN, NULL },
    { NULL, "unix:a.sock", 0, NULL, NULL, IDENTIFY_UNKNOWN, NULL },
    { NULL, "unix:a.sock", 1001, "u", token, IDENTIFY_UNKNOWN, NULL },
    { NULL, "", -1, NULL, NULL, IDENTIFY_LOGIN, NULL },
};

static void test_identify(void **state)
{
    (void)state;
    struct policy *p = make(identity_yaml);
    for (size_t i = 0; i < sizeof identify_cases / sizeof *identify_cases; i++) {
        const struct agent *agent = NULL;
        struct claims c = { .listener = str_c(identify_cases[i].listener) };
        if (identify_cases[i].source)
            assert_int_equal(ip_parse(str_c(identify_cases[i].source), &c.source), 0);
        if (identify_cases[i].uid >= 0) {
            c.has_unix_uid = true;
            c.unix_uid = (uint64_t)identify_cases[i].uid;
        }
        if (identify_cases[i].user) {
            c.has_login = true;
            c.user = str_c(identify_cases[i].user);
            c.token = str_c(identify_cases[i].token);
        }
        enum identify_result r = policy_identify(p, &c, &agent);
        if (r != identify_cases[i].result ||
            (identify_cases[i].agent ? !agent || !str_eq(agent->name, str_c(identify_cases[i].agent)) : agent != NULL))
            fail_msg("%zu: %d %s", i, (int)r, agent ? agent->name.p : "-");
    }
    /* the token of a run: only with the user of its own agent's login, and only where the other claims agree */
    static const struct {
        const char *source, *user, *run_agent;
        enum identify_result result;
    } runs[] = {
        { "127.0.0.1", "u", "login", IDENTIFY_OK },      { "127.0.0.1", "u", "", IDENTIFY_LOGIN },
        { "127.0.0.1", "v", "login", IDENTIFY_LOGIN },   { "127.0.0.1", "x", "login", IDENTIFY_LOGIN },
        { "127.0.0.1", "u", "nobody", IDENTIFY_LOGIN },  { "127.0.0.1", "", "login", IDENTIFY_LOGIN },
        { "10.1.2.3", "u", "login", IDENTIFY_UNKNOWN },  { "10.9.0.1", "v", "both", IDENTIFY_LOGIN },
        { "10.2.0.1", "v", "both", IDENTIFY_OK },        { "127.0.0.1", "u", "source", IDENTIFY_LOGIN },
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const struct agent *agent = NULL;
        struct claims c = { .listener = STR("127.0.0.1:3128"),
                            .has_login = true,
                            .user = str_c(runs[i].user),
                            .token = STR("of the run"),
                            .run_agent = str_c(runs[i].run_agent) };
        assert_int_equal(ip_parse(str_c(runs[i].source), &c.source), 0);
        assert_int_equal(policy_identify(p, &c, &agent), runs[i].result);
        if (runs[i].result == IDENTIFY_OK)
            assert_true(str_eq(agent->name, c.run_agent));
    }
    policy_unref(&p);
    /* without logins nothing can help */
    p = make("version: 1\nagents:\n  - {name: a, identify: [{source: 10.0.0.1}]}\n");
    const struct agent *agent = NULL;
    struct claims c = { .listener = STR("127.0.0.1:3128") };
    assert_int_equal(ip_parse(STR("10.0.0.2"), &c.source), 0);
    assert_int_equal(policy_identify(p, &c, &agent), IDENTIFY_UNKNOWN);
    assert_int_equal(ip_parse(STR("10.0.0.1"), &c.source), 0);
    assert_int_equal(policy_identify(p, &c, &agent), IDENTIFY_OK);
    policy_unref(&p);
}

/* An address of resolver.synthetic.pool leads nowhere, and nothing opens it. */
static void test_guard_pool(void **state)
{
    (void)state;
    static const struct {
        const char *ip;
        bool virtual;
    } rows[] = {
        { "10.78.0.9", true },  { "10.78.0.0", true },  { "10.79.0.9", false },      { "::ffff:10.78.0.9", true }, { "::ffff:10.79.0.9", false },
        { "fd78::9", true },    { "fd79::9", false },   { "64:ff9b::10.78.0.9", true }, { "2002:0a4e:0009::", true }, { "2002:0a4f:0009::", false },
    };
    struct policy *p = make("version: 1\nresolver:\n  synthetic: {pool: [10.78.0.0/16, \"fd78::/64\"]}\n"
                            "origin:\n  allow_addresses: [0.0.0.0/0, \"::/0\"]\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip ip;
        const char *why = "";
        assert_int_equal(ip_parse(str_c(rows[i].ip), &ip), 0);
        enum end end = address_guard(p, NULL, &ip, 443, NULL, &why);
        if (end != (rows[i].virtual ? END_ADDRESS_DENIED : END_OK))
            fail_msg("%s: %s", rows[i].ip, why);
        if (rows[i].virtual)
            assert_string_equal(why, "virtual");
    }
    policy_unref(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_guard_pool),
        cmocka_unit_test(test_guard_exceptions_are_narrow),
        cmocka_unit_test(test_guard_own),
        cmocka_unit_test(test_identify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
