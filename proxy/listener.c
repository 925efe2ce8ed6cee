/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/listener.h"

#include "base/log.h"
#include "proxy/client.h"
#include "proxy/pool.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_PER_ROUND = 16, SAY_EVERY_MS = 10000, OWN_FDS = 32 };

static bool is_loopback(const struct ip *ip)
{
    static const uint8_t v6[16] = { [15] = 1 };
    return ip->family == 4 ? ip->b[0] == 127 : ip->family == 6 && !memcmp(ip->b, v6, 16);
}

int listener_fd_most(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur > INT_MAX)
        return INT_MAX;
    return (int)(r.rlim_cur - r.rlim_cur / 4);
}

uint64_t listener_fd_shared(int most)
{
    return most > 2 * OWN_FDS ? (uint64_t)(most - OWN_FDS) : (uint64_t)most / 2;
}

/* Idle origins make room, then the client that gives way first. */
static bool make_room(struct worker *w)
{
    bool idle = pool_size(w->pool) > 0;
    pool_shed(w->pool, pool_size(w->pool) / 2 + 1);
    return idle || client_make_room(w);
}

static void say(struct listener *l, const char *what, const char *why)
{
    uint64_t now = loop_now_ms(l->w->loop);
    if (!l->w->crowded_ms || now - l->w->crowded_ms >= SAY_EVERY_MS)
        log_error("%s on %.*s: %s", what, STR_ARG(str_of(l->text, l->text_n)), why);
    l->w->crowded_ms = now ? now : 1;
}

/* False: nothing can be had by closing what is idle. The next connection waits in the kernel's queue; the sweep accepts
 * again. */
static bool go_on(struct listener *l, const char *why)
{
    if (make_room(l->w)) {
        say(l, "short of descriptors", why);
        return true;
    }
    say(l, "cannot accept", why);
    watch_del(&l->watch);
    l->paused = true;
    return false;
}

static void on_event(struct watch *w, uint32_t ev)
{
    (void)ev;
    struct listener *l = (struct listener *)((char *)w - offsetof(struct listener, watch));
    bool failed = false; /* room was made for it once: should that not help, the next round tries again */
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t n = sizeof from;
        int fd = accept4(l->watch.fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            failed = false;
            client_new(l->w, l, fd, &from);
            /* The number alone does not tell: the next one may be the lower number of one that was just closed. */
            if ((fd < l->w->fd_most && !worker_crowded(l->w)) || go_on(l, "the last quarter of them is kept for origins"))
                continue;
            return;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return;
        if (failed || !go_on(l, strerror(errno))) /* EMFILE, ENFILE, ENOMEM */
            return;
        failed = true;
    }
}

void listener_unref(struct listener *l)
{
    if (--l->refs == 0)
        free(l);
}

static void listener_shut(struct listener *l)
{
    watch_del(&l->watch);
    close(l->watch.fd);
    l->dropped = true;
    listener_unref(l);
}

int listener_add(struct worker *w, const struct config_listener *cl, int fd, struct err *err)
{
    struct listener *l = calloc(1, sizeof *l + cl->text.n);
    if (!l)
        return err_set(err, "out of memory");
    l->w = w;
    l->refs = 1;
    l->kind = cl->kind;
    l->local = cl->kind == LISTENER_UNIX || is_loopback(&cl->ip);
    l->text_n = cl->text.n;
    memcpy(l->text, cl->text.p, cl->text.n);
    if (cl->kind != LISTENER_UNIX) { /* what is accepted inherits it (tcp(7), socket(7)) */
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    l->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_event };
    if (watch_add_exclusive(w->loop, &l->watch)) {
        free(l);
        return err_set_errno(err, "cannot watch the listener %.*s", STR_ARG(cl->text));
    }
    l->next = w->listeners;
    w->listeners = l;
    return 0;
}

void listener_drop(struct worker *w, struct str text)
{
    for (struct listener **at = &w->listeners, *l; (l = *at);) {
        if (str_eq(str_of(l->text, l->text_n), text)) {
            *at = l->next;
            listener_shut(l);
        } else {
            at = &l->next;
        }
    }
}

void listener_drop_all(struct worker *w)
{
    while (w->listeners) {
        struct listener *l = w->listeners;
        w->listeners = l->next;
        listener_shut(l);
    }
}

void listener_resume(struct worker *w)
{
    for (struct listener *l = w->listeners; l; l = l->next)
        if (l->paused) {
            l->watch.events = EPOLLIN;
            l->paused = watch_add_exclusive(w->loop, &l->watch) != 0;
        }
}
