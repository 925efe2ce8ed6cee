/* SPDX-License-Identifier: Apache-2.0
 *
 * role_msg: what the supervisor and its roles say to each other, over the SOCK_SEQPACKET pair that a role finds as
 * descriptor 3. One table (role_msg.def) says for every message which fields and how many descriptors it has; encoder
 * and decoder read that table, so there is one parser and nothing to keep in step. Strict: an unknown type, a missing
 * or surplus byte, an unknown kind of role or a wrong number of descriptors is an error, and the channel is closed. */
#ifndef DAEMON_ROLE_MSG_H
#define DAEMON_ROLE_MSG_H

#include "base/msg.h"

enum role_kind {
    ROLE_KIND_NONE = 0,
    ROLE_KIND_SUPERVISOR,
    ROLE_KIND_LOGGER,
    ROLE_KIND_CA,
    ROLE_KIND_MINTER,
    ROLE_KIND_KEEPER,
    ROLE_KIND_RESOLVER,
    ROLE_KIND_WORKER,
    ROLE_KIND_COUNT
};
/* "worker"; "none" for what is no kind. */
const char *role_kind_name(enum role_kind kind);
enum role_kind role_kind_from_name(const char *name);

enum role_msg_type {
    ROLE_MSG_NONE = 0,
#define ROLE_MSG(name, number, body, min, max, doc) ROLE_##name = number,
#include "daemon/role_msg.def"
#undef ROLE_MSG
};

/* Which descriptor a FILE message carries. */
enum role_file {
    ROLE_FILE_NONE = 0,
    ROLE_FILE_CA_KEY,
    ROLE_FILE_CA_CERT,
    ROLE_FILE_AUDIT_DIR,
    ROLE_FILE_ANCHOR_DIR,
    ROLE_FILE_LOG_KEY,
    ROLE_FILE_WAKE,
    ROLE_FILE_BUDGETS,
    ROLE_FILE_COUNT
};

struct role_msg {
    enum role_msg_type type;
    uint64_t id;
    enum role_kind kind;
    uint8_t flag;
    uint32_t index, generation;
    uint64_t number, other;
    struct str text, more, who; /* borrowed */
    int *fds;                   /* as in struct msg: take one by setting its slot to -1 */
    size_t nfds;
};

/* Reads a packet. 0, or -1: not one of ours. to_role: the direction this end accepts. */
int role_msg_parse(const struct msg *m, bool to_role, struct role_msg *ret);
/* Writes the body of m into w (initialised by the caller). 0 or -1 (unknown type, too long). */
int role_msg_put(const struct role_msg *m, struct msg_writer *w);
/* Over a channel, or blocking on a bare descriptor. fds are duplicated. 0 or -1. */
int role_msg_send(struct msg_channel *ch, const struct role_msg *m);
int role_msg_send_blocking(int fd, const struct role_msg *m);

#endif
