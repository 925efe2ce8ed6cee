/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_tls: carries questions to servers that are asked over TLS (RFC 7858), in the strict profile of RFC 8310: a
 * server gets no question before it has proved to be who the configuration says (policy/origin_trust.h), and nothing
 * that goes wrong with it leads to a question in the clear. It is not the order of steps (upstream.c), nor the trust
 * store.
 *
 * One connection to a server for each owner, made when there is something to ask, kept for thirty seconds at rest; many questions
 * under way on it (pipeline.h). Letter case is not drawn: nobody but the server could forge an answer. A server that
 * cannot be reached, does not prove itself or breaks the protocol is left alone for a second, two, four … thirty, and
 * the next of the step is asked. One that is silent about a name loses its connection only if nothing else came on it,
 * for what name is asked is up to others; where the next one knows an answer, that one comes first for thirty seconds.
 * When a connection is closed with questions under way, they are asked once more, on a new one: that too may be for what one of them
 * asks, so owners have none in common.
 *
 * Memory: at most one connection for each owner to each of DNS_SERVERS_MAX servers takes questions, some 50 KB of OpenSSL's and what
 * pipeline.h says; ones of before a reload go on until their questions end. Opens no file. */
#ifndef DNS_UPSTREAM_TLS_H
#define DNS_UPSTREAM_TLS_H

#include "dns/upstream_leg.h"

#include <openssl/ssl.h>

struct upstream_tls;

/* A server has PATIENCE (3) times try_ms for a connection to be ready, and for an answer. NULL: out of memory. */
struct upstream_tls *upstream_tls_new(struct loop *l, unsigned try_ms);
/* No leg may be held. */
void upstream_tls_free(struct upstream_tls **t);
/* By whom servers prove who they are, for connections from now on (a reference is taken); connections of before take no
 * new question. NULL: nobody can. */
void upstream_tls_trust(struct upstream_tls *t, SSL_CTX *ctx);
/* Forgets all servers, for legs that start from now on. */
void upstream_tls_clear(struct upstream_tls *t);
/* The servers of a step, behind those of the steps before; DNS_SERVERS_MAX in all. */
void upstream_tls_set(struct upstream_tls *t, size_t step, const struct dns_server *v, size_t n);
void upstream_tls_start(struct upstream_tls *t, struct upstream_leg *leg);
/* Adds the servers that the leg under way was at to its blame. */
void upstream_tls_blame(struct upstream_leg *leg);
/* Gives the question up; an end that is not there yet does not come. */
void upstream_tls_leave(struct upstream_leg *leg);
/* Answers that came when nobody waited for them any more. */
uint64_t upstream_tls_strays(const struct upstream_tls *t);

#endif
