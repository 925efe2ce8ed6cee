/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_text: the slots that stand in a text rather than in a head: for now `websocket`, a whole text message of a client. Of the
 * agent's placeholders those whose credential lists the slot and covers the request are swapped, wherever in the text a word may begin
 * and end (never within a longer one), at most max_occurrences times in one text; where the value may stand in a string of JSON it is
 * escaped as JSON, whatever the text begins with. Other placeholders of the agent are inert there, as in any body. One that is another
 * agent's or no longer live is refused, as it is in a head. */
#ifndef MINT_SWAP_TEXT_H
#define MINT_SWAP_TEXT_H

#include "mint/swap.h"

/* Does any credential of this agent have the slot for this request? */
bool swap_text_wanted(const struct policy *p, const struct ask *ask, enum slot_kind slot);
/* Under the policy `now`, is each of those that `then` has still one? */
bool swap_text_keeps(const struct policy *then, const struct ask *asked, const struct policy *now, const struct ask *ask, enum slot_kind slot);

/* Where the planning of one text is; zero at first. A text may be long, so it is planned a piece at a time. */
struct swap_text_walk {
    size_t from; /* what lies before it was looked at */
    unsigned doubts;
    enum end end; /* END_UNSET: nothing is wrong so far */
    struct swap_fault fault;
    const struct placeholder *inert; /* one that stands in the text and goes on as it is, or NULL */
    const struct credential *judged; /* the last one that was, and what came of it */
    bool judged_in_scope;
};
/* Plans about `most` bytes more of the text. END_UNSET: there is more of it. END_OK with the plan (n == 0:
 * nothing to swap; at and n of an item are of the text), or the refusal with w->fault. */
enum end swap_text_plan(const struct placeholder_table *t, const struct policy *p, const struct ask *ask, enum slot_kind slot,
                        struct str text, size_t most, struct swap_text_walk *w, struct swap_plan *plan);
/* The text with its values, appended to out (out->wipe must be set). END_OK or END_CREDENTIAL_UNAVAILABLE: a value that cannot stand in
 * a text, or, having `"` or `\` in it, not in a string of JSON within a string; or no room. */
enum end swap_text_put(const struct swap_plan *plan, struct str text, struct lease *const *leases, struct buf *out);

#endif
