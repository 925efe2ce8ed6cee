/* SPDX-License-Identifier: Apache-2.0
 *
 * c-ares 1.18 keeps one UDP socket per channel and server while any query is pending, and closes it with the last one.
 * So a channel here is a lane that carries one question at a time: every question, and every try at another server,
 * gets a socket of its own. Making a channel reads /dev/urandom; all are made in upstream_cares_new, before the role
 * gives up files, and every option that would send c-ares to /etc/resolv.conf is set. The ids are ours (ares_send keeps
 * them).
 *
 * c-ares compares the echoed question without regard to case and lets a zero-length datagram or a malformed answer end
 * a query. Its sockets are therefore ours (ares_set_socket_functions), and lane_recv is a gate: a datagram that does
 * not repeat id and question bit for bit does not exist; an answer that is malformed, lame or a refusal is handed on as
 * a plain refusal, on which c-ares goes to the next server. A server that answered where an earlier one did not is
 * asked first by that owner for a while. */
#include "dns/upstream_cares.h"

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
    TRIES = 2,
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
struct group;
struct lane {
    struct upstream_cares *c;
    ares_channel channel;
    bool tcp;
    uint64_t generation; /* of the servers it was given */
    size_t first;        /* … and which of them came first */
    struct group *group; /* the ones it asks … */
    uint64_t lent;       /* … while they are the same */
    struct upstream_leg *leg;
    struct { /* of the leg, by the server's place in the group */
        bool asked, said; /* said: an answer, whatever it was worth */
        int error;
    } met[DNS_SERVERS_MAX];
    struct timer timer;
    struct lane_sock socks[LANE_SOCKS];
};

/* The servers of a step, in their order, and which of them is rotated to the front for whom: what one owner asks may be what the
 * first does not know and the next one does, and must not send another's names there. */
struct group {
    struct dns_server v[DNS_SERVERS_MAX];
    struct server_fault faults[DNS_SERVERS_MAX];
    bool tcp;
    size_t n;
    struct {
        size_t first;
        uint64_t until_ms;
    } orders[UPSTREAM_OWNERS];
    uint64_t generation;
    uint64_t lent; /* how often the group was given other servers */
};

struct upstream_cares {
    struct loop *loop;
    struct group groups[DNS_SERVERS_MAX]; /* by step */
    uint64_t generation;                  /* the last one given: no two groups ever have the same */
    struct lane *lanes;
    size_t nlanes;
    uint64_t strays;
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
    if (!ln->leg || !ln->leg->under_way || !ares_timeout(ln->channel, NULL, &tv)) {
        timer_clear(&ln->timer);
        return;
    }
    timer_set(ln->c->loop, &ln->timer, (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1);
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
        if (watch_add(s->lane->c->loop, &s->watch) < 0)
            log_error("resolver: cannot watch a socket: the look-up will time out");
    }
}

/* What a call on the socket came to: why not is remembered, of the server. */
static ssize_t met(const struct lane_sock *s, ssize_t n)
{
    bool failed = n < 0 && errno != EAGAIN && errno != EINTR && errno != EINPROGRESS;
    if (failed && s->server < DNS_SERVERS_MAX)
        s->lane->met[s->server].error = errno;
    return n;
}

static void met_answer(const struct lane_sock *s)
{
    if (s->server < DNS_SERVERS_MAX)
        s->lane->met[s->server].said = true;
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
    const struct group *g = ln->group;
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
    if (s->server < DNS_SERVERS_MAX)
        ln->met[s->server].asked = true;
    return (int)met(s, connect(fd, sa, n));
}

static ares_ssize_t lane_sendv(ares_socket_t fd, const struct iovec *v, int n, void *ctx)
{
    const struct lane_sock *s = lane_sock(ctx, fd);
    struct msghdr m = { .msg_iovlen = (size_t)n };
    MUST(s != NULL);
    memcpy(&m.msg_iov, &v, sizeof v);
    return met(s, sendmsg(fd, &m, MSG_NOSIGNAL));
}

/* A server helped: if it was not the first to be asked, the ones before it are down; start with it for a while. */
static void note_good(const struct lane_sock *s, size_t owner)
{
    struct group *g = s->lane->group;
    if (s->server >= g->n || s->server == g->orders[owner].first)
        return;
    g->orders[owner].first = s->server;
    g->orders[owner].until_ms = loop_now_ms(s->lane->c->loop) + PROMOTED_MS;
}

/* An answer to our question: judged here, so that what does not help sends c-ares to the next server. */
static void judge(struct lane_sock *s, struct upstream_leg *leg, char *packet, size_t n)
{
    struct wire_answer a __attribute__((uninitialized)); /* 12 KiB: wire_answer_parse sets what is used */
    if (wire_truncated(str_of(packet, n)))
        return; /* c-ares asks again over TCP */
    uint16_t rcode = leg->rcode;
    leg->rcode = WIRE_NOERROR;
    bool good = upstream_leg_judge(leg, str_of(packet, n), &a);
    char refusal = leg->rcode != WIRE_NOERROR ? WIRE_SERVFAIL : WIRE_REFUSED;
    if (leg->rcode == WIRE_NOERROR)
        leg->rcode = rcode;
    if (good)
        note_good(s, leg->owner);
    else
        packet[3] = (char)((packet[3] & 0xf0) | refusal);
}

static ares_ssize_t lane_recv(ares_socket_t fd, void *out, size_t max, int flags, struct sockaddr *from,
                              ares_socklen_t *from_n, void *ctx)
{
    struct lane *ln = ctx;
    struct lane_sock *s = lane_sock(ln, fd);
    MUST(s != NULL);
    if (s->tcp) {
        ssize_t n = met(s, recv(fd, out, max, flags));
        if (n > 0)
            met_answer(s);
        /* The stream is u16 length, message; the low half of the message's fourth byte is the answer code. */
        if (n > 0 && s->tcp_got <= 5 && s->tcp_got + (size_t)n > 5 && ln->leg)
            ln->leg->rcode = ((const unsigned char *)out)[5 - s->tcp_got] & 15;
        if (n > 0 && s->tcp_got <= 5)
            s->tcp_got += (size_t)n;
        return n;
    }
    for (int strays = 0; strays < STRAYS_PER_READ; strays++) {
        ssize_t n = met(s, recvfrom(fd, out, max, flags, from, from_n));
        if (n < 0)
            return n;
        struct upstream_leg *leg = ln->leg;
        if (leg && leg->under_way && wire_echoes(&leg->wire, str_of(out, (size_t)n))) {
            met_answer(s);
            judge(s, leg, out, (size_t)n);
            return n;
        }
        ln->c->strays++;
    }
    errno = EAGAIN;
    return -1;
}

/* --- lanes --- */

/* What is wrong with the server, from this question; NULL: nothing. */
static const char *fault_of(const struct lane *ln, size_t i)
{
    if (ln->met[i].said || !ln->met[i].asked)
        return NULL;
    return ln->met[i].error ? strerror(ln->met[i].error) : "it did not answer in time";
}

/* The operator is told also where another server helped. */
static void note_faults(struct lane *ln)
{
    struct group *g = ln->group;
    for (size_t i = 0; i < g->n; i++) {
        const char *fault = fault_of(ln, i);
        if (fault)
            server_fault_note(&g->faults[i], &g->v[i], loop_now_ms(ln->c->loop), fault, "",
                              ln->met[i].error ? "is the address right, and does a DNS server listen on that port?"
                                               : "is it down, is there a way to it, or can it not look up the name?");
    }
}

void upstream_cares_blame(struct upstream_leg *leg)
{
    struct lane *ln = leg->carrier;
    if (!ln || ln->group->lent != ln->lent)
        return;
    note_faults(ln);
    for (size_t i = 0; i < ln->group->n; i++) {
        const char *fault = fault_of(ln, i);
        if (fault || ln->met[i].said)
            server_blame_add(leg->blame, &ln->group->v[i], fault ? fault : "its answer is of no use");
    }
}

static void on_ares(void *ctx, int status, int timeouts, unsigned char *packet, int n)
{
    (void)timeouts;
    struct upstream_leg *leg = ctx;
    if (status == ARES_ECANCELLED || status == ARES_EDESTRUCTION || !leg->under_way)
        return;
    struct lane *ln = leg->carrier;
    struct loop *l = ln->c->loop;
    struct str p = str_of(packet, packet && n > 0 ? (size_t)n : 0);
    if (p.n == 0) {
        upstream_cares_blame(leg);
        upstream_leg_end(leg, l, status == ARES_ETIMEOUT ? UPSTREAM_TIMEOUT : UPSTREAM_UNREACHABLE);
        return;
    }
    if (ln->group->lent == ln->lent)
        note_faults(ln);
    struct wire_answer *a = calloc(1, sizeof *a);
    bool good = a && wire_echoes(&leg->wire, p) && !wire_truncated(p) && wire_answer_parse(&leg->wire, p, a, NULL) == 0;
    if (!good) {
        free(a);
        a = NULL;
    }
    upstream_leg_answer(leg, l, a);
}

static bool lane_ready(struct lane *ln)
{
    struct group *g = ln->group;
    size_t owner = ln->leg->owner;
    if (loop_now_ms(ln->c->loop) >= g->orders[owner].until_ms)
        g->orders[owner].first = 0;
    size_t first = g->orders[owner].first;
    if (g->n == 0)
        return false;
    if (ln->generation == g->generation && ln->first == first)
        return true;
    struct ares_addr_port_node nodes[DNS_SERVERS_MAX];
    for (size_t i = 0; i < g->n; i++) {
        const struct dns_server *s = &g->v[i == 0 ? first : i <= first ? i - 1 : i];
        nodes[i] = (struct ares_addr_port_node) { .next = i + 1 < g->n ? &nodes[i + 1] : NULL,
                                                  .family = s->ip.family == 4 ? AF_INET : AF_INET6,
                                                  .udp_port = s->port,
                                                  .tcp_port = s->port };
        memcpy(&nodes[i].addr, s->ip.b, s->ip.family == 4 ? 4 : 16);
    }
    if (ares_set_servers_ports(ln->channel, nodes) != ARES_SUCCESS)
        return false;
    ln->generation = g->generation;
    ln->first = first;
    return true;
}

void upstream_cares_start(struct upstream_cares *c, struct upstream_leg *leg)
{
    struct group *g = &c->groups[leg->step];
    struct lane *ln = c->lanes;
    while (ln < c->lanes + c->nlanes && (ln->leg || ln->tcp != g->tcp))
        ln++;
    MUST(ln < c->lanes + c->nlanes);
    ln->leg = leg;
    ln->group = g;
    ln->lent = g->lent;
    memset(ln->met, 0, sizeof ln->met);
    leg->carrier = ln;
    if (!lane_ready(ln)) {
        upstream_leg_end(leg, c->loop, UPSTREAM_UNREACHABLE);
        return;
    }
    ares_send(ln->channel, leg->wire.bytes, (int)leg->wire.n, on_ares, leg);
    lane_set_timer(ln);
}

void upstream_cares_leave(struct upstream_leg *leg)
{
    struct lane *ln = leg->carrier;
    if (!ln)
        return;
    bool under_way = leg->under_way;
    leg->under_way = false;
    leg->carrier = NULL;
    ln->leg = NULL;
    timer_clear(&ln->timer);
    if (under_way)
        ares_cancel(ln->channel);
}

static int lane_init(struct lane *ln, struct upstream_cares *c, bool tcp, unsigned try_ms)
{
    ln->c = c;
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

struct upstream_cares *upstream_cares_new(struct loop *l, size_t udp_lanes, size_t tcp_lanes, unsigned try_ms,
                                          struct err *err)
{
    size_t all = udp_lanes + tcp_lanes;
    struct upstream_cares *c = calloc(1, sizeof *c);
    if (!c || !(c->lanes = calloc(all, sizeof *c->lanes))) {
        free(c);
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    c->loop = l;
    for (; c->nlanes < all; c->nlanes++)
        if (lane_init(&c->lanes[c->nlanes], c, c->nlanes < tcp_lanes, try_ms) < 0) {
            upstream_cares_free(&c);
            err_set(err, "resolver: c-ares cannot make a channel");
            return NULL;
        }
    return c;
}

void upstream_cares_free(struct upstream_cares **cp)
{
    struct upstream_cares *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    for (size_t i = 0; i < c->nlanes; i++) {
        MUST(!c->lanes[i].leg);
        ares_destroy(c->lanes[i].channel);
        timer_clear(&c->lanes[i].timer);
    }
    free(c->lanes);
    free(c);
}

void upstream_cares_set(struct upstream_cares *c, size_t step, const struct dns_server *v, size_t n)
{
    struct group *g = &c->groups[step];
    *g = (struct group) { .n = n, .tcp = n > 0 && v[0].tcp, .generation = ++c->generation, .lent = g->lent + 1 };
    for (size_t i = 0; i < n; i++)
        g->v[i] = v[i];
}

uint64_t upstream_cares_strays(const struct upstream_cares *c)
{
    return c->strays;
}
