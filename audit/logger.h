/* SPDX-License-Identifier: Apache-2.0
 *
 * logger: ring -> line -> chain -> segment file, and nothing else. It copies a record out before it validates it,
 * clamps every index it reads from shared memory, stamps the writer's identity, escapes, chains, writes, syncs,
 * checkpoints. It never loses a record it took: when the disk refuses, it keeps what it has, tells every ring to take
 * no new work, and resumes by itself. For a writer that died it drains the ring and closes what was open (end:
 * worker_died). */
#ifndef AUDIT_LOGGER_H
#define AUDIT_LOGGER_H

#include "base/err.h"
#include "base/loop.h"
#include "base/str.h"

struct logger;

struct logger_options {
    int dir_fd;    /* state_dir/audit, owned by the logger's uid, 0750 */
    int anchor_fd; /* the folder where the newest checkpoint head is kept outside the segments (state_dir/keys/log) */
    int key_fd;    /* Ed25519 private key, PKCS#8 PEM; -1 once read */
    uint64_t segment_bytes, keep_ms, max_bytes, sync_ms;
    bool sync_always;
};

/* Continues the chain where the newest segment ends (a torn last line is moved aside to a .torn file and reported as an
 * event). A chain that does not fit the anchor does not stop the service: a `chain_broken` line makes every later
 * verification fail. The descriptors stay the caller's (the folders are duplicated, the key is read). Opens of an
 * earlier run without a close get one (end: worker_died) after 10 s, unless their worker's ring is added again. NULL
 * with the reason: a symlink or special file, a foreign owner, a folder others may write, no key, no anchor writable.
 */
struct logger *logger_new(struct loop *l, const struct logger_options *o, struct err *err);
void logger_free(struct logger **lg);
/* The eventfd that writers touch. */
int logger_wake_fd(const struct logger *lg);
/* Starts reading a ring; the logger takes both descriptors (on failure they stay the caller's). role: "worker",
 * "keeper", …; index: which one; generation: which incarnation. A ring that an earlier logger read goes on where that
 * one stopped: nothing is lost and nothing written twice, and its open exchanges stay open. Rings of one writer are
 * added in the order of their generations. 0 or -1 (not a ring, or there already). A worker may write open, close,
 * conn, finding and lifecycle events; the resolver dns, finding and lifecycle; the others all but open and close.
 * Anything else becomes a `bad_record` line. */
int logger_add_ring(struct logger *lg, const char *role, unsigned index, unsigned generation, int ring_fd, int done_fd,
                    struct err *err);
/* The writer is gone: what is left in its ring is written, its open exchanges are closed, the ring is dropped. For a
 * worker that died while there was no logger: add its ring first, or what was left in it is not written (its opens are
 * closed anyway). */
void logger_ring_died(struct logger *lg, const char *role, unsigned index, unsigned generation);
/* cb is called once a dead writer's ring is dropped: everything it held is in the file and its exchanges are closed.
 * Only then may the ring's descriptor go: until then a logger that dies leaves it to its successor. */
void logger_on_ring_closed(struct logger *lg,
                           void (*cb)(void *ctx, const char *role, unsigned index, unsigned generation), void *ctx);
/* New values after a reload. */
void logger_configure(struct logger *lg, const struct logger_options *o);
/* Writes and syncs everything taken so far, with a final checkpoint; for the end of the process. */
void logger_flush(struct logger *lg);

struct logger_stats {
    uint64_t lines, bytes, seq;
    bool blocked; /* the disk refuses */
    char blocked_why[128];
};
void logger_stats(const struct logger *lg, struct logger_stats *ret);

#endif
