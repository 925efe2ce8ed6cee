/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: the data path of one process: listeners, client connections, exchanges, origins. Everything it may not do itself
 * comes through a channel: leaves from the ca, leases from the keeper, connected sockets from the resolver; what it did goes
 * into its sink. It opens nothing. The daemon wires it together and hands it new channels when a role was restarted. */
#ifndef PROXY_WORKER_H
#define PROXY_WORKER_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"
#include "dns/virtual_table.h"
#include "mint/placeholder.h"
#include "policy/policy.h"
#include "proxy/run_login.h"

struct worker;

/* What one snapshot gives a worker. Strings are borrowed for the call. */
struct worker_snapshot {
    struct policy *policy;
    struct placeholder_table *placeholders;
    struct str system_roots; /* PEM bundle of the system trust store (used where origin.ca_file lists `system`) */
    struct str own_ca;       /* PEM of our CA: sent with /ca.pem, never trusted for origins */
    struct virtual_table *names; /* of resolver.synthetic.pool; NULL: there is none */
};
struct worker_options {
    unsigned index;
    struct sink *sink; /* borrowed */
};

struct worker *worker_new(struct loop *l, const struct worker_options *o, const struct worker_snapshot *s, struct err *err);
void worker_free(struct worker **w);
/* New snapshot: exchanges that run keep theirs; the next request on any connection uses the new one. 0, or -1: the old one stays. */
int worker_set_snapshot(struct worker *w, const struct worker_snapshot *s, struct err *err);
/* A listening socket (taken). listener is matched by its text against agents' claims and tells kind. May be called again after a reload. */
int worker_add_listener(struct worker *w, const struct config_listener *listener, int fd, struct err *err);
/* Stops accepting on the listener of this text (a reload removed it). */
void worker_drop_listener(struct worker *w, struct str text);
/* (New) channels; the worker takes the descriptor. */
int worker_connect_ca(struct worker *w, int fd, struct err *err);
int worker_connect_keeper(struct worker *w, int fd, struct err *err);
int worker_connect_resolver(struct worker *w, int fd, struct err *err);
/* TLS session ticket keys, made by the supervisor, newest first: each 16 bytes name, 32 AES-256 key, 32 HMAC key. The first encrypts,
 * all decrypt. n is 1 to 3. */
struct ticket_key {
    unsigned char name[16], aes[32], hmac[32];
};
void worker_set_ticket_keys(struct worker *w, const struct ticket_key *keys, size_t n);
/* The logins of every `outgate run` that goes on. A connection that came with one that is gone is refused at its next request. */
void worker_set_run_logins(struct worker *w, const struct run_logins *l);
/* Stops accepting, answers new requests with `draining`, closes idle connections; *worker_idle* becomes true when nothing is open. */
void worker_drain(struct worker *w);
bool worker_idle(const struct worker *w);
/* The CA was rotated. */
void worker_flush_leaves(struct worker *w);

struct worker_stats {
    uint64_t clients, exchanges, requests, refused, pooled, leaves, leases;
};
void worker_stats(const struct worker *w, struct worker_stats *ret);

#endif
