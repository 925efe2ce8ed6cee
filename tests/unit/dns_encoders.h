/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_encoders: eighteen ways to write bits into the labels of a name, and to read them again, by somebody who knows all tables of
 * dns/name_cost.h. What is written is a payload that both sides know, so that whoever reads can say whether it came. For the tests
 * of the bound (docs/decisions/0026). */
#ifndef TESTS_UNIT_DNS_ENCODERS_H
#define TESTS_UNIT_DNS_ENCODERS_H

#include "base/str.h"
#include "dns/label_dictionary.h"
#include "dns/letter_model.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 512 };

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

/* Before the first encode. */
static void encoders_init(void)
{
    for (size_t i = 0; i < LABEL_WORDS; i++)
        by_cost[i] = i;
    qsort(by_cost, LABEL_WORDS, sizeof *by_cost, compare_cost);
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

#endif
