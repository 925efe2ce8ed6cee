/* SPDX-License-Identifier: Apache-2.0
 *
 * The detector against names of others, read from OUTGATE_CORPORA/dns (none of it is in this tree): hosts and sessions
 * that must not be flagged, queries of real tunnels that must, and the list that the letter model was trained on. The
 * same goals are held on names of our own in dns_detector_test.c. */
#include "dns/detector.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *corpus_path(const char *name, char out[4096])
{
    const char *folder = getenv("OUTGATE_CORPORA");
    snprintf(out, 4096, "%s/dns/%s", folder ? folder : "", name);
    return folder ? out : NULL;
}

static FILE *corpus(const char *name)
{
    char path[4096];
    FILE *f = corpus_path(name, path) ? fopen(path, "r") : NULL;
    if (!f) {
        print_message("skipped: no dns/%s under OUTGATE_CORPORA\n", name);
        skip();
    }
    return f;
}

/* The next line that is no comment, without its end; false at the end of the file. */
static bool next_line(FILE *f, char *line, size_t size, struct str *ret)
{
    while (fgets(line, (int)size, f)) {
        *ret = str_of(line, strcspn(line, "\r\n"));
        if (ret->n > 0 && line[0] != '#')
            return true;
    }
    return false;
}

static struct str column(struct str line, unsigned i)
{
    struct str field = STR_NONE;
    for (unsigned k = 0; k <= i; k++)
        if (!str_split(&line, '\t', &field))
            return STR_NONE;
    return field;
}

/* Lower case in place. */
static struct str folded(char *line, struct str s)
{
    char *p = line + (s.p - line);
    for (size_t i = 0; i < s.n; i++)
        p[i] = ascii_lower(p[i]);
    return s;
}

static struct detector *fresh(enum detector_act tunnel)
{
    struct detector_options o;
    detector_options_default(&o);
    o.tunnel = tunnel;
    struct detector *d = detector_new(&o, NULL, 0, NULL);
    assert_non_null(d);
    return d;
}

static void test_generator(void **state)
{
    (void)state;
    char path[4096], command[5000], a[8192], b[8192];
    fclose(corpus("train-labels100k.txt"));
    snprintf(command, sizeof command, "python3 dns/name_tables.py letters '%s'",
             corpus_path("train-labels100k.txt", path));
    FILE *made = popen(command, "r"), *kept = fopen("dns/letter_model.inc", "r");
    assert_non_null(made);
    assert_non_null(kept);
    unsigned lines = 0;
    while (fgets(a, sizeof a, kept)) {
        lines++;
        if (!fgets(b, sizeof b, made) || strcmp(a, b) != 0)
            fail_msg("dns/letter_model.inc:%u: the generator prints another line", lines);
    }
    assert_null(fgets(b, sizeof b, made));
    assert_int_equal(pclose(made), 0);
    fclose(kept);
    assert_int_equal(lines, 2 + LETTER_SYMBOLS * LETTER_SYMBOLS);
}

/* Each host alone, in observe mode. */
static void check_hosts(const char *file, unsigned per_mille)
{
    char line[1024], text[DETECTOR_LINE];
    struct str name;
    struct detector *d = NULL;
    unsigned n = 0, flagged = 0, spent = 0, blocked = 0;
    FILE *f = corpus(file);
    while (next_line(f, line, sizeof line, &name)) {
        char agent[16];
        struct detector_finding found;
        if (n % 512 == 0) {
            detector_free(&d);
            d = fresh(DETECTOR_BLOCK);
        }
        snprintf(agent, sizeof agent, "a%u", n);
        struct detector_ask ask = { .agent = str_c(agent), .name = folded(line, name), .qtype = 1, .observe = true };
        detector_judge(d, &ask, 0, &found);
        n++;
        spent += found.rule == DETECTOR_SPENT;
        blocked += !found.allow;
        if (found.severity >= DETECTOR_FLAGGED && ++flagged <= 10)
            print_message("%s\n", detector_explain(&found, text));
    }
    fclose(f);
    detector_free(&d);
    print_message("%s: %u names, %u flagged, %u blocked, %u over budget\n", file, n, flagged, blocked, spent);
    assert_true(n > 100);
    assert_int_equal(blocked, 0);
    assert_int_equal(spent, 0);
    assert_true(flagged * 1000 <= n * per_mille);
}

static void test_hosts(void **state)
{
    (void)state;
    check_hosts("benign-debian12-homepage-hosts.txt", 5);
    check_hosts("benign-agent-egress-hosts.txt", 5);
}

/* All hosts that an agent's workflows reach, in one session of one agent: three dials each. */
static void test_one_session(void **state)
{
    (void)state;
    char line[1024], text[DETECTOR_LINE];
    struct str name;
    FILE *f = corpus("benign-agent-egress-hosts.txt");
    struct detector *d = fresh(DETECTOR_BLOCK);
    uint32_t most = 0;
    unsigned n = 0, refused = 0;
    while (next_line(f, line, sizeof line, &name)) {
        struct detector_ask ask = {
            .agent = STR("a"), .name = folded(line, name), .approval = DETECTOR_WILDCARD, .event = DETECTOR_DIAL
        };
        struct detector_finding found;
        for (int i = 0; i < 3; i++) {
            detector_judge(d, &ask, n, &found);
            refused += !found.allow;
            if (found.severity >= DETECTOR_FLAGGED)
                print_message("%s\n", detector_explain(&found, text));
        }
        n++;
        uint32_t spent = budget_spent(detector_budget(d), ask.agent, found.zone.zone, n);
        most = spent > most ? spent : most;
    }
    fclose(f);
    print_message("%u hosts in one session: %u refused, the most spent zone %u bits, all together %u\n", n, refused, most,
                  budget_any_spent(detector_budget(d), STR("a"), 0));
    assert_true(4 * budget_any_spent(detector_budget(d), STR("a"), 0) < 65536);
    detector_free(&d);
    assert_int_equal(refused, 0);
}

/* A cache stands before the detector: what was asked within a minute does not go upstream again. */
enum { ASKED_MAX = 2048, CACHED_MS = 60000 };
struct asked {
    uint64_t key, at_ms;
};

static bool is_cached(struct asked *v, size_t *n, struct str agent, struct str name, uint64_t now)
{
    uint64_t key = str_hash(agent) * 3 + str_hash(name);
    for (size_t i = 0; i < *n; i++) {
        if (v[i].key != key)
            continue;
        if (now - v[i].at_ms < CACHED_MS)
            return true;
        v[i].at_ms = now;
        return false;
    }
    assert_true(*n < ASKED_MAX);
    v[(*n)++] = (struct asked) { .key = key, .at_ms = now };
    return false;
}

/* Other people's captures in observe mode, as far as names in them are hosts. */
static void test_sessions(void **state)
{
    (void)state;
    static struct asked asked[ASKED_MAX];
    char line[1024], text[DETECTOR_LINE], capture[256] = "";
    struct str row;
    struct detector *d = NULL;
    FILE *f = corpus("benign-sessions.tsv");
    size_t nasked = 0;
    unsigned n = 0, flagged = 0, spent = 0, blocked = 0;
    while (next_line(f, line, sizeof line, &row)) {
        struct str file = column(row, 0), agent = column(row, 1), name = folded(line, column(row, 4));
        struct detector_finding found;
        uint64_t now = 0;
        assert_true(str_to_u64(column(row, 2), UINT64_MAX, &now));
        if (!str_eq(file, str_c(capture))) {
            detector_free(&d);
            d = fresh(DETECTOR_BLOCK);
            nasked = 0;
            snprintf(capture, sizeof capture, "%.*s", STR_ARG(file));
        }
        if (is_cached(asked, &nasked, agent, name, now))
            continue;
        struct detector_ask ask = { .agent = agent, .name = name, .qtype = 1, .observe = true };
        detector_judge(d, &ask, now, &found);
        if (found.rule == DETECTOR_WIRE || found.rule == DETECTOR_SPECIAL)
            continue;
        n++;
        spent += found.rule == DETECTOR_SPENT;
        blocked += !found.allow;
        if (found.severity >= DETECTOR_FLAGGED && ++flagged <= 10)
            print_message("%.*s: %s\n", STR_ARG(name), detector_explain(&found, text));
    }
    fclose(f);
    detector_free(&d);
    print_message("sessions: %u questions upstream, %u flagged, %u blocked, %u over budget\n", n, flagged, blocked, spent);
    assert_true(n > 200);
    assert_true(blocked <= 2); /* 32 digits of hex as a label, and a UUID as a domain: what a key looks like */
    assert_int_equal(spent, 0);
    assert_true(flagged <= 5);
}

/* What stands under a name in benign-lookalikes.tsv as "silent" is. */
static void test_lookalikes(void **state)
{
    (void)state;
    char line[1024], text[DETECTOR_LINE];
    struct str row;
    FILE *f = corpus("benign-lookalikes.tsv");
    struct detector *d = fresh(DETECTOR_BLOCK);
    unsigned n = 0, silent = 0, hits = 0, wrong = 0;
    while (next_line(f, line, sizeof line, &row)) {
        struct str name = folded(line, column(row, 2)), expected = column(row, 3);
        struct detector_finding found;
        struct detector_ask ask = { .agent = STR("a"), .name = name, .qtype = 1, .observe = true };
        detector_judge(d, &ask, 0, &found);
        bool flag = found.severity >= DETECTOR_FLAGGED, hit = str_starts(expected, STR("llr hit"));
        n++;
        hits += hit;
        silent += !flag;
        if (flag != hit) {
            wrong++;
            print_message("%.*s: %s\n", STR_ARG(name), detector_explain(&found, text));
        }
    }
    fclose(f);
    detector_free(&d);
    print_message("lookalikes: %u names, %u silent, %u to be hit, %u otherwise than expected\n", n, silent, hits,
                  wrong);
    assert_true(n > 20 && hits > 0);
    assert_int_equal(wrong, 0);
}

/* --- tunnels --- */

/* Does the query carry bytes of the transfer? iodine's data packets begin with its user id, a hex digit; dns2tcp's
 * label holds a frame header (10 characters) and then the data; dnscat's first query carries some already. */
static bool is_data(struct str file, struct str name)
{
    if (str_find(file, STR("iodine")) >= 0)
        return ascii_hex(name.p[0]) >= 0;
    if (str_find(file, STR("dns2tcp")) >= 0)
        return str_find_char(name, '=') < 0 && str_find_char(name, '.') > 16;
    return true;
}

struct played {
    unsigned queries, alarm, first_data, data_out;
    bool first_out; /* the first data query */
    uint64_t spent; /* bits before the first data query */
};

static struct played play(const char *file, enum detector_act act)
{
    char line[4096], text[DETECTOR_LINE];
    struct str row;
    struct played p = { 0 };
    FILE *f = corpus(file);
    struct detector *d = fresh(act);
    while (next_line(f, line, sizeof line, &row)) {
        struct str name = folded(line, column(row, 2));
        struct detector_finding found;
        struct detector_ask ask = { .agent = STR("a"), .name = name, .qtype = 1, .written = true, .observe = true };
        detector_judge(d, &ask, p.queries++, &found);
        if (found.severity >= DETECTOR_FLAGGED && !p.alarm) {
            p.alarm = p.queries;
            print_message("  %s\n", detector_explain(&found, text));
        }
        bool data = is_data(str_c(file), name), out = found.allow && found.rule != DETECTOR_SPENT;
        if (data && !p.first_data) {
            p.first_data = p.queries;
            p.first_out = out;
            p.spent = budget_spent(detector_budget(d), ask.agent, found.zone.zone, p.queries);
            p.spent -= out ? (found.account.cost + COST_BIT - 1) / COST_BIT : 0;
        }
        p.data_out += data && out;
    }
    fclose(f);
    detector_free(&d);
    return p;
}

/* As configured by default; and with scores that only flag, so that the budget stands alone. Alone it does not stop a
 * transfer that is small itself: a packet of 46 bytes after few and short queries (one iodine session; its large ones
 * were refused before, and what is refused costs nothing), or one that comes first (dnscat). */
static void test_tunnels(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        unsigned alarm; /* at the latest */
        bool alone;     /* the budget alone refuses before the first data byte */
    } table[] = {
        { "tunnel-iodine-auto-51b.tsv", 3, true },    { "tunnel-iodine-auto-64k.tsv", 3, true },
        { "tunnel-iodine-idle60.tsv", 3, true },      { "tunnel-iodine-a-1k.tsv", 3, true },
        { "tunnel-iodine-txt-1k.tsv", 3, true },      { "tunnel-iodine-lower-auto-1k.tsv", 3, false },
        { "tunnel-iodine-ldh-auto-1k.tsv", 9, true }, { "tunnel-iodine-ldh-aonly-51b.tsv", 21, true },
        { "tunnel-dns2tcp-txt-51b.tsv", 2, false },   { "tunnel-dns2tcp-txt-64k.tsv", 2, false },
        { "tunnel-dns2tcp-ldh-txt-51b.tsv", 1, true }, { "tunnel-ndpi-dnscat.tsv", 1, false },
    };
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct played p = play(table[i].file, DETECTOR_BLOCK), alone = play(table[i].file, DETECTOR_FLAG);
        print_message("%s: %u queries, alarm at %u, data from %u, %u of them out; budget alone: %u out, the first %s, "
                      "%u bits spent before it\n",
                      table[i].file, p.queries, p.alarm, p.first_data, p.data_out, alone.data_out,
                      alone.first_out ? "too" : "not", (unsigned)alone.spent);
        wrong += p.alarm == 0 || p.alarm > table[i].alarm || p.data_out > 0 || (table[i].alone && alone.first_out);
    }
    assert_int_equal(wrong, 0);
}

/* A made-up key that ordinary commands carry out: every question whose first label (behind a number) is sixteen encoded
 * characters or more is found; the words of a sentence and a name with hyphens are not. */
static void test_commands(void **state)
{
    (void)state;
    char line[4096];
    struct str row, label;
    FILE *f = corpus("tunnel-agentstyle-commands.tsv");
    struct detector *d = fresh(DETECTOR_BLOCK);
    unsigned n = 0, encoded = 0, missed = 0;
    while (next_line(f, line, sizeof line, &row)) {
        struct str name = folded(line, column(row, 2)), rest = name;
        struct detector_finding found;
        struct detector_ask ask = { .agent = STR("a"), .name = name, .qtype = 1, .written = true };
        detector_judge(d, &ask, n++, &found);
        assert_false(found.allow);
        if (found.rule == DETECTOR_SPECIAL || !str_split(&rest, '.', &label) ||
            (label.n == 1 && !str_split(&rest, '.', &label)))
            continue;
        bool is_encoded = label.n >= 16 && str_find_char(label, '-') < 0;
        encoded += is_encoded;
        missed += is_encoded && found.severity < DETECTOR_FLAGGED;
    }
    fclose(f);
    detector_free(&d);
    print_message("commands: %u questions, %u encoded, %u of them missed\n", n, encoded, missed);
    assert_true(encoded >= 10);
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generator), cmocka_unit_test(test_hosts),      cmocka_unit_test(test_one_session),
        cmocka_unit_test(test_sessions),  cmocka_unit_test(test_lookalikes), cmocka_unit_test(test_tunnels),
        cmocka_unit_test(test_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
