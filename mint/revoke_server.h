/* SPDX-License-Identifier: Apache-2.0
 *
 * revoke_server: RUNTIME/keeper.sock, where a sidecar withdraws leases: HTTP/1.1, `POST /v1/revoke` with {"lease_id":…}
 * or
 * {"credential":…}, answered 200 {"revoked":N}. A reader of its own for this one request: no other method or path, a
 * Content-Length, 4 KiB of head, 4 KiB of body, 5 s, one request per connection, 16 connections. The peer's uid
 * (SO_PEERCRED) decides who may: anybody else reads 403, whatever was asked. */
#ifndef MINT_REVOKE_SERVER_H
#define MINT_REVOKE_SERVER_H

#include "base/err.h"
#include "base/loop.h"
#include "base/str.h"

#include <sys/types.h>

enum { REVOKE_HEAD_MAX = 4096, REVOKE_BODY_MAX = 4096, REVOKE_CONNECTIONS = 16, REVOKE_TIMEOUT_MS = 5000 };

struct revoke_server;
struct revoke_ops {
    bool (*may)(void *ctx, uid_t uid);
    /* Exactly one of the two is given. How many leases that was. */
    size_t (*revoke)(void *ctx, struct str lease_id, struct str credential, uid_t uid);
};
/* Takes the listening socket (also on failure). */
struct revoke_server *revoke_server_new(struct loop *l, int fd, const struct revoke_ops *ops, void *ctx,
                                        struct err *err);
void revoke_server_free(struct revoke_server **s);

/* The pure part: 200 and the body; 0: more is needed; else the status of the refusal. */
unsigned revoke_request_parse(struct str in, struct str *ret_body);

#endif
