/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper: the role that holds leases and speaks only the minting protocol (PRODUCT: Leases), by libcurl over a Unix socket it
 * connects and whose peer uid it checks. It decides again, on its own snapshot, whether (agent, host, port, method, path, scheme) may have the
 * credential, writes the `lease` event itself before it hands a value to a worker, rations each worker, refreshes ahead, backs
 * off, drops and DELETEs, and takes revocations on RUNTIME/keeper.sock. */
#ifndef MINT_KEEPER_H
#define MINT_KEEPER_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"
#include "policy/policy.h"

struct keeper;

/* mint_socket: path of the private outgate-mint's socket, for env, file, exec sources (STR_NONE: there is none). */
struct keeper *keeper_new(struct loop *l, struct policy *p, struct str mint_socket, uid_t mint_uid, struct sink *sink, struct err *err);
void keeper_free(struct keeper **k);
void keeper_set_policy(struct keeper *k, struct policy *p, struct str mint_socket);
int keeper_add_worker(struct keeper *k, unsigned index, int fd, struct err *err);
/* The listening RUNTIME/keeper.sock (takes fd). */
int keeper_listen(struct keeper *k, int fd, struct err *err);

/* For `outgate lease list|revoke` over the supervisor: one JSON array of {"lease_id","credential","agent","host","port","expires_at",…} (never a
 * value). */
struct buf;
void keeper_list(const struct keeper *k, struct buf *out);
/* By lease id or by credential name (either STR_NONE); how many were revoked. */
size_t keeper_revoke(struct keeper *k, struct str lease_id, struct str credential, const char *who);

#endif
