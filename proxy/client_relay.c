/* SPDX-License-Identifier: Apache-2.0
 *
 * A tunnel that a rule lets through unread, on the client's side. It is an exchange like any other, with the method CONNECT, a body of any
 * length each way and codecs that change nothing: so it has its events, its deadlines, its review under a new snapshot. With tls: required
 * the ClientHello is read first, and what is dialled is what it names; a second one, where the server asks for it, is held until it is read
 * too. With tls: none it is dialled at once, because the server may be the one that speaks first, and the client is told how that went. */
#include "proxy/client.h"

#include "base/clock.h"
#include "proxy/first_bytes.h"
#include "proxy/socks5.h"

#include <stdio.h>

enum { ALERT_UNEXPECTED_MESSAGE = 10, ALERT_ACCESS_DENIED = 49, ALERT_DECODE_ERROR = 50, ALERT_INTERNAL_ERROR = 80, ALERT_UNRECOGNIZED_NAME = 112 };

static const struct h1_head no_head = { .minor = 1, .host = -1, .method = STR_NONE };

/* In clear text: there are no keys yet (RFC 8446 6). */
static void put_alert(struct client *c, unsigned alert)
{
    const char bytes[7] = { 21, 3, 1, 0, 2, 2, (char)alert };
    buf_put(&c->out, str_of(bytes, sizeof bytes));
}

/* --- the beginning --- */

static void begin(struct client *c, const struct h1_head *h, enum tunnel kind)
{
    bool socks = c->socks || c->by_socks;
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    x->cops = &client_relay_ops;
    x->tunnel = kind;
    x->no_pool = true;
    x->host = c->host;
    x->said = c->said;
    x->port = c->port;
    x->bad_target = false;
    x->req.method = STR("CONNECT");
    x->req.target = STR_NONE;
    x->req.body = H1_BODY_CHUNKED;
    if (socks)
        x->req.version = "socks5";
    memcpy(x->sni, c->tls.sni, sizeof x->sni);
    c->body_done = false;
    c->close_after = true; /* whatever it comes to, nothing follows it */
    c->state = CLIENT_RELAY;
    exchange_start(x);
}

void client_relay_open(struct client *c, const struct h1_head *h, bool tls, struct str reply)
{
    if (!tls) {
        begin(c, h, TUNNEL_ANY);
        return;
    }
    c->by_socks = c->socks != SOCKS_NONE;
    c->socks = SOCKS_NONE;
    buf_consume(&c->in, h->bytes);
    client_tunnel_accept(c, false, reply);
    c->state = CLIENT_HELLO;
}

/* --- the ClientHello --- */

static void refuse_hello(struct client *c, unsigned alert, const char *end, enum end code, const char *hint)
{
    put_alert(c, alert);
    client_leave(c, end, code, hint);
}

static void refuse_other(struct client *c)
{
    char hint[160];
    const char *name = NULL;
    enum first_bytes first = first_bytes_look(buf_str(&c->in), &name);
    if (first == FIRST_HTTP || first == FIRST_HTTP2)
        name = "HTTP without TLS";
    snprintf(hint, sizeof hint, "the tunnel carried %s; its rule says tls: required, an operator can let it pass with tls: none", name ? name : "no TLS");
    client_leave(c, "protocol_denied", END_PROTOCOL_DENIED, hint);
}

/* By address nobody asked for a name. */
static bool hides_name(const struct client *c, const struct client_hello_said *said)
{
    return said->hides_name && !c->host.ip.family;
}

static bool may_hide_name(struct client *c)
{
    struct verdict v = { 0 };
    const struct ask ask = { .agent = client_agent(c), .host = &c->host, .port = c->port, .now_us = clock_wall_us() };
    return !ask.agent || !policy_tunnels(c->view->policy, &ask, &v) || v.rule->ech_passes; /* where it is no tunnel's any more, that is said */
}

static void keep_name(struct client *c, struct str sni)
{
    c->tls.sni[0] = 0;
    if (sni.p)
        str_escape(sni, c->tls.sni, sizeof c->tls.sni);
}

static bool names_host(const struct client *c, struct str sni)
{
    struct host named;
    return !sni.p || (host_parse(sni, &named, NULL) == 0 && host_eq(&named, &c->host));
}

bool client_relay_hello(struct client *c)
{
    struct str bytes = buf_str(&c->in);
    struct client_hello_said said;
    const char *why;
    if (!bytes.n)
        return false;
    if (bytes.p[0] != 0x16) {
        refuse_other(c);
        return false;
    }
    if (!c->head_begun) { /* its clock is not wound up by further bytes */
        c->head_begun = true;
        timer_set(c->w->loop, &c->timer, c->view->limits->handshake_timeout);
    }
    switch (client_hello_read(&c->hello, bytes, (size_t)c->view->limits->hello_bytes, &c->w->scratch, &said, &why)) {
    case HELLO_MORE:
        return false;
    case HELLO_BAD:
        refuse_hello(c, ALERT_DECODE_ERROR, "protocol_denied", END_PROTOCOL_DENIED, why);
        return false;
    case HELLO_READY:
        break;
    }
    keep_name(c, said.sni);
    if (!names_host(c, said.sni)) {
        c->tls.name_mismatch = true;
        refuse_hello(c, ALERT_UNRECOGNIZED_NAME, "sni_mismatch", END_MISDIRECTED, "the TLS server name must be the host of the CONNECT");
        return false;
    }
    client_renew_view(c);
    if (hides_name(c, &said) && !may_hide_name(c)) {
        refuse_hello(c, ALERT_ACCESS_DENIED, "protocol_denied", END_PROTOCOL_DENIED,
                     "the ClientHello may hide another server name (ECH): turn ECH off in the client (Chromium: policy EncryptedClientHelloEnabled: false), "
                     "or an operator can let it pass with ech: pass in the tunnel's rule");
        return false;
    }
    hello_watch_init(&c->hellos, said.bytes);
    begin(c, &no_head, hides_name(c, &said) ? TUNNEL_HIDDEN : TUNNEL_TLS);
    return false;
}

/* --- the second --- */

static size_t refuse_second(struct client *c, unsigned alert, enum end end, const char *why)
{
    put_alert(c, alert);
    exchange_stop(c->x, end, why);
    return 0;
}

/* A server that asks again would take another name from the answer. It may also be the one to which the first did not hide anything. */
static size_t read_second(struct client *c, struct str bytes)
{
    char first[sizeof c->tls.sni];
    struct client_hello_said said;
    const char *why;
    switch (client_hello_read(&c->hello, bytes, (size_t)c->view->limits->hello_bytes, &c->w->scratch, &said, &why)) {
    case HELLO_MORE:
        return c->eof ? refuse_second(c, ALERT_DECODE_ERROR, END_PROTOCOL_DENIED, "the client ended within its second ClientHello") : 0;
    case HELLO_BAD:
        return refuse_second(c, ALERT_DECODE_ERROR, END_PROTOCOL_DENIED, why);
    case HELLO_READY:
        break;
    }
    memcpy(first, c->tls.sni, sizeof first);
    keep_name(c, said.sni);
    if (strcmp(first, c->tls.sni) != 0 || !names_host(c, said.sni))
        return refuse_second(c, ALERT_UNRECOGNIZED_NAME, END_MISDIRECTED, "the second ClientHello has another server name than the first");
    if (hides_name(c, &said) && c->x->tunnel != TUNNEL_HIDDEN)
        return refuse_second(c, ALERT_ACCESS_DENIED, END_PROTOCOL_DENIED, "the second ClientHello may hide another server name (ECH), as the first did not");
    hello_watch_over(&c->hellos);
    return bytes.n;
}

/* How many of the bytes in `in` may go on now. 0: it takes more of them to know, or the exchange was ended. */
static size_t may_go(struct client *c)
{
    struct str bytes = buf_str(&c->in);
    const char *why = NULL;
    if (c->x->tunnel == TUNNEL_ANY)
        return bytes.n;
    size_t n = c->hellos.state == HELLO_HELD ? 0 : hello_watch_client(&c->hellos, bytes, &why);
    if (why)
        return refuse_second(c, ALERT_UNEXPECTED_MESSAGE, END_PROTOCOL_DENIED, why);
    return n || c->hellos.state != HELLO_HELD ? n : read_second(c, bytes);
}

/* --- bytes from the client --- */

void client_relay_bytes(struct client *c)
{
    struct exchange *x = c->x;
    if (!x || !exchange_takes_body(x))
        return;
    while (buf_size(&c->in) && exchange_takes_body(x)) {
        size_t n = may_go(c);
        if (c->x != x)
            return;
        if (!n)
            break;
        exchange_request_body(x, str_sub(buf_str(&c->in), 0, n));
        if (c->x != x)
            return;
        buf_consume(&c->in, n);
        exchange_request_flush(x);
        if (c->x != x)
            return;
    }
    if (c->eof && !c->body_done && !buf_size(&c->in)) {
        c->body_done = true;
        exchange_request_end(x, NULL, 0);
    }
}

/* --- bytes to the client --- */

/* The host said its last byte, and the client has it: it is told so, and may go on sending. */
static void settle(struct client *c)
{
    if (c->relay_out != RELAY_ENDING || stream_waiting(&c->stream) || buf_size(&c->out))
        return;
    c->relay_out = RELAY_SHUT;
    stream_shutdown(&c->stream);
}

void client_relay_room(struct client *c)
{
    settle(c);
    if (c->x)
        exchange_client_room(c->x);
}

static void tell_open(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)x;
    (void)a;
    if (c->tunnel) /* it was told before its first byte */
        return;
    c->tunnel = true;
    if (c->socks)
        client_socks_accept(c);
    else
        buf_put(&c->out, STR(TUNNEL_OPEN));
    c->socks = SOCKS_NONE;
}

static void no_interim(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)c;
    (void)x;
    (void)a;
}

static void put_bytes(struct client *c, struct exchange *x, struct str data)
{
    const char *why = x->tunnel == TUNNEL_ANY ? NULL : hello_watch_server(&c->hellos, data);
    if (why) {
        exchange_stop(x, END_ORIGIN_PROTOCOL, why);
        return;
    }
    worker_lend(c->w, &c->out);
    buf_put(&c->out, data);
}

static void flush(struct client *c, struct exchange *x)
{
    (void)x;
    client_flush(c);
    if (c->state != CLIENT_DEAD)
        settle(c);
}

static void end_bytes(struct client *c, struct exchange *x, const struct field *trailers, size_t n)
{
    (void)x;
    (void)trailers;
    (void)n;
    c->relay_out = RELAY_ENDING;
}

static void refuse(struct client *c, struct exchange *x, enum end end)
{
    if (!c->tunnel) {
        if (end == END_ORIGIN_DNS || end == END_ORIGIN_DNS_SERVERS || end == END_ORIGIN_CONNECT || end == END_ORIGIN_TIMEOUT)
            c->socks_reply = end == END_ORIGIN_CONNECT ? SOCKS5_REFUSED : SOCKS5_UNREACHABLE;
        client_h1_ops.refuse(c, x, end);
        return;
    }
    x->status = 200; /* that is what it got */
    put_alert(c, end_status(end) == 403 ? ALERT_ACCESS_DENIED : ALERT_INTERNAL_ERROR);
}

static void more(struct client *c, struct exchange *x)
{
    if (c->x != x || c->state != CLIENT_RELAY)
        return;
    client_relay_bytes(c);
    if (c->x == x && c->state == CLIENT_RELAY && !c->eof)
        client_want_bytes(c);
}

const struct client_ops client_relay_ops = { no_interim, tell_open, put_bytes, end_bytes, refuse, client_h1_cut, flush, client_h1_full, more, client_h1_done };
