/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream over c-ares 1.18. That version keeps one UDP socket per channel and server while any query is pending, and
 * closes it with the last one. So a channel here is a lane that carries one question at a time: every question, and
 * every try at another server, gets a socket of its own. Making a channel reads /dev/urandom; all are made in
 * upstream_new, before the role gives up files, and every option that would send c-ares to /etc/resolv.conf is set. The
 * ids are ours (ares_send keeps them).
 *
 * c-ares compares the echoed question without regard to case and lets a zero-length datagram or a malformed answer end
 * a query. Its sockets are therefore ours (ares_set_socket_functions), and lane_recv is a gate: a datagram that does
 * not repeat id and question bit for bit does not exist; an answer that is malformed, lame or a refusal is handed on as
 * a plain refusal, on which c-ares goes to the next server. A server that answered where an earlier one did not is
 * asked first for a while. */
#include "dns/upstream.h"

#include "base/clock.h"
#include "base/log.h"

#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    LANE_SOCKS = 2 * DNS_SERVERS_MAX + 2,
    QUEUE_MAX = 4096,
    TRIES = 2,
    QUERY_MS = 10000, /* a question, its wait for a lane included */
    PROMOTED_MS = 30000,
    STRAYS_PER_READ = 64,
};

struct lane;
struct lane_sock {
    struct watch watch; /* fd -1: free */
    struct lane *lane;
    bool tcp;
    size_t server;  /* index in the group, of the address it was connected to */
    size_t tcp_got; /* bytes of the stream so far, while it matters */
};
struct lane {
    struct upstream *u;
    ares_channel channel;
    bool tcp;
    uint64_t generation; /* of the servers it was given */
    struct upstream_query *query;
    struct timer timer;
    struct lane_sock socks[LANE_SOCKS];
};

/* Servers of one kind, in the order in which they are asked now. */
struct group {
    struct dns_server v[DNS_SERVERS_MAX];
    size_t n, first; /* first: rotated to the front */
    uint64_t first_until_ms, generation;
};

enum query_state { QUERY_QUEUED = 1, QUERY_ACTIVE, QUERY_FINISHED };
struct upstream_query {
    struct upstream *u;
    enum query_state state;
    struct lane *lane;
    struct upstream_query *next, **link;         /* the queue */
    struct upstream_query *all_next, **all_link; /* of the upstream */
    struct task done;
    struct timer deadline;
    bool tcp, second; /* the kind of server asked now; the other kind was tried before */
    bool lame, bad;
    uint16_t rcode; /* last one seen, of a server that did not help */
    struct wire_query wire;
    enum upstream_result result;
    struct wire_answer *answer;
    uint64_t owner;
    void (*cb)(void *ctx, enum upstream_result r, const struct wire_answer *a);
    void *ctx;
    uint8_t n;
    char name[254];
};

struct upstream {
    struct loop *loop;
    struct group groups[2]; /* UDP, TCP */
    bool tcp_first;
    struct lane *lanes;
    size_t nlanes;
    struct upstream_query *queue, **queue_end;
    struct upstream_query *all;
    struct task dispatch;
    struct upstream_stats stats;
};

/* --- the sockets of a lane --- */

static struct lane_sock *lane_sock(struct lane *ln, int fd)
{
    for (size_t i = 0; i < LANE_SOCKS; i++)
        if (ln->socks[i].watch.fd == fd)
            return &ln->socks[i];
    return NULL;
}

static void lane_set_timer(struct lane *ln)
{
    struct timeval tv;
    if (!ln->query || ln->query->state != QUERY_ACTIVE || !ares_timeout(ln->channel, NULL, &tv)) {
        timer_clear(&ln->timer);
        return;
    }
    timer_set(ln->u->loop, &ln->timer, (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1);
}

static void on_lane_socket(struct watch *w, uint32_t revents)
{
    struct lane *ln = ((struct lane_sock *)w)->lane;
    bool in = revents & (EPOLLIN | EPOLLERR | EPOLLHUP), out = revents & (EPOLLOUT | EPOLLERR | EPOLLHUP);
    ares_process_fd(ln->channel, in ? w->fd : ARES_SOCKET_BAD, out ? w->fd : ARES_SOCKET_BAD);
    lane_set_timer(ln);
}

static void on_lane_timer(struct timer *t)
{
    struct lane *ln = (struct lane *)((char *)t - offsetof(struct lane, timer));
    ares_process_fd(ln->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    lane_set_timer(ln);
}

static void on_sock_state(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct lane_sock *s = lane_sock(ctx, fd);
    MUST(s != NULL);
    uint32_t events = (readable ? (uint32_t)EPOLLIN : 0) | (writable ? (uint32_t)EPOLLOUT : 0);
    if (!events)
        watch_del(&s->watch);
    else if (s->watch.loop)
        watch_set(&s->watch, events);
    else {
        s->watch.events = events;
        if (watch_add(s->lane->u->loop, &s->watch) < 0)
            log_error("resolver: cannot watch a socket: the look-up will time out");
    }
}

static ares_socket_t lane_open(int domain, int type, int protocol, void *ctx)
{
    struct lane *ln = ctx;
    struct lane_sock *s = lane_sock(ln, -1);
    if (!s) {
        errno = EMFILE;
        return -1;
    }
    int fd = socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
    if (fd >= 0) {
        s->watch = (struct watch) { .fd = fd, .cb = on_lane_socket };
        s->tcp = type == SOCK_STREAM;
        s->server = DNS_SERVERS_MAX;
        s->tcp_got = 0;
    }
    return fd;
}

static int lane_close(ares_socket_t fd, void *ctx)
{
    struct lane_sock *s = lane_sock(ctx, fd);
    MUST(s != NULL);
    if (s->watch.loop)
        watch_del(&s->watch);
    s->watch.fd = -1;
    return close(fd);
}

static int lane_connect(ares_socket_t fd, const struct sockaddr *sa, ares_socklen_t n, void *ctx)
{
    struct lane *ln = ctx;
    struct lane_sock *s = lane_sock(ln, fd);
    const struct group *g = &ln->u->groups[ln->tcp];
    struct sockaddr_storage ss = { 0 };
    struct ip ip;
    uint16_t port;
    MUST(s != NULL);
    if (n > sizeof ss) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&ss, sa, n);
    if (ip_from_sockaddr(&ss, &ip, &port) == 0)
        for (size_t i = 0; i < g->n; i++)
            if (ip_equal(&g->v[i].ip, &ip) && g->v[i].port == port)
                s->server = i;
    return connect(fd, sa, n);
}

static ares_ssize_t lane_sendv(ares_socket_t fd, const struct iovec *v, int n, void *ctx)
{
    (void)ctx;
    struct msghdr m = { .msg_iovlen = (size_t)n };
    memcpy(&m.msg_iov, &v, sizeof v);
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* A server helped: if it was not the first to be asked, the ones before it are down; start with it for a while. */
static void note_good(struct upstream *u, const struct lane_sock *s)
{
    struct group *g = &u->groups[s->lane->tcp];
    if (s->server >= g->n || s->server == g->first)
        return;
    g->first = s->server;
    g->first_until_ms = loop_now_ms(u->loop) + PROMOTED_MS;
    g->generation++;
}

/* An answer to our question: judged here, so that what does not help sends c-ares to the next server. */
static void judge(struct lane_sock *s, struct upstream_query *q, char *packet, size_t n)
{
    struct wire_answer a __attribute__((uninitialized)); /* 12 KiB: wire_answer_parse sets what is used */
    if (wire_truncated(str_of(packet, n)))
        return; /* c-ares asks again over TCP */
    char refusal = WIRE_REFUSED;
    if (wire_answer_parse(&q->wire, str_of(packet, n), &a, NULL) < 0) {
        q->bad = true;
    } else if (a.rcode == WIRE_NXDOMAIN || (a.rcode == WIRE_NOERROR && (a.n + a.records > 0 || a.soa))) {
        note_good(s->lane->u, s);
        return;
    } else if (a.rcode == WIRE_NOERROR) {
        q->lame = true;
    } else {
        q->rcode = a.rcode;
        refusal = WIRE_SERVFAIL;
    }
    packet[3] = (char)((packet[3] & 0xf0) | refusal);
}

static ares_ssize_t lane_recv(ares_socket_t fd, void *out, size_t max, int flags, struct sockaddr *from,
                              ares_socklen_t *from_n, void *ctx)
{
    struct lane *ln = ctx;
    struct lane_sock *s = lane_sock(ln, fd);
    MUST(s != NULL);
    if (s->tcp) {
        ssize_t n = recv(fd, out, max, flags);
        /* The stream is u16 length, message; the low half of the message's fourth byte is the answer code. */
        if (n > 0 && s->tcp_got <= 5 && s->tcp_got + (size_t)n > 5 && ln->query)
            ln->query->rcode = ((const unsigned char *)out)[5 - s->tcp_got] & 15;
        if (n > 0 && s->tcp_got <= 5)
            s->tcp_got += (size_t)n;
        return n;
    }
    for (int strays = 0; strays < STRAYS_PER_READ; strays++) {
        ssize_t n = recvfrom(fd, out, max, flags, from, from_n);
        if (n < 0)
            return n;
        struct upstream_query *q = ln->query;
        if (q && q->state == QUERY_ACTIVE && wire_echoes(&q->wire, str_of(out, (size_t)n))) {
            judge(s, q, out, (size_t)n);
            return n;
        }
        ln->u->stats.strays++;
    }
    errno = EAGAIN;
    return -1;
}

/* --- a question's way --- */

static void queue_unlink(struct upstream_query *q)
{
    struct upstream *u = q->u;
    *q->link = q->next;
    if (q->next)
        q->next->link = q->link;
    else
        u->queue_end = q->link;
    u->stats.queued--;
}

static void queue_add(struct upstream_query *q)
{
    struct upstream *u = q->u;
    q->state = QUERY_QUEUED;
    q->next = NULL;
    q->link = u->queue_end;
    *u->queue_end = q;
    u->queue_end = &q->next;
    u->stats.queued++;
    loop_defer(u->loop, &u->dispatch);
}

static void finish(struct upstream_query *q, enum upstream_result r)
{
    q->state = QUERY_FINISHED;
    q->result = r;
    loop_defer(q->u->loop, &q->done);
}

static void on_ares(void *ctx, int status, int timeouts, unsigned char *packet, int n)
{
    (void)timeouts;
    struct upstream_query *q = ctx;
    if (status == ARES_ECANCELLED || status == ARES_EDESTRUCTION || q->state != QUERY_ACTIVE)
        return;
    q->answer = calloc(1, sizeof *q->answer);
    if (!q->answer) {
        finish(q, UPSTREAM_BAD);
        return;
    }
    struct str p = str_of(packet, packet && n > 0 ? (size_t)n : 0);
    if (p.n > 0) {
        bool good =
            wire_echoes(&q->wire, p) && !wire_truncated(p) && wire_answer_parse(&q->wire, p, q->answer, NULL) == 0;
        finish(q, good ? UPSTREAM_ANSWERED : UPSTREAM_BAD);
    } else if (q->lame) {
        q->answer->rcode = WIRE_NOERROR; /* every server says "none" without proof: common behind home routers */
        finish(q, UPSTREAM_ANSWERED);
    } else if (q->rcode != WIRE_NOERROR) {
        q->answer->rcode = q->rcode;
        finish(q, UPSTREAM_ANSWERED);
    } else {
        finish(q, q->bad ? UPSTREAM_BAD : status == ARES_ETIMEOUT ? UPSTREAM_TIMEOUT : UPSTREAM_UNREACHABLE);
    }
}

static void lane_leave(struct upstream_query *q)
{
    struct lane *ln = q->lane;
    if (!ln)
        return;
    q->lane = NULL;
    ln->query = NULL;
    timer_clear(&ln->timer);
    q->u->stats.active--;
    loop_defer(q->u->loop, &q->u->dispatch);
}

static void query_free(struct upstream_query *q)
{
    *q->all_link = q->all_next;
    if (q->all_next)
        q->all_next->all_link = q->all_link;
    task_cancel(&q->done);
    timer_clear(&q->deadline);
    free(q->answer);
    free(q);
}

/* Would servers of the other kind know better? */
static bool try_other_kind(struct upstream_query *q)
{
    bool helped = q->result == UPSTREAM_ANSWERED && !q->lame &&
                  (q->answer->rcode == WIRE_NOERROR || q->answer->rcode == WIRE_NXDOMAIN);
    if (helped || q->second || q->result == UPSTREAM_BUSY || q->u->groups[!q->tcp].n == 0 || !q->deadline.loop)
        return false;
    q->second = true;
    q->tcp = !q->tcp;
    q->lame = q->bad = false;
    q->rcode = WIRE_NOERROR;
    free(q->answer);
    q->answer = NULL;
    queue_add(q);
    return true;
}

static void on_done(struct task *t)
{
    struct upstream_query *q = (struct upstream_query *)((char *)t - offsetof(struct upstream_query, done));
    lane_leave(q);
    if (try_other_kind(q))
        return;
    if (q->result == UPSTREAM_ANSWERED)
        q->u->stats.answered++;
    q->cb(q->ctx, q->result, q->result == UPSTREAM_ANSWERED ? q->answer : NULL);
    query_free(q);
}

static void on_deadline(struct timer *t)
{
    struct upstream_query *q = (struct upstream_query *)((char *)t - offsetof(struct upstream_query, deadline));
    if (q->state == QUERY_FINISHED)
        return;
    bool queued = q->state == QUERY_QUEUED;
    if (queued)
        queue_unlink(q);
    finish(q, queued ? UPSTREAM_BUSY : UPSTREAM_TIMEOUT);
    if (q->lane)
        ares_cancel(q->lane->channel);
}

/* --- lanes --- */

static bool lane_ready(struct lane *ln)
{
    struct group *g = &ln->u->groups[ln->tcp];
    if (g->first != 0 && loop_now_ms(ln->u->loop) >= g->first_until_ms) {
        g->first = 0;
        g->generation++;
    }
    if (g->n == 0) /* a reload took the servers while the question waited */
        return false;
    if (ln->generation == g->generation)
        return true;
    struct ares_addr_port_node nodes[DNS_SERVERS_MAX];
    for (size_t i = 0; i < g->n; i++) {
        const struct dns_server *s = &g->v[i == 0 ? g->first : i <= g->first ? i - 1 : i];
        nodes[i] = (struct ares_addr_port_node) { .next = i + 1 < g->n ? &nodes[i + 1] : NULL,
                                                  .family = s->ip.family == 4 ? AF_INET : AF_INET6,
                                                  .udp_port = s->port,
                                                  .tcp_port = s->port };
        memcpy(&nodes[i].addr, s->ip.b, s->ip.family == 4 ? 4 : 16);
    }
    if (ares_set_servers_ports(ln->channel, nodes) != ARES_SUCCESS)
        return false;
    ln->generation = g->generation;
    return true;
}

static void lane_start(struct lane *ln, struct upstream_query *q)
{
    struct upstream *u = ln->u;
    unsigned char chance[WIRE_CHANCE];
    rand_bytes(chance, sizeof chance);
    uint16_t type = q->wire.type;
    MUST(wire_query_make(&q->wire, str_of(q->name, q->n), type, chance) == 0);
    q->state = QUERY_ACTIVE;
    q->lane = ln;
    ln->query = q;
    u->stats.active++;
    u->stats.asked++;
    if (!lane_ready(ln)) {
        finish(q, UPSTREAM_UNREACHABLE);
        return;
    }
    ares_send(ln->channel, q->wire.bytes, (int)q->wire.n, on_ares, q);
    lane_set_timer(ln);
}

/* A free lane of this kind, unless the owner has its share. */
static struct lane *lane_for(struct upstream *u, const struct upstream_query *q)
{
    struct lane *free_lane = NULL;
    size_t used = 0, of_kind = 0;
    for (size_t i = 0; i < u->nlanes; i++) {
        struct lane *ln = &u->lanes[i];
        if (ln->tcp != q->tcp)
            continue;
        of_kind++;
        if (!ln->query)
            free_lane = free_lane ? free_lane : ln;
        else if (ln->query->owner == q->owner)
            used++;
    }
    return used < (of_kind + 1) / 2 ? free_lane : NULL;
}

static void on_dispatch(struct task *t)
{
    struct upstream *u = (struct upstream *)((char *)t - offsetof(struct upstream, dispatch));
    for (struct upstream_query *q = u->queue, *next; q && u->stats.active < u->nlanes; q = next) {
        next = q->next;
        struct lane *ln = lane_for(u, q);
        if (!ln)
            continue;
        queue_unlink(q);
        lane_start(ln, q);
    }
}

static int lane_init(struct lane *ln, struct upstream *u, bool tcp, unsigned try_ms)
{
    ln->u = u;
    ln->tcp = tcp;
    ln->timer.cb = on_lane_timer;
    for (size_t i = 0; i < LANE_SOCKS; i++)
        ln->socks[i] = (struct lane_sock) { .watch.fd = -1, .lane = ln };
    static char lookups[] = "b"; /* c-ares copies it, and wants a char * */
    struct in_addr nowhere = { .s_addr = htonl(INADDR_LOOPBACK) };
    struct ares_options o = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | (tcp ? ARES_FLAG_USEVC : 0),
        .timeout = (int)try_ms,
        .tries = TRIES,
        .ndots = 1,
        .lookups = lookups,
        .servers = &nowhere, /* replaced before the first question (lane_ready) */
        .nservers = 1,
        .sock_state_cb = on_sock_state,
        .sock_state_cb_data = ln,
    };
    const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_LOOKUPS |
                     ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_SORTLIST | ARES_OPT_NOROTATE |
                     ARES_OPT_SOCK_STATE_CB;
    if (ares_init_options(&ln->channel, &o, mask) != ARES_SUCCESS)
        return -1;
    static const struct ares_socket_functions functions = { lane_open, lane_close, lane_connect, lane_recv,
                                                            lane_sendv };
    ares_set_socket_functions(ln->channel, &functions, ln);
    return 0;
}

struct upstream *upstream_new(struct loop *l, size_t lanes, unsigned try_ms, struct err *err)
{
    struct upstream *u = calloc(1, sizeof *u);
    if (!u || lanes < 2 || !(u->lanes = calloc(lanes, sizeof *u->lanes))) {
        free(u);
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    u->loop = l;
    u->queue_end = &u->queue;
    u->dispatch.cb = on_dispatch;
    u->groups[0].generation = u->groups[1].generation = 1;
    for (size_t tcp_lanes = (lanes + 3) / 4; u->nlanes < lanes; u->nlanes++)
        if (lane_init(&u->lanes[u->nlanes], u, u->nlanes < tcp_lanes, try_ms) < 0) {
            upstream_free(&u);
            err_set(err, "resolver: c-ares cannot make a channel");
            return NULL;
        }
    return u;
}

void upstream_free(struct upstream **up)
{
    struct upstream *u = *up;
    *up = NULL;
    if (!u)
        return;
    for (size_t i = 0; i < u->nlanes; i++) {
        ares_destroy(u->lanes[i].channel);
        timer_clear(&u->lanes[i].timer);
    }
    while (u->all)
        query_free(u->all);
    task_cancel(&u->dispatch);
    free(u->lanes);
    free(u);
}

void upstream_set_servers(struct upstream *u, const struct dns_server *v, size_t n)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        u->groups[tcp].n = u->groups[tcp].first = 0;
        u->groups[tcp].generation++;
    }
    u->tcp_first = n > 0 && v[0].tcp;
    for (size_t i = 0; i < n && i < DNS_SERVERS_MAX; i++) {
        struct group *g = &u->groups[v[i].tcp];
        g->v[g->n++] = v[i];
    }
}

struct upstream_query *upstream_ask(struct upstream *u, struct str name, uint16_t type, uint64_t owner,
                                    void (*cb)(void *ctx, enum upstream_result r, const struct wire_answer *a),
                                    void *ctx)
{
    static const unsigned char plain[WIRE_CHANCE];
    struct upstream_query *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    if (wire_query_make(&q->wire, name, type, plain) < 0) {
        free(q);
        return NULL;
    }
    q->u = u;
    q->all_next = u->all;
    q->all_link = &u->all;
    if (u->all)
        u->all->all_link = &q->all_next;
    u->all = q;
    q->done.cb = on_done;
    q->deadline.cb = on_deadline;
    q->owner = owner;
    q->cb = cb;
    q->ctx = ctx;
    q->n = (uint8_t)name.n;
    memcpy(q->name, name.p, name.n);
    q->tcp = u->tcp_first;
    if (u->groups[q->tcp].n == 0) {
        finish(q, UPSTREAM_UNREACHABLE);
    } else if (u->stats.queued >= QUEUE_MAX) {
        finish(q, UPSTREAM_BUSY);
    } else {
        timer_set(u->loop, &q->deadline, QUERY_MS);
        queue_add(q);
    }
    return q;
}

void upstream_cancel(struct upstream_query **qp)
{
    struct upstream_query *q = *qp;
    *qp = NULL;
    if (!q)
        return;
    if (q->state == QUERY_QUEUED)
        queue_unlink(q);
    bool active = q->state == QUERY_ACTIVE;
    q->state = QUERY_FINISHED;
    if (active)
        ares_cancel(q->lane->channel);
    lane_leave(q);
    query_free(q);
}

void upstream_stats(const struct upstream *u, struct upstream_stats *ret)
{
    *ret = u->stats;
}
