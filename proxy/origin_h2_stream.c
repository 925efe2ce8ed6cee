/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange on an HTTP/2 connection to its origin: the request as fields and DATA, the answer as the exchange knows it. */
#include "proxy/origin_h2.h"

#include "proxy/exchange_steps.h"
#include "proxy/h2_field.h"
#include "proxy/rewrite.h"

#include <stdio.h>

enum { LEND_MIN = 16 * 1024 };

/* --- the request --- */

static void send_head(struct exchange *x)
{
    static struct rewrite_field fields[REWRITE_FIELDS_MAX]; /* one thread; too much for the stack */
    static nghttp2_nv nv[REWRITE_FIELDS_MAX];
    struct origin_stream *s = x->origin_stream;
    struct origin_h2 *h = s->o->h2;
    size_t n = 0;
    struct buf bytes;
    buf_init(&bytes, 1024 * 1024);
    bytes.wipe = true;
    enum end end = rewrite_request_h2(x, fields, &n, &bytes);
    if (end != END_OK) {
        buf_done(&bytes);
        exchange_end(x, end, "the request head could not be written");
        return;
    }
    for (size_t i = 0; i < n; i++)
        nv[i] = h2_field_nv(fields[i].f.name, fields[i].f.value, fields[i].secret);
    nghttp2_data_provider body = { .read_callback = origin_stream_read };
    s->id = nghttp2_submit_request(h->session, NULL, nv, n, x->req.body == H1_BODY_NONE ? NULL : &body, NULL);
    buf_done(&bytes);
    if (s->id > 0)
        return;
    /* Out of stream numbers, or of memory; nothing was sent. */
    s->id = 0;
    h->no_more = true;
    s->closing = STREAM_UNPROCESSED;
    origin_h2_queue(s);
    origin_h2_write(s->o);
}

static size_t waiting(const struct origin_stream *s)
{
    return buf_size(&s->out) + s->lent.n;
}

static void put_trailers(nghttp2_session *session, struct origin_stream *s)
{
    nghttp2_nv nv[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 10 KiB, of which n are set */
    const char *p = buf_str(&s->trailers.bytes).p;
    size_t n = 0;
    for (; n < s->trailers.n && n < H1_TRAILER_FIELDS_MAX; n++) {
        const struct h2_size *size = &s->trailers.sizes[n];
        nv[n] = h2_field_nv(str_of(p, size->name_n), str_of(p + size->name_n, size->value_n), true);
        p += size->name_n + size->value_n;
    }
    (void)nghttp2_submit_trailer(session, s->id, nv, n); /* it fails where the stream is closing: then nobody waits for them */
}

/* nghttp2 has room for a DATA frame. What is not said here is put by on_send_data. */
ssize_t origin_stream_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length, uint32_t *flags, nghttp2_data_source *source,
                           void *ctx)
{
    (void)buf, (void)source;
    struct origin *o = ctx;
    struct origin_stream *s = nghttp2_session_get_stream_user_data(session, id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (buf_size(&o->out) >= ORIGIN_H2_OUT_HIGH)
        return NGHTTP2_ERR_PAUSE;
    size_t have = waiting(s);
    if (!have && !s->ended) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = have < length ? have : length;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == have && s->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->trailers.n) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            put_trailers(session, s);
        }
    }
    return (ssize_t)n;
}

static void resume(struct origin_stream *s)
{
    if (s->deferred && !s->o->h2->lost) {
        s->deferred = false;
        (void)nghttp2_session_resume_data(s->o->h2->session, s->id); /* it fails where the stream is closing */
    }
}

/* The origin has answered and takes no more of the request (RFC 9113 8.1). */
static bool unwanted(const struct origin_stream *s)
{
    return s->closing != STREAM_OPEN || s->o->h2->lost;
}

static void send_body(struct exchange *x, struct str data)
{
    struct origin_stream *s = x->origin_stream;
    if (unwanted(s))
        return;
    if (data.n >= LEND_MIN && !buf_size(&s->out) && !s->o->h2->running) { /* as much as may go, goes from where it lies */
        s->lent = data;
        resume(s);
        origin_h2_write(s->o);
        data = s->lent;
        s->lent = STR_NONE;
        if (x->origin_stream != s)
            return;
    }
    buf_put(&s->out, data);
    if (s->out.failed)
        origin_h2_queue(s);
}

static void send_end(struct exchange *x, const struct field *trailers, size_t n)
{
    struct origin_stream *s = x->origin_stream;
    const struct h1_limits lim = { SIZE_MAX / 4, H1_TRAILER_FIELDS_MAX, 0 }; /* the exchange bounded them */
    struct buf lower;
    buf_init(&lower, 64 * 1024);
    for (size_t i = 0; i < n; i++) {
        buf_reset(&lower);
        buf_put_lower(&lower, trailers[i].name);
        if (!lower.failed && !h2_field_fault(buf_str(&lower), trailers[i].value))
            h2_head_add(&s->trailers, buf_str(&lower), trailers[i].value, &lim);
    }
    buf_done(&lower);
    s->ended = true;
}

static void flush(struct exchange *x)
{
    struct origin_stream *s = x->origin_stream;
    if (waiting(s) || s->ended)
        resume(s);
    s->waits = waiting(s) > 0;
    origin_h2_write_soon(s->o);
}

static bool full(const struct exchange *x)
{
    return buf_size(&x->origin_stream->out) >= ORIGIN_H2_OUT_HIGH && !unwanted(x->origin_stream);
}

/* --- the answer --- */

static void fail(struct origin_stream *s, enum end end, const char *why, enum loss loss)
{
    exchange_origin_failed(s->x, end, why, loss); /* it lets go of the stream */
}

static void fail_malformed(struct origin_stream *s, const char *fault)
{
    char why[160];
    snprintf(why, sizeof why, "the answer is malformed: %s", fault);
    fail(s, END_ORIGIN_PROTOCOL, why, LOSS_FINAL);
}

static const char *take_field(struct h1_head *a, struct str name, struct str value, unsigned *lengths)
{
    uint64_t n;
    if (str_eq(name, STR(":status"))) {
        if (a->status || a->nfields || value.n != 3 || !str_to_u64(value, 999, &n) || n < 100)
            return "a :status that is none";
        a->status = (unsigned)n;
        return NULL;
    }
    const char *why = h2_field_fault(name, value);
    if (why)
        return why;
    enum h1_name id = h1_name_of(name);
    if (id == H1_CONTENT_LENGTH && (++*lengths > 1 || !h1_length_parse(value, &a->length)))
        return "Content-Length is not one number under 2^63";
    a->fields[a->nfields++] = (struct h1_field) { { name, value }, id };
    return NULL;
}

/* The head as the exchange takes it; its fields lie in the worker's scratch. NULL, or what is wrong. */
static const char *make_head(struct origin_stream *s, struct h1_head *a)
{
    const struct h2_head *h = &s->head;
    const char *p = buf_str(&h->bytes).p;
    unsigned lengths = 0;
    *a = (struct h1_head) { .fields = s->o->w->fields, .minor = 1, .keep_alive = true, .host = -1 };
    for (size_t i = 0; i < h->n && a->nfields < H1_FIELDS_MAX; i++) {
        struct str name = str_of(p, h->sizes[i].name_n), value = str_of(p + name.n, h->sizes[i].value_n);
        p += name.n + value.n;
        const char *why = take_field(a, name, str_trim(value), &lengths);
        if (why)
            return why;
    }
    if (!a->status)
        return "no :status";
    bool none = a->status < 200 || a->status == 204 || a->status == 304 || str_eq(s->x->req.method, STR("HEAD"));
    if (lengths && a->length && (a->status < 200 || a->status == 204))
        return "a length with an answer that has no body";
    if (none) {
        a->body = H1_BODY_NONE;
    } else if (lengths) {
        a->body = H1_BODY_LENGTH;
    } else if (s->heard == HEARD_ALL && !s->tail.n && !s->piece.n && !buf_size(&s->in)) {
        a->body = H1_BODY_LENGTH; /* it ended with its head: that is a length too */
        a->length = 0;
    } else {
        a->body = H1_BODY_CHUNKED;
    }
    if (a->body != H1_BODY_LENGTH)
        a->length = 0;
    return NULL;
}

/* False: nothing more can be told now. */
static bool tell_head(struct origin_stream *s)
{
    struct exchange *x = s->x;
    struct h1_head a;
    const char *why = make_head(s, &a);
    if (why) {
        fail_malformed(s, why);
        return false;
    }
    if (exchange_remint(x, a.status) || s->x != x)
        return false;
    s->head_waits = false;
    ptrdiff_t used = exchange_answer_head(x, &a, STR_NONE);
    if (s->x != x || used < 0)
        return false;
    s->unflushed = true;
    h2_head_done(&s->head);
    return true;
}

static void took(struct origin_stream *s, size_t n)
{
    if (!s->o->h2->lost)
        nghttp2_session_consume_stream(s->o->h2->session, s->id, n);
}

/* False: there is none, the client has no room, or the exchange is over. */
static bool tell_body(struct origin_stream *s)
{
    struct exchange *x = s->x;
    bool kept = buf_size(&s->in) > 0;
    struct str data = kept ? str_sub(buf_str(&s->in), 0, WORKER_BLOCK) : s->piece;
    if (!data.n || exchange_client_full(x))
        return false;
    if (!exchange_answer_body(x, data) || s->x != x)
        return false;
    s->unflushed = true;
    if (kept)
        origin_stream_gone(s, data.n);
    else
        s->piece = STR_NONE;
    took(s, data.n);
    return true;
}

static void tell_end(struct origin_stream *s)
{
    struct field fields[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which n are set */
    const char *p = buf_str(&s->tail.bytes).p;
    size_t n = 0;
    for (; n < s->tail.n; n++) {
        struct str name = str_of(p, s->tail.sizes[n].name_n), value = str_of(p + name.n, s->tail.sizes[n].value_n);
        p += name.n + value.n;
        const char *why = n == s->x->view->limits->trailer_fields ? "more trailer fields than limits.trailer_fields" : h2_field_fault(name, value);
        if (why) {
            fail_malformed(s, why);
            return;
        }
        fields[n] = (struct field) { name, str_trim(value) };
    }
    exchange_answer_end(s->x, fields, n, true);
}

static void tell_closed(struct origin_stream *s)
{
    char why[160];
    if (s->closing == STREAM_UNPROCESSED) {
        fail(s, END_ORIGIN_PROTOCOL, "the host refused the request unread (REFUSED_STREAM)", LOSS_UNPROCESSED);
        return;
    }
    if (s->peer_reset && s->code == NGHTTP2_HTTP_1_1_REQUIRED && s->heard == HEARD_NOTHING) {
        s->x->http11_only = true;
        fail(s, END_ORIGIN_PROTOCOL, "the host wants HTTP/1.1 for it", LOSS_UNPROCESSED);
        return;
    }
    if (s->peer_reset)
        snprintf(why, sizeof why, "the host reset the stream (%s)", nghttp2_http2_strerror(s->code));
    else
        snprintf(why, sizeof why, "the answer is malformed: HTTP/2 (%s)", nghttp2_http2_strerror(s->code));
    fail(s, s->peer_reset ? END_ORIGIN_CLOSED : END_ORIGIN_PROTOCOL, why, LOSS_FINAL);
}

void origin_stream_gone(struct origin_stream *s, size_t n)
{
    buf_consume(&s->in, n);
    fair_give(&s->o->w->h2_answers, s->owner, n);
}

/* What the client had no room for stays, out of the frame that is being read. False: the exchange is over. */
static bool keep_piece(struct origin_stream *s)
{
    struct worker *w = s->o->w;
    struct str piece = s->piece;
    s->piece = STR_NONE;
    if (!piece.n)
        return true;
    if (!fair_take(&w->h2_answers, s->owner, piece.n, s->x->view->limits->h2_answer_bytes)) {
        exchange_stop(s->x, END_RATE_LIMITED, "the answers that wait for their clients are more than the agent's share of limits.h2_answer_bytes");
        return false;
    }
    if (buf_put(&s->in, piece)) {
        fair_give(&w->h2_answers, s->owner, piece.n);
        s->fault = "more than its window allows";
    }
    return true;
}

static void tell_all(struct origin_stream *s)
{
    struct exchange *x = s->x;
    if (s->moved) {
        s->moved = false;
        exchange_origin_room(x);
    }
    if (s->x != x)
        return;
    if (s->fault || s->out.failed) {
        fail_malformed(s, s->fault ? s->fault : "the request does not fit its buffer");
        return;
    }
    while (s->x == x && (s->head_waits ? tell_head(s) : s->heard >= HEARD_HEAD && tell_body(s)))
        ;
    if (s->x != x)
        return;
    if (!keep_piece(s))
        return;
    if (s->fault)
        fail_malformed(s, s->fault);
    else if (s->heard == HEARD_ALL && !s->head_waits && !buf_size(&s->in))
        tell_end(s);
    else if (s->closing != STREAM_OPEN && s->heard != HEARD_ALL)
        tell_closed(s);
}

void origin_stream_tell(struct origin_stream *s)
{
    if (!s->x || s->telling)
        return;
    s->telling = true;
    tell_all(s);
    s->telling = false;
    /* Where the kernel took at once what had filled the client's buffer, nobody else will say that there is room again. */
    if (s->x && !s->head_waits && buf_size(&s->in) && !exchange_client_full(s->x)) {
        origin_h2_queue(s);
        origin_h2_write(s->o);
    }
}

void origin_stream_lost(struct origin_stream *s, enum end end, const char *why)
{
    char text[160];
    enum loss loss = LOSS_FINAL;
    bool unsent = s->x->step < STEP_STREAM;
    if (s->closing == STREAM_UNPROCESSED) {
        loss = LOSS_UNPROCESSED;
    } else if (end == END_ORIGIN_CLOSED) {
        /* Closed by the origin, which heard nothing or nothing yet of it. */
        bool silent = s->heard == HEARD_NOTHING && (unsent || s->o->h2->frames == s->frames_before);
        loss = silent && !s->first ? LOSS_STALE : LOSS_FINAL;
        snprintf(text, sizeof text, "%s %s", why, s->heard == HEARD_NOTHING ? "without an answer" : "in mid answer");
        why = text;
        end = s->heard == HEARD_NOTHING ? END_ORIGIN_PROTOCOL : END_ORIGIN_CLOSED;
    }
    fail(s, end, why, loss);
}

static void more(struct exchange *x)
{
    struct origin_stream *s = x->origin_stream;
    origin_stream_tell(s);
    if (s->x && s->unflushed && !s->telling && !s->o->h2->running) {
        s->unflushed = false;
        exchange_answer_flush(s->x);
    }
    if (s->x == x)
        origin_h2_write_soon(s->o); /* credit */
}

/* Any stream may be refused unread: what was sent is kept until something of an answer comes. */
static bool reused(const struct exchange *x)
{
    (void)x;
    return true;
}

static void release(struct exchange *x, bool keep)
{
    (void)keep; /* a stream is let go of by itself */
    struct origin_stream *s = x->origin_stream;
    x->origin = NULL;
    x->origin_stream = NULL;
    origin_h2_drop(s);
}

const struct origin_ops origin_h2_ops = { send_head, send_body, send_end, flush, full, more, reused, release };
