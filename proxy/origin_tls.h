/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_tls: how an origin proves who it is: TLS 1.2 or 1.3 with forward secrecy and authenticated encryption, a chain
 * to the configured roots (never to our own CA, even where that stands in the system store), server purpose, the
 * checked name in the subject alternative names (no CN fallback, no partial wildcards) or the address as an IP SAN, and
 * then what origin_chain asks of the chain. Sessions are resumed per pool key, bounded, only under the trust store they
 * were made with, and not past the end of a certificate of the chain that was verified. */
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
/* Why the certificate was refused, without any text of the peer: "self-signed certificate", "the host's certificate is
 * a CA's (…)". Written to out, which is returned; NULL: it was not refused. */
const char *origin_tls_why(SSL *ssl, char *out, size_t size);

#endif
