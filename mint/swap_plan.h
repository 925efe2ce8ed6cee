/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_plan: what both walks, over a head (swap.h) and over a whole text (swap_text.h), ask of a placeholder that they
 * found, and how it comes into the plan. */
#ifndef MINT_SWAP_PLAN_H
#define MINT_SWAP_PLAN_H

#include "mint/swap.h"

/* Is it the placeholder of the agent that asks? */
bool swap_is_mine(const struct ask *ask, const struct placeholder *ph);
/* Does the credential list such a slot? name: of the header, for SLOT_HEADER. */
bool swap_slot_listed(const struct credential *c, enum slot_kind kind, struct str name);
/* One more item, whose lease is set here. False: the plan is full, or max_occurrences is reached. */
bool swap_plan_add(struct swap_plan *plan, struct swap_item item);

#endif
