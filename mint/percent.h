/* SPDX-License-Identifier: Apache-2.0
 *
 * percent: text with its %XX taken for the bytes they stand for, and where each byte came from, so that what is found
 * in the decoded text can be named in the text as received. For finding, not for reading: a bad % is an ordinary
 * character. Up to three layers (%2561, %252561) are taken off, for some origin may do so too. */
#ifndef MINT_PERCENT_H
#define MINT_PERCENT_H

#include "base/str.h"

struct percent {
    char *text;
    uint32_t *from; /* n + 1 offsets: byte i came from [from[i], from[i + 1]) */
    size_t n;
};
/* 1: there was something to decode; 0: there was nothing (ret is not set); -1: no memory. */
int percent_decode(struct str text, struct percent *ret);
/* Wipes and frees. */
void percent_done(struct percent *p);
static inline struct str percent_str(const struct percent *p)
{
    return str_of(p->text, p->n);
}
/* Did the n bytes at `at` stand there as they are, without a %XX among them? */
bool percent_plain(const struct percent *p, size_t at, size_t n);

#endif
