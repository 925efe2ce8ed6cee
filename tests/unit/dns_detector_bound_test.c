/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound, against an adversary: whatever encoder it uses, what a zone's servers can decode out of the names that
 * were let through is never more than the budget. The adversary has eighteen encoders, knows all tables, and is told at
 * once what was refused, so that it tries something smaller, at every moment of three days, over restarts and crashes
 * of the role. What leaves is decoded as the receiver would and compared to what was to be sent: only bits that arrived
 * count. Scores do not help here: they are let through, and the budget stands alone.
 *
 * Not counted is when an event comes: time is outside the bound (docs/decisions/0026). */
#include "dns/budget_state.h"
#include "dns/detector.h"
#include "dns/label_dictionary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { DAY = 86400000, DAYS = 3, EVENTS_MAX = 1 << 16, NAME_ROOM = 512, UNSAVED = 16 };

/* --- chance, and the bits to be sent --- */

static uint64_t chance;
static unsigned roll(unsigned n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(chance >> 33) % n;
}

static unsigned payload_bit(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
    return (i >> 40) & 1;
}

static unsigned payload(uint64_t at, unsigned bits)
{
    unsigned v = 0;
    for (unsigned i = 0; i < bits; i++)
        v = v << 1 | payload_bit(at + i);
    return v;
}

/* --- encoders --- */

enum kind { CHARACTERS, WORDS, GUIDED, SEEN, LENGTH, LABELS, APEX };
static const struct encoder {
    const char *what;
    enum kind kind;
    const char *set;      /* characters: the alphabet */
    unsigned group, bits; /* so many characters or labels carry so many bits */
    unsigned most;        /* groups of one name */
} encoders[] = {
    { "hex", CHARACTERS, "0123456789abcdef", 1, 4, 200 },
    { "base32", CHARACTERS, "abcdefghijklmnopqrstuvwxyz234567", 1, 5, 200 },
    { "base32hex", CHARACTERS, "0123456789abcdefghijklmnopqrstuv", 1, 5, 200 },
    { "base36", CHARACTERS, "0123456789abcdefghijklmnopqrstuvwxyz", 5, 25, 40 },
    { "base38", CHARACTERS, "0123456789abcdefghijklmnopqrstuvwxyz-_", 4, 20, 50 },
    { "digits", CHARACTERS, "0123456789", 10, 33, 20 },
    { "octal", CHARACTERS, "01234567", 1, 3, 200 },
    { "two letters", CHARACTERS, "ae", 1, 1, 200 },
    { "hyphens", CHARACTERS, "-_", 1, 1, 200 },
    { "words, all", WORDS, NULL, 1, 10, 20 },
    { "words, the cheapest 64", WORDS, NULL, 1, 6, 30 },
    { "words, the cheapest 4", WORDS, NULL, 1, 2, 40 },
    { "letters as the model likes them, 4", GUIDED, NULL, 1, 2, 150 },
    { "letters as the model likes them, 2", GUIDED, NULL, 1, 1, 200 },
    { "one of 32 names", SEEN, NULL, 1, 5, 1 },
    { "length of a label", LENGTH, NULL, 1, 5, 1 },
    { "number of labels", LABELS, NULL, 1, 4, 1 },
    { "with www or without", APEX, NULL, 1, 1, 1 },
};
enum { ENCODERS = sizeof encoders / sizeof *encoders };

static size_t by_cost[LABEL_WORDS]; /* words, the cheapest first */

static int compare_cost(const void *a, const void *b)
{
    unsigned x = label_dictionary_cost(str_c(label_dictionary_word(*(const size_t *)a)));
    unsigned y = label_dictionary_cost(str_c(label_dictionary_word(*(const size_t *)b)));
    return x < y ? -1 : x > y;
}

static const char model_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";

/* The letter that is the rank-th cheapest behind a, b. */
static unsigned guided(unsigned a, unsigned b, unsigned rank)
{
    unsigned best = 0;
    uint64_t used = 0;
    for (unsigned r = 0; r <= rank; r++) {
        best = LETTERS;
        for (unsigned c = 0; c < LETTERS; c++)
            if (!(used >> c & 1) && (best == LETTERS || letter_model_costs[a][b][c] < letter_model_costs[a][b][best]))
                best = c;
        used |= 1ull << best;
    }
    return best;
}

struct text {
    char p[NAME_ROOM];
    size_t n, label;
};

static void add(struct text *t, char c)
{
    if (t->n < sizeof t->p)
        t->p[t->n++] = c;
    t->label = c == '.' ? 0 : t->label + 1;
}

static void add_all(struct text *t, const char *s)
{
    for (; *s; s++)
        add(t, *s);
}

/* The labels before the zone that carry groups * e->bits bits of the payload from `at` on. */
static void encode(const struct encoder *e, unsigned groups, uint64_t at, struct text *t)
{
    unsigned a = LETTER_EDGE, b = LETTER_EDGE;
    *t = (struct text) { .n = 0 };
    for (unsigned i = 0; i < groups; i++, at += e->bits) {
        unsigned bits = e->bits > 32 ? 32 : e->bits;
        uint64_t v = payload(at, bits);
        if (e->bits > 32)
            v = v << (e->bits - 32) | payload(at + 32, e->bits - 32);
        if (e->kind == CHARACTERS) {
            size_t base = strlen(e->set);
            if (t->label + e->group > 60)
                add(t, '.');
            for (unsigned k = 0; k < e->group; k++, v /= base)
                add(t, e->set[v % base]);
        } else if (e->kind == WORDS) {
            if (i)
                add(t, '.');
            add_all(t, label_dictionary_word(by_cost[v]));
        } else if (e->kind == GUIDED) {
            if (t->label == 60) {
                add(t, '.');
                a = b = LETTER_EDGE;
            }
            unsigned c = guided(a, b, (unsigned)v);
            add(t, model_letters[c]);
            a = b;
            b = c;
        } else if (e->kind == SEEN) {
            add(t, "abcdefghijklmnopqrstuvwxyz012345"[v]);
        } else if (e->kind == LENGTH) {
            for (unsigned k = 0; k <= v; k++)
                add(t, 'e');
        } else if (e->kind == LABELS) {
            for (unsigned k = 0; k <= v; k++)
                add_all(t, k ? ".s" : "s");
        } else if (v) {
            add_all(t, "www");
        }
    }
}

static unsigned word_index(struct str word)
{
    for (unsigned i = 0; i < LABEL_WORDS; i++)
        if (str_eq(word, str_c(label_dictionary_word(by_cost[i]))))
            return i;
    return LABEL_WORDS;
}

/* The receiver: reads the labels, and says whether they are the payload from `at` on; *ret_bits: how many bits. */
static bool decode(const struct encoder *e, struct str labels, uint64_t at, unsigned *ret_bits)
{
    unsigned a = LETTER_EDGE, b = LETTER_EDGE, groups = 0;
    struct str rest = labels, label;
    bool same = true;
    *ret_bits = 0;
    if (e->kind == SEEN || e->kind == LENGTH || e->kind == LABELS || e->kind == APEX) {
        unsigned v = 0;
        if (e->kind == SEEN)
            v = ascii_digit(labels.p[0]) ? 26 + (unsigned)(labels.p[0] - '0') : (unsigned)(labels.p[0] - 'a');
        else if (e->kind == LENGTH)
            v = (unsigned)labels.n - 1;
        else if (e->kind == LABELS)
            v = (unsigned)labels.n / 2;
        else
            v = labels.n > 0;
        *ret_bits = e->bits;
        return v == payload(at, e->bits);
    }
    while (rest.n > 0 && str_split(&rest, '.', &label)) {
        if (e->kind == WORDS) {
            same = same && word_index(label) == payload(at + groups * e->bits, e->bits);
            groups++;
            continue;
        }
        a = b = LETTER_EDGE;
        for (size_t i = 0; i < label.n; i += e->group, groups++) {
            uint64_t want = at + groups * e->bits, v = 0;
            if (e->kind == GUIDED) {
                unsigned c = (unsigned)letter_of(label.p[i]);
                while (v < 4 && guided(a, b, (unsigned)v) != c)
                    v++;
                a = b;
                b = c;
            } else {
                for (unsigned k = e->group; k > 0; k--)
                    v = v * strlen(e->set) + (uint64_t)(strchr(e->set, label.p[i + k - 1]) - e->set);
            }
            for (unsigned k = 0; k < e->bits; k++)
                same = same && (v >> (e->bits - 1 - k) & 1) == payload_bit(want + k);
        }
    }
    *ret_bits = groups * e->bits;
    return same;
}

/* --- the adversary --- */

struct arrival {
    uint64_t at_ms;
    unsigned bits, zone;
};

struct game {
    struct detector *detector;
    struct buf saved;
    struct detector_options options;
    uint64_t now, mono, mono_from; /* time, and what this process's clock says of it */
    uint64_t position;             /* of the payload */
    struct arrival *arrivals;
    size_t n;
    unsigned restarts;
};

static uint64_t mono(const struct game *g)
{
    return g->mono_from + (g->now - g->mono);
}

static void start(struct game *g, bool with_state)
{
    g->mono = g->now;
    g->mono_from = roll(1000000);
    g->detector = detector_new(&g->options, NULL, mono(g), NULL);
    assert_non_null(g->detector);
    if (with_state)
        assert_true(budget_state_load(detector_budget(g->detector), buf_str(&g->saved), mono(g), NULL) !=
                    BUDGET_STATE_DAMAGED);
}

static void save(struct game *g, bool last)
{
    buf_reset(&g->saved);
    assert_int_equal(budget_state_put(detector_budget(g->detector), last, mono(g), &g->saved), 0);
}

static void restart(struct game *g)
{
    if (roll(2))
        save(g, true); /* else: killed, and what is on the disk is older */
    detector_free(&g->detector);
    start(g, true);
    save(g, false); /* a role that starts says first that it has not ended */
    g->restarts++;
}

static const char *const zones[] = { "evil.test", "evil.example.com", "mine.cloudfront.net" };
static const char *const zone_names[] = { "evil.test", "example.com", "mine.cloudfront.net" };
enum { ZONES = 3 };

/* One name; true: it left, and what it carried is counted. */
static bool attempt(struct game *g, const struct encoder *e, unsigned groups, unsigned zone)
{
    struct text t;
    char name[NAME_ROOM + 64];
    unsigned type = payload_bit(g->position), bits = 0;
    encode(e, groups, g->position + 1, &t);
    int n = snprintf(name, sizeof name, "%.*s%s%s", (int)t.n, t.p, t.n ? "." : "", zones[zone]);
    struct detector_finding f;
    struct detector_ask ask = { .agent = STR("adversary"),
                                .name = str_of(name, (size_t)n),
                                .qtype = type ? 28 : 1,
                                .written = true,
                                .observe = true };
    if (n > 253)
        return false;
    detector_judge(g->detector, &ask, mono(g), &f);
    if (!f.charged)
        return false;
    if (f.save_first)
        save(g, false);
    /* It is out. The receiver takes off the zone, and reads. */
    struct str labels = zone_before(ask.name, str_c(zones[zone]));
    if (!decode(e, labels, g->position + 1, &bits))
        fail_msg("%s: %s does not decode", e->what, name);
    assert_int_equal(bits, groups * e->bits);
    assert_true(g->n < EVENTS_MAX);
    g->arrivals[g->n++] = (struct arrival) { .at_ms = g->now, .bits = bits + 1 /* the type */, .zone = zone };
    g->position += bits + 1;
    return true;
}

/* The most bits that arrived within any 24 hours; of all zones where zone is ZONES. */
static unsigned most_in_a_day(const struct game *g, unsigned zone)
{
    unsigned sum = 0, most = 0;
    size_t from = 0;
    for (size_t i = 0; i < g->n; i++) {
        sum += zone == ZONES || g->arrivals[i].zone == zone ? g->arrivals[i].bits : 0;
        for (; g->arrivals[i].at_ms - g->arrivals[from].at_ms > DAY; from++)
            sum -= zone == ZONES || g->arrivals[from].zone == zone ? g->arrivals[from].bits : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

static void game_init(struct game *g)
{
    *g = (struct game) { .arrivals = calloc(EVENTS_MAX, sizeof *g->arrivals) };
    assert_non_null(g->arrivals);
    detector_options_default(&g->options);
    g->options.tunnel = DETECTOR_FLAG;
    buf_init(&g->saved, BUDGET_STATE_MAX);
    for (size_t i = 0; i < LABEL_WORDS; i++)
        by_cost[i] = i;
    qsort(by_cost, LABEL_WORDS, sizeof *by_cost, compare_cost);
}

static void game_done(struct game *g)
{
    detector_free(&g->detector);
    buf_done(&g->saved);
    free(g->arrivals);
}

enum { ZONE_DAY = 2048 /* bits: 256 bytes */, AGENT_DAY = 2 * 8192 };

/* Each encoder alone: how near it comes. */
static void test_each_encoder(void **state)
{
    (void)state;
    unsigned best = 0;
    for (size_t i = 0; i < ENCODERS; i++) {
        struct game g;
        chance = i;
        game_init(&g);
        start(&g, false);
        for (unsigned t = 0; t < DAYS * 24 * 12; t++, g.now += 300000)
            for (unsigned groups = encoders[i].most; groups > 0;)
                if (!attempt(&g, &encoders[i], groups, 0))
                    groups /= 2;
        unsigned most = most_in_a_day(&g, 0);
        print_message("%-36s %4u bits in a day at most\n", encoders[i].what, most);
        assert_true(most > 0 && most <= ZONE_DAY);
        best = most > best ? most : best;
        game_done(&g);
    }
    assert_true(best > ZONE_DAY / 2); /* the adversary is no fool */
}

/* All of them in any order, over three zones, restarts and crashes. */
static void test_any_mixture(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        struct game g;
        chance = 1000 + round;
        game_init(&g);
        g.options.limits.unsaved = round % 2 ? UNSAVED : 0;
        start(&g, false);
        save(&g, false);
        for (unsigned t = 0; t < 20000 && g.now < (uint64_t)DAYS * DAY; t++) {
            const struct encoder *e = &encoders[roll(ENCODERS)];
            unsigned zone = roll(ZONES), groups = 1 + roll(e->most);
            while (groups > 0 && !attempt(&g, e, groups, zone))
                groups /= 2;
            g.now += roll(4) ? roll(2000) : roll(100000);
            if (round > 1 && roll(400) == 0)
                restart(&g);
        }
        unsigned all = most_in_a_day(&g, ZONES);
        for (unsigned z = 0; z < ZONES; z++) {
            unsigned most = most_in_a_day(&g, z);
            print_message("%s: %u bits in a day at most\n", zone_names[z], most);
            assert_true(most > 0 && most <= ZONE_DAY);
        }
        print_message("round %u: %u names out, %u restarts, %u bits over all\n", round, (unsigned)g.n, g.restarts, all);
        assert_true(all <= AGENT_DAY);
        game_done(&g);
    }
}

/* Killed after every name, before its charge is on the disk unless it must be: a crash refills nothing. */
static void test_kills(void **state)
{
    (void)state;
    for (unsigned unsaved = 0; unsaved <= 256; unsaved += 64) {
        struct game g;
        chance = unsaved;
        game_init(&g);
        g.options.limits.unsaved = unsaved;
        start(&g, false);
        save(&g, false);
        for (unsigned t = 0; t < 1000; t++) {
            attempt(&g, &encoders[5], 1 + roll(3), 0);
            g.now += 1000;
            detector_free(&g.detector);
            start(&g, true);
            save(&g, false);
        }
        unsigned most = most_in_a_day(&g, 0);
        print_message("%3u bits may be unsaved: %u names out, %u bits\n", unsaved, (unsigned)g.n, most);
        assert_true(most > 0 && most <= ZONE_DAY / 2 + 16);
        game_done(&g);
    }
}

/* The control: with ten times the budget the same adversary moves more than the bound. */
static void test_control(void **state)
{
    (void)state;
    struct game g;
    chance = 1;
    game_init(&g);
    g.options.limits.bits = 10240;
    g.options.limits.agent_bits = 81920;
    start(&g, false);
    for (unsigned t = 0; t < 100; t++, g.now += 300000)
        attempt(&g, &encoders[0], 40, 0);
    assert_true(most_in_a_day(&g, 0) > ZONE_DAY);
    game_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_encoder),
        cmocka_unit_test(test_any_mixture),
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
