/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/connector.h"

#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct attempt {
    struct watch watch; /* fd -1: none */
    struct connector *owner;
    struct ip ip;
};

struct connector {
    struct loop *loop;
    const struct connector_ops *ops;
    void *ctx;
    uint16_t port;
    size_t n, started, open;
    struct timer next, deadline;
    struct task done;
    bool finished;
    struct connector_result result;
    struct attempt attempts[CONNECTOR_ADDRESSES];
};

size_t connector_order(const struct ip *ips, size_t n, struct ip ret[CONNECTOR_ADDRESSES])
{
    size_t out = 0, at[2] = { 0, 0 }; /* IPv6, IPv4 */
    for (size_t turn = 0, missed = 0; out < CONNECTOR_ADDRESSES && missed < 2; turn ^= 1) {
        const uint8_t family = turn == 0 ? 6 : 4;
        size_t *i = &at[turn];
        while (*i < n && ips[*i].family != family)
            (*i)++;
        if (*i == n) {
            missed++;
            continue;
        }
        missed = 0;
        ret[out++] = ips[(*i)++];
    }
    return out;
}

static void close_attempt(struct attempt *a)
{
    if (a->watch.fd < 0)
        return;
    if (a->watch.loop)
        watch_del(&a->watch);
    close(a->watch.fd);
    a->watch.fd = -1;
    a->owner->open--;
}

static void finish(struct connector *c, struct connector_result r)
{
    if (c->finished)
        return;
    c->finished = true;
    c->result = r;
    timer_clear(&c->next);
    timer_clear(&c->deadline);
    for (size_t i = 0; i < c->n; i++)
        close_attempt(&c->attempts[i]);
    loop_defer(c->loop, &c->done);
}

static void fail(struct connector *c, int error)
{
    static const struct {
        int error;
        const char *why;
    } table[] = {
        { ECONNREFUSED, "connection refused" },
        { ENETUNREACH, "network unreachable" },
        { EHOSTUNREACH, "host unreachable" },
        { ECONNRESET, "connection reset" },
        { EADDRNOTAVAIL, "no local port or address is free" },
        { EMFILE, "out of descriptors" },
        { ENFILE, "out of descriptors" },
        { ENOBUFS, "out of memory" },
        { ENOMEM, "out of memory" },
        { EACCES, "the local network refused" },
        { EPERM, "the local network refused" },
        { EAFNOSUPPORT, "no such address family here" },
    };
    struct connector_result r = { .end = END_ORIGIN_CONNECT, .fd = -1, .why = "the connection failed" };
    if (error == ETIMEDOUT)
        r = (struct connector_result) { .end = END_ORIGIN_TIMEOUT, .fd = -1, .why = "connecting timed out" };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error)
            r.why = table[i].why;
    finish(c, r);
}

static bool vetted(struct connector *c, const struct ip *ip, uint16_t port)
{
    const char *why = "refused";
    if (c->ops->vet(c->ctx, ip, port, &why) == END_OK)
        return true;
    finish(c, (struct connector_result) { .end = END_ADDRESS_DENIED, .fd = -1, .ip = *ip, .why = why });
    return false;
}

/* Connected: is the other end what was dialled, and not this very socket (a port of ours that met itself)? */
static void win(struct attempt *a)
{
    struct connector *c = a->owner;
    struct sockaddr_storage peer = { 0 }, self = { 0 };
    socklen_t peer_n = sizeof peer, self_n = sizeof self;
    struct ip ip, own;
    uint16_t port, own_port;
    if (getpeername(a->watch.fd, (struct sockaddr *)&peer, &peer_n) < 0 ||
        getsockname(a->watch.fd, (struct sockaddr *)&self, &self_n) < 0 || ip_from_sockaddr(&peer, &ip, &port) != 0 ||
        ip_from_sockaddr(&self, &own, &own_port) != 0) {
        fail(c, ECONNRESET);
        return;
    }
    bool itself = port == own_port && ip_equal(&ip, &own);
    if (itself || port != c->port || !ip_equal(&ip, &a->ip)) {
        finish(c, (struct connector_result) {
                      .end = END_ADDRESS_DENIED, .fd = -1, .ip = ip, .why = "the peer is not the address dialled" });
        return;
    }
    if (!vetted(c, &ip, port))
        return;
    int fd = a->watch.fd;
    watch_del(&a->watch);
    a->watch.fd = -1;
    c->open--;
    finish(c, (struct connector_result) { .end = END_OK, .fd = fd, .ip = ip });
}

static void start_next(struct connector *c);

static void attempt_failed(struct attempt *a, int error)
{
    struct connector *c = a->owner;
    close_attempt(a);
    if (c->started < c->n)
        start_next(c);
    else if (c->open == 0)
        fail(c, error);
}

static void on_socket(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct attempt *a = (struct attempt *)w;
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error)
        attempt_failed(a, error);
    else
        win(a);
}

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value); /* each one is a help, not a promise */
}

static int open_socket(const struct ip *ip)
{
    int fd = socket(ip->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return -1;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    return fd;
}

/* 0: under way, connected or over; otherwise the errno of an attempt that came to nothing at once. */
static int start_one(struct connector *c, struct attempt *a)
{
    struct sockaddr_storage sa = { 0 };
    unsigned n = ip_to_sockaddr(&a->ip, c->port, &sa);
    struct ip dialled;
    uint16_t port;
    if (n == 0 || ip_from_sockaddr(&sa, &dialled, &port) != 0)
        return EAFNOSUPPORT;
    a->ip = dialled;
    if (!vetted(c, &dialled, port))
        return 0;
    int fd = open_socket(&a->ip);
    if (fd < 0)
        return errno;
    a->watch = (struct watch) { .fd = fd, .events = EPOLLOUT, .cb = on_socket };
    c->open++;
    int r = connect(fd, (struct sockaddr *)&sa, n), error = r < 0 ? errno : 0;
    if (r < 0 && error != EINPROGRESS && error != EINTR) {
        close_attempt(a);
        return error;
    }
    if (watch_add(c->loop, &a->watch) < 0) {
        close_attempt(a);
        return ENOMEM;
    }
    return 0;
}

static void start_next(struct connector *c)
{
    int error = 0;
    while (!c->finished && c->started < c->n) {
        error = start_one(c, &c->attempts[c->started++]);
        if (error == 0)
            break;
    }
    if (c->finished)
        return;
    if (error != 0 && c->open == 0)
        fail(c, error);
    else if (c->started < c->n)
        timer_set(c->loop, &c->next, CONNECTOR_DELAY_MS);
    else
        timer_clear(&c->next);
}

static void on_next(struct timer *t)
{
    start_next((struct connector *)((char *)t - offsetof(struct connector, next)));
}

static void on_deadline(struct timer *t)
{
    fail((struct connector *)((char *)t - offsetof(struct connector, deadline)), ETIMEDOUT);
}

static void on_done(struct task *t)
{
    struct connector *c = (struct connector *)((char *)t - offsetof(struct connector, done));
    struct connector_result r = c->result;
    const struct connector_ops *ops = c->ops;
    void *ctx = c->ctx;
    free(c);
    ops->done(ctx, &r);
}

struct connector *connector_start(struct loop *l, const struct ip *ips, size_t n, uint16_t port, uint64_t timeout_ms,
                                  const struct connector_ops *ops, void *ctx)
{
    struct connector *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->loop = l;
    c->ops = ops;
    c->ctx = ctx;
    c->port = port;
    c->n = n < CONNECTOR_ADDRESSES ? n : CONNECTOR_ADDRESSES;
    c->next.cb = on_next;
    c->deadline.cb = on_deadline;
    c->done.cb = on_done;
    for (size_t i = 0; i < c->n; i++)
        c->attempts[i] = (struct attempt) { .watch.fd = -1, .owner = c, .ip = ips[i] };
    if (c->n == 0) {
        fail(c, EHOSTUNREACH);
        return c;
    }
    timer_set(l, &c->deadline, timeout_ms);
    start_next(c);
    return c;
}

void connector_cancel(struct connector **cp)
{
    struct connector *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    timer_clear(&c->next);
    timer_clear(&c->deadline);
    task_cancel(&c->done);
    if (c->finished && c->result.end == END_OK)
        close(c->result.fd);
    for (size_t i = 0; i < c->n; i++)
        close_attempt(&c->attempts[i]);
    free(c);
}
