/* SPDX-License-Identifier: Apache-2.0
 *
 * minter: the reference sidecar's core: sources (env, file, exec) behind the minting protocol, served by libmicrohttpd
 * on a Unix socket. Used by `outgate-mint -c FILE` and, as the private one, by the supervisor for sources written in
 * outgate.yaml. It is the only process that holds a source's value. A file is read anew for every lease, a helper is
 * run for every lease; nothing is kept but what came from an environment variable. */
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
    int value_fd;             /* env: a memfd with the value (closed by minter_new); -1 otherwise */
    const struct str *agents; /* who may have it; none: whoever asks (the keeper has looked) */
    size_t nagents;
};
struct minter_options {
    int listen_fd;      /* listening Unix socket, taken (also on failure) */
    uid_t peer_uids[8]; /* who may ask */
    size_t npeer_uids;
    const struct minter_source *sources; /* copied */
    size_t nsources;
    /* Opens the file of a source anew and returns a descriptor (or -1): the private minter asks the supervisor, the
     * stand-alone one opens the path itself. Called from the minter's threads, one call at a time. */
    int (*open_file)(void *ctx, struct str credential, struct str path);
    void *ctx;
    struct str home; /* HOME of exec helpers; STR_NONE: "/" */
};
struct minter;
/* Starts serving on threads of its own. NULL with the reason. SIGPIPE is ignored from then on. Call secret_init first.
 */
struct minter *minter_new(const struct minter_options *o, struct err *err);
/* Ends what is being asked (helpers are killed), joins the threads, wipes; takes the address and leaves NULL. */
void minter_free(struct minter **m);

#endif
