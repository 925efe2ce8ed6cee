/* SPDX-License-Identifier: Apache-2.0
 *
 * resolv_conf: the servers of a resolv.conf (resolv.conf(5)) and the one option that is honoured, use-vc. No search
 * list, no ndots, no sortlist: a name is looked up as it is written or not at all; time-outs are ours. Pure. */
#ifndef DNS_RESOLV_CONF_H
#define DNS_RESOLV_CONF_H

#include "policy/host.h"

enum { DNS_SERVERS_MAX = 6 };

struct dns_server {
    struct ip ip;
    uint16_t port;
    bool tcp;               /* only ever asked over TCP */
    const struct host *tls; /* only ever asked over TLS, and must prove to be this (borrowed); NULL: in the clear */
};

static inline bool dns_server_eq(const struct dns_server *a, const struct dns_server *b)
{
    return ip_equal(&a->ip, &b->ip) && a->port == b->port && a->tcp == b->tcp && !a->tls == !b->tls &&
           (!a->tls || host_eq(a->tls, b->tls));
}

struct resolv_conf {
    struct dns_server servers[DNS_SERVERS_MAX];
    size_t n;
    unsigned skipped; /* nameserver lines that are no address (a zone id, a name) or are past the maximum */
};

void resolv_conf_parse(struct str text, struct resolv_conf *ret);

#endif
