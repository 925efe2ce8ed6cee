/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP connection to the DNS port: u16 length and message, both ways. What it holds is bounded: one question that is
 * not whole yet, limits.dns_pipelined questions that wait, and answers up to OUT_FULL before it is read from no more.
 * Time runs by whole questions and by answers taken, not by bytes, so that dripping does not keep it open. */
#include "dns/dns_port_impl.h"

#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { ACCEPTS_PER_ROUND = 64, PAUSE_MS = 100, OUT_FULL = 16384, READ_BYTES = 8192 };

/* --- the table --- */

static void use_unlink(struct dns_stream *s)
{
    struct dns_port *p = s->listener->port;
    *(s->newer ? &s->newer->older : &p->newest) = s->older;
    *(s->older ? &s->older->newer : &p->oldest) = s->newer;
}

static void use_link(struct dns_stream *s)
{
    struct dns_port *p = s->listener->port;
    s->newer = NULL;
    s->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = s;
    p->newest = s;
}

static void stream_free(struct dns_stream *s)
{
    struct dns_port *p = s->listener->port;
    struct dns_stream **at = &p->streams[s->number & (STREAM_SLOTS - 1)];
    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    use_unlink(s);
    p->nstreams--;
    timer_clear(&s->idle);
    task_cancel(&s->closing);
    watch_closing(&s->watch);
    close(s->watch.fd);
    buf_done(&s->in);
    buf_done(&s->out);
    free(s);
}

struct dns_stream *dns_stream_find(struct dns_port *p, uint64_t number)
{
    struct dns_stream *s = p->streams[number & (STREAM_SLOTS - 1)];
    while (s && s->number != number)
        s = s->chain;
    return s;
}

void dns_streams_drop(struct dns_port *p, const struct dns_listener *of)
{
    for (struct dns_stream *s = p->oldest, *next; s; s = next) {
        next = s->newer;
        if (!of || s->listener == of)
            stream_free(s);
    }
}

static void on_closing(struct task *t)
{
    stream_free((struct dns_stream *)((char *)t - offsetof(struct dns_stream, closing)));
}

/* Not at once: callers still hold it. */
static void end(struct dns_stream *s)
{
    watch_set(&s->watch, 0);
    loop_defer(s->listener->port->loop, &s->closing);
}

static bool ending(const struct dns_stream *s)
{
    return s->closing.loop != NULL;
}

static void used(struct dns_stream *s)
{
    struct dns_port *p = s->listener->port;
    timer_set(p->loop, &s->idle, p->idle_ms);
    use_unlink(s);
    use_link(s);
}

static void on_idle(struct timer *t)
{
    struct dns_stream *s = (struct dns_stream *)((char *)t - offsetof(struct dns_stream, idle));
    if (s->waiting && !buf_size(&s->out))
        used(s);
    else
        end(s);
}

/* --- answers --- */

static void put_answer(struct dns_stream *s, const unsigned char *bytes, size_t n)
{
    const unsigned char length[2] = { (unsigned char)(n >> 8), (unsigned char)n };
    if (n == 0)
        return;
    buf_put(&s->out, str_of(length, 2));
    buf_put(&s->out, str_of(bytes, n));
}

/* For one more question. */
static bool has_room(const struct dns_stream *s)
{
    return s->waiting < s->listener->port->pipelined && buf_size(&s->out) < OUT_FULL;
}

static bool may_read(const struct dns_stream *s)
{
    return !s->ended && has_room(s);
}

static void flush(struct dns_stream *s)
{
    while (buf_size(&s->out) > 0) {
        struct str out = buf_str(&s->out);
        ssize_t n = send(s->watch.fd, out.p, out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            end(s);
            return;
        }
        buf_consume(&s->out, (size_t)n);
        used(s);
    }
    if (s->out.failed)
        end(s);
}

/* --- questions --- */

/* Every whole question that there is room for. False: what came is none. */
static bool take_questions(struct dns_stream *s)
{
    struct dns_port *p = s->listener->port;
    struct dns_peer from = { .client = s->client,
                             .listener = s->listener->number,
                             .stream = s->number,
                             .text = str_of(s->listener->text, s->listener->n) };
    while (has_room(s)) {
        struct str in = buf_str(&s->in);
        if (in.n < 2)
            return true;
        size_t n = (size_t)(unsigned char)in.p[0] << 8 | (unsigned char)in.p[1];
        if (n < QUERY_HEADER || n > QUERY_BYTES_MAX)
            return false;
        if (in.n - 2 < n)
            return true;
        s->waiting++;
        size_t answer = p->ops->message(p->ctx, &from, str_sub(in, 2, n), p->answer, sizeof p->answer);
        buf_consume(&s->in, 2 + n);
        used(s);
        if (answer == DNS_LATER)
            continue;
        s->waiting--;
        if (answer == 0) /* an answer, or a flood: neither is for TCP */
            return false;
        put_answer(s, p->answer, answer);
    }
    return true;
}

/* What is sent makes room for questions that came long before: no byte more may come to tell of them. So it goes on
 * until no whole question is left, or no room, which an event of its own will bring (EPOLLOUT, or an answer). */
static void serve(struct dns_stream *s)
{
    size_t left = SIZE_MAX;
    flush(s);
    while (!ending(s) && has_room(s) && buf_size(&s->in) != left) {
        left = buf_size(&s->in);
        if (take_questions(s))
            flush(s);
        else
            end(s);
    }
    if (ending(s))
        return;
    if (s->ended && !s->waiting && !buf_size(&s->out)) {
        end(s);
        return;
    }
    buf_release_if_empty(&s->in);
    buf_release_if_empty(&s->out);
    watch_set(&s->watch, (may_read(s) ? EPOLLIN : 0) | (buf_size(&s->out) ? EPOLLOUT : 0));
}

static void on_stream(struct watch *w, uint32_t revents)
{
    struct dns_stream *s = (struct dns_stream *)((char *)w - offsetof(struct dns_stream, watch));
    if (ending(s))
        return;
    if (revents & EPOLLERR) {
        end(s);
        return;
    }
    if (revents & (EPOLLIN | EPOLLHUP) && may_read(s)) {
        char *room = buf_reserve(&s->in, READ_BYTES);
        ssize_t n = room ? recv(w->fd, room, READ_BYTES, MSG_DONTWAIT) : -1;
        if (n > 0)
            buf_wrote(&s->in, (size_t)n);
        s->ended = n == 0;
        if (!room || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            end(s);
            return;
        }
    } else if (revents & EPOLLHUP) {
        end(s); /* both ways closed: nobody is left to answer */
        return;
    }
    serve(s);
}

void dns_stream_answer(struct dns_stream *s, const unsigned char *bytes, size_t n)
{
    if (ending(s))
        return;
    s->waiting--;
    put_answer(s, bytes, n);
    serve(s);
}

/* --- accepting --- */

/* By listener, for agents that are known by theirs may come from one address. */
static size_t count_of(const struct dns_listener *l, const struct ip *client)
{
    size_t n = 0;
    for (const struct dns_stream *s = l->port->oldest; s; s = s->newer)
        n += s->listener == l && ip_equal(&s->client, client);
    return n;
}

/* Room for one more, if need be by closing the one that has not been used for longest. */
static bool make_room(struct dns_port *p)
{
    if (p->nstreams < p->connections)
        return true;
    for (struct dns_stream *s = p->oldest; s; s = s->newer)
        if (!s->waiting) {
            stream_free(s);
            return true;
        }
    return false;
}

static void stream_new(struct dns_listener *l, int fd, const struct sockaddr_storage *from)
{
    struct dns_port *p = l->port;
    struct ip client;
    uint16_t port;
    struct dns_stream *s = NULL;
    bool taken = ip_from_sockaddr(from, &client, &port) == 0 && count_of(l, &client) < p->connections_per_client &&
                 make_room(p) && (s = calloc(1, sizeof *s));
    if (!taken) {
        close(fd);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    s->listener = l;
    s->number = ++p->last_number;
    s->client = client;
    s->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_stream };
    s->idle.cb = on_idle;
    s->closing.cb = on_closing;
    buf_init(&s->in, 2 + QUERY_BYTES_MAX + READ_BYTES);
    buf_init(&s->out, OUT_FULL + (p->pipelined + 1) * (2 + (size_t)ANSWER_TCP_BYTES));
    if (watch_add(p->loop, &s->watch)) {
        close(fd);
        free(s);
        return;
    }
    struct dns_stream **at = &p->streams[s->number & (STREAM_SLOTS - 1)];
    s->chain = *at;
    *at = s;
    p->nstreams++;
    use_link(s);
    timer_set(p->loop, &s->idle, p->idle_ms);
}

void dns_streams_accept(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct dns_listener *l = (struct dns_listener *)((char *)w - offsetof(struct dns_listener, tcp));
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t n = sizeof from;
        int fd = accept4(w->fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            stream_new(l, fd, &from);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) { /* no descriptor, no memory: later */
            watch_set(w, 0);
            timer_set(l->port->loop, &l->paused, PAUSE_MS);
            return;
        }
    }
}
