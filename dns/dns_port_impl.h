/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_port_impl: what the files of the DNS port share: dns_port.c has the listeners and UDP, dns_stream.c TCP. */
#ifndef DNS_DNS_PORT_IMPL_H
#define DNS_DNS_PORT_IMPL_H

#include "base/buf.h"
#include "dns/answer.h"
#include "dns/dns_port.h"

enum { PORT_BATCH = 32, STREAM_SLOTS = 1024 /* power of two */ };

struct dns_listener {
    struct dns_port *port;
    struct dns_listener *next;
    uint64_t number;
    struct watch udp, tcp;
    struct timer paused; /* of accepting: there was no descriptor */
    bool wildcard;       /* bound to every address */
    size_t n;
    char text[];
};

struct dns_stream {
    struct dns_listener *listener;
    uint64_t number;
    struct dns_stream *chain;
    struct dns_stream *newer, *older; /* in order of use */
    struct watch watch;
    struct timer idle;
    struct task closing;
    struct ip client;
    struct buf in, out;
    size_t waiting; /* questions whose answers come later */
    bool ended;     /* the client sends no more */
};

struct dns_port {
    struct loop *loop;
    const struct dns_port_ops *ops;
    void *ctx;
    uint64_t last_number;
    uint64_t connections, connections_per_client, idle_ms, pipelined;
    struct dns_listener *listeners;
    struct dns_stream *streams[STREAM_SLOTS];
    struct dns_stream *newest, *oldest;
    size_t nstreams;
    unsigned char answer[ANSWER_TCP_BYTES]; /* of one TCP question */
    struct {
        struct mmsghdr in[PORT_BATCH], out[PORT_BATCH];
        struct iovec in_iov[PORT_BATCH], out_iov[PORT_BATCH];
        struct sockaddr_storage from[PORT_BATCH];
        unsigned char in_bytes[PORT_BATCH][QUERY_BYTES_MAX + 1]; /* one more, to tell what is longer */
        unsigned char out_bytes[PORT_BATCH][QUERY_UDP_BYTES];
        _Alignas(8) unsigned char in_control[PORT_BATCH][64], out_control[PORT_BATCH][64];
    } batch;
};

/* dns_stream.c */
void dns_streams_accept(struct watch *w, uint32_t revents);               /* watch: a listener's tcp */
void dns_streams_drop(struct dns_port *p, const struct dns_listener *of); /* NULL: all */
struct dns_stream *dns_stream_find(struct dns_port *p, uint64_t number);
/* bytes: of an answer that came later; n 0: there is none. */
void dns_stream_answer(struct dns_stream *s, const unsigned char *bytes, size_t n);

#endif
