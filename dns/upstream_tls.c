/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection (struct tls_conn) holds the questions that are under way on it; a question (struct tls_ask) holds which
 * server of its step it is at. Whatever happens to either ends in ask_place: the next server that takes it, or the end
 * of the leg. Nothing here calls the front: a leg's end is a task.
 *
 * OpenSSL reads on through handshake messages that come without end (KeyUpdate, HelloRequest), so they are counted
 * where they pass, and too many since the last answer end the connection. Progress is a whole answer, not bytes: who
 * sends one byte at a time is silent. */
#include "dns/upstream_tls.h"

#include "base/bucket.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stream.h"
#include "dns/pipeline.h"
#include "policy/origin_trust.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PATIENCE = 3,
    IDLE_MS = 30000,
    BACK_OFF_MIN_MS = 1000,
    BACK_OFF_MAX_MS = 30000,
    CONNECTS_BURST = 20, /* also to a server that closes after each answer */
    CONNECTS_PER_S = 10,
    NOISE_MAX = 64, /* messages of a handshake since the last answer; an honest one has about ten */
    READS_MAX = 8,  /* in one round */
    PROMOTED_MS = 30000,
    SAY_MS = 60000, /* between two lines about one server */
    TEXT_MAX = 340, /* "tls://[V6]:PORT#NAME" */
};

struct tls_conn;
struct tls_server {
    size_t step;
    struct ip ip;
    uint16_t port;
    struct host name;
    struct tls_conn *conn; /* that takes questions */
    SSL_SESSION *session;  /* for the next connection, which uses it up */
    int64_t session_until; /* when a certificate of the chain that was verified ends, seconds since 1970 */
    unsigned failures;     /* in a row */
    uint64_t retry_ms;     /* not connected to before */
    uint64_t say_ms;       /* not complained about before */
    uint64_t first_ms;     /* asked first until then: it answered where another was silent */
    struct bucket connects;
};

enum conn_state { CONN_CONNECTING = 1, CONN_HANDSHAKE, CONN_UP };
struct tls_conn {
    struct watch watch;
    struct upstream_tls *t;
    struct tls_server *server; /* NULL: takes no questions any more */
    struct tls_conn *next, **link;
    enum conn_state state;
    struct stream stream;
    struct origin_proof proof;
    struct pipeline pipe;
    unsigned noise;
    struct timer timer; /* until it must be ready; at rest: until it is closed */
    struct task send;   /* what was put */
    struct timer turn;  /* what OpenSSL holds is read */
};

struct tls_ask {
    struct pipeline_ask ask;
    struct upstream_tls *t;
    struct upstream_leg *leg;
    struct tls_conn *conn; /* NULL: between two */
    size_t at;             /* the server, by its place in the list … */
    uint64_t generation;   /* … of that generation */
    unsigned tried;        /* a bit for each place */
    uint64_t messages;     /* how many had come on the connection when it was put there */
    bool again;            /* was asked once more after a loss */
    bool timed_out;
    struct timer timer;
    struct tls_ask *lost; /* the next of those that lost their connection */
};

struct upstream_tls {
    struct loop *loop;
    unsigned patience_ms;
    SSL_CTX *trust;
    struct tls_server servers[DNS_SERVERS_MAX];
    size_t n;
    uint64_t generation;
    struct tls_conn *conns;
    uint64_t strays;
};

static int conn_index = -1; /* of an SSL object's struct tls_conn */

static void ask_place(struct tls_ask *a);

/* --- what the operator is told --- */

static const char *server_text(const struct tls_server *s, char out[TEXT_MAX])
{
    char ip[46];
    bool v6 = s->ip.family == 6;
    snprintf(out, TEXT_MAX, "tls://%s%s%s:%u#%s", v6 ? "[" : "", ip_format(&s->ip, ip), v6 ? "]" : "", s->port,
             s->name.name);
    return out;
}

static void complain(struct upstream_tls *t, struct tls_server *s, const char *what, const char *so, const char *hint)
{
    char text[TEXT_MAX];
    if (loop_now_ms(t->loop) < s->say_ms)
        return;
    s->say_ms = loop_now_ms(t->loop) + SAY_MS;
    log_error("DNS server %s: %s%s (%s)", server_text(s, text), what, so, hint);
}

/* --- servers --- */

static void server_failed(struct upstream_tls *t, struct tls_server *s, const char *what, const char *hint)
{
    uint64_t wait = BACK_OFF_MIN_MS;
    for (unsigned i = 0; i < s->failures && wait < BACK_OFF_MAX_MS; i++)
        wait *= 2;
    s->failures++;
    s->retry_ms = loop_now_ms(t->loop) + (wait < BACK_OFF_MAX_MS ? wait : BACK_OFF_MAX_MS);
    complain(t, s, what, ": no name is asked there", hint);
}

static void session_drop(struct tls_server *s)
{
    SSL_SESSION_free(s->session);
    s->session = NULL;
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_conn *c = SSL_get_ex_data(ssl, conn_index);
    if (!c || !c->server || SSL_get_verify_result(ssl) != X509_V_OK)
        return 0;
    session_drop(c->server);
    c->server->session = session;
    c->server->session_until = c->proof.until;
    return 1; /* we keep the reference */
}

/* --- a connection --- */

static void conn_retire(struct tls_conn *c)
{
    if (c->server)
        c->server->conn = NULL;
    c->server = NULL;
}

static void conn_free(struct tls_conn *c)
{
    conn_retire(c);
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
static void conn_rest(struct tls_conn *c)
{
    if (c->pipe.waiting == 0 && c->state == CONN_UP)
        timer_set(c->t->loop, &c->timer, c->server ? IDLE_MS : 0);
}

/* Frees the connection; its questions are asked elsewhere. served: it had answered, so they may be asked there again.
 */
static void conn_lost(struct tls_conn *c, bool served)
{
    struct tls_ask *first = NULL;
    for (struct pipeline_ask *p; (p = pipeline_lost(&c->pipe));) {
        struct tls_ask *a = (struct tls_ask *)p;
        a->conn = NULL;
        a->lost = first;
        first = a;
    }
    conn_free(c);
    for (struct tls_ask *a = first, *next; a; a = next) {
        next = a->lost;
        if (served && !a->again)
            a->tried &= ~(1u << a->at);
        a->again = true;
        ask_place(a);
    }
}

static void conn_failed(struct tls_conn *c, const char *what, const char *hint)
{
    if (c->server)
        server_failed(c->t, c->server, what, hint);
    conn_retire(c);
    conn_lost(c, false);
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
        conn_lost(c, served);
    else
        conn_failed(c, "it closes connections without an answer", "is it a DNS server over TLS, and does it serve us?");
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

/* It was answered where another server of its step had been silent: there comes nobody before that one for a while. */
static void ask_promote(const struct tls_ask *a)
{
    struct upstream_tls *t = a->t;
    if (!a->timed_out || a->generation != t->generation)
        return;
    for (size_t i = 0; i < t->n; i++)
        if (t->servers[i].step == a->leg->step)
            t->servers[i].first_ms = i == a->at ? loop_now_ms(t->loop) + PROMOTED_MS : 0;
}

static void ask_answered(struct tls_ask *a, struct str packet)
{
    struct upstream_leg *leg = a->leg;
    struct wire_answer *w = malloc(sizeof *w); /* upstream_leg_judge writes what is used */
    a->conn = NULL;
    timer_clear(&a->timer);
    if (w && !wire_truncated(packet) && upstream_leg_judge(leg, packet, w)) {
        ask_promote(a);
        leg->carrier = NULL;
        upstream_leg_answer(leg, a->t->loop, w);
        free(a);
        return;
    }
    leg->bad |= wire_truncated(packet);
    free(w);
    ask_place(a);
}

/* The server says no without repeating the question. */
static void ask_refused(struct tls_ask *a, struct str packet)
{
    a->conn = NULL;
    timer_clear(&a->timer);
    a->leg->rcode = packet.p[3] & 15;
    ask_place(a);
}

/* What has come, answer by answer. 0, or -1: the connection is gone. */
static int conn_answers(struct tls_conn *c)
{
    for (;;) {
        struct pipeline_ask *ask;
        struct str packet;
        switch (pipeline_next(&c->pipe, &ask, &packet)) {
        case PIPELINE_NONE:
            conn_rest(c);
            return 0;
        case PIPELINE_ANSWER:
            c->noise = 0;
            if (c->server)
                c->server->failures = 0;
            ask_answered((struct tls_ask *)ask, packet);
            break;
        case PIPELINE_REFUSED:
            ask_refused((struct tls_ask *)ask, packet);
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
    conn_rest(c);
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
    session_drop(s);
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
    conn_free(c);
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

static struct tls_conn *conn_new(struct upstream_tls *t, struct tls_server *s)
{
    int fd = dial(s);
    if (fd < 0) {
        server_failed(t, s, strerror(errno), "is there a way to that address?");
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
            s->conn = c;
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
    server_failed(t, s, "out of memory or descriptors", "for a connection to it");
    return NULL;
}

/* One that takes a question now, or NULL. */
static struct tls_conn *conn_to(struct upstream_tls *t, struct tls_server *s)
{
    uint64_t now = loop_now_ms(t->loop);
    if (s->conn)
        return s->conn;
    if (!t->trust || now < s->retry_ms || !bucket_take(&s->connects, CONNECTS_BURST, CONNECTS_PER_S, now))
        return NULL;
    return conn_new(t, s);
}

/* --- a question --- */

static void ask_end(struct tls_ask *a)
{
    struct upstream_leg *leg = a->leg;
    leg->carrier = NULL;
    upstream_leg_end(leg, a->t->loop, a->timed_out ? UPSTREAM_TIMEOUT : UPSTREAM_UNREACHABLE);
    timer_clear(&a->timer);
    free(a);
}

/* The server of its step that is to be asked next; -1: all were. */
static int ask_next(const struct tls_ask *a)
{
    const struct upstream_tls *t = a->t;
    int next = -1;
    if (a->generation != t->generation)
        return -1;
    for (size_t i = 0; i < t->n; i++) {
        if (t->servers[i].step != a->leg->step || a->tried >> i & 1)
            continue;
        if (t->servers[i].first_ms > loop_now_ms(t->loop))
            return (int)i;
        next = next < 0 ? (int)i : next;
    }
    return next;
}

/* To the next server of its step that takes it; or its end. */
static void ask_place(struct tls_ask *a)
{
    struct upstream_tls *t = a->t;
    MUST(!a->conn);
    for (int at; (at = ask_next(a)) >= 0;) {
        a->at = (size_t)at;
        a->tried |= 1u << at;
        struct tls_conn *c = conn_to(t, &t->servers[a->at]);
        if (!c || pipeline_put(&c->pipe, &a->ask) < 0)
            continue;
        a->conn = c;
        a->messages = c->pipe.messages;
        timer_set(t->loop, &a->timer, t->patience_ms);
        if (c->state == CONN_UP) {
            timer_clear(&c->timer);
            loop_defer(t->loop, &c->send); /* with the others that are put now */
        }
        return;
    }
    ask_end(a);
}

/* A name may be one that no server can look up in time: that its question is not answered is held against the
 * connection, which may be dead, and not against the server. */
static void on_ask_timer(struct timer *timer)
{
    struct tls_ask *a = (struct tls_ask *)((char *)timer - offsetof(struct tls_ask, timer));
    struct tls_conn *c = a->conn;
    a->timed_out = true;
    pipeline_remove(&c->pipe, &a->ask);
    a->conn = NULL;
    if (c->server && c->state == CONN_UP && c->pipe.messages == a->messages) {
        if (c->pipe.messages == 0)
            complain(a->t, c->server, "it takes a question and does not answer", "", "does it serve us?");
        conn_retire(c);
    }
    conn_rest(c);
    ask_place(a);
}

void upstream_tls_start(struct upstream_tls *t, struct upstream_leg *leg)
{
    struct tls_ask *a = calloc(1, sizeof *a);
    if (!a) {
        upstream_leg_end(leg, t->loop, UPSTREAM_UNREACHABLE);
        return;
    }
    a->ask.wire = &leg->wire;
    a->t = t;
    a->leg = leg;
    a->generation = t->generation;
    a->timer.cb = on_ask_timer;
    leg->carrier = a;
    ask_place(a);
}

void upstream_tls_leave(struct upstream_leg *leg)
{
    struct tls_ask *a = leg->carrier;
    leg->under_way = false;
    leg->carrier = NULL;
    if (!a)
        return;
    if (a->conn) {
        pipeline_remove(&a->conn->pipe, &a->ask);
        conn_rest(a->conn);
    }
    timer_clear(&a->timer);
    free(a);
}

/* --- the whole --- */

struct upstream_tls *upstream_tls_new(struct loop *l, unsigned try_ms)
{
    struct upstream_tls *t = calloc(1, sizeof *t);
    if (conn_index < 0)
        conn_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    if (!t || conn_index < 0) {
        free(t);
        return NULL;
    }
    t->loop = l;
    t->patience_ms = PATIENCE * try_ms;
    return t;
}

/* Connections take no new question; those without any are closed. */
static void retire_all(struct upstream_tls *t)
{
    for (struct tls_conn *c = t->conns, *next; c; c = next) {
        next = c->next;
        conn_retire(c);
        if (c->pipe.waiting == 0)
            conn_free(c);
    }
    for (size_t i = 0; i < t->n; i++)
        session_drop(&t->servers[i]);
}

/* What waits for a connection that was retired before it was ready waits for another. */
static void replace_unready(struct upstream_tls *t)
{
    for (struct tls_conn *c = t->conns, *next; c; c = next) {
        next = c->next;
        if (!c->server && c->state != CONN_UP)
            conn_lost(c, true);
    }
}

void upstream_tls_free(struct upstream_tls **tp)
{
    struct upstream_tls *t = *tp;
    *tp = NULL;
    if (!t)
        return;
    retire_all(t);
    MUST(!t->conns);
    SSL_CTX_free(t->trust);
    free(t);
}

void upstream_tls_trust(struct upstream_tls *t, SSL_CTX *ctx)
{
    retire_all(t);
    SSL_CTX_free(t->trust);
    t->trust = ctx;
    if (ctx) {
        SSL_CTX_up_ref(ctx);
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, on_new_session);
    }
    for (size_t i = 0; i < t->n; i++) {
        t->servers[i].failures = 0;
        t->servers[i].retry_ms = t->servers[i].say_ms = 0;
    }
    replace_unready(t);
}

void upstream_tls_clear(struct upstream_tls *t)
{
    retire_all(t);
    t->n = 0;
    t->generation++;
    replace_unready(t);
}

void upstream_tls_set(struct upstream_tls *t, size_t step, const struct dns_server *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        MUST(t->n < DNS_SERVERS_MAX && v[i].tls);
        t->servers[t->n++] = (struct tls_server) { .step = step, .ip = v[i].ip, .port = v[i].port, .name = *v[i].tls };
    }
}

uint64_t upstream_tls_strays(const struct upstream_tls *t)
{
    return t->strays;
}
