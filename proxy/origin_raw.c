/* SPDX-License-Identifier: Apache-2.0
 *
 * A tunnel that a rule lets through unread, on the origin's side: bytes as they are, both ways, each way with its own end. Nothing is read
 * before the client was told that the tunnel is open, nothing more than the client has room for. */
#include "proxy/origin.h"

#include "proxy/exchange_steps.h"

#include <sys/epoll.h>

enum { READ_BYTES = WORKER_BLOCK - 8, READS_PER_ROUND = 4 };

static void on_resume(struct task *t)
{
    origin_raw_readable((struct origin *)((char *)t - offsetof(struct origin, resume)));
}

static void want(struct origin *o)
{
    uint32_t events = (o->raw_ended ? 0u : EPOLLIN) | (stream_waiting(&o->stream) ? EPOLLOUT : 0u);
    o->resume.cb = on_resume;
    if (o->watch.loop) {
        watch_set(&o->watch, events);
    } else { /* it was taken out, while the peer was gone and nothing could be read */
        o->watch.events = events;
        if (watch_add(o->w->loop, &o->watch))
            o->raw_lost = true;
    }
    if (stream_pending(&o->stream) || o->raw_lost)
        loop_defer(o->w->loop, &o->resume);
}

/* --- to the origin --- */

static void send_head(struct exchange *x)
{
    want(x->origin);
}

static void send_body(struct exchange *x, struct str data)
{
    struct origin *o = x->origin;
    if (o->raw_lost)
        return;
    o->active_ms = loop_now_ms(o->w->loop);
    enum io io = stream_write(&o->stream, data);
    if (io == IO_AGAIN)
        watch_set(&o->watch, o->watch.events | EPOLLOUT);
    if (io != IO_ERROR)
        return;
    o->raw_lost = true; /* what it said before that is read first */
    o->resume.cb = on_resume;
    loop_defer(o->w->loop, &o->resume);
}

void origin_raw_flushed(struct origin *o)
{
    if (o->sent_all && !stream_waiting(&o->stream) && !o->raw_lost)
        stream_shutdown(&o->stream);
}

static void send_end(struct exchange *x, const struct field *trailers, size_t n)
{
    (void)trailers;
    (void)n;
    x->origin->sent_all = true;
    origin_raw_flushed(x->origin);
}

static void flush(struct exchange *x)
{
    (void)x; /* each piece went at once */
}

static bool full(const struct exchange *x)
{
    return stream_waiting(&x->origin->stream);
}

static bool reused(const struct exchange *x)
{
    (void)x;
    return false;
}

static void release(struct exchange *x, bool keep)
{
    (void)keep;
    struct origin *o = x->origin;
    x->origin = NULL;
    o->x = NULL;
    origin_close(o);
}

/* --- from the origin --- */

static void ended(struct origin *o, enum io io)
{
    if (o->raw_ended) { /* it had said its last byte, and now takes nothing more either: as when a TLS server closes and the client says goodbye */
        exchange_tunnel_over(o->x);
        return;
    }
    if (io != IO_EOF) {
        origin_failed(o, END_ORIGIN_CLOSED, "the connection to the host broke");
        return;
    }
    o->raw_ended = true;
    if (o->watch.loop)
        watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLIN);
    exchange_tunnel_answer_end(o->x);
}

static void read_some(struct origin *o)
{
    struct exchange *x = o->x;
    worker_lend(o->w, &o->in);
    for (int i = 0; i < READS_PER_ROUND && !o->interrupted; i++) {
        size_t n;
        char *p = buf_reserve(&o->in, READ_BYTES);
        enum io io = p ? stream_read(&o->stream, p, READ_BYTES, &n) : IO_ERROR;
        if (io == IO_AGAIN)
            break;
        if (io != IO_OK) {
            ended(o, io);
            return;
        }
        buf_wrote(&o->in, n);
        bool goes_on = exchange_tunnel_answer(x, buf_str(&o->in));
        buf_reset(&o->in);
        if (goes_on)
            exchange_answer_flush(x);
        if (!goes_on || o->x != x)
            return;
        o->interrupted = exchange_client_full(x);
    }
    if (o->interrupted && o->watch.loop)
        watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLIN);
    else if (o->raw_lost) /* all that it had said was read, or would have been by now */
        ended(o, IO_ERROR);
}

void origin_raw_readable(struct origin *o)
{
    if (o->state != ORIGIN_BUSY || !o->x || o->reading)
        return;
    if (o->raw_ended && o->raw_lost) {
        ended(o, IO_ERROR);
        return;
    }
    if (o->x->step < STEP_STREAM || o->interrupted || o->raw_ended) { /* the kernel keeps what a server says before that */
        if (o->watch.loop)
            watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLIN);
        return;
    }
    o->reading = true;
    read_some(o);
    o->reading = false;
    if (o->state == ORIGIN_BUSY)
        worker_take_back(o->w, &o->in);
}

void origin_raw_event(struct origin *o, uint32_t ev)
{
    if (ev & (EPOLLHUP | EPOLLERR) && o->raw_ended)
        o->raw_lost = true; /* it takes nothing more either */
    if (ev & (EPOLLIN | EPOLLHUP | EPOLLERR))
        origin_raw_readable(o);
}

static void more(struct exchange *x)
{
    struct origin *o = x->origin;
    if (o->state != ORIGIN_BUSY || !o->interrupted)
        return;
    o->interrupted = false;
    want(o);
}

const struct origin_ops origin_raw_ops = { send_head, send_body, send_end, flush, full, more, reused, release };
