/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot: everything that one generation of the configuration means, as one run of bytes: the supervisor opened and
 * read it all, packs it into one sealed memfd, and every role compiles the same bytes with the same code. The install
 * key is in the copy for workers only. Reading is strict and bounded; what is read is borrowed from the bytes. */
#ifndef DAEMON_SNAPSHOT_H
#define DAEMON_SNAPSHOT_H

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"

enum { SNAPSHOT_MAX = 64 * 1024 * 1024, SNAPSHOT_FILES_MAX = 4096 };

struct snapshot {
    uint64_t number;
    struct str file, dir, text; /* of outgate.yaml: its name as given, its absolute folder, its bytes */
    struct str install_key;     /* empty for roles that derive no placeholder */
    struct str placeholders;    /* placeholder_list.h, for the resolver; else empty */
    struct str own_ca;          /* PEM */
    struct str system_roots;    /* PEM; also the side file named "system" */
    struct str resolv_conf;
    struct str mint_socket; /* of the private minter, relative to the runtime folder; empty: there is none */
    uint64_t mint_uid;
    struct side_file *files; /* a table of its own (snapshot_done), with borrowed strings */
    size_t nfiles;
};

/* Appends the packed bytes. 0, or -1: too large. */
int snapshot_pack(const struct snapshot *s, struct buf *out);
/* 0 or -1. *ret borrows from bytes; free with snapshot_done. */
int snapshot_unpack(struct str bytes, struct snapshot *ret, struct err *err);
void snapshot_done(struct snapshot *s);

#endif
