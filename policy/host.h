/* SPDX-License-Identifier: Apache-2.0
 *
 * host: the one canonical form of a host name or address literal, used for policy, DNS, SNI, verification, Host and the
 * log alike: lower case, A-labels, no trailing dot; numeric forms of addresses are addresses. Strict: non-LDH bytes
 * (an underscore is let through: real hosts use it), empty or over-long labels, percent signs, zone ids, and names whose
 * last label is numeric without being an address are errors. */
#ifndef POLICY_HOST_H
#define POLICY_HOST_H

#include "base/err.h"
#include "base/str.h"
#include "policy/ip.h"

enum { HOST_MAX = 253 };

struct host {
    char name[HOST_MAX + 1]; /* NUL-terminated; an IPv6 address without brackets, canonical text */
    uint8_t n;
    struct ip ip; /* family 0 for a name */
};

static inline struct str host_str(const struct host *h)
{
    return str_of(h->name, h->n);
}
static inline bool host_is_ip(const struct host *h)
{
    return h->ip.family != 0;
}
static inline bool host_eq(const struct host *a, const struct host *b)
{
    return str_eq(host_str(a), host_str(b));
}

/* A name or bare address as it stands on the wire (SNI, SOCKS5 name). 0 or -1 with the reason. */
int host_parse(struct str text, struct host *ret, struct err *err);
/* As host_parse for what an operator wrote: U-labels are converted (IDNA2008 by libidn2); *ret_converted says so. */
int host_parse_config(struct str text, struct host *ret, bool *ret_converted, struct err *err);
/* "host", "host:port", "[v6]:port" of CONNECT, Host and absolute-form. dflt is the port when none is written; 0: a port
 * is required. User info, empty port, port 0 or over 65535: -1. */
int authority_parse(struct str text, uint16_t dflt, struct host *ret_host, uint16_t *ret_port, struct err *err);
/* "host" or "host:port" with IPv6 in brackets; the port is left out when it equals omit. */
struct buf;
int authority_put(struct buf *out, const struct host *h, uint16_t port, uint16_t omit);

#endif
