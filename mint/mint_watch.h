/* SPDX-License-Identifier: Apache-2.0
 *
 * mint_watch: looks at the files of file sources and, when one has changed, tells a keeper to drop the leases made from
 * its old content (POST /v1/revoke on its socket). For the stand-alone outgate-mint; the private one's files are
 * watched by the supervisor. */
#ifndef MINT_MINT_WATCH_H
#define MINT_MINT_WATCH_H

#include "mint/mint_config.h"

struct mint_watch;
/* Remembers how the files are now. Borrows the configuration. NULL: no memory. */
struct mint_watch *mint_watch_new(const struct mint_config *c);
void mint_watch_free(struct mint_watch **w);
/* Looks again; blocks for at most two seconds per change. A keeper that cannot be told is logged and told at the next
 * look. How many changes it was told of. */
size_t mint_watch_look(struct mint_watch *w);

#endif
