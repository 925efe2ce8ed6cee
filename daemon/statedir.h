/* SPDX-License-Identifier: Apache-2.0
 *
 * statedir: state_dir and who owns what in it. Made once by `outgate init`; a server opens it, checks it, and hands
 * descriptors to the roles, which never see a path. It may be moved.
 *
 *   ca/      0700 of the ca's uid      ca.key 0400, ca.pem 0444
 *   keys/    0700 of whoever ran init  install.key 0400, console.token 0400
 *   keys/log 0700 of the log uid       log.key 0400 (Ed25519); the newest checkpoint head, which the logger keeps
 *   audit/   2750 of the log uid       the segments; group outgate where that exists
 *   trust/   0755 of whoever ran init  ca.pem, bundle.pem, truststore.p12, log.pub: nothing secret, for sandboxes
 *   budgets  0600 of who served first  what was spent on names (dns/budget_file.h); the resolver gets it open
 *
 * A CA key that others can read, budgets that others can write, or what belongs to a stranger, is refused. */
#ifndef DAEMON_STATEDIR_H
#define DAEMON_STATEDIR_H

#include "base/buf.h"
#include "daemon/role_msg.h"
#include "daemon/users.h"

/* Makes DIR/state with everything in it. *ret_exists: there is one already (nothing was changed). 0 or -1. */
int statedir_init(const char *dir, const struct users *u, bool *ret_exists, struct err *err);
/* Opens and checks state_dir, and gives what init left to the configured users. The descriptor or -1. */
int statedir_open(struct str path, const struct users *u, struct err *err);
/* Opens one thing for a role (a fresh descriptor each time). */
int statedir_file(int state_fd, enum role_file what, const struct users *u, struct err *err);
int statedir_read_ca(int state_fd, struct buf *out, struct err *err);
/* 32 bytes; out->wipe should be set. */
int statedir_read_install_key(int state_fd, struct buf *out, struct err *err);
int statedir_read_console_token(int state_fd, struct buf *out, struct err *err);

#endif
