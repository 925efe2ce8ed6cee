/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 towards the origin: one exchange at a time, answers read strictly, framing made anew for what is sent. Any doubt (bytes
 * after an answer, an answer before the request was whole, a close) ends the connection instead of reusing it. */
#include "proxy/origin.h"

#include "proxy/exchange_steps.h"
#include "proxy/pool.h"
#include "proxy/rewrite.h"

#include <stdio.h>
#include <sys/epoll.h>

/* What is read at once fits a block also with the chunk's framing around it, and is then whole records again for the client. */
enum { READ_BYTES = WORKER_BLOCK - 8, OUT_HIGH = 128 * 1024, READS_PER_ROUND = 4 };

void origin_h1_begin(struct origin *o)
{
    struct exchange *x = o->x;
    o->in_body = o->got_byte = o->sent_all = o->interrupted = o->switched = o->shut = false;
    o->keep_alive = true;
    o->head_from = 0;
    o->in.wipe = x->covered; /* what comes back may hold a real value: here, and in OpenSSL's buffers until it is read */
    if (o->stream.ssl && x->covered)
        SSL_set_options(o->stream.ssl, SSL_OP_CLEANSE_PLAINTEXT);
    else if (o->stream.ssl)
        SSL_clear_options(o->stream.ssl, SSL_OP_CLEANSE_PLAINTEXT);
    memcpy(x->origin_addr, o->addr, sizeof x->origin_addr);
    memcpy(x->tls_version, o->tls_version, sizeof x->tls_version);
    memcpy(x->tls_cipher, o->tls_cipher, sizeof x->tls_cipher);
    memcpy(x->tls_issuer, o->tls_issuer, sizeof x->tls_issuer);
}

/* --- the request --- */

/* Answers are wanted: the watch may have been narrowed, or taken out when the peer was gone, while none could be read. */
static void want_answer(struct origin *o)
{
    uint32_t events = EPOLLIN | (stream_waiting(&o->stream) ? EPOLLOUT : 0u);
    if (o->watch.loop) {
        watch_set(&o->watch, events);
        return;
    }
    o->watch.events = events;
    if (watch_add(o->w->loop, &o->watch))
        origin_failed(o, END_ORIGIN_CLOSED, "out of memory");
}

static void send_head(struct exchange *x)
{
    struct origin *o = x->origin;
    want_answer(o);
    if (o->state != ORIGIN_BUSY)
        return;
    o->chunked = x->req.body != H1_BODY_NONE && x->req.body != H1_BODY_LENGTH;
    worker_lend(o->w, &o->out);
    enum end end = rewrite_request_h1(x, &o->out);
    if (end != END_OK) {
        buf_reset(&o->out);
        exchange_end(x, end, "the request head could not be written");
    }
}

static void send_body(struct exchange *x, struct str data)
{
    struct origin *o = x->origin;
    worker_lend(o->w, &o->out);
    if (o->chunked)
        h1_put_chunk(&o->out, data);
    else
        buf_put(&o->out, data);
}

static void send_end(struct exchange *x, const struct field *trailers, size_t n)
{
    struct origin *o = x->origin;
    if (o->chunked)
        h1_put_chunk_end(&o->out, trailers, n);
    o->sent_all = true;
}

static void flush(struct exchange *x)
{
    struct origin *o = x->origin;
    if (o->state != ORIGIN_BUSY || !origin_write(o) || !o->switched || !o->sent_all || o->shut || stream_waiting(&o->stream))
        return;
    o->shut = true;
    stream_shutdown(&o->stream);
}

static bool full(const struct exchange *x)
{
    const struct origin *o = x->origin;
    return stream_waiting(&o->stream) || buf_size(&o->out) >= OUT_HIGH;
}

/* --- the answer --- */

static void fail_parse(struct origin *o, enum h1_result r, const struct h1_fault *fault)
{
    char why[160];
    if (r == H1_TOO_LARGE)
        snprintf(why, sizeof why, "the answer's head is over limits.head_bytes or limits.header_fields");
    else
        snprintf(why, sizeof why, "the answer is malformed: %s", fault->why);
    origin_failed(o, END_ORIGIN_PROTOCOL, why);
}

/* One head out of `in`. False: stop parsing for now. */
static bool parse_head(struct origin *o)
{
    struct exchange *x = o->x;
    const struct limits *lim = x->view->limits;
    struct h1_limits hl = { lim->head_bytes, lim->header_fields, lim->target_bytes };
    struct h1_head h;
    struct h1_fault fault = { 0 };
    struct str bytes = buf_str(&o->in);
    enum h1_result r = h1_response_parse(bytes, x->req.method, &hl, o->w->fields, &o->head_from, &h, &fault);
    if (r == H1_MORE)
        return false;
    if (r != H1_DONE) {
        fail_parse(o, r, &fault);
        return false;
    }
    o->head_from = 0;
    if (exchange_remint(x, h.status)) {
        o->interrupted = true;
        return false;
    }
    if (h.status >= 200) {
        o->keep_alive &= h.keep_alive && h.body != H1_BODY_UNTIL_CLOSE;
        h1_body_in_init(&o->body, &h, lim->chunk_ext_bytes, lim->trailer_bytes);
        o->in_body = true;
    }
    if (h.status == 101) { /* if the exchange takes it: what follows is what was asked for */
        const struct h1_head until_close = { .body = H1_BODY_UNTIL_CLOSE };
        h1_body_in_init(&o->body, &until_close, 0, 0);
        o->keep_alive = o->sent_all = false;
        o->in_body = o->switched = true;
    }
    struct str rest = str_from(bytes, h.bytes);
    ptrdiff_t used = exchange_answer_head(x, &h, rest);
    if (used < 0)
        return false;
    buf_consume(&o->in, h.bytes);
    if (used > 0) { /* a whole short body went with the head: the decoder is told */
        struct str data;
        size_t took;
        h1_body_next(&o->body, str_sub(buf_str(&o->in), 0, (size_t)used), &took, &data, &fault);
        buf_consume(&o->in, (size_t)used);
    }
    return true;
}

static void message_end(struct origin *o, const struct field *trailers, size_t n)
{
    struct exchange *x = o->x;
    bool clean = o->keep_alive && o->sent_all && !stream_waiting(&o->stream) && !buf_size(&o->out) && !buf_size(&o->in) &&
                 !stream_pending(&o->stream);
    exchange_answer_end(x, trailers, n, clean);
}

static bool trailers_end(struct origin *o, struct str section, size_t used)
{
    struct exchange *x = o->x;
    const struct limits *lim = x->view->limits;
    struct h1_limits hl = { lim->trailer_bytes, lim->trailer_fields, lim->target_bytes };
    struct h1_fault fault = { 0 };
    struct field fields[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which n are set */
    size_t n = 0, bytes;
    enum h1_result r = h1_trailers_parse(section, &hl, o->w->fields, &n, &bytes, &fault);
    if (r != H1_DONE) {
        fail_parse(o, r, &fault);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        fields[i] = o->w->fields[i].f;
    /* The section lies in `in`: the exchange must have it before it is dropped, and the END that follows takes nothing more. */
    struct buf copy;
    buf_init(&copy, section.n + 1);
    buf_put(&copy, section);
    for (size_t i = 0; i < n; i++) {
        fields[i].name.p = buf_str(&copy).p + (fields[i].name.p - section.p);
        fields[i].value.p = buf_str(&copy).p + (fields[i].value.p - section.p);
    }
    buf_consume(&o->in, used);
    size_t end_used;
    struct str none;
    enum h1_body_event e = h1_body_next(&o->body, buf_str(&o->in), &end_used, &none, &fault);
    if (e == H1_BODY_END) {
        buf_consume(&o->in, end_used);
        message_end(o, fields, n);
    }
    buf_done(&copy);
    return false;
}

/* One piece of body out of `in`. False: stop parsing for now. */
static bool parse_body(struct origin *o)
{
    struct exchange *x = o->x;
    size_t used = 0;
    struct str data = STR_NONE;
    struct h1_fault fault = { 0 };
    /* With nothing left in `in` this may be the end of the answer, which needs no room and of which nothing more would tell us. */
    if ((buf_size(&o->in) || o->switched) && exchange_client_full(x)) {
        o->interrupted = true;
        return false;
    }
    enum h1_body_event e = h1_body_next(&o->body, buf_str(&o->in), &used, &data, &fault);
    switch (e) {
    case H1_BODY_MORE:
        buf_consume(&o->in, used);
        return false;
    case H1_BODY_DATA:
        if (!exchange_answer_body(x, data))
            return false;
        buf_consume(&o->in, used);
        return true;
    case H1_BODY_TRAILERS:
        return trailers_end(o, data, used);
    case H1_BODY_END:
        buf_consume(&o->in, used);
        message_end(o, NULL, 0);
        return false;
    case H1_BODY_BAD:
    default:
        fail_parse(o, H1_BAD, &fault);
        return false;
    }
}

static void parse(struct origin *o)
{
    struct exchange *x = o->x;
    while (o->x == x && o->state == ORIGIN_BUSY && (o->in_body ? parse_body(o) : buf_size(&o->in) && parse_head(o)))
        ;
}

/* The origin said no more, properly or not. */
static void on_end(struct origin *o, enum io io)
{
    if (!o->x) {
        origin_close(o);
        return;
    }
    bool proper = io == IO_EOF;
    if (o->in_body && proper && h1_body_closed(&o->body)) {
        o->keep_alive = false;
        message_end(o, NULL, 0);
        return;
    }
    origin_failed(o, o->got_byte ? END_ORIGIN_CLOSED : END_ORIGIN_PROTOCOL,
                  !o->got_byte ? "the host closed the connection without an answer"
                  : proper     ? "the host closed the connection in mid answer"
                               : "the connection to the host broke in mid answer");
}

enum io origin_h1_quiet(struct origin *o)
{
    char byte;
    size_t n;
    return stream_read(&o->stream, &byte, 1, &n);
}

/* Between requests, or before the first byte of one. What an origin says then is no answer to what is sent afterwards. */
static void read_early(struct origin *o)
{
    enum io io = origin_h1_quiet(o);
    if (io == IO_AGAIN)
        return;
    if (o->state == ORIGIN_IDLE)
        origin_close(o);
    else
        origin_failed(o, END_ORIGIN_PROTOCOL, io == IO_OK ? "the host spoke before it was asked" : "the host closed the connection without an answer");
}

static void on_resume(struct task *t)
{
    struct origin *o = (struct origin *)((char *)t - offsetof(struct origin, resume));
    origin_h1_readable(o);
}

static void read_busy(struct origin *o)
{
    struct exchange *x = o->x;
    worker_lend(o->w, &o->in);
    for (int i = 0; i < READS_PER_ROUND; i++) {
        size_t room = READ_BYTES - (buf_size(&o->in) ? READ_BYTES / 2 : 0), n;
        char *p = buf_reserve(&o->in, room);
        enum io io = p ? stream_read(&o->stream, p, room, &n) : IO_ERROR;
        if (io == IO_AGAIN)
            return;
        if (io != IO_OK) {
            on_end(o, io);
            return;
        }
        buf_wrote(&o->in, n);
        o->got_byte = true;
        parse(o);
        if (o->state != ORIGIN_BUSY || o->x != x || o->interrupted || !stream_pending(&o->stream))
            return;
        exchange_answer_flush(x); /* a block at a time: what was just read is still in the processor's cache */
        if (o->state != ORIGIN_BUSY || o->x != x)
            return;
    }
    /* There is more in TLS, for which the socket will not wake us, but others wait too. */
    o->resume.cb = on_resume;
    loop_defer(o->w->loop, &o->resume);
}

void origin_h1_readable(struct origin *o)
{
    if (o->state == ORIGIN_IDLE || (o->x && o->x->step < STEP_STREAM)) {
        read_early(o);
        return;
    }
    if (o->reading)
        return;
    if (!o->x || o->interrupted) { /* nothing may be read now */
        watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLIN);
        return;
    }
    struct exchange *x = o->x;
    o->reading = true;
    if (buf_size(&o->in))
        parse(o);
    if (o->state == ORIGIN_BUSY && o->x == x && !o->interrupted)
        read_busy(o);
    o->reading = false;
    if (o->state == ORIGIN_BUSY)
        worker_take_back(o->w, &o->in);
    if (x->step == STEP_STREAM)
        exchange_answer_flush(x);
    /* Where the kernel took at once what had filled the client's buffer, nobody else will say that there is room again. */
    if (o->state == ORIGIN_BUSY && o->x == x && o->interrupted && o->in_body && !exchange_client_full(x)) {
        o->interrupted = false;
        o->resume.cb = on_resume;
        loop_defer(o->w->loop, &o->resume);
    }
}

static void more(struct exchange *x)
{
    struct origin *o = x->origin;
    if (o->state != ORIGIN_BUSY)
        return;
    o->interrupted = false;
    want_answer(o);
    if (o->state != ORIGIN_BUSY)
        return;
    /* Bytes may be waiting in `in` or in TLS, for which the socket will not wake us. */
    if (buf_size(&o->in) || stream_pending(&o->stream))
        origin_h1_readable(o);
}

static bool reused(const struct exchange *x)
{
    return x->origin->served > 0;
}

static void release(struct exchange *x, bool keep)
{
    struct origin *o = x->origin;
    x->origin = NULL;
    o->x = NULL;
    o->served++;
    if (keep && o->state == ORIGIN_BUSY) {
        o->state = ORIGIN_IDLE;
        o->idle_round = loop_round(o->w->loop);
        watch_set(&o->watch, EPOLLIN);
        worker_take_back(o->w, &o->in);
        worker_take_back(o->w, &o->out);
        pool_put(o->w->pool, o);
    } else {
        origin_close(o);
    }
}

const struct origin_ops origin_h1_ops = { send_head, send_body, send_end, flush, full, more, reused, release };
