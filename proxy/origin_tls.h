/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_tls: a worker's connections to origins: the proof that an origin owes is policy/origin_trust.h, unchanged; here
 * are what is offered (HTTP/1.1, HTTP/2) and sessions, which are resumed per pool key, bounded, only under the trust
 * store they were made with, and not past the end of a certificate of the chain that was verified. */
#ifndef PROXY_ORIGIN_TLS_H
#define PROXY_ORIGIN_TLS_H

#include "base/err.h"
#include "base/str.h"
#include "policy/policy.h"

#include <openssl/ssl.h>

/* The context of one snapshot. NULL: an empty trust store or an unreadable file (the message names it). */
SSL_CTX *origin_tls_new(const struct policy *p, struct str system_roots, struct str own_ca, struct err *err);

struct session_cache;
struct session_cache *session_cache_new(size_t max);
void session_cache_free(struct session_cache **c);

/* A client connection object for this host that offers HTTP/1.1, and before it HTTP/2 where h2 says so; sessions are looked up and kept under
 * `key` (copied) and the offer, since a session is one of the protocol that was chosen. The host must outlive the call only. NULL: out of
 * memory. */
SSL *origin_tls_start(SSL_CTX *ctx, const struct host *host, bool h2, struct session_cache *c, struct str key);

#endif
