/* SPDX-License-Identifier: Apache-2.0
 *
 * A message of the client that is put together:
 *
 *   pieces -> plan, a piece at a time -> leases -> made -> the host's buffer, a piece at a time
 *
 * and nothing more of the client is looked at until all of it is there (exchange_ws_push). */
#include "proxy/exchange_ws.h"

#include "base/clock.h"
#include "proxy/core.h"
#include "proxy/exchange_steps.h"
#include "proxy/record.h"

#include <stdio.h>

/* Costs are in bytes that are inflated (core.h): to compress takes six times as long, to copy or to send a quarter. Messages of a byte or
 * none have theirs too. */
enum { PIECE = 16 * 1024, PLAN_PIECE = 64 * 1024, VALUES_MAX = 2 * 1024 * 1024, DEFLATE_COST = 6, SEND_COST_SHARE = 4, TRY_AGAIN_LATER = 1013 };

static char plain[PIECE]; /* scratch: one thread, used within one call */

bool exchange_ws_swap_init(struct exchange *x)
{
    struct ws *ws = x->ws;
    const struct ws_coding *c = &ws->hs.coding;
    struct ask ask = exchange_ask(x);
    size_t most = (size_t)x->view->limits->ws_message_bytes;
    ws->slot = swap_text_wanted(x->view->policy, &ask, SLOT_WEBSOCKET);
    buf_init(&ws->message, most);
    buf_init(&ws->made, 2 * most + VALUES_MAX);
    ws->made.wipe = true;
    body_watch_init(&ws->texts, NULL, x->known ? x->known->needles : NULL);
    return !c->on || !ws->slot || (ws->deflate = ws_deflate_new(c->client_alone, c->client_bits));
}

bool exchange_ws_review(const struct exchange *x, const struct policy *now)
{
    struct ask then = exchange_ask(x), ask = then;
    ask.agent = policy_agent(now, str_c(x->agent_name));
    return !x->switched || !x->ws->slot || (ask.agent && swap_text_keeps(x->view->policy, &then, now, &ask, SLOT_WEBSOCKET));
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
    ws_leases_done(&ws->older);
    body_watch_done(&ws->texts);
    ws_deflate_free(&ws->deflate);
    buf_done(&ws->made);
}

/* --- made and sent --- */

/* Of what was made, a piece. */
static void pump(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str piece = str_sub(buf_str(&ws->made), 0, sizeof plain);
    ws_mask(plain, piece.p, piece.n, ws->made_mask, ws->made_at & 3);
    ws->made_at += piece.n;
    buf_consume(&ws->made, piece.n);
    turns_spend(&x->w->ws_turns, piece.n / SEND_COST_SHARE);
    if (!buf_size(&ws->made)) {
        buf_done(&ws->made);
        release_held(x);
    }
    exchange_ws_give_origin(x, str_of(plain, piece.n));
    explicit_bzero(plain, sizeof plain);
}

/* The payload is there: its frame begins. */
static void begin_frame(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct buf head;
    buf_done(&ws->message); /* and is held as what was made of it, until the host takes that */
    if (!buf_size(&ws->made))
        release_held(x);
    buf_init(&head, WS_HEAD_MAX);
    rand_bytes(ws->made_mask, sizeof ws->made_mask);
    ws->made_at = 0;
    ws_put_head(&head, ws->up.text ? WS_TEXT : WS_BINARY, true, ws->up.message_rsv1, buf_size(&ws->made), ws->made_mask);
    exchange_ws_give_origin(x, buf_str(&head));
    buf_done(&head);
}

/* Compresses another piece of a message that holds no value. */
static void compress(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str piece = str_sub(buf_str(&ws->message), 0, PIECE);
    bool last = piece.n == buf_size(&ws->message);
    turns_spend(&x->w->ws_turns, piece.n * DEFLATE_COST + WS_FRAME_COST);
    if (ws_deflate_put(ws->deflate, piece, last, &ws->made)) {
        exchange_end(x, END_TOO_LARGE, "the message cannot be compressed again");
        return;
    }
    buf_consume(&ws->message, piece.n);
    ws->compressing = !last;
    if (last)
        begin_frame(x);
}

/* What nothing is swapped in becomes the payload as it stands. */
static void move_message(struct ws *ws)
{
    struct buf m = ws->message;
    buf_init(&ws->message, m.max);
    m.max = ws->made.max;
    m.wipe = true;
    ws->made = m;
}

/* The payload of the frame, with values. */
static enum end swap(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct str text = buf_str(&ws->message);
    if (!ws->up.message_rsv1)
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

/* Keeps the lease, so that its end is the end of this connection too; the first of a credential is in the log before the message that
 * holds its value leaves. False: the exchange is over. */
static bool note_used(struct exchange *x, const struct credential *c, struct lease *lease)
{
    struct ws *ws = x->ws;
    size_t i = 0;
    while (i < ws->nused && ws->used[i] != c)
        i++;
    if (i == SWAP_MAX) {
        exchange_end(x, END_PLACEHOLDER_WRONG_SLOT, "too many credentials in one WebSocket");
        return false;
    }
    if (i == ws->nused) {
        if (record_used(x, c, lease)) {
            exchange_end(x, END_AUDIT_UNAVAILABLE, "the log takes no record of a credential's use");
            return false;
        }
        ws->used[ws->nused++] = c;
    }
    struct lease *old = ws->used_leases[i];
    const char *why = NULL;
    if (old && strcmp(old->id, lease->id) != 0) /* a newer one takes its place; while it lives it can be revoked */
        why = ws_leases_add(&ws->older, old, clock_wall_us(), (size_t)x->view->limits->ws_leases);
    if (why) {
        exchange_end(x, END_CREDENTIAL_UNAVAILABLE, why);
        return false;
    }
    ws->used_leases[i] = lease_ref(lease);
    lease_unref(&old);
    return true;
}

static void emit(struct exchange *x)
{
    struct ws *ws = x->ws;
    enum end end = END_OK;
    ws->ready = false;
    turns_spend(&x->w->ws_turns, buf_size(&ws->message) / SEND_COST_SHARE);
    if (ws->plan.n)
        end = swap(x);
    else if (ws->up.message_rsv1)
        ws->compressing = true;
    else
        move_message(ws);
    if (end != END_OK) {
        exchange_end(x, end, "the message cannot be made with the credential's value");
        return;
    }
    drop_leases(ws);
    if (!ws->compressing)
        begin_frame(x);
}

static void plan_some(struct exchange *x);

bool exchange_ws_push(struct exchange *x)
{
    struct ws *ws = x->ws;
    while (x->step == STEP_STREAM && !ws->leases_missing) {
        if (!ws->planning && !ws->ready && !ws->compressing && !buf_size(&ws->made))
            return true;
        if (!turns_may(&x->w->ws_turns, &ws->up_turn) || (ws->ready && !exchange_is_synced(x)))
            return false;
        if (ws->planning)
            plan_some(x);
        else if (ws->ready)
            emit(x);
        else if (ws->compressing)
            compress(x);
        else if (exchange_ws_has_room(x))
            pump(x);
        else
            return false;
    }
    return false;
}

/* --- leases --- */

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
            for (size_t i = 0; i < ws->plan.nwanted; i++)
                if (!note_used(x, ws->plan.wanted[i], ws->leases[i]))
                    return;
            ws->ready = true;
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

/* --- put together --- */

bool exchange_ws_gather(struct exchange *x, struct str piece)
{
    struct ws *ws = x->ws;
    if (ws->up.text && !exchange_watch(x, &ws->texts, piece, "websocket message"))
        return false;
    if (!fair_take(&x->w->ws_held, owner_of(x), piece.n, x->view->limits->ws_held_bytes)) {
        ws->close_code = TRY_AGAIN_LATER;
        exchange_end(x, END_RATE_LIMITED, "the agent has its share of limits.ws_held_bytes in messages that are put together");
        return false;
    }
    ws->held += piece.n;
    return buf_put(&ws->message, piece) == 0 || exchange_ws_wrong(x, WS_TOO_BIG, "a message over limits.ws_message_bytes");
}

/* Looks for the placeholders of another piece. */
static void plan_some(struct exchange *x)
{
    struct ws *ws = x->ws;
    struct ask ask = exchange_ask(x);
    struct str text = buf_str(&ws->message);
    size_t from = ws->walk.from;
    enum end end =
        swap_text_plan(x->view->placeholders, x->view->policy, &ask, SLOT_WEBSOCKET, text, PLAN_PIECE, &ws->walk, &ws->plan);
    turns_spend(&x->w->ws_turns, ws->walk.from - from);
    ws->planning = end == END_UNSET;
    if (ws->planning)
        return;
    if (ws->walk.inert && !x->watch.found_placeholder) {
        x->watch.found_placeholder = true; /* told once */
        exchange_inert(x, ws->walk.inert, "websocket message");
    }
    if (end != END_OK) {
        exchange_report_fault(x, &ws->walk.fault, end);
        exchange_end(x, end, "in a websocket message");
        return;
    }
    ask_leases(x, &ask);
    if (x->step == STEP_STREAM && !ws->leases_missing)
        leases_there(x);
}

void exchange_ws_gathered(struct exchange *x)
{
    struct ws *ws = x->ws;
    turns_spend(&x->w->ws_turns, WS_FRAME_COST);
    ws->plan.n = ws->plan.nwanted = 0;
    ws->planning = ws->up.text && ws->slot;
    ws->ready = !ws->planning;
    ws->walk = (struct swap_text_walk) { 0 };
}

bool exchange_ws_uses(const struct exchange *x, const char *lease_id)
{
    const struct ws *ws = x->ws;
    for (size_t i = 0; ws && i < ws->nused; i++)
        if (!strcmp(ws->used_leases[i]->id, lease_id))
            return true;
    if (ws && ws_leases_has(&ws->older, lease_id))
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
