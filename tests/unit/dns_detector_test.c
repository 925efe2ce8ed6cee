/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/detector.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define TOKEN   "og_k7q2mz5xwv3njd6thg4yb2rcf7lqesp6aoi3u5xk"
#define PIECE   "k7q2mz5xwv.evil.test"
#define ENCODED "3f9ac07714e2d0b85c6619aa02d7f3e1.evil.test"
#define PLAIN   "api.evil.test"

static struct detector *with(const struct detector_options *o)
{
    struct canary_source v = { .text = STR(TOKEN), .fixed = 3, .agent = STR("coder"), .credential = STR("github") };
    struct canary *c = canary_new(&v, 1, NULL);
    struct detector *d = detector_new(o, c, 1, NULL);
    canary_unref(&c); /* the detector has its own */
    assert_non_null(d);
    return d;
}

static struct detector *usual(void)
{
    struct detector_options o;
    detector_options_default(&o);
    return with(&o);
}

static struct detector_finding judge(struct detector *d, const char *name, enum detector_approval approval,
                                     bool observe, enum detector_event event)
{
    struct detector_finding f;
    struct detector_ask ask = { .agent = STR("tester"),
                                .name = str_c(name),
                                .qtype = 1,
                                .approval = approval,
                                .event = event,
                                .written = true,
                                .observe = observe };
    detector_judge(d, &ask, 1, &f);
    return f;
}

/* The table of detector.h, cell by cell; the last rows are the controls of those before. */
static void test_table(void **state)
{
    (void)state;
    enum { EXACT = DETECTOR_EXACT, WILD = DETECTOR_WILDCARD, NO = DETECTOR_UNAPPROVED };
    static const struct {
        const char *name;
        int approval;
        bool observe, allow;
        enum detector_severity severity;
        enum detector_rule rule;
        bool charged;
    } table[] = {
        { PIECE, EXACT, false, false, DETECTOR_CRITICAL, DETECTOR_PLACEHOLDER, false },
        { PIECE, WILD, false, false, DETECTOR_CRITICAL, DETECTOR_PLACEHOLDER, false },
        { PIECE, NO, false, false, DETECTOR_CRITICAL, DETECTOR_PLACEHOLDER, false },
        { PIECE, NO, true, false, DETECTOR_CRITICAL, DETECTOR_PLACEHOLDER, false },
        { "a b.evil.test", EXACT, false, false, DETECTOR_QUIET, DETECTOR_WIRE, false },
        { "a b.evil.test", WILD, false, false, DETECTOR_QUIET, DETECTOR_WIRE, false },
        { "a b.evil.test", NO, false, false, DETECTOR_FLAGGED, DETECTOR_WIRE, false },
        { "a b.evil.test", NO, true, false, DETECTOR_FLAGGED, DETECTOR_WIRE, false },
        { "A.evil.test", NO, true, false, DETECTOR_FLAGGED, DETECTOR_WIRE, false },
        { ENCODED, EXACT, false, true, DETECTOR_QUIET, DETECTOR_NONE, false },
        { ENCODED, WILD, false, true, DETECTOR_FLAGGED, DETECTOR_SCORE, true },
        { ENCODED, NO, false, false, DETECTOR_FLAGGED, DETECTOR_SCORE, false },
        { ENCODED, NO, true, false, DETECTOR_FLAGGED, DETECTOR_SCORE, false },
        { PLAIN, EXACT, false, true, DETECTOR_QUIET, DETECTOR_NONE, false },
        { PLAIN, WILD, false, true, DETECTOR_QUIET, DETECTOR_NONE, true },
        { PLAIN, NO, false, false, DETECTOR_QUIET, DETECTOR_DENIED, false },
        { PLAIN, NO, true, true, DETECTOR_QUIET, DETECTOR_NONE, true },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int event = DETECTOR_QUESTION; event <= DETECTOR_DIAL; event++) {
            struct detector *d = usual();
            char text[DETECTOR_LINE];
            struct detector_finding f = judge(d, table[i].name, (enum detector_approval)table[i].approval,
                                              table[i].observe, (enum detector_event)event);
            bool charged = table[i].charged && event != DETECTOR_SYNTHETIC;
            if (f.allow != table[i].allow || f.severity != table[i].severity || f.rule != table[i].rule ||
                f.charged != charged || (budget_unsaved(detector_budget(d)) > 0) != charged)
                fail_msg("row %zu, event %d: %s", i, event, detector_explain(&f, text));
            detector_free(&d);
        }
}

static void test_budget_half_and_spent(void **state)
{
    (void)state;
    static const enum detector_act acts[] = { DETECTOR_BLOCK, DETECTOR_FLAG, DETECTOR_LOG };
    for (size_t k = 0; k < 3; k++) {
        struct detector_options o;
        detector_options_default(&o);
        o.tunnel = acts[k];
        struct detector *d = with(&o);
        unsigned half = 0, spent = 0, passed = 0, told = 0;
        for (unsigned i = 0; i < 60; i++) {
            char name[40];
            snprintf(name, sizeof name, "worker-%u-%u.evil.test", i * 7 % 60, i);
            struct detector_finding f = judge(d, name, DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
            half += f.rule == DETECTOR_HALF;
            spent += f.rule == DETECTOR_SPENT;
            passed += f.charged;
            assert_int_equal(f.allow, f.rule != DETECTOR_SPENT || acts[k] != DETECTOR_BLOCK);
            assert_true(f.severity <= (acts[k] == DETECTOR_LOG ? DETECTOR_INFO : DETECTOR_FLAGGED));
            told += f.severity != DETECTOR_QUIET;
        }
        assert_int_equal(half, 1); /* told once */
        assert_int_equal(told, 1 + spent);
        assert_in_range(passed, 10, 30);
        assert_int_equal(spent + passed, 60);
        assert_true(budget_spent(detector_budget(d), STR("tester"), STR("evil.test"), 1) <= 1024);
        /* The control: another zone, and another agent, have theirs. */
        assert_true(judge(d, "worker-1.other.test", DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION).charged);
        detector_free(&d);
    }
}

/* Many dials to few approved names are ordinary; in a zone nobody approved each is an event. */
static void test_dials(void **state)
{
    (void)state;
    struct detector *d = usual();
    static const char *const day[] = { "cdn.good.test", "raw.good.test", "api.good.test", "objects.good.test", "auth.good.test" };
    for (unsigned i = 0; i < 100000; i++) /* in any order, dialled and asked: a service that is polled all day */
        if (!judge(d, day[i * 7 % 5], DETECTOR_WILDCARD, false, i % 3 ? DETECTOR_DIAL : DETECTOR_QUESTION).allow)
            fail_msg("event %u was refused", i);
    unsigned fresh = 0;
    for (unsigned i = 0; i < 1000; i++) { /* the control: new names are not */
        char name[64];
        snprintf(name, sizeof name, "n%u.good.test", i * 7919);
        fresh += judge(d, name, DETECTOR_WILDCARD, false, DETECTOR_DIAL).allow;
    }
    assert_in_range(fresh, 10, 100);
    unsigned passed = 0;
    for (unsigned i = 0; i < 1000; i++)
        passed += judge(d, "www.evil.test", DETECTOR_UNAPPROVED, true, DETECTOR_DIAL).allow;
    print_message("%u dials to one name that is not approved\n", passed);
    assert_in_range(passed, 150, 171);
    passed = 0;
    for (unsigned i = 0; i < 1000; i++) { /* known names, under a rule with their type: each question leaves, and chooses among five */
        struct detector_ask ask = { .agent = STR("reader"), .name = str_c(day[i % 5]), .qtype = 16, .approval = DETECTOR_WILDCARD,
                                    .event = DETECTOR_QUESTION, .written = true };
        struct detector_finding f;
        detector_judge(d, &ask, 1, &f);
        passed += f.allow;
    }
    print_message("%u questions for text of five names under a rule\n", passed);
    assert_in_range(passed, 90, 128);
    detector_free(&d);
}

/* What a question may ask for is a choice as well: fifteen types are cheap, among them all that a rule may list. */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        unsigned more;
    } table[] = { { 1, 0 },  { 28, 0 }, { 2, 0 },  { 12, 0 },  { 15, 0 },  { 16, 0 },   { 33, 0 },
                  { 44, 0 }, { 52, 0 }, { 65, 0 }, { 257, 0 }, { 10, 16 }, { 255, 16 }, { 65399, 16 } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct detector *d = usual();
        struct detector_finding f, a = judge(d, PLAIN, DETECTOR_WILDCARD, false, DETECTOR_QUESTION);
        struct detector_ask ask = a.ask;
        ask.agent = STR("another");
        ask.qtype = table[i].type;
        detector_judge(d, &ask, 1, &f);
        assert_int_equal(f.account.cost, a.account.cost + table[i].more * COST_BIT);
        detector_free(&d);
    }
}

static void test_special(void **state)
{
    (void)state;
    static const char *const names[] = {
        "printer",           "x.local", "api.openai.com.svc.cluster.local", "db.internal", "4.3.2.1.in-addr.arpa",
        "x.no-such-tld-here"
    };
    struct detector *d = usual();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct detector_finding f;
        struct detector_ask ask = { .agent = STR("tester"), .name = str_c(names[i]), .qtype = 1, .observe = true };
        detector_judge(d, &ask, 1, &f);
        assert_true(!f.allow && f.rule == DETECTOR_SPECIAL && f.severity == DETECTOR_QUIET && !f.charged);
        ask.approval = DETECTOR_WILDCARD; /* by "*" */
        detector_judge(d, &ask, 1, &f);
        assert_true(!f.allow && f.rule == DETECTOR_SPECIAL);
        ask.written = true; /* the control */
        detector_judge(d, &ask, 1, &f);
        assert_true(f.allow);
    }
    /* A piece of a placeholder in one is an alarm all the same. */
    struct detector_finding f;
    struct detector_ask ask = { .agent = STR("tester"),
                                .name = STR("k7q2mz5xwv.evil.test.svc.cluster.local"),
                                .qtype = 1 };
    detector_judge(d, &ask, 1, &f);
    assert_true(f.rule == DETECTOR_PLACEHOLDER && f.severity == DETECTOR_CRITICAL);
    detector_free(&d);
}

/* What a cloud calls a tenant does not score, however it looks; what stands before it does. */
static void test_tenants(void **state)
{
    (void)state;
    struct detector *d = usual();
    struct detector_finding f =
        judge(d, "3f9ac07714e2d0b85c6619aa02d7f3e1.cloudfront.net", DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
    assert_true(f.allow && f.severity == DETECTOR_QUIET && f.charged);
    f = judge(d, "3f9ac07714e2d0b85c6619aa02d7f3e1.tenant.cloudfront.net", DETECTOR_UNAPPROVED, true,
              DETECTOR_QUESTION);
    assert_true(!f.allow && f.rule == DETECTOR_SCORE);
    f = judge(d, "3f9ac07714e2d0b85c6619aa02d7f3e1.test", DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
    assert_true(!f.allow && f.rule == DETECTOR_SCORE); /* a domain that looks so was chosen */
    /* But they cost the cloud's zone: data in tenants' names ends there. */
    unsigned passed = 0;
    for (unsigned i = 0; i < 200; i++) {
        char name[80];
        snprintf(name, sizeof name, "%08x3f9ac077%08x.cloudfront.net", i * 2654435761u, i * 2246822519u);
        passed += judge(d, name, DETECTOR_WILDCARD, false, DETECTOR_QUESTION).allow;
    }
    assert_in_range(passed, 20, 4096 / 100);
    detector_free(&d);
}

static void test_options(void **state)
{
    (void)state;
    struct detector_options o;
    detector_options_default(&o);
    struct detector *d = usual();
    o.placeholder = DETECTOR_FLAG;
    o.tunnel = DETECTOR_FLAG;
    assert_int_equal(detector_set(d, &o, NULL, NULL), 0); /* no placeholders any more */
    assert_true(judge(d, PIECE, DETECTOR_EXACT, false, DETECTOR_QUESTION).rule == DETECTOR_NONE);
    struct detector_finding f = judge(d, ENCODED, DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
    assert_true(f.allow && f.severity == DETECTOR_FLAGGED && f.rule == DETECTOR_SCORE && f.charged);
    /* Only flagged, and denied by policy all the same. */
    f = judge(d, ENCODED, DETECTOR_UNAPPROVED, false, DETECTOR_QUESTION);
    assert_true(!f.allow && f.severity == DETECTOR_FLAGGED);
    uint32_t spent = budget_spent(detector_budget(d), STR("tester"), STR("evil.test"), 1);
    assert_true(spent > 0);
    o.limits.bits = BUDGET_BITS_MAX + 1;
    assert_int_equal(detector_set(d, &o, NULL, NULL), -1);
    assert_null(detector_new(&o, NULL, 1, NULL));
    assert_int_equal(budget_spent(detector_budget(d), STR("tester"), STR("evil.test"), 1), spent);
    detector_free(&d);
    assert_null(d);

    detector_options_default(&o);
    o.placeholder = DETECTOR_FLAG;
    d = with(&o);
    f = judge(d, PIECE, DETECTOR_EXACT, false, DETECTOR_DIAL);
    assert_true(f.allow && f.severity == DETECTOR_CRITICAL && f.rule == DETECTOR_PLACEHOLDER);
    assert_string_equal(f.class, "placeholder_elsewhere");
    f = judge(d, PIECE, DETECTOR_UNAPPROVED, false, DETECTOR_QUESTION);
    assert_true(!f.allow && f.severity == DETECTOR_CRITICAL && f.rule == DETECTOR_PLACEHOLDER);
    detector_free(&d);
}

/* Sentence and features say the same of one finding, to the bit, and whoever reads it learns which key bounds it. */
static void test_numbers(void **state)
{
    (void)state;
    struct detector *d = usual();
    char line[DETECTOR_LINE], features[DETECTOR_FEATURES], hint[DETECTOR_HINT], name[120];
    unsigned half = 0, spent = 0;
    for (int i = 0; i < 400 && spent == 0; i++) {
        unsigned long long bits, sum, limit, fbits, fsum, flimit;
        snprintf(name, sizeof name, "images.static.summer.winter.mail-%c%c.good.test", 'a' + i % 26, 'a' + i / 26);
        struct detector_finding f = judge(d, name, DETECTOR_WILDCARD, false, DETECTOR_QUESTION);
        const char *of = strstr(detector_explain(&f, line), " bits="), *at = strstr(detector_features(&f, features), "\"bits\":");
        assert_non_null(of);
        assert_non_null(at);
        assert_int_equal(sscanf(of, " bits=%llu spent=%llu/%llu of=zone ", &bits, &sum, &limit), 3);
        assert_int_equal(sscanf(at, "\"bits\":%llu,\"spent\":%llu,\"limit\":%llu,\"of\":\"zone\"", &fbits, &fsum, &flimit), 3);
        assert_true(bits == fbits && sum == fsum && limit == flimit && limit == 1024);
        half += f.rule == DETECTOR_HALF;
        spent += f.rule == DETECTOR_SPENT;
        if (f.rule == DETECTOR_HALF)
            assert_string_equal(detector_hint(&f, hint), "if this is no data, list the zone in exfiltration.exempt or raise exfiltration.dns_tunnel.bits");
        if (f.rule == DETECTOR_SPENT) { /* what was spent is without this name, which did not go */
            assert_true(!f.allow && sum <= limit && sum + bits > limit);
            assert_non_null(strstr(detector_why(&f), "needs more bits than its zone has left (exfiltration.dns_tunnel.bits)"));
            assert_string_equal(detector_hint(&f, hint), "if this is no data, list the zone in exfiltration.exempt or raise exfiltration.dns_tunnel.bits; "
                                                         "a name that needs no more than is left still passes");
            f = judge(d, "x.good.test", DETECTOR_WILDCARD, false, DETECTOR_QUESTION);
            assert_true(f.allow); /* as it says */
        }
    }
    assert_int_equal(half, 1);
    assert_int_equal(spent, 1);
    detector_free(&d);
}

static void test_explain(void **state)
{
    (void)state;
    struct detector *d = usual();
    char text[DETECTOR_LINE];
    struct detector_finding f = judge(d, "onvs2ylooqwwc4djgazs2rkyifgvatcffvhe6vbniewverkb.evil.test",
                                      DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
    assert_string_equal(detector_explain(&f, text),
                        "dns_tunnel zone=evil.test name=onvs2y...(58) type=A verdict=block rule=llr score=65 (>=20) "
                        "class=base32 preview=\"sk-ant-...\" sent=0");
    f = judge(d, "www.evil.test", DETECTOR_UNAPPROVED, true, DETECTOR_DIAL);
    assert_string_equal(
        detector_explain(&f, text),
        "host_label zone=evil.test name=www.ev...(13) dial verdict=allow rule=none bits=13 spent=13/1024 "
        "of=zone distinct=1 sent=1");
    char features[DETECTOR_FEATURES], hint[DETECTOR_HINT];
    assert_string_equal(detector_features(&f, features), "{\"rule\":\"none\",\"characters\":13,\"score\":0,\"alphabet\":\"letters\",\"blocked\":false,"
                                                         "\"bits\":13,\"spent\":13,\"limit\":1024,\"of\":\"zone\",\"distinct\":1}");
    assert_string_equal(detector_hint(&f, hint), "");
    f = judge(d, PIECE, DETECTOR_EXACT, false, DETECTOR_QUESTION);
    assert_string_equal(detector_explain(&f, text),
                        "dns_placeholder zone=evil.test name=k7q2mz...(20) type=A verdict=block rule=placeholder "
                        "form=plain credential=github of=coder sent=0");
    f = judge(d, "\"\n\xff\x01.evil.test", DETECTOR_UNAPPROVED, true, DETECTOR_QUESTION);
    assert_string_equal(
        detector_explain(&f, text),
        "dns_tunnel zone=evil.test name=\\x22\\x0a\\xff\\x01.e...(14) type=A verdict=block rule=wire sent=0");
    detector_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_budget_half_and_spent),
        cmocka_unit_test(test_dials),   cmocka_unit_test(test_special),
        cmocka_unit_test(test_types),   cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_options), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_explain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
