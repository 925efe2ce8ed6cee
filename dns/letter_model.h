/* SPDX-License-Identifier: Apache-2.0
 *
 * letter_model: what a letter of a label costs after the two before it, in 1/24 bits: an order-2 model of the labels
 * that hosts really have, over a-z 0-9 - _ and the end of a label. It knows no words and keeps no state. The table is
 * printed by dns/name_tables.py. Every row is a prefix code (the sum of 2^-cost over what may follow is at most 1,
 * because costs are rounded up): so the costs of all labels, each with its end, sum to at most 1 as well. */
#ifndef DNS_LETTER_MODEL_H
#define DNS_LETTER_MODEL_H

#include "base/str.h"

enum {
    LETTER_UNITS = 24 /* one bit */,
    LETTERS = 38,
    LETTER_DIGITS = 26 /* 0 to 9 from here on */,
    LETTER_EDGE = LETTERS,
    LETTER_SYMBOLS = LETTERS + 1
};

/* [before last][last][next]; LETTER_EDGE is what stands before a label and behind it. */
extern const uint8_t letter_model_costs[LETTER_SYMBOLS][LETTER_SYMBOLS][LETTER_SYMBOLS];
extern const uint8_t letter_model_places[256]; /* plus 1 */

/* 0 to 37: a-z, 0-9, `-`, `_`. -1: no letter of names (upper case is not). */
static inline int letter_of(char c)
{
    return letter_model_places[(unsigned char)c] - 1;
}

/* 1/24 bits of a label with its end; every byte of it has an index. */
unsigned letter_model_label(struct str label);

#endif
