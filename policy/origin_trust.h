/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_trust: how a TLS server proves who it is, whether a worker asks it for pages or the resolver for names:
 * TLS 1.2 or 1.3 with forward secrecy and authenticated encryption, a chain to the configured roots (never to our own
 * CA, even where that stands in the system store), server purpose, the checked name in the subject alternative names
 * (no CN fallback, no partial wildcards) or the address as an IP SAN, and then what origin_chain asks of the chain.
 * Opens no file: the roots are bytes of the snapshot. Keeps no sessions: whoever resumes one asks for the proof that
 * came with it. */
#ifndef POLICY_ORIGIN_TRUST_H
#define POLICY_ORIGIN_TRUST_H

#include "base/err.h"
#include "base/str.h"
#include "policy/origin_chain.h"
#include "policy/policy.h"

#include <openssl/ssl.h>

/* What the chain of one connection was found to be. */
struct origin_proof {
    struct chain_verdict verdict;
    int64_t until; /* when a certificate of the chain that was verified ends, seconds since 1970; 0: none was */
};

/* The context of one snapshot. NULL: an empty trust store or an unreadable file (the message names it). */
SSL_CTX *origin_trust_new(const struct policy *p, struct str system_roots, struct str own_ca, struct err *err);
/* ssl, of such a context, must prove at the time now_s that it is this host. The host must outlive the call only; proof
 * must outlive ssl. 0, or -1: out of memory. */
int origin_trust_expect(SSL *ssl, const struct host *host, struct origin_proof *proof, int64_t now_s);
/* Why the certificate was refused, without any text of the peer: "self-signed certificate", "the host's certificate is
 * a CA's (…)". Written to out, which is returned; NULL: it was not refused. */
const char *origin_trust_why(SSL *ssl, char *out, size_t size);

#endif
