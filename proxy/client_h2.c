/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/client_h2.h"

#include "base/log.h"
#include "proxy/exchange_steps.h"
#include "proxy/h2_head.h"
#include "proxy/reply.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    OUT_HIGH = 128 * 1024,    /* made at once, for one write */
    STREAM_HIGH = 64 * 1024,  /* of an answer, unsent, before its origin waits */
    BODY_MAX = 1024 * 1024,   /* of an answer, unsent, ever: what an exchange adds to STREAM_HIGH at once, scrubbed */
    CONNECTION_WINDOW = 1024 * 1024,
    FRAME_MAX = 16384, /* SETTINGS_MAX_FRAME_SIZE as it is without being said */
    RESETS_KEPT = 64,
    FREE_BYTES = 256,         /* of bodies that allow one more control frame: Go gives window back for every piece that it reads */
    FREE_FRAMES = 2,          /* control frames that each DATA frame allows: a WINDOW_UPDATE for the stream and one for the connection */
    TRAILERS_MAX = 64,
    LINGER_MS = 2000,
    STALL_LOOKS = 4, /* as often in a limits.write_timeout it is looked whether a stream stalls */
};

/* What the connection waits for, each with the time when that has been too long; 0: it does not wait for it. */
enum h2_wait { WAIT_IDLE, WAIT_HEAD, WAIT_WRITE, WAIT_STALL, WAITS };

struct client_h2 {
    nghttp2_session *session;
    struct client_stream *streams;
    size_t nstreams;
    struct client_stream *dirty; /* got body since they were flushed */
    struct client_stream *room;  /* an exchange waits for room in them, and there is some */
    bool busy, want_output;
    bool goodbye; /* GOAWAY was sent, or is about to be */
    bool head_open;
    uint64_t due_ms[WAITS];
    const char *fault; /* why the connection was ended, for the log; NULL: it was not, or by the client */
    struct bucket control, resets;
    int32_t highest;                 /* stream that the client opened */
    int32_t resets_sent[RESETS_KEPT]; /* streams that we reset: frames for them may be on their way. A ring */
    unsigned next_reset;
    uint64_t carried; /* bytes of bodies that no control frame was allowed for yet */
};

struct client_stream {
    struct client_stream *next, **link;
    struct client_stream *next_dirty, *next_room;
    bool in_dirty, in_room;
    struct client *c;
    struct exchange *x; /* NULL: it is over; what is in `out` is still sent */
    int32_t id;
    struct h2_head head; /* the block that comes, or the trailers that wait */
    struct buf in;       /* held: the exchange does not take it yet */
    bool in_end, end_given;
    struct buf out;
    struct field *trailers; /* one block with their bytes */
    size_t ntrailers;
    bool out_end;
    bool answered;  /* its final head was submitted */
    bool closed;    /* nothing more may be submitted for it */
    bool cut;       /* ends with RST_STREAM behind what is in out */
    bool deferred;  /* nghttp2 waits for body */
    bool starved;   /* full() said so */
    bool was_reset; /* by RST_STREAM, from either side */
    bool reset_here;
    uint32_t reset_after;    /* sent behind our answer; 0: none is */
    uint64_t moved_ms;       /* since when what is in out waits */
};

static struct client_stream *stream_at(nghttp2_session *session, int32_t id)
{
    return id ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

/* --- lists --- */

static void mark_dirty(struct client_stream *s)
{
    struct client_h2 *h = s->c->h2;
    if (s->in_dirty)
        return;
    s->in_dirty = true;
    s->next_dirty = h->dirty;
    h->dirty = s;
}

static void mark_room(struct client_stream *s)
{
    struct client_h2 *h = s->c->h2;
    s->starved = false;
    if (s->in_room)
        return;
    s->in_room = true;
    s->next_room = h->room;
    h->room = s;
}

static void unmark(struct client_stream *s)
{
    struct client_stream **at;
    for (at = &s->c->h2->dirty; s->in_dirty && *at; at = &(*at)->next_dirty)
        if (*at == s) {
            *at = s->next_dirty;
            break;
        }
    for (at = &s->c->h2->room; s->in_room && *at; at = &(*at)->next_room)
        if (*at == s) {
            *at = s->next_room;
            break;
        }
}

/* --- a stream's life --- */

static struct client_stream *stream_new(struct client *c, int32_t id)
{
    struct client_h2 *h = c->h2;
    struct client_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->c = c;
    s->id = id;
    h2_head_init(&s->head);
    buf_init(&s->in, BODY_MAX);
    buf_init(&s->out, BODY_MAX + 2 * STREAM_HIGH);
    s->next = h->streams;
    s->link = &h->streams;
    if (s->next)
        s->next->link = &s->next;
    h->streams = s;
    h->nstreams++;
    return s;
}

static void drop_held(struct client_stream *s)
{
    s->c->w->h2_held -= buf_size(&s->in);
    buf_done(&s->in);
}

static void stream_free(struct client_stream *s)
{
    unmark(s);
    drop_held(s);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    s->c->h2->nstreams--;
    h2_head_done(&s->head);
    buf_done(&s->out);
    free(s->trailers);
    free(s);
}

/* --- budgets --- */

static void end_connection(struct client *c, uint32_t code, const char *why)
{
    struct client_h2 *h = c->h2;
    if (h->fault)
        return;
    h->fault = why;
    h->goodbye = true;
    nghttp2_session_terminate_session(h->session, code);
}

/* A DATA frame with so many bytes, either way. */
static void carried(struct client *c, size_t n)
{
    struct client_h2 *h = c->h2;
    h->carried += n;
    bucket_give(&h->control, FREE_FRAMES + h->carried / FREE_BYTES, c->view->limits->h2_control_burst);
    h->carried %= FREE_BYTES;
}

static void count_control(struct client *c)
{
    const struct limits *lim = c->view->limits;
    if (!bucket_take(&c->h2->control, lim->h2_control_burst, lim->h2_control_rate, loop_now_ms(c->w->loop)))
        end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "HTTP/2: more frames that carry nothing than limits.h2_control_burst and h2_control_rate");
}

static void count_reset(struct client *c)
{
    const struct limits *lim = c->view->limits;
    uint64_t now = loop_now_ms(c->w->loop);
    if (!bucket_take(&c->h2->resets, lim->h2_resets_burst, lim->h2_resets_rate, now) ||
        (c->agent_state && !agent_reset_fits(c->agent_state, lim, now)))
        end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "HTTP/2: more streams that end by a reset than limits.h2_resets_burst and h2_resets_rate");
}

/* --- requests --- */

static void fault(struct exchange *x, enum end end, const char *why)
{
    if (!x->req.fault) {
        x->req.fault = why;
        x->req.fault_end = end;
    }
}

static void reset(struct client_stream *s, uint32_t code)
{
    if (s->closed)
        return;
    s->closed = true;
    nghttp2_submit_rst_stream(s->c->h2->session, NGHTTP2_FLAG_NONE, s->id, code);
}

/* The one name: :authority, or Host where there is none, must be the tunnel's; where both are there, so must both. */
static void check_authority(struct exchange *x, const struct h2_request *q)
{
    struct str said[] = { q->authority, q->host };
    uint16_t dflt = x->scheme == SCHEME_HTTPS ? 443 : 80, port;
    struct host host;
    if (!q->authority.p && !q->host.p)
        fault(x, END_BAD_REQUEST, "neither :authority nor Host");
    for (size_t i = 0; i < 2; i++) {
        if (!said[i].p)
            continue;
        if (authority_parse(said[i], dflt, &host, &port, NULL))
            fault(x, END_BAD_REQUEST, "the :authority or Host is not a host name");
        else if (!host_eq(&host, &x->host) || port != x->port)
            fault(x, END_MISDIRECTED, "the :authority or Host names another host or port than the connection");
    }
}

extern const struct client_ops client_h2_ops;

static struct exchange *make_exchange(struct client_stream *s, bool end, struct h2_request *q)
{
    struct client *c = s->c;
    client_renew_view(c);
    const struct limits *lim = c->view->limits;
    struct h1_limits hl = { lim->head_bytes, lim->header_fields, lim->target_bytes };
    if (h2_head_request(&s->head, end, &hl, q))
        return NULL;
    struct exchange *x = exchange_new(c->w, &client_h2_ops, c, &q->r);
    if (!x)
        return NULL;
    s->x = x;
    x->client_stream = s;
    x->conn_id = c->conn_id;
    x->client_addr = c->addr;
    memcpy(x->agent_name, c->agent_name, sizeof x->agent_name);
    x->agent = client_agent(c);
    x->host = c->host;
    x->port = c->port;
    x->scheme = c->scheme;
    s->in_end = end;
    c->made_exchange = true;
    bucket_give(&c->h2->control, 2, lim->h2_control_burst);
    return x;
}

static void request(struct client_stream *s, bool end)
{
    struct client *c = s->c;
    struct h2_request q;
    bool too_large = s->head.too_large;
    struct exchange *x = make_exchange(s, end, &q);
    h2_head_done(&s->head);
    if (!x) {
        reset(s, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    if (too_large) {
        exchange_refuse(x, END_HEAD_TOO_LARGE, "a head over limits.head_bytes or limits.header_fields");
        return;
    }
    if (q.fault) { /* malformed: a stream error (RFC 9113 8.1.1), behind an answer that says why */
        s->reset_after = NGHTTP2_PROTOCOL_ERROR;
        exchange_refuse(x, END_BAD_REQUEST, q.fault);
        return;
    }
    if (q.scheme.p && !str_eq_nocase(q.scheme, c->scheme == SCHEME_HTTPS ? STR("https") : STR("http")))
        fault(x, END_BAD_REQUEST, "the :scheme is not the connection's");
    if (q.protocol.p)
        fault(x, END_UPGRADE_DENIED, "a CONNECT to another protocol");
    check_authority(x, &q);
    exchange_start(x);
}

/* nghttp2 found it malformed and resets the stream. */
static void malformed(struct client_stream *s)
{
    struct h2_request q;
    s->closed = true;
    if (s->x) {
        exchange_request_failed(s->x, END_BAD_REQUEST, "a malformed HTTP/2 body or trailer section");
        return;
    }
    if (s->answered || s->in_end)
        return;
    struct exchange *x = make_exchange(s, true, &q);
    h2_head_done(&s->head);
    if (x)
        exchange_refuse(x, END_BAD_REQUEST, q.fault ? q.fault : "a malformed HTTP/2 request");
}

/* --- bodies of requests --- */

static void give_window(struct client_stream *s, size_t n)
{
    nghttp2_session_consume_stream(s->c->h2->session, s->id, n);
    s->c->h2->want_output = true; /* a WINDOW_UPDATE, perhaps */
}

/* What is held goes on, as far as the exchange takes it. */
static void push_body(struct client_stream *s)
{
    struct exchange *x = s->x;
    if (!x || !exchange_takes_body(x))
        return;
    size_t n = buf_size(&s->in);
    if (n) {
        exchange_request_body(x, buf_str(&s->in));
        if (s->x != x)
            return;
        drop_held(s);
        give_window(s, n);
    }
    if (!s->in_end || s->end_given)
        return;
    s->end_given = true;
    struct field fields[TRAILERS_MAX];
    size_t k = 0;
    const char *why = h2_head_trailers(&s->head, fields, TRAILERS_MAX, &k);
    if (why) {
        reset(s, NGHTTP2_PROTOCOL_ERROR);
        exchange_request_failed(x, END_BAD_REQUEST, why);
        return;
    }
    exchange_request_end(x, fields, k);
}

static void hold(struct client_stream *s, struct str data)
{
    struct worker *w = s->c->w;
    if (w->h2_held + data.n > s->c->view->limits->h2_held_bytes || buf_put(&s->in, data)) {
        exchange_request_failed(s->x, END_RATE_LIMITED, "the bodies that wait for their origins are more than limits.h2_held_bytes");
        return;
    }
    w->h2_held += data.n;
}

/* --- what nghttp2 calls --- */

static bool was_reset(const struct client_h2 *h, int32_t id)
{
    for (size_t i = 0; i < RESETS_KEPT; i++)
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
        end_connection(c, NGHTTP2_PROTOCOL_ERROR, "HTTP/2: a stream's identifier is not higher than those before");
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct client *c = user;
    switch (hd->type) {
    case NGHTTP2_DATA:
        if (!hd->length && !(hd->flags & NGHTTP2_FLAG_END_STREAM))
            count_control(c);
        break;
    case NGHTTP2_HEADERS:
        check_identifier(c, hd->stream_id);
        break;
    case NGHTTP2_CONTINUATION: /* nghttp2 takes eight of them, of any size */
        if (hd->length > FRAME_MAX)
            end_connection(c, NGHTTP2_FRAME_SIZE_ERROR, "HTTP/2: a frame over SETTINGS_MAX_FRAME_SIZE");
        break;
    case NGHTTP2_RST_STREAM:
        if (stream_at(session, hd->stream_id))
            count_reset(c);
        count_control(c);
        break;
    default:
        count_control(c);
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
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
    if (s || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = stream_new(c, frame->hd.stream_id);
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
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
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
        count_control(c);
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
    if (s && frame->hd.type == NGHTTP2_RST_STREAM)
        s->was_reset = true;
    if (!s || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        request(s, end);
        if (s->x)
            mark_dirty(s);
    } else if (end) {
        s->in_end = true;
        mark_dirty(s);
        push_body(s);
    }
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user)
{
    (void)code;
    struct client *c = user;
    c->h2->head_open = false;
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
    if (s)
        malformed(s);
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user)
{
    (void)flags;
    struct client *c = user;
    struct client_stream *s = stream_at(session, id);
    carried(c, n);
    nghttp2_session_consume_connection(session, n);
    if (!s)
        return 0;
    struct exchange *x = s->x;
    if (!x) {
        give_window(s, n);
        return 0;
    }
    if (buf_size(&s->in) || !exchange_takes_body(x)) {
        hold(s, str_of(data, n));
    } else {
        exchange_request_body(x, str_of(data, n));
        if (s->x == x) {
            give_window(s, n);
            mark_dirty(s);
        }
    }
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *c = user;
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_RST_STREAM:
        c->h2->resets_sent[c->h2->next_reset++ % RESETS_KEPT] = frame->hd.stream_id;
        if (s && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
            s->was_reset = true;
        switch (frame->rst_stream.error_code) {
        case NGHTTP2_NO_ERROR:
        case NGHTTP2_CANCEL:
        case NGHTTP2_INTERNAL_ERROR: /* ours, not the client's doing */
            break;
        case NGHTTP2_REFUSED_STREAM:
            count_control(c);
            break;
        default:
            if (s)
                s->reset_here = true;
            count_reset(c);
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
        if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM && (s->reset_after || !s->in_end))
            reset(s, s->reset_after); /* NO_ERROR: the rest of its body is not wanted (RFC 9113 8.1) */
        break;
    default:
        break;
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct client *c = user;
    struct client_stream *s = stream_at(session, id);
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
    stream_free(s);
    return c->state == CLIENT_DEAD ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- answers --- */

static nghttp2_nv nv_of(struct str name, struct str value)
{
    return (nghttp2_nv) { .name = (uint8_t *)(uintptr_t)name.p,
                          .value = (uint8_t *)(uintptr_t)value.p,
                          .namelen = name.n,
                          .valuelen = value.n,
                          .flags = NGHTTP2_NV_FLAG_NONE };
}

static struct buf names = { .max = 1024 * 1024 }; /* one thread, used within one call, as is: */
static nghttp2_nv nva[H1_FIELDS_MAX + 4];

/* Fields behind the first k of nva, their names in lower case. Returns how many there are then; 0: out of memory. */
static size_t put_fields(size_t k, const struct field *f, size_t n)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++)
        total += f[i].name.n;
    buf_reset(&names);
    char *p = buf_reserve(&names, total);
    if (!p)
        return 0;
    for (size_t i = 0; i < n && k < sizeof nva / sizeof *nva; i++) {
        for (size_t j = 0; j < f[i].name.n; j++)
            p[j] = (char)(f[i].name.p[j] >= 'A' && f[i].name.p[j] <= 'Z' ? f[i].name.p[j] + ('a' - 'A') : f[i].name.p[j]);
        nva[k++] = nv_of(str_of(p, f[i].name.n), f[i].value);
        p += f[i].name.n;
    }
    return k;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *p, size_t max, uint32_t *flags, nghttp2_data_source *source,
                         void *user)
{
    (void)p, (void)source, (void)user;
    struct client_stream *s = stream_at(session, id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = buf_size(&s->out);
    bool last = n <= max;
    n = last ? n : max;
    if (last && s->cut && !n)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* RST_STREAM INTERNAL_ERROR */
    if (!n && !s->out_end) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    if (last && s->out_end) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->ntrailers) {
            size_t k = put_fields(0, s->trailers, s->ntrailers);
            if (!k)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(session, id, nva, k);
        }
    }
    return (ssize_t)n;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source, void *user)
{
    (void)source;
    struct client *c = user;
    struct client_stream *s = stream_at(session, frame->hd.stream_id);
    if (buf_size(&c->out) >= OUT_HIGH)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (!s || n > buf_size(&s->out))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    buf_put(&c->out, str_of(head, 9));
    buf_put(&c->out, str_sub(buf_str(&s->out), 0, n));
    buf_consume(&s->out, n);
    if (!buf_size(&s->out))
        worker_take_back(c->w, &s->out);
    carried(c, n);
    s->moved_ms = loop_now_ms(c->w->loop);
    if (s->starved && buf_size(&s->out) <= STREAM_HIGH / 2)
        mark_room(s);
    return c->out.failed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void wake(struct client_stream *s)
{
    if (!s->deferred)
        return;
    s->deferred = false;
    nghttp2_session_resume_data(s->c->h2->session, s->id);
}

static void answer_interim(struct client *c, struct exchange *x, const struct answer *a)
{
    struct client_stream *s = x->client_stream;
    char status[12];
    if (!s || s->closed)
        return;
    snprintf(status, sizeof status, "%u", a->status);
    size_t k = put_fields(1, a->fields, a->nfields);
    nva[0] = nv_of(STR(":status"), str_c(status));
    if (k)
        nghttp2_submit_headers(c->h2->session, NGHTTP2_FLAG_NONE, s->id, NULL, nva, k, NULL);
}

/* Head and, where whole is given, an answer that ends with it. */
static void submit(struct client_stream *s, unsigned status, const struct field *fields, size_t n, bool has_length, uint64_t length, bool body)
{
    char code[12], size[24];
    nghttp2_data_provider from = { .source = { .ptr = s }, .read_callback = read_body };
    s->answered = true;
    snprintf(code, sizeof code, "%u", status);
    snprintf(size, sizeof size, "%llu", (unsigned long long)length);
    size_t k = put_fields(1, fields, n);
    nva[0] = nv_of(STR(":status"), str_c(code));
    if (k && has_length && k < sizeof nva / sizeof *nva)
        nva[k++] = nv_of(STR("content-length"), str_c(size));
    if (!k || nghttp2_submit_response(s->c->h2->session, s->id, nva, k, body ? &from : NULL))
        reset(s, NGHTTP2_INTERNAL_ERROR);
}

static void answer_head(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    /* Without a body the head ends the stream: gRPC tells an answer of trailers alone by that. */
    submit(s, a->status, a->fields, a->nfields, a->has_length, a->length, !a->no_body && !(a->has_length && !a->length));
}

static void answer_body(struct client *c, struct exchange *x, struct str data)
{
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    worker_lend(c->w, &s->out);
    if (!buf_size(&s->out))
        s->moved_ms = loop_now_ms(c->w->loop);
    buf_put(&s->out, data);
    if (s->out.failed)
        reset(s, NGHTTP2_INTERNAL_ERROR);
    else
        wake(s);
}

static void keep_trailers(struct client_stream *s, const struct field *trailers, size_t n)
{
    size_t size = n * sizeof *trailers;
    for (size_t i = 0; i < n; i++)
        size += trailers[i].name.n + trailers[i].value.n;
    struct field *f = n ? malloc(size) : NULL;
    if (!f)
        return;
    char *p = (char *)(f + n);
    for (size_t i = 0; i < n; i++) {
        struct str parts[] = { trailers[i].name, trailers[i].value }, *to[] = { &f[i].name, &f[i].value };
        for (size_t j = 0; j < 2; j++) {
            if (parts[j].n)
                memcpy(p, parts[j].p, parts[j].n);
            *to[j] = str_of(p, parts[j].n);
            p += parts[j].n;
        }
    }
    s->trailers = f;
    s->ntrailers = n;
}

static void answer_end(struct client *c, struct exchange *x, const struct field *trailers, size_t n)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    keep_trailers(s, trailers, n);
    s->out_end = true;
    wake(s);
}

static void answer_refusal(struct client *c, struct exchange *x, enum end end)
{
    struct client_stream *s = x->client_stream;
    struct reply r;
    reply_make(x, end, false, &r);
    if (s && !s->closed) {
        struct str body = str_eq(x->req.method, STR("HEAD")) ? STR("") : buf_str(&r.body);
        s->moved_ms = loop_now_ms(c->w->loop);
        buf_put(&s->out, body);
        s->out_end = true;
        bool grpc = !buf_size(&r.body);
        submit(s, r.status, r.fields, r.nfields, !grpc, buf_size(&r.body), body.n > 0);
    } else {
        x->status = 0; /* it got none */
    }
    reply_done(&r);
}

static void answer_cut(struct client *c, struct exchange *x)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    s->cut = true; /* behind what it has of the answer */
    wake(s);
}

static void flush(struct client *c, struct exchange *x)
{
    (void)x;
    if (c->h2->busy)
        c->h2->want_output = true;
    else
        client_h2_output(c);
}

static bool full(struct client *c, const struct exchange *x)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed || buf_size(&s->out) < STREAM_HIGH)
        return false;
    return s->starved = true;
}

static void later(struct client *c)
{
    if (c->h2->want_output)
        loop_defer(c->w->loop, &c->resume);
}

static void more(struct client *c, struct exchange *x)
{
    struct client_stream *s = x->client_stream;
    bool outer = !c->h2->busy;
    if (!s)
        return;
    c->h2->busy = true; /* the stream must outlive what its body sets off */
    push_body(s);
    if (!outer)
        return;
    c->h2->busy = false;
    later(c);
}

static void done(struct client *c, struct exchange *x)
{
    struct client_stream *s = x->client_stream;
    if (!s)
        return;
    x->client_stream = NULL;
    s->x = NULL;
    size_t n = buf_size(&s->in);
    drop_held(s);
    h2_head_done(&s->head);
    if (n && !s->closed && c->state != CLIENT_DEAD)
        give_window(s, n);
    if (c->state != CLIENT_DEAD && !c->h2->busy)
        later(c);
}

const struct client_ops client_h2_ops = { answer_interim, answer_head, answer_body, answer_end, answer_refusal, answer_cut,
                                          flush,          full,        more,        done };

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
        client_h2_end(c, why ? END_PROTOCOL_DENIED : END_CLIENT_CLOSED, why);
        if (c->state != CLIENT_H2)
            return;
        if (why)
            client_say(c, "protocol_denied", END_PROTOCOL_DENIED, why);
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
    while (buf_size(&c->out) < OUT_HIGH && (n = nghttp2_session_mem_send(c->h2->session, &p)) > 0)
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
        end_connection(c, n == NGHTTP2_ERR_NOMEM ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM,
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

static bool any_unsent(const struct client_h2 *h)
{
    for (const struct client_stream *s = h->streams; s; s = s->next)
        if (buf_size(&s->out))
            return true;
    return false;
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
    due(c, WAIT_IDLE, !h->nstreams, h->goodbye ? LINGER_MS : c->made_exchange ? lim->keepalive_timeout : lim->first_byte_timeout);
    due(c, WAIT_STALL, any_unsent(h), lim->write_timeout / STALL_LOOKS + 1);
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
        if (s->closed || !buf_size(&s->out) || now - s->moved_ms < c->view->limits->write_timeout)
            continue;
        reset(s, NGHTTP2_CANCEL);
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
        stream_free(h->streams);
    nghttp2_session_del(h->session);
    free(h);
    *hp = NULL;
}

static int make_session(struct client *c)
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
        nghttp2_session_callbacks_set_send_data_callback(cb, send_data);
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

int client_h2_start(struct client *c)
{
    const struct limits *lim = c->view->limits;
    c->h2 = calloc(1, sizeof *c->h2);
    if (!c->h2 || make_session(c))
        return -1;
    nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)lim->h2_streams },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)lim->head_bytes },
    };
    if (nghttp2_submit_settings(c->h2->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) ||
        nghttp2_session_set_local_window_size(c->h2->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW))
        return -1;
    c->state = CLIENT_H2;
    c->h2->want_output = true;
    loop_defer(c->w->loop, &c->resume); /* our SETTINGS: the handshake's last flight is still being made */
    return 0;
}
