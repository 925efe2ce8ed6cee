/* SPDX-License-Identifier: Apache-2.0
 *
 * saver: bytes into a file and synced, by a thread of its own, so that a loop never waits for the disk. One save at a
 * time. The thread knows nothing but the descriptor, the offset and the bytes it was handed; it allocates nothing and
 * tells the end through an eventfd. Made before lockdown_filter, whose filter then holds for it too. */
#ifndef BASE_SAVER_H
#define BASE_SAVER_H

#include "base/err.h"
#include "base/loop.h"
#include "base/str.h"

struct saver;
/* cb: a save has ended; error: 0 or an errno. NULL: no thread, or no descriptor for it. */
struct saver *saver_new(struct loop *l, void (*cb)(void *ctx, int error), void *ctx, struct err *err);
/* Writes all of bytes at offset, then fdatasync. fd and bytes stay the caller's and as they are until it has ended.
 * None may be under way. */
void saver_start(struct saver *s, int fd, uint64_t offset, struct str bytes);
bool saver_busy(const struct saver *s);
/* For an end: waits for the one under way, at most so long, without cb. 0; an errno of the save; or ETIMEDOUT: it is
 * under way still. */
int saver_wait(struct saver *s, unsigned max_ms);
/* False: a disk that hangs holds the thread. It is left behind, and with it whatever it was handed: neither may go
 * before the process does. */
bool saver_free(struct saver **s);

#endif
