/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/swap_plan.h"

bool swap_is_mine(const struct ask *ask, const struct placeholder *ph)
{
    return ph->agent == ask->agent || str_eq(ph->agent->name, ask->agent->name);
}

bool swap_slot_listed(const struct credential *c, enum slot_kind kind, struct str name)
{
    for (size_t i = 0; i < c->nslots; i++)
        if (c->slots[i].kind == kind && (kind != SLOT_HEADER || str_eq_nocase(c->slots[i].name, name)))
            return true;
    return false;
}

/* Index of the credential among those wanted; SWAP_MAX: no room. */
static size_t want(struct swap_plan *plan, const struct credential *c)
{
    for (size_t i = 0; i < plan->nwanted; i++)
        if (plan->wanted[i] == c)
            return i;
    if (plan->nwanted == SWAP_MAX)
        return SWAP_MAX;
    plan->wanted[plan->nwanted] = c;
    return plan->nwanted++;
}

bool swap_plan_add(struct swap_plan *plan, struct swap_item item)
{
    size_t i = want(plan, item.ph->credential);
    unsigned used = 0;
    if (i == SWAP_MAX || plan->n == SWAP_MAX)
        return false;
    for (size_t k = 0; k < plan->n; k++)
        used += plan->items[k].lease == i;
    if (used >= item.ph->credential->max_occurrences)
        return false;
    item.lease = (unsigned)i;
    plan->items[plan->n++] = item;
    return true;
}
