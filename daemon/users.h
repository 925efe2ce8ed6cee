/* SPDX-License-Identifier: Apache-2.0
 *
 * users: which uid each role runs as. Started as root: the numeric ids 61101 to 61106, or the configured names. Started
 * by an ordinary user: everything is that user, and serve says so. */
#ifndef DAEMON_USERS_H
#define DAEMON_USERS_H

#include "base/err.h"
#include "daemon/role_msg.h"
#include "policy/config.h"

#include <sys/types.h>

enum { UID_KEEP = -1, USERS_FIRST = 61101 };

struct user {
    uid_t uid; /* (uid_t)-1: stay who we are */
    gid_t gid;
};
struct users {
    bool separate; /* started as root */
    struct user net, ca, key, mint, log, console;
    bool has_group; /* the group "outgate" exists */
    gid_t group;
};

/* config may be NULL: the defaults. 0 or -1 (a name that does not exist, or root). */
int users_resolve(const struct config *config, struct users *ret, struct err *err);
struct user users_of(const struct users *u, enum role_kind kind);
/* The uid that role really has: the configured one or our own. */
uid_t user_uid(struct user u);

#endif
