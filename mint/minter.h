/* SPDX-License-Identifier: Apache-2.0
 *
 * minter: the reference sidecar's core: sources (env, file, exec) behind the minting protocol, served by libmicrohttpd on a Unix
 * socket. Used by `outgate-mint -c FILE` and, as the private one, by the supervisor for sources written in outgate.yaml. It is the
 * only process that holds a source's value. */
#ifndef MINT_MINTER_H
#define MINT_MINTER_H

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

enum minter_source_kind { MINTER_ENV = 1, MINTER_FILE, MINTER_EXEC };
struct minter_source {
    struct str credential;
    enum minter_source_kind kind;
    struct str text; /* variable (already resolved into value_fd), absolute path */
    struct str *argv;
    size_t argc;
    uint64_t ttl_ms;
    int value_fd; /* env: a memfd with the value; -1 otherwise */
};
struct minter_options {
    int listen_fd;              /* listening Unix socket, taken */
    uid_t peer_uids[8];         /* who may ask */
    size_t npeer_uids;
    const struct minter_source *sources;
    size_t nsources;
    /* Opens the file of a source anew and returns a descriptor (or -1): the private minter asks the supervisor, the stand-alone one
     * opens the path itself. */
    int (*open_file)(void *ctx, struct str credential, struct str path);
    void *ctx;
};
struct minter;
/* Starts serving on threads of its own. NULL with the reason. */
struct minter *minter_new(const struct minter_options *o, struct err *err);
void minter_free(struct minter **m);

#endif
