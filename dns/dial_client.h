/* SPDX-License-Identifier: Apache-2.0
 *
 * dial_client: a worker's way to a connected socket. The resolver decides again, on its own snapshot, whether (agent,
 * host, port) may be reached, resolves, vets every address, dials (happy eyeballs, RFC 8305) and hands over the
 * connected descriptor: the address vetted is the address dialled. A worker cannot connect by itself. Never calls back
 * on the caller's stack.
 *
 * Messages on the worker<->resolver channel (base/msg), fields in this order:
 *
 *   DIAL (1), worker -> resolver: str agent; str rule ("": none, observe mode); str host; u16 port; u32 timeout_ms;
 *     u8 via (0 origin, 1 the parent proxy); str client; str conn_id; str request_id
 *
 *   DIAL_CANCEL (2), worker -> resolver: empty; the id of the DIAL
 *
 *   DIALLED (3), resolver -> worker: u16 end (enum end; END_OK comes with one descriptor); str addr ("192.0.2.1:443");
 *     str why; str dns_id; str finding (its class, "": none); u32 resolve_ms; u32 connect_ms
 *
 * agent and rule have at most 128 bytes, client 64, conn_id and request_id 32. The resolver closes the channel of a worker that
 * sends anything else, reuses the id of a dial under way, or sends a descriptor. */
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
    struct str client, conn_id, request_id;
};
struct dial_result {
    /* END_OK, HOST_DENIED (whatever the policy said), ADDRESS_DENIED, ORIGIN_DNS, ORIGIN_DNS_SERVERS, ORIGIN_CONNECT, ORIGIN_TIMEOUT,
     * EXFILTRATION_NAME, RATE_LIMITED, AUDIT_UNAVAILABLE (the name would have to be looked up and the log cannot take the record) */
    enum end end;
    int fd; /* with END_OK: non-blocking, TCP_NODELAY, keep-alive; the callee owns it; else -1 */
    /* addr: what was dialled, "192.0.2.1:443"; via the parent: the vetted address of the target, "" where the parent resolves */
    struct str addr, why,
        dns_id; /* borrowed for the call; dns_id: the look-up that gave the address, or the refusal in its place, "" where there is none */
    const char *finding; /* class of the finding about the name, static; NULL: none */
    uint32_t resolve_ms, connect_ms;
};

struct dial_client *dial_client_new(struct loop *l, struct err *err);
void dial_client_free(struct dial_client **c);
/* The (new) channel to the resolver; takes fd. Requests in flight on an old one are sent again, once. */
int dial_client_connect(struct dial_client *c, int fd, struct err *err);
/* cb exactly once on a later stack unless cancelled; the wait is gone by then: forget the pointer. With no channel it
 * waits for one. Also ends by itself, two seconds after timeout_ms (0: the resolver uses limits.connect_timeout), when
 * no resolver answers. NULL when out of memory (nothing will be called). */
struct dial_wait *dial_start(struct dial_client *c, const struct dial_request *r,
                             void (*cb)(void *ctx, const struct dial_result *res), void *ctx);
/* Also closes a descriptor that comes too late. Leaves NULL. */
void dial_cancel(struct dial_wait **w);

#endif
