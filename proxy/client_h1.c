/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 from the client: heads become exchanges, answers become bytes. On the proxy port a head is a CONNECT, an absolute-form
 * request, or a question to us; inside a tunnel it is an origin-form request whose every name must be the tunnel's. */
#include "proxy/client.h"

#include "proxy/exchange_steps.h"
#include "proxy/reply.h"
#include "proxy/virtual_host.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { OUT_HIGH = 256 * 1024 };

/* --- from head to request --- */

/* Moves the head into memory of its own, which the exchange takes. False: out of memory. */
static bool own_head(struct client *c, const struct h1_head *h, struct request *r)
{
    struct str bytes = str_sub(buf_str(&c->in), 0, h->bytes);
    size_t fields = (h->nfields ? h->nfields : 1) * sizeof(struct h1_field);
    char *mem = malloc(fields + bytes.n);
    if (!mem)
        return false;
    struct h1_field *f = (struct h1_field *)(void *)mem;
    char *copy = mem + fields;
    if (bytes.n)
        memcpy(copy, bytes.p, bytes.n);
    ptrdiff_t delta = bytes.n ? copy - bytes.p : 0;
    for (size_t i = 0; i < h->nfields; i++) {
        f[i] = h->fields[i];
        f[i].f.name.p += delta;
        f[i].f.value.p += delta;
    }
    *r = (struct request) {
        .method = bytes.n ? str_of(h->method.p + delta, h->method.n) : STR_NONE,
        .target = bytes.n ? str_of(h->target.p + delta, h->target.n) : STR_NONE,
        .fields = f,
        .nfields = h->nfields,
        .body = h->body,
        .length = h->length,
        .expect_continue = h->expect_continue,
        .upgrade = h->upgrade,
        .websocket = h->upgrade && ws_asked(h->fields, h->nfields) ? WEBSOCKET_UPGRADE : WEBSOCKET_NONE,
        .version = h->minor ? "1.1" : "1.0",
        .mem = mem,
    };
    return true;
}

struct exchange *client_exchange(struct client *c, const struct h1_head *h)
{
    struct request r;
    if (!own_head(c, h, &r))
        return NULL;
    h1_body_in_init(&c->body, h, c->view->limits->chunk_ext_bytes, c->view->limits->trailer_bytes);
    c->body_done = h->body == H1_BODY_NONE;
    c->http10 = h->minor == 0;
    c->close_after |= !h->keep_alive;
    c->answer_chunked = c->answer_sized = false;
    c->made_exchange = true;
    c->drained = 0;
    buf_consume(&c->in, h->bytes);
    struct exchange *x = exchange_new(c->w, &client_h1_ops, c, &r);
    if (!x)
        return NULL;
    x->conn_id = c->conn_id;
    x->client_addr = c->addr;
    x->client_http10 = c->http10;
    memcpy(x->agent_name, c->agent_name, sizeof x->agent_name);
    x->agent = client_agent(c);
    x->bad_target = true;
    c->x = x;
    c->state = CLIENT_EXCHANGE;
    timer_clear(&c->timer);
    return x;
}

static void fault(struct exchange *x, enum end end, const char *why)
{
    if (!x->req.fault) {
        x->req.fault = why;
        x->req.fault_end = end;
    }
}

/* The one name: Host must be the target's, by canonical name and port. */
static void check_host_field(struct exchange *x, const struct h1_head *h, struct str host_value)
{
    struct host host;
    uint16_t port;
    if (h->host < 0) {
        if (h->minor)
            fault(x, END_BAD_REQUEST, "an HTTP/1.1 request without Host");
        return;
    }
    if (authority_parse(host_value, x->scheme == SCHEME_HTTPS ? 443 : 80, &host, &port, NULL)) {
        fault(x, END_BAD_REQUEST, "the Host field is not a host name");
        return;
    }
    if (!virtual_host_same(&x->host, &x->said, &host) || port != x->port)
        fault(x, END_MISDIRECTED, "the Host field names another host or port than the connection");
}

/* --- inside a tunnel --- */

static void tunnel_request(struct client *c, const struct h1_head *h)
{
    struct str host_value = h->host >= 0 ? h->fields[h->host].f.value : STR_NONE;
    size_t host_at = (size_t)(h->host >= 0 ? h->host : 0);
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    if (h->host >= 0)
        host_value = x->req.fields[host_at].f.value;
    x->scheme = c->scheme;
    x->host = c->host;
    x->said = c->said;
    x->port = c->port;
    x->bad_target = false;
    struct str t = x->req.target;
    if (t.n && t.p[0] != '/' && !str_eq(t, STR("*"))) {
        /* An absolute form inside a tunnel is either the same name, which some clients send, or misdirected. */
        struct str prefix = c->scheme == SCHEME_HTTPS ? STR("https://") : STR("http://");
        struct host host;
        uint16_t port;
        bool same = t.n > prefix.n && str_eq_nocase(str_sub(t, 0, prefix.n), prefix);
        struct str rest = same ? str_from(t, prefix.n) : STR_NONE;
        size_t end = 0;
        while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?')
            end++;
        same = same && authority_parse(str_sub(rest, 0, end), c->scheme == SCHEME_HTTPS ? 443 : 80, &host, &port, NULL) == 0;
        if (!same)
            fault(x, END_BAD_REQUEST, "the request target is no path");
        else if (!virtual_host_same(&x->host, &x->said, &host) || port != x->port)
            fault(x, END_MISDIRECTED, "the absolute-form target names another host than the tunnel");
        else if (end == rest.n || rest.p[end] != '/')
            fault(x, END_BAD_REQUEST, "the absolute-form target has no path");
        if (!x->req.fault)
            x->req.target = str_from(rest, end);
    }
    check_host_field(x, h, host_value);
    exchange_start(x);
}

/* --- the proxy port --- */

/* GET http://host/path HTTP/1.1 on the proxy port. */
static void absolute_request(struct client *c, const struct h1_head *h)
{
    size_t host_at = (size_t)(h->host >= 0 ? h->host : 0);
    bool has_host = h->host >= 0;
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    struct str t = x->req.target, rest = STR_NONE;
    struct err err;
    if (t.n > 7 && str_eq_nocase(str_sub(t, 0, 7), STR("http://"))) {
        x->scheme = SCHEME_HTTP;
        rest = str_from(t, 7);
    } else if (t.n > 8 && str_eq_nocase(str_sub(t, 0, 8), STR("https://"))) {
        x->scheme = SCHEME_HTTPS;
        rest = str_from(t, 8);
    }
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    if (!rest.p) {
        fault(x, END_BAD_REQUEST, "the target is neither CONNECT host:port nor http://host/path");
        x->req.target = STR_NONE;
    } else if (authority_parse(str_sub(rest, 0, n), x->scheme == SCHEME_HTTPS ? 443 : 80, &x->host, &x->port, &err)) {
        fault(x, END_BAD_REQUEST, err.text);
        x->req.target = STR_NONE;
        exchange_why(x, err.text);
    } else {
        x->bad_target = false;
        x->req.target = str_from(rest, n);
        if (!x->req.target.n)
            x->req.target = STR("/");
        else if (x->req.target.p[0] != '/')
            fault(x, END_BAD_REQUEST, "the target has no path");
        enum end end = virtual_host_name(x->view, str_c(x->agent_name), &x->host, &x->said);
        if (end != END_OK)
            fault(x, end, "an address of resolver.synthetic.pool");
        check_host_field(x, h, has_host ? x->req.fields[host_at].f.value : STR_NONE);
        if (x->scheme == SCHEME_HTTPS && !c->listener->local && c->listener->kind != LISTENER_TLS && !c->view->config->absolute_https)
            fault(x, END_BAD_REQUEST, "an https:// target carries clear text to this listener: use CONNECT, or set origin.absolute_https");
    }
    exchange_start(x);
}

static void proxy_request(struct client *c, const struct h1_head *h)
{
    bool connect = str_eq(h->method, STR("CONNECT"));
    if (!connect && h->target.n && h->target.p[0] == '/') {
        client_own_page(c, h);
        return;
    }
    const struct agent *agent = NULL;
    c->agent_name[0] = 0;
    c->said = (struct ip) { 0 };
    enum identify_result who = client_h1_identify(c, h, &agent);
    /* Whoever it was: where it wanted to go is worth a line in the log. */
    bool named = connect && authority_parse(h->target, 0, &c->host, &c->port, NULL) == 0;
    if (who != IDENTIFY_OK) {
        const char *why = who == IDENTIFY_LOGIN ? "log in"
                          : c->login.given      ? "the login that was given is wrong, or another agent's than the one whose address or listener this is"
                                                : NULL;
        client_tunnel_refuse(c, h, END_UNKNOWN_AGENT, why, NULL, named);
        return;
    }
    if (!client_count(c)) {
        client_tunnel_refuse(c, h, END_RATE_LIMITED, client_too_many(c), NULL, named);
        return;
    }
    if (connect)
        client_tunnel_connect(c, h, agent);
    else
        absolute_request(c, h);
}

/* --- heads --- */

/* A head that cannot be read still is one exchange, refused, and the end of the connection. */
static void bad_head(struct client *c, enum h1_result r, const struct h1_fault *why)
{
    const struct agent *agent = NULL;
    struct h1_head none = { .minor = 1, .keep_alive = false, .host = -1, .method = STR_NONE };
    c->close_after = true;
    if (!c->tunnel && !c->agent_name[0]) {
        struct h1_head empty = none;
        client_h1_identify(c, &empty, &agent);
    }
    struct exchange *x = client_exchange(c, &none);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    x->req.method = x->req.target = STR_NONE;
    c->body_done = true;
    buf_reset(&c->in);
    if (c->tunnel) {
        x->host = c->host;
        x->said = c->said;
        x->port = c->port;
        x->scheme = c->scheme;
        x->bad_target = false;
    }
    if (r == H1_TOO_LARGE)
        exchange_refuse(x, END_HEAD_TOO_LARGE, why->why);
    else
        exchange_refuse(x, END_BAD_REQUEST, why->why);
}

void client_head_begins(struct client *c)
{
    if (c->head_begun)
        return;
    c->head_begun = true;
    timer_set(c->w->loop, &c->timer, c->view->limits->head_timeout);
}

bool client_h1_head(struct client *c)
{
    client_renew_view(c);
    const struct limits *lim = c->view->limits;
    struct h1_limits hl = { lim->head_bytes, lim->header_fields, lim->target_bytes };
    struct h1_head h;
    struct h1_fault why = { 0 };
    enum h1_result r = h1_request_parse(buf_str(&c->in), &hl, c->w->fields, &c->head_from, &h, &why);
    if (r == H1_MORE) {
        client_head_begins(c);
        return false;
    }
    c->head_from = 0;
    if (r != H1_DONE)
        bad_head(c, r, &why);
    else if (c->tunnel)
        tunnel_request(c, &h);
    else
        proxy_request(c, &h);
    return c->state == CLIENT_TUNNEL || c->state == CLIENT_HELLO || c->state == CLIENT_PROXY || (c->state == CLIENT_HEAD && buf_size(&c->in));
}

/* --- bodies --- */

static bool body_trailers(struct client *c, struct str section)
{
    struct h1_limits hl = { c->view->limits->trailer_bytes, c->view->limits->trailer_fields, 1024 };
    struct h1_fault why = { 0 };
    size_t n = 0, bytes;
    if (h1_trailers_parse(section, &hl, c->w->fields, &n, &bytes, &why) != H1_DONE)
        return false;
    struct field fields[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which n are set */
    for (size_t i = 0; i < n; i++)
        fields[i] = c->w->fields[i].f;
    c->body_done = true;
    if (c->x)
        exchange_request_end(c->x, fields, n);
    return true;
}

static void bad_body(struct client *c, const char *why)
{
    c->close_after = true;
    c->body_done = true;
    buf_reset(&c->in);
    struct exchange *x = c->x;
    if (x)
        exchange_request_failed(x, END_BAD_REQUEST, why);
    else
        client_linger(c);
}

/* With an exchange: its body. Without (CLIENT_DRAIN): thrown away. */
void client_h1_body(struct client *c)
{
    struct exchange *x = c->x;
    while (!c->body_done && c->x == x && c->state != CLIENT_DEAD) {
        if (x && !exchange_takes_body(x))
            break;
        size_t used = 0;
        struct str data = STR_NONE;
        struct h1_fault why = { 0 };
        enum h1_body_event e = h1_body_next(&c->body, buf_str(&c->in), &used, &data, &why);
        if (e == H1_BODY_MORE) {
            buf_consume(&c->in, used);
            if (x && c->eof && h1_body_closed(&c->body)) { /* it ends with the client's side */
                c->body_done = true;
                exchange_request_end(x, NULL, 0);
            }
            break;
        }
        if (e == H1_BODY_BAD) {
            bad_body(c, why.why);
            return;
        }
        if (e == H1_BODY_DATA) {
            if (x)
                exchange_request_body(x, data);
            else
                c->drained += data.n;
        } else if (e == H1_BODY_TRAILERS) {
            if (!body_trailers(c, data)) {
                bad_body(c, "a malformed trailer section");
                return;
            }
        } else {
            c->body_done = true;
            if (x)
                exchange_request_end(x, NULL, 0);
        }
        if (c->state == CLIENT_DEAD)
            return;
        buf_consume(&c->in, used);
        if (e == H1_BODY_TRAILERS) { /* the END that follows takes nothing more */
            size_t none;
            if (h1_body_next(&c->body, buf_str(&c->in), &none, &data, &why) == H1_BODY_END)
                buf_consume(&c->in, none);
        }
    }
    if (x && c->x == x)
        exchange_request_flush(x);
    if (c->state != CLIENT_DRAIN)
        return;
    if (c->body_done)
        client_next(c);
    else if (c->drained > c->view->limits->drain_body_bytes)
        client_linger(c);
}

/* --- answers --- */

static void put_status(struct client *c, unsigned status, struct str reason)
{
    buf_put(&c->out, STR("HTTP/1.1 "));
    buf_put_u64(&c->out, status);
    buf_putc(&c->out, ' ');
    buf_put(&c->out, reason);
    buf_put(&c->out, STR("\r\n"));
}

static void put_fields(struct client *c, const struct answer *a)
{
    for (size_t i = 0; i < a->nfields; i++)
        h1_put_field(&c->out, a->fields[i].name, a->fields[i].value);
}

void client_h1_answer(struct client *c, unsigned status, struct str reason, const struct field *fields, size_t n, struct str body,
                      bool head_only)
{
    put_status(c, status, reason);
    for (size_t i = 0; i < n; i++)
        h1_put_field(&c->out, fields[i].name, fields[i].value);
    buf_putf(&c->out, "Content-Length: %zu\r\n", body.n);
    if (c->close_after || c->w->draining)
        buf_put(&c->out, STR("Connection: close\r\n"));
    else if (c->http10)
        buf_put(&c->out, STR("Connection: keep-alive\r\n"));
    buf_put(&c->out, STR("\r\n"));
    if (!head_only)
        buf_put(&c->out, body);
}

static void answer_refusal(struct client *c, struct exchange *x, enum end end)
{
    if (c->socks) {
        client_socks_refuse(c);
        return;
    }
    struct reply r;
    reply_make(x, end, !c->tunnel, &r);
    /* What follows on the connection must be certain: a body that the client may or may not send after this is not. */
    if ((x->req.expect_continue && !x->continued && !c->body_done) || end == END_BAD_REQUEST || end == END_HEAD_TOO_LARGE ||
        end == END_MISDIRECTED || end == END_DRAINING)
        c->close_after = true;
    client_h1_answer(c, r.status, buf_str(&r.reason), r.fields, r.nfields, buf_str(&r.body), str_eq(x->req.method, STR("HEAD")));
    reply_done(&r);
}

static void answer_interim(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)x;
    put_status(c, a->status, a->reason);
    put_fields(c, a);
    buf_put(&c->out, STR("\r\n"));
}

static void answer_head(struct client *c, struct exchange *x, const struct answer *a)
{
    worker_lend(c->w, &c->out);
    put_status(c, a->status, a->reason);
    put_fields(c, a);
    c->answer_chunked = false;
    if (a->switched) {
        const struct h1_head bytes = { .body = H1_BODY_UNTIL_CLOSE };
        buf_put(&c->out, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
        h1_body_in_init(&c->body, &bytes, 0, 0);
        c->body_done = false;
        c->close_after = true;
        return;
    }
    if (a->has_length) {
        buf_put(&c->out, STR("Content-Length: "));
        buf_put_u64(&c->out, a->length);
        buf_put(&c->out, STR("\r\n"));
    } else if (!a->no_body) {
        if (c->http10) {
            c->close_after = true; /* the end of the body is the end of the connection */
        } else {
            c->answer_chunked = true;
            buf_put(&c->out, STR("Transfer-Encoding: chunked\r\n"));
        }
    }
    /* An answer that overtakes its request: the rest of the request is not wanted, and cannot be told from the next one for sure. */
    if (!x->request_sent && x->req.expect_continue && !x->continued)
        c->close_after = true;
    if (c->close_after || c->w->draining)
        buf_put(&c->out, STR("Connection: close\r\n"));
    else if (c->http10)
        buf_put(&c->out, STR("Connection: keep-alive\r\n"));
    buf_put(&c->out, STR("\r\n"));
}

static void answer_body(struct client *c, struct exchange *x, struct str data)
{
    (void)x;
    worker_lend(c->w, &c->out);
    if (c->answer_chunked)
        h1_put_chunk(&c->out, data);
    else
        buf_put(&c->out, data);
}

static void answer_end(struct client *c, struct exchange *x, const struct field *trailers, size_t n)
{
    (void)x;
    if (c->answer_chunked)
        h1_put_chunk_end(&c->out, trailers, n);
}

void client_h1_cut(struct client *c, struct exchange *x)
{
    /* No last chunk, no full length, no close_notify: the client can see that the answer is not whole. */
    client_flush(c);
    (void)x;
    if (c->state == CLIENT_DEAD)
        return;
    if (!c->stream.ssl) { /* in clear text only a reset tells a cut from an end */
        struct linger now = { 1, 0 };
        setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    c->stream.broken = true;
    c->close_after = true;
}

static void flush(struct client *c, struct exchange *x)
{
    (void)x;
    client_flush(c);
}

bool client_h1_full(struct client *c, const struct exchange *x)
{
    (void)x;
    return stream_waiting(&c->stream) || buf_size(&c->out) >= OUT_HIGH;
}

static void more(struct client *c, struct exchange *x)
{
    if (c->x != x || c->state != CLIENT_EXCHANGE)
        return;
    if (!c->body_done && !c->busy) /* its end may be all that is left to find */
        client_process(c);
    else if (!c->body_done)
        client_h1_body(c);
    if (c->state == CLIENT_EXCHANGE && !c->eof)
        client_want_bytes(c);
}

void client_h1_done(struct client *c, struct exchange *x)
{
    if (c->x != x)
        return;
    c->x = NULL;
    if (c->state == CLIENT_DEAD)
        return;
    if (c->stream.broken) {
        client_close(c, NULL, END_UNSET, NULL);
        return;
    }
    if (c->body_done || c->close_after) {
        client_next(c);
        return;
    }
    /* The rest of the body is read and thrown away, as far as that is little; a client that has no more can go on. */
    c->state = CLIENT_DRAIN;
    timer_set(c->w->loop, &c->timer, c->view->limits->drain_body_timeout);
    if (buf_size(&c->in))
        loop_defer(c->w->loop, &c->resume);
    client_want_bytes(c);
}

const struct client_ops client_h1_ops = { answer_interim, answer_head, answer_body,    answer_end, answer_refusal,
                                          client_h1_cut,  flush,       client_h1_full, more,       client_h1_done };
