/* SPDX-License-Identifier: Apache-2.0
 *
 * Random policies and questions against an evaluator that is written down the way PRODUCT says it, from the text of the
 * rules and not from the compiled ones: no index, a path matcher that backtracks. What CONNECT is told is held to what
 * the requests after it are told. */
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { POLICIES = 400, ASKS = 300, RULES_MAX = 12 };

static uint64_t seed;
static unsigned dice(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static const char *const hosts[] = { "a.test",  "b.a.test", "c.b.a.test", "test",
                                     "aa.test", "b.test",   "192.0.2.1",  "x.b.test" };
static const char *const patterns[] = { "a.test",     "*.a.test", "*.test",    "b.a.test",  "*",
                                        "*.b.a.test", "b.test",   "192.0.2.1", "*.aa.test", "test" };
static const uint16_t ports[] = { 443, 80, 8443, 22 };
static const char *const methods[] = { "GET", "POST", "get", "DELETE" };
static const char *const globs[] = { "/**",   "/",    "/a",   "/a/*", "/a/**",  "/*/b",     "/**/b", "/a*b",
                                     "/a**b", "/A/b", "/%61", "/*",   "/a/*/c", "/**/a/**", "/a%2Fb" };
static const char *const paths[] = { "/",      "/a",     "/a/b",  "/A/B", "/%61/b", "/a/b/c", "/ab",    "/a/x/b",
                                     "/a%2fb", "/a%2Fb", "/xa/b", "/a/",  "//a",    "/axb",   "/a/x/c", "/A" };
static const char *const agents[] = { "one", "two" };
static const char *const actions[] = { "allow", "deny", "ask" };
#define PICK(list)  dice(sizeof(list) / sizeof *(list))
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* A rule as written. Sets of indices are bits; 0: not given. */
struct written {
    unsigned agents, patterns, ports, methods, globs, action;
    bool https, http;
};

static unsigned some(unsigned n, unsigned of_ten)
{
    unsigned set = 0;
    if (dice(10) >= of_ten)
        return 0;
    for (unsigned i = 1 + dice(2); i > 0; i--)
        set |= 1u << dice(n);
    return set;
}

static struct written draw(void)
{
    struct written w = { .agents = some(COUNT(agents), 3),
                         .ports = some(COUNT(ports), 3),
                         .methods = some(COUNT(methods), 4),
                         .globs = some(COUNT(globs), 6),
                         .action = PICK(actions) };
    w.methods &= ~4u; /* lower case is an error in a rule */
    do
        w.patterns = some(COUNT(patterns), 10);
    while (!w.patterns);
    unsigned schemes = dice(4);
    w.https = schemes != 1;
    w.http = schemes == 1 || schemes == 2;
    return w;
}

static size_t put_list(char *out, const char *key, unsigned set, const char *const *words)
{
    size_t n = 0;
    if (!set)
        return 0;
    n += (size_t)sprintf(out, ", %s: [", key);
    for (unsigned i = 0, first = 1; i < 32; i++)
        if (set >> i & 1) {
            n += (size_t)sprintf(out + n, "%s\"%s\"", first ? "" : ", ", words[i]);
            first = 0;
        }
    return n + (size_t)sprintf(out + n, "]");
}

static size_t put_rule(char *out, int i, const struct written *w)
{
    static const char *const port_words[] = { "443", "80", "8443", "22" };
    size_t n = (size_t)sprintf(out, "  - {name: r%d", i);
    n += put_list(out + n, "agents", w->agents, agents);
    n += put_list(out + n, "hosts", w->patterns, patterns);
    char list[128];
    if (put_list(list, "ports", w->ports, port_words))
        for (char *p = list; *p; p++) /* numbers, not strings */
            if (*p != '"')
                out[n++] = *p;
    n += put_list(out + n, "methods", w->methods, methods);
    n += put_list(out + n, "paths", w->globs, globs);
    n += (size_t)sprintf(out + n, ", schemes: [%s]", w->https && w->http ? "https, http" : w->https ? "https" : "http");
    return n + (size_t)sprintf(out + n, ", action: %s}\n", actions[w->action]);
}

/* --- the evaluator --- */

static bool host_hit(const char *pattern, const char *host)
{
    bool address = strcmp(host, "192.0.2.1") == 0;
    if (strcmp(pattern, "*") == 0)
        return !address;
    if (pattern[0] != '*')
        return strcmp(pattern, host) == 0;
    size_t h = strlen(host), p = strlen(pattern + 1);
    return !address && h > p && strcmp(host + h - p, pattern + 1) == 0;
}

/* Unreserved escapes decoded, the digits of the others in upper case. */
static void canonical(const char *in, char *out)
{
    for (; *in; in++) {
        unsigned c;
        if (*in != '%' || sscanf(in + 1, "%2x", &c) != 1) {
            *out++ = *in;
            continue;
        }
        if ((c | 32) >= 'a' && (c | 32) <= 'z')
            *out++ = (char)c;
        else
            out += sprintf(out, "%%%02X", c);
        in += 2;
    }
    *out = 0;
}

static char fold(char c, bool nocase)
{
    return nocase && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool glob_hit(const char *g, const char *p, bool nocase)
{
    if (!*g)
        return !*p;
    if (*g != '*')
        return *p && fold(*g, nocase) == fold(*p, nocase) && glob_hit(g + 1, p + 1, nocase);
    bool across = g[1] == '*';
    const char *rest = g + 1 + across;
    for (;; p++) {
        if (glob_hit(rest, p, nocase))
            return true;
        if (!*p || (*p == '/' && !across))
            return false;
    }
}

struct question {
    unsigned agent, host, port, method, path;
    bool https;
};

static bool equal_nocase(const char *a, const char *b)
{
    while (*a && fold(*a, true) == fold(*b, true))
        a++, b++;
    return !*a && !*b;
}

static bool fits(const struct written *w, const struct question *q)
{
    bool deny = w->action == 1, hit = false;
    if (w->agents && !(w->agents >> q->agent & 1))
        return false;
    for (unsigned i = 0; i < COUNT(patterns); i++)
        hit |= w->patterns >> i & 1 && host_hit(patterns[i], hosts[q->host]);
    if (!hit || !(q->https ? w->https : w->http))
        return false;
    if (w->ports ? !(w->ports >> q->port & 1) : !deny && ports[q->port] != (q->https ? 443 : 80))
        return false;
    hit = !w->methods;
    for (unsigned i = 0; i < COUNT(methods); i++)
        if (w->methods >> i & 1)
            hit |= deny ? equal_nocase(methods[i], methods[q->method]) : i == q->method;
    if (!hit)
        return false;
    hit = !w->globs;
    for (unsigned i = 0; i < COUNT(globs); i++) {
        char g[64], p[64];
        canonical(globs[i], g);
        canonical(paths[q->path], p);
        hit |= w->globs >> i & 1 && glob_hit(g, p, deny);
    }
    return hit;
}

static struct policy *make(const char *yaml)
{
    struct diag diag;
    diag_init(&diag);
    struct config *c = config_parse(STR("t.yaml"), STR("/etc/outgate"), str_c(yaml), &diag);
    struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
    if (!p)
        fail_msg("%s\n%s", diag.n ? diag.lines[0].text.p : "?", yaml);
    diag_done(&diag);
    return p;
}

static struct verdict ask_one(const struct policy *p, const struct question *q)
{
    struct host h;
    struct verdict v;
    assert_int_equal(host_parse(str_c(hosts[q->host]), &h, NULL), 0);
    struct ask ask = { .agent = policy_agent(p, str_c(agents[q->agent])),
                       .scheme = q->https ? SCHEME_HTTPS : SCHEME_HTTP,
                       .host = &h,
                       .port = ports[q->port],
                       .method = str_c(methods[q->method]),
                       .path = str_c(paths[q->path]),
                       .now_us = 1 };
    policy_eval(p, &ask, &v);
    return v;
}

static void check_one(const struct policy *p, const struct written *w, int n, const struct question *q,
                      const char *yaml)
{
    static const enum verdict_kind kinds[] = { VERDICT_ALLOW, VERDICT_DENY, VERDICT_ASK };
    struct verdict v = ask_one(p, q);
    int first = 0;
    while (first < n && !fits(&w[first], q))
        first++;
    const struct rule *expected = first < n ? &policy_config(p)->rules[first] : NULL;
    if (v.rule != expected || v.kind != (expected ? kinds[w[first].action] : VERDICT_DENY))
        fail_msg("%s %s %s://%s:%u%s: rule %d expected, got %d\n%s", agents[q->agent], methods[q->method],
                 q->https ? "https" : "http", hosts[q->host], ports[q->port], paths[q->path], first,
                 v.rule ? (int)v.rule->index : -1, yaml);
}

/* A deny at CONNECT is certain: no request after it would be let through. An allow there promises nothing, but is said
 * only where some rule could still let something through. */
static void check_connect(const struct policy *p, const struct question *base, const char *yaml)
{
    struct host h;
    struct verdict v;
    struct question q = *base;
    assert_int_equal(host_parse(str_c(hosts[q.host]), &h, NULL), 0);
    policy_eval_connect(p, policy_agent(p, str_c(agents[q.agent])), &h, ports[q.port], 1, &v);
    if (v.kind != VERDICT_DENY)
        return;
    for (int https = 0; https < 2; https++)
        for (q.method = 0; q.method < COUNT(methods); q.method++)
            for (q.path = 0; q.path < COUNT(paths); q.path++) {
                q.https = https;
                if (ask_one(p, &q).kind != VERDICT_DENY)
                    fail_msg("%s %s:%u: denied at CONNECT, then allowed\n%s", agents[q.agent], hosts[q.host],
                             ports[q.port], yaml);
            }
}

static void test_as_written(void **state)
{
    (void)state;
    static char yaml[RULES_MAX * 512 + 512];
    for (int k = 0; k < POLICIES; k++) {
        struct written w[RULES_MAX];
        int n = 1 + (int)dice(RULES_MAX);
        size_t at = (size_t)sprintf(yaml, "version: 1\nagents: [{name: one}, {name: two}]\nrules:\n");
        for (int i = 0; i < n; i++) {
            w[i] = draw();
            at += put_rule(yaml + at, i, &w[i]);
        }
        struct policy *p = make(yaml);
        for (int i = 0; i < ASKS; i++) {
            struct question q = { PICK(agents), PICK(hosts), PICK(ports), PICK(methods), PICK(paths), dice(2) };
            check_one(p, w, n, &q, yaml);
            if (i < 20)
                check_connect(p, &q, yaml);
        }
        policy_unref(&p);
    }
}

int main(void)
{
    const char *from = getenv("OUTGATE_SEED");
    seed = from ? strtoull(from, NULL, 0) : 20260101;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_written) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
