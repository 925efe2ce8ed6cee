/* SPDX-License-Identifier: Apache-2.0
 *
 * A TLS origin with any chain, met by the code that a worker meets origins with: origin_tls_new on a real snapshot,
 * origin_tls_start, and a handshake through memory. What came of it is asked of the same functions that the worker
 * asks. */
#ifndef TESTS_LIB_ORIGIN_RIG_H
#define TESTS_LIB_ORIGIN_RIG_H

#include "policy/origin_trust.h"
#include "policy/policy.h"
#include "proxy/origin_tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>

struct origin_rig {
    struct policy *policy;
    SSL_CTX *ctx;
    struct session_cache *sessions;
};

/* Trusts what the PEM text holds, named by the operator, or as the system's store. */
static inline void origin_rig_init(struct origin_rig *r, struct str roots, bool system, struct str own_ca)
{
    struct diag d;
    struct err err = { "no snapshot" };
    diag_init(&d);
    struct str yaml =
        system ? STR("version: 1\nstate_dir: s\n") : STR("version: 1\nstate_dir: s\norigin: {ca_file: [/roots.pem]}\n");
    struct config *c = config_parse(STR("test.yaml"), STR("/test"), yaml, &d);
    struct side_file files[] = { { STR("/roots.pem"), roots } };
    *r = (struct origin_rig) { .policy = c ? policy_new(c, files, system ? 0 : 1, &d) : NULL,
                               .sessions = session_cache_new(64) };
    for (size_t i = 0; !r->policy && i < d.n; i++)
        fprintf(stderr, "%.*s\n", STR_ARG(d.lines[i].text));
    diag_done(&d);
    r->ctx = r->policy ? origin_tls_new(r->policy, system ? roots : STR_NONE, own_ca, &err) : NULL;
    if (!r->ctx) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

static inline void origin_rig_done(struct origin_rig *r)
{
    SSL_CTX_free(r->ctx);
    session_cache_free(&r->sessions);
    policy_unref(&r->policy);
}

/* The origin: its certificate, what it sends with it, and its key. Nothing is beneath it. */
static inline SSL_CTX *origin_rig_server(X509 *leaf, STACK_OF(X509) * sent, EVP_PKEY *key)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_security_level(ctx, 0);
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
    bool ok = SSL_CTX_use_certificate(ctx, leaf) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1;
    for (int i = 0; ok && i < sk_X509_num(sent); i++)
        ok = SSL_CTX_add1_chain_cert(ctx, sk_X509_value(sent, i)) == 1;
    if (!ok) {
        SSL_CTX_free(ctx);
        ctx = NULL;
    }
    return ctx;
}

struct origin_meeting {
    bool connected; /* the handshake was finished by both */
    bool resumed;
    bool refused;  /* the chain was, whatever became of the handshake */
    char why[160]; /* of a chain that was refused */
    char version[16], cipher[64];
};

/* now: 0, or the seconds since 1970 that the chain is judged at. */
static inline struct origin_meeting origin_rig_meet(struct origin_rig *r, SSL_CTX *server, const struct host *host,
                                                    time_t now)
{
    struct origin_meeting m = { 0 };
    SSL *c = origin_tls_start(r->ctx, host, false, r->sessions, str_c(host->name)), *s = SSL_new(server);
    BIO *cb, *sb;
    if (!c || !s || BIO_new_bio_pair(&cb, 1 << 20, &sb, 1 << 20) != 1)
        abort();
    if (now)
        X509_VERIFY_PARAM_set_time(SSL_get0_param(c), now);
    SSL_set_bio(c, cb, cb);
    SSL_set_bio(s, sb, sb);
    SSL_set_accept_state(s);
    int a = 0, b = 0;
    for (int i = 0; i < 10 && (a != 1 || b != 1); i++) {
        a = SSL_do_handshake(c);
        b = SSL_do_handshake(s);
    }
    m.connected = a == 1 && b == 1;
    if (m.connected) {
        char byte;
        SSL_read(c, &byte, 1); /* tickets */
        m.resumed = SSL_session_reused(c);
        snprintf(m.version, sizeof m.version, "%s", SSL_get_version(c));
        snprintf(m.cipher, sizeof m.cipher, "%s", SSL_get_cipher_name(c));
        SSL_shutdown(s);
        SSL_shutdown(c);
    }
    m.refused = origin_trust_why(c, m.why, sizeof m.why) != NULL;
    SSL_free(c);
    SSL_free(s);
    ERR_clear_error();
    return m;
}

#endif
