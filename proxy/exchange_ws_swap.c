/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's frames. Everything they say is looked at before it leaves. A message that is put together goes through here:
 *
 *   message -> plan -> leases -> made -> the host's buffer, a piece at a time
 *
 * and nothing more of the client is taken until all of it is there. */
#include "proxy/exchange_ws.h"

#include "base/clock.h"
#include "mint/swap_text.h"
#include "proxy/core.h"
#include "proxy/exchange_steps.h"

#include <stdio.h>

enum { STEP_BYTES = 64 * 1024, PIECE = 16 * 1024, REST_MAX = 4 * 1024 * 1024, VALUES_MAX = 2 * 1024 * 1024, TRY_AGAIN_LATER = 1013 };

static char plain[PIECE], inflated[PIECE]; /* scratch: one thread, used within one call */

bool exchange_ws_swap_init(struct exchange *x)
{
    struct ws *ws = x->ws;
    const struct ws_coding *c = &ws->hs.coding;
    struct ask ask = exchange_ask(x);
    size_t most = (size_t)x->view->limits->ws_message_bytes;
    ws->slot = swap_text_wanted(x->view->policy, &ask, SLOT_WEBSOCKET);
    buf_init(&ws->message, most);
    buf_init(&ws->rest, REST_MAX);
    buf_init(&ws->made, 2 * most + VALUES_MAX);
    ws->made.wipe = true;
    body_watch_init(&x->watch, x->view->placeholder_needles, x->known ? x->known->needles : NULL);
    body_watch_init(&ws->texts, NULL, x->known ? x->known->needles : NULL);
    ws->known_generation = lease_client_generation(x->w->leases) - 1; /* it may have changed since the request was looked at */
    if (c->on && !(ws->inflate = ws_inflate_new(c->client_alone)))
        return false;
    return !c->on || !ws->slot || (ws->deflate = ws_deflate_new(c->client_alone, c->client_bits));
}

bool exchange_ws_review(const struct exchange *x, const struct policy *now)
{
    struct ask ask = exchange_ask(x);
    ask.agent = policy_agent(now, str_c(x->agent_name));
    return !x->switched || !x->ws->slot || (ask.agent && swap_text_wanted(now, &ask, SLOT_WEBSOCKET));
}

static uint64_t owner_of(const struct exchange *x)
{
    return str_hash(str_c(x->agent_name));
}

static void release_held(struct exchange *x)
{
    fair_give(&x->w->ws_held, owner_of(x), x->ws->held);
    x->ws->held = 0;
}

static void drop_message(struct exchange *x)
{
    struct ws *ws = x->ws;
    buf_done(&ws->message);
    release_held(x);
}

static void drop_leases(struct ws *ws)
{
    for (size_t i = 0; i < ws->plan.nwanted; i++) {
        lease_cancel(&ws->waits[i]);
        lease_unref(&ws->leases[i]);
    }
    ws->plan.n = ws->plan.nwanted = ws->leases_missing = 0;
    ws->lease_retried = false;
}

void exchange_ws_swap_done(struct exchange *x)
{
    struct ws *ws = x->ws;
    drop_message(x);
    drop_leases(ws);
    for (size_t i = 0; i < ws->nused; i++)
        lease_unref(&ws->used_leases[i]);
    body_watch_done(&ws->texts);
    ws_inflate_free(&ws->inflate);
    ws_deflate_free(&ws->deflate);
    buf_done(&ws->rest);
    buf_done(&ws->made);
}

void exchange_ws_fault(struct exchange *x, const struct ws_fault *fault)
{
    x->ws->close_code = fault->code;
    exchange_end(x, fault->code == WS_TOO_BIG ? END_TOO_LARGE : END_BAD_REQUEST, fault->why);
}

static bool wrong(struct exchange *x, unsigned code, const char *why)
{
    struct ws_fault fault = ws_fault_of(code, why);
    exchange_ws_fault(x, &fault);
    return false;
}

/* Values that became live since: a WebSocket lasts longer than a request. */
static void refresh_known(struct exchange *x)
{
    struct ws *ws = x->ws;
    uint64_t now = lease_client_generation(x->w->leases);
    struct lease_set *set = NULL;
    struct lease_wait *wait = NULL;
    if (now == ws->known_generation)
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

/* --- a message that was put together --- */

static bool give_origin(struct exchange *x, struct str data)
{
    x->oops->send_body(x, data);
    return x->step == STEP_STREAM;
}

static bool waits(const struct ws *ws)
{
    return ws->leases_missing || buf_size(&ws->made);
}

/* Has the host room, perhaps once what it has is written? */
static bool has_room(struct exchange *x)
{
    if (x->step != STEP_STREAM || !x->origin)
        return false;
    if (!x->oops->full(x))
        return true;
    x->oops->flush(x);
    return x->step == STEP_STREAM && x->origin && !x->oops->full(x);
}

/* Of what was made, a piece. */
static void pump(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str piece = str_sub(buf_str(&ws->made), 0, sizeof plain);
    ws_mask(plain, piece.p, piece.n, ws->made_mask, ws->made_at & 3);
    ws->made_at += piece.n;
    buf_consume(&ws->made, piece.n);
    if (!buf_size(&ws->made)) {
        buf_done(&ws->made);
        release_held(x);
    }
    give_origin(x, str_of(plain, piece.n));
    explicit_bzero(plain, sizeof plain);
}

/* Keeps the lease, so that its end is the end of this connection too. False: too many credentials. */
static bool note_used(struct ws *ws, const struct credential *c, struct lease *lease)
{
    size_t i = 0;
    while (i < ws->nused && ws->used[i] != c)
        i++;
    if (i == SWAP_MAX)
        return false;
    if (i == ws->nused)
        ws->used[ws->nused++] = c;
    struct lease *old = ws->used_leases[i];
    ws->used_leases[i] = lease_ref(lease);
    lease_unref(&old);
    return true;
}

/* The payload of the frame. END_OK or why it cannot be made. */
static enum end make(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str text = buf_str(&ws->message);
    bool coded = ws->up.message_rsv1;
    if (!ws->plan.n)
        return (coded ? ws_deflate_put(ws->deflate, text, &ws->made) : buf_put(&ws->made, text)) ? END_TOO_LARGE : END_OK;
    if (!coded)
        return swap_text_put(&ws->plan, text, ws->leases, &ws->made);
    struct buf swapped;
    buf_init(&swapped, text.n + VALUES_MAX);
    swapped.wipe = true;
    enum end end = swap_text_put(&ws->plan, text, ws->leases, &swapped);
    /* Compressed, the length would tell how much of the value something next to it repeats. */
    if (end == END_OK && ws_deflate_put_stored(ws->deflate, buf_str(&swapped), &ws->made))
        end = END_TOO_LARGE;
    buf_done(&swapped);
    return end;
}

static void emit(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct buf head;
    for (size_t i = 0; i < ws->plan.nwanted; i++)
        if (!note_used(ws, ws->plan.wanted[i], ws->leases[i])) {
            exchange_end(x, END_PLACEHOLDER_WRONG_SLOT, "too many credentials in one WebSocket");
            return;
        }
    enum end end = make(x);
    if (end != END_OK) {
        exchange_end(x, end, "the message cannot be made with the credential's value");
        return;
    }
    drop_leases(ws);
    buf_done(&ws->message); /* and is held as what was made of it, until the host takes that */
    if (!buf_size(&ws->made))
        release_held(x);
    buf_init(&head, WS_HEAD_MAX);
    rand_bytes(ws->made_mask, sizeof ws->made_mask);
    ws->made_at = 0;
    ws_put_head(&head, ws->up.text ? WS_TEXT : WS_BINARY, true, ws->up.message_rsv1, buf_size(&ws->made), ws->made_mask);
    give_origin(x, buf_str(&head));
    buf_done(&head);
}

static void on_lease(void *ctx, const struct lease_answer *a);

static void ask_leases(struct exchange *x, const struct ask *ask)
{
    struct ws *ws = x->ws;
    for (size_t i = 0; i < ws->plan.nwanted; i++) {
        if (ws->leases[i])
            continue;
        ws->slots[i] = (struct lease_slot) { x, i };
        ws->leases[i] =
            lease_get(x->w->leases, ws->plan.wanted[i], ask, str_c(x->request_id), NULL, on_lease, &ws->slots[i], &ws->waits[i]);
        if (!ws->leases[i] && !ws->waits[i]) {
            exchange_end(x, END_CREDENTIAL_UNAVAILABLE, "out of memory");
            return;
        }
        ws->leases_missing += !ws->leases[i];
    }
}

/* All are there, or asked for: a lease whose own scope leaves this request out is asked for once more. */
static void leases_there(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct ask ask = exchange_ask(x);
    while (!ws->leases_missing && x->step == STEP_STREAM) {
        bool narrow = false;
        for (size_t i = 0; i < ws->plan.nwanted; i++)
            if (!lease_covers(ws->leases[i], &ask)) {
                lease_unref(&ws->leases[i]);
                narrow = true;
            }
        if (!narrow) {
            emit(x);
            return;
        }
        if (ws->lease_retried) {
            exchange_end(x, END_PLACEHOLDER_OUT_OF_SCOPE, "the lease was narrowed to other requests");
            return;
        }
        ws->lease_retried = true;
        ask_leases(x, &ask);
    }
}

static void on_lease(void *ctx, const struct lease_answer *a)
{
    struct lease_slot *slot = ctx;
    struct exchange *x = slot->x;
    struct ws *ws = x->ws;
    size_t i = slot->index;
    ws->waits[i] = NULL;
    if (a->end != END_OK) {
        char why[128];
        snprintf(why, sizeof why, "credential %.*s: %.*s", STR_ARG(ws->plan.wanted[i]->name), STR_ARG(a->why));
        exchange_end(x, a->end, why);
        return;
    }
    ws->leases[i] = lease_ref(a->lease);
    if (--ws->leases_missing)
        return;
    leases_there(x);
    if (x->step == STEP_STREAM)
        exchange_origin_room(x); /* what waited behind it goes on */
}

/* False: the exchange is over. */
static bool message_done(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str text = buf_str(&ws->message);
    ws->plan.n = ws->plan.nwanted = 0;
    if (ws->up.text && ws->slot) {
        if (!exchange_watch(x, &ws->texts, text, "websocket message"))
            return false;
        struct ask ask = exchange_ask(x);
        struct swap_fault fault;
        const struct placeholder *inert;
        enum end end = swap_text_plan(x->view->placeholders, x->view->policy, &ask, SLOT_WEBSOCKET, text, &ws->plan, &fault, &inert);
        if (inert && !x->watch.found_placeholder) {
            x->watch.found_placeholder = true; /* told once */
            exchange_inert(x, inert, "websocket message");
        }
        if (end != END_OK) {
            exchange_report_fault(x, &fault, end);
            exchange_end(x, end, "in a websocket message");
            return false;
        }
        ask_leases(x, &ask);
    }
    if (x->step == STEP_STREAM && !ws->leases_missing)
        leases_there(x);
    return x->step == STEP_STREAM;
}

/* --- what messages say --- */

static bool gather(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    if (!fair_take(&x->w->ws_held, owner_of(x), piece.n, x->view->limits->ws_held_bytes)) {
        ws->close_code = TRY_AGAIN_LATER;
        exchange_end(x, END_RATE_LIMITED, "the agent has its share of limits.ws_held_bytes in messages that are put together");
        return false;
    }
    ws->held += piece.n;
    return buf_put(&ws->message, piece) == 0 || wrong(x, WS_TOO_BIG, "a message over limits.ws_message_bytes");
}

/* Inflated and without its mask. */
static bool look(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    if (ws->up.text && !ws_utf8(&ws->utf8, piece))
        return wrong(x, WS_NOT_CONSISTENT, "a text message that is not UTF-8");
    if (ws->whole && ws->up.text)
        return gather(x, piece);
    return exchange_watch(x, &x->watch, piece, "websocket message") && (!ws->whole || gather(x, piece));
}

static bool inflate_piece(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    size_t n;
    enum ws_inflated r;
    do {
        r = ws_inflate_step(ws->inflate, &piece, inflated, sizeof inflated, &n);
        ws->size += n;
        if (r == WS_INFLATED_BAD)
            return wrong(x, WS_NOT_CONSISTENT, "a message that cannot be inflated");
        if (ws->size > x->view->limits->ws_message_bytes)
            return wrong(x, WS_TOO_BIG, "a compressed message over limits.ws_message_bytes");
        if (n && !look(x, str_of(inflated, n)))
            return false;
    } while (r == WS_INFLATED_FULL);
    return true;
}

static bool on_head(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (ws->up.opcode != WS_CONTINUATION) {
        ws->whole = ws->slot && (ws->up.text || ws->up.rsv1);
        ws->utf8 = 0;
        ws->size = 0;
    }
    return ws->whole || give_origin(x, ws_head_bytes(&ws->up));
}

static bool on_data(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    for (size_t at = 0; at < data.n; at += PIECE) {
        struct str piece = str_sub(data, at, PIECE);
        ws_mask(plain, piece.p, piece.n, ws->up.mask, ws->up.mask_at + at);
        struct str text = str_of(plain, piece.n);
        if (!(ws->up.message_rsv1 ? inflate_piece(x, text) : look(x, text)))
            return false;
        if (!ws->whole && !give_origin(x, piece))
            return false;
    }
    return true;
}

static bool on_frame_end(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (!ws->up.fin)
        return true;
    if (ws->up.message_rsv1) {
        if (!inflate_piece(x, WS_INFLATE_TAIL))
            return false;
        if (!ws_inflate_end(ws->inflate))
            return wrong(x, WS_NOT_CONSISTENT, "a compressed message that does not end");
    }
    if (ws->up.text && ws->utf8)
        return wrong(x, WS_NOT_CONSISTENT, "a text message that is not UTF-8");
    return !ws->whole || message_done(x);
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
    bool on = give_origin(x, buf_str(&frame));
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

/* Takes what can be taken now and keeps the rest. */
static void feed(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    for (;;) {
        while (buf_size(&ws->made) && !ws->leases_missing && has_room(x))
            pump(x);
        if (data.n && (waits(ws) || !has_room(x))) {
            if (x->step == STEP_STREAM && buf_put(&ws->rest, data))
                exchange_end(x, END_BAD_REQUEST, "more of the client than was asked for");
            return;
        }
        struct str piece;
        struct ws_fault fault = { 0 };
        size_t used;
        enum ws_event e = ws_next(&ws->up, str_sub(data, 0, STEP_BYTES), &used, &piece, &fault);
        data = str_from(data, used);
        if (e == WS_BAD) {
            exchange_ws_fault(x, &fault);
            return;
        }
        if ((e == WS_MORE && !data.n) || !on_event(x, e, piece) || x->step != STEP_STREAM)
            return;
    }
}

bool exchange_ws_stalled(const struct exchange *x)
{
    return x->ws->feeding || waits(x->ws) || buf_size(&x->ws->rest);
}

void exchange_ws_from_client(struct exchange *x, struct str data)
{
    struct ws *ws = x->ws;
    refresh_known(x);
    if (exchange_ws_stalled(x)) { /* nothing overtakes */
        if (buf_put(&ws->rest, data))
            exchange_end(x, END_BAD_REQUEST, "more of the client than was asked for");
        return;
    }
    ws->feeding = true;
    feed(x, data);
    ws->feeding = false;
}

/* What was made goes first, then what came behind it. */
void exchange_ws_origin_room(struct exchange *x)
{
    struct ws *ws = x->ws;
    if (ws->feeding)
        return;
    ws->feeding = true;
    while (x->step == STEP_STREAM && !ws->leases_missing && (buf_size(&ws->made) || buf_size(&ws->rest)) && has_room(x)) {
        if (buf_size(&ws->made)) {
            pump(x);
            continue;
        }
        struct buf mine = ws->rest;
        buf_init(&ws->rest, REST_MAX);
        refresh_known(x);
        feed(x, buf_str(&mine));
        buf_done(&mine);
    }
    ws->feeding = false;
}

void exchange_ws_client_end(struct exchange *x)
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

/* --- for others --- */

bool exchange_ws_uses(const struct exchange *x, const char *lease_id)
{
    const struct ws *ws = x->ws;
    for (size_t i = 0; ws && i < ws->nused; i++)
        if (!strcmp(ws->used_leases[i]->id, lease_id))
            return true;
    for (size_t i = 0; ws && i < ws->plan.nwanted; i++) /* of the message that waits for the others */
        if (ws->leases[i] && !strcmp(ws->leases[i]->id, lease_id))
            return true;
    return false;
}

const struct credential *exchange_ws_credential(const struct exchange *x, size_t i)
{
    return x->ws && i < x->ws->nused ? x->ws->used[i] : NULL;
}
