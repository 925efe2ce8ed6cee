/* SPDX-License-Identifier: Apache-2.0
 *
 * What nghttp2 says of a connection and its streams: written down, nothing else (see the header). */
#include "proxy/origin_h2.h"

#include "proxy/h2_mem.h"

enum {
    FRAME_HEAD = 9,
    CONNECTION_WINDOW = 4 * 1024 * 1024, /* given back at once: the larger of what a path holds and what one read brings */
    CONTINUATIONS_MAX = 8,
    PER_FRAME_SENT = 4, /* an origin answers each DATA frame by two WINDOW_UPDATE and perhaps a PING */
};

static struct origin_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return id ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    if (!s)
        return 0;
    if (s->heard == HEARD_NOTHING)
        s->heard = HEARD_INTERIM;
    struct h2_head *h = s->heard < HEARD_HEAD ? &s->head : &s->tail;
    h2_head_done(h);
    h->bytes.wipe = s->x->covered; /* it may hold a real value until the scrubber took it out */
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *ctx)
{
    (void)flags, (void)ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    if (!s)
        return 0;
    const struct limits *lim = s->x->view->limits;
    bool tail = s->heard >= HEARD_HEAD;
    struct h1_limits hl = { tail ? lim->trailer_bytes : lim->head_bytes, lim->header_fields, 0 };
    struct h2_head *h = tail ? &s->tail : &s->head;
    h2_head_add(h, str_of(name, name_n), str_of(value, value_n), &hl);
    if (!h->too_large)
        return 0;
    s->fault = tail ? "its trailers are over limits.trailer_bytes or limits.header_fields"
                    : "its head is over limits.head_bytes or limits.header_fields";
    s->reset = true; /* nghttp2 does, for this return */
    origin_h2_queue(s);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* Without this nghttp2 would leave out the field, and give the rest. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n, const uint8_t *value,
                             size_t value_n, uint8_t flags, void *ctx)
{
    (void)name, (void)name_n, (void)value, (void)value_n, (void)flags, (void)ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    if (!s)
        return 0;
    s->fault = "a field that may not be in it";
    s->reset = true;
    origin_h2_queue(s);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* nghttp2 took a :status that is three digits, and first. */
static bool is_final(const struct h2_head *h)
{
    struct str bytes = buf_str(&h->bytes);
    return !(h->n && str_eq(str_sub(bytes, 0, h->sizes[0].name_n), STR(":status")) && bytes.n > h->sizes[0].name_n &&
             bytes.p[h->sizes[0].name_n] == '1');
}

static void heard_headers(struct origin_stream *s, bool end)
{
    if (s->heard < HEARD_HEAD) {
        s->head_waits = true;
        if (is_final(&s->head))
            s->heard = HEARD_HEAD;
    }
    if (end)
        s->heard = HEARD_ALL;
    origin_h2_queue(s);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct origin *o = ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (s)
            heard_headers(s, end);
        break;
    case NGHTTP2_DATA:
        if (s && end) {
            s->heard = HEARD_ALL;
            origin_h2_queue(s);
        }
        break;
    case NGHTTP2_RST_STREAM:
        if (s)
            s->peer_reset = true; /* its close follows */
        break;
    case NGHTTP2_GOAWAY:
        o->h2->no_more = true;
        break;
    default:
        break;
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *ctx)
{
    struct origin *o = ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    if (!o->h2->fault)
        o->h2->fault = nghttp2_strerror(code);
    if (s && !s->fault) {
        s->fault = nghttp2_strerror(code);
        s->reset = true;
        origin_h2_queue(s);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *ctx)
{
    (void)flags;
    struct origin *o = ctx;
    struct origin_stream *s = stream_of(session, id);
    nghttp2_session_consume_connection(session, n);
    o->h2->carried += n;
    if (!s) {
        nghttp2_session_consume_stream(session, id, n);
        return 0;
    }
    s->piece = str_of(data, n); /* in `in`, which stays until it was told */
    origin_h2_queue(s);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    (void)ctx;
    struct origin_stream *s = stream_of(session, id);
    if (!s)
        return 0;
    s->closing = code == NGHTTP2_REFUSED_STREAM && s->heard == HEARD_NOTHING ? STREAM_UNPROCESSED : STREAM_CLOSED;
    s->code = code;
    if (s->closing == STREAM_UNPROCESSED)
        s->o->h2->no_more = true; /* it has enough: what comes now is better dialled for */
    origin_h2_queue(s);
    return 0;
}

static struct origin_stream *find_id(struct origin *o, int32_t id)
{
    struct origin_stream *s = o->h2->streams;
    while (s && s->id != id)
        s = s->next;
    return s;
}

/* A request that waits in nghttp2's queue may be let go of before it has a stream: only now is it tied to ours. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct origin *o = ctx;
    const struct limits *lim = o->view->limits;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        struct origin_stream *s = find_id(o, frame->hd.stream_id);
        if (s) {
            nghttp2_session_set_stream_user_data(session, s->id, s);
            s->frames_before = o->h2->frames;
            s->sent_ms = loop_now_ms(o->w->loop);
        }
        bucket_give(&o->h2->control, PER_FRAME_SENT, lim->h2_control_burst);
    } else if (frame->hd.type == NGHTTP2_DATA) {
        bucket_give(&o->h2->control, PER_FRAME_SENT, lim->h2_control_burst);
    }
    return 0;
}

/* It went away before the request had a stream. */
static int on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code, void *ctx)
{
    (void)session, (void)code;
    struct origin *o = ctx;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct origin_stream *s = find_id(o, frame->hd.stream_id);
    if (!s)
        return 0;
    s->closing = STREAM_UNPROCESSED;
    s->code = NGHTTP2_REFUSED_STREAM;
    o->h2->no_more = true;
    origin_h2_queue(s);
    return 0;
}

/* A DATA frame: its head as nghttp2 made it, then the body from where it lies. */
static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source, void *ctx)
{
    (void)source;
    struct origin *o = ctx;
    struct origin_stream *s = stream_of(session, frame->hd.stream_id);
    size_t had = s ? buf_size(&s->out) : 0;
    if (!s || had + s->lent.n < n)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t first = n < had ? n : had;
    buf_put(&o->out, str_of(head, FRAME_HEAD));
    buf_put(&o->out, str_sub(buf_str(&s->out), 0, first));
    buf_put(&o->out, str_sub(s->lent, 0, n - first));
    buf_consume(&s->out, first);
    s->lent = str_from(s->lent, n - first);
    o->h2->carried += n;
    if (s->waits && n) {
        s->moved = true;
        origin_h2_queue(s);
    }
    return o->out.failed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- the session --- */

static nghttp2_session_callbacks *callbacks(void)
{
    static nghttp2_session_callbacks *c; /* one for the process */
    if (c || nghttp2_session_callbacks_new(&c))
        return c;
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(c, on_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(c, on_send_data);
    return c;
}

static nghttp2_option *options(void)
{
    static nghttp2_option *opt;
    if (opt || nghttp2_option_new(&opt))
        return opt;
    nghttp2_option_set_no_auto_window_update(opt, 1);
    nghttp2_option_set_no_closed_streams(opt, 1);
    nghttp2_option_set_max_continuations(opt, CONTINUATIONS_MAX);
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(opt, 1); /* origins send it; we take it off */
    return opt;
}

int origin_h2_session(struct origin *o, bool covered)
{
    struct origin_h2 *h = o->h2;
    nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, ORIGIN_H2_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)o->view->limits->head_bytes },
    };
    if (!callbacks() || !options() ||
        nghttp2_session_client_new3(&h->session, callbacks(), o, options(), covered ? h2_mem_wiping() : NULL))
        return -1;
    if (nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) ||
        nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW))
        return -1;
    return 0;
}
