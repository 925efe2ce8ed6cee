/* SPDX-License-Identifier: Apache-2.0
 *
 * UDP: up to PORT_BATCH datagrams with one call in and one call out, then the loop turns, so that a flood leaves room
 * for whatever else it serves. */
#include "dns/dns_port_impl.h"

#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RECEIVE_BYTES = 1 << 20 };

static bool ip_any(const struct ip *ip)
{
    static const uint8_t zero[16];
    return memcmp(ip->b, zero, ip->family == 4 ? 4 : 16) == 0;
}

/* --- the address that was asked --- */

static void read_local(struct msghdr *m, struct dns_peer *peer)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            peer->local.family = 4;
            memcpy(peer->local.b, &info.ipi_spec_dst, 4);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            peer->local.family = 6;
            memcpy(peer->local.b, &info.ipi6_addr, 16);
            peer->interface = info.ipi6_ifindex;
        }
    }
}

/* control: room for a control message. */
static void put_local(struct msghdr *m, const struct dns_peer *peer, unsigned char *control)
{
    m->msg_control = NULL;
    m->msg_controllen = 0;
    if (!peer->local.family)
        return;
    bool v4 = peer->local.family == 4;
    struct in_pktinfo info4 = { 0 };
    struct in6_pktinfo info6 = { .ipi6_ifindex = peer->interface };
    memcpy(&info4.ipi_spec_dst, peer->local.b, 4);
    memcpy(&info6.ipi6_addr, peer->local.b, 16);
    size_t n = v4 ? sizeof info4 : sizeof info6;
    m->msg_control = control;
    m->msg_controllen = CMSG_SPACE(n);
    memset(control, 0, CMSG_SPACE(n));
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
    c->cmsg_type = v4 ? IP_PKTINFO : IPV6_PKTINFO;
    c->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(c), v4 ? (void *)&info4 : (void *)&info6, n);
}

static bool pass_local(int fd, int family)
{
    int on = 1;
    return setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
                      family == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof on) == 0;
}

/* --- UDP --- */

/* What cannot be sent (no room, no route back) is left out: the client asks again. */
static void send_all(int fd, struct mmsghdr *v, unsigned n)
{
    while (n > 0) {
        int sent = sendmmsg(fd, v, n, MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return;
        unsigned done = sent > 0 ? (unsigned)sent : 1;
        v += done;
        n -= done;
    }
}

static void on_udp(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct dns_listener *l = (struct dns_listener *)((char *)w - offsetof(struct dns_listener, udp));
    struct dns_port *p = l->port;
    for (size_t i = 0; i < PORT_BATCH; i++) {
        p->batch.in_iov[i] = (struct iovec) { p->batch.in_bytes[i], sizeof p->batch.in_bytes[i] };
        p->batch.in[i].msg_hdr = (struct msghdr) {
            .msg_name = &p->batch.from[i],
            .msg_namelen = sizeof p->batch.from[i],
            .msg_iov = &p->batch.in_iov[i],
            .msg_iovlen = 1,
            .msg_control = l->wildcard ? p->batch.in_control[i] : NULL,
            .msg_controllen = l->wildcard ? sizeof p->batch.in_control[i] : 0,
        };
    }
    int got = recvmmsg(w->fd, p->batch.in, PORT_BATCH, MSG_DONTWAIT, NULL);
    unsigned answers = 0;
    for (int i = 0; i < got; i++) {
        struct msghdr *m = &p->batch.in[i].msg_hdr;
        struct dns_peer peer = { .listener = l->number, .text = str_of(l->text, l->n) };
        uint16_t port;
        if (ip_from_sockaddr(&p->batch.from[i], &peer.client, &port) != 0 || port == 0)
            continue;
        memcpy(&peer.from, &p->batch.from[i], m->msg_namelen);
        if (l->wildcard)
            read_local(m, &peer);
        unsigned char *out = p->batch.out_bytes[answers];
        size_t n = p->ops->message(p->ctx, &peer, str_of(p->batch.in_bytes[i], p->batch.in[i].msg_len), out,
                                   sizeof p->batch.out_bytes[answers]);
        if (n == 0 || n == DNS_LATER)
            continue;
        p->batch.out_iov[answers] = (struct iovec) { out, n };
        struct msghdr *o = &p->batch.out[answers].msg_hdr;
        *o = (struct msghdr) { .msg_name = m->msg_name,
                               .msg_namelen = m->msg_namelen,
                               .msg_iov = &p->batch.out_iov[answers],
                               .msg_iovlen = 1 };
        put_local(o, &peer, p->batch.out_control[answers]);
        answers++;
    }
    send_all(w->fd, p->batch.out, answers);
}

/* --- listeners --- */

static struct dns_listener **find(struct dns_port *p, struct str text)
{
    struct dns_listener **at = &p->listeners;
    while (*at && !str_eq(str_of((*at)->text, (*at)->n), text))
        at = &(*at)->next;
    return at;
}

static void listener_free(struct dns_listener **at)
{
    struct dns_listener *l = *at;
    *at = l->next;
    dns_streams_drop(l->port, l);
    watch_del(&l->udp);
    watch_del(&l->tcp);
    timer_clear(&l->paused);
    close(l->udp.fd);
    close(l->tcp.fd);
    free(l);
}

static void on_pause_over(struct timer *t)
{
    struct dns_listener *l = (struct dns_listener *)((char *)t - offsetof(struct dns_listener, paused));
    watch_set(&l->tcp, EPOLLIN);
}

int dns_port_add(struct dns_port *p, struct str text, int tcp_fd, int udp_fd, struct err *err)
{
    struct sockaddr_storage sa = { 0 };
    socklen_t n = sizeof sa;
    struct ip ip;
    uint16_t port;
    struct dns_listener *l = calloc(1, sizeof *l + text.n);
    bool bound = getsockname(udp_fd, (struct sockaddr *)&sa, &n) == 0 && ip_from_sockaddr(&sa, &ip, &port) == 0;
    if (!l || !bound || (ip_any(&ip) && !pass_local(udp_fd, sa.ss_family))) {
        close(tcp_fd);
        close(udp_fd);
        free(l);
        return err_set(err, l ? "not a UDP socket that can be answered from" : "out of memory");
    }
    int bytes = RECEIVE_BYTES; /* as much of it as the system gives */
    setsockopt(udp_fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(udp_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    struct dns_listener **old = find(p, text);
    if (*old)
        listener_free(old);
    l->port = p;
    l->number = ++p->last_number;
    l->wildcard = ip_any(&ip);
    l->n = text.n;
    memcpy(l->text, text.p, text.n);
    l->udp = (struct watch) { .fd = udp_fd, .events = EPOLLIN, .cb = on_udp };
    l->tcp = (struct watch) { .fd = tcp_fd, .events = EPOLLIN, .cb = dns_streams_accept };
    l->paused.cb = on_pause_over;
    l->next = p->listeners;
    p->listeners = l;
    if (watch_add(p->loop, &l->udp) || watch_add(p->loop, &l->tcp)) {
        listener_free(&p->listeners);
        return err_set(err, "out of descriptors");
    }
    return 0;
}

void dns_port_drop(struct dns_port *p, struct str text)
{
    struct dns_listener **at = find(p, text);
    if (*at)
        listener_free(at);
}

struct dns_port *dns_port_new(struct loop *l, const struct dns_port_ops *ops, void *ctx, struct err *err)
{
    struct dns_port *p = calloc(1, sizeof *p);
    struct limits limits;
    if (!p) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    p->loop = l;
    p->ops = ops;
    p->ctx = ctx;
    limits_default(&limits);
    dns_port_set_limits(p, &limits);
    return p;
}

void dns_port_free(struct dns_port **pp)
{
    struct dns_port *p = *pp;
    *pp = NULL;
    if (!p)
        return;
    while (p->listeners)
        listener_free(&p->listeners);
    dns_streams_drop(p, NULL);
    free(p);
}

void dns_port_set_limits(struct dns_port *p, const struct limits *limits)
{
    p->connections = limits->dns_connections;
    p->connections_per_client = limits->dns_connections_per_client;
    p->idle_ms = limits->dns_idle_timeout;
    p->pipelined = limits->dns_pipelined;
}

/* --- answers that come later --- */

void dns_port_answer(struct dns_port *p, const struct dns_peer *to, const unsigned char *bytes, size_t n)
{
    if (to->stream) {
        struct dns_stream *s = dns_stream_find(p, to->stream);
        if (s)
            dns_stream_answer(s, bytes, n);
        return;
    }
    struct dns_listener *l = p->listeners;
    while (l && l->number != to->listener)
        l = l->next;
    if (!l || n == 0)
        return;
    struct sockaddr_storage from = to->from;
    struct iovec iov = { (void *)(uintptr_t)bytes, n };
    _Alignas(8) unsigned char control[64];
    struct mmsghdr m = { .msg_hdr = { .msg_name = &from,
                                      .msg_namelen = from.ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                               : sizeof(struct sockaddr_in6),
                                      .msg_iov = &iov,
                                      .msg_iovlen = 1 } };
    put_local(&m.msg_hdr, to, control);
    send_all(l->udp.fd, &m, 1);
}

void dns_port_no_answer(struct dns_port *p, const struct dns_peer *to)
{
    dns_port_answer(p, to, NULL, 0);
}
