/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's frames: everything they say is looked at before it leaves. What cannot be done now (a message goes out, a lease is asked
 * for, the host is full, the round's share of inflating is used up) stops the reading; the rest is kept and nothing overtakes it. */
#include "proxy/exchange_ws.h"

#include "proxy/core.h"
#include "proxy/exchange_steps.h"

enum { PIECE = 16 * 1024, REST_MAX = 4 * 1024 * 1024 };

static char plain[PIECE], inflated[PIECE]; /* scratch: one thread, used within one call */

static void on_turn(struct turn *t)
{
    struct ws *ws = (struct ws *)((char *)t - offsetof(struct ws, up_turn));
    if (ws->x->step == STEP_STREAM)
        exchange_origin_room(ws->x); /* what was kept goes on */
}

bool exchange_ws_client_init(struct exchange *x)
{
    struct ws *ws = x->ws;
    const struct ws_coding *c = &ws->hs.coding;
    ws_in_init(&ws->up, true, c->on, x->view->limits->ws_frame_bytes);
    buf_init(&ws->rest, REST_MAX);
    buf_init(&ws->coded, PIECE);
    ws->up_turn = (struct turn) { .cb = on_turn, .owner = str_hash(str_c(x->agent_name)) };
    body_watch_init(&x->watch, x->view->placeholder_needles, x->known ? x->known->needles : NULL);
    ws->known_generation = lease_client_generation(x->w->leases) - 1; /* it may have changed since the request was looked at */
    return !c->on || (ws->inflate = ws_inflate_new(c->client_alone));
}

void exchange_ws_client_done(struct exchange *x)
{
    struct ws *ws = x->ws;
    ws_inflate_free(&ws->inflate);
    buf_done(&ws->rest);
    buf_done(&ws->coded);
}

void exchange_ws_fault(struct exchange *x, const struct ws_fault *fault)
{
    x->ws->close_code = fault->code;
    exchange_end(x, fault->code == WS_TOO_BIG ? END_TOO_LARGE : END_BAD_REQUEST, fault->why);
}

bool exchange_ws_wrong(struct exchange *x, unsigned code, const char *why)
{
    struct ws_fault fault = ws_fault_of(code, why);
    exchange_ws_fault(x, &fault);
    return false;
}

void exchange_ws_refresh(struct exchange *x, bool anyway)
{
    struct ws *ws = x->ws;
    uint64_t now = lease_client_generation(x->w->leases);
    struct lease_set *set = NULL;
    struct lease_wait *wait = NULL;
    if (now == ws->known_generation && !anyway)
        return;
    if (lease_live(x->w->leases, x->agent, NULL, &set, NULL, NULL, &wait) == 1) {
        body_watch_renew(&x->watch, set ? set->needles : NULL);
        body_watch_renew(&ws->texts, set ? set->needles : NULL);
        lease_set_unref(&x->known);
        x->known = set;
        ws->known_generation = now;
    }
    lease_cancel(&wait);
}

bool exchange_ws_give_origin(struct exchange *x, struct str data)
{
    x->oops->send_body(x, data);
    return x->step == STEP_STREAM;
}

bool exchange_ws_has_room(struct exchange *x)
{
    if (x->step != STEP_STREAM || !x->origin)
        return false;
    if (!x->oops->full(x))
        return true;
    x->oops->flush(x);
    return x->step == STEP_STREAM && x->origin && !x->oops->full(x);
}

/* --- what messages say --- */

/* Inflated and without its mask. */
static bool look(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    if (ws->up.text && !ws_utf8(&ws->utf8, piece))
        return exchange_ws_wrong(x, WS_NOT_CONSISTENT, "a text message that is not UTF-8");
    if (ws->whole && ws->up.text)
        return exchange_ws_gather(x, piece);
    return exchange_watch(x, &x->watch, piece, "websocket message") && (!ws->whole || exchange_ws_gather(x, piece));
}

/* Looks at what *in inflates to: all of it, or as much as this round allows (ws->inflating: there is more). False: the exchange is over. */
static bool inflate_some(struct exchange *x, struct str *in, bool all)
{
    struct ws *ws = x->ws;
    struct turns *turns = &x->w->ws_turns;
    enum ws_inflated r;
    size_t n;
    do {
        if (!all && !turns_may(turns, &ws->up_turn)) {
            ws->inflating = true;
            return true;
        }
        r = ws_inflate_step(ws->inflate, in, inflated, sizeof inflated, &n);
        turns_spend(turns, n);
        ws->size += n;
        if (r == WS_INFLATED_BAD)
            return exchange_ws_wrong(x, WS_NOT_CONSISTENT, "a message that cannot be inflated");
        if (ws->size > x->view->limits->ws_message_bytes)
            return exchange_ws_wrong(x, WS_TOO_BIG, "a compressed message over limits.ws_message_bytes");
        if (n && !look(x, str_of(inflated, n)))
            return false;
    } while (r == WS_INFLATED_FULL);
    ws->inflating = false;
    return true;
}

/* Goes on with the piece that was left. False: the exchange is over, or it is left once more. */
static bool inflate_rest(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str piece = buf_str(&ws->coded), in = str_from(piece, ws->coded_at);
    if (!inflate_some(x, &in, false))
        return false;
    ws->coded_at = piece.n - in.n;
    if (ws->inflating)
        return false;
    ws_mask(plain, piece.p, piece.n, ws->up.mask, ws->coded_mask_at);
    bool on = ws->whole || exchange_ws_give_origin(x, str_of(plain, piece.n));
    buf_done(&ws->coded);
    return on;
}

static bool on_head(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (ws->up.opcode != WS_CONTINUATION) {
        ws->whole = ws->slot && (ws->up.text || ws->up.rsv1);
        ws->utf8 = 0;
        ws->size = 0;
    }
    return ws->whole || exchange_ws_give_origin(x, ws_head_bytes(&ws->up));
}

/* At most PIECE bytes. */
static bool on_data(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    ws_mask(plain, piece.p, piece.n, ws->up.mask, ws->up.mask_at);
    struct str text = str_of(plain, piece.n), in = text;
    if (!(ws->up.message_rsv1 ? inflate_some(x, &in, false) : look(x, text)))
        return false;
    if (ws->inflating) { /* it leaves when all of it was looked at */
        ws->coded_at = text.n - in.n;
        ws->coded_mask_at = ws->up.mask_at;
        if (!buf_put(&ws->coded, text))
            return true;
        exchange_end(x, END_BAD_REQUEST, "out of memory");
        return false;
    }
    return ws->whole || exchange_ws_give_origin(x, piece);
}

static bool on_frame_end(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws->up.fin)
        return true;
    if (ws->up.message_rsv1) {
        struct str tail = WS_INFLATE_TAIL;
        if (!inflate_some(x, &tail, true)) /* of a few bytes, a little */
            return false;
        if (!ws_inflate_end(ws->inflate))
            return exchange_ws_wrong(x, WS_NOT_CONSISTENT, "a compressed message that does not end");
    }
    if (ws->up.text && ws->utf8)
        return exchange_ws_wrong(x, WS_NOT_CONSISTENT, "a text message that is not UTF-8");
    if (ws->whole)
        exchange_ws_gathered(x);
    return true;
}

static bool on_control(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str payload = str_of(ws->up.control, ws->up.control_n);
    struct buf frame;
    if (!exchange_watch(x, &x->watch, payload, "websocket message"))
        return false;
    buf_init(&frame, WS_HEAD_MAX + WS_CONTROL_MAX);
    ws_put_frame(&frame, ws->up.opcode, true, false, payload, true);
    bool on = exchange_ws_give_origin(x, buf_str(&frame));
    buf_done(&frame);
    return on;
}

static bool on_event(struct exchange *x, enum ws_event e, struct str data)
{
    switch (e) {
    case WS_HEAD:
        return on_head(x);
    case WS_DATA:
        return on_data(x, data);
    case WS_FRAME_END:
        return on_frame_end(x);
    case WS_CONTROL:
        return on_control(x);
    case WS_MORE:
    case WS_BAD:
    default:
        return true;
    }
}

/* --- bytes --- */

/* Does what was begun. True: more of the client can be looked at. */
static bool advance(struct exchange *x)
{
    return exchange_ws_push(x) && (!x->ws->inflating || inflate_rest(x)) && x->step == STEP_STREAM;
}

/* Reading stops here. Who makes it go on: the lease, the log, the host's room, or a turn. */
static void stop(struct exchange *x)
{
    struct ws *ws = x->ws;
    ws->stopped = x->step == STEP_STREAM;
    if (ws->stopped && !ws->leases_missing && !turns_may(&x->w->ws_turns, &ws->up_turn))
        turns_wait(&x->w->ws_turns, &ws->up_turn);
}

static void finish(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws->up.closed && (!ws_between_frames(&ws->up) || ws->up.in_message)) {
        exchange_end(x, END_CLIENT_CLOSED, "the client went away in mid message");
        return;
    }
    x->request_sent = true;
    x->oops->send_end(x, NULL, 0);
    exchange_touch(x);
}

/* Takes what can be taken now. How much is left: not 0 only when it stopped. */
static size_t take(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    for (;;) {
        if (!advance(x) || (data.n && !exchange_ws_has_room(x))) {
            stop(x);
            return ws->stopped ? data.n : 0;
        }
        struct str piece;
        struct ws_fault fault = { 0 };
        size_t used;
        enum ws_event e = ws_next(&ws->up, str_sub(data, 0, PIECE), &used, &piece, &fault);
        data = str_from(data, used);
        if (e == WS_BAD) {
            exchange_ws_fault(x, &fault);
            return 0;
        }
        if (e == WS_MORE && !data.n)
            break;
        if (!on_event(x, e, piece) || x->step != STEP_STREAM)
            return 0;
    }
    if (ws->ended)
        finish(x);
    return 0;
}

bool exchange_ws_stalled(const struct exchange *x)
{
    return x->ws->taking || x->ws->stopped;
}

void exchange_ws_from_client(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    size_t left = data.n;
    exchange_ws_refresh(x, false);
    if (!exchange_ws_stalled(x)) {
        ws->taking = true;
        left = take(x, data);
        ws->taking = false;
    }
    if (left && (ws->taking || buf_put(&ws->rest, str_from(data, data.n - left)))) /* nothing overtakes */
        exchange_end(x, END_BAD_REQUEST, "more of the client than was asked for");
}

void exchange_ws_origin_room(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (ws->taking || !ws->stopped)
        return;
    struct buf mine = ws->rest;
    buf_init(&ws->rest, REST_MAX);
    exchange_ws_refresh(x, false);
    ws->taking = true;
    ws->stopped = false;
    size_t left = take(x, buf_str(&mine));
    ws->taking = false;
    buf_consume(&mine, buf_size(&mine) - left);
    if (left)
        ws->rest = mine;
    else
        buf_done(&mine);
}

void exchange_ws_client_end(struct exchange *x)
{
    x->ws->ended = true;
    if (!exchange_ws_stalled(x))
        finish(x);
}
