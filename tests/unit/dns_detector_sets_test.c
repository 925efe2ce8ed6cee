/* SPDX-License-Identifier: Apache-2.0
 *
 * The detector on sets that are made here, by chance and the same in every run: what the tables were not fitted to.
 * Data in names of every alphabet, length and cut, as tunnels and as hands at a shell write it; and names that look
 * alike and carry none. Each name alone, in observe mode, with its budget untouched: what the score says of it. */
#include "dns/detector.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 2000, NAME_ROOM = 512, GOAL = 990 /* of a thousand, where 16 bytes or more are carried */ };

static uint64_t chance;
static unsigned roll(unsigned n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(chance >> 33) % n;
}

struct text {
    char p[NAME_ROOM];
    size_t n;
};

static void add(struct text *t, const char *s)
{
    for (; *s && t->n + 1 < sizeof t->p; s++)
        t->p[t->n++] = *s;
    t->p[t->n] = '\0';
}

static void add_char(struct text *t, char c)
{
    add(t, (char[]) { c, '\0' });
}

static void add_random(struct text *t, const char *set, size_t n)
{
    for (size_t size = strlen(set); n > 0; n--)
        add_char(t, set[roll((unsigned)size)]);
}

/* --- what is carried --- */

static const char hex[] = "0123456789abcdef", base32[] = "abcdefghijklmnopqrstuvwxyz234567",
                  base32hex[] = "0123456789abcdefghijklmnopqrstuv", base36[] = "abcdefghijklmnopqrstuvwxyz0123456789",
                  base58[] = "123456789abcdefghijkmnopqrstuvwxyzabcdefghjklmnpqrstuvwxyz",
                  base64[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789-_";
static const struct alphabet {
    const char *what, *set;
    unsigned of_16; /* characters that 16 bytes take */
} alphabets[] = {
    { "hex", hex, 32 },
    { "base32", base32, 26 },
    { "base32hex", base32hex, 26 },
    { "base36", base36, 25 },
    { "base58, case lost", base58, 22 },
    { "base64url, case lost", base64, 22 },
};
enum { ALPHABETS = sizeof alphabets / sizeof *alphabets };

/* What people keep: lines of files, in pieces. Each fact of them is made up. */
static const char *const words[] = {
    "apple",    "bridge",  "castle",  "doctor",  "engine",   "forest",  "garden",  "hammer", "island",  "jacket",
    "kitchen",  "ladder",  "machine", "needle",  "orange",   "pencil",  "quarter", "rocket", "saddle",  "table",
    "umbrella", "valley",  "window",  "yellow",  "anchor",   "basket",  "candle",  "dragon", "eagle",   "feather",
    "glacier",  "harbour", "iron",    "juniper", "kettle",   "lantern", "meadow",  "nectar", "oyster",  "pepper",
    "quiver",   "river",   "silver",  "thunder", "urchin",   "velvet",  "walnut",  "zebra",  "billing", "payment",
    "checkout", "ledger",  "invoice", "profile", "customer", "session", "gateway", "worker", "builder", "runner",
};
enum { WORDS = sizeof words / sizeof *words };

static const char *word(void)
{
    return words[roll(WORDS)];
}

static void add_sentence(struct text *t, size_t least)
{
    static const char *const heads[] = { "password=",    "user: ",      "export TOKEN=", "root:x:0:0:",
                                         "ssh-rsa AAAA", "{\"key\":\"", "host = " };
    for (add(t, heads[roll(7)]); t->n < least;) {
        add(t, word());
        add_char(t, " .-_/\n:0189"[roll(11)]);
    }
}

/* Bytes as characters of `per` bits; case is lost, as names have none. */
static void add_coded(struct text *t, const char *bytes, size_t n, unsigned per, const char *set)
{
    unsigned acc = 0, bits = 0;
    for (size_t i = 0; i < n; i++) {
        acc = acc << 8 | (unsigned char)bytes[i];
        for (bits += 8; bits >= per; bits -= per)
            add_char(t, set[acc >> (bits - per) & ((1u << per) - 1)]);
        acc &= 0xff;
    }
    if (bits > 0)
        add_char(t, set[acc << (per - bits) & ((1u << per) - 1)]);
}

/* One text as labels of at most `label` characters. */
static void add_cut(struct text *t, const char *s, size_t label)
{
    for (size_t i = 0; s[i]; i++) {
        if (i > 0 && i % label == 0)
            add_char(t, '.');
        add_char(t, s[i]);
    }
}

/* --- judging --- */

static const char *const attackers[] = { "attacker.com",        "evil-zone.org", "x7f.io",
                                         "collect.example.net", "oast.site",     "log.my-analytics.co.uk" };

static struct detector_finding judge(struct detector **d, unsigned n, const char *name)
{
    char agent[24];
    struct detector_finding f;
    if (n % 512 == 0) {
        struct detector_options o;
        detector_options_default(&o);
        detector_free(d);
        *d = detector_new(&o, NULL, 0, NULL);
        assert_non_null(*d);
    }
    snprintf(agent, sizeof agent, "a%u", n); /* each with a purse of its own */
    struct detector_ask ask = { .agent = str_c(agent), .name = str_c(name), .qtype = 1, .observe = true };
    detector_judge(*d, &ask, 0, &f);
    f.ask.agent = STR_NONE; /* is gone after this */
    return f;
}

typedef void (*maker)(struct text *t, size_t arg);

/* How many of a thousand are flagged; those that are not as `want` says are shown, a few. */
static unsigned flagged(const char *what, maker make, size_t arg, const char *const *zones, size_t nzones, bool want)
{
    struct detector *d = NULL;
    unsigned n = 0, shown = 0;
    chance = str_hash(str_c(what)) + arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct text t = { .n = 0 };
        make(&t, arg);
        if (nzones > 0) {
            add_char(&t, '.');
            add(&t, zones[roll((unsigned)nzones)]);
        }
        assert_true(t.n <= 253);
        struct detector_finding f = judge(&d, i, t.p);
        bool flag = f.severity >= DETECTOR_FLAGGED;
        n += flag;
        if (f.rule == DETECTOR_WIRE || f.rule == DETECTOR_SPENT)
            fail_msg("%s: %s: %s", what, t.p, detector_rule_text(f.rule));
        if (flag != want && shown++ < 2)
            print_message("  %s: score %u\n", t.p, f.score.bits);
    }
    detector_free(&d);
    print_message("%s, %zu: %u of %u flagged\n", what, arg, n, (unsigned)ROUNDS);
    return n * 1000 / ROUNDS;
}

enum { ATTACKERS = sizeof attackers / sizeof *attackers };

static unsigned missed(const char *what, maker make, size_t arg, unsigned of_thousand)
{
    unsigned found = flagged(what, make, arg, attackers, ATTACKERS, true);
    if (found < of_thousand)
        print_message("  %u of a thousand are found, expected at least %u\n", found, of_thousand);
    return found < of_thousand;
}

/* --- data --- */

static const struct alphabet *now;

static void one_label(struct text *t, size_t n)
{
    add_random(t, now->set, n);
}

static void labels_of_8(struct text *t, size_t n)
{
    struct text whole = { .n = 0 };
    add_random(&whole, now->set, n);
    add_cut(t, whole.p, 8);
}

static void labels_of_16(struct text *t, size_t n)
{
    struct text whole = { .n = 0 };
    add_random(&whole, now->set, n);
    add_cut(t, whole.p, 16);
}

static void test_random_labels(void **state)
{
    (void)state;
    unsigned wrong = 0;
    char what[64];
    for (size_t i = 0; i < ALPHABETS; i++) {
        now = &alphabets[i];
        for (size_t n = now->of_16; n <= 63; n += 9) {
            snprintf(what, sizeof what, "%s in one label", now->what);
            wrong += missed(what, one_label, n, GOAL);
        }
        snprintf(what, sizeof what, "%s in labels of 16", now->what);
        wrong += missed(what, labels_of_16, 48, GOAL);
        snprintf(what, sizeof what, "%s in labels of 8", now->what);
        wrong += missed(what, labels_of_8, 56, GOAL);
    }
    assert_int_equal(wrong, 0);
}

static void text_in_hex(struct text *t, size_t n)
{
    struct text s = { .n = 0 }, coded = { .n = 0 };
    add_sentence(&s, n);
    add_coded(&coded, s.p, n, 4, hex);
    add_cut(t, coded.p, 60);
}

static void text_in_base32(struct text *t, size_t n)
{
    struct text s = { .n = 0 }, coded = { .n = 0 };
    add_sentence(&s, n);
    add_coded(&coded, s.p, n, 5, base32);
    add_cut(t, coded.p, 60);
}

static void text_in_base64(struct text *t, size_t n)
{
    struct text s = { .n = 0 }, coded = { .n = 0 };
    add_sentence(&s, n);
    add_coded(&coded, s.p, n, 6, base64);
    add_cut(t, coded.p, 60);
}

static void test_coded_texts(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t n = 16; n <= 48; n += 16) {
        wrong += missed("a text in hex", text_in_hex, n, GOAL);
        wrong += missed("a text in base32", text_in_base32, n, GOAL);
        wrong += missed("a text in base64url, case lost", text_in_base64, n, GOAL);
    }
    assert_int_equal(wrong, 0);
}

/* Keys as they are, in the case that names have. */
static void key(struct text *t, size_t kind)
{
    static const struct {
        const char *head, *set;
        unsigned n;
    } keys[] = { { "sk-ant-api03-", base64, 40 }, { "ghp_", base36, 36 },   { "akia", base32, 16 },
                 { "xoxb-", base36, 24 },         { "glpat-", base64, 20 }, { "sk_live_", base58, 24 } };
    add(t, keys[kind].head);
    add_random(t, keys[kind].set, keys[kind].n);
}

/* As a hand writes it: counted pieces, a word before it, a host's name behind it. */
static void by_hand(struct text *t, size_t kind)
{
    switch (kind) {
    case 0: /* 3-a1b2… */
        add_random(t, "123456789", 1);
        add_char(t, '-');
        add_random(t, hex, 32);
        break;
    case 1: /* 3.a1b2… */
        add_random(t, "123456789", 1);
        add_char(t, '.');
        add_random(t, base32, 30);
        break;
    case 2:
        add(t, word());
        add_char(t, '-');
        add_random(t, base32, 26);
        break;
    case 3:
        add_random(t, hex, 40);
        add_char(t, '.');
        add(t, word());
        add_char(t, '.');
        add(t, word());
        break;
    default: /* the same name twice, as `$(…).$(…)` makes it */
        add_random(t, base36, 20);
        add_char(t, '.');
        add_random(t, base36, 20);
    }
}

static void test_keys(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t kind = 0; kind < 6; kind++)
        wrong += missed("a key as it is, kind", key, kind, kind == 2 ? 900 : GOAL); /* sixteen characters: ten bytes */
    for (size_t kind = 0; kind < 5; kind++)
        wrong += missed("by hand, way", by_hand, kind, GOAL);
    assert_int_equal(wrong, 0);
}

/* --- names that carry nothing --- */

static const char *const own_zones[] = { "my-company.com", "tools-for-work.org", "startup.dev",
                                         "example.co.uk",  "gitforge.net",       "packages.io" };
enum { OWN_ZONES = sizeof own_zones / sizeof *own_zones };
static const char *const searched[] = { "my-company.com.team-a.svc.cluster.local",
                                        "tools-for-work.org.svc.cluster.local", "startup.dev.cluster.local",
                                        "packages.io.eu-west-1.compute.internal" };
enum { SEARCHED = sizeof searched / sizeof *searched };

static void add_number(struct text *t, unsigned below)
{
    char s[16];
    snprintf(s, sizeof s, "%u", roll(below));
    add(t, s);
}

static void service(struct text *t, size_t kind)
{
    static const char *const stages[] = { "prod",    "staging",   "dev",       "test",
                                          "preview", "eu-west-1", "us-east-2", "internal" };
    switch (kind) {
    case 0:
        add(t, word());
        break;
    case 1: /* payment-gateway.staging */
        add(t, word());
        add_char(t, '-');
        add(t, word());
        add_char(t, '.');
        add(t, stages[roll(8)]);
        break;
    case 2: /* worker-12.eu-west-1 */
        add(t, word());
        add_char(t, '-');
        add_number(t, 500);
        add_char(t, '.');
        add(t, stages[roll(8)]);
        break;
    case 3: /* v2-14-3.ledger-docs */
        add_char(t, 'v');
        add_number(t, 20);
        add_char(t, '-');
        add_number(t, 100);
        add_char(t, '.');
        add(t, word());
        add(t, "-docs");
        break;
    case 4: /* mirror-2026-11-07 */
        add(t, "mirror-20");
        add_number(t, 90);
        add(t, "-11-0");
        add_number(t, 9);
        break;
    case 5: /* ip-10-1-2-3.region */
        add(t, "ip-10");
        for (int i = 0; i < 3; i++) {
            add_char(t, '-');
            add_number(t, 256);
        }
        add_char(t, '.');
        add(t, stages[5 + roll(2)]);
        break;
    case 6: /* gatewayledgerforest */
        add(t, word());
        add(t, word());
        add(t, word());
        break;
    case 7: /* payment-gateway-river-table: long, and words */
        for (int i = 0; i < 5; i++) {
            add(t, i ? "-" : "");
            add(t, word());
        }
        break;
    case 8: /* pod names of a set: checkout-0.checkout-headless */
        add(t, word());
        add_char(t, '-');
        add_number(t, 10);
        add_char(t, '.');
        add(t, word());
        add(t, "-headless");
        break;
    default: /* pr-1234-feature-name */
        add(t, "pr-");
        add_number(t, 10000);
        add_char(t, '-');
        add(t, word());
        add_char(t, '-');
        add(t, word());
    }
}

static void by_a_cloud(struct text *t, size_t kind)
{
    static const char uuid[] = "8-4-4-4-12";
    switch (kind) {
    case 0: /* a distribution */
        add_char(t, 'd');
        add_random(t, base36, 13);
        add(t, ".cloudfront.net");
        break;
    case 1: /* a bucket with a suffix by chance */
        add(t, word());
        add_char(t, '-');
        add(t, word());
        add_char(t, '-');
        add_random(t, hex, 8);
        add(t, ".s3.eu-west-1.amazonaws.com");
        break;
    case 2: /* a preview */
        add(t, word());
        add(t, "-git-");
        add(t, word());
        add_char(t, '-');
        add_random(t, base36, 9);
        add(t, ".vercel.app");
        break;
    case 3: /* a tenant that is a UUID */
        for (const char *c = uuid; *c; c++) {
            if (*c == '-')
                add_char(t, '-');
            else
                add_random(t, hex, *c == '1' ? 12 : (size_t)(*c - '0'));
            c += *c == '1';
        }
        add(t, ".azurewebsites.net");
        break;
    case 4: /* an app */
        add(t, word());
        add_char(t, '-');
        add(t, word());
        add_char(t, '-');
        add_number(t, 99999);
        add_char(t, '-');
        add_random(t, hex, 12);
        add(t, ".herokuapp.com");
        break;
    case 5: /* a page */
        add(t, word());
        add(t, word());
        add(t, ".github.io");
        break;
    case 6: /* a machine of a CDN */
        add_char(t, 'e');
        add_number(t, 99999);
        add(t, ".dsc");
        add_random(t, "abcdefgx", 1);
        add(t, ".akamaiedge.net");
        break;
    default: /* a cluster's node */
        add(t, "ec2-");
        add_number(t, 256);
        for (int i = 0; i < 3; i++) {
            add_char(t, '-');
            add_number(t, 256);
        }
        add(t, ".eu-central-1.compute.amazonaws.com");
    }
}

static void test_names_of_work(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t kind = 0; kind < 10; kind++)
        wrong += flagged("names of services, kind", service, kind, own_zones, OWN_ZONES, false) > 5;
    for (size_t kind = 0; kind < 10; kind++) /* as a cluster's search list makes them of those */
        wrong += flagged("names with a search list behind them, kind", service, kind, searched, SEARCHED, false) > 0;
    for (size_t kind = 0; kind < 8; kind++)
        wrong += flagged("names that a cloud gives, kind", by_a_cloud, kind, NULL, 0, false) > 5;
    assert_int_equal(wrong, 0);
}

/* How many new ones of a zone pass in a day under a wildcard rule: what ordinary work may be without
 * exfiltration.exempt. */
static void test_new_names_a_day(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < 10; kind++) {
        struct detector_options o;
        detector_options_default(&o);
        struct detector *d = detector_new(&o, NULL, 0, NULL);
        unsigned passed = 0, refused = 0;
        chance = kind;
        while (!refused) {
            struct text t = { .n = 0 };
            struct detector_finding f;
            service(&t, kind);
            if (kind == 0 || kind == 4) { /* few, but for a number */
                add_char(&t, '-');
                add_number(&t, 1000);
            }
            add(&t, ".my-company.com");
            struct detector_ask ask = {
                .agent = STR("a"), .name = str_c(t.p), .qtype = 1, .approval = DETECTOR_WILDCARD
            };
            detector_judge(d, &ask, 0, &f);
            passed += f.allow && f.cost > 0;
            refused += !f.allow;
        }
        print_message("names of services, kind %zu: %u new ones a day\n", kind, passed);
        assert_in_range(passed, 4, 128);
        detector_free(&d);
    }
}

/* Under a wildcard rule a name passes either way; who reads findings is told of data, and of what instances are called
 * only as much as `info`. */
static void test_instances_under_a_rule(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum detector_severity severity;
    } table[] = {
        { "x7k2q9vz1m4c8t-8080.proxy.my-company.com", DETECTOR_INFO },
        { "deadbeef.cafebabe.preview.my-company.com", DETECTOR_INFO },
        { "customer-production.us-east-1.api.my-company.com", DETECTOR_QUIET },
        /* a text in hex, in labels of 28; in base32; fourteen characters of hex alone; four labels of eight */
        { "7365637265747365637265747365.63726574.my-company.com", DETECTOR_FLAGGED },
        { "onswg4tforzwky3smv2hgzldojsxi.my-company.com", DETECTOR_FLAGGED },
        { "3f9ac07714e2d0.my-company.com", DETECTOR_FLAGGED },
        { "q7w2e9r4.x1z8k3v6.j5h2g7f4.m9n3b8v1.my-company.com", DETECTOR_FLAGGED },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct detector_options o;
        struct detector_finding f;
        char text[DETECTOR_LINE];
        detector_options_default(&o);
        struct detector *d = detector_new(&o, NULL, 0, NULL);
        struct detector_ask ask = {
            .agent = STR("a"), .name = str_c(table[i].name), .qtype = 1, .approval = DETECTOR_WILDCARD
        };
        detector_judge(d, &ask, 0, &f);
        if (!f.allow || f.severity != table[i].severity)
            fail_msg("%s: %s", table[i].name, detector_explain(&f, text));
        /* In a zone that nobody approved both are flagged, and only data is refused. */
        ask.approval = DETECTOR_UNAPPROVED;
        ask.observe = true;
        detector_judge(d, &ask, 0, &f);
        assert_int_equal(f.allow, table[i].severity != DETECTOR_FLAGGED);
        assert_int_equal(f.severity >= DETECTOR_FLAGGED, table[i].severity != DETECTOR_QUIET);
        detector_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_labels),
        cmocka_unit_test(test_coded_texts),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_names_of_work),
        cmocka_unit_test(test_new_names_a_day),
        cmocka_unit_test(test_instances_under_a_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
