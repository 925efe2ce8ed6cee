/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/listener.h"

#include "base/log.h"
#include "proxy/client.h"
#include "proxy/pool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_PER_ROUND = 16, SAY_EVERY_MS = 10000 };

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

/* The next connection waits in the kernel's queue; the sweep accepts again. Idle origins make room. */
static void rest(struct listener *l, const char *why)
{
    struct worker *w = l->w;
    uint64_t now = loop_now_ms(w->loop);
    pool_shed(w->pool, pool_size(w->pool) / 2 + 1);
    if (!w->crowded_ms || now - w->crowded_ms >= SAY_EVERY_MS)
        log_error("cannot accept on %.*s: %s", STR_ARG(str_of(l->text, l->text_n)), why);
    w->crowded_ms = now ? now : 1;
    watch_del(&l->watch);
    l->paused = true;
}

static void on_event(struct watch *w, uint32_t ev)
{
    (void)ev;
    struct listener *l = (struct listener *)((char *)w - offsetof(struct listener, watch));
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = accept4(l->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            client_new(l->w, l, fd);
            if (fd < l->w->fd_most)
                continue;
            rest(l, "the last quarter of the descriptors is kept for origins");
            return;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return;
        rest(l, strerror(errno)); /* EMFILE, ENFILE, ENOMEM */
        return;
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
