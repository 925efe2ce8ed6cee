/* SPDX-License-Identifier: Apache-2.0
 *
 * budget_state: what was spent, as bytes, and back. The bytes have a version, a checksum and a size of at most
 * BUDGET_STATE_MAX; they hold hashes and no names. What they begin is never more room than there was: a state that was
 * saved while the process went on (not `last`) is loaded with everything charged budget_limits.unsaved bits more,
 * because so much may have gone since; one that is damaged begins every account half spent. Names seen are not kept:
 * each costs its bits once more. */
#ifndef DNS_BUDGET_STATE_H
#define DNS_BUDGET_STATE_H

#include "base/buf.h"
#include "dns/budget.h"

enum { BUDGET_STATE_MAX = 512 * 1024 };

/* last: nothing is charged after this one. Whoever takes the bytes says with budget_kept what came of them. 0, or -1: out
 * of room or memory, nothing is saved. */
int budget_state_put(struct budget *b, bool last, uint64_t now_ms, struct buf *out);
enum budget_state { BUDGET_STATE_WHOLE = 0, BUDGET_STATE_NOT_LAST, BUDGET_STATE_DAMAGED };
/* Into a budget that has not been charged yet. err: what is wrong with a damaged one, and what it was begun with. */
enum budget_state budget_state_load(struct budget *b, struct str bytes, uint64_t now_ms, struct err *err);

#endif
