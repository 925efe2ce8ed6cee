/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual_names: who gets which place of the pool, as the table's one writer. An entry belongs to an agent and a name:
 * the same name of another agent has another address. Where a name goes is a keyed hash of both, so that addresses say
 * nothing of other agents' names or their number, and the same name has the same address again when all was forgotten.
 * An entry keeps its place while there is room; where there is none, one that was not used for limits.virtual_hold is
 * taken back, the agent's own first. One agent leaves room for others (base/fair.h). All of it is read back from the
 * table by the next writer. */
#ifndef DNS_VIRTUAL_NAMES_H
#define DNS_VIRTUAL_NAMES_H

#include "dns/virtual_table.h"

struct virtual_names;
/* Takes a reference of its own. What is no whole record is cleared. */
struct virtual_names *virtual_names_new(struct virtual_table *t, uint64_t now_ms, struct err *err);
void virtual_names_free(struct virtual_names **v);
const struct virtual_table *virtual_names_table(const struct virtual_names *v);
/* The place of this name of this agent's, now in use. False: the agent has its share, or there is no place. */
bool virtual_names_give(struct virtual_names *v, struct str agent, struct str name, uint64_t now_ms, uint64_t hold_ms,
                        uint32_t *ret);
/* It is used: its hold begins again. Nothing, if it has no place. */
void virtual_names_use(struct virtual_names *v, struct str agent, struct str name, uint64_t now_ms);

#endif
