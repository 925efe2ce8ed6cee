/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/seen.h"

#include <stdlib.h>

struct seen {
    uint64_t sets[SEEN_SETS][SEEN_WAYS]; /* 0: free */
    uint8_t next[SEEN_SETS];             /* who goes next where all are taken */
};

struct seen *seen_new(void)
{
    return calloc(1, sizeof(struct seen));
}

void seen_free(struct seen **s)
{
    free(*s);
    *s = NULL;
}

size_t seen_bytes(void)
{
    return sizeof(struct seen);
}

/* 0 stands for nothing: whatever has that fingerprint is never seen. */
bool seen_has(const struct seen *s, uint64_t fingerprint)
{
    const uint64_t *set = s->sets[fingerprint % SEEN_SETS];
    for (unsigned i = 0; i < SEEN_WAYS; i++)
        if (set[i] == fingerprint)
            return fingerprint != 0;
    return false;
}

void seen_add(struct seen *s, uint64_t fingerprint)
{
    size_t at = fingerprint % SEEN_SETS;
    uint64_t *set = s->sets[at];
    for (unsigned i = 0; i < SEEN_WAYS; i++)
        if (set[i] == 0 || set[i] == fingerprint) {
            set[i] = fingerprint;
            return;
        }
    set[s->next[at]++ % SEEN_WAYS] = fingerprint;
}
