/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_chain: what a certificate chain must be beyond what OpenSSL's X509_verify_cert asks for. A pure function of a
 * chain that OpenSSL has built and verified already (signatures, dates, critical extensions, CA flags, path lengths,
 * name constraints, purpose, the host's name): it only ever refuses more. What it refuses, and where that is written,
 * is the table origin_chain.def. It asks for no revocation, no certificate transparency, no public suffix of a
 * wildcard, and lets an underscore in a name through: real hosts have it.
 *
 * Four kinds of certificates stand in a chain, and not every rule is for each.
 *
 * The host's own: every rule. Without an extended key usage it passes (RFC 5280 4.2.1.12: then any purpose is meant;
 * private CAs issue such).
 *
 * Intermediates: every rule. Signatures and keys are judged by an allow-list, not by strength alone.
 *
 * A root that the operator named (origin.ca_file): every rule but those about its signature, which nobody relies on,
 * and about a missing key usage, which older private roots lack.
 *
 * A root of the system's store: only that it is of version 3 and a CA, its key, its algorithms and extensions that
 * cannot be read. The system vouches for those as they are, and a dozen of them are older than RFC 5280 (serial 0,
 * basic constraints that are not critical).
 *
 * A certificate that is the host's and stands in origin.ca_file itself may be a CA's: it was named, not found. */
#ifndef POLICY_ORIGIN_CHAIN_H
#define POLICY_ORIGIN_CHAIN_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chain_fault {
    CHAIN_FINE,
#define CHAIN(name, what, where) CHAIN_##name,
#include "policy/origin_chain.def"
#undef CHAIN
    CHAIN_FAULTS
};

struct chain_verdict {
    enum chain_fault fault;
    const char *extension; /* its short name where the fault is one extension's; NULL otherwise */
    enum chain_place { CHAIN_HOST, CHAIN_INTERMEDIATE, CHAIN_ROOT } place;
};

/* A root as the system's store has it; said once, before the certificate is used. 0, or -1: out of memory. */
int origin_chain_system_root(X509 *root);

/* From the host's certificate to the root, as X509_STORE_CTX_get0_chain gives it. */
struct chain_verdict origin_chain_check(STACK_OF(X509) * chain);

/* Of any certificate that an origin sent, and before OpenSSL's verification, which leaks memory over what is refused here (its
 * policy cache, OpenSSL 3.0): one that constrains policies names some, each once. */
bool origin_chain_policies_fit(X509 *cert);

/* The earliest end of a certificate of the chain, seconds since 1970. */
int64_t origin_chain_until(STACK_OF(X509) * chain);

/* "an intermediate certificate has an extension twice (keyUsage; RFC 5280 4.2)": our words alone. Returns out. */
const char *origin_chain_say(const struct chain_verdict *v, char *out, size_t size);

/* "NO_AKI": for tests and for who looks a fault up in the table. */
const char *origin_chain_name(enum chain_fault f);

#endif
