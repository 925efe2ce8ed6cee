/* SPDX-License-Identifier: Apache-2.0
 *
 * resolv_conf: the servers of a resolv.conf (resolv.conf(5)) and the one option that is honoured, use-vc. No search
 * list, no ndots, no sortlist: a name is looked up as it is written or not at all; time-outs are ours. Pure. */
#ifndef DNS_RESOLV_CONF_H
#define DNS_RESOLV_CONF_H

#include "policy/ip.h"

enum { DNS_SERVERS_MAX = 6 };

struct dns_server {
    struct ip ip;
    uint16_t port;
    bool tcp; /* only ever asked over TCP */
};

struct resolv_conf {
    struct dns_server servers[DNS_SERVERS_MAX];
    size_t n;
    unsigned skipped; /* nameserver lines that are no address (a zone id, a name) or are past the maximum */
};

void resolv_conf_parse(struct str text, struct resolv_conf *ret);

#endif
