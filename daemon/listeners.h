/* SPDX-License-Identifier: Apache-2.0
 *
 * listeners: the sockets of listen.proxy and listen.dns, bound once by the supervisor and kept across reloads; every worker gets
 * a copy of each descriptor of the one, the resolver of the other. A reload binds what is new first (so that a port in use refuses the reload and changes
 * nothing) and closes what is gone only after the commit. */
#ifndef DAEMON_LISTENERS_H
#define DAEMON_LISTENERS_H

#include "daemon/role_values.h"
#include "policy/config.h"

struct listener {
    char *text; /* as written: the name between processes */
    char *path; /* unix sockets: what to remove at the end; relative to the runtime folder or absolute */
    int fd;
    int udp_fd;   /* of the DNS port; -1: a listener of the proxy */
    bool is_new;  /* bound for a reload that is not committed */
    bool is_gone; /* not in the new configuration */
};
struct listeners {
    struct listener *v;
    size_t n;
    int runtime_fd;
    gid_t socket_gid; /* group of unix sockets that no claim names an owner for; (gid_t)-1: none */
};

/* Binds what the configuration lists and we do not have, and marks what it no longer lists. 0, or -1 and nothing
 * changed. */
int listeners_prepare(struct listeners *ls, const struct config *c, struct err *err);
/* After it: forget the new ones, or close the gone ones and keep the new. */
void listeners_abort(struct listeners *ls);
void listeners_commit(struct listeners *ls);
/* Gives the unix sockets to whom the claims of this configuration name (they may have changed while the socket stayed).
 */
void listeners_own_sockets(struct listeners *ls, const struct config *c);
/* Closes all and removes the sockets' names. */
void listeners_close(struct listeners *ls);
/* Renews what we are bound to, an any-address expanded to every address of this machine as well. Where the addresses
 * cannot be listed, or are more than OWN_MAX, what was known before stays in the list and the operator is told: it
 * never shrinks by a failure. True: the list is another now. */
bool listeners_own(const struct listeners *ls, struct own_list *own);
/* "127.0.0.1:3128, unix:coder.sock" for the ready line. */
void listeners_put(const struct listeners *ls, struct buf *out);

#endif
