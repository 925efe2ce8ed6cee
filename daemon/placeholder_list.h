/* SPDX-License-Identifier: Apache-2.0
 *
 * placeholder_list: the placeholders of a snapshot as bytes, for a role that must know them in names and not how they
 * are made: no placeholder is a secret, the install key is one. */
#ifndef DAEMON_PLACEHOLDER_LIST_H
#define DAEMON_PLACEHOLDER_LIST_H

#include "base/buf.h"
#include "dns/canary.h"
#include "policy/policy.h"

/* 0 or -1 with the reason. */
int placeholder_list_put(struct policy *p, struct str install_key, struct buf *out, struct err *err);
/* Of such bytes. NULL with the reason. */
struct canary *placeholder_list_canary(struct str bytes, struct err *err);

#endif
