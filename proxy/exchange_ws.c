/* SPDX-License-Identifier: Apache-2.0
 *
 * The opening, the host's frames, and the end; exchange_ws_swap.c has the client's frames. */
#include "proxy/exchange_ws.h"

#include "base/log.h"
#include "mint/swap_text.h"
#include "proxy/exchange_steps.h"
#include "proxy/rewrite.h"

#include <stdlib.h>

/* Of coded input a step takes so little that what it inflates to fits the client's buffer. */
enum {
    CODED_STEP = 1024,
    PLAIN_STEP = 64 * 1024,
    FRAGMENT = 64 * 1024,
    GATHER_MAX = 4 * 1024 * 1024,
    UNREAD_MAX = 4 * 1024 * 1024,
    CLOSING_MS = 10000,
    ROUND_BYTES = 256 * 1024
};

static char inflated[16 * 1024]; /* scratch: one thread, used within one call; wiped where it may hold a value */

/* --- the opening --- */

static void on_resume(struct task *t);

void exchange_ws_cancel(struct exchange *x)
{
    if (!x->ws)
        return;
    task_cancel(&x->ws->resume);
    for (size_t i = 0; i < x->ws->plan.nwanted; i++)
        lease_cancel(&x->ws->waits[i]);
}

const char *exchange_ws_check(struct exchange *x, enum end *ret_end)
{
    struct ws *ws = calloc(1, sizeof *ws);
    if (!ws) {
        *ret_end = END_UPGRADE_DENIED;
        return "out of memory";
    }
    const struct request *r = &x->req;
    const char *why = ws_request_check(r->websocket, r->method, r->body, r->fields, r->nfields, &ws->hs, ret_end);
    if (why) {
        free(ws);
        return why;
    }
    ws->x = x;
    ws->resume.cb = on_resume;
    x->ws = ws;
    return NULL;
}

const struct ws_handshake *exchange_ws_handshake(const struct exchange *x)
{
    return &x->ws->hs;
}

void exchange_ws_free(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws)
        return;
    exchange_ws_swap_done(x);
    x->ws = NULL;
    ws_inflate_free(&ws->down_inflate);
    buf_done(&ws->gather);
    buf_done(&ws->unread);
    free(ws);
}

/* Is the protocol one that the client offered? It may come back as the value that a placeholder became. */
static bool protocol_offered(struct exchange *x, struct str protocol)
{
    struct buf clean;
    uint64_t hits = 0;
    if (!protocol.p)
        return true;
    buf_init(&clean, 256 * 1024);
    if (x->scrubbing && scrub_text(x->scrub.set, protocol, &clean, &hits))
        protocol = buf_str(&clean);
    bool offered = ws_protocol_offered(x->req.fields, x->req.nfields, protocol);
    buf_done(&clean);
    return offered;
}

static bool begin(struct exchange *x)
{
    struct ws *ws = x->ws;
    const struct ws_coding *c = &ws->hs.coding;
    uint64_t most = x->view->limits->ws_frame_bytes;
    ws_in_init(&ws->up, true, c->on, most);
    ws_in_init(&ws->down, false, c->on, most);
    ws->reads = x->covered;
    buf_init(&ws->gather, GATHER_MAX);
    buf_init(&ws->unread, UNREAD_MAX);
    ws->gather.wipe = ws->unread.wipe = true;
    if (c->on && ws->reads && !(ws->down_inflate = ws_inflate_new(c->server_alone)))
        return false;
    return exchange_ws_swap_init(x);
}

static struct field fields[H1_FIELDS_MAX]; /* scratch: one thread, used within one call */

bool exchange_ws_open(struct exchange *x, const struct h1_head *h)
{
    struct ws *ws = x->ws;
    struct str protocol;
    const char *why = ws_answer_check(&ws->hs, h, &protocol);
    if (!why && !protocol_offered(x, protocol))
        why = "a WebSocket protocol that was not offered";
    if (why) {
        exchange_end(x, END_ORIGIN_PROTOCOL, why);
        return false;
    }
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    size_t n = rewrite_answer_fields(x, h, fields, H1_FIELDS_MAX, scratch), k = 0;
    if (n == SIZE_MAX) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "an answer too large to read");
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!ws_is_ours(&ws->hs, fields[i].name))
            fields[k++] = fields[i];
    exchange_forget_replay(x);
    x->ms_first_byte = (uint32_t)(loop_now_ms(x->w->loop) - x->t_attempt);
    x->status = 101;
    x->head_sent = x->switched = true;
    x->request_sent = false;
    if (!begin(x)) {
        x->switched = false; /* nothing of it was said yet */
        x->head_sent = false;
        exchange_end(x, END_ORIGIN_PROTOCOL, "out of memory");
        return false;
    }
    struct answer a = {
        .status = 101, .reason = STR("Switching Protocols"), .fields = fields, .nfields = k, .no_body = true, .switched = true
    };
    x->cops->head(x->client, x, &a);
    exchange_touch(x);
    if (x->step == STEP_STREAM)
        x->cops->more(x->client, x); /* what the client sent ahead */
    return x->step == STEP_STREAM;
}

/* --- towards the client --- */

static bool give(struct exchange *x, struct str data)
{
    if (data.n) {
        x->bytes_out += data.n;
        x->cops->body(x->client, x, data);
    }
    return x->step == STEP_STREAM;
}

static bool give_frame(struct exchange *x, unsigned opcode, bool fin, struct str payload)
{
    struct buf head;
    buf_init(&head, WS_HEAD_MAX + WS_CONTROL_MAX);
    ws_put_head(&head, opcode, fin, false, payload.n, NULL);
    bool on = give(x, buf_str(&head)) && give(x, payload);
    buf_done(&head);
    return on;
}

/* What was gathered becomes a frame. */
static bool give_gathered(struct exchange *x, bool fin)
{
    struct ws *ws = x->ws;
    unsigned opcode = ws->begun ? WS_CONTINUATION : ws->down.text ? WS_TEXT : WS_BINARY;
    ws->begun = !fin;
    bool on = give_frame(x, opcode, fin, buf_str(&ws->gather));
    buf_reset(&ws->gather);
    return on;
}

static bool origin_fault(struct exchange *x, const struct ws_fault *fault)
{
    x->ws->close_code = fault->code;
    exchange_end(x, END_ORIGIN_PROTOCOL, fault->why);
    return false;
}

static bool origin_wrong(struct exchange *x, unsigned code, const char *why)
{
    struct ws_fault fault = ws_fault_of(code, why);
    return origin_fault(x, &fault);
}

static const char not_utf8[] = "a text message that is not UTF-8";

/* What a message says, inflated. False: the exchange is over. */
static bool read_text(struct exchange *x, struct str piece, bool last)
{
    struct ws *ws = x->ws;
    if (ws->down.text && !ws_utf8(&ws->down_utf8, piece))
        return origin_wrong(x, WS_NOT_CONSISTENT, not_utf8);
    if (x->scrubbing ? scrub_feed(&x->scrub, piece, last, &ws->gather) : piece.n ? buf_put(&ws->gather, piece) : 0) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "a message that cannot be read");
        return false;
    }
    return buf_size(&ws->gather) < FRAGMENT || give_gathered(x, false);
}

static bool inflate_text(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    size_t n;
    enum ws_inflated r;
    bool on = true;
    do {
        r = ws_inflate_step(ws->down_inflate, &piece, inflated, sizeof inflated, &n);
        ws->down_size += n;
        if (r == WS_INFLATED_BAD)
            on = origin_wrong(x, WS_NOT_CONSISTENT, "a message that cannot be inflated");
        else if (ws->down_size > x->view->limits->ws_message_bytes)
            on = origin_wrong(x, WS_TOO_BIG, "a compressed message over limits.ws_message_bytes");
        else if (n)
            on = read_text(x, str_of(inflated, n), false);
        explicit_bzero(inflated, n);
    } while (on && r == WS_INFLATED_FULL);
    return on;
}

/* Frames that go on as they came: each is checked, nothing is kept. */
static bool pass_event(struct exchange *x, enum ws_event e, struct str data)
{
    struct ws *ws = x->ws;
    if (e == WS_HEAD)
        return give(x, ws_head_bytes(&ws->down));
    bool reads = ws->down.text && !ws->down.message_rsv1;
    if (e == WS_DATA) {
        if (reads && !ws_utf8(&ws->down_utf8, data))
            return origin_wrong(x, WS_NOT_CONSISTENT, not_utf8);
        return give(x, data);
    }
    if (reads && ws->down.fin && ws->down_utf8)
        return origin_wrong(x, WS_NOT_CONSISTENT, not_utf8);
    return true;
}

static bool read_end(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws->down.fin) /* a fragment stays one, so that what it says is not late */
        return !buf_size(&ws->gather) || give_gathered(x, false);
    if (ws->down.message_rsv1) {
        if (!inflate_text(x, WS_INFLATE_TAIL))
            return false;
        if (!ws_inflate_end(ws->down_inflate))
            return origin_wrong(x, WS_NOT_CONSISTENT, "a compressed message that does not end");
    }
    if (!read_text(x, STR_NONE, true))
        return false;
    if (ws->down.text && ws->down_utf8)
        return origin_wrong(x, WS_NOT_CONSISTENT, not_utf8);
    return give_gathered(x, true);
}

static bool read_event(struct exchange *x, enum ws_event e, struct str data)
{
    struct ws *ws = x->ws;
    if (e == WS_DATA)
        return ws->down.message_rsv1 ? inflate_text(x, data) : read_text(x, data, false);
    return e == WS_HEAD || read_end(x);
}

/* Pings, pongs and closes carry bytes as well. One that would not fit any more goes without them, a close with its code. */
static bool control(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str payload = str_of(ws->down.control, ws->down.control_n);
    struct buf clean;
    buf_init(&clean, 64 * 1024);
    clean.wipe = true;
    if (x->scrubbing && scrub_text(x->scrub.set, payload, &clean, &x->scrub.hits)) {
        payload = buf_str(&clean);
        if (clean.failed || payload.n > WS_CONTROL_MAX)
            payload = str_of(ws->down.control, ws->down.opcode == WS_CLOSE ? 2 : 0);
    }
    bool on = give_frame(x, ws->down.opcode, true, payload);
    buf_done(&clean);
    return on;
}

static bool from_origin(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    for (;;) {
        if (ws->reads && data.n && x->cops->full(x->client, x)) {
            buf_put(&ws->unread, data);
            if (!ws->unread.failed)
                return true;
            exchange_end(x, END_ORIGIN_PROTOCOL, "more of the host than was asked for");
            return false;
        }
        struct str piece;
        struct ws_fault fault = { 0 };
        size_t used;
        bool coded = ws->reads && ws->down.in_message && ws->down.message_rsv1;
        enum ws_event e = ws_next(&ws->down, str_sub(data, 0, coded ? CODED_STEP : PLAIN_STEP), &used, &piece, &fault);
        data = str_from(data, used);
        bool on = true;
        switch (e) {
        case WS_MORE:
            if (!data.n)
                return true;
            break;
        case WS_BAD:
            return origin_fault(x, &fault);
        case WS_CONTROL:
            on = control(x);
            break;
        case WS_HEAD:
            if (ws->down.opcode != WS_CONTINUATION) {
                ws->down_utf8 = 0;
                ws->down_size = 0;
            }
            on = ws->reads ? read_event(x, e, piece) : pass_event(x, e, piece);
            break;
        case WS_DATA:
        case WS_FRAME_END:
        default:
            on = ws->reads ? read_event(x, e, piece) : pass_event(x, e, piece);
            break;
        }
        if (!on)
            return false;
    }
}

bool exchange_ws_from_origin(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    if (buf_size(&ws->unread)) { /* nothing overtakes it */
        buf_put(&ws->unread, data);
        return !ws->unread.failed || origin_wrong(x, WS_INTERNAL, "more of the host than was asked for");
    }
    return from_origin(x, data);
}

bool exchange_ws_unread(const struct exchange *x)
{
    return x->ws && buf_size(&x->ws->unread);
}

/* Some of what is unread, and the host is told to go on when that was all. What is inflated may be a thousand times as much: others are
 * let in between. */
void exchange_ws_client_room(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct buf mine;
    uint64_t before = x->bytes_out;
    while (buf_size(&ws->unread) && !x->cops->full(x->client, x)) {
        if (x->bytes_out - before > ROUND_BYTES) {
            loop_defer(x->w->loop, &ws->resume);
            return;
        }
        exchange_refresh_scrub(x);
        mine = ws->unread;
        buf_init(&ws->unread, UNREAD_MAX);
        ws->unread.wipe = true;
        bool on = from_origin(x, buf_str(&mine));
        buf_done(&mine);
        if (!on)
            return;
        exchange_touch(x);
        x->cops->flush(x->client, x);
        if (x->step != STEP_STREAM)
            return;
    }
    if (!buf_size(&ws->unread) && x->origin)
        x->oops->more(x);
}

void exchange_ws_flushed(struct exchange *x)
{
    if (buf_size(&x->ws->unread) && !x->cops->full(x->client, x))
        loop_defer(x->w->loop, &x->ws->resume);
}

static void on_resume(struct task *t)
{
    struct ws *ws = (struct ws *)((char *)t - offsetof(struct ws, resume));
    if (ws->x->step == STEP_STREAM)
        exchange_ws_client_room(ws->x);
}

/* --- the end --- */

void exchange_ws_origin_end(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws_between_frames(&ws->down) || ws->down.in_message || buf_size(&ws->unread)) {
        exchange_end(x, END_ORIGIN_CLOSED, "the host closed the connection in mid message");
        return;
    }
    x->cops->end(x->client, x, NULL, 0);
    x->answer_done = true;
    if (x->origin)
        x->oops->release(x, false);
    bool closed = ws->up.closed || ws->down.closed;
    exchange_end(x, closed ? END_OK : x->request_sent ? END_CLIENT_CLOSED : END_ORIGIN_CLOSED, NULL);
}

bool exchange_ws_closed(const struct exchange *x)
{
    return x->switched && x->ws->up.closed && x->ws->down.closed;
}

bool exchange_ws_host_closed(const struct exchange *x)
{
    return x->switched && x->ws->down.closed;
}

uint64_t exchange_ws_idle_ms(const struct exchange *x)
{
    const struct rule *r = x->verdict.rule;
    uint64_t ms = r && r->idle_ms ? r->idle_ms : x->view->limits->ws_idle_timeout;
    return exchange_ws_closed(x) && ms > CLOSING_MS ? CLOSING_MS : ms;
}

static unsigned code_of(const struct ws *ws, enum end end)
{
    if (ws->close_code)
        return ws->close_code;
    switch ((unsigned)end) {
    case END_TIMEOUT:
    case END_DRAINING:
        return WS_GOING_AWAY;
    case END_ORIGIN_PROTOCOL:
        return WS_INTERNAL;
    default:
        return WS_POLICY;
    }
}

bool exchange_ws_goodbye(struct exchange *x, enum end end)
{
    struct ws *ws = x->ws;
    if (ws->down.closed) { /* the host has said it, and our end changes nothing */
        x->cops->end(x->client, x, NULL, 0);
        return true;
    }
    /* Within a frame any byte would belong to that; and an end of the host's own making is shown as what it is. */
    if ((!ws->reads && ws_in_payload(&ws->down)) || end == END_ORIGIN_CLOSED || end == END_CLIENT_CLOSED)
        return false;
    struct buf frame;
    buf_init(&frame, WS_HEAD_MAX + WS_CONTROL_MAX);
    ws_put_close(&frame, code_of(ws, end), str_c(end_code(end)), false);
    x->bytes_out += buf_size(&frame);
    x->cops->body(x->client, x, buf_str(&frame));
    x->cops->end(x->client, x, NULL, 0);
    buf_done(&frame);
    return true;
}
