/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection: frames in and out. What has a cost and moves nothing is paid from a bucket that requests and bodies fill again; what
 * nghttp2 finds wrong ends the connection or one stream. Credit of the connection is given back at once, credit of a stream when its
 * exchange took the bytes, so that a stream that stalls stalls only itself and holds a window at most. */
#include "proxy/origin_h2.h"

#include "base/log.h"
#include "proxy/agent_table.h"
#include "proxy/exchange_steps.h"
#include "proxy/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum {
    FRAME_HEAD = 9,
    READ_BYTES = WORKER_BLOCK - 64, /* fits a block also behind the beginning of a frame's head */
    READS_PER_ROUND = 4,
    TINY = 1024, /* DATA of streams that are over is cheap where there is much of it */
    DOUBT_MS = 5000, /* a connection that was silent for so long is perhaps none: it gets no more requests */
    BLOCKED_MS = 1000,
    BYTES_PER_FRAME = 4096, /* so much of a body allows one more frame that carries nothing */
};

/* --- the queue of those that have something to tell --- */

void origin_h2_queue(struct origin_stream *s)
{
    struct origin_h2 *h = s->o->h2;
    if (s->ready_link || !s->x)
        return;
    s->ready_next = NULL;
    s->ready_link = h->ready_end;
    *h->ready_end = s;
    h->ready_end = &s->ready_next;
}

void origin_h2_unqueue(struct origin_stream *s)
{
    struct origin_h2 *h = s->o->h2;
    if (!s->ready_link)
        return;
    *s->ready_link = s->ready_next;
    if (s->ready_next)
        s->ready_next->ready_link = s->ready_link;
    else
        h->ready_end = s->ready_link;
    s->ready_link = NULL;
}

/* --- its life --- */

int origin_h2_begin(struct origin *o)
{
    struct exchange *x = o->x;
    struct origin_h2 *h = o->h2 = calloc(1, sizeof *h);
    if (!h)
        return -1;
    h->ready_end = &h->ready;
    o->in.wipe = x->covered; /* what comes back may hold a real value: here, and in OpenSSL's buffers until it is read */
    if (!x->covered)
        SSL_clear_options(o->stream.ssl, SSL_OP_CLEANSE_PLAINTEXT);
    if (origin_h2_session(o, x->covered))
        return -1;
    o->x = NULL;
    if (origin_h2_attach(o, x)) {
        o->x = x;
        return -1;
    }
    return 0;
}

void origin_h2_free(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    if (!h)
        return;
    MUST(!h->streams);
    nghttp2_session_del(h->session);
    free(h);
    o->h2 = NULL;
}

/* --- streams of it --- */

bool origin_h2_room(const struct origin *o)
{
    const struct origin_h2 *h = o->h2;
    if (h->no_more || h->lost || h->unwritable || o->state == ORIGIN_DEAD)
        return false;
    if (h->blocked_ms && loop_now_ms(o->w->loop) - h->blocked_ms > BLOCKED_MS)
        return false;
    uint32_t peer = nghttp2_session_get_remote_settings(h->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return h->nstreams < peer && h->nstreams < o->view->limits->h2_streams;
}

/* A descriptor is counted for the agent once, however many of its exchanges share the connection: the first brings the count that its
 * dial took, and the connection keeps it until it carries none (then it is the pool's) or ends. */
static void hold(struct origin *o, struct exchange *x)
{
    if (!o->holder) {
        o->holder = x->holder;
        x->holder = NULL;
    } else if (x->holder) {
        agent_let_go(o->w->agents, x->holder);
        x->holder = NULL;
    }
}

int origin_h2_attach(struct origin *o, struct exchange *x)
{
    struct origin_h2 *h = o->h2;
    struct origin_stream *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    s->o = o;
    s->x = x;
    s->first = !o->served && !h->nstreams;
    buf_init(&s->out, 1024 * 1024);
    s->out.wipe = true;
    buf_init(&s->in, 2 * ORIGIN_H2_WINDOW);
    s->in.wipe = x->covered;
    s->owner = str_hash(str_c(x->agent_name));
    h2_head_init(&s->head);
    h2_head_init(&s->tail);
    h2_head_init(&s->trailers);
    s->trailers.bytes.wipe = true;
    s->next = h->streams;
    s->link = &h->streams;
    if (s->next)
        s->next->link = &s->next;
    h->streams = s;
    h->nstreams++;
    o->state = ORIGIN_BUSY;
    x->origin = o;
    x->origin_stream = s;
    x->oops = &origin_h2_ops;
    hold(o, x);
    memcpy(x->origin_addr, o->addr, sizeof x->origin_addr);
    memcpy(x->tls_version, o->tls_version, sizeof x->tls_version);
    memcpy(x->tls_cipher, o->tls_cipher, sizeof x->tls_cipher);
    memcpy(x->tls_issuer, o->tls_issuer, sizeof x->tls_issuer);
    return 0;
}

static void bury_stream(struct corpse *c)
{
    struct origin_stream *s = (struct origin_stream *)c;
    buf_done(&s->out);
    buf_done(&s->in);
    h2_head_done(&s->head);
    h2_head_done(&s->tail);
    h2_head_done(&s->trailers);
    free(s);
}

/* It carries nothing any more. */
static void settle_idle(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    if (h->lost || h->no_more || h->unwritable) {
        origin_close(o);
        return;
    }
    o->state = ORIGIN_IDLE;
    o->idle_round = loop_round(o->w->loop);
    if (o->holder)
        agent_let_go(o->w->agents, o->holder);
    o->holder = NULL;
    worker_take_back(o->w, &o->out);
    pool_put(o->w->pool, o);
}

/* The exchange gave up on an answer, and the connection has said nothing at all in all that time. */
static bool doubtful(const struct origin_stream *s)
{
    const struct origin *o = s->o;
    return s->sent_ms && s->heard == HEARD_NOTHING && o->h2->frames == s->frames_before &&
           loop_now_ms(o->w->loop) - s->sent_ms >= DOUBT_MS;
}

void origin_h2_drop(struct origin_stream *s)
{
    struct origin *o = s->o;
    struct origin_h2 *h = o->h2;
    h->no_more |= doubtful(s);
    origin_h2_unqueue(s);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    h->nstreams--;
    o->served++;
    origin_stream_gone(s, buf_size(&s->in)); /* now: the worker may end before it is buried */
    s->x = NULL;
    if (s->id && !h->lost) {
        nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
        /* Also takes a request out of nghttp2's queue that has no stream yet. */
        if (s->closing == STREAM_OPEN && !s->reset && nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL))
            h->no_more = true;
        if (s->closing == STREAM_OPEN)
            origin_h2_write(o);
    }
    worker_bury(o->w, &s->corpse, bury_stream);
    if (!h->nstreams)
        settle_idle(o);
}

/* --- out --- */

static void on_resume(struct task *t);

static void later(struct origin *o)
{
    o->resume.cb = on_resume;
    loop_defer(o->w->loop, &o->resume);
}

/* Frames from nghttp2 into `out`. False: there are no more. */
static bool gather(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    while (buf_size(&o->out) < ORIGIN_H2_OUT_HIGH) {
        const uint8_t *p;
        size_t before = buf_size(&o->out);
        ssize_t n = nghttp2_session_mem_send(h->session, &p);
        if (n < 0 || (n > 0 && buf_put(&o->out, str_of(p, (size_t)n)))) {
            h->fault = n < 0 ? nghttp2_strerror((int)n) : "the requests do not fit their buffer";
            h->unwritable = true;
            return false;
        }
        if (!n)
            return buf_size(&o->out) > before; /* bodies may have been put there, up to the mark */
    }
    return true;
}

static void flush_out(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    while (!h->unwritable && !h->lost && !stream_waiting(&o->stream)) {
        worker_lend(o->w, &o->out);
        bool more = gather(o);
        if (!buf_size(&o->out)) {
            worker_take_back(o->w, &o->out);
            return;
        }
        o->active_ms = loop_now_ms(o->w->loop);
        o->rested = false;
        worker_active(o->w);
        enum io io = stream_write(&o->stream, buf_str(&o->out));
        buf_reset(&o->out);
        worker_take_back(o->w, &o->out);
        if (io == IO_ERROR) { /* what it said before may be there */
            h->unwritable = true;
            return;
        }
        if (io == IO_AGAIN) {
            watch_set(&o->watch, o->watch.events | EPOLLOUT);
            h->blocked_ms = h->blocked_ms ? h->blocked_ms : loop_now_ms(o->w->loop);
        }
        if (!more)
            return;
    }
}

void origin_h2_write(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    if (h->running || h->lost || o->state == ORIGIN_DEAD)
        return;
    flush_out(o);
    if (h->ready || h->unwritable)
        later(o); /* not on the stack of whoever wrote */
}

static void on_write(struct task *t)
{
    origin_h2_write((struct origin *)((char *)t - offsetof(struct origin, write)));
}

void origin_h2_write_soon(struct origin *o)
{
    if (o->h2->running || o->h2->lost || o->state == ORIGIN_DEAD)
        return;
    o->write.cb = on_write;
    loop_defer(o->w->loop, &o->write);
}

/* --- in --- */

/* How many bytes must be there to weigh the frame: its head, and of padded DATA how much is padding. */
static size_t weighed_bytes(const unsigned char *p)
{
    return p[3] == NGHTTP2_DATA && p[4] & NGHTTP2_FLAG_PADDED && (p[0] || p[1] || p[2]) ? FRAME_HEAD + 1 : FRAME_HEAD;
}

/* DATA that brings something: bytes to a stream that is there, the end of one, or so many bytes that they cost whoever sends them. */
static bool brings(struct origin *o, const unsigned char *p, size_t n)
{
    size_t padding = weighed_bytes(p) > FRAME_HEAD ? 1u + p[FRAME_HEAD] : 0;
    if (n > padding + TINY)
        return true;
    int32_t id = (int32_t)((uint32_t)(p[5] & 0x7f) << 24 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 8 | p[8]);
    return (n > padding || p[4] & NGHTTP2_FLAG_END_STREAM) && nghttp2_session_get_stream_user_data(o->h2->session, id);
}

/* What the frame costs. False: it may not be. */
static bool weigh(struct origin *o, const unsigned char *p)
{
    struct origin_h2 *h = o->h2;
    const struct limits *lim = o->view->limits;
    size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
    unsigned type = p[3];
    h->frame_left = FRAME_HEAD + n;
    h->frames++;
    if (type == NGHTTP2_PUSH_PROMISE) {
        h->fault = "it pushes, which SETTINGS forbid";
        nghttp2_session_terminate_session(h->session, NGHTTP2_PROTOCOL_ERROR);
        return false;
    }
    if (type == NGHTTP2_DATA && brings(o, p, n))
        return true;
    bucket_give(&h->control, h->carried / BYTES_PER_FRAME, lim->h2_control_burst);
    h->carried %= BYTES_PER_FRAME;
    if (bucket_take(&h->control, lim->h2_control_burst, lim->h2_control_rate, loop_now_ms(o->w->loop)))
        return true;
    h->fault = "a flood of frames that carry nothing (limits.h2_control_burst)";
    nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
    return false;
}

static void tell_ready(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    while (h->ready) {
        struct origin_stream *s = h->ready;
        origin_h2_unqueue(s);
        origin_stream_tell(s);
    }
}

static bool gone(const struct origin *o)
{
    return o->state == ORIGIN_DEAD || o->h2->lost;
}

static void over(struct origin *o, const char *why)
{
    char text[160];
    flush_out(o); /* GOAWAY */
    snprintf(text, sizeof text, "the answer is malformed: HTTP/2: %s", o->h2->fault ? o->h2->fault : why);
    origin_h2_lost(o, END_ORIGIN_PROTOCOL, text);
}

/* One frame, or a part of one, at a time out of `in`. */
static void feed(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    while (!gone(o)) {
        struct str bytes = buf_str(&o->in);
        if (!bytes.n || (!h->frame_left && (bytes.n < FRAME_HEAD || bytes.n < weighed_bytes((const unsigned char *)bytes.p))))
            return;
        if (!h->frame_left && !weigh(o, (const unsigned char *)bytes.p)) {
            over(o, "");
            return;
        }
        size_t n = bytes.n < h->frame_left ? bytes.n : h->frame_left;
        ssize_t used = nghttp2_session_mem_recv(h->session, (const uint8_t *)bytes.p, n);
        if (used != (ssize_t)n) {
            if (used == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS || used == NGHTTP2_ERR_FLOODED)
                nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
            h->fault = h->fault || used >= 0 ? h->fault : nghttp2_strerror((int)used);
            over(o, "a frame that cannot be read");
            return;
        }
        h->frame_left -= n;
        tell_ready(o);
        if (o->state != ORIGIN_DEAD)
            buf_consume(&o->in, n);
        if (!gone(o) && !nghttp2_session_want_read(h->session)) { /* it broke the protocol, or is done: what follows means nothing */
            buf_reset(&o->in);
            h->frame_left = 0;
            return;
        }
    }
}

static void on_end(struct origin *o, enum io io)
{
    origin_h2_lost(o, END_ORIGIN_CLOSED, io == IO_EOF ? "the host closed the connection" : "the connection to the host broke");
}

static void read_some(struct origin *o)
{
    worker_lend(o->w, &o->in);
    for (int i = 0; i < READS_PER_ROUND; i++) {
        size_t n;
        char *p = buf_reserve(&o->in, READ_BYTES);
        enum io io = p ? stream_read(&o->stream, p, READ_BYTES, &n) : IO_ERROR;
        if (io == IO_AGAIN && !o->h2->unwritable)
            return;
        if (io != IO_OK) {
            on_end(o, io);
            return;
        }
        buf_wrote(&o->in, n);
        feed(o);
        if (gone(o) || (!stream_pending(&o->stream) && !o->h2->unwritable))
            return;
    }
    later(o); /* there is more in TLS, for which the socket will not wake us, but others wait too */
}

/* What was said is sent to the clients: once for all that was read. */
static void flush_clients(struct origin *o)
{
    for (struct origin_stream *s = o->h2->streams; s;) {
        struct origin_stream *next = s->next;
        if (s->unflushed) {
            s->unflushed = false;
            exchange_answer_flush(s->x);
            next = o->h2->streams; /* whoever that ended */
        }
        s = next;
    }
}

static void settle(struct origin *o)
{
    struct origin_h2 *h = o->h2;
    do {
        flush_clients(o);
        if (gone(o))
            return;
        flush_out(o);
        tell_ready(o);
    } while (!gone(o) && h->ready);
    if (gone(o))
        return;
    if (h->unwritable)
        later(o); /* first what it said before, to the end */
    else if (!nghttp2_session_want_read(h->session) && (!nghttp2_session_want_write(h->session) || stream_waiting(&o->stream)))
        over(o, "it broke the protocol, or went away");
}

static void run(struct origin *o, bool readable)
{
    struct origin_h2 *h = o->h2;
    h->running = true;
    if (!gone(o) && readable)
        read_some(o);
    tell_ready(o);
    if (o->state != ORIGIN_DEAD)
        settle(o);
    h->running = false;
    if (gone(o))
        return;
    worker_take_back(o->w, &o->in);
    /* What the last exchanges told wrote (a RST_STREAM, a request begun in a callback) goes now. */
    if (!h->unwritable && nghttp2_session_want_write(h->session) && !stream_waiting(&o->stream))
        origin_h2_write(o);
}

static void on_resume(struct task *t)
{
    struct origin *o = (struct origin *)((char *)t - offsetof(struct origin, resume));
    run(o, true);
}

void origin_h2_event(struct origin *o, uint32_t ev)
{
    struct origin_h2 *h = o->h2;
    if (ev & EPOLLOUT) {
        enum io io = stream_flush(&o->stream);
        if (io == IO_ERROR)
            h->unwritable = true;
        if (io != IO_AGAIN)
            h->blocked_ms = 0;
        if (io != IO_AGAIN)
            watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLOUT);
    }
    run(o, ev & (EPOLLIN | EPOLLHUP | EPOLLERR) || h->unwritable);
}

bool origin_h2_quiet(struct origin *o)
{
    if (!o->h2->running) /* else it is being read */
        run(o, true);
    return !gone(o) && origin_h2_room(o);
}

void origin_h2_lost(struct origin *o, enum end end, const char *why)
{
    struct origin_h2 *h = o->h2;
    if (gone(o))
        return;
    h->lost = true;
    pool_drop(o->w->pool, o);
    watch_del(&o->watch);
    task_cancel(&o->resume);
    task_cancel(&o->write);
    stream_close(&o->stream);
    for (struct origin_stream *s = h->streams; s;) {
        if (s->heard == HEARD_ALL && !s->fault) { /* the rest of it is here */
            s = s->next;
            continue;
        }
        origin_stream_lost(s, end, why);
        s = h->streams; /* whoever that ended */
    }
    if (!h->nstreams)
        origin_close(o);
}
