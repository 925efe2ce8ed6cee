/* SPDX-License-Identifier: Apache-2.0
 *
 * The upstream servers, over TLS above all: who is asked nothing, in which order they are asked, and what a hostile one
 * can do: its answer does not count, and the next server's does. The clock is moved by hand where time must pass. */
#include "tests/fakes/clock_fake.c"

#include "dns/upstream.h"
#include "dns_tls_server.h"
#include "policy/origin_trust.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LANES = 8, TRY_MS = 1000, PATIENCE_MS = 3 * TRY_MS }; /* of one server over TLS */

static const struct leaf good_leaf = LEAF_GOOD;

struct rig {
    struct loop *loop;
    struct tls_pki pki;
    struct policy *policy;
    SSL_CTX *trust;
    struct upstream *upstream;
    struct host name; /* dns.test */
    struct tls_server a, b;
};

static SSL_CTX *trust_of(struct rig *r, X509 *root)
{
    struct diag d;
    struct err err = { "no snapshot" };
    BIO *b;
    struct side_file files[] = { { STR("/roots.pem"), pki_pem(root, &b) } };
    diag_init(&d);
    struct config *c = config_parse(STR("test.yaml"), STR("/test"),
                                    STR("version: 1\nstate_dir: s\norigin: {ca_file: [/roots.pem]}\n"), &d);
    policy_unref(&r->policy);
    r->policy = policy_new(c, files, 1, &d);
    diag_done(&d);
    SSL_CTX *ctx = origin_trust_new(r->policy, STR_NONE, STR_NONE, &err);
    BIO_free(b);
    if (!ctx)
        fail_msg("%s", err.text);
    return ctx;
}

static void rig_init(struct rig *r)
{
    struct err err;
    *r = (struct rig) { .loop = loop_new() };
    pki_init(&r->pki);
    r->trust = trust_of(r, r->pki.root[0]);
    assert_int_equal(host_parse(STR("dns.test"), &r->name, NULL), 0);
    r->upstream = upstream_new(r->loop, LANES, TRY_MS, &err);
    assert_non_null(r->upstream);
    upstream_set_trust(r->upstream, r->trust);
}

static void rig_start(struct rig *r, struct tls_server *s, enum behaviour how)
{
    tls_server_start(s, r->loop, &r->pki, &good_leaf, how == HELLO_REQUESTS ? TLS1_2_VERSION : 0);
    s->how = how;
}

static void rig_done(struct rig *r)
{
    upstream_free(&r->upstream);
    for (struct tls_server *s = &r->a; s <= &r->b; s++)
        if (s->loop)
            tls_server_stop(s);
    SSL_CTX_free(r->trust);
    policy_unref(&r->policy);
    pki_done(&r->pki);
    loop_free(r->loop);
}

static struct dns_server over_tls(struct rig *r, const struct tls_server *s)
{
    struct dns_server d = { .port = s->port, .tls = &r->name };
    assert_int_equal(ip_parse(STR("127.0.0.1"), &d.ip), 0);
    return d;
}

static struct dns_server in_clear(uint16_t port, bool tcp)
{
    struct dns_server d = { .port = port, .tcp = tcp };
    assert_int_equal(ip_parse(STR("127.0.0.1"), &d.ip), 0);
    return d;
}

struct got {
    int calls;
    enum upstream_result result;
    uint16_t rcode;
    char ip[46];
    struct upstream_query *query;
};

static void on_got(void *ctx, enum upstream_result r, const struct wire_answer *a)
{
    struct got *g = ctx;
    g->calls++;
    g->result = r;
    g->query = NULL;
    if (a) {
        g->rcode = a->rcode;
        if (a->n > 0)
            ip_format(&a->ips[0], g->ip);
    }
}

static void ask(struct rig *r, const char *name, uint64_t owner, struct got *g)
{
    *g = (struct got) { .calls = 0 };
    g->query = upstream_ask(r->upstream, str_c(name), WIRE_A, owner, on_got, g);
    assert_non_null(g->query);
    assert_int_equal(g->calls, 0); /* never on the caller's stack */
}

/* Until `what` holds; ten seconds of the real clock are a failure. */
#define UNTIL(r, what)                                                                                                 \
    for (uint64_t until_ = clock_fake_real_ms() + 10000; !(what);) {                                                   \
        assert_true(clock_fake_real_ms() < until_);                                                                    \
        loop_run_once((r)->loop, 5);                                                                                   \
    }

static struct got asked(struct rig *r, const char *name)
{
    struct got g;
    ask(r, name, 1, &g);
    UNTIL(r, g.calls > 0);
    assert_int_equal(g.calls, 1);
    return g;
}

static bool answered(const struct got *g, const char *ip)
{
    return g->result == UPSTREAM_ANSWERED && g->rcode == WIRE_NOERROR && strcmp(g->ip, ip) == 0;
}

/* The loop reads the clock once a round: what is asked next is asked at the new time. */
static void pass(struct rig *r, uint64_t ms)
{
    clock_fake_advance_ms(ms);
    loop_run_once(r->loop, 0);
}

#define SERVERS(r, ...)                                                                                                \
    do {                                                                                                               \
        const struct dns_server v_[] = { __VA_ARGS__ };                                                                \
        upstream_set_servers((r)->upstream, v_, sizeof v_ / sizeof *v_);                                               \
    } while (0)

/* One connection, questions of one size whatever the name, nothing in them but the question and its padding. */
static void test_asks(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_start(&r, &r.a, HONEST);
    SERVERS(&r, over_tls(&r, &r.a));
    static const char *const names[] = { "1.test", "2.a-much-longer-name-than-the-first.example.test", "3.test",
                                         "1.test" };
    for (size_t i = 0; i < 4; i++) {
        struct got g = asked(&r, names[i]);
        char ip[46];
        snprintf(ip, sizeof ip, "192.0.2.%c", names[i][0]);
        assert_true(answered(&g, ip));
        assert_string_equal(r.a.log[i].name, names[i]); /* lower case: nothing is drawn */
        assert_int_equal(r.a.log[i].n, 128);
        const unsigned char *q = r.a.log[i].bytes, *opt = q + question_end(q);
        assert_memory_equal(q + 2, "\1\0\0\1\0\0\0\0\0\1", 10);
        assert_memory_equal(opt, "\0\0\x29\x04\xd0\0\0\0\0", 9);
        size_t rest = 128 - question_end(q) - 11;
        assert_int_equal(opt[9] << 8 | opt[10], rest);
        assert_memory_equal(opt + 11, "\0\x0c", 2);
        assert_int_equal(opt[13] << 8 | opt[14], rest - 4);
        for (size_t k = 15; k < rest + 11; k++)
            assert_int_equal(opt[k], 0);
    }
    bool same = true; /* ids are drawn */
    for (size_t i = 1; i < 4; i++)
        same = same && memcmp(r.a.log[0].bytes, r.a.log[i].bytes, 2) == 0;
    assert_false(same);
    char longest[254];
    memset(longest, 'a', 253);
    for (int i = 63; i < 253; i += 64)
        longest[i] = '.';
    longest[253] = '\0';
    assert_int_equal(asked(&r, longest).result, UPSTREAM_ANSWERED);
    assert_int_equal(r.a.log[4].n, 384);
    assert_int_equal(r.a.accepted, 1);
    assert_int_equal(r.a.in_clear, 0);
    rig_done(&r);
}

/* Many under way on one connection; each has its own answer, though they come in another order. */
static void test_out_of_order(void **state)
{
    (void)state;
    enum { N = LANES };
    struct rig r;
    struct got g[N];
    char name[16], ip[46];
    rig_init(&r);
    rig_start(&r, &r.a, HOLDS);
    SERVERS(&r, over_tls(&r, &r.a));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%d.test", i + 1);
        ask(&r, name, (uint64_t)i % 2, &g[i]);
    }
    UNTIL(&r, r.a.asked == N);
    struct upstream_stats stats;
    upstream_stats(r.upstream, &stats);
    assert_int_equal(stats.active, N);
    tls_server_release(&r.a);
    for (int i = 0; i < N; i++) {
        UNTIL(&r, g[i].calls > 0);
        snprintf(ip, sizeof ip, "192.0.2.%d", i + 1);
        assert_true(answered(&g[i], ip));
    }
    assert_int_equal(r.a.accepted, 2); /* one for each owner */
    rig_done(&r);
}

/* Who does not prove to be dns.test gets no question, over TLS or else. */
static void test_identity(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct leaf leaf;
        int version;
        bool passes;
    } rows[] = {
        { "right", LEAF_GOOD, 0, true },
        { "right, TLS 1.2", LEAF_GOOD, TLS1_2_VERSION, true },
        { "old protocol", LEAF_GOOD, TLS1_1_VERSION, false },
        { "wrong name", { "dns.test", "DNS:ns.test", "serverAuth", -LEAF_DAY, LEAF_DAY, false }, 0, false },
        { "its name and another",
          { "ns.test", "DNS:ns.test,DNS:dns.test", "serverAuth", -LEAF_DAY, LEAF_DAY, false },
          0,
          true },
        { "CN only", { "dns.test", NULL, "serverAuth", -LEAF_DAY, LEAF_DAY, false }, 0, false },
        { "its address only", { "dns.test", "IP:127.0.0.1", "serverAuth", -LEAF_DAY, LEAF_DAY, false }, 0, false },
        { "wrong CA", { "dns.test", "DNS:dns.test", "serverAuth", -LEAF_DAY, LEAF_DAY, true }, 0, false },
        { "expired", { "dns.test", "DNS:dns.test", "serverAuth", -2 * LEAF_DAY, -LEAF_DAY, false }, 0, false },
        { "not yet", { "dns.test", "DNS:dns.test", "serverAuth", LEAF_DAY, 2 * LEAF_DAY, false }, 0, false },
        { "a client's", { "dns.test", "DNS:dns.test", "clientAuth", -LEAF_DAY, LEAF_DAY, false }, 0, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r);
        tls_server_start(&r.a, r.loop, &r.pki, &rows[i].leaf, rows[i].version);
        SERVERS(&r, over_tls(&r, &r.a));
        struct got g = asked(&r, "7.test");
        if (rows[i].passes != answered(&g, "192.0.2.7") || r.a.asked != rows[i].passes)
            fail_msg("%s: result %d, asked %zu", rows[i].what, (int)g.result, r.a.asked);
        if (!rows[i].passes)
            assert_int_equal(g.result, UPSTREAM_UNREACHABLE);
        assert_int_equal(r.a.accepted, 1);
        assert_int_equal(r.a.in_clear, 0);
        rig_done(&r);
    }
}

/* What servers do that they should not. Alone its answer does not count; the one behind it is asked then. Where it says
 * nothing, time is passed for it once it has the question. */
static struct got asked_hostile(struct rig *r, const char *name)
{
    struct got g;
    size_t had = r->a.asked, connections = r->a.accepted;
    bool silent = r->a.how == SILENT || r->a.how == TRICKLES || r->a.how == GIANT;
    ask(r, name, 1, &g);
    if (silent)
        UNTIL(r, r->a.asked > had);
    if (r->a.how == MUTE)
        UNTIL(r, r->a.accepted > connections);
    if (silent || r->a.how == MUTE)
        pass(r, PATIENCE_MS + 1);
    UNTIL(r, g.calls > 0);
    return g;
}

static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        enum behaviour how;
        enum upstream_result alone;
        uint16_t rcode;
    } rows[] = {
        { SILENT, UPSTREAM_TIMEOUT, 0 },
        { CLOSES, UPSTREAM_UNREACHABLE, 0 },
        { NEVER_ASKED, UPSTREAM_UNREACHABLE, 0 },
        { WRONG_ID, UPSTREAM_UNREACHABLE, 0 },
        { TRICKLES, UPSTREAM_TIMEOUT, 0 },
        { GIANT, UPSTREAM_TIMEOUT, 0 },
        { SHORT, UPSTREAM_UNREACHABLE, 0 },
        { GARBAGE, UPSTREAM_UNREACHABLE, 0 },
        { KEY_UPDATES, UPSTREAM_UNREACHABLE, 0 },
        { HELLO_REQUESTS, UPSTREAM_UNREACHABLE, 0 },
        { BAD_RECORD, UPSTREAM_BAD, 0 },
        { CUT_MARK, UPSTREAM_BAD, 0 },
        { SLAMS, UPSTREAM_UNREACHABLE, 0 },
        { MUTE, UPSTREAM_UNREACHABLE, 0 },
        { FAILS, UPSTREAM_ANSWERED, WIRE_SERVFAIL },
        { BARE, UPSTREAM_ANSWERED, WIRE_REFUSED },
        { LAME, UPSTREAM_ANSWERED, WIRE_NOERROR },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        rig_init(&r);
        rig_start(&r, &r.a, rows[i].how);
        rig_start(&r, &r.b, HONEST);
        SERVERS(&r, over_tls(&r, &r.a));
        struct got g = asked_hostile(&r, "7.test");
        if (g.result != rows[i].alone || g.rcode != rows[i].rcode || g.ip[0])
            fail_msg("row %zu: result %d, rcode %u, %s", i, (int)g.result, g.rcode, g.ip);
        SERVERS(&r, over_tls(&r, &r.a), over_tls(&r, &r.b));
        g = asked_hostile(&r, "8.test");
        if (!answered(&g, "192.0.2.8") || r.b.asked != 1)
            fail_msg("row %zu: result %d with another behind it", i, (int)g.result);
        r.a.how = HONEST; /* control: the same server, honest */
        upstream_set_trust(r.upstream, r.trust);
        SERVERS(&r, over_tls(&r, &r.a));
        g = asked(&r, "9.test");
        if (!answered(&g, "192.0.2.9"))
            fail_msg("row %zu: result %d when it is honest", i, (int)g.result);
        assert_int_equal(r.a.in_clear + r.b.in_clear, 0);
        rig_done(&r);
    }
}

/* A name that cannot be looked up, alone on the connection: that is not held against the server, whoever asks next. */
static void test_a_name_without_answer(void **state)
{
    (void)state;
    struct rig r;
    struct got g;
    rig_init(&r);
    rig_start(&r, &r.a, HONEST);
    SERVERS(&r, over_tls(&r, &r.a));
    for (size_t i = 0; i < 30; i++) { /* more than connections at once */
        ask(&r, "0.test", 1, &g);
        UNTIL(&r, r.a.asked == 2 * i + 1);
        pass(&r, PATIENCE_MS + 1);
        UNTIL(&r, g.calls > 0);
        assert_int_equal(g.result, UPSTREAM_TIMEOUT);
        g = asked(&r, "7.test");
        assert_true(answered(&g, "192.0.2.7"));
    }
    assert_int_equal(r.a.accepted, 31); /* one that was silent for so long may be dead: each time another */
    /* Beside a question that is answered it takes nothing along. */
    ask(&r, "0.test", 1, &g);
    UNTIL(&r, r.a.asked == 61);
    struct got other = asked(&r, "8.test");
    assert_true(answered(&other, "192.0.2.8"));
    pass(&r, PATIENCE_MS + 1);
    UNTIL(&r, g.calls > 0);
    other = asked(&r, "9.test");
    assert_true(answered(&other, "192.0.2.9"));
    assert_int_equal(r.a.accepted, 31);
    rig_done(&r);
}

/* A name at which the server closes the connection, as unbound does with what it drops: that takes nothing from others. */
static void test_a_name_that_closes(void **state)
{
    (void)state;
    struct rig r;
    struct got bad, good;
    rig_init(&r);
    rig_start(&r, &r.a, CLOSES_AT_0);
    SERVERS(&r, over_tls(&r, &r.a));
    for (int i = 0; i < 12; i++) {
        ask(&r, "0.test", 1, &bad);
        ask(&r, "7.test", 2, &good);
        UNTIL(&r, bad.calls > 0 && good.calls > 0);
        assert_int_equal(bad.result, UPSTREAM_UNREACHABLE);
        assert_true(answered(&good, "192.0.2.7"));
    }
    rig_done(&r);
}

/* A server answered where the one before it is silent: it comes first for thirty seconds. */
static void test_promoted(void **state)
{
    (void)state;
    struct rig r;
    struct got g;
    rig_init(&r);
    rig_start(&r, &r.a, SILENT);
    rig_start(&r, &r.b, HONEST);
    SERVERS(&r, over_tls(&r, &r.a), over_tls(&r, &r.b));
    clock_fake_stand(0);
    g = asked_hostile(&r, "1.test");
    assert_true(answered(&g, "192.0.2.1"));
    assert_int_equal(r.a.asked, 1);
    pass(&r, 29000);
    g = asked(&r, "2.test");
    assert_true(answered(&g, "192.0.2.2"));
    assert_int_equal(r.a.asked, 1);
    r.a.how = HONEST;
    pass(&r, 1001);
    g = asked(&r, "3.test");
    assert_true(answered(&g, "192.0.2.3"));
    assert_int_equal(r.a.asked, 2);
    assert_int_equal(r.b.asked, 2);
    clock_fake_run();
    rig_done(&r);
}

/* An answer that was asked for and one more: the first counts, and the connection ends with the second. */
static void test_twice(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_start(&r, &r.a, SAYS_TWICE);
    SERVERS(&r, over_tls(&r, &r.a));
    struct got g = asked(&r, "7.test");
    assert_true(answered(&g, "192.0.2.7"));
    UNTIL(&r, r.a.closed == 1);
    rig_done(&r);
}

/* The list's order, whatever is mixed in it. */
static void test_order(void **state)
{
    (void)state;
    static const struct reply refusing[] = { { NULL, 0, 5, 0, NULL, NULL } };
    static const struct reply helping[] = { { NULL, 0, 0, 0, "@ A 198.51.100.1 60", NULL } };
    struct rig r;
    struct dns_server_fake plain, last;
    rig_init(&r);
    rig_start(&r, &r.a, FAILS);
    rig_start(&r, &r.b, HONEST);
    server_start(&plain, r.loop, "127.0.0.1", 0, refusing, 1);
    server_start(&last, r.loop, "127.0.0.1", 0, helping, 1);
    /* UDP, TLS, TCP, TLS: each is asked, and the last helps. */
    SERVERS(&r, in_clear(plain.port, false), over_tls(&r, &r.a), in_clear(plain.port, true), over_tls(&r, &r.b),
            in_clear(last.port, false));
    struct got g = asked(&r, "7.test");
    assert_true(answered(&g, "192.0.2.7"));
    assert_true(plain.asked > plain.asked_tcp && plain.asked_tcp > 0);
    assert_int_equal(r.a.asked, 1);
    assert_int_equal(r.b.asked, 1);
    assert_int_equal(last.asked, 0);
    /* One that helps comes first: nobody else is asked. */
    SERVERS(&r, over_tls(&r, &r.b), in_clear(last.port, false));
    g = asked(&r, "8.test");
    assert_true(answered(&g, "192.0.2.8"));
    assert_int_equal(last.asked, 0);
    SERVERS(&r, in_clear(last.port, false), over_tls(&r, &r.b));
    g = asked(&r, "8.test");
    assert_true(answered(&g, "198.51.100.1"));
    assert_int_equal(r.b.asked, 2);
    /* What one said that did not help stands where the last says nothing. */
    SERVERS(&r, in_clear(plain.port, false), over_tls(&r, &r.a));
    r.a.how = SILENT;
    g = asked_hostile(&r, "9.test");
    assert_int_equal(g.result, UPSTREAM_ANSWERED);
    assert_int_equal(g.rcode, 5);
    server_stop(&plain);
    server_stop(&last);
    rig_done(&r);
}

/* A connection that had served is closed with a question under way: it is asked once more, and no more than once. */
static void test_lost(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_start(&r, &r.a, CLOSES_AFTER_1);
    SERVERS(&r, over_tls(&r, &r.a));
    struct got g = asked(&r, "1.test");
    assert_true(answered(&g, "192.0.2.1"));
    g = asked(&r, "2.test");
    assert_true(answered(&g, "192.0.2.2"));
    assert_int_equal(r.a.asked, 3);
    assert_int_equal(r.a.accepted, 2);
    r.a.how = CLOSES;
    g = asked(&r, "3.test");
    assert_int_equal(g.result, UPSTREAM_UNREACHABLE);
    assert_int_equal(r.a.asked, 5);
    assert_int_equal(r.a.accepted, 3);
    rig_done(&r);
}

/* However a server ends connections, so many are made at once and no more. */
static void test_connects_are_bounded(void **state)
{
    (void)state;
    struct rig r;
    unsigned fine = 0;
    rig_init(&r);
    rig_start(&r, &r.a, CLOSES_AFTER_1);
    SERVERS(&r, over_tls(&r, &r.a));
    clock_fake_stand(0);
    for (int i = 0; i < 200; i++)
        fine += asked(&r, "1.test").result == UPSTREAM_ANSWERED;
    assert_true(r.a.accepted > 50 && r.a.accepted < 100);
    assert_true(fine >= 50 && fine < 200);
    struct got other; /* another owner still has some */
    ask(&r, "2.test", 2, &other);
    UNTIL(&r, other.calls > 0);
    clock_fake_run();
    assert_true(answered(&other, "192.0.2.2"));
    rig_done(&r);
}

/* A server that does not prove itself is left alone, longer each time; the one behind it is asked meanwhile. */
static void test_back_off(void **state)
{
    (void)state;
    struct rig r;
    struct got g;
    static const struct leaf wrong = { "dns.test", "DNS:ns.test", "serverAuth", -LEAF_DAY, LEAF_DAY, false };
    rig_init(&r);
    tls_server_start(&r.a, r.loop, &r.pki, &wrong, 0);
    rig_start(&r, &r.b, HONEST);
    SERVERS(&r, over_tls(&r, &r.a), over_tls(&r, &r.b));
    g = asked(&r, "1.test");
    assert_true(answered(&g, "192.0.2.1"));
    clock_fake_stand(0);
    static const uint64_t waits[] = { 1000, 2000, 4000, 8000, 16000, 30000, 30000 };
    for (size_t i = 0; i < 7; i++) {
        size_t before = r.a.accepted;
        pass(&r, waits[i] - 200);
        g = asked(&r, "1.test");
        assert_true(answered(&g, "192.0.2.1"));
        assert_int_equal(r.a.accepted, before);
        pass(&r, 200);
        g = asked(&r, "1.test");
        assert_true(answered(&g, "192.0.2.1"));
        assert_int_equal(r.a.accepted, before + 1);
    }
    clock_fake_run();
    assert_int_equal(r.a.asked, 0);
    rig_done(&r);
}

/* At rest for thirty seconds it is closed; the next connection takes up the session. Never past the certificate. */
static void test_rest(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_start(&r, &r.a, HONEST);
    SERVERS(&r, over_tls(&r, &r.a));
    clock_fake_stand(0);
    asked(&r, "1.test");
    pass(&r, 29000);
    asked(&r, "2.test");
    assert_int_equal(r.a.accepted, 1);
    pass(&r, 29000);
    for (int i = 0; i < 20; i++)
        loop_run_once(r.loop, 1);
    assert_int_equal(r.a.closed, 0); /* 29 s since the last answer */
    pass(&r, 1100);
    UNTIL(&r, r.a.closed == 1);
    asked(&r, "3.test");
    assert_int_equal(r.a.accepted, 2);
    assert_int_equal(r.a.resumed, 1);
    pass(&r, 31000);
    UNTIL(&r, r.a.closed == 2);
    clock_fake_jump_wall_ms(2L * LEAF_DAY * 1000); /* past the end of the leaf */
    struct got g = asked(&r, "4.test");
    clock_fake_jump_wall_ms(-2L * LEAF_DAY * 1000);
    clock_fake_run();
    assert_int_equal(g.result, UPSTREAM_UNREACHABLE);
    assert_int_equal(r.a.resumed, 1);
    assert_int_equal(r.a.asked, 3);
    rig_done(&r);
}

/* The roots change: no question goes to who proved itself by the old ones. */
static void test_trust(void **state)
{
    (void)state;
    struct rig r;
    struct got g, held;
    rig_init(&r);
    rig_start(&r, &r.a, HONEST);
    SERVERS(&r, over_tls(&r, &r.a));
    asked(&r, "1.test");
    r.a.how = HOLDS;
    ask(&r, "2.test", 1, &held);
    UNTIL(&r, r.a.asked == 2);
    SSL_CTX *other = trust_of(&r, r.pki.root[1]);
    upstream_set_trust(r.upstream, other);
    SSL_CTX_free(other);
    g = asked(&r, "3.test");
    assert_int_equal(g.result, UPSTREAM_UNREACHABLE);
    assert_int_equal(r.a.asked, 2);
    tls_server_release(&r.a); /* what was under way ends as it began */
    UNTIL(&r, held.calls > 0);
    assert_true(answered(&held, "192.0.2.2"));
    UNTIL(&r, r.a.closed == 2);
    upstream_set_trust(r.upstream, NULL);
    assert_int_equal(asked(&r, "3.test").result, UPSTREAM_UNREACHABLE);
    assert_int_equal(r.a.accepted, 2);
    r.a.how = HONEST;
    upstream_set_trust(r.upstream, r.trust); /* control */
    g = asked(&r, "3.test");
    assert_true(answered(&g, "192.0.2.3"));
    rig_done(&r);
}

/* Servers and roots change while a question waits for the handshake: it is asked of the new ones. */
static void test_change_in_the_handshake(void **state)
{
    (void)state;
    struct rig r;
    struct got g;
    rig_init(&r);
    rig_start(&r, &r.a, MUTE);
    rig_start(&r, &r.b, HONEST);
    SERVERS(&r, over_tls(&r, &r.a));
    ask(&r, "1.test", 1, &g);
    UNTIL(&r, r.a.accepted == 1);
    SERVERS(&r, over_tls(&r, &r.b));
    UNTIL(&r, g.calls > 0);
    assert_true(answered(&g, "192.0.2.1"));
    SERVERS(&r, over_tls(&r, &r.a));
    ask(&r, "2.test", 1, &g);
    UNTIL(&r, r.a.accepted == 2);
    r.a.how = HONEST;
    upstream_set_trust(r.upstream, r.trust);
    UNTIL(&r, g.calls > 0);
    assert_true(answered(&g, "192.0.2.2"));
    rig_done(&r);
}

/* One owner has half of what can be under way; the other half is for others. */
static void test_half(void **state)
{
    (void)state;
    struct rig r;
    struct got g[LANES + 1];
    rig_init(&r);
    rig_start(&r, &r.a, HOLDS);
    SERVERS(&r, over_tls(&r, &r.a));
    for (int i = 0; i < LANES; i++)
        ask(&r, "1.test", 1, &g[i]);
    UNTIL(&r, r.a.asked == LANES / 2);
    ask(&r, "2.test", 2, &g[LANES]);
    UNTIL(&r, r.a.asked == LANES / 2 + 1);
    assert_string_equal(r.a.log[LANES / 2].name, "2.test");
    r.a.how = HONEST;
    tls_server_release(&r.a);
    for (int i = 0; i <= LANES; i++)
        UNTIL(&r, g[i].calls > 0);
    assert_int_equal(r.a.asked, LANES + 1);
    rig_done(&r);
}

/* A question that is given up takes nothing with it: its answer is let pass, and the connection goes on. */
static void test_given_up(void **state)
{
    (void)state;
    struct rig r;
    struct got g, other;
    struct upstream_stats stats;
    rig_init(&r);
    rig_start(&r, &r.a, HOLDS);
    SERVERS(&r, over_tls(&r, &r.a));
    ask(&r, "1.test", 1, &g);
    ask(&r, "2.test", 2, &other);
    UNTIL(&r, r.a.asked == 2);
    upstream_cancel(&g.query);
    tls_server_release(&r.a);
    UNTIL(&r, other.calls > 0);
    assert_true(answered(&other, "192.0.2.2"));
    r.a.how = HONEST;
    other = asked(&r, "3.test");
    assert_true(answered(&other, "192.0.2.3"));
    upstream_stats(r.upstream, &stats);
    assert_int_equal(stats.strays, 1);
    assert_int_equal(g.calls, 0);
    assert_int_equal(r.a.accepted, 2);
    /* And all of it can go while questions are under way. */
    r.a.how = SILENT;
    ask(&r, "4.test", 1, &g);
    UNTIL(&r, r.a.asked == 4);
    rig_done(&r);
    assert_int_equal(g.calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_a_name_without_answer),
        cmocka_unit_test(test_a_name_that_closes),
        cmocka_unit_test(test_promoted),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_connects_are_bounded),
        cmocka_unit_test(test_back_off),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_change_in_the_handshake),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
