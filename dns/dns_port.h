/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_port: the sockets of listen.dns: questions in, answers out, over UDP (in batches) and TCP (RFC 7766: any number
 * of questions on a connection, answers in whatever order). Knows no name and no agent: whoever answers gets the
 * message and where it came from. An answer comes from the address that was asked, also on a socket bound to all of
 * them. Nothing here waits: a datagram that finds no room is lost, as datagrams are; a TCP client that does not read is
 * read from no more and closed in limits.dns_idle_timeout. */
#ifndef DNS_DNS_PORT_H
#define DNS_DNS_PORT_H

#include "base/err.h"
#include "base/limits.h"
#include "base/loop.h"
#include "policy/ip.h"

#include <sys/socket.h>

/* Where a question came from, which is where its answer goes. A value: it may outlive listener and connection. */
struct dns_peer {
    struct ip client;
    uint64_t listener; /* number */
    uint64_t stream;   /* number of the TCP connection; 0: UDP */
    struct str text;   /* of the listener, as written; for the call that brings the peer */
    struct sockaddr_storage from;
    struct ip local; /* family 0: the socket's own */
    unsigned interface;
};

struct dns_port;
struct dns_port_ops {
    /* Answers a message into out (room for max bytes): its length; 0: no answer; DNS_LATER: one dns_port_answer or
     * dns_port_no_answer follows, on another stack. */
    size_t (*message)(void *ctx, const struct dns_peer *from, struct str message, unsigned char *out, size_t max);
};
#define DNS_LATER SIZE_MAX

struct dns_port *dns_port_new(struct loop *l, const struct dns_port_ops *ops, void *ctx, struct err *err);
void dns_port_free(struct dns_port **p);
void dns_port_set_limits(struct dns_port *p, const struct limits *limits);
/* Takes both descriptors, also on failure. A text that is there already is replaced. */
int dns_port_add(struct dns_port *p, struct str text, int tcp_fd, int udp_fd, struct err *err);
/* Its connections end with it. */
void dns_port_drop(struct dns_port *p, struct str text);

/* For DNS_LATER. Whoever is gone gets nothing. */
void dns_port_answer(struct dns_port *p, const struct dns_peer *to, const unsigned char *bytes, size_t n);
void dns_port_no_answer(struct dns_port *p, const struct dns_peer *to);

#endif
