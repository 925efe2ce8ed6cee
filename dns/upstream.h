/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream: asks the configured servers one question, in their order, and hands back what they said. It decides
 * nothing: whoever asks has decided that the name may leave. Neighbours in the list that are asked the same way are a
 * step, and a step that does not help is followed by the next: of servers in the clear (upstream_cares.h) and ones over
 * TLS (upstream_tls.h), which are never asked in the clear.
 *
 * Against forged answers (RFC 5452), each question in the clear goes out alone: on a socket of its own with a port that
 * the kernel draws, with an id and a letter case that we draw; an answer counts only if it comes from that server's
 * address and repeats id and question bit for bit. Opens no file after upstream_new. Never calls back on the caller's
 * stack. */
#ifndef DNS_UPSTREAM_H
#define DNS_UPSTREAM_H

#include "base/err.h"
#include "base/loop.h"
#include "dns/resolv_conf.h"
#include "dns/wire.h"

#include <openssl/ssl.h>

enum upstream_result {
    UPSTREAM_ANSWERED = 1,
    UPSTREAM_TIMEOUT,     /* no server answered in time */
    UPSTREAM_UNREACHABLE, /* no server took the question; one over TLS that did not prove who it is takes none */
    UPSTREAM_BAD,         /* what came was malformed, or not an answer to this question */
    UPSTREAM_BUSY,        /* too many questions are waiting */
};

struct upstream;
struct upstream_query;

/* lanes: questions that can be under way at once in the clear (some 90 KB each; a quarter of them for servers that are
 * asked over TCP only), and as many over TLS. try_ms: how long a server has for its first answer; a second try gets
 * twice that, and one over TLS has the sum for its one. */
struct upstream *upstream_new(struct loop *l, size_t lanes, unsigned try_ms, struct err *err);
/* Queries under way end without a call. */
void upstream_free(struct upstream **u);
/* For questions that start from now on; at most DNS_SERVERS_MAX are used, in this order. Copied. */
void upstream_set_servers(struct upstream *u, const struct dns_server *v, size_t n);
/* By whom servers over TLS prove who they are, from now on (origin_trust_new; a reference is taken). NULL, as at first:
 * none can. */
void upstream_set_trust(struct upstream *u, SSL_CTX *trust);
/* name: canonical. owner: who it is for; one owner never has more than half of what can be under way in one way (UDP,
 * TCP, TLS), and of all queries there are it leaves room for others (base/fair.h). cb exactly once, with an
 * answer only for UPSTREAM_ANSWERED (borrowed). NULL: not a name that can be asked, or out of memory. */
struct upstream_query *upstream_ask(struct upstream *u, struct str name, uint16_t type, uint64_t owner,
                                    void (*cb)(void *ctx, enum upstream_result r, const struct wire_answer *a),
                                    void *ctx);
/* Inside cb, of what did not end in an answer: which servers were asked and why each did not help, for the log; "" where
 * there is nothing to say. */
const char *upstream_why(const struct upstream *u);
/* Somebody else waits for it, too: while it waits for a place, it need not wait behind all others of who asked first. */
void upstream_also(struct upstream_query *q, uint64_t owner);
/* No call will come. Leaves NULL. */
void upstream_cancel(struct upstream_query **q);

struct upstream_stats {
    uint64_t asked, answered, strays; /* strays: packets that were no answer to what was asked */
    size_t active, queued;
};
void upstream_stats(const struct upstream *u, struct upstream_stats *ret);

#endif
