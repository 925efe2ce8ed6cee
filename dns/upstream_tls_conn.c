/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL reads on through handshake messages that come without end (KeyUpdate, HelloRequest), so they are counted
 * where they pass, and too many since the last answer end the connection. Progress is a whole answer, not bytes: who
 * sends one byte at a time is silent. */
#include "dns/upstream_tls_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    IDLE_MS = 30000,
    CONNECTS_PER_S = 10, /* also to a server that closes after each answer; base/fair.h */
    NOISE_MAX = 64, /* messages of a handshake since the last answer; an honest one has about ten */
    READS_MAX = 8,  /* in one round */
};

static int conn_index = -1; /* of an SSL object's struct tls_conn */

/* --- sessions --- */

int tls_conn_init(void)
{
    if (conn_index < 0)
        conn_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    return conn_index < 0 ? -1 : 0;
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_conn *c = SSL_get_ex_data(ssl, conn_index);
    if (!c || !c->server || SSL_get_verify_result(ssl) != X509_V_OK)
        return 0;
    tls_server_forget(c->server);
    c->server->session = session;
    c->server->session_until = c->proof.until;
    return 1; /* we keep the reference */
}

void tls_conn_sessions(SSL_CTX *ctx)
{
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_new_session);
}

/* --- its end --- */

void tls_conn_retire(struct tls_conn *c)
{
    c->server = NULL;
}

void tls_conn_free(struct tls_conn *c)
{
    tls_conn_retire(c);
    watch_del(&c->watch);
    timer_clear(&c->timer);
    timer_clear(&c->turn);
    task_cancel(&c->send);
    stream_close(&c->stream);
    pipeline_done(&c->pipe);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    free(c);
}

/* Nothing is under way on it any more. It may be in one of its callbacks: what is to be done is done by its timer. */
void tls_conn_rest(struct tls_conn *c)
{
    if (c->pipe.waiting == 0 && c->state == CONN_UP)
        timer_set(c->t->loop, &c->timer, c->server ? IDLE_MS : 0);
}

void tls_conn_lost(struct tls_conn *c, bool served)
{
    struct tls_ask *first = NULL;
    for (struct pipeline_ask *p; (p = pipeline_lost(&c->pipe));) {
        struct tls_ask *a = (struct tls_ask *)p;
        a->conn = NULL;
        a->lost = first;
        first = a;
    }
    tls_conn_free(c);
    for (struct tls_ask *a = first, *next; a; a = next) {
        next = a->lost;
        if (served && !a->again)
            a->tried &= ~(1u << a->at);
        a->again = true;
        tls_ask_place(a);
    }
}

static void conn_failed(struct tls_conn *c, const char *what, const char *hint)
{
    if (c->server)
        tls_server_failed(c->t, c->server, what, hint);
    tls_conn_retire(c);
    tls_conn_lost(c, false);
}

/* The other end is gone. At rest, or after an answer, that is its right. */
static void conn_closed(struct tls_conn *c, enum io io)
{
    bool served = c->pipe.messages > 0;
    if (c->noise > NOISE_MAX)
        conn_failed(c, "it sends messages of a handshake without end", "is it a DNS server over TLS?");
    else if (io == IO_ERROR)
        conn_failed(c, stream_error(&c->stream), "what came is not TLS any more");
    else if (c->pipe.waiting == 0 || served)
        tls_conn_lost(c, served);
    else {
        /* It may be for a name that it does not want to hear (unbound closes where it would drop a question over UDP): an agent that
         * asks for one would take the server from all others. */
        if (c->state == CONN_UP && c->server)
            tls_server_complain(c->t, c->server, "it closes connections without an answer", "",
                                "is it a DNS server over TLS, and does it serve us?");
        tls_conn_lost(c, true);
    }
}

/* Every message that passes, in both directions; only OpenSSL's own can end it, through the stream. */
static void on_message(int sent, int version, int type, const void *p, size_t n, SSL *ssl, void *ctx)
{
    (void)version, (void)p, (void)n, (void)ssl;
    struct tls_conn *c = ctx;
    if (!sent && type == SSL3_RT_HANDSHAKE && ++c->noise > NOISE_MAX)
        stream_stop(&c->stream);
}

static void conn_watch(struct tls_conn *c)
{
    watch_set(&c->watch, EPOLLIN | (stream_waiting(&c->stream) ? (uint32_t)EPOLLOUT : 0));
}

/* 0, or -1: the connection is gone. */
static int conn_send(struct tls_conn *c)
{
    enum io io = stream_flush(&c->stream);
    if (io == IO_OK && buf_size(&c->pipe.out) > 0) {
        io = stream_write(&c->stream, buf_str(&c->pipe.out));
        buf_reset(&c->pipe.out);
        buf_release_if_empty(&c->pipe.out);
    }
    if (io == IO_ERROR) {
        conn_closed(c, IO_TRUNCATED);
        return -1;
    }
    conn_watch(c);
    return 0;
}

/* What has come, answer by answer. 0, or -1: the connection is gone. */
static int conn_answers(struct tls_conn *c)
{
    for (;;) {
        struct pipeline_ask *ask;
        struct str packet;
        switch (pipeline_next(&c->pipe, &ask, &packet)) {
        case PIPELINE_NONE:
            tls_conn_rest(c);
            return 0;
        case PIPELINE_ANSWER:
            c->noise = 0;
            if (c->server) {
                c->server->failures = 0;
                c->server->fault.what[0] = '\0';
            }
            tls_ask_answered((struct tls_ask *)ask, packet);
            break;
        case PIPELINE_REFUSED:
            tls_ask_refused((struct tls_ask *)ask, packet);
            break;
        case PIPELINE_LATE:
            c->t->strays++;
            break;
        case PIPELINE_BROKEN:
            conn_failed(c, "it answers what was not asked", "is it a DNS server over TLS?");
            return -1;
        }
    }
}

static void conn_read(struct tls_conn *c)
{
    for (int i = 0; i < READS_MAX; i++) {
        size_t n;
        char *p = buf_reserve(&c->pipe.in, PIPELINE_READ);
        if (!p) {
            conn_failed(c, "out of memory", "for what it answers");
            return;
        }
        enum io io = stream_read(&c->stream, p, PIPELINE_READ, &n);
        if (io == IO_AGAIN) {
            buf_release_if_empty(&c->pipe.in);
            conn_watch(c);
            return;
        }
        if (io != IO_OK) {
            conn_closed(c, io);
            return;
        }
        buf_wrote(&c->pipe.in, n);
        if (conn_answers(c) < 0)
            return;
        if (n < PIPELINE_READ && !stream_pending(&c->stream)) { /* that was all */
            conn_watch(c);
            return;
        }
    }
    timer_set(c->t->loop, &c->turn, 0); /* the rest may be in OpenSSL, where no event tells of it */
    conn_watch(c);
}

static void conn_up(struct tls_conn *c)
{
    char why[160];
    if (SSL_get_verify_result(c->stream.ssl) != X509_V_OK || c->proof.until == 0) {
        conn_failed(c, origin_trust_why(c->stream.ssl, why, sizeof why) ? why : "it did not prove who it is",
                    "see the name behind #, and origin.ca_file");
        return;
    }
    c->state = CONN_UP;
    timer_clear(&c->timer);
    tls_conn_rest(c);
    if (conn_send(c) == 0)
        conn_read(c); /* what came with the last flight */
}

static void handshake_failed(struct tls_conn *c, enum io io)
{
    char refused[160], what[240];
    const char *why = origin_trust_why(c->stream.ssl, refused, sizeof refused);
    if (why) {
        snprintf(what, sizeof what, "its certificate is not accepted: %s", why);
        conn_failed(c, what, "it must prove the name behind # to the roots of origin.ca_file");
        return;
    }
    snprintf(what, sizeof what, "the TLS handshake failed: %s",
             io == IO_ERROR ? stream_error(&c->stream) : "the connection was closed");
    conn_failed(c, what, "does a DNS server over TLS listen there?");
}

static void conn_handshake(struct tls_conn *c)
{
    enum io io = stream_handshake(&c->stream);
    if (io == IO_OK)
        conn_up(c);
    else if (io == IO_AGAIN)
        conn_watch(c);
    else
        handshake_failed(c, io);
}

/* The socket is connected: TLS begins. */
static void conn_tls(struct tls_conn *c)
{
    struct tls_server *s = c->server;
    SSL *ssl = s && c->t->trust ? SSL_new(c->t->trust) : NULL;
    int64_t now = clock_wall_us() / 1000000;
    if (!ssl || SSL_set_ex_data(ssl, conn_index, c) != 1 || origin_trust_expect(ssl, &s->name, &c->proof, now)) {
        SSL_free(ssl);
        conn_failed(c, "out of memory", "for a connection to it");
        return;
    }
    if (s->session && now <= s->session_until && SSL_SESSION_is_resumable(s->session) &&
        SSL_set_session(ssl, s->session) == 1)
        c->proof.until = s->session_until;
    tls_server_forget(s);
    SSL_set_msg_callback(ssl, on_message);
    SSL_set_msg_callback_arg(ssl, c);
    SSL_set_connect_state(ssl);
    c->state = CONN_HANDSHAKE;
    if (stream_tls(&c->stream, ssl)) {
        conn_failed(c, "out of memory", "for a connection to it");
        return;
    }
    conn_handshake(c);
}

static void on_conn_event(struct watch *w, uint32_t revents)
{
    struct tls_conn *c = (struct tls_conn *)w;
    int error = 0;
    socklen_t n = sizeof error;
    switch (c->state) {
    case CONN_CONNECTING:
        getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &n);
        if (error)
            conn_failed(c, strerror(error), "is the address right, and does it listen on that port?");
        else
            conn_tls(c);
        break;
    case CONN_HANDSHAKE:
        if (revents & EPOLLOUT && stream_flush(&c->stream) == IO_ERROR)
            handshake_failed(c, IO_TRUNCATED);
        else
            conn_handshake(c);
        break;
    case CONN_UP:
        if (!(revents & EPOLLOUT) || conn_send(c) == 0)
            conn_read(c);
        break;
    }
}

static void on_conn_timer(struct timer *t)
{
    struct tls_conn *c = (struct tls_conn *)((char *)t - offsetof(struct tls_conn, timer));
    if (c->state != CONN_UP) {
        conn_failed(
            c, c->state == CONN_CONNECTING ? "it cannot be reached in time" : "it did not finish a handshake in time",
            "is the address right, and does a DNS server over TLS listen there?");
        return;
    }
    stream_shutdown(&c->stream); /* so that the session can be resumed */
    tls_conn_free(c);
}

static void on_conn_turn(struct timer *t)
{
    conn_read((struct tls_conn *)((char *)t - offsetof(struct tls_conn, turn)));
}

static void on_conn_send(struct task *t)
{
    (void)conn_send((struct tls_conn *)((char *)t - offsetof(struct tls_conn, send)));
}

/* A socket on its way to the server. -1: errno says why not. */
static int dial(const struct tls_server *s)
{
    struct sockaddr_storage sa = { 0 };
    socklen_t n = ip_to_sockaddr(&s->ip, s->port, &sa);
    int on = 1, fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&sa, n) < 0 && errno != EINPROGRESS) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

static struct tls_conn *conn_new(struct upstream_tls *t, struct tls_server *s, size_t owner)
{
    int fd = dial(s);
    if (fd < 0) {
        tls_server_failed(t, s, strerror(errno), "is there a way to that address?");
        return NULL;
    }
    struct tls_conn *c = calloc(1, sizeof *c);
    if (c) {
        *c = (struct tls_conn) { .watch = { .fd = fd, .events = EPOLLOUT, .cb = on_conn_event },
                                 .t = t,
                                 .state = CONN_CONNECTING,
                                 .timer.cb = on_conn_timer,
                                 .send.cb = on_conn_send,
                                 .turn.cb = on_conn_turn };
        if (watch_add(t->loop, &c->watch) == 0) {
            stream_init(&c->stream, fd);
            pipeline_init(&c->pipe);
            c->server = s;
            c->owner = owner;
            c->next = t->conns;
            c->link = &t->conns;
            if (c->next)
                c->next->link = &c->next;
            t->conns = c;
            timer_set(t->loop, &c->timer, t->patience_ms);
            return c;
        }
    }
    free(c);
    close(fd);
    tls_server_failed(t, s, "out of memory or descriptors", "for a connection to it");
    return NULL;
}

struct tls_conn *tls_conn_to(struct upstream_tls *t, struct tls_server *s, size_t owner)
{
    uint64_t now = loop_now_ms(t->loop);
    for (struct tls_conn *c = t->conns; c; c = c->next)
        if (c->server == s && c->owner == owner)
            return c;
    if (!t->trust || now < s->retry_ms || !fair_rate_take(&s->connects, owner, CONNECTS_PER_S, now))
        return NULL;
    return conn_new(t, s, owner);
}
