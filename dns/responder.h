/* SPDX-License-Identifier: Apache-2.0
 *
 * responder: what the DNS port says. For each question, in this order: read it, know whose it is, count it against
 * limits.dns_rate, judge its name by policy (dns/name_ruling.h) and for the data in it (dns/name_guard.h), look it up
 * where an answer needs that, record it, answer. Nothing is answered that the log has not taken: then SERVFAIL. Whoever
 * is no agent is refused in as many bytes as it sent. A synthetic answer costs no packet of ours, and with
 * resolver.synthetic.pool the name has an address of its own (dns/virtual_names.h); with
 * resolver.answer: forward the name alone goes on (dns/lookup.h asks it anew: own id, own case, none of the client's
 * options), and what comes back is vetted as for a dial: addresses that may not be dialled are left out, aliases are
 * followed and not shown. */
#ifndef DNS_RESPONDER_H
#define DNS_RESPONDER_H

#include "dns/dns_log.h"
#include "dns/lookup.h"
#include "dns/name_guard.h"
#include "dns/snapshot.h"
#include "dns/virtual_names.h"

struct responder;
/* All but l are borrowed. */
struct responder *responder_new(struct loop *l, struct lookups *lookups, struct name_guard *guard, struct dns_log *log,
                                const struct own_addresses *own, struct err *err);
/* Questions that wait are told, and not answered. */
void responder_free(struct responder **r);
/* Takes a reference of its own. Before the first listener. */
void responder_set_snapshot(struct responder *r, struct snapshot *s);
/* Who gives addresses of resolver.synthetic.pool; borrowed until the next call. NULL: nobody, then SERVFAIL. */
void responder_set_names(struct responder *r, struct virtual_names *names);
/* Takes both descriptors, also on failure. */
int responder_add_listener(struct responder *r, struct str text, int tcp_fd, int udp_fd, struct err *err);
void responder_drop_listener(struct responder *r, struct str text);

#endif
