/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_text: the slots that stand in a text rather than in a head: for now `websocket`, a whole text message of a client. Of the
 * agent's placeholders those whose credential lists the slot and covers the request are swapped, wherever in the text a word may begin
 * and end (never within a longer one), at most max_occurrences times in one text; where the text is JSON the value is escaped as JSON.
 * Other placeholders of the agent are inert there, as in any body. One that is another agent's or no longer live is refused, as it is
 * in a head. */
#ifndef MINT_SWAP_TEXT_H
#define MINT_SWAP_TEXT_H

#include "mint/swap.h"

/* Does any credential of this agent have the slot for this request? */
bool swap_text_wanted(const struct policy *p, const struct ask *ask, enum slot_kind slot);
/* Under the policy `now`, is each of those that `then` has still one? */
bool swap_text_keeps(const struct policy *then, const struct ask *asked, const struct policy *now, const struct ask *ask, enum slot_kind slot);
/* END_OK with the plan (n == 0: nothing to swap; at and n of an item are of the text), or the refusal with its fault. *ret_inert: a
 * placeholder that stands in the text and goes on as it is, or NULL. */
enum end swap_text_plan(const struct placeholder_table *t, const struct policy *p, const struct ask *ask, enum slot_kind slot,
                        struct str text, struct swap_plan *ret, struct swap_fault *fault, const struct placeholder **ret_inert);
/* The text with its values, appended to out (out->wipe must be set). END_OK or END_CREDENTIAL_UNAVAILABLE: a value that cannot stand in
 * a text, or no room. */
enum end swap_text_put(const struct swap_plan *plan, struct str text, struct lease *const *leases, struct buf *out);

#endif
