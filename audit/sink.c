/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer's side of ring.h. No lost wake-up: the writer stores write_pos and then looks at `sleeping`; the logger
 * sets `sleeping` and then looks at write_pos; a full fence stands between the two steps on both sides, so at least one
 * of them sees the other's store. The same pattern guards want_sync and want_room. */
#include "audit/sink.h"

#include "audit/ring.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct sink {
    struct ring ring;
    uint64_t write_pos;
    uint64_t reserved; /* bytes promised to closes */
    int wake_fd, done_fd;
    uint64_t seen_read_pos, waiting_since_ms; /* 0: nothing waited at the last look */
    uint64_t asked_pos;                       /* write_pos when room was last asked for */
};

struct sink *sink_open(int ring_fd, int wake_fd, int done_fd, struct err *err)
{
    struct sink *s = calloc(1, sizeof *s);
    int r = s ? ring_map(ring_fd, &s->ring, err) : err_set(err, "event ring: out of memory");
    close(ring_fd);
    if (r) {
        close(wake_fd);
        close(done_fd);
        free(s);
        return NULL;
    }
    s->wake_fd = wake_fd;
    s->done_fd = done_fd;
    s->write_pos = atomic_load(&s->ring.head->write_pos);
    return s;
}

void sink_free(struct sink **s)
{
    if (!*s)
        return;
    ring_unmap(&(*s)->ring);
    close((*s)->wake_fd);
    close((*s)->done_fd);
    free(*s);
    *s = NULL;
}

static void touch(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    /* EAGAIN: the counter is full, so it is readable already */
}

static void wake_logger(struct sink *s)
{
    struct ring_head *h = s->ring.head;
    atomic_thread_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&h->sleeping, memory_order_relaxed) != 0, 0) &&
        atomic_exchange(&h->sleeping, 0))
        touch(s->wake_fd);
}

static uint64_t room(const struct sink *s)
{
    uint64_t used = s->write_pos - atomic_load_explicit(&s->ring.head->read_pos, memory_order_acquire);
    MUST(used <= s->ring.bytes);
    return s->ring.bytes - used;
}

/* --- squeezing a close into its reservation --- */

static bool said_by_open(unsigned f)
{
    switch (f) {
    case FIELD_AGENT:
    case FIELD_CLIENT:
    case FIELD_CONN_ID:
    case FIELD_METHOD:
    case FIELD_SCHEME:
    case FIELD_HOST:
    case FIELD_HOST_ADDR:
    case FIELD_PORT:
    case FIELD_SNI:
    case FIELD_PATH:
    case FIELD_RULE:
    case FIELD_CREDENTIALS:
        return true;
    default:
        return false;
    }
}

struct compact {
    unsigned char *out;
    size_t n, max;
    bool left_out;
};

/* Takes the values that pass: first what names the exchange and how it ended, then whatever still fits. */
static void compact_pass(struct compact *c, const struct event *e, bool first)
{
    for (size_t at = EVENT_HEAD; at + 4 <= e->n;) {
        const unsigned char *v = e->bytes + at;
        uint16_t length;
        memcpy(&length, v + 2, 2);
        size_t n = 4 + (size_t)length;
        at += n;
        bool vital = v[0] == FIELD_REQUEST_ID || v[0] == FIELD_VERDICT || v[0] == FIELD_CODE || v[0] == FIELD_END ||
                     v[1] == KIND_U64;
        if (said_by_open(v[0]) || vital != first)
            continue;
        if (n > c->max - c->n) {
            c->left_out = true;
            continue;
        }
        memcpy(c->out + c->n, v, n);
        c->n += n;
    }
}

static size_t compact_close(const struct event *e, unsigned char out[RING_CLOSE_RESERVE - RING_FRAME])
{
    struct compact c = { .out = out, .n = EVENT_HEAD, .max = RING_CLOSE_RESERVE - RING_FRAME };
    memcpy(out, e->bytes, EVENT_HEAD);
    compact_pass(&c, e, true);
    compact_pass(&c, e, false);
    uint16_t flags;
    memcpy(&flags, out + 2, 2);
    flags = (uint16_t)(flags | EVENT_FLAG_COMPACT | (c.left_out ? EVENT_FLAG_CUT : 0));
    memcpy(out + 2, &flags, 2);
    return c.n;
}

/* --- writing --- */

static void append(struct sink *s, const unsigned char *bytes, size_t n, uint64_t free_bytes)
{
    unsigned char *p = s->ring.data + (s->write_pos & (s->ring.bytes - 1));
    uint32_t frame[2] = { (uint32_t)n, RING_RECORD_MAGIC };
    memcpy(p, frame, sizeof frame);
    memcpy(p + RING_FRAME, bytes, n);
    size_t size = ring_frame_size(n);
    s->write_pos += size;
    atomic_store_explicit(&s->ring.head->write_pos, s->write_pos, memory_order_release);
    wake_logger(s);
    /* The logger may doze (20 ms at most) without `sleeping`: half full is reason enough to touch it. */
    uint64_t half = s->ring.bytes / 2;
    if (free_bytes >= half && free_bytes - size < half)
        touch(s->wake_fd);
}

static int no_room(struct sink *s)
{
    /* Half full or not (what is reserved counts), a dozing logger is touched: once for each request, and again where
     * there is more for it to take since. */
    if (!atomic_exchange(&s->ring.head->want_room, 1) || s->asked_pos != s->write_pos)
        touch(s->wake_fd);
    s->asked_pos = s->write_pos;
    atomic_thread_fence(memory_order_seq_cst);
    return -1;
}

int sink_write(struct sink *s, const struct event *e, bool reserved)
{
    MUST(e->n >= EVENT_HEAD && e->n <= EVENT_MAX);
    uint64_t free_bytes = room(s), others = s->reserved;
    size_t need = ring_frame_size(e->n);
    if (e->type == EVENT_OPEN)
        need += RING_CLOSE_RESERVE;
    bool own = reserved && e->type == EVENT_CLOSE && s->reserved >= RING_CLOSE_RESERVE;
    if (own)
        others -= RING_CLOSE_RESERVE;
    if (free_bytes < others || free_bytes - others < need) {
        if (!own)
            return no_room(s);
        unsigned char small[RING_CLOSE_RESERVE - RING_FRAME] EVENT_LOCAL;
        size_t n = compact_close(e, small);
        MUST(ring_frame_size(n) <= free_bytes); /* what the reservation promised */
        s->reserved = others;
        append(s, small, n, free_bytes);
        return 0;
    }
    s->reserved = e->type == EVENT_OPEN ? others + RING_CLOSE_RESERVE : others;
    append(s, e->bytes, e->n, free_bytes);
    return 0;
}

bool sink_ready(struct sink *s, uint64_t now_ms, uint64_t lag_ms)
{
    struct ring_head *h = s->ring.head;
    uint64_t read_pos = atomic_load_explicit(&h->read_pos, memory_order_acquire);
    if (read_pos == s->write_pos) {
        s->waiting_since_ms = 0;
    } else if (read_pos != s->seen_read_pos || !s->waiting_since_ms) {
        s->waiting_since_ms = now_ms ? now_ms : 1;
    } else if (now_ms - s->waiting_since_ms > lag_ms) {
        return false;
    }
    s->seen_read_pos = read_pos;
    const uint64_t need = 2 * (EVENT_MAX + RING_FRAME) + RING_CLOSE_RESERVE + s->reserved;
    if (__builtin_expect(!atomic_load_explicit(&h->blocked, memory_order_relaxed) && room(s) >= need, 1))
        return true;
    /* Ask to be told, then look once more: the logger may have made room in between. */
    no_room(s);
    return !atomic_load(&h->blocked) && room(s) >= need;
}

uint64_t sink_position(const struct sink *s)
{
    return s->write_pos;
}

uint64_t sink_written(struct sink *s)
{
    return atomic_load_explicit(&s->ring.head->read_pos, memory_order_acquire);
}

uint64_t sink_synced(struct sink *s)
{
    return atomic_load_explicit(&s->ring.head->synced_pos, memory_order_acquire);
}

void sink_want_sync(struct sink *s, uint64_t position)
{
    struct ring_head *h = s->ring.head;
    if (position > atomic_load_explicit(&h->want_sync, memory_order_relaxed))
        atomic_store(&h->want_sync, position);
    atomic_thread_fence(memory_order_seq_cst);
    if (sink_synced(s) >= position)
        touch(s->done_fd);
}

int sink_done_fd(const struct sink *s)
{
    return s->done_fd;
}
