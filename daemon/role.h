/* SPDX-License-Identifier: Apache-2.0
 *
 * role: one process of the server, re-executed by the supervisor with its end of the channel as descriptor 3. The start
 * is the same for all: read what it is made of (until GO), become its uid, build itself, confine itself, and serve the
 * loop until the supervisor says STOP, drains it, or is gone. What differs is one row of struct role_ops per role. */
#ifndef DAEMON_ROLE_H
#define DAEMON_ROLE_H

#include "audit/sink.h"
#include "daemon/role_msg.h"
#include "daemon/role_values.h"
#include "daemon/snapshot.h"
#include "dns/virtual_table.h"

enum { ROLE_FD = 3, ROLE_SOURCES_MAX = 1024 };

/* A snapshot as a role holds it: the bytes stay mapped while the policy may be used. */
struct role_snapshot {
    uint64_t number;
    struct str bytes;
    struct snapshot view;
    struct policy *policy;
    struct virtual_table *names; /* of resolver.synthetic.pool; NULL: this role has none. Only the resolver writes there */
};
/* Maps, parses and compiles the snapshot in fd, and maps names_fd (-1: none); both are closed. NULL with the reason. */
struct role_snapshot *role_snapshot_new(enum role_kind kind, int fd, int names_fd, struct err *err);
void role_snapshot_free(struct role_snapshot **s);

/* What came before GO; descriptors are -1 where none came. A role takes what it uses by setting its slot to -1. */
struct role_input {
    uint64_t uid, gid;
    int ring[3];
    int files[ROLE_FILE_COUNT];
    int snapshot_fd, names_fd, listen_fd;
    struct tune tune;
    struct role_source {
        struct mint_source source;
        struct str body; /* owned; the source borrows from it */
        int value_fd;
    } * sources;
    size_t nsources;
};

struct role;
struct role_ops {
    enum role_kind kind;
    unsigned allow;       /* of enum lockdown_allow */
    bool filter_first;    /* confine before building (threads are made while building) */
    bool outlives_parent; /* the logger: ends by itself after it flushed */
    int (*open)(struct role *r, struct err *err);
    /* What the common part does not handle. 0 or -1 (unacceptable). */
    int (*on_message)(struct role *r, struct role_msg *m);
    /* New snapshot prepared: take it into use (r->snapshot is the new one, the old one is freed afterwards). NULL: this
     * role has none. */
    void (*on_commit)(struct role *r);
    /* STOP came, or the supervisor is gone. The process ends when it returns. */
    void (*on_stop)(struct role *r);
    /* Appends the members of a JSON object. NULL: none. */
    void (*stats)(struct role *r, struct buf *out);
};
extern const struct role_ops role_ops_logger, role_ops_ca, role_ops_minter, role_ops_keeper, role_ops_resolver,
    role_ops_worker;

struct role {
    const struct role_ops *ops;
    uint32_t index, generation;
    char title[48]; /* "outgate: worker 2" */
    struct loop *loop;
    struct msg_channel *channel;
    struct sink *sink; /* NULL for a role without a ring */
    struct role_input in;
    struct role_snapshot *snapshot, *prepared;
    void *self; /* the role's own */
};

/* argv[2] names the role. Returns the exit status. */
int role_main(const char *name);
/* Sends to the supervisor; a failure means that it is gone and shows as the channel's end. */
void role_send(struct role *r, const struct role_msg *m);

/* role_start.c: reads messages until GO. 0 or -1. */
int role_input_read(struct role *r, struct err *err);
void role_input_done(struct role_input *in);

#endif
