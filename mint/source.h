/* SPDX-License-Identifier: Apache-2.0
 *
 * source: the three places a minter's value can come from, one file each (source_env.c, source_file.c, source_exec.c).
 * Only minter.c calls them, from any of its threads; they keep nothing between calls. Values go into buffers that are
 * wiped. */
#ifndef MINT_SOURCE_H
#define MINT_SOURCE_H

#include "base/buf.h"
#include "base/err.h"
#include "mint/sidecar_json.h"

#include <stdatomic.h>

enum source_result {
    SOURCE_RESULT_UNAVAILABLE = 0, /* 503 */
    SOURCE_RESULT_REFUSED,         /* 403: a helper said no */
    SOURCE_RESULT_GIVEN,
};

enum {
    SOURCE_EXEC_MS = 8000,   /* a helper's whole life; under the keeper's 10 s */
    SOURCE_EXEC_DENIED = 77, /* its exit status that means "no" (EX_NOPERM) */
};

/* Without one trailing LF. Empty, or over 64 KiB: -1. */
int source_trim(struct buf *value, struct err *err);

/* Reads the memfd of an environment variable's value from its start. 0 or -1. */
int source_env_read(int fd, struct buf *ret, struct err *err);
/* Reads an open file, which must be a regular one; closes it. 0 or -1. */
int source_file_read(int fd, struct buf *ret, struct err *err);

struct source_exec {
    char *const *argv; /* argv[0]: a path, or a name looked up in the usual folders */
    const char *home;
    const atomic_bool *stop; /* true: end the helper now */
};
/* Runs the helper with the question on its stdin; what it wrote on its stdout is in ret (at most 64 KiB). It has a
 * group of its own, a clean environment (PATH, HOME, LANG), no descriptor but its stdin and stdout, and is killed with
 * its group at its deadline and at its end. */
enum source_result source_exec_run(const struct source_exec *x, struct str question, struct buf *ret, struct err *err);

#endif
