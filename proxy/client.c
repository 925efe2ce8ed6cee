/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection itself: bytes in and out, TLS, deadlines, the end. What the bytes mean is client_h1.c. */
#include "proxy/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "proxy/client_h2.h"
#include "proxy/record.h"
#include "proxy/socks5.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { READ_BYTES = 32 * 1024, /* at least, a read */
       READ_MOST = WORKER_BLOCK - 8,
       IN_MAX = 2 * 1024 * 1024, /* more than limits.pipelined_bytes can be, and a read */
       OUT_MAX = 2 * 1024 * 1024, LINGER_READS = 16, READS_PER_ROUND = 4 };

/* --- the end --- */

static void bury(struct corpse *corpse)
{
    struct client *c = (struct client *)corpse;
    buf_done(&c->in);
    buf_done(&c->out);
    client_forget_login(c);
    client_h2_free(&c->h2);
    view_unref(&c->view);
    listener_unref(c->listener);
    free(c);
}

/* The rule that opened the tunnel, or that refuses its host. */
static struct str rule_of_tunnel(const struct client *c)
{
    const struct agent *agent = c->tunnel ? policy_agent(c->view->policy, str_c(c->agent_name)) : NULL;
    struct verdict v = { 0 };
    if (!agent)
        return STR_NONE;
    policy_eval_connect(c->view->policy, agent, &c->host, c->port, clock_wall_us(), &v);
    return v.rule ? v.rule->name : STR_NONE;
}

void client_say(struct client *c, const char *end, enum end code, const char *hint)
{
    struct record_conn r = {
        .agent = str_c(c->agent_name),
        .client = str_c(c->addr),
        .conn_id = str_c(c->conn_id),
        .host = c->tunnel ? host_str(&c->host) : STR_NONE,
        .port = c->port,
        .sni = c->tls.name_mismatch ? str_c(c->tls.sni) : STR_NONE,
        .rule = rule_of_tunnel(c),
        .verdict = code == END_UNSET && !c->refused_host ? "allow" : "deny",
        .code = code == END_UNSET && c->refused_host ? END_HOST_DENIED : code,
        .end = end,
        .hint = hint,
    };
    record_conn(c->w, &r);
}

/* Of a connection that had exchanges they tell enough. */
static void tell_log(struct client *c, const char *end, enum end code, const char *hint)
{
    if (!c->made_exchange && end)
        client_say(c, end, code, hint);
}

void client_uncount(struct client *c)
{
    if (!c->agent_state)
        return;
    c->agent_state->connections--;
    agent_let_go(c->w->agents, c->agent_state);
    c->agent_state = NULL;
}

bool client_make_room(struct worker *w)
{
    struct stranger *s = stranger_first_to_go(&w->strangers);
    if (!s)
        return false;
    struct client *c = (struct client *)((char *)s - offsetof(struct client, stranger));
    client_close(c, "timeout", END_RATE_LIMITED, "the worker was short of descriptors, and this one had waited longest without a word");
    return true;
}

void client_close(struct client *c, const char *end, enum end code, const char *hint)
{
    if (c->state == CLIENT_DEAD)
        return;
    tell_log(c, end, code, hint);
    c->state = CLIENT_DEAD;
    struct exchange *x = c->x;
    c->x = NULL;
    if (x)
        exchange_request_failed(x, END_CLIENT_CLOSED, NULL);
    if (c->h2)
        client_h2_end(c, END_CLIENT_CLOSED, NULL);
    client_uncount(c);
    stranger_del(&c->w->strangers, &c->stranger);
    task_cancel(&c->resume);
    timer_clear(&c->timer);
    client_tls_forget(c->stream.ssl, &c->tls);
    watch_closing(&c->watch);
    stream_close(&c->stream);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->w->stats.clients--;
    worker_bury(c->w, &c->corpse, bury);
}

void client_linger(struct client *c)
{
    c->state = CLIENT_LINGER;
    if (!stream_waiting(&c->stream)) {
        stream_shutdown(&c->stream);
        if (c->eof) {
            client_close(c, NULL, END_UNSET, NULL);
            return;
        }
    }
    watch_set(&c->watch, (c->eof ? 0u : EPOLLIN) | (stream_waiting(&c->stream) ? EPOLLOUT : 0u));
    client_set_deadline(c);
}

void client_leave(struct client *c, const char *end, enum end code, const char *hint)
{
    tell_log(c, end, code, hint);
    c->made_exchange = true; /* said */
    client_flush(c);
    if (c->state != CLIENT_DEAD)
        client_linger(c);
}

bool client_rest(struct client *c)
{
    if (c->rested || c->state == CLIENT_DEAD)
        return true;
    if (loop_now_ms(c->w->loop) - c->active_ms < WORKER_REST_MS)
        return false;
    stream_rest(&c->stream);
    return c->rested = true;
}

void client_drain(struct client *c)
{
    c->close_after = true;
    if (c->state == CLIENT_H2) {
        client_h2_drain(c);
        return;
    }
    bool idle = (c->state == CLIENT_PROXY || c->state == CLIENT_HEAD || c->state == CLIENT_TUNNEL || c->state == CLIENT_HELLO) && !buf_size(&c->in);
    if (!idle)
        return;
    client_leave(c, "draining", END_UNSET, "the proxy is shutting down");
}

/* --- deadlines --- */

static void wait_for(struct client *c, uint64_t ms)
{
    timer_set(c->w->loop, &c->timer, ms);
}

void client_set_deadline(struct client *c)
{
    const struct limits *lim = c->view->limits;
    switch (c->state) {
    case CLIENT_LISTENER_TLS:
    case CLIENT_TLS:
        wait_for(c, lim->handshake_timeout);
        break;
    case CLIENT_TUNNEL:
    case CLIENT_HELLO:
        wait_for(c, lim->first_byte_timeout);
        break;
    case CLIENT_PROXY:
    case CLIENT_HEAD:
        if (stream_waiting(&c->stream)) /* the answer before is not all taken */
            wait_for(c, lim->write_timeout);
        else if (c->w->draining && !c->head_begun) /* e.g. a handshake that ended after the drain began */
            wait_for(c, lim->drain_body_timeout);
        else
            wait_for(c, c->head_begun ? lim->head_timeout : c->agent_state && (c->made_exchange || c->tunnel) ? lim->keepalive_timeout : lim->first_byte_timeout);
        break;
    case CLIENT_EXCHANGE:
    case CLIENT_RELAY:
        /* The exchange has its own deadlines; ours is for a client that does not take what we have for it. */
        if (stream_waiting(&c->stream))
            wait_for(c, lim->write_timeout);
        else
            timer_clear(&c->timer);
        break;
    case CLIENT_H2:
        client_h2_deadline(c, false);
        break;
    case CLIENT_DRAIN:
    case CLIENT_LINGER: /* the end of an answer is given as much time as its middle */
        wait_for(c, stream_waiting(&c->stream) ? lim->write_timeout : lim->drain_body_timeout);
        break;
    case CLIENT_DEAD:
        break;
    }
}

static void on_timer(struct timer *t)
{
    struct client *c = (struct client *)((char *)t - offsetof(struct client, timer));
    if ((c->state == CLIENT_EXCHANGE || c->state == CLIENT_RELAY) && c->x) {
        struct exchange *x = c->x;
        c->x = NULL;
        exchange_request_failed(x, END_TIMEOUT, "the client took nothing of the answer for too long");
        client_close(c, NULL, END_UNSET, NULL);
        return;
    }
    if (c->state == CLIENT_H2) {
        client_h2_timeout(c);
        return;
    }
    bool quiet = c->state == CLIENT_LINGER || c->state == CLIENT_DRAIN || c->made_exchange;
    if (c->state == CLIENT_TUNNEL && !quiet && !c->w->draining)
        client_tunnel_silent(c);
    else
        client_close(c, quiet ? NULL : c->w->draining ? "draining" : "timeout", END_UNSET, NULL);
}

/* --- bytes out --- */

void client_flush(struct client *c)
{
    if (c->state == CLIENT_DEAD || !buf_size(&c->out))
        return;
    if (c->out.failed) {
        client_close(c, "client_closed", END_UNSET, NULL);
        return;
    }
    c->active_ms = loop_now_ms(c->w->loop);
    c->rested = false;
    worker_active(c->w);
    enum io io = stream_write(&c->stream, buf_str(&c->out));
    buf_reset(&c->out);
    if (io == IO_ERROR) {
        client_close(c, "client_closed", END_UNSET, NULL);
        return;
    }
    worker_take_back(c->w, &c->out);
    if (io == IO_AGAIN) {
        watch_set(&c->watch, c->watch.events | EPOLLOUT);
        client_set_deadline(c);
    }
}

static void on_writable(struct client *c)
{
    enum io io = stream_flush(&c->stream);
    if (io == IO_ERROR) {
        client_close(c, "client_closed", END_UNSET, NULL);
        return;
    }
    if (c->state == CLIENT_H2)
        client_h2_deadline(c, true);
    else
        client_set_deadline(c);
    if (io == IO_AGAIN)
        return;
    watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLOUT);
    if (c->state == CLIENT_LINGER)
        client_linger(c);
    else if (c->state == CLIENT_H2)
        client_h2_output(c);
    else if (c->state == CLIENT_RELAY)
        client_relay_room(c);
    else if (c->x)
        exchange_client_room(c->x);
    else if (c->state == CLIENT_HEAD || c->state == CLIENT_PROXY)
        client_process(c);
}

/* --- TLS --- */

static const char untrusted_hint[] = "the sandbox does not trust Outgate's CA: set the variables that `outgate env` prints (for this client its own CA "
                                     "variable), or install the certificate with the system's tools";

static void tls_failed(struct client *c, enum io io)
{
    if (c->tls.name_mismatch) {
        client_close(c, "sni_mismatch", END_MISDIRECTED,
                     c->tunnel ? "the TLS server name must be the host of the CONNECT"
                               : "the client knows the proxy by a name that is not under listen.names");
        return;
    }
    if (c->tls.no_leaf) {
        client_close(c, "client_closed", END_UNSET, "no certificate could be made: the ca role is away or its limit is reached");
        return;
    }
    int r = c->stream.reason - SSL_AD_REASON_OFFSET;
    bool untrusted = io == IO_ERROR && c->stream.alert &&
                     (r == SSL_AD_UNKNOWN_CA || r == SSL_AD_CERTIFICATE_UNKNOWN || r == SSL_AD_BAD_CERTIFICATE ||
                      r == SSL_AD_UNSUPPORTED_CERTIFICATE);
    if (untrusted)
        client_close(c, "tls_untrusted_ca", END_UNSET, untrusted_hint);
    else if (io == IO_ERROR)
        client_close(c, "protocol_denied", END_PROTOCOL_DENIED, stream_error(&c->stream));
    else
        client_close(c, "client_closed", END_UNSET, "the client ended the TLS handshake; if it is Node, it may not trust Outgate's CA");
}

static void on_readable(struct client *c);
static bool wants_bytes(const struct client *c);

static void on_resume_task(struct task *t)
{
    struct client *c = (struct client *)((char *)t - offsetof(struct client, resume));
    client_process(c);
    if (c->state != CLIENT_DEAD && stream_pending(&c->stream) && (wants_bytes(c) || c->state == CLIENT_LINGER))
        on_readable(c);
}

/* Reading goes on: also of what the TLS layer has read already, for which the socket will not become readable again. */
void client_want_bytes(struct client *c)
{
    if (!c->watch.loop) { /* it had been taken out, while there was no room for what it said last */
        c->watch.events = EPOLLIN;
        if (watch_add(c->w->loop, &c->watch))
            client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    watch_set(&c->watch, c->watch.events | EPOLLIN);
    if (stream_pending(&c->stream))
        loop_defer(c->w->loop, &c->resume);
}

/* A leaf came for a handshake that waited. */
static void on_leaf(void *ctx)
{
    struct client *c = ctx;
    loop_defer(c->w->loop, &c->resume);
}

static void address_reached(const struct client *c, struct host *ret)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    struct ip ip;
    uint16_t port;
    char text[46];
    if (getsockname(c->stream.fd, (struct sockaddr *)&sa, &n) == 0 && ip_from_sockaddr(&sa, &ip, &port) == 0)
        (void)host_parse(str_c(ip_format(&ip, text)), ret, NULL);
}

int client_start_tls(struct client *c, enum client_state state)
{
    c->state = state;
    c->tls = (struct client_tls_job) {
        .host = state == CLIENT_TLS ? &c->host : NULL,
        .agent = str_c(c->agent_name),
        .config = c->view->config,
        .refusal = c->refused_host,
        .resume = on_leaf,
        .ctx = c,
    };
    if (state == CLIENT_LISTENER_TLS)
        address_reached(c, &c->tls.reached);
    client_set_deadline(c);
    SSL *ssl = client_tls_start(c->w->tls, &c->tls);
    if (!ssl)
        return -1;
    if (stream_tls(&c->stream, ssl))
        return -1;
    if (buf_size(&c->in)) {
        if (stream_prefix(&c->stream, buf_str(&c->in)))
            return -1;
        buf_done(&c->in);
    }
    return 0;
}

static void step_tls(struct client *c)
{
    enum io io = stream_handshake(&c->stream);
    if (io == IO_PAUSED) {
        watch_set(&c->watch, 0); /* nothing to read until the leaf is there */
        return;
    }
    if (!c->tls.hello && BIO_number_read(SSL_get_rbio(c->stream.ssl)) > c->view->limits->hello_bytes) {
        client_close(c, "protocol_denied", END_PROTOCOL_DENIED, "the ClientHello is over limits.hello_bytes");
        return;
    }
    if (io == IO_AGAIN) {
        watch_set(&c->watch, EPOLLIN | (stream_waiting(&c->stream) ? EPOLLOUT : 0u));
        return;
    }
    if (io != IO_OK) {
        tls_failed(c, io);
        return;
    }
    c->scheme = SCHEME_HTTPS;
    bool h2 = client_tls_h2(c->stream.ssl);
    c->state = c->state == CLIENT_TLS ? CLIENT_HEAD : CLIENT_PROXY;
    if (h2 && client_h2_start(c)) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    watch_set(&c->watch, EPOLLIN | (stream_waiting(&c->stream) ? EPOLLOUT : 0u));
    client_set_deadline(c);
}

/* --- bytes in --- */

/* IO_OK: something was added to `in`. */
static enum io read_some(struct client *c)
{
    size_t n;
    worker_lend(c->w, &c->in);
    char *p = buf_reserve(&c->in, READ_BYTES);
    size_t room = p ? c->in.cap - c->in.tail : 0;
    if (room > READ_MOST) /* fits a block also with a chunk's framing around it, on its way to the origin */
        room = READ_MOST;
    enum io io = p ? stream_read(&c->stream, p, room, &n) : IO_ERROR;
    if (io == IO_OK)
        buf_wrote(&c->in, n);
    return io;
}

static bool wants_bytes(const struct client *c)
{
    switch (c->state) {
    case CLIENT_PROXY:
    case CLIENT_HEAD:
    case CLIENT_TUNNEL:
    case CLIENT_HELLO:
    case CLIENT_DRAIN:
    case CLIENT_H2:
        return !c->eof;
    case CLIENT_RELAY:
        return !c->eof && exchange_takes_body(c->x);
    case CLIENT_EXCHANGE:
        return !c->eof && (c->body_done ? buf_size(&c->in) < c->view->limits->pipelined_bytes : exchange_takes_body(c->x));
    case CLIENT_LISTENER_TLS:
    case CLIENT_TLS:
    case CLIENT_LINGER:
    case CLIENT_DEAD:
        break;
    }
    return false;
}

static void on_eof(struct client *c, enum io io)
{
    c->eof = true;
    watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLIN);
    if (c->state == CLIENT_EXCHANGE && c->body_done && io == IO_EOF)
        return; /* half closed: it still waits for its answer */
    if (c->state == CLIENT_RELAY && io == IO_EOF) { /* each way of a tunnel ends for itself */
        client_relay_bytes(c);
        return;
    }
    if (c->state == CLIENT_EXCHANGE && c->body.kind == H1_BODY_UNTIL_CLOSE && io == IO_EOF) { /* which is how that body ends */
        client_process(c);
        return;
    }
    bool answered = c->state == CLIENT_HEAD || c->state == CLIENT_PROXY || c->state == CLIENT_DRAIN;
    if (answered && io == IO_EOF && stream_waiting(&c->stream)) { /* or for the rest of it */
        client_linger(c);
        return;
    }
    if (c->state == CLIENT_EXCHANGE || c->state == CLIENT_RELAY) {
        struct exchange *x = c->x;
        c->x = NULL;
        if (x)
            exchange_request_failed(x, END_CLIENT_CLOSED, c->body_done ? NULL : "the client went away in mid request");
        client_close(c, NULL, END_UNSET, NULL);
        return;
    }
    bool quiet = c->state == CLIENT_DRAIN || c->state == CLIENT_LINGER || c->state == CLIENT_H2;
    client_close(c, quiet ? NULL : "client_closed", END_UNSET, c->tunnel && !c->made_exchange ? "the tunnel was opened and left without a request" : NULL);
}

static void read_linger(struct client *c)
{
    char waste[4096];
    size_t n;
    for (int i = 0; i < LINGER_READS; i++) {
        enum io io = stream_read(&c->stream, waste, sizeof waste, &n);
        if (io == IO_AGAIN)
            return;
        if (io != IO_OK) {
            c->eof = true; /* and still waits for the rest of its answer, unless the connection broke */
            if (io == IO_EOF && stream_waiting(&c->stream))
                watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLIN);
            else
                client_close(c, NULL, END_UNSET, NULL);
            return;
        }
        c->drained += n;
        if (c->drained > c->view->limits->drain_body_bytes) { /* no more; but a reset now could cost it the answer */
            watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLIN);
            return;
        }
    }
    if (stream_pending(&c->stream)) /* for which the socket will not become readable again */
        loop_defer(c->w->loop, &c->resume);
}

static void on_readable(struct client *c)
{
    for (int i = 0; i < READS_PER_ROUND; i++) {
        if (c->state == CLIENT_LISTENER_TLS || c->state == CLIENT_TLS) {
            client_process(c);
            if (c->state == CLIENT_LISTENER_TLS || c->state == CLIENT_TLS || !stream_pending(&c->stream))
                return;
            continue;
        }
        if (c->state == CLIENT_LINGER) {
            read_linger(c);
            return;
        }
        if (!wants_bytes(c)) {
            if (c->state != CLIENT_DEAD)
                watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLIN);
            return;
        }
        enum io io = read_some(c);
        if (io == IO_AGAIN)
            return;
        if (io != IO_OK) {
            on_eof(c, io);
            return;
        }
        client_process(c);
        if (c->state == CLIENT_DEAD || !stream_pending(&c->stream))
            return;
    }
    loop_defer(c->w->loop, &c->resume); /* there is more, but others wait too */
}

static void on_event(struct watch *w, uint32_t ev)
{
    struct client *c = (struct client *)((char *)w - offsetof(struct client, watch));
    c->active_ms = loop_now_ms(c->w->loop);
    c->rested = false;
    worker_active(c->w);
    /* What came before the end is read first: an alert that says why, for one. */
    bool reads = wants_bytes(c) || c->state == CLIENT_TLS || c->state == CLIENT_LISTENER_TLS;
    if (c->state == CLIENT_RELAY && ev & EPOLLHUP && !(ev & EPOLLERR) && !(ev & EPOLLIN && reads)) {
        watch_del(&c->watch); /* both sides have ended; what it said before is read and delivered as there is room */
        c->watch.events = 0;
        return;
    }
    if (ev & (EPOLLHUP | EPOLLERR) && !(ev & EPOLLIN && reads)) {
        bool quiet = c->state == CLIENT_LINGER || c->state == CLIENT_DRAIN || c->made_exchange;
        client_close(c, quiet ? NULL : "client_closed", END_UNSET, NULL);
        return;
    }
    if (ev & EPOLLOUT) {
        if (c->state == CLIENT_TLS || c->state == CLIENT_LISTENER_TLS) {
            if (stream_flush(&c->stream) == IO_OK)
                watch_set(&c->watch, EPOLLIN);
        } else {
            on_writable(c);
        }
    }
    if (c->state != CLIENT_DEAD && ev & EPOLLIN)
        on_readable(c);
}

/* --- the machine --- */

static bool process_once(struct client *c)
{
    switch (c->state) {
    case CLIENT_LISTENER_TLS:
    case CLIENT_TLS:
        step_tls(c);
        return c->state != CLIENT_TLS && c->state != CLIENT_LISTENER_TLS && c->state != CLIENT_DEAD && buf_size(&c->in);
    case CLIENT_TUNNEL:
        if (!buf_size(&c->in))
            return false;
        return client_tunnel_begin(c) && c->state != CLIENT_DEAD;
    case CLIENT_HELLO:
        return client_relay_hello(c);
    case CLIENT_RELAY:
        client_relay_bytes(c);
        return false;
    case CLIENT_PROXY:
    case CLIENT_HEAD:
        if (!buf_size(&c->in) || stream_waiting(&c->stream)) /* an answer still waits: no new work from a slow reader */
            return false;
        if (c->socks || (c->state == CLIENT_PROXY && !c->made_exchange && buf_str(&c->in).p[0] == SOCKS5_VERSION))
            return client_socks(c);
        return client_h1_head(c);
    case CLIENT_EXCHANGE:
        if (!c->body_done && exchange_takes_body(c->x)) {
            client_h1_body(c);
            return false;
        }
        return false;
    case CLIENT_H2:
        client_h2_input(c);
        return false;
    case CLIENT_DRAIN:
        client_h1_body(c);
        return c->state == CLIENT_HEAD || c->state == CLIENT_PROXY;
    case CLIENT_LINGER:
    case CLIENT_DEAD:
        break;
    }
    return false;
}

void client_process(struct client *c)
{
    if (c->busy)
        return;
    c->busy = true;
    while (c->state != CLIENT_DEAD && process_once(c))
        ;
    c->busy = false;
    if (c->state == CLIENT_DEAD)
        return;
    client_flush(c);
    if (c->state == CLIENT_DEAD)
        return;
    worker_take_back(c->w, &c->in);
    if (wants_bytes(c) && !(c->watch.events & EPOLLIN))
        client_want_bytes(c);
}

void client_next(struct client *c)
{
    c->head_begun = false;
    c->head_from = 0;
    if (c->close_after || c->w->draining) {
        client_flush(c);
        if (c->state != CLIENT_DEAD)
            client_linger(c);
        return;
    }
    c->state = c->tunnel ? CLIENT_HEAD : CLIENT_PROXY;
    client_set_deadline(c);
    if (c->eof && !buf_size(&c->in)) {
        client_flush(c);
        if (c->state != CLIENT_DEAD)
            client_linger(c);
        return;
    }
    if (buf_size(&c->in)) /* the next request is there already: on a fresh stack */
        loop_defer(c->w->loop, &c->resume);
    else if (!c->eof)
        client_want_bytes(c);
}

/* --- the beginning --- */

static void read_peer(struct client *c, const struct sockaddr_storage *from)
{
    char text[46];
    if (c->listener->kind == LISTENER_UNIX) {
        struct ucred cred;
        socklen_t n = sizeof cred;
        if (getsockopt(c->stream.fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0) {
            c->has_uid = true;
            c->uid = cred.uid;
            snprintf(c->addr, sizeof c->addr, "unix:uid=%u", (unsigned)cred.uid);
        }
        return;
    }
    if (ip_from_sockaddr(from, &c->source, &c->source_port) == 0)
        snprintf(c->addr, sizeof c->addr, "%s", ip_format(&c->source, text));
}

void client_new(struct worker *w, struct listener *l, int fd, const struct sockaddr_storage *from)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        struct stream lost;
        stream_init(&lost, fd);
        stream_close(&lost);
        return;
    }
    c->w = w;
    c->listener = l;
    l->refs++;
    c->view = view_ref(w->view);
    stream_init(&c->stream, fd);
    buf_init(&c->in, IN_MAX);
    buf_init(&c->out, OUT_MAX);
    event_id_new(c->conn_id);
    c->timer.cb = on_timer;
    c->resume.cb = on_resume_task;
    c->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_event };
    c->next = w->clients;
    c->link = &w->clients;
    if (c->next)
        c->next->link = &c->next;
    w->clients = c;
    w->stats.clients++;
    read_peer(c, from);
    stranger_add(&w->strangers, &c->stranger, &c->source, c->uid);
    c->state = CLIENT_PROXY;
    c->active_ms = loop_now_ms(w->loop);
    worker_active(w);
    if (watch_add(w->loop, &c->watch) || (l->kind == LISTENER_TLS && client_start_tls(c, CLIENT_LISTENER_TLS))) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    client_set_deadline(c);
}
