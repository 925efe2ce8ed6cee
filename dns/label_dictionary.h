/* SPDX-License-Identifier: Apache-2.0
 *
 * label_dictionary: 1,024 labels that hosts of software are full of, and what each costs in 1/24 bits by its rank (a
 * Zipf code: the costs of all sum to at most 1). The words are our own list, dns/label_words.txt, in order of
 * frequency; dns/name_tables.py prints the table. */
#ifndef DNS_LABEL_DICTIONARY_H
#define DNS_LABEL_DICTIONARY_H

#include "base/str.h"

enum { LABEL_WORDS = 1024 };

/* 0: not a word of the list. */
unsigned label_dictionary_cost(struct str label);
/* The words in byte order, for tests: NULL past the last. */
const char *label_dictionary_word(size_t i);

#endif
