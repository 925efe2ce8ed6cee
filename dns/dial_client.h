/* SPDX-License-Identifier: Apache-2.0
 *
 * dial_client: a worker's way to a connected socket. The resolver decides again, on its own snapshot, whether (agent,
 * host, port) may be reached, resolves, vets every address, dials (happy eyeballs, RFC 8305) and hands over the
 * connected descriptor: the address vetted is the address dialled. A worker cannot connect by itself. Never calls back
 * on the caller's stack.
 *
 * Messages on the worker<->resolver channel (base/msg):
 *   DIAL (1)        worker -> resolver  str agent, str rule ("" none: observe), str host, u16 port, u32 timeout_ms, u8
 * via (0 origin, 1 the parent proxy), str conn_id, str request_id DIAL_CANCEL (2) worker -> resolver  (id of the DIAL)
 *   DIALLED (3)     resolver -> worker  u16 end (enum end; END_OK with one descriptor), str addr ("192.0.2.1:443"), str
 * why, str dns_id, u32 resolve_ms, u32 connect_ms */
#ifndef DNS_DIAL_CLIENT_H
#define DNS_DIAL_CLIENT_H

#include "base/err.h"
#include "base/loop.h"
#include "base/msg.h"
#include "policy/policy.h"

enum dial_msg { DIAL = 1, DIAL_CANCEL = 2, DIALLED = 3 };

struct dial_client;
struct dial_wait;

struct dial_request {
    struct str agent, rule; /* rule: name, or STR_NONE */
    const struct host *host;
    uint16_t port;
    uint32_t timeout_ms;
    bool via_parent; /* dial origin.parent_proxy instead; host and port are still judged */
    struct str conn_id, request_id;
};
struct dial_result {
    enum end end; /* END_OK, HOST_DENIED, ADDRESS_DENIED, ORIGIN_DNS, ORIGIN_CONNECT, ORIGIN_TIMEOUT, RATE_LIMITED */
    int fd;       /* with END_OK: non-blocking, TCP_NODELAY; the callee owns it */
    struct str addr, why, dns_id;
    uint32_t resolve_ms, connect_ms;
};

struct dial_client *dial_client_new(struct loop *l, struct err *err);
void dial_client_free(struct dial_client **c);
/* The (new) channel to the resolver; takes fd. Requests in flight on an old one are sent again, once. */
int dial_client_connect(struct dial_client *c, int fd, struct err *err);
/* cb exactly once on a later stack unless cancelled. NULL when out of memory (nothing will be called). */
struct dial_wait *dial_start(struct dial_client *c, const struct dial_request *r,
                             void (*cb)(void *ctx, const struct dial_result *res), void *ctx);
/* Also closes a descriptor that comes too late. Leaves NULL. */
void dial_cancel(struct dial_wait **w);

#endif
