/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: idle origin connections, kept by (view, agent, scheme, name, port, credentials, the rule where it allows
 * addresses of its own): a connection that carried one agent's credential never serves another agent, another
 * credential or another snapshot, nor one to an address that a rule permitted a request of another rule. The address
 * is the one dialled for that name when the connection was made; the entry lives a minute at most without use, so a changed name is looked
 * up soon. Bounded in all, per key, and in time; the least recently used goes first. Idle connections are read: a close
 * or an unsolicited byte discards them. An HTTP/2 connection is found here also while it carries exchanges, as long as it has room for
 * another; it is never shared beyond its key, nor used for another name that its certificate may have. */
#ifndef PROXY_POOL_H
#define PROXY_POOL_H

#include "proxy/exchange.h"

struct pool;
struct pool *pool_new(struct worker *w);
void pool_free(struct pool **p);
/* Gives x a connection that fits: an idle one, or a stream of one (x->origin and x->oops are set); false: none. */
bool pool_take(struct exchange *x);
/* Keeps an idle connection, or closes it when there is no room. */
void pool_put(struct pool *p, struct origin *o);
/* A new HTTP/2 connection: it may be found. */
void pool_list(struct pool *p, struct origin *o);
/* It ended or is being closed: forget it, where it is known at all. */
void pool_drop(struct pool *p, struct origin *o);
/* Everything of older views. */
void pool_flush(struct pool *p);
/* Closes the n least recently used: descriptors are needed. */
void pool_shed(struct pool *p, size_t n);
/* Connections without traffic for WORKER_REST_MS give their TLS buffers back: pool_rest those that are idle, origin_rest one that an
 * exchange holds. True: they rest (all of them). */
bool pool_rest(struct pool *p);
bool origin_rest(struct origin *o);
size_t pool_size(const struct pool *p);
/* The key of x's connections, appended to out. */
void pool_key(const struct exchange *x, struct buf *out);
/* A new connection for x on a connected socket (taken): TLS where the scheme says so, then exchange_origin_ready or
 * exchange_origin_failed. 0, or -1: out of memory (fd is closed). */
int origin_open(struct exchange *x, int fd);

#endif
