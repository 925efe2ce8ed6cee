/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn: a new process of our own binary, as a role or as a server, with nothing inherited but what is named. */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include "base/err.h"
#include "daemon/role_msg.h"

#include <sys/types.h>

/* Re-executes the binary as that role; cwd_fd is its working folder (-1: /). *ret_channel is our end of its channel.
 * The pid, or -1. */
pid_t spawn_role(enum role_kind kind, uint32_t index, int cwd_fd, int *ret_channel, struct err *err);

#endif
