/* SPDX-License-Identifier: Apache-2.0
 *
 * resolver: the role that turns (agent, host, port) into a connected socket for a worker: policy again, fixed hosts,
 * cache, c-ares upstream, every address vetted, happy eyeballs. A name that policy denies causes no packet. Emits `dns`
 * events. The DNS port is served here too (dns/responder.h). */
#ifndef DNS_RESOLVER_H
#define DNS_RESOLVER_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"
#include "dns/canary.h"
#include "dns/virtual_table.h"
#include "policy/policy.h"

struct resolver;
/* resolv_conf: bytes of /etc/resolv.conf as the supervisor read them (for the upstream `system`). canary: pieces of all
 * placeholders, a reference of its own is taken; NULL: there are none. budget_fd: where what was spent on names is kept
 * (dns/budget_file.h), taken also on failure; -1: nowhere. sink is borrowed. */
struct resolver *resolver_new(struct loop *l, struct policy *p, struct str resolv_conf, struct canary *canary,
                              int budget_fd, struct sink *sink, struct err *err);
void resolver_free(struct resolver **r);
/* The next dial uses the new snapshot. */
void resolver_set_policy(struct resolver *r, struct policy *p, struct str resolv_conf, struct canary *canary);
/* By whom DNS servers over TLS prove who they are: origin.ca_file of the policy, system_roots being the PEM of the
 * system's, never own_ca. Said after resolver_new and after each resolver_set_policy; without it such a server is asked
 * nothing. 0, or -1: the trust store is empty or cannot be read. */
int resolver_set_trust(struct resolver *r, struct str system_roots, struct str own_ca, struct err *err);
/* The table for addresses of resolver.synthetic.pool, mapped for writing; a reference of its own is taken. NULL: there is
 * none. 0 or -1: out of memory. */
int resolver_set_names(struct resolver *r, struct virtual_table *t, struct err *err);
/* Serves one worker; takes fd. */
int resolver_add_worker(struct resolver *r, unsigned index, int fd, struct err *err);
/* Serves the DNS port on these sockets; takes both, also on failure. A text that is there already is replaced. */
int resolver_add_listener(struct resolver *r, struct str text, int tcp_fd, int udp_fd, struct err *err);
void resolver_drop_listener(struct resolver *r, struct str text);
/* Addresses our own listeners are bound to (copied). */
void resolver_set_own(struct resolver *r, const struct own_addresses *own);

#endif
