/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection: bytes in and out, its deadlines, its end. */
#include "proxy/client_h2_stream.h"


#include <stdlib.h>

enum {
    CONNECTION_WINDOW = 1024 * 1024,
    STALL_LOOKS = 4, /* as often in a limits.write_timeout it is looked whether a stream stalls */
};

/* --- in and out --- */

static void flush_dirty(struct client *c)
{
    struct client_h2 *h = c->h2;
    while (h->dirty && c->state == CLIENT_H2) {
        struct client_stream *s = h->dirty;
        h->dirty = s->next_dirty;
        s->in_dirty = false;
        if (s->x)
            exchange_request_flush(s->x);
    }
}

static void give_room(struct client *c)
{
    struct client_h2 *h = c->h2;
    while (h->room && c->state == CLIENT_H2) {
        struct client_stream *s = h->room;
        h->room = s->next_room;
        s->in_room = false;
        if (s->x)
            exchange_client_room(s->x);
    }
}

/* The connection is over, or will be after what runs. */
static void settle(struct client *c)
{
    struct client_h2 *h = c->h2;
    bool over = !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
    if (!stream_waiting(&c->stream) && (over || (h->goodbye && !h->nstreams))) {
        const char *why = h->fault;
        client_h2_end(c, why ? END_BAD_REQUEST : END_CLIENT_CLOSED, why);
        if (c->state != CLIENT_H2)
            return;
        if (why)
            client_say(c, "protocol_denied", END_BAD_REQUEST, why);
        client_linger(c);
        return;
    }
    client_h2_deadline(c, false);
}

/* Bytes for the socket, as many as one write should have. False: nghttp2 gave up. */
static bool fill(struct client *c)
{
    const uint8_t *p;
    ssize_t n = 0;
    worker_lend(c->w, &c->out);
    while (buf_size(&c->out) < H2_OUT_HIGH && (n = nghttp2_session_mem_send(c->h2->session, &p)) > 0)
        buf_put(&c->out, str_of(p, (size_t)n));
    return n >= 0 && !c->out.failed;
}

void client_h2_output(struct client *c)
{
    struct client_h2 *h = c->h2;
    if (h->busy) {
        h->want_output = true;
        return;
    }
    h->busy = true;
    do {
        h->want_output = false;
        while (c->state == CLIENT_H2 && !stream_waiting(&c->stream)) {
            if (!fill(c)) {
                client_close(c, "client_closed", END_UNSET, "out of memory");
                break;
            }
            if (!buf_size(&c->out))
                break;
            client_flush(c);
        }
        if (c->state == CLIENT_H2)
            give_room(c);
    } while (h->want_output && c->state == CLIENT_H2 && !stream_waiting(&c->stream));
    h->busy = false;
    if (c->state == CLIENT_H2)
        worker_take_back(c->w, &c->out);
    if (c->state == CLIENT_H2)
        settle(c);
}

void client_h2_input(struct client *c)
{
    struct client_h2 *h = c->h2;
    if (h->busy)
        return;
    h->busy = true;
    struct str in = buf_str(&c->in);
    ssize_t n = in.n && !h->fault ? nghttp2_session_mem_recv(h->session, (const uint8_t *)in.p, in.n) : 0;
    buf_consume(&c->in, in.n);
    if (c->state == CLIENT_H2 && n == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
        h->busy = false;
        client_close(c, "protocol_denied", END_PROTOCOL_DENIED, "HTTP/2 was agreed on, and something else was sent");
        return;
    }
    if (c->state == CLIENT_H2 && n < 0)
        h2_end_connection(c, n == NGHTTP2_ERR_NOMEM ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM,
                       n == NGHTTP2_ERR_NOMEM ? "HTTP/2: out of memory" : "HTTP/2: more frames than are answered, or in one header block");
    flush_dirty(c);
    h->busy = false;
    if (c->state == CLIENT_H2)
        client_h2_output(c);
}

/* --- the connection --- */

static void due(struct client *c, enum h2_wait wait, bool waits, uint64_t ms)
{
    uint64_t *at = &c->h2->due_ms[wait];
    if (!waits)
        *at = 0;
    else if (!*at) /* nothing winds up what has begun */
        *at = loop_now_ms(c->w->loop) + ms;
}

/* How long until it is to be looked whether a stream waits for its client for too long; UINT64_MAX: none waits. */
static uint64_t look_ms(const struct client *c)
{
    uint64_t ms = UINT64_MAX, write_ms = c->view->limits->write_timeout / STALL_LOOKS + 1;
    for (const struct client_stream *s = c->h2->streams; s; s = s->next) {
        if (buf_size(&s->out) && write_ms < ms)
            ms = write_ms;
        if (s->drains && c->view->limits->drain_body_timeout < ms)
            ms = c->view->limits->drain_body_timeout;
    }
    return ms;
}

void client_h2_deadline(struct client *c, bool moved)
{
    struct client_h2 *h = c->h2;
    const struct limits *lim = c->view->limits;
    uint64_t now = loop_now_ms(c->w->loop), first = UINT64_MAX;
    if (moved)
        h->due_ms[WAIT_WRITE] = 0;
    due(c, WAIT_WRITE, stream_waiting(&c->stream), lim->write_timeout);
    due(c, WAIT_HEAD, h->head_open, lim->head_timeout);
    due(c, WAIT_IDLE, !h->nstreams, h->goodbye ? lim->drain_body_timeout : c->made_exchange ? lim->keepalive_timeout : lim->first_byte_timeout);
    uint64_t look = look_ms(c);
    due(c, WAIT_STALL, look != UINT64_MAX, look);
    for (size_t i = 0; i < WAITS; i++)
        if (h->due_ms[i] && h->due_ms[i] < first)
            first = h->due_ms[i];
    if (first == UINT64_MAX) /* each exchange has its own */
        timer_clear(&c->timer);
    else
        timer_set(c->w->loop, &c->timer, first > now ? first - now : 0);
}

/* A stream whose client takes nothing of its answer for too long ends, and no other with it. */
static void end_stalled(struct client *c)
{
    struct client_h2 *h = c->h2;
    uint64_t now = loop_now_ms(c->w->loop);
    h->busy = true; /* streams stay where they are */
    for (struct client_stream *s = h->streams; s; s = s->next) {
        struct exchange *x = s->x;
        if (!s->closed && s->drains && now - s->moved_ms >= c->view->limits->drain_body_timeout) {
            h2_reset(s, NGHTTP2_NO_ERROR); /* the rest of its body is not wanted (RFC 9113 8.1) */
            continue;
        }
        if (s->closed || !buf_size(&s->out) || now - s->moved_ms < c->view->limits->write_timeout)
            continue;
        h2_reset(s, NGHTTP2_CANCEL);
        if (x)
            exchange_request_failed(x, END_TIMEOUT, "the client took nothing of the answer for too long");
    }
    h->busy = false;
    h->due_ms[WAIT_STALL] = 0;
    client_h2_output(c);
}

void client_h2_timeout(struct client *c)
{
    struct client_h2 *h = c->h2;
    uint64_t now = loop_now_ms(c->w->loop);
    bool is_due[WAITS];
    for (size_t i = 0; i < WAITS; i++)
        is_due[i] = h->due_ms[i] && h->due_ms[i] <= now;
    if (is_due[WAIT_IDLE] && !h->goodbye) {
        client_h2_drain(c);
        return;
    }
    if (is_due[WAIT_WRITE] || is_due[WAIT_HEAD] || is_due[WAIT_IDLE]) {
        client_h2_end(c, END_TIMEOUT, is_due[WAIT_HEAD] ? "a request head was begun and not ended" : "the client took nothing of the answer for too long");
        if (c->state == CLIENT_H2)
            client_close(c, c->made_exchange ? NULL : "timeout", END_UNSET, NULL);
        return;
    }
    if (is_due[WAIT_STALL])
        end_stalled(c);
    else
        client_h2_deadline(c, false);
}

void client_h2_drain(struct client *c)
{
    struct client_h2 *h = c->h2;
    if (h->goodbye)
        return;
    h->goodbye = true;
    h->due_ms[WAIT_IDLE] = 0; /* it waits for less now */
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR, NULL, 0);
    h->want_output = true;
    loop_defer(c->w->loop, &c->resume);
}

void client_h2_end(struct client *c, enum end end, const char *why)
{
    struct client_h2 *h = c->h2;
    bool busy = h->busy;
    h->busy = true; /* streams stay where they are */
    for (struct client_stream *s = h->streams; s; s = s->next) {
        struct exchange *x = s->x;
        s->closed = true;
        if (!x)
            continue;
        s->x = NULL;
        x->client_stream = NULL;
        exchange_request_failed(x, end, why);
    }
    h->busy = busy;
}

void client_h2_free(struct client_h2 **hp)
{
    struct client_h2 *h = *hp;
    if (!h)
        return;
    while (h->streams)
        h2_stream_free(h->streams);
    nghttp2_session_del(h->session);
    free(h);
    *hp = NULL;
}

int client_h2_start(struct client *c)
{
    const struct limits *lim = c->view->limits;
    c->h2 = calloc(1, sizeof *c->h2);
    if (!c->h2 || h2_session_new(c))
        return -1;
    nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)lim->h2_streams },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)lim->head_bytes },
        { NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1 }, /* WebSocket (RFC 8441) */
    };
    if (nghttp2_submit_settings(c->h2->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) ||
        nghttp2_session_set_local_window_size(c->h2->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW))
        return -1;
    c->state = CLIENT_H2;
    c->h2->want_output = true;
    loop_defer(c->w->loop, &c->resume); /* our SETTINGS: the handshake's last flight is still being made */
    return 0;
}
