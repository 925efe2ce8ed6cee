/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_cost.h"

#include "dns/label_dictionary.h"

#include <assert.h>

enum { LABEL_MAX = 63, NAME_MAX_BYTES = 253, PART_MIN = 6, WHOLE_MIN = 20, SCORE_MARGIN = 3 * COST_BIT };

/* Choosing a class, in units: 2^-1.5 + 2 * 2^-2 + 5 * 2^-5.25 < 0.99. Encoded labels pay the most for it. */
enum { CHOOSE_LETTERS = 36, CHOOSE_WORD = 48, CHOOSE_END = 48, CHOOSE_UNIFORM = 126, LENGTH = 6 * COST_BIT };

/* log2 of the size of each alphabet, rounded up: 16, 32, 10, 38. Base64 in names has lost its case: of 64 characters
 * two are each letter (5 bits), one each digit, `-` and `_` (6 bits); 26/32 + 12/64 = 1. */
static const uint8_t per_character[NAME_CLASSES] = {
    [CLASS_HEX] = 96, [CLASS_BASE32] = 120, [CLASS_DIGITS] = 80, [CLASS_BASE38] = 126
};
enum { BASE64_LETTER = 5 * COST_BIT, BASE64_OTHER = 6 * COST_BIT };

const char *name_class_text(enum name_class c)
{
    static const char *const texts[NAME_CLASSES] = { "letters", "word", "hex", "base32", "digits", "base38", "base64" };
    return texts[c];
}

bool name_cost_known(struct str name)
{
    size_t label = 0;
    if (name.n > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] == '.') {
            if (label == 0)
                return false;
            label = 0;
            continue;
        }
        if (letter_of(name.p[i]) < 0 || ++label > LABEL_MAX)
            return false;
    }
    return label > 0;
}

/* Which alphabets hold a character. Base32 is a-v 0-9 (base32hex) or a-z 2-7 (RFC 4648): one of the two for a whole
 * text. */
enum { IN_HEX = 1, IN_DIGITS = 2, IN_BASE32 = 4, IN_BASE32HEX = 8 };
static const uint8_t alphabets[LETTERS] = {
    [0 ... 5] = IN_HEX | IN_BASE32 | IN_BASE32HEX, /* a-f */
    [6 ... 21] = IN_BASE32 | IN_BASE32HEX,         /* g-v */
    [22 ... 25] = IN_BASE32,                       /* w-z */
    [26 ... 27] = IN_HEX | IN_DIGITS | IN_BASE32HEX,
    [28 ... 33] = IN_HEX | IN_DIGITS | IN_BASE32 | IN_BASE32HEX,
    [34 ... 35] = IN_HEX | IN_DIGITS | IN_BASE32HEX,
};

struct measured {
    unsigned letters, end; /* by the letter model */
    unsigned uniform;      /* by the cheapest uniform class, without its length */
    enum name_class class; /* which that is */
};

static void choose_uniform(struct measured *m, size_t n, unsigned in, unsigned base64)
{
    m->class = in & IN_DIGITS                    ? CLASS_DIGITS
               : in & IN_HEX                     ? CLASS_HEX
               : in & (IN_BASE32 | IN_BASE32HEX) ? CLASS_BASE32
                                                 : CLASS_BASE38;
    m->uniform = (unsigned)n * per_character[m->class];
    if (m->class == CLASS_BASE38 && base64 < m->uniform) {
        m->class = CLASS_BASE64;
        m->uniform = base64;
    }
}

static struct measured measure(struct str text)
{
    unsigned a = LETTER_EDGE, b = LETTER_EDGE, in = 0xff, base64 = 0;
    struct measured m = { 0 };
    for (size_t i = 0; i < text.n; i++) {
        unsigned c = (unsigned)letter_of(text.p[i]);
        m.letters += letter_model_costs[a][b][c];
        in &= alphabets[c];
        base64 += c < LETTER_DIGITS ? BASE64_LETTER : BASE64_OTHER;
        a = b;
        b = c;
    }
    m.end = letter_model_costs[a][b][LETTER_EDGE];
    choose_uniform(&m, text.n, in, base64);
    return m;
}

static unsigned label_cost(struct str label)
{
    struct measured m = measure(label);
    unsigned letters = CHOOSE_LETTERS + m.letters + m.end;
    unsigned uniform = CHOOSE_UNIFORM + LENGTH + m.uniform;
    unsigned best = letters < uniform ? letters : uniform, word = label_dictionary_cost(label);
    return word && CHOOSE_WORD + word < best ? CHOOSE_WORD + word : best;
}

unsigned name_cost(struct str labels)
{
    unsigned sum = CHOOSE_END;
    struct str label;
    while (labels.n > 0 && str_split(&labels, '.', &label))
        sum += label_cost(label);
    return sum;
}

/* How much likelier a text is under a uniform alphabet than under the letters of names; 0 for words and short ones. */
static unsigned excess(struct str text, enum name_class *ret_class)
{
    if (text.n < PART_MIN || label_dictionary_cost(text))
        return 0;
    struct measured m = measure(text);
    unsigned letters = m.letters + m.end, other = m.uniform + SCORE_MARGIN;
    *ret_class = m.class;
    return letters > other ? letters - other : 0;
}

struct tally {
    unsigned sum, most;
    struct name_score *score;
};

static void count(struct tally *t, struct str text, enum name_class class, unsigned units)
{
    t->sum += units;
    if (units <= t->most)
        return;
    t->most = units;
    t->score->class = class;
    t->score->part = text;
}

/* A label's parts between `-` and `_`, so that a word hides nothing of what stands beside it; or, of a long label, the
 * whole, where that looks more like data: base64url is cut to pieces by its own `-` and `_`. */
static void score_label(struct tally *t, struct str label)
{
    struct tally parts = *t;
    struct name_score by_parts = *t->score;
    enum name_class class = CLASS_LETTERS;
    parts.score = &by_parts;
    size_t cuts = 0;
    for (size_t from = 0, to; from <= label.n; from = to + 1, cuts++) {
        for (to = from; to < label.n && label.p[to] != '-' && label.p[to] != '_'; to++)
            ;
        struct str part = str_sub(label, from, to - from);
        unsigned units = excess(part, &class);
        count(&parts, part, class, units);
    }
    unsigned whole = cuts > 1 && label.n >= WHOLE_MIN ? excess(label, &class) : 0;
    if (t->sum + whole > parts.sum) {
        count(t, label, class, whole);
        return;
    }
    *t->score = by_parts;
    t->sum = parts.sum;
    t->most = parts.most;
}

void name_score(struct str labels, struct name_score *ret)
{
    struct tally t = { .score = ret };
    struct str label;
    *ret = (struct name_score) { .part = STR_NONE };
    while (labels.n > 0 && str_split(&labels, '.', &label))
        score_label(&t, label);
    ret->bits = t.sum / COST_BIT;
}

unsigned name_cost_log2(uint64_t n)
{
    /* 2^(i/24) in 1/65536, rounded down. */
    static const uint32_t steps[COST_BIT] = { 65536,  67456,  69432,  71467,  73561,  75717,  77935,  80219,
                                              82570,  84989,  87480,  90043,  92681,  95397,  98193,  101070,
                                              104031, 107080, 110217, 113447, 116771, 120193, 123715, 127340 };
    if (n <= 1)
        return 0;
    unsigned whole = 63 - (unsigned)__builtin_clzll(n);
    uint64_t mantissa = whole > 16 ? (n >> (whole - 16)) + 1 : n << (16 - whole);
    unsigned part = 0;
    while (part < COST_BIT && steps[part] < mantissa)
        part++;
    return whole * COST_BIT + part;
}
