/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: where a role puts its events: the writing end of its ring. The ring is a size-sealed memfd that only this role
 * writes and the logger reads; an event is "taken" once sink_write returned 0, and then survives the role's death. A
 * write costs no system call (an eventfd is touched only when the logger sleeps). Single writer, never blocks.
 *
 * Each `open` reserves room for its `close`: a sink that took the one can always take the other. When the ring is full
 * such a close is squeezed into its reservation (512 bytes): what its open said already and, if need be, long texts are
 * left out; the logger puts the open's part back. */
#ifndef AUDIT_SINK_H
#define AUDIT_SINK_H

#include "audit/event.h"
#include "base/err.h"
#include "base/loop.h"

struct sink;

/* Makes the ring memfd (bytes: power of two >= 64 KiB). The descriptor (close-on-exec, size sealed) or -1. */
int sink_ring_new(size_t bytes, struct err *err);
/* Attaches as the writer. wake_fd is the logger's eventfd, done_fd an eventfd the logger touches when this ring's
 * writer asked for it (sync: always, or a full ring that drained). Both are duplicated by the caller's wish: the sink
 * takes all three, also on failure (NULL). */
struct sink *sink_open(int ring_fd, int wake_fd, int done_fd, struct err *err);
void sink_free(struct sink **s);

/* Can new work start? False when the ring has no room for an open, its close and a finding, when the logger says that
 * it cannot write (disk full), or when it made no progress for lag_ms while records wait. now_ms: loop_now_ms. After a
 * false, done_fd is touched once it is worth asking again (not after a lag: ask again later). */
bool sink_ready(struct sink *s, uint64_t now_ms, uint64_t lag_ms);
/* 0: taken. -1: no room (never for a reserved close). An EVENT_OPEN makes a reservation; an EVENT_CLOSE whose
 * `reserved` is true uses it up; every other event only takes what is not reserved. */
int sink_write(struct sink *s, const struct event *e, bool reserved);
/* Position after the last event taken, and the position up to which the logger has written (synced: and fdatasynced).
 * For sync: always: an exchange waits until sink_synced(s) >= its position. */
uint64_t sink_position(const struct sink *s);
uint64_t sink_written(struct sink *s);
uint64_t sink_synced(struct sink *s);
/* Asks the logger to touch done_fd once `position` is synced; register done_fd with the loop and read it in the
 * callback. It is touched at each sync until the highest position asked for is reached, and at once when it is synced
 * already. */
void sink_want_sync(struct sink *s, uint64_t position);
int sink_done_fd(const struct sink *s);

#endif
