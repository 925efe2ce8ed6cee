/* SPDX-License-Identifier: Apache-2.0
 *
 * seen: a bounded set of 64-bit fingerprints of names. It forgets, and never the other way round: what it says it has
 * seen was added (two names fall together once in 2^64, and whoever does not know the key of the hash cannot look for
 * such two). That is why it is no Bloom filter: one that answers wrongly once in 256 lets whoever may try again have
 * 256 tries, and then a whole name at the price of one that was seen. */
#ifndef DNS_SEEN_H
#define DNS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEEN_WAYS = 8, SEEN_SETS = 16384 }; /* 1 MiB */

struct seen;
/* NULL when out of memory. */
struct seen *seen_new(void);
void seen_free(struct seen **s);
bool seen_has(const struct seen *s, uint64_t fingerprint);
/* Another one of the same set may be forgotten for it. */
void seen_add(struct seen *s, uint64_t fingerprint);
size_t seen_bytes(void);

#endif
