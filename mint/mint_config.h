/* SPDX-License-Identifier: Apache-2.0
 *
 * mint_config: outgate-mint's own small configuration (docs/outgate-mint.md) as a plain struct. Pure: bytes in, value
 * out; every error is reported as FILE:LINE:COL: KEY: what was expected, what came. Unknown and duplicate keys are
 * errors. */
#ifndef MINT_MINT_CONFIG_H
#define MINT_MINT_CONFIG_H

#include "mint/minter.h"
#include "policy/config.h"

enum { MINT_CONFIG_MAX = 1024 * 1024, MINT_CREDENTIALS_MAX = 10000, MINT_TTL_DEFAULT_MS = 15 * 60 * 1000 };

struct mint_config {
    struct arena arena;
    struct str socket, keeper; /* absolute paths; keeper STR_NONE: nobody is told of a changed file */
    uid_t peer_uids[8];
    size_t npeer_uids; /* 0: the key is absent */
    struct minter_source *sources;
    struct config_at *at; /* where each stands */
    size_t nsources;
};

/* dir: absolute folder of the file, for relative paths. NULL when diag has errors. Free with mint_config_free. */
struct mint_config *mint_config_parse(struct str file, struct str dir, struct str text, struct diag *diag);
void mint_config_free(struct mint_config **c);

#endif
