/* SPDX-License-Identifier: Apache-2.0
 *
 * segment: the files of the log, FIRSTSEQ-TIME.jsonl, whose names sort in the order of their lines; one is written at
 * its end, the others never again. Blocks are allocated ahead of the end (fallocate, size kept), so that a full disk is
 * met while there is still room for the closes of what is open. Knows files, not lines. */
#ifndef AUDIT_SEGMENT_H
#define AUDIT_SEGMENT_H

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

enum { SEGMENT_NAME_MAX = 64 };

struct segment {
    char name[SEGMENT_NAME_MAX];
    uint64_t first_seq; /* by its name */
    int64_t start_us;   /* by its name: when it was begun */
    uint64_t bytes;
};
/* "0000000000000001-20260101T001000Z.jsonl" */
void segment_name_put(uint64_t first_seq, int64_t start_us, char out[SEGMENT_NAME_MAX]);
bool segment_name_parse(struct str name, struct segment *ret);

struct segment_list {
    struct segment *v; /* oldest first; owned */
    size_t n, cap;
};
/* Every *.jsonl of the folder, sorted by name . A symlink or anything but a regular file is an error. The writer names
 * the owner that each must have and takes only names like the above; with -1 (readers) any owner goes, and another name
 * counts with first_seq 0. 0 or -1. */
int segment_list_read(int dir_fd, unsigned owner, struct segment_list *ret, struct err *err);
void segment_list_done(struct segment_list *l);

/* The writer's view. */
struct segments {
    int dir_fd; /* borrowed */
    struct segment_list list;
    int fd; /* the last of the list, open for appending; -1: none */
    uint64_t size, allocated;
    uint64_t chunk; /* allocated ahead at a time */
    bool no_fallocate;
};
/* Opens the last segment of the list for appending at its end. 0 or -1. */
int segments_resume(struct segments *s, struct err *err);
/* Begins a new one; the old is trimmed to its size and closed (sync it before). 0 or -errno with the old one kept. */
int segments_begin(struct segments *s, uint64_t first_seq, int64_t now_us);
/* Gives back what is allocated ahead. */
void segments_trim(struct segments *s);
/* Leaves a file that cannot be trusted any more (fsync failed); the next write needs segments_begin. */
void segments_abandon(struct segments *s);
/* Appends; bytes written (may be fewer) or -errno. */
ssize_t segments_write(struct segments *s, const char *p, size_t n);
/* Cuts the current one back to `size`. 0 or -errno. */
int segments_cut(struct segments *s, uint64_t size);
/* Starts writing back what is dirty, without waiting. */
void segments_start_writeback(struct segments *s);
/* 0 or -errno. */
int segments_sync(struct segments *s);
/* Is there room for `need` more bytes, certainly? Allocates ahead. 0 or -errno. */
int segments_reserve(struct segments *s, uint64_t need);
uint64_t segments_total(const struct segments *s);
/* How many of the oldest segments ended before `before_us` (the current one never counts). A name that lies after
 * now_us, or is older than an earlier one's, was given while the clock was wrong and says nothing: the segment before it
 * may have been written to until the next one whose name is believed. */
size_t segments_expired(const struct segments *s, int64_t before_us, int64_t now_us);
/* Unlinks the n oldest. */
void segments_drop(struct segments *s, size_t n);
void segments_done(struct segments *s);

#endif
