/* SPDX-License-Identifier: Apache-2.0
 *
 * What nghttp2 calls while it reads and writes, and what is counted of it. */
#include "proxy/client_h2_stream.h"

enum { FRAME_MAX = 16384 /* SETTINGS_MAX_FRAME_SIZE as it is without being said */ };

static bool was_reset(const struct client_h2 *h, int32_t id)
{
    for (size_t i = 0; i < H2_RESETS_KEPT; i++)
        if (h->resets_sent[i] == id)
            return true;
    return false;
}

/* A new stream's identifier is higher than all before (RFC 9113 5.1.1). Of one that is forgotten only what was on its way when we
 * reset it may still come. */
static void check_identifier(struct client *c, int32_t id)
{
    struct client_h2 *h = c->h2;
    if (id > h->highest)
        h->highest = id;
    else if (!nghttp2_session_find_stream(h->session, id) && !was_reset(h, id))
        h2_end_connection(c, NGHTTP2_PROTOCOL_ERROR, "HTTP/2: a stream's identifier is not higher than those before");
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct client *c = user;
    switch (hd->type) {
    case NGHTTP2_DATA:
        if (!hd->length && !(hd->flags & NGHTTP2_FLAG_END_STREAM))
            h2_count_control(c);
        break;
    case NGHTTP2_HEADERS:
        check_identifier(c, hd->stream_id);
        break;
    case NGHTTP2_CONTINUATION: /* nghttp2 takes eight of them, of any size */
        if (hd->length > FRAME_MAX)
            h2_end_connection(c, NGHTTP2_FRAME_SIZE_ERROR, "HTTP/2: a frame over SETTINGS_MAX_FRAME_SIZE");
        break;
    case NGHTTP2_RST_STREAM:
        if (h2_stream_at(session, hd->stream_id))
            h2_count_reset(c);
        h2_count_control(c);
        break;
    default:
        h2_count_control(c);
        break;
    }
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *c = user;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    c->h2->head_open = true;
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    if (s || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = h2_stream_new(c, frame->hd.stream_id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, s->id, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *user)
{
    (void)flags;
    struct client *c = user;
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    if (!s || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    const struct limits *lim = c->view->limits;
    bool trailers = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
    struct h1_limits hl = { trailers ? lim->trailer_bytes : lim->head_bytes, lim->header_fields, lim->target_bytes };
    h2_head_add(&s->head, str_of(name, name_n), str_of(value, value_n), &hl);
    return 0;
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                             const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    (void)session, (void)frame, (void)name, (void)name_n, (void)value, (void)value_n, (void)flags, (void)user;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* nothing is passed over: the stream is reset */
}

/* Of a type that RFC 9113 does not know: counted when it began, and thrown away (5.5). */
static int on_unknown_frame(nghttp2_session *session, void **ret, const nghttp2_frame_hd *hd, void *user)
{
    (void)session, (void)ret, (void)hd, (void)user;
    return NGHTTP2_ERR_CANCEL;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *c = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_HEADERS)
        c->h2->head_open = false;
    if (frame->hd.type == NGHTTP2_DATA && !end && frame->hd.length && frame->hd.length == frame->data.padlen)
        h2_count_control(c);
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    if (s && frame->hd.type == NGHTTP2_RST_STREAM)
        s->was_reset = true;
    if (!s || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        h2_request(s, end);
        if (s->x)
            h2_mark_dirty(s);
    } else if (end) {
        s->in_end = true;
        h2_mark_dirty(s);
        h2_push_body(s);
    }
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user)
{
    (void)code;
    struct client *c = user;
    c->h2->head_open = false;
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    if (s)
        h2_malformed(s);
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user)
{
    (void)flags;
    struct client *c = user;
    struct client_stream *s = h2_stream_at(session, id);
    h2_carried(c, n);
    nghttp2_session_consume_connection(session, n);
    if (!s)
        return 0;
    struct exchange *x = s->x;
    if (!x) { /* past that its window stays shut, until it ends or its time is over */
        s->drained += n;
        if (s->drained <= c->view->limits->drain_body_bytes)
            h2_give_window(s, n);
        return 0;
    }
    if (buf_size(&s->in) || !exchange_takes_body(x)) {
        h2_hold(s, str_of(data, n));
    } else {
        exchange_request_body(x, str_of(data, n));
        if (s->x == x) {
            h2_give_window(s, n);
            h2_mark_dirty(s);
        }
    }
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *c = user;
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_RST_STREAM:
        c->h2->resets_sent[c->h2->next_reset++ % H2_RESETS_KEPT] = frame->hd.stream_id;
        if (s && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
            s->was_reset = true;
        switch (frame->rst_stream.error_code) {
        case NGHTTP2_NO_ERROR:
        case NGHTTP2_CANCEL:
        case NGHTTP2_INTERNAL_ERROR: /* ours, not the client's doing */
            break;
        case NGHTTP2_REFUSED_STREAM:
            h2_count_control(c);
            break;
        default:
            if (s)
                s->reset_here = true;
            h2_count_reset(c);
            break;
        }
        break;
    case NGHTTP2_GOAWAY:
        c->h2->goodbye = true;
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && !c->h2->fault)
            c->h2->fault = "HTTP/2: the client broke the protocol";
        break;
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS:
        if (!s || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            break;
        if (s->reset_after) {
            h2_reset(s, s->reset_after);
        } else if (!s->in_end) {
            s->drains = true;
            s->moved_ms = loop_now_ms(c->w->loop);
        }
        break;
    default:
        break;
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct client *c = user;
    struct client_stream *s = h2_stream_at(session, id);
    if (!s)
        return 0;
    s->closed = true;
    struct exchange *x = s->x;
    if (x) {
        s->x = NULL;
        x->client_stream = NULL;
        if (s->reset_here)
            exchange_request_failed(x, END_BAD_REQUEST, "the client broke the rules of HTTP/2 on this stream");
        else
            exchange_request_failed(x, END_CLIENT_CLOSED, s->in_end ? NULL : "the client went away in mid request");
    }
    if (code == NGHTTP2_NO_ERROR && !s->was_reset)
        bucket_give(&c->h2->resets, 1, c->view->limits->h2_resets_burst);
    nghttp2_session_set_stream_user_data(session, id, NULL);
    h2_stream_free(s);
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- the session --- */

int h2_session_new(struct client *c)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *opt = NULL;
    int r = nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&opt) ? -1 : 0;
    if (r == 0) {
        nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
        nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
        nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
        nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
        nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
        nghttp2_session_callbacks_set_send_data_callback(cb, h2_send_data);
        nghttp2_session_callbacks_set_unpack_extension_callback(cb, on_unknown_frame);
        for (int type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++)
            nghttp2_option_set_user_recv_extension_type(opt, (uint8_t)type); /* else they are passed over before they can be counted */
        nghttp2_option_set_no_auto_window_update(opt, 1);
        r = nghttp2_session_server_new2(&c->h2->session, cb, c, opt) ? -1 : 0;
    }
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(opt);
    return r;
}
