/* SPDX-License-Identifier: Apache-2.0
 *
 * name_cost: how many bits the labels of a name can carry, and how much they look like data. Pure; no allocation.
 *
 * The cost is a code length, and so a bound and not a guess. A list of labels is written as: for each label a class and
 * the label within that class; at last the word "end". The classes and "end" have costs whose 2^-cost sum to less than
 * 1; within each class the labels sum to at most 1 (letters: letter_model.h; words: label_dictionary.h;
 * hex, base32, digits, base38, base64: a length of 1 to 63, 6 bits, then so much a character). So it is a prefix code,
 * and by Kraft's inequality at most 2^B lists of labels cost B bits or less, whatever encoding, compression or
 * encryption made them. Each label is counted at its cheapest class, which is one of its codewords. Costs are whole
 * 1/24 bits, rounded up.
 *
 * The score is the other question: does a part of the name look more like characters by chance than like the letters
 * that names have? Bits by the letter model, less bits by the cheapest uniform class, less 3, summed over the parts
 * between `-` and `_` that have six characters or more and are no words; a label of 20 or more also as a whole. It
 * says "looks encoded" and bounds nothing. */
#ifndef DNS_NAME_COST_H
#define DNS_NAME_COST_H

#include "dns/letter_model.h"

/* A bit in the unit that all costs have. */
enum { COST_BIT = LETTER_UNITS };

enum name_class {
    CLASS_LETTERS = 0,
    CLASS_WORD,
    CLASS_HEX,
    CLASS_BASE32,
    CLASS_DIGITS,
    CLASS_BASE38,
    CLASS_BASE64,
    NAME_CLASSES
};
const char *name_class_text(enum name_class c);

/* Are all bytes of [a-z0-9-_.], with labels of 1 to 63, 1 to 253 in all? Only of such names are costs asked. */
bool name_cost_known(struct str name);
/* What a list of labels with dots between costs; empty: the cost of the end alone. */
unsigned name_cost(struct str labels);

struct name_score {
    unsigned bits;         /* sum over the parts, whole bits, rounded down */
    enum name_class class; /* of the part that has most of it */
    struct str part;       /* that part; within the labels given */
};
void name_score(struct str labels, struct name_score *ret);

/* log2 of n >= 1, rounded up to a unit. */
unsigned name_cost_log2(uint64_t n);

#endif
