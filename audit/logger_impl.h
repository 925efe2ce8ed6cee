/* SPDX-License-Identifier: Apache-2.0
 *
 * The logger's inside, shared by its files: logger.c (rings, loop, timers), logger_fill.c (records -> lines),
 * logger_disk.c (lines -> file, sync, rotation, pruning, anchor), logger_start.c (where the last run ended).
 *
 * One batch at a time: lines are encoded and chained into `out`; then the whole of it is written, and only then the
 * room is given back to the rings. A batch holds at most one contiguous run of lines per ring; its length and first seq
 * stand in the ring while it is being written, so that a logger killed in between leaves enough for its successor to go
 * on exactly. */
#ifndef AUDIT_LOGGER_IMPL_H
#define AUDIT_LOGGER_IMPL_H

#include "audit/age_clock.h"
#include "audit/checkpoint.h"
#include "audit/encode.h"
#include "audit/line.h"
#include "audit/logger.h"
#include "audit/opens.h"
#include "audit/ring.h"
#include "audit/segment.h"

enum {
    LOGGER_OUT_BYTES = 1 << 20,
    LOGGER_RING_QUOTA = 256 << 10, /* of one ring in one batch */
    LOGGER_RINGS_MAX = 1024,
    LOGGER_NOTES = 16,
    LOGGER_BAD_RECORDS = 64, /* of one ring, then it is not read any more */
    LOGGER_HEADROOM = 64 << 10,
    LOGGER_CLOSE_LINE = 1024, /* bytes kept free on the disk per open exchange */
    LOGGER_POLL_MS = 20, /* at most */
    LOGGER_RETRY_MS = 500,
    LOGGER_OWN_LINES = 64,
    LOGGER_PRUNE_MS = 60000,
    LOGGER_ORPHAN_MS = 10000, /* how long after the start the opens of a worker wait for its ring */
    LOGGER_SCAN_MAX = 1 << 30,
};

enum logger_state {
    LOGGER_WRITING,
    LOGGER_LOW,   /* no new work; what was taken is still written */
    LOGGER_STUCK, /* the disk refuses: the batch waits, the rings are not read */
};

struct logger_ring {
    struct ring_reader reader;
    char role[16];
    unsigned index, generation;
    bool worker;    /* its role is `worker`: its index goes into the line */
    uint32_t types; /* bit per event_type that this role may emit */
    int done_fd;
    bool dying, broken;
    unsigned bad;
    uint32_t batch_lines; /* of the batch in `out` */
    uint64_t batch_seq;
    uint64_t written_pos, synced_pos;
    struct opens opens;
};

/* A lifecycle event of the logger's own, waiting for its line. */
struct logger_note {
    const char *what, *severity;
    int64_t wall_us;
    char message[384];
};

struct logger {
    struct loop *loop;
    struct watch wake;
    struct timer poll, sync, checkpoint, anchor_due, retry, prune, orphan;
    int dir_fd, anchor_fd;
    struct logger_options options;
    /* A record waits for the disk for at most poll_ms, until it is looked for, and twice sync_half_ms: audit.sync. */
    uint64_t poll_ms, sync_half_ms;
    struct checkpoint_key *key;
    struct segments segments;
    bool new_segment; /* the current file is not to be written any more */

    /* the chain, as far as encoded */
    uint64_t next_seq;
    char prev[64];
    struct event_ids ids;
    uint64_t since_checkpoint;
    bool checkpoint_now;

    /* the batch */
    char *out;
    size_t out_n, out_done;
    uint64_t out_seq; /* of its first line */

    /* the chain, as far as written; as far as synced */
    uint64_t written_seq;
    uint64_t found_seq; /* the newest line when this logger started: its predecessor's */
    uint64_t own_lines[LOGGER_OWN_LINES]; /* before it: the last lines that loggers wrote for themselves, in a circle */
    size_t nown_lines;
    char written_head[64];
    uint64_t synced_seq;
    bool dirty, writeback_started;
    struct anchor anchor;

    struct logger_ring **rings;
    size_t nrings, first_ring;
    struct opens orphans, due; /* opens of earlier workers: waiting for their ring; to be closed */
    struct logger_note notes[LOGGER_NOTES];
    size_t nnotes, notes_lost;

    enum logger_state state;
    uint64_t blocked_since_ms;
    struct age_clock age;
    bool stopped, anchor_failed, prune_waits;
    struct logger_stats stats;
    void (*ring_closed)(void *ctx, const char *role, unsigned index, unsigned generation);
    void *ring_closed_ctx;
    unsigned char record[EVENT_MAX];
};

/* logger.c */
/* The rings of one writer, whichever incarnation. */
static inline bool same_writer(const struct logger_ring *a, const struct logger_ring *b)
{
    return a->index == b->index && !strcmp(a->role, b->role);
}
void logger_note(struct logger *lg, const char *what, const char *severity, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void logger_set_state(struct logger *lg, enum logger_state state, const char *why);
size_t logger_opens(const struct logger *lg);

/* logger_fill.c: puts the next batch into `out`. */
void logger_fill(struct logger *lg);

/* logger_disk.c */
/* Writes what is left of the batch. 0: it is in the file (and synced, with sync_always); -1: stuck. */
int logger_write(struct logger *lg);
/* The age clock's own time, for the anchor. */
int64_t logger_age_own_us(struct logger *lg);
/* fdatasync of what was written; publishes it to the rings. */
void logger_sync(struct logger *lg);
void logger_anchor(struct logger *lg);
void logger_prune(struct logger *lg);
/* Is there room again? Leaves LOGGER_LOW. */
void logger_look_for_room(struct logger *lg);

/* logger_start.c: finds where the log ends. 0 or -1. */
int logger_start(struct logger *lg, struct err *err);

#endif
