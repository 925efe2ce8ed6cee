/* SPDX-License-Identifier: Apache-2.0
 *
 * From a header block to an exchange, and the body that follows it. */
#include "proxy/client_h2_stream.h"

#include "proxy/virtual_host.h"

#include <nghttp2/nghttp2.h>


/* --- requests --- */

static void fault(struct exchange *x, enum end end, const char *why)
{
    if (!x->req.fault) {
        x->req.fault = why;
        x->req.fault_end = end;
    }
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
        else if (!virtual_host_same(&x->host, &x->said, &host) || port != x->port)
            fault(x, END_MISDIRECTED, "the :authority or Host names another host or port than the connection");
    }
}

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
    x->said = c->said;
    x->port = c->port;
    x->scheme = c->scheme;
    s->in_end = end;
    s->owner = str_hash(str_c(x->agent_name));
    c->made_exchange = true;
    bucket_give(&c->h2->control, 2, lim->h2_control_burst);
    return x;
}

/* Extended CONNECT (RFC 8441): what it asks for is a WebSocket, or refused. */
static void ask_protocol(struct exchange *x, struct str protocol)
{
    x->req.upgrade = true;
    x->req.method = STR("GET"); /* as rules judge it, and as the host is asked */
    x->req.body = H1_BODY_NONE; /* of the request; frames follow when the host has agreed */
    if (str_eq_nocase(protocol, STR("websocket")))
        x->req.websocket = WEBSOCKET_CONNECT;
    else
        fault(x, END_UPGRADE_DENIED, "a CONNECT to another protocol than WebSocket");
}

void h2_request(struct client_stream *s, bool end)
{
    struct client *c = s->c;
    struct h2_request q;
    bool too_large = s->head.too_large;
    struct exchange *x = make_exchange(s, end, &q);
    h2_head_done(&s->head);
    if (!x) {
        h2_reset(s, NGHTTP2_INTERNAL_ERROR);
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
        ask_protocol(x, q.protocol);
    check_authority(x, &q);
    exchange_start(x);
}

/* nghttp2 found it malformed and resets the stream. */
void h2_malformed(struct client_stream *s)
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

/* What is held goes on, as far as the exchange takes it. */
void h2_push_body(struct client_stream *s)
{
    struct exchange *x = s->x;
    if (!x || !exchange_takes_body(x))
        return;
    size_t n = buf_size(&s->in);
    if (n) {
        exchange_request_body(x, buf_str(&s->in));
        if (s->x != x)
            return;
        h2_drop_held(s);
        h2_give_window(s, n);
    }
    if (!s->in_end || s->end_given || !exchange_takes_body(x)) /* what went on may still have to be looked at (a WebSocket's message) */
        return;
    s->end_given = true;
    struct field fields[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which k are set */
    size_t k = 0;
    const char *why = h2_head_trailers(&s->head, fields, x->view->limits->trailer_fields, &k);
    if (why) {
        h2_reset(s, NGHTTP2_PROTOCOL_ERROR);
        exchange_request_failed(x, END_BAD_REQUEST, why);
        return;
    }
    exchange_request_end(x, fields, k);
}

void h2_hold(struct client_stream *s, struct str data)
{
    struct worker *w = s->c->w;
    bool fits = fair_take(&w->h2_held, s->owner, data.n, s->c->view->limits->h2_held_bytes);
    if (fits && buf_put(&s->in, data) == 0)
        return;
    if (fits)
        fair_give(&w->h2_held, s->owner, data.n);
    exchange_request_failed(s->x, END_RATE_LIMITED, "the bodies that wait for their origins are more than the agent's share of limits.h2_held_bytes");
}
