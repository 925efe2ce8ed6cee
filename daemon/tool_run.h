/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_run: runs a program of the operator's machine (update-ca-certificates, certutil, keytool) for a command, to its
 * end, and takes what it says. Not for roles: they start nothing. The program has no terminal, so that it asks nobody
 * anything, and speaks English. Run by root, it is root's: neither found nor led by what the caller's environment says,
 * which sudo or su may have kept of another user's. */
#ifndef DAEMON_TOOL_RUN_H
#define DAEMON_TOOL_RUN_H

#include "base/buf.h"
#include "base/err.h"

enum { TOOL_SECONDS = 60 };

/* The path of a program found in PATH, or where administrators' programs are (a user's PATH may lack those); for root
 * in the system's folders alone. The caller frees it. NULL: there is none. */
char *tool_find(const char *name);

/* May root run, read or change what is there? Nobody else can write it, nor put something else in its place: it and all
 * folders above are root's and not writable by group or others (a folder with the sticky bit may be). The path has no
 * links (realpath). 0 or -1. */
int tool_is_roots(const char *path, struct err *err);

/* argv[0] is a path of tool_find, the last one NULL; input is its stdin. What it wrote on stdout and stderr is appended
 * to out as far as there is room. Its exit status (128 plus the signal that killed it), or -1: it could not be run, or
 * was killed with all that it started because TOOL_SECONDS did not suffice. */
int tool_run(const char *const *argv, struct str input, struct buf *out, struct err *err);
/* The same with another time. */
int tool_run_within(const char *const *argv, struct str input, unsigned ms, struct buf *out, struct err *err);

/* Of what a program said, the last line that is not empty: most say there what went wrong. */
struct str tool_last_line(struct str said);

#endif
