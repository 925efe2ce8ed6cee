/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: from a file name to a compiled policy: reads outgate.yaml and every side file it names (the supervisor opens
 * them itself; a role never does), parses, compiles. Everything wrong is in the diag, one line each; a half gathered
 * configuration is never used. */
#ifndef DAEMON_GATHER_H
#define DAEMON_GATHER_H

#include "base/buf.h"
#include "daemon/snapshot.h"

struct gather {
    char *file, *dir; /* as given; absolute folder */
    char *path;       /* absolute, links resolved: names this configuration between processes */
    struct buf text;
    bool was_read; /* the file could be read, whatever is in it */
    struct buf system_roots, resolv_conf;
    struct side_file *files; /* owned, with their bytes; "system" borrows system_roots */
    size_t nfiles, cap;
    const struct config *config; /* owned, or the policy's once that exists */
    struct policy *policy;
};

/* Reads and parses the file only: for commands that want a path out of it. 0, or -1 with the reasons in diag.
 * Call gather_done in either case. */
int gather_config(struct gather *g, const char *file, struct diag *diag);
/* Also its side files, and compiles. */
int gather_policy(struct gather *g, const char *file, struct diag *diag);
/* The path that the file gives this key, out of a file that cannot be parsed: a guess, from the line that begins with the
 * key, for commands that must work while somebody mends the file. NULL: there is no such line, or it says null. Owned. */
char *gather_guess(const struct gather *g, const char *key);
void gather_done(struct gather *g);
/* The snapshot's view of it (borrowed, also the table of files: do not snapshot_done). */
void gather_view(const struct gather *g, struct snapshot *ret);
/* Prints the lines of a diag on stderr or stdout, errors only or all. */
void diag_print(const struct diag *diag, int fd, bool errors_only);

#endif
