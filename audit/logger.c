/* SPDX-License-Identifier: Apache-2.0
 *
 * The logger's loop. It drains when touched, then looks again every poll_ms (at most 20) while there is something, and
 * only then says that it sleeps: a busy writer pays no system call per event, an idle logger none at all. With sync: always
 * it sleeps at once, since exchanges wait for it. */
#include "audit/logger_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define OWNER(type, member, p) ((type *)(void *)((char *)(p)-offsetof(type, member)))

enum { BATCHES_PER_ROUND = 16 };

/* --- notes and state --- */

void logger_note(struct logger *lg, const char *what, const char *severity, const char *format, ...)
{
    if (lg->nnotes == LOGGER_NOTES) {
        lg->notes_lost++;
        return;
    }
    struct logger_note *n = &lg->notes[lg->nnotes++];
    *n = (struct logger_note) { .what = what, .severity = severity, .wall_us = clock_wall_us() };
    va_list ap;
    va_start(ap, format);
    vsnprintf(n->message, sizeof n->message, format, ap);
    va_end(ap);
}

static void touch(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one);
}

void logger_set_state(struct logger *lg, enum logger_state state, const char *why)
{
    if (state == lg->state)
        return;
    enum logger_state was = lg->state;
    uint64_t now = loop_now_ms(lg->loop);
    lg->state = state;
    lg->stats.blocked = state != LOGGER_WRITING;
    snprintf(lg->stats.blocked_why, sizeof lg->stats.blocked_why, "%s", why ? why : "");
    if (was == LOGGER_WRITING) {
        lg->blocked_since_ms = now;
        logger_note(lg, "audit_blocked", "critical", "no new work is accepted: %s", why);
    } else if (state == LOGGER_WRITING) {
        logger_note(lg, "audit_resumed", "info", "new work is accepted again after %llu ms",
                    (unsigned long long)(now - lg->blocked_since_ms));
        touch(lg->wake.fd); /* the note needs its line */
    }
    if (state != LOGGER_WRITING && !lg->retry.loop)
        timer_set(lg->loop, &lg->retry, LOGGER_RETRY_MS);
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[i];
        if (r->broken)
            continue;
        atomic_store(&r->reader.ring.head->blocked, state != LOGGER_WRITING);
        if (state == LOGGER_WRITING && atomic_exchange(&r->reader.ring.head->want_room, 0))
            touch(r->done_fd);
    }
}

size_t logger_opens(const struct logger *lg)
{
    size_t n = lg->orphans.n + lg->due.n;
    for (size_t i = 0; i < lg->nrings; i++)
        n += lg->rings[i]->opens.n;
    return n;
}

/* --- rings --- */

static void ring_free(struct logger_ring *r)
{
    ring_reader_done(&r->reader);
    opens_done(&r->opens);
    close(r->done_fd);
    free(r);
}

static struct logger_ring *ring_find(const struct logger *lg, const char *role, unsigned index, unsigned generation)
{
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[i];
        if (r->index == index && r->generation == generation && !strcmp(r->role, role))
            return r;
    }
    return NULL;
}

static uint32_t types_of(const char *role)
{
    const uint32_t common = 1u << EVENT_FINDING | 1u << EVENT_LIFECYCLE;
    const uint32_t all = ((1u << EVENT_TYPE_COUNT) - 1) & ~(1u << EVENT_NONE | 1u << EVENT_CHECKPOINT);
    if (!strcmp(role, "worker"))
        return common | 1u << EVENT_OPEN | 1u << EVENT_CLOSE | 1u << EVENT_CONN | 1u << EVENT_LEASE;
    if (!strcmp(role, "resolver"))
        return common | 1u << EVENT_DNS;
    return all & ~(1u << EVENT_OPEN | 1u << EVENT_CLOSE);
}

static void opens_move(struct opens *from, struct opens *to, struct open_entry *e)
{
    opens_take(from, e);
    opens_add(to, e->bytes, e->n, e->seq, e->worker);
    free(e);
}

/* Opens that this worker index left in the file, which a logger that starts has found there: those since this ring was
 * first read are its own again, also where an older ring of the index took them; of the rest, an older ring took what
 * was its own, and what nobody took is closed. */
static void adopt_orphans(struct logger *lg, struct logger_ring *r, uint64_t first_seq)
{
    for (struct open_entry *e = lg->orphans.oldest, *next; e; e = next) {
        next = e->next;
        if (e->worker == r->index)
            opens_move(&lg->orphans, first_seq && e->seq >= first_seq ? &r->opens : &lg->due, e);
    }
    for (size_t i = 0; first_seq && i < lg->nrings; i++) {
        struct logger_ring *old = lg->rings[i];
        if (!same_writer(old, r))
            continue;
        for (struct open_entry *e = old->opens.oldest, *next; e; e = next) {
            next = e->next;
            if (e->seq >= first_seq)
                opens_move(&old->opens, &r->opens, e);
        }
    }
}

/* The batch that was announced from line seq on: how many lines of it are in the file. In a batch only what stands for a bad record is
 * a logger's own line: the first of those was written by a successor, under a number that the batch would have had. */
static uint64_t lines_written(const struct logger *lg, uint64_t seq)
{
    uint64_t end = lg->found_seq + 1;
    for (size_t i = 0; i < lg->nown_lines && i < LOGGER_OWN_LINES; i++)
        if (lg->own_lines[i] >= seq && lg->own_lines[i] < end)
            end = lg->own_lines[i];
    return end > seq ? end - seq : 0;
}

/* What a logger that was killed had written of its last batch is not written twice. */
static void skip_written(struct logger *lg, struct logger_ring *r)
{
    struct ring_head *h = r->reader.ring.head;
    uint64_t n = atomic_load(&h->pend_n), seq = atomic_load(&h->pend_seq);
    uint64_t done = lines_written(lg, seq);
    if (atomic_load(&h->pend_pos) != atomic_load(&h->read_pos)) /* killed after the batch was told to the ring */
        done = 0;
    size_t size;
    for (done = done < n ? done : n; done; done--)
        if (ring_reader_next(&r->reader, lg->record, &size) != RING_RECORD)
            break;
    ring_reader_commit(&r->reader);
    atomic_store(&h->pend_n, 0);
}

static int ring_new(struct logger *lg, const char *role, unsigned index, unsigned generation, int ring_fd,
                    struct logger_ring **ret, struct err *err)
{
    if (lg->nrings == LOGGER_RINGS_MAX)
        return err_set(err, "more than %d event rings", LOGGER_RINGS_MAX);
    if (!*role || strlen(role) >= sizeof(*ret)->role || ring_find(lg, role, index, generation))
        return err_set(err, "event ring of %s %u: bad name, or there is one already", role, index);
    for (const char *p = role; *p; p++)
        if (*p < 'a' || *p > 'z')
            return err_set(err, "event ring: bad role name");
    struct logger_ring *r = calloc(1, sizeof *r);
    struct logger_ring **rings = realloc(lg->rings, (lg->nrings + 1) * sizeof(struct logger_ring *));
    if (rings)
        lg->rings = rings;
    if (!r || !rings || ring_reader_init(&r->reader, ring_fd, err)) {
        free(r);
        return r && rings ? -1 : err_set(err, "event ring: out of memory");
    }
    if (opens_init(&r->opens, r->reader.ring.bytes / RING_CLOSE_RESERVE)) {
        ring_reader_done(&r->reader);
        free(r);
        return err_set(err, "event ring: out of memory");
    }
    snprintf(r->role, sizeof r->role, "%s", role);
    r->index = index;
    r->generation = generation;
    r->worker = !strcmp(role, "worker");
    r->types = types_of(role);
    *ret = r;
    return 0;
}

int logger_add_ring(struct logger *lg, const char *role, unsigned index, unsigned generation, int ring_fd, int done_fd,
                    struct err *err)
{
    struct logger_ring *r = NULL;
    if (ring_new(lg, role, index, generation, ring_fd, &r, err))
        return -1;
    close(ring_fd);
    struct ring_head *h = r->reader.ring.head;
    r->done_fd = done_fd;
    skip_written(lg, r);
    if (!r->reader.pos) /* no line of it stands in the file */
        atomic_store(&h->first_seq, 0);
    if (r->worker)
        adopt_orphans(lg, r, atomic_load(&h->first_seq));
    r->written_pos = r->reader.pos;
    r->synced_pos = atomic_load(&h->synced_pos);
    lg->rings[lg->nrings++] = r;
    atomic_store(&h->blocked, lg->state != LOGGER_WRITING);
    if (r->written_pos != r->synced_pos) { /* what the last logger wrote, but did not say that it had synced */
        lg->dirty = true;
        logger_sync(lg);
    }
    touch(lg->wake.fd);
    return 0;
}

void logger_ring_died(struct logger *lg, const char *role, unsigned index, unsigned generation)
{
    struct logger_ring *r = ring_find(lg, role, index, generation);
    if (r) {
        r->dying = true;
    } else if (!strcmp(role, "worker")) { /* it died while there was no logger */
        struct logger_ring none = { .role = "worker", .index = index };
        adopt_orphans(lg, &none, 0);
    }
    if (!r && lg->ring_closed)
        lg->ring_closed(lg->ring_closed_ctx, role, index, generation);
    touch(lg->wake.fd);
}

static void drop_dead_rings(struct logger *lg)
{
    for (size_t i = 0; i < lg->nrings;) {
        struct logger_ring *r = lg->rings[i];
        if (!r->dying || r->batch_lines || r->opens.n || (!r->broken && ring_reader_pending(&r->reader))) {
            i++;
            continue;
        }
        lg->rings[i] = lg->rings[--lg->nrings];
        if (lg->ring_closed)
            lg->ring_closed(lg->ring_closed_ctx, r->role, r->index, r->generation);
        ring_free(r);
    }
}

void logger_on_ring_closed(struct logger *lg,
                           void (*cb)(void *ctx, const char *role, unsigned index, unsigned generation), void *ctx)
{
    lg->ring_closed = cb;
    lg->ring_closed_ctx = ctx;
}

/* --- draining --- */

/* At most `batches` batches. True when there may be more. */
static bool pump(struct logger *lg, unsigned batches)
{
    for (; batches; batches--) {
        if (!lg->out_n)
            logger_fill(lg);
        if (!lg->out_n) {
            drop_dead_rings(lg);
            return false;
        }
        if (logger_write(lg))
            return false;
        drop_dead_rings(lg);
    }
    return true;
}

static void set_sleeping(struct logger *lg, uint32_t sleeping)
{
    for (size_t i = 0; i < lg->nrings; i++)
        atomic_store(&lg->rings[i]->reader.ring.head->sleeping, sleeping);
}

static bool pending(const struct logger *lg)
{
    for (size_t i = 0; i < lg->nrings; i++)
        if (!lg->rings[i]->broken && ring_reader_pending(&lg->rings[i]->reader))
            return true;
    return lg->nnotes || lg->due.n;
}

/* Says that it sleeps, then looks once more (sink.c has the other half). */
static void doze(struct logger *lg)
{
    set_sleeping(lg, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (!pending(lg))
        return;
    set_sleeping(lg, 0);
    touch(lg->wake.fd);
}

static void drain(struct logger *lg)
{
    if (lg->state == LOGGER_STUCK)
        return; /* the retry timer's business */
    bool more = pump(lg, BATCHES_PER_ROUND);
    if (lg->state == LOGGER_STUCK)
        return;
    if (more)
        touch(lg->wake.fd);
    else if (lg->options.sync_always)
        doze(lg);
    else
        timer_set(lg->loop, &lg->poll, lg->poll_ms);
}

static void on_wake(struct watch *w, uint32_t revents)
{
    struct logger *lg = OWNER(struct logger, wake, w);
    uint64_t n;
    (void)revents;
    (void)!read(w->fd, &n, sizeof n);
    set_sleeping(lg, 0);
    drain(lg);
}

static void on_poll(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, poll, t);
    if (pending(lg))
        drain(lg);
    else
        doze(lg);
}

static void on_retry(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, retry, t);
    if (lg->state == LOGGER_STUCK)
        pump(lg, 1);
    if (lg->state == LOGGER_LOW) {
        logger_prune(lg); /* what is past audit.keep by now makes room */
        logger_look_for_room(lg);
    }
    if (lg->state != LOGGER_WRITING)
        timer_set(lg->loop, &lg->retry, LOGGER_RETRY_MS);
    if (lg->state != LOGGER_STUCK)
        touch(lg->wake.fd);
}

/* Half a period in, writing back starts; at its end what is left to wait for is little. */
static void on_sync(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, sync, t);
    if (!lg->dirty || lg->segments.fd < 0)
        return;
    if (!lg->writeback_started) {
        segments_start_writeback(&lg->segments);
        lg->writeback_started = true;
        timer_set(lg->loop, t, lg->sync_half_ms);
        return;
    }
    logger_sync(lg);
}

static void on_checkpoint(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, checkpoint, t);
    lg->checkpoint_now = lg->since_checkpoint > 0;
    touch(lg->wake.fd);
}

static void on_anchor(struct timer *t)
{
    logger_anchor(OWNER(struct logger, anchor_due, t));
}

static void on_prune(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, prune, t);
    logger_prune(lg);
    timer_set(lg->loop, t, LOGGER_PRUNE_MS);
    touch(lg->wake.fd);
}

/* Workers that did not come back: what they left open is closed. */
static void on_orphan(struct timer *t)
{
    struct logger *lg = OWNER(struct logger, orphan, t);
    while (lg->orphans.oldest) {
        struct open_entry *e = lg->orphans.oldest;
        opens_take(&lg->orphans, e);
        opens_add(&lg->due, e->bytes, e->n, e->seq, e->worker);
        free(e);
    }
    touch(lg->wake.fd);
}

/* --- life --- */

static void options_take(struct logger *lg, const struct logger_options *o)
{
    lg->options = *o;
    lg->options.dir_fd = lg->options.anchor_fd = lg->options.key_fd = -1;
    if (!lg->options.segment_bytes)
        lg->options.segment_bytes = UINT64_C(256) << 20;
    if (!lg->options.sync_ms)
        lg->options.sync_ms = 1;
    lg->poll_ms = lg->options.sync_ms < 2 * LOGGER_POLL_MS ? (lg->options.sync_ms + 1) / 2 : LOGGER_POLL_MS;
    lg->sync_half_ms = (lg->options.sync_ms - lg->poll_ms) / 2;
    lg->segments.chunk = lg->options.segment_bytes / 4;
}

static int logger_init(struct logger *lg, struct loop *l, const struct logger_options *o, struct err *err)
{
    options_take(lg, o);
    lg->dir_fd = fcntl(o->dir_fd, F_DUPFD_CLOEXEC, 3);
    lg->anchor_fd = fcntl(o->anchor_fd, F_DUPFD_CLOEXEC, 3);
    lg->segments.dir_fd = lg->dir_fd;
    if (lg->dir_fd < 0 || lg->anchor_fd < 0)
        return err_set_errno(err, "the log's folders");
    if (!(lg->key = checkpoint_key_read(o->key_fd, err)))
        return -1;
    lg->out = malloc(LOGGER_OUT_BYTES);
    if (!lg->out || opens_init(&lg->orphans, 1 << 20) || opens_init(&lg->due, 1 << 20))
        return err_set(err, "logger: out of memory");
    if (logger_start(lg, err))
        return -1;
    lg->wake = (struct watch) { .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .cb = on_wake };
    if (lg->wake.fd < 0 || watch_add(l, &lg->wake))
        return err_set_errno(err, "logger: eventfd");
    return 0;
}

struct logger *logger_new(struct loop *l, const struct logger_options *o, struct err *err)
{
    struct logger *lg = calloc(1, sizeof *lg);
    if (!lg) {
        err_set(err, "logger: out of memory");
        return NULL;
    }
    lg->loop = l;
    lg->dir_fd = lg->anchor_fd = lg->segments.fd = lg->wake.fd = -1;
    lg->poll.cb = on_poll;
    lg->sync.cb = on_sync;
    lg->checkpoint.cb = on_checkpoint;
    lg->anchor_due.cb = on_anchor;
    lg->retry.cb = on_retry;
    lg->prune.cb = on_prune;
    lg->orphan.cb = on_orphan;
    if (logger_init(lg, l, o, err)) {
        logger_free(&lg);
        return NULL;
    }
    logger_note(lg, "audit_started", "info", "the log goes on at line %llu", (unsigned long long)lg->next_seq);
    timer_set(l, &lg->prune, LOGGER_PRUNE_MS);
    timer_set(l, &lg->orphan, LOGGER_ORPHAN_MS);
    pump(lg, 1);
    logger_prune(lg);
    logger_anchor(lg);
    touch(lg->wake.fd);
    return lg;
}

void logger_free(struct logger **p)
{
    struct logger *lg = *p;
    if (!lg)
        return;
    watch_del(&lg->wake);
    struct timer *timers[] = { &lg->poll,  &lg->sync,  &lg->checkpoint, &lg->anchor_due,
                               &lg->retry, &lg->prune, &lg->orphan };
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++)
        timer_clear(timers[i]);
    for (size_t i = 0; i < lg->nrings; i++)
        ring_free(lg->rings[i]);
    free(lg->rings);
    opens_done(&lg->orphans);
    opens_done(&lg->due);
    segments_done(&lg->segments);
    checkpoint_key_free(&lg->key);
    int fds[] = { lg->dir_fd, lg->anchor_fd, lg->wake.fd };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(lg->out);
    free(lg);
    *p = NULL;
}

int logger_wake_fd(const struct logger *lg)
{
    return lg->wake.fd;
}

void logger_configure(struct logger *lg, const struct logger_options *o)
{
    options_take(lg, o);
    timer_clear(&lg->sync);
    logger_sync(lg); /* what waits was promised the old period */
    touch(lg->wake.fd);
}

void logger_flush(struct logger *lg)
{
    /* The writers are gone, so this ends by itself; the bound is for one that is not. */
    for (int i = 0; i < 10000 && pump(lg, BATCHES_PER_ROUND); i++)
        ;
    if (lg->state == LOGGER_STUCK)
        return;
    if (!lg->stopped)
        logger_note(lg, "audit_stopped", "info", "%zu exchanges are open", logger_opens(lg));
    lg->stopped = true;
    pump(lg, 1);
    lg->checkpoint_now = true;
    while (lg->checkpoint_now && lg->state != LOGGER_STUCK)
        pump(lg, 1);
    logger_sync(lg);
    logger_anchor(lg);
    segments_trim(&lg->segments);
}

void logger_stats(const struct logger *lg, struct logger_stats *ret)
{
    *ret = lg->stats;
}
