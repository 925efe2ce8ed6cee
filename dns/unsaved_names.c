/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/unsaved_names.h"

#include <string.h>

bool unsaved_names_may(const struct unsaved_names *u, uint64_t owner, size_t all)
{
    return u->held.used < all && fair_may(u->held.held[owner % FAIR_PLACES], u->held.used, all);
}

static void link_name(struct unsaved_names *u, size_t i)
{
    uint16_t *head = &u->heads[u->v[i].key % UNSAVED_NAMES_HEADS];
    u->v[i].next = *head;
    *head = (uint16_t)(i + 1);
}

bool unsaved_names_has(const struct unsaved_names *u, uint64_t key, bool *ret_saving)
{
    for (uint16_t i = u->heads[key % UNSAVED_NAMES_HEADS]; i; i = u->v[i - 1].next)
        if (u->v[i - 1].key == key) {
            *ret_saving = i <= u->saving;
            return true;
        }
    return false;
}

bool unsaved_names_add(struct unsaved_names *u, uint64_t key, uint64_t owner, size_t all)
{
    bool saving;
    if (unsaved_names_has(u, key, &saving))
        return true;
    if (u->n == UNSAVED_NAMES_MAX || !fair_take(&u->held, owner, 1, all))
        return false;
    u->v[u->n++] = (struct unsaved_name) { .key = key, .owner = owner };
    link_name(u, u->n - 1);
    return true;
}

void unsaved_names_saving(struct unsaved_names *u)
{
    u->saving = u->n;
}

static void drop(struct unsaved_names *u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fair_give(&u->held, u->v[i].owner, 1);
    u->n -= n;
    memmove(u->v, u->v + n, u->n * sizeof *u->v);
    memset(u->heads, 0, sizeof u->heads);
    for (size_t i = 0; i < u->n; i++)
        link_name(u, i);
    u->saving = 0;
}

void unsaved_names_saved(struct unsaved_names *u)
{
    drop(u, u->saving);
}

void unsaved_names_clear(struct unsaved_names *u)
{
    drop(u, u->n);
}
