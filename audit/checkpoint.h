/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint: the signatures that make the chain more than a checksum. A checkpoint line signs (seq, count, head); the
 * anchor, one small file outside the segments, signs how far the log reached and where it legally begins. Without the
 * key neither can be made, so a recomputed chain, a cut tail and missing segments are found. What they cannot find:
 * lines cut or changed after the newest of both (at most 5 s of a log whose process was killed; nothing after a regular
 * end), and an old copy of segments *and* anchor put back together (keep a copy of the anchor elsewhere if that
 * matters). */
#ifndef AUDIT_CHECKPOINT_H
#define AUDIT_CHECKPOINT_H

#include "base/err.h"
#include "base/str.h"

enum {
    CHECKPOINT_LINES = 1000,     /* no more lines than these without one, itself included */
    CHECKPOINT_MS = 60000,       /* nor more time while there are lines */
    CHECKPOINT_ANCHOR_MS = 5000, /* the anchor follows a moving head at least this often */
    CHECKPOINT_SIGNATURE_B64 = 88,
};
#define AUDIT_ANCHOR_NAME "anchor.json"

struct checkpoint_key; /* private or public */
/* Reads an Ed25519 private key (PKCS#8 PEM) from a descriptor that stays the caller's. NULL: not one. */
struct checkpoint_key *checkpoint_key_read(int fd, struct err *err);
/* Public key from a PEM file. */
struct checkpoint_key *checkpoint_public_read(const char *path, struct err *err);
void checkpoint_key_free(struct checkpoint_key **k);

/* Signature of a checkpoint line, base64. head: 64 hex digits of the line before. 0 or -1. */
int checkpoint_sign(const struct checkpoint_key *k, uint64_t seq, uint64_t count, const char *head,
                    char out[CHECKPOINT_SIGNATURE_B64 + 1]);
bool checkpoint_verify(const struct checkpoint_key *k, uint64_t seq, uint64_t count, struct str head,
                       struct str signature);

struct anchor {
    uint64_t seq;        /* newest line known; 0: none yet */
    char head[64];       /* its hash */
    uint64_t first_seq;  /* where the log begins: 1, or what pruning left */
    char first_prev[64]; /* prev of that line */
    /* When it was written, by the age clock's own time. Signed apart (a later one would let a leap of the clock prune);
     * 0: it does not say, or that signature is not right. */
    int64_t ts_us;
};
/* One JSON line with its signature; length. out must have 1024 bytes. 0: could not sign. */
size_t anchor_put(const struct checkpoint_key *k, const struct anchor *a, char *out);
enum anchor_result { ANCHOR_OK, ANCHOR_NONE, ANCHOR_BAD, ANCHOR_ERROR };
/* Reads and checks `name` in dir_fd (or a path with AT_FDCWD). BAD: not ours, or the signature is wrong. */
enum anchor_result anchor_read(const struct checkpoint_key *k, int dir_fd, const char *name, struct anchor *ret,
                               struct err *err);
/* Replaces the anchor: temporary file, fsync, rename, fsync of the folder. 0 or -1 (errno). */
int anchor_write(const struct checkpoint_key *k, int dir_fd, const struct anchor *a);

#endif
