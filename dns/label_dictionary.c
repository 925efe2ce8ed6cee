/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/label_dictionary.h"

#include <assert.h>

enum { WORD_MAX = 17 };

static const struct word {
    char text[WORD_MAX + 1];
    uint8_t n;
    uint16_t cost;
} words[] = {
#include "dns/label_dictionary.inc"
};

static_assert(sizeof words / sizeof *words == LABEL_WORDS, "label_words.txt has LABEL_WORDS words");

unsigned label_dictionary_cost(struct str label)
{
    if (label.n == 0 || label.n > WORD_MAX)
        return 0;
    size_t low = 0, high = LABEL_WORDS;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct word *w = &words[mid];
        int order = memcmp(w->text, label.p, label.n < w->n ? label.n : w->n);
        if (order == 0 && w->n == label.n)
            return w->cost;
        if (order < 0 || (order == 0 && w->n < label.n))
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

const char *label_dictionary_word(size_t i)
{
    return i < LABEL_WORDS ? words[i].text : NULL;
}
