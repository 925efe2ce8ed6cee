/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime: RUNTIME, the folder of the sockets: the config's runtime_dir, else /run/outgate for root and
 * $XDG_RUNTIME_DIR/outgate for an ordinary user. One server at a time holds its lock. Sockets are bound through an open
 * folder, so that a long path is no obstacle. */
#ifndef DAEMON_RUNTIME_H
#define DAEMON_RUNTIME_H

#include "base/err.h"
#include "policy/config.h"

#include <sys/types.h>

/* The path; the caller frees it. NULL: an ordinary user without XDG_RUNTIME_DIR. config may be NULL. */
char *runtime_path(const struct config *config, struct err *err);
/* Makes it where it is missing (0755), locks it, and returns its descriptor (*ret_lock holds the lock). -1: another
 * server has it
 * (*ret_busy) or it cannot be made. */
int runtime_open(const char *path, int *ret_lock, bool *ret_busy, struct err *err);

/* A listening Unix socket NAME in that folder (or an absolute path with dir_fd AT_FDCWD). A stale socket is removed, a
 * live one or another kind of file is an error. The descriptor (non-blocking) or -1. */
int unix_listen_at(int dir_fd, const char *name, mode_t mode, uid_t uid, gid_t gid, int type, struct err *err);
/* Connects to NAME in the folder; -1 with errno. */
int unix_connect_at(int dir_fd, const char *name, int type);

#endif
