/* SPDX-License-Identifier: Apache-2.0
 *
 * Records -> lines. One record out of a ring gives exactly one line, also one that is wrong (a lifecycle line says so):
 * the count is what a restarted logger goes by. */
#include "audit/logger_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

static const struct str role_logger = { "logger", 6 };

static bool line_room(const struct logger *lg)
{
    return lg->out_n + ENCODE_LINE_MAX <= LOGGER_OUT_BYTES && lg->since_checkpoint + 1 < CHECKPOINT_LINES;
}

static void append(struct logger *lg, const struct record *r, int64_t wall_us, struct str role, bool has_worker,
                   unsigned worker)
{
    event_ids_next(&lg->ids, wall_us > 0 ? (uint64_t)wall_us / 1000 : 0);
    struct encode_head h = { .seq = lg->next_seq,
                             .prev = lg->prev,
                             .id = lg->ids.text,
                             .wall_us = wall_us,
                             .role = role,
                             .has_worker = has_worker,
                             .worker = worker };
    if (!lg->out_n)
        lg->out_seq = lg->next_seq;
    size_t n = encode_line(r, &h, lg->out + lg->out_n);
    line_hash(str_of(lg->out + lg->out_n, n - 1), lg->prev);
    lg->out_n += n;
    lg->next_seq++;
    lg->since_checkpoint++;
}

static void append_event(struct logger *lg, const struct event *e, int64_t wall_us, struct str role)
{
    struct record r;
    MUST(record_decode(e->bytes, e->n, &r));
    append(lg, &r, wall_us, role, false, 0);
}

/* --- the logger's own lines --- */

static uint64_t oldest_open(const struct logger *lg)
{
    uint64_t oldest = UINT64_MAX;
    const struct open_entry *e;
    for (e = lg->due.oldest; e; e = e->next) /* gathered from several tables, so in no order */
        oldest = e->seq < oldest ? e->seq : oldest;
    e = lg->orphans.oldest;
    oldest = e && e->seq < oldest ? e->seq : oldest;
    for (size_t i = 0; i < lg->nrings; i++) {
        e = lg->rings[i]->opens.oldest;
        oldest = e && e->seq < oldest ? e->seq : oldest;
    }
    return oldest;
}

static struct record_value text_value(const char *p, size_t n)
{
    return (struct record_value) { (const unsigned char *)p, (uint16_t)n, KIND_STR };
}

static void append_checkpoint(struct logger *lg)
{
    char head[64], signature[CHECKPOINT_SIGNATURE_B64 + 1];
    uint64_t count = lg->next_seq - 1, oldest = oldest_open(lg);
    struct record r = { .type = EVENT_CHECKPOINT };
    memcpy(head, lg->prev, sizeof head);
    MUST(checkpoint_sign(lg->key, lg->next_seq, count, head, signature) == 0);
    record_set(&r, FIELD_COUNT, (struct record_value) { (const unsigned char *)&count, sizeof count, KIND_U64 });
    record_set(&r, FIELD_HEAD, text_value(head, sizeof head));
    if (oldest != UINT64_MAX)
        record_set(&r, FIELD_OLDEST_OPEN,
                   (struct record_value) { (const unsigned char *)&oldest, sizeof oldest, KIND_U64 });
    record_set(&r, FIELD_SIGNATURE, text_value(signature, CHECKPOINT_SIGNATURE_B64));
    append(lg, &r, clock_wall_us(), role_logger, false, 0);
    lg->since_checkpoint = 0;
    lg->checkpoint_now = false;
    timer_clear(&lg->checkpoint);
}

static void append_notes(struct logger *lg)
{
    size_t done = 0;
    for (; done < lg->nnotes && line_room(lg); done++) {
        const struct logger_note *n = &lg->notes[done];
        struct event e EVENT_LOCAL;
        event_init(&e, EVENT_LIFECYCLE);
        event_put_str(&e, FIELD_WHAT, str_c(n->what));
        event_put_str(&e, FIELD_SEVERITY, str_c(n->severity));
        event_put_str(&e, FIELD_MESSAGE, str_c(n->message));
        append_event(lg, &e, n->wall_us, role_logger);
    }
    memmove(lg->notes, lg->notes + done, (lg->nnotes - done) * sizeof *lg->notes);
    lg->nnotes -= done;
    if (!lg->nnotes && lg->notes_lost) {
        size_t lost = lg->notes_lost;
        lg->notes_lost = 0;
        logger_note(lg, "notes_lost", "medium", "%zu lifecycle events of the logger itself were not kept", lost);
    }
}

/* --- closes for the dead --- */

static void append_died(struct logger *lg, struct opens *t, int64_t now_us)
{
    struct open_entry *e = t->oldest;
    struct record r;
    opens_take(t, e);
    if (record_decode(e->bytes, e->n, &r)) {
        uint64_t ms = now_us > r.wall_us && r.wall_us > 0 ? (uint64_t)(now_us - r.wall_us) / 1000 : 0;
        r.type = EVENT_CLOSE;
        if (!record_has(&r, FIELD_VERDICT))
            record_set(&r, FIELD_VERDICT, text_value("allow", 5));
        record_set(&r, FIELD_MS_TOTAL, (struct record_value) { (const unsigned char *)&ms, sizeof ms, KIND_U64 });
        record_set(&r, FIELD_END, text_value("worker_died", 11));
        append(lg, &r, now_us, STR("worker"), true, e->worker);
    }
    free(e);
}

/* --- one ring --- */

static void ring_broken(struct logger *lg, struct logger_ring *r, const char *why)
{
    r->broken = true;
    atomic_store(&r->reader.ring.head->blocked, 1);
    logger_note(lg, "ring_broken", "critical", "%s %u: %s; its events are not read any more and it gets no new work",
                r->role, r->index, why);
}

static void append_bad(struct logger *lg, struct logger_ring *r, size_t n, int64_t now_us)
{
    struct event e EVENT_LOCAL;
    char message[96];
    snprintf(message, sizeof message, "%s %u wrote %zu bytes that are no record it may write", r->role, r->index, n);
    event_init(&e, EVENT_LIFECYCLE);
    event_put_str(&e, FIELD_WHAT, STR("bad_record"));
    event_put_str(&e, FIELD_SEVERITY, STR("high"));
    event_put_str(&e, FIELD_MESSAGE, str_c(message));
    append_event(lg, &e, now_us, role_logger);
    if (++r->bad == LOGGER_BAD_RECORDS)
        ring_broken(lg, r, "too many bad records");
}

/* Where the open of this id is kept, if this writer made it: with its ring; or, when a logger that started could not
 * tell which of the writer's rings it belongs to, elsewhere. */
static struct opens *opens_with(struct logger *lg, struct logger_ring *r, struct str id, struct open_entry **ret)
{
    if ((*ret = opens_find(&r->opens, id)) || !r->worker)
        return &r->opens;
    for (size_t i = 0; i < lg->nrings; i++)
        if (lg->rings[i] != r && same_writer(lg->rings[i], r) && (*ret = opens_find(&lg->rings[i]->opens, id)))
            return &lg->rings[i]->opens;
    struct opens *loose[] = { &lg->due, &lg->orphans };
    for (size_t i = 0; i < 2; i++)
        if (loose[i]->n && (*ret = opens_find(loose[i], id)) && (*ret)->worker == r->index)
            return loose[i];
    *ret = NULL;
    return NULL;
}

/* The open of this close, taken off its table; what the close lacks because it was squeezed is filled in from it. */
static struct open_entry *close_open(struct logger *lg, struct logger_ring *r, struct record *rec, size_t n)
{
    struct open_entry *e;
    struct opens *in = opens_with(lg, r, record_str(rec, FIELD_REQUEST_ID), &e);
    struct record open RECORD_LOCAL;
    if (!e)
        return NULL;
    opens_take(in, e);
    if (rec->flags & EVENT_FLAG_COMPACT && n <= RING_CLOSE_RESERVE && record_decode(e->bytes, e->n, &open))
        record_inherit(rec, &open);
    return e;
}

/* May this writer say that? Of a lease a worker knows only that it was used. */
static bool may_say(const struct logger_ring *r, const struct record *rec)
{
    return (r->types >> rec->type & 1) && (!r->worker || rec->type != EVENT_LEASE || str_eq(record_str(rec, FIELD_RESULT), STR("used")));
}

static void append_record(struct logger *lg, struct logger_ring *r, size_t n, int64_t now_us)
{
    struct record rec RECORD_LOCAL;
    struct open_entry *open = NULL;
    if (!record_decode(lg->record, n, &rec) || !may_say(r, &rec)) {
        append_bad(lg, r, n, now_us);
        return;
    }
    /* A writer may be late, when its ring waited for the disk; it is never ahead. */
    if (rec.wall_us <= 0 || rec.wall_us > now_us)
        rec.wall_us = now_us;
    uint64_t seq = lg->next_seq;
    if (rec.type == EVENT_CLOSE)
        open = close_open(lg, r, &rec, n);
    append(lg, &rec, rec.wall_us, str_c(r->role), r->worker, r->index);
    if (rec.type == EVENT_OPEN && record_has(&rec, FIELD_REQUEST_ID) &&
        opens_add(&r->opens, lg->record, n, seq, r->index) && !r->broken)
        ring_broken(lg, r, "more open exchanges than its ring has room for");
    free(open);
}

static void fill_from_ring(struct logger *lg, struct logger_ring *r, int64_t now_us)
{
    size_t n, start = lg->out_n;
    while (!r->broken && line_room(lg) && lg->out_n - start < LOGGER_RING_QUOTA) {
        enum ring_next next = ring_reader_next(&r->reader, lg->record, &n);
        if (next == RING_EMPTY)
            break;
        if (next == RING_BROKEN) {
            ring_broken(lg, r, "its positions or a record's length make no sense");
            break;
        }
        if (!r->batch_lines++) {
            r->batch_seq = lg->next_seq;
            if (!atomic_load_explicit(&r->reader.ring.head->first_seq, memory_order_relaxed))
                atomic_store(&r->reader.ring.head->first_seq, lg->next_seq);
        }
        append_record(lg, r, n, now_us);
    }
}

/* What an older incarnation left is written before its successor's first line, so that first_seq parts the two. */
static bool waits_for_older(const struct logger *lg, const struct logger_ring *r)
{
    for (size_t i = 0; i < lg->nrings; i++) {
        const struct logger_ring *old = lg->rings[i];
        if (old->generation < r->generation && same_writer(old, r) && !old->broken && ring_reader_pending(&old->reader))
            return true;
    }
    return false;
}

void logger_fill(struct logger *lg)
{
    int64_t now_us = clock_wall_us();
    if (lg->checkpoint_now || lg->since_checkpoint + 1 >= CHECKPOINT_LINES)
        append_checkpoint(lg);
    append_notes(lg);
    while (lg->due.n && line_room(lg))
        append_died(lg, &lg->due, now_us);
    for (size_t i = 0; i < lg->nrings; i++) {
        struct logger_ring *r = lg->rings[(lg->first_ring + i) % lg->nrings];
        if (!waits_for_older(lg, r))
            fill_from_ring(lg, r, now_us);
        if (!r->dying || (!r->broken && ring_reader_pending(&r->reader)))
            continue;
        while (r->opens.n && line_room(lg))
            append_died(lg, &r->opens, now_us);
    }
    if (lg->nrings)
        lg->first_ring = (lg->first_ring + 1) % lg->nrings;
}
