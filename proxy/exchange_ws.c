/* SPDX-License-Identifier: Apache-2.0
 *
 * The opening and the end; exchange_ws_client.c has the client's frames, exchange_ws_host.c the host's. */
#include "proxy/exchange_ws.h"

#include "base/log.h"
#include "mint/swap_text.h"
#include "proxy/exchange_steps.h"
#include "proxy/rewrite.h"

#include <stdlib.h>

enum { CLOSING_MS = 10000 };

/* --- the opening --- */

void exchange_ws_cancel(struct exchange *x)
{
    if (!x->ws)
        return;
    turn_cancel(&x->ws->up_turn);
    turn_cancel(&x->ws->down_turn);
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
    exchange_ws_client_done(x);
    exchange_ws_swap_done(x);
    exchange_ws_host_done(x);
    x->ws = NULL;
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
    if (!exchange_ws_client_init(x) || !exchange_ws_swap_init(x) || !exchange_ws_host_init(x)) {
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
