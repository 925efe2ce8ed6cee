/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's frames: checked and passed on as they came, or, where a credential covers the host, inflated, scrubbed and put into frames
 * of our own. */
#include "proxy/exchange_ws.h"

#include "proxy/core.h"
#include "proxy/exchange_steps.h"

/* Of coded input a step takes so little that what it inflates to fits the client's buffer. */
enum { CODED_STEP = 256, PLAIN_STEP = 64 * 1024, FRAGMENT = 64 * 1024, GATHER_MAX = 4 * 1024 * 1024, UNREAD_MAX = 4 * 1024 * 1024 };

static char inflated[16 * 1024]; /* scratch: one thread, used within one call; wiped where it may hold a value */

static void on_turn(struct turn *t)
{
    struct ws *ws = (struct ws *)((char *)t - offsetof(struct ws, down_turn));
    if (ws->x->step == STEP_STREAM)
        exchange_ws_client_room(ws->x);
}

bool exchange_ws_host_init(struct exchange *x)
{
    struct ws *ws = x->ws;
    const struct ws_coding *c = &ws->hs.coding;
    ws_in_init(&ws->down, false, c->on, x->view->limits->ws_frame_bytes);
    ws->reads = x->covered;
    ws->down_turn = (struct turn) { .cb = on_turn, .owner = str_hash(str_c(x->agent_name)) };
    buf_init(&ws->gather, GATHER_MAX);
    buf_init(&ws->unread, UNREAD_MAX);
    ws->gather.wipe = ws->unread.wipe = true;
    return !c->on || !ws->reads || (ws->down_inflate = ws_inflate_new(c->server_alone));
}

void exchange_ws_host_done(struct exchange *x)
{
    struct ws *ws = x->ws;
    ws_inflate_free(&ws->down_inflate);
    buf_done(&ws->gather);
    buf_done(&ws->unread);
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
        turns_spend(&x->w->ws_turns, n);
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

/* May a piece of what the host says be read? */
static bool may_take(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (x->cops->full(x->client, x))
        return false;
    if (turns_may(&x->w->ws_turns, &ws->down_turn))
        return true;
    turns_wait(&x->w->ws_turns, &ws->down_turn);
    return false;
}

/* Takes what can be taken now, *ret_left bytes of it not. False: the exchange is over. */
static bool take(struct exchange *x, struct str data, size_t *ret_left)
{
    struct ws *ws = x->ws;
    for (;;) {
        bool coded = ws->reads && ws->down.in_message && ws->down.message_rsv1;
        if (ws->reads && data.n && !may_take(x)) {
            *ret_left = data.n;
            return true;
        }
        struct str piece;
        struct ws_fault fault = { 0 };
        size_t used;
        enum ws_event e = ws_next(&ws->down, str_sub(data, 0, coded ? CODED_STEP : PLAIN_STEP), &used, &piece, &fault);
        data = str_from(data, used);
        bool on = true;
        if (ws->reads && (e == WS_HEAD || e == WS_CONTROL))
            turns_spend(&x->w->ws_turns, WS_FRAME_COST);
        switch (e) {
        case WS_MORE:
            if (!data.n) {
                *ret_left = 0;
                return true;
            }
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
    size_t left = data.n;
    if (!buf_size(&ws->unread) && !take(x, data, &left)) /* else nothing overtakes it */
        return false;
    return !left || !buf_put(&ws->unread, str_from(data, data.n - left)) ||
           origin_wrong(x, WS_INTERNAL, "more of the host than was asked for");
}

bool exchange_ws_unread(const struct exchange *x)
{
    return x->ws && buf_size(&x->ws->unread);
}

/* Some of what is unread, and the host is told to go on when that was all. */
void exchange_ws_client_room(struct exchange *x)
{
    struct ws *ws = x->ws;
    while (buf_size(&ws->unread) && !x->cops->full(x->client, x) && !ws->down_turn.waits) {
        struct buf mine = ws->unread;
        size_t left;
        buf_init(&ws->unread, UNREAD_MAX);
        ws->unread.wipe = true;
        exchange_refresh_scrub(x);
        bool on = take(x, buf_str(&mine), &left);
        if (!on) {
            buf_done(&mine);
            return;
        }
        buf_consume(&mine, buf_size(&mine) - left);
        if (left)
            ws->unread = mine;
        else
            buf_done(&mine);
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
        turns_wait(&x->w->ws_turns, &x->ws->down_turn);
}
