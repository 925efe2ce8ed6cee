/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/origin_trust.h"

#include "base/stream.h"
#include "policy/origin_path.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

static int proof_index = -1; /* of an SSL object's struct origin_proof */

/* --- the chain --- */

/* OpenSSL's own verification (signatures, dates, purpose, name constraints, the host's name), and ours of the chain.
 * Not called for a resumed session: such a one exists because this said yes under the same trust, and it is not used
 * past `until`. */
static int on_verify(X509_STORE_CTX *store, void *arg)
{
    (void)arg;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct origin_proof *proof = SSL_get_ex_data(ssl, proof_index);
    if (!proof || !origin_path_verify(store, &proof->verdict))
        return 0;
    proof->until = origin_chain_until(X509_STORE_CTX_get0_chain(store));
    return 1;
}

/* --- trust --- */

/* Adds every certificate of a PEM bundle but our own CA (same public key). Returns how many were added, or -1. */
static int add_roots(X509_STORE *store, struct str pem, bool system, X509 *own)
{
    int added = 0;
    BIO *b = BIO_new_mem_buf(pem.p, (int)(pem.n > INT32_MAX ? INT32_MAX : pem.n));
    if (!b)
        return -1;
    for (X509 *x; (x = PEM_read_bio_X509_AUX(b, NULL, NULL, NULL)); X509_free(x)) {
        if (own && EVP_PKEY_eq(X509_get0_pubkey(x), X509_get0_pubkey(own)) == 1)
            continue;
        if ((!system || !origin_chain_system_root(x)) && X509_STORE_add_cert(store, x) == 1)
            added++;
    }
    unsigned long e = ERR_peek_last_error();
    bool clean = ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(b);
    return clean || added ? added : -1;
}

static int fill_store(SSL_CTX *ctx, const struct policy *p, struct str system_roots, X509 *own, struct err *err)
{
    const struct config *c = policy_config(p);
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    int total = 0;
    /* The system's store first: of two equal certificates a store keeps the first, and the system vouches for what it
     * has. */
    for (size_t i = 0; i < 2 * c->nca_files; i++) {
        const struct config_ca_file *f = &c->ca_files[i % c->nca_files];
        if (f->system != (i < c->nca_files))
            continue;
        struct str pem = f->system ? system_roots : policy_side_file(p, f->path);
        int n = pem.n ? add_roots(store, pem, f->system, own) : 0;
        if (n < 0 || (n == 0 && !f->system))
            return err_set(
                err, "%.*s:%u:%u: origin.ca_file: expected PEM certificates in %.*s, found none that can be used",
                STR_ARG(c->file), f->at.line, f->at.col, STR_ARG(f->system ? STR("the system store") : f->path));
        total += n;
    }
    if (!total)
        return err_set(
            err, "origin.ca_file: the trust store is empty, so no origin could prove who it is: install the package "
                 "ca-certificates or name a file with root certificates");
    return 0;
}

SSL_CTX *origin_trust_new(const struct policy *p, struct str system_roots, struct str own_ca, struct err *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    X509 *own = NULL;
    if (!ctx) {
        err_set(err, "TLS: out of memory");
        return NULL;
    }
    if (proof_index < 0)
        proof_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    if (own_ca.n) {
        BIO *b = BIO_new_mem_buf(own_ca.p, (int)own_ca.n);
        own = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
        BIO_free(b);
    }
    bool ok = stream_tls_context(ctx) == 0;
    /* OpenSSL's own list has SHA-224, SHA-1 and DSA in it. */
    ok = ok && SSL_CTX_set1_sigalgs_list(ctx, "ECDSA+SHA256:ed25519:ed448:ECDSA+SHA384:ECDSA+SHA512:"
                                              "RSA-PSS+SHA256:RSA-PSS+SHA384:RSA-PSS+SHA512:"
                                              "rsa_pss_pss_sha256:rsa_pss_pss_sha384:rsa_pss_pss_sha512:"
                                              "RSA+SHA256:RSA+SHA384:RSA+SHA512") == 1;
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, on_verify, NULL);
    SSL_CTX_set_verify_depth(ctx, 8);
    SSL_CTX_set_max_cert_list(ctx, 64 * 1024);
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    /* POLICY_CHECK: without it OpenSSL takes a critical policyConstraints for handled and does not look at it (RFC 5280
     * 6.1; any policy will do, and that must be said). PARTIAL_CHAIN: whatever the operator names is a root,
     * self-signed or not (RFC 5280 6.1.1 d). */
    X509_VERIFY_PARAM_set_flags(param,
                                X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_POLICY_CHECK | X509_V_FLAG_PARTIAL_CHAIN);
    ok = ok && X509_VERIFY_PARAM_add0_policy(param, OBJ_nid2obj(NID_any_policy)) == 1;
    if (!ok)
        err_set(err, "TLS: OpenSSL refuses the cipher list, the groups, the signature algorithms or the policy");
    if (!ok || fill_store(ctx, p, system_roots, own, err)) {
        SSL_CTX_free(ctx);
        ctx = NULL;
    }
    X509_free(own);
    ERR_clear_error();
    return ctx;
}

/* --- one connection --- */

/* The name is matched here and nowhere else: by OpenSSL, in the alternative names. */
static int expect_host(SSL *ssl, const struct host *host)
{
    if (host_is_ip(host))
        return X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), host->ip.b, host->ip.family == 4 ? 4 : 16) == 1 ? 0 : -1;
    return SSL_set1_host(ssl, host->name) == 1 && SSL_set_tlsext_host_name(ssl, (char *)(uintptr_t)host->name) == 1
               ? 0
               : -1;
}

int origin_trust_expect(SSL *ssl, const struct host *host, struct origin_proof *proof, int64_t now_s)
{
    *proof = (struct origin_proof) { 0 };
    if (SSL_set_ex_data(ssl, proof_index, proof) != 1 || expect_host(ssl, host))
        return -1;
    X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl), (time_t)now_s);
    return 0;
}

const char *origin_trust_why(SSL *ssl, char *out, size_t size)
{
    const struct origin_proof *proof = SSL_get_ex_data(ssl, proof_index);
    long r = SSL_get_verify_result(ssl);
    if (r == X509_V_OK)
        return NULL;
    if (proof->verdict.fault)
        return origin_chain_say(&proof->verdict, out, size);
    snprintf(out, size, "%s", X509_verify_cert_error_string(r));
    return out;
}
