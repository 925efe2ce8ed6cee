/* SPDX-License-Identifier: Apache-2.0
 *
 * A scripted DNS server on loopback, UDP and TCP on one port, in the test's own loop. A script is a row per name and
 * type; the first row that fits answers. It keeps what it was asked: names as they came, ids and source ports.
 *
 * records: "OWNER TYPE VALUE TTL; …"; "@" is the question's name; "+" before the owner: authority section, "!":
 * additional. */
#ifndef TESTS_UNIT_DNS_SERVER_H
#define TESTS_UNIT_DNS_SERVER_H

#include "base/loop.h"
#include "base/str.h"
#include "policy/ip.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum reply_how {
    REPLY_SILENT = 1,       /* no answer at all */
    REPLY_CUT = 2,          /* over UDP only: TC and no records */
    REPLY_WRONG_ID = 4,     /* a forgery with another id comes first */
    REPLY_WRONG_CASE = 8,   /* a forgery with the question in other case comes first */
    REPLY_EMPTY = 16,       /* an empty datagram comes first */
    REPLY_GARBAGE = 32,     /* what comes is cut in the middle of a record */
    REPLY_ONLY_FORGED = 64, /* nothing but the forgeries */
    REPLY_OTHER_NAME = 128, /* a forgery for another question comes first */
};

struct reply {
    const char *name; /* NULL: any */
    unsigned type;    /* 0: any */
    unsigned rcode;
    unsigned how;
    const char *records;
    const char *later; /* records from the second time on; NULL: the same */
};

enum { SERVER_LOG = 512, SERVER_CLIENTS = 16 };

struct dns_server_fake;
struct server_client {
    struct watch watch;
    struct dns_server_fake *server;
    size_t n;
    unsigned char in[600];
};
struct dns_server_fake {
    struct watch udp, listener;
    struct loop *loop;
    uint16_t port;
    const struct reply *script;
    size_t rows;
    unsigned seen[64]; /* times each row answered */
    struct server_client clients[SERVER_CLIENTS];
    size_t asked, asked_tcp;
    struct {
        char name[256];
        unsigned type;
        uint16_t id, port;
    } log[SERVER_LOG];
};

static inline size_t server_count(const struct dns_server_fake *s, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < s->asked && i < SERVER_LOG; i++)
        n += strcasecmp(s->log[i].name, name) == 0;
    return n;
}

static inline size_t put_name(unsigned char *p, const char *name)
{
    size_t at = 0;
    while (*name) {
        size_t n = strcspn(name, ".");
        p[at++] = (unsigned char)n;
        memcpy(p + at, name, n);
        at += n;
        name += n + (name[n] == '.');
    }
    p[at++] = 0;
    return at;
}

static inline void put16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
}

/* One record of the script at p; its section (0 answer, 1 authority, 2 additional) in *ret_section. */
static inline size_t put_record(unsigned char *p, const char *text, unsigned *ret_section)
{
    char owner[256], type[16], value[256];
    unsigned long ttl;
    if (sscanf(text, " %255s %15s %255s %lu", owner, type, value, &ttl) != 4)
        abort();
    const char *o = owner;
    *ret_section = *o == '+' ? 1 : *o == '!' ? 2 : 0;
    o += *ret_section != 0;
    size_t at = 0;
    if (strcmp(o, "@") == 0) {
        put16(p, 0xc00c);
        at = 2;
    } else {
        at = put_name(p, o);
    }
    unsigned char *head = p + at, *data = head + 10;
    size_t n;
    struct ip ip;
    unsigned t;
    if (strcmp(type, "CNAME") == 0) {
        t = 5;
        n = put_name(data, value);
    } else if (strcmp(type, "SOA") == 0) {
        t = 6;
        n = put_name(data, value);
        n += put_name(data + n, value);
        memset(data + n, 0, 20);
        put16(data + n + 16, (unsigned)(ttl >> 16));
        put16(data + n + 18, (unsigned)(ttl & 0xffff));
        n += 20;
    } else if (ip_parse(str_c(value), &ip) == 0) {
        t = ip.family == 4 ? 1 : 28;
        n = ip.family == 4 ? 4 : 16;
        memcpy(data, ip.b, n);
    } else {
        abort();
    }
    put16(head, t);
    put16(head + 2, 1);
    put16(head + 4, (unsigned)(ttl >> 16));
    put16(head + 6, (unsigned)(ttl & 0xffff));
    put16(head + 8, (unsigned)n);
    return at + 10 + n;
}

/* Fills out with the reply; returns its size. */
static inline size_t make_reply(unsigned char *out, const unsigned char *q, size_t question_n, unsigned rcode,
                                const char *records)
{
    memcpy(out, q, question_n);
    out[2] = 0x81;
    out[3] = (unsigned char)(0x80 | rcode);
    memset(out + 6, 0, 6);
    size_t at = question_n;
    unsigned counts[3] = { 0 }, section;
    for (const char *r = records; r && *r; r = strchr(r, ';') ? strchr(r, ';') + 1 : NULL) {
        at += put_record(out + at, r, &section);
        counts[section]++;
    }
    for (unsigned i = 0; i < 3; i++)
        put16(out + 6 + 2 * i, counts[i]);
    return at;
}

typedef void server_send(void *to, const unsigned char *p, size_t n);

static inline void server_answer(struct dns_server_fake *s, const unsigned char *q, size_t n, uint16_t port, bool tcp,
                                 server_send *send_to, void *to)
{
    static unsigned char out[65535], forged[1024];
    char name[256] = "";
    size_t at = 12, o = 0;
    if (n < 17 || s->asked >= SERVER_LOG)
        return;
    while (at < n && q[at]) {
        if (o)
            name[o++] = '.';
        memcpy(name + o, q + at + 1, q[at]);
        o += q[at];
        at += q[at] + 1u;
    }
    name[o] = '\0';
    unsigned type = (unsigned)(q[at + 1] << 8 | q[at + 2]);
    size_t question_n = at + 5;
    memcpy(s->log[s->asked].name, name, sizeof name);
    s->log[s->asked].type = type;
    s->log[s->asked].id = (uint16_t)(q[0] << 8 | q[1]);
    s->log[s->asked++].port = port;
    s->asked_tcp += tcp;
    for (size_t i = 0; i < s->rows; i++) {
        const struct reply *r = &s->script[i];
        if ((r->name && strcasecmp(r->name, name) != 0) || (r->type && r->type != type))
            continue;
        const char *records = s->seen[i]++ > 0 && r->later ? r->later : r->records;
        size_t size = make_reply(out, q, question_n, r->rcode, records);
        if (r->how & REPLY_SILENT)
            return;
        if (r->how & REPLY_EMPTY)
            send_to(to, out, 0);
        /* What is forged leads to an address that the tests refuse: taking it shows. */
        size_t forged_n = make_reply(forged, q, question_n, 0, type == 1 ? "@ A 10.6.6.6 60" : "@ AAAA fd00::6 60");
        static const struct {
            enum reply_how how;
            size_t at;
            unsigned char flip;
        } forgeries[] = { { REPLY_WRONG_ID, 1, 1 }, { REPLY_WRONG_CASE, 13, 0x20 }, { REPLY_OTHER_NAME, 13, 1 } };
        for (size_t k = 0; k < 3; k++) {
            if (!(r->how & (unsigned)forgeries[k].how))
                continue;
            forged[forgeries[k].at] ^= forgeries[k].flip;
            send_to(to, forged, forged_n);
            forged[forgeries[k].at] ^= forgeries[k].flip;
        }
        if (r->how & REPLY_ONLY_FORGED)
            return;
        if (r->how & REPLY_CUT && !tcp) {
            out[2] |= 2;
            memset(out + 6, 0, 6);
            size = question_n;
        }
        if (r->how & REPLY_GARBAGE)
            size -= 2;
        send_to(to, out, size);
        return;
    }
    send_to(to, out, make_reply(out, q, question_n, 5, NULL));
}

struct udp_peer {
    int fd;
    struct sockaddr_in sa;
};
static inline void udp_send(void *to, const unsigned char *p, size_t n)
{
    struct udp_peer *peer = to;
    (void)!sendto(peer->fd, p, n, 0, (struct sockaddr *)&peer->sa, sizeof peer->sa);
}
static inline void tcp_send(void *to, const unsigned char *p, size_t n)
{
    unsigned char len[2];
    put16(len, (unsigned)n);
    int fd = ((struct server_client *)to)->watch.fd;
    (void)!send(fd, len, 2, MSG_NOSIGNAL);
    (void)!send(fd, p, n, MSG_NOSIGNAL);
}

static inline void on_server_udp(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct dns_server_fake *s = (struct dns_server_fake *)w;
    unsigned char q[2048];
    struct udp_peer peer = { .fd = w->fd };
    socklen_t sn = sizeof peer.sa;
    ssize_t n = recvfrom(w->fd, q, sizeof q, 0, (struct sockaddr *)&peer.sa, &sn);
    if (n > 0)
        server_answer(s, q, (size_t)n, ntohs(peer.sa.sin_port), false, udp_send, &peer);
}

static inline void on_server_tcp(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct server_client *c = (struct server_client *)w;
    ssize_t n = recv(w->fd, c->in + c->n, sizeof c->in - c->n, 0);
    if (n <= 0) {
        watch_del(w);
        close(w->fd);
        w->fd = -1;
        return;
    }
    c->n += (size_t)n;
    if (c->n < 2 || c->n < 2u + (unsigned)(c->in[0] << 8 | c->in[1]))
        return;
    server_answer(c->server, c->in + 2, c->n - 2, 0, true, tcp_send, c);
    c->n = 0;
}

static inline void on_server_accept(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct dns_server_fake *s = (struct dns_server_fake *)((char *)w - offsetof(struct dns_server_fake, listener));
    int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < SERVER_CLIENTS; i++)
        if (s->clients[i].watch.fd < 0) {
            s->clients[i] =
                (struct server_client) { .watch = { .fd = fd, .events = EPOLLIN, .cb = on_server_tcp }, .server = s };
            watch_add(s->loop, &s->clients[i].watch);
            return;
        }
    if (fd >= 0)
        close(fd);
}

static inline void server_start(struct dns_server_fake *s, struct loop *l, const char *ip, uint16_t port,
                                const struct reply *script, size_t rows)
{
    memset(s, 0, sizeof *s);
    s->loop = l;
    s->script = script;
    s->rows = rows;
    for (size_t i = 0; i < SERVER_CLIENTS; i++)
        s->clients[i].watch.fd = -1;
    for (int tries = 0; tries < 50; tries++) {
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
        socklen_t n = sizeof sa;
        inet_pton(AF_INET, ip, &sa.sin_addr);
        int u = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int t = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
        setsockopt(t, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(u, (struct sockaddr *)&sa, n) == 0 && getsockname(u, (struct sockaddr *)&sa, &n) == 0 &&
            bind(t, (struct sockaddr *)&sa, n) == 0 && listen(t, 16) == 0) {
            s->port = ntohs(sa.sin_port);
            s->udp = (struct watch) { .fd = u, .events = EPOLLIN, .cb = on_server_udp };
            s->listener = (struct watch) { .fd = t, .events = EPOLLIN, .cb = on_server_accept };
            watch_add(l, &s->udp);
            watch_add(l, &s->listener);
            return;
        }
        close(u);
        close(t);
    }
    abort();
}

static inline void server_stop(struct dns_server_fake *s)
{
    struct watch *own[] = { &s->udp, &s->listener };
    for (size_t i = 0; i < 2; i++) {
        watch_del(own[i]);
        close(own[i]->fd);
    }
    for (size_t i = 0; i < SERVER_CLIENTS; i++)
        if (s->clients[i].watch.fd >= 0) {
            watch_del(&s->clients[i].watch);
            close(s->clients[i].watch.fd);
        }
}

#endif
