/* SPDX-License-Identifier: Apache-2.0
 *
 * connector: one connected TCP socket out of several addresses (happy eyeballs, RFC 8305): families alternate, IPv6
 * first; a new attempt starts 250 ms after the last one or as soon as one fails; the first that connects wins, the
 * others are closed. Every address is judged twice more: as the sockaddr that goes into connect(), and as what
 * getpeername() says of the winner. Never calls back on the caller's stack. */
#ifndef DNS_CONNECTOR_H
#define DNS_CONNECTOR_H

#include "base/loop.h"
#include "policy/end.h"
#include "policy/ip.h"

enum { CONNECTOR_ADDRESSES = 8, CONNECTOR_DELAY_MS = 250 };

struct connector;
struct connector_result {
    enum end end;    /* END_OK, END_ADDRESS_DENIED, END_ORIGIN_CONNECT, END_ORIGIN_TIMEOUT */
    int fd;          /* with END_OK: non-blocking, TCP_NODELAY, keep-alive; the callee owns it */
    struct ip ip;    /* with END_OK: its peer; with END_ADDRESS_DENIED: the one refused */
    const char *why; /* static */
};
struct connector_ops {
    /* May this address be connected to? END_OK or END_ADDRESS_DENIED with static words. */
    enum end (*vet)(void *ctx, const struct ip *ip, uint16_t port, const char **ret_why);
    void (*done)(void *ctx, const struct connector_result *r);
};

/* Picks at most CONNECTOR_ADDRESSES of `ips`, families alternating, IPv6 first, each family in its order. Returns how
 * many. */
size_t connector_order(const struct ip *ips, size_t n, struct ip ret[CONNECTOR_ADDRESSES]);

/* ips as connector_order gives them. done exactly once unless cancelled; no later than timeout_ms. NULL when out of
 * memory. */
struct connector *connector_start(struct loop *l, const struct ip *ips, size_t n, uint16_t port, uint64_t timeout_ms,
                                  const struct connector_ops *ops, void *ctx);
/* Closes everything. Leaves NULL. */
void connector_cancel(struct connector **c);

#endif
