/* SPDX-License-Identifier: Apache-2.0
 *
 * client_tls: our side of an intercepted TLS connection. One context for all; the leaf is put in by a callback once the
 * ClientHello is whole and its server name is the CONNECT name (else alert `unrecognized_name`). Tickets are made under the
 * supervisor's keys and bound to (agent, name): a ticket of one agent or name is no ticket for another. TLS 1.2 and 1.3,
 * no early data, no renegotiation. ALPN: h2 inside a tunnel, and http/1.1, said only to a client that offered it; a client that offers
 * only other protocols gets `no_application_protocol`. */
#ifndef PROXY_CLIENT_TLS_H
#define PROXY_CLIENT_TLS_H

#include "base/err.h"
#include "ca/leaf_cache.h"
#include "policy/host.h"
#include "proxy/worker.h"

#include <openssl/ssl.h>

struct client_tls;
struct client_tls *client_tls_new(struct leaf_cache *leaves, struct err *err);
void client_tls_free(struct client_tls **t);
void client_tls_set_keys(struct client_tls *t, const struct ticket_key *keys, size_t n);

/* What one handshake must know and what it finds out; lives in the client connection. */
struct client_tls_job {
    struct client_tls *tls;
    const struct host *host;  /* NULL: a tls: listener, any of `names` */
    struct str agent;         /* bound into tickets */
    const struct config *config; /* for listen.names */
    struct host reached;         /* a tls: listener: the address the client came to; zero: not known */
    bool refusal;             /* a short-lived leaf will do */
    bool hello;               /* out: a whole ClientHello within limits.hello_bytes came */
    bool name_mismatch;       /* out: the ClientHello named another host */
    bool no_leaf;             /* out: the ca gave none */
    char sni[256];            /* out: what it named (escaped), "" none */
    struct leaf_wait *wait;
    void (*resume)(void *ctx); /* called on a later stack when a leaf came */
    void *ctx;
};
/* A server object; job must outlive it or be cleared with client_tls_forget. NULL: out of memory. */
SSL *client_tls_start(struct client_tls *t, struct client_tls_job *job);
/* Did the handshake agree on HTTP/2? */
bool client_tls_h2(const SSL *ssl);
void client_tls_forget(SSL *ssl, struct client_tls_job *job);

#endif
