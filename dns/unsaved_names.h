/* SPDX-License-Identifier: Apache-2.0
 *
 * unsaved_names: names that were charged, must not leave before that is in the file, and are not in it yet. Asked again
 * such a name is known and costs nothing, and still must not go ahead of its charge. Bounded; owners share it fairly.
 */
#ifndef DNS_UNSAVED_NAMES_H
#define DNS_UNSAVED_NAMES_H

#include "base/fair.h"

enum { UNSAVED_NAMES_MAX = 4096, UNSAVED_NAMES_HEADS = 1024 };

/* Zero at first. */
struct unsaved_names {
    struct unsaved_name {
        uint64_t key, owner;
        uint16_t next;      /* with the same head: index + 1; 0: none */
    } v[UNSAVED_NAMES_MAX]; /* in the order in which they came */
    uint16_t heads[UNSAVED_NAMES_HEADS];
    size_t n, saving; /* saving: so many of them are in the bytes that are being written */
    struct fair_stock held;
};

/* May this owner have one more, of `all` (UNSAVED_NAMES_MAX at most)? */
bool unsaved_names_may(const struct unsaved_names *u, uint64_t owner, size_t all);
/* key: hash of whose name it is and of the name. Where there is no place (unsaved_names_may was not asked) nothing is
 * kept: false. */
bool unsaved_names_add(struct unsaved_names *u, uint64_t key, uint64_t owner, size_t all);
/* *ret_saving: it is in the bytes that are being written. */
bool unsaved_names_has(const struct unsaved_names *u, uint64_t key, bool *ret_saving);
/* All that are there now are in bytes that are about to be written; and these are in the file. */
void unsaved_names_saving(struct unsaved_names *u);
void unsaved_names_saved(struct unsaved_names *u);
/* They may all go. */
void unsaved_names_clear(struct unsaved_names *u);

#endif
