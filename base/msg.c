/* SPDX-License-Identifier: Apache-2.0
 *
 * Packet: u16 magic, u16 type, u32 body length, u64 id, body. SOCK_SEQPACKET keeps the borders, so a packet is whole or
 * it is not there; the length is still compared with what came, so that two builds that disagree part at once. */
#include "base/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAGIC = 0x4f47, HEAD = 16, ROUND = 64 };

struct packet {
    struct packet *next;
    size_t n, nfds;
    int fds[MSG_FDS_MAX];
    char bytes[];
};

struct msg_channel {
    struct watch watch;
    struct loop *loop;
    const struct msg_ops *ops;
    int (*on_lost_fds)(void *ctx, struct msg_channel *ch, struct msg *m); /* or NULL */
    void *ctx;
    struct packet *first, **last;
    size_t queued;
    bool wipe, dead, busy, free_later;
    struct task closed;
    char *in;
};

static void put16(char *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}
static void put32(char *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static void put64(char *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static void head_put(char *p, uint16_t type, uint64_t id, size_t n)
{
    put16(p, MAGIC);
    put16(p + 2, type);
    put32(p + 4, (uint32_t)n);
    put64(p + 8, id);
}

static int head_get(const char *p, size_t n, struct msg *m)
{
    uint16_t magic;
    uint32_t len;
    if (n < HEAD)
        return -1;
    memcpy(&magic, p, 2);
    memcpy(&m->type, p + 2, 2);
    memcpy(&len, p + 4, 4);
    memcpy(&m->id, p + 8, 8);
    if (magic != MAGIC || len != n - HEAD)
        return -1;
    m->body = str_of(p + HEAD, len);
    return 0;
}

static void fds_close(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* One sendmsg; 0 sent, 1 would block, -1 gone. */
static int send_packet(int fd, const struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * MSG_FDS_MAX)];
    } control;
    struct msghdr h = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = niov };
    if (nfds) {
        memset(&control, 0, sizeof control);
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
    }
    for (;;) {
        if (sendmsg(fd, &h, MSG_NOSIGNAL | flags) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        return errno == EAGAIN || errno == ENOBUFS ? 1 : -1;
    }
}

/* One recvmsg into buf; bytes, 0 at the end, -1 with errno. fds must hold MSG_FDS_MAX. *ret_lost: descriptors came with
 * it, and not all of them found room: then there are none. */
static ssize_t recv_packet(int fd, char *buf, size_t cap, int *fds, size_t *ret_nfds, bool *ret_lost, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * MSG_FDS_MAX)];
    } control;
    struct iovec iov = { buf, cap };
    struct msghdr h = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
    };
    *ret_nfds = 0;
    ssize_t n;
    do
        n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && !*ret_nfds) {
            size_t bytes = c->cmsg_len - CMSG_LEN(0);
            *ret_nfds = bytes / sizeof(int) > MSG_FDS_MAX ? MSG_FDS_MAX : bytes / sizeof(int);
            memcpy(fds, CMSG_DATA(c), *ret_nfds * sizeof(int));
        }
    *ret_lost = (h.msg_flags & MSG_CTRUNC) != 0;
    if (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        fds_close(fds, *ret_nfds);
        *ret_nfds = 0;
    }
    if (h.msg_flags & MSG_TRUNC) {
        errno = EPROTO;
        return -1;
    }
    return n;
}

static void packet_free(struct msg_channel *ch, struct packet *p)
{
    fds_close(p->fds, p->nfds);
    if (ch->wipe)
        explicit_bzero(p->bytes, p->n);
    free(p);
}

static void queue_drop(struct msg_channel *ch)
{
    while (ch->first) {
        struct packet *p = ch->first;
        ch->first = p->next;
        packet_free(ch, p);
    }
    ch->last = &ch->first;
    ch->queued = 0;
}

static void on_closed_task(struct task *t)
{
    struct msg_channel *ch = (struct msg_channel *)((char *)t - offsetof(struct msg_channel, closed));
    ch->ops->on_closed(ch->ctx, ch);
}

static void channel_die(struct msg_channel *ch)
{
    if (ch->dead)
        return;
    ch->dead = true;
    watch_del(&ch->watch);
    queue_drop(ch);
    loop_defer(ch->loop, &ch->closed);
}

static void channel_flush(struct msg_channel *ch)
{
    while (ch->first) {
        struct packet *p = ch->first;
        struct iovec iov = { p->bytes, p->n };
        int r = send_packet(ch->watch.fd, &iov, 1, p->fds, p->nfds, MSG_DONTWAIT);
        if (r > 0)
            break;
        if (r < 0) {
            channel_die(ch);
            return;
        }
        ch->first = p->next;
        if (!ch->first)
            ch->last = &ch->first;
        ch->queued--;
        packet_free(ch, p);
    }
    watch_set(&ch->watch, ch->first ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void channel_read(struct msg_channel *ch)
{
    /* Bounded per round, so that one talkative peer does not starve the loop. */
    for (int i = 0; i < ROUND && !ch->dead && !ch->free_later; i++) {
        int fds[MSG_FDS_MAX];
        struct msg m = { .fds = fds };
        bool lost = false;
        ssize_t n = recv_packet(ch->watch.fd, ch->in, HEAD + MSG_BODY_MAX, fds, &m.nfds, &lost, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            channel_die(ch);
            return;
        }
        int r = head_get(ch->in, (size_t)n, &m);
        if (r == 0 && lost)
            r = ch->on_lost_fds ? ch->on_lost_fds(ch->ctx, ch, &m) : -1;
        else if (r == 0)
            r = ch->ops->on_message(ch->ctx, ch, &m);
        fds_close(fds, m.nfds);
        if (ch->wipe)
            explicit_bzero(ch->in, (size_t)n);
        if (r)
            channel_die(ch);
    }
}

static void channel_destroy(struct msg_channel *ch)
{
    task_cancel(&ch->closed);
    watch_del(&ch->watch);
    queue_drop(ch);
    close(ch->watch.fd);
    free(ch->in);
    free(ch);
}

static void on_event(struct watch *w, uint32_t revents)
{
    struct msg_channel *ch = (struct msg_channel *)((char *)w - offsetof(struct msg_channel, watch));
    ch->busy = true;
    if (revents & EPOLLOUT)
        channel_flush(ch);
    if (!ch->dead && revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
        channel_read(ch);
    ch->busy = false;
    if (ch->free_later)
        channel_destroy(ch);
}

struct msg_channel *msg_channel_new(struct loop *l, int fd, const struct msg_ops *ops, void *ctx)
{
    struct msg_channel *ch = calloc(1, sizeof *ch);
    if (!ch)
        return NULL;
    ch->in = malloc(HEAD + MSG_BODY_MAX);
    int flags = fcntl(fd, F_GETFL);
    ch->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_event };
    if (!ch->in || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || watch_add(l, &ch->watch)) {
        free(ch->in);
        free(ch);
        return NULL;
    }
    int bytes = 1024 * 1024; /* a whole queue of leases fits; the kernel clamps to its own limit */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    ch->loop = l;
    ch->ops = ops;
    ch->ctx = ctx;
    ch->last = &ch->first;
    ch->closed.cb = on_closed_task;
    return ch;
}

void msg_channel_free(struct msg_channel **chp)
{
    struct msg_channel *ch = *chp;
    *chp = NULL;
    if (!ch)
        return;
    if (ch->busy) { /* freed from within its own callback */
        ch->free_later = true;
        ch->dead = true;
        task_cancel(&ch->closed);
        watch_del(&ch->watch);
        return;
    }
    channel_destroy(ch);
}

bool msg_channel_open(const struct msg_channel *ch)
{
    return ch && !ch->dead;
}

int msg_channel_fd(const struct msg_channel *ch)
{
    return ch->watch.fd;
}

void msg_channel_on_lost_fds(struct msg_channel *ch, int (*cb)(void *ctx, struct msg_channel *ch, struct msg *m))
{
    ch->on_lost_fds = cb;
}

void msg_channel_wipe(struct msg_channel *ch, bool wipe)
{
    ch->wipe = wipe;
}

int msg_send(struct msg_channel *ch, uint16_t type, uint64_t id, struct str body, const int *fds, size_t nfds)
{
    if (!ch || ch->dead || body.n > MSG_BODY_MAX || nfds > MSG_FDS_MAX)
        return -1;
    char head[HEAD];
    head_put(head, type, id, body.n);
    if (!ch->first) {
        struct iovec iov[2] = { { head, HEAD }, { (void *)(uintptr_t)body.p, body.n } };
        int r = send_packet(ch->watch.fd, iov, body.n ? 2 : 1, fds, nfds, MSG_DONTWAIT);
        if (r == 0)
            return 0;
        if (r < 0) {
            channel_die(ch);
            return -1;
        }
    }
    if (ch->queued >= MSG_QUEUE_MAX)
        return -1;
    struct packet *p = malloc(sizeof *p + HEAD + body.n);
    if (!p)
        return -1;
    *p = (struct packet) { .n = HEAD + body.n };
    memcpy(p->bytes, head, HEAD);
    if (body.n)
        memcpy(p->bytes + HEAD, body.p, body.n);
    for (size_t i = 0; i < nfds; i++) {
        p->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (p->fds[i] < 0) {
            packet_free(ch, p);
            return -1;
        }
        p->nfds++;
    }
    *ch->last = p;
    ch->last = &p->next;
    ch->queued++;
    watch_set(&ch->watch, EPOLLIN | EPOLLOUT);
    return 0;
}

int msg_send_blocking(int fd, uint16_t type, uint64_t id, struct str body, const int *fds, size_t nfds)
{
    if (body.n > MSG_BODY_MAX || nfds > MSG_FDS_MAX)
        return -1;
    char head[HEAD];
    head_put(head, type, id, body.n);
    struct iovec iov[2] = { { head, HEAD }, { (void *)(uintptr_t)body.p, body.n } };
    return send_packet(fd, iov, body.n ? 2 : 1, fds, nfds, 0) == 0 ? 0 : -1;
}

int msg_recv_blocking(int fd, struct buf *body, struct msg *ret)
{
    size_t nfds = 0;
    buf_reset(body);
    char *p = buf_reserve(body, HEAD + MSG_BODY_MAX);
    if (!p)
        return -1;
    bool lost = false;
    ssize_t n = recv_packet(fd, p, HEAD + MSG_BODY_MAX, ret->fds, &nfds, &lost, 0);
    if (n <= 0 || lost)
        return -1;
    buf_wrote(body, (size_t)n);
    ret->nfds = nfds;
    if (head_get(p, (size_t)n, ret)) {
        fds_close(ret->fds, nfds);
        return -1;
    }
    return 0;
}
