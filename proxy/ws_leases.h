/* SPDX-License-Identifier: Apache-2.0
 *
 * ws_leases: the leases, by id, whose values a WebSocket sent and that a newer one of the same credential has followed.
 * The host may take such a value until the lease ends, so each of them can be revoked by itself until then. No value is
 * held here. */
#ifndef PROXY_WS_LEASES_H
#define PROXY_WS_LEASES_H

#include "mint/lease.h"

/* Zero at first. */
struct ws_leases {
    struct ws_lease *first;
};

/* Notes one; those that are over at now_us are forgotten. At most `most` are kept. NULL, or why there is no room for it
 * (static). */
const char *ws_leases_add(struct ws_leases *ls, const struct lease *lease, int64_t now_us, size_t most);
bool ws_leases_has(const struct ws_leases *ls, const char *id);
void ws_leases_done(struct ws_leases *ls);

#endif
