/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/letter_model.h"

/* The rows of the printed table one behind the other, which is what the three dimensions are in memory. */
#pragma GCC diagnostic ignored "-Wmissing-braces"
const uint8_t letter_model_costs[LETTER_SYMBOLS][LETTER_SYMBOLS][LETTER_SYMBOLS] = {
#include "dns/letter_model.inc"
};

const uint8_t letter_model_places[256] = {
    ['a'] = 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, /* a to m */
    14,         15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, /* n to z */
    ['0'] = 27, 28, 29, 30, 31, 32, 33, 34, 35, 36,             /* 0 to 9 */
    ['-'] = 37,                                                 /* - */
    ['_'] = 38,                                                 /* _ */
};

unsigned letter_model_label(struct str label)
{
    unsigned a = LETTER_EDGE, b = LETTER_EDGE, sum = 0;
    for (size_t i = 0; i < label.n; i++) {
        unsigned c = (unsigned)letter_of(label.p[i]);
        sum += letter_model_costs[a][b][c];
        a = b;
        b = c;
    }
    return sum + letter_model_costs[a][b][LETTER_EDGE];
}
