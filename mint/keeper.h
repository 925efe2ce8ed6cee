/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper: the role that holds leases and speaks only the minting protocol (PRODUCT: Leases), by libcurl over a Unix
 * socket it connects and whose peer uid it checks. It decides again, on its own snapshot, whether (agent, host, port,
 * method, path, scheme) may have the credential, writes the `lease` event itself before it hands a value to a worker,
 * rations each worker, refreshes ahead, backs off, drops and DELETEs, and takes revocations on RUNTIME/keeper.sock. */
#ifndef MINT_KEEPER_H
#define MINT_KEEPER_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"
#include "policy/policy.h"

#include <sys/types.h>

struct keeper;

/* mint_socket: path of the private outgate-mint's socket, for env, file, exec sources (STR_NONE: there is none);
 * mint_uid or root must listen there. Takes its own reference on p; borrows the loop and the sink, which outlive it.
 * Call before the lock-down (libcurl makes a socket pair); afterwards it needs socket(AF_UNIX), connect, accept4 and
 * newfstatat. A sidecar whose socket path is unusable is logged, and its credentials are unavailable. */
struct keeper *keeper_new(struct loop *l, struct policy *p, struct str mint_socket, uid_t mint_uid, struct sink *sink,
                          struct err *err);
/* Gives every lease back (DELETE), for at most KEEPER_FREE_MS; takes the address and leaves NULL. */
enum { KEEPER_FREE_MS = 200 };
void keeper_free(struct keeper **k);
/* The new snapshot: leases of credentials that are gone, or no longer cover their host, are revoked; those of a changed
 * source are replaced. */
void keeper_set_policy(struct keeper *k, struct policy *p, struct str mint_socket);
/* Takes fd (on failure it stays the caller's). A worker of the same index is dropped first. */
int keeper_add_worker(struct keeper *k, unsigned index, int fd, struct err *err);
/* The listening RUNTIME/keeper.sock (takes fd). */
int keeper_listen(struct keeper *k, int fd, struct err *err);

/* For `outgate lease list|revoke` over the supervisor: one JSON array of
 * {"lease_id","credential","agent","host","port", "expires_at","state"} (state: live or replaced; never a value). */
struct buf;
void keeper_list(const struct keeper *k, struct buf *out);
/* By lease id or by credential name (either STR_NONE); how many were revoked. */
size_t keeper_revoke(struct keeper *k, struct str lease_id, struct str credential, const char *who);
/* Leases held, for status. */
size_t keeper_count(const struct keeper *k);

#endif
