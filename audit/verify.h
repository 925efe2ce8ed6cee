/* SPDX-License-Identifier: Apache-2.0
 *
 * verify and tail: reading the segments back. Verification recomputes the chain, checks every checkpoint's signature
 * with the public key, and compares both ends with the anchor kept outside the segments, so that a changed, dropped,
 * swapped or inserted line, a cut tail, a missing segment and a recomputed chain are found, for as long as the lines
 * around the damage are kept. Runs beside a live logger: the anchor is read first, a line still being written at the
 * very end is no fault. */
#ifndef AUDIT_VERIFY_H
#define AUDIT_VERIFY_H

#include "audit/checkpoint.h" /* AUDIT_ANCHOR_NAME: the anchor's file name in its folder */
#include "base/err.h"
#include "base/str.h"

#include <stdio.h>

struct verify_result {
    bool ok;
    uint64_t lines, checkpoints, segments;
    uint64_t bad_seq;                /* first bad record, where known */
    char bad_where[512];             /* "FILE:LINE: …" */
    uint64_t last_seq, anchored_seq; /* lines after anchored_seq are chained but not yet covered by the anchor */
};
/* audit_dir: folder of *.jsonl; anchor: file of the newest head; pub: Ed25519 public key PEM. 0 (see ret->ok) or -1:
 * could not read. An empty folder without an anchor is not ok: a logger that ever started left both. */
int audit_verify(const char *audit_dir, const char *anchor_file, const char *public_key_file, struct verify_result *ret,
                 struct err *err);
/* Prints lines as they come (follow) or the last n, safe for a terminal. json: as stored; else one readable line each.
 * Returns 0, or -1. Ends when *stop becomes true (stop may be NULL). */
int audit_tail(const char *audit_dir, size_t last, bool follow, bool json, FILE *out, const volatile bool *stop,
               struct err *err);

#endif
