/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_run: runs a program of the operator's machine (update-ca-certificates, certutil, keytool) for a command, to its
 * end, and takes what it says. Not for roles: they start nothing. The program has no terminal, so that it asks nobody
 * anything, and speaks English. */
#ifndef DAEMON_TOOL_RUN_H
#define DAEMON_TOOL_RUN_H

#include "base/buf.h"
#include "base/err.h"

/* The path of a program found in PATH, or where administrators' programs are (a user's PATH may lack those); the caller
 * frees it. NULL: there is none. */
char *tool_find(const char *name);

/* argv[0] is a path of tool_find, the last one NULL; input is its stdin. What it wrote on stdout and stderr is appended
 * to out as far as there is room. Its exit status (128 plus the signal that killed it), or -1: it could not be run. */
int tool_run(const char *const *argv, struct str input, struct buf *out, struct err *err);

/* Of what a program said, the last line that is not empty: most say there what went wrong. */
struct str tool_last_line(struct str said);

#endif
