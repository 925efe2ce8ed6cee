/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines -> file. Three things may go wrong and are kept apart:
 *  - no room (ENOSPC, EDQUOT, a read-only disk): the batch waits where it is and goes on in the same file;
 *  - a write error: the file is suspect; it is cut back to its last whole line and a new segment takes the rest;
 *  - an fsync error: never asked again of that file (the kernel may have dropped the pages and would say yes). With
 * sync: always the batch, which nobody was told about yet, is written again into a new segment; with a period the lines
 * since the last sync may be lost to a power cut, and a lifecycle event says which. */
#include "audit/logger_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static bool no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EROFS;
}

static int stuck(struct logger *lg, int error)
{
    logger_set_state(lg, LOGGER_STUCK, strerror(error));
    return -1;
}

static uint64_t headroom(const struct logger *lg)
{
    return LOGGER_HEADROOM + (uint64_t)logger_opens(lg) * LOGGER_CLOSE_LINE;
}

/* 0, or -errno; EFBIG stands for audit.max_bytes. */
static int room_for(struct logger *lg, uint64_t need)
{
    int r = segments_reserve(&lg->segments, need);
    if (!r && lg->options.max_bytes && segments_total(&lg->segments) + need > lg->options.max_bytes)
        r = -EFBIG;
    return r;
}

static void judge_room(struct logger *lg, int r)
{
    if (r)
        logger_set_state(lg, LOGGER_LOW,
                         r == -EFBIG ? "audit.max_bytes is reached and every segment is within audit.keep"
                                     : strerror(-r));
    else if (lg->state != LOGGER_WRITING)
        logger_set_state(lg, LOGGER_WRITING, NULL);
}

void logger_look_for_room(struct logger *lg)
{
    if (lg->segments.fd < 0 || lg->new_segment) {
        int r = segments_begin(&lg->segments, lg->written_seq + 1, clock_wall_us());
        if (r)
            return;
        lg->new_segment = false;
    }
    judge_room(lg, room_for(lg, headroom(lg) + (lg->out_n - lg->out_done)));
}

/* --- one batch --- */

/* A new file where one is due. The old one is synced first, so that a sync of the new one speaks for both. */
static int file_for_batch(struct logger *lg)
{
    struct segments *s = &lg->segments;
    bool full = s->fd >= 0 && s->size >= lg->options.segment_bytes && s->size;
    if (s->fd >= 0 && !lg->new_segment && !full)
        return 0;
    if (full && !lg->new_segment && lg->dirty)
        logger_sync(lg);
    int r = segments_begin(s, lg->out_seq, clock_wall_us());
    if (!r) {
        lg->new_segment = false;
        logger_prune(lg);
        return 0;
    }
    /* A disk too full for a new file may still take lines in the old one. */
    return s->fd >= 0 && !lg->new_segment ? 0 : r;
}

static void announce_batch(struct logger *lg)
{
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[i];
        if (!r->batch_lines)
            continue;
        struct ring_head *h = r->reader.ring.head;
        atomic_store_explicit(&h->pend_pos, atomic_load_explicit(&h->read_pos, memory_order_relaxed), memory_order_relaxed);
        atomic_store_explicit(&h->pend_seq, r->batch_seq, memory_order_relaxed);
        atomic_store_explicit(&h->pend_n, r->batch_lines, memory_order_release);
    }
}

/* The batch's first `bytes` are done for good (bytes ends at a line's end): forgets them. */
static void batch_drop(struct logger *lg, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        lg->out_seq += lg->out[i] == '\n';
        lg->stats.lines += lg->out[i] == '\n';
    }
    memmove(lg->out, lg->out + bytes, lg->out_n - bytes);
    lg->out_n -= bytes;
    lg->out_done = 0;
}

static size_t whole_lines(const struct logger *lg)
{
    const char *lf = lg->out_done ? memrchr(lg->out, '\n', lg->out_done) : NULL;
    return lf ? (size_t)(lf - lg->out) + 1 : 0;
}

/* After a write error. The torn line is written again, whole, in the next segment; should the cut fail too, its
 * beginning stays where it is, which verification knows (a torn line that is the beginning of the next segment's
 * first). */
static int suspect_file(struct logger *lg, int error)
{
    size_t whole = whole_lines(lg);
    uint64_t torn = lg->out_done - whole;
    if (torn)
        (void)!segments_cut(&lg->segments, lg->segments.size - torn);
    batch_drop(lg, whole);
    segments_abandon(&lg->segments);
    lg->new_segment = true;
    logger_note(lg, "write_failed", "critical", "writing failed at line %llu (%s); a new segment goes on",
                (unsigned long long)lg->out_seq, strerror(error));
    return stuck(lg, error);
}

static void batch_written(struct logger *lg)
{
    lg->written_seq = lg->next_seq - 1;
    memcpy(lg->written_head, lg->prev, sizeof lg->written_head);
    lg->stats.bytes += lg->out_n;
    lg->stats.lines += lg->next_seq - lg->out_seq;
    lg->stats.seq = lg->written_seq;
    lg->out_n = lg->out_done = 0;
    lg->dirty = true;
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[i];
        r->written_pos = r->reader.pos;
        if (!r->batch_lines)
            continue;
        ring_reader_commit(&r->reader); /* from here on the announced lines are behind read_pos */
        atomic_store_explicit(&r->reader.ring.head->pend_n, 0, memory_order_release);
        r->batch_lines = 0;
        atomic_thread_fence(memory_order_seq_cst);
        if (lg->state == LOGGER_WRITING && !r->broken && atomic_exchange(&r->reader.ring.head->want_room, 0)) {
            uint64_t one = 1;
            (void)!write(r->done_fd, &one, sizeof one);
        }
    }
}

/* sync: always. The batch is not told to anyone before this returned 0. */
static int sync_batch(struct logger *lg, uint64_t size_before)
{
    int r = segments_sync(&lg->segments);
    if (!r)
        return 0;
    bool again = segments_cut(&lg->segments, size_before) == 0;
    segments_abandon(&lg->segments);
    lg->new_segment = true;
    logger_note(lg, "sync_failed", "critical", "fdatasync failed (%s); lines %llu to %llu %s", strerror(-r),
                (unsigned long long)lg->out_seq, (unsigned long long)lg->next_seq - 1,
                again ? "are written again in a new segment" : "may be lost to a power cut");
    if (!again)
        return 0;
    lg->out_done = 0;
    return stuck(lg, -r);
}

static void publish_synced(struct logger *lg)
{
    lg->synced_seq = lg->written_seq;
    lg->dirty = lg->writeback_started = false;
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[i];
        uint64_t before = r->synced_pos;
        if (r->written_pos == before)
            continue;
        r->synced_pos = r->written_pos;
        atomic_store_explicit(&r->reader.ring.head->synced_pos, r->synced_pos, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&r->reader.ring.head->want_sync, memory_order_relaxed) > before) {
            uint64_t one = 1;
            (void)!write(r->done_fd, &one, sizeof one);
        }
    }
}

int logger_write(struct logger *lg)
{
    if (!lg->out_n)
        return 0;
    if (!lg->out_done) {
        int r = file_for_batch(lg);
        if (r)
            return stuck(lg, -r);
        r = room_for(lg, headroom(lg) + lg->out_n);
        if (lg->state != LOGGER_STUCK) /* then only a write that succeeds is good news */
            judge_room(lg, r);
        announce_batch(lg);
    }
    uint64_t size_before = lg->segments.size - lg->out_done;
    while (lg->out_done < lg->out_n) {
        ssize_t n = segments_write(&lg->segments, lg->out + lg->out_done, lg->out_n - lg->out_done);
        if (n < 0)
            return no_room((int)-n) ? stuck(lg, (int)-n) : suspect_file(lg, (int)-n);
        lg->out_done += (size_t)n;
    }
    bool always = lg->options.sync_always;
    if (always && sync_batch(lg, size_before))
        return -1;
    batch_written(lg);
    if (lg->state == LOGGER_STUCK)
        judge_room(lg, room_for(lg, headroom(lg)));
    if (always)
        publish_synced(lg);
    else if (!lg->sync_half_ms)
        logger_sync(lg);
    else if (!lg->sync.loop)
        timer_set(lg->loop, &lg->sync, lg->sync_half_ms);
    if (!lg->anchor_due.loop)
        timer_set(lg->loop, &lg->anchor_due, CHECKPOINT_ANCHOR_MS);
    if (lg->since_checkpoint && !lg->checkpoint.loop)
        timer_set(lg->loop, &lg->checkpoint, CHECKPOINT_MS);
    return 0;
}

/* --- between batches --- */

void logger_sync(struct logger *lg)
{
    if (!lg->dirty || lg->segments.fd < 0)
        return;
    int r = segments_sync(&lg->segments);
    if (r) {
        /* Part of a batch may stand in this file: it stays there, and the rest follows in the next. */
        logger_note(lg, "sync_failed", "critical",
                    "fdatasync failed (%s); lines %llu to %llu may be lost to a power cut; a new segment goes on",
                    strerror(-r), (unsigned long long)lg->synced_seq + 1, (unsigned long long)lg->written_seq);
        if (lg->out_done) {
            suspect_file(lg, -r);
        } else {
            segments_abandon(&lg->segments);
            lg->new_segment = true;
        }
    }
    publish_synced(lg);
}

void logger_anchor(struct logger *lg)
{
    struct anchor *a = &lg->anchor;
    if (lg->dirty)
        logger_sync(lg); /* the anchor never promises a line that a power cut could take */
    if (a->seq == lg->written_seq)
        return;
    struct anchor next = *a;
    next.seq = lg->written_seq;
    memcpy(next.head, lg->written_head, sizeof next.head);
    next.ts_us = logger_age_own_us(lg);
    if (anchor_write(lg->key, lg->anchor_fd, &next)) {
        if (!lg->anchor_failed)
            logger_note(lg, "anchor_failed", "high", "the newest head could not be kept outside the segments: %s",
                        strerror(errno));
        lg->anchor_failed = true;
        timer_set(lg->loop, &lg->anchor_due, CHECKPOINT_ANCHOR_MS);
        return;
    }
    lg->anchor_failed = false;
    *a = next;
}

/* First line of a segment: where the log begins once the older ones are gone. */
static bool first_line(const struct logger *lg, const struct segment *s, struct anchor *ret)
{
    int fd = openat(lg->dir_fd, s->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct line_reader r;
    struct line_head h;
    struct str line;
    bool ok = false;
    if (fd < 0)
        return false;
    if (line_reader_init(&r, fd, 0) == 0) {
        ok = line_next(&r, &line) == LINE_OK && line_parse(line, &h);
        if (ok) {
            ret->first_seq = h.seq;
            memcpy(ret->first_prev, h.prev.p, 64);
        }
        line_reader_done(&r);
    }
    close(fd);
    return ok;
}

int64_t logger_age_own_us(struct logger *lg)
{
    age_clock_us(&lg->age, clock_wall_us(), clock_mono_us());
    return lg->age.at_us;
}

/* Said once each time: by the wall clock n segments would go, but it is ahead of the time that is known to have passed. */
static void prune_waits(struct logger *lg, size_t n, int64_t ahead_us)
{
    if (n && !lg->prune_waits)
        logger_note(lg, "prune_waits", "high",
                    "the clock is %lld hours ahead of what this log has seen pass: %zu segments that would be past audit.keep are kept for "
                    "up to %lld hours; if the clock is wrong, set it right",
                    (long long)(ahead_us / 3600000000), n, (long long)(ahead_us / AGE_CATCH_UP / 3600000000 + 1));
    lg->prune_waits = n > 0;
}

void logger_prune(struct logger *lg)
{
    int64_t wall_us = clock_wall_us(), age_us = age_clock_us(&lg->age, wall_us, clock_mono_us());
    if (lg->options.keep_ms > (uint64_t)INT64_MAX / 1000)
        return;
    int64_t keep_us = (int64_t)lg->options.keep_ms * 1000;
    size_t n = segments_expired(&lg->segments, age_us - keep_us, wall_us);
    prune_waits(lg, segments_expired(&lg->segments, wall_us - keep_us, wall_us) - n, wall_us - age_us);
    struct anchor next = lg->anchor;
    if (!n || !first_line(lg, &lg->segments.list.v[n], &next))
        return;
    if (next.seq < next.first_seq) { /* the line that the anchor names would go: it must name a newer one first */
        if (lg->dirty)
            return; /* the next time, when what is written is on the disk */
        logger_anchor(lg);
        if (lg->anchor.seq < next.first_seq)
            return;
        next.seq = lg->anchor.seq;
        memcpy(next.head, lg->anchor.head, sizeof next.head);
    }
    /* The new beginning is signed before the old one goes: between the two, older lines than needed are no fault. */
    next.ts_us = lg->age.at_us;
    if (anchor_write(lg->key, lg->anchor_fd, &next))
        return;
    lg->anchor = next;
    segments_drop(&lg->segments, n);
    logger_note(lg, "pruned", "info", "%zu segments past audit.keep were deleted; the log begins at line %llu", n,
                (unsigned long long)next.first_seq);
}
