/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: the shared memory between one writer (sink.h) and the logger: a size-sealed memfd, one page of head and a data
 * area that both ends map twice in a row, so that every record is contiguous and there is no wrap marker to get wrong.
 * A record is u32 length, u32 magic, the encoded event, padding to 8. It is "taken" by one release store of write_pos
 * after its bytes are in place: a writer killed at any instant has taken it or not, and a later reader finds it.
 *
 * Positions are byte counts that only grow. The reader trusts nothing it finds here: it keeps its own position, copies
 * a record out before looking at it, and reads a length once. Everything in the head may be scribbled on by the writer;
 * what that can harm is only its own records. */
#ifndef AUDIT_RING_H
#define AUDIT_RING_H

#include "audit/event.h"
#include "base/err.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
    RING_MAGIC = 0x4f47524e,
    RING_VERSION = 1,
    RING_RECORD_MAGIC = 0x4f477263,
    RING_HEAD_BYTES = 4096,
    RING_MIN_BYTES = 64 * 1024,
    RING_MAX_BYTES = 1 << 30,
    RING_FRAME = 8,
    /* What each open keeps free for its close. A close that finds no more room than that is squeezed into it (sink.c);
     * the logger fills in what the open said. */
    RING_CLOSE_RESERVE = 512,
};

struct ring_head {
    uint32_t magic, version;
    uint64_t bytes;                         /* of the data area, a power of two */
    alignas(64) _Atomic uint64_t write_pos; /* the writer's */
    _Atomic uint64_t want_sync;             /* the writer's: touch done_fd when synced past this */
    _Atomic uint32_t want_room;             /* the writer's: touch done_fd once room or leave to write is back */
    alignas(64) _Atomic uint64_t read_pos;  /* the logger's: up to here it is in the file */
    _Atomic uint64_t synced_pos;            /* the logger's: up to here it survives a power cut */
    _Atomic uint32_t blocked;               /* the logger's: take no new work */
    /* The logger's notes to its own successor: the sequence number of this ring's first line, and the lines that
     * it was about to write, so that a restarted logger neither loses a record nor writes one twice. They speak of the records at
     * pend_pos: once read_pos has passed it, the batch was written and the notes say nothing any more. */
    _Atomic uint32_t pend_n;
    _Atomic uint64_t pend_pos;
    _Atomic uint64_t pend_seq;
    _Atomic uint64_t first_seq;
    alignas(64) _Atomic uint32_t sleeping; /* the logger waits for its eventfd; whoever clears it touches that */
};
static_assert(sizeof(struct ring_head) <= RING_HEAD_BYTES, "the head fits its page");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared between processes");

struct ring {
    struct ring_head *head;
    unsigned char *data; /* `bytes` long, mapped twice in a row */
    size_t bytes;
};
/* Maps a ring memfd after checking seals, size and head. The descriptor stays the caller's. 0 or -1. */
int ring_map(int fd, struct ring *ret, struct err *err);
void ring_unmap(struct ring *r);

static inline size_t ring_frame_size(size_t record)
{
    return (RING_FRAME + record + 7) & ~(size_t)7;
}

/* The reading end: a private position over shared memory. */
enum ring_next { RING_EMPTY, RING_RECORD, RING_BROKEN };
struct ring_reader {
    struct ring ring;
    uint64_t pos;
};
/* 0 or -1. Continues at the ring's read_pos. */
int ring_reader_init(struct ring_reader *rd, int fd, struct err *err);
void ring_reader_done(struct ring_reader *rd);
/* Copies the next record (at most EVENT_MAX bytes) out and steps over it; read_pos is published by ring_reader_commit.
 * RING_BROKEN: the writer's positions or the frame make no sense; nothing more can be read. */
enum ring_next ring_reader_next(struct ring_reader *rd, unsigned char out[EVENT_MAX], size_t *ret_n);
bool ring_reader_pending(const struct ring_reader *rd);
/* Everything read so far is in the file: gives the room back to the writer. */
void ring_reader_commit(struct ring_reader *rd);

#endif
