/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/origin_tls.h"

#include "base/clock.h"
#include "base/stream.h"
#include "proxy/origin_path.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

/* --- sessions --- */

struct session_entry {
    struct session_entry *chain; /* of its bucket */
    struct session_entry *newer, *older;
    SSL_SESSION *session;
    int64_t until; /* when a certificate of the chain that was verified ends, seconds since 1970 */
    uint64_t hash;
    size_t n;
    char key[];
};
struct session_cache {
    struct session_entry **buckets;
    size_t nbuckets, count, max;
    struct session_entry *newest, *oldest;
};
/* What an SSL object remembers: where its sessions go, and what its chain was found to be. */
struct session_slot {
    struct session_cache *cache;
    struct chain_verdict verdict;
    int64_t until;
    size_t n;
    char key[];
};
static int slot_index = -1;

struct session_cache *session_cache_new(size_t max)
{
    struct session_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->max = max;
    for (c->nbuckets = 64; c->nbuckets < max; c->nbuckets *= 2)
        ;
    c->buckets = calloc(c->nbuckets, sizeof(struct session_entry *));
    if (!c->buckets) {
        free(c);
        return NULL;
    }
    return c;
}

static struct session_entry **entry_find(struct session_cache *c, struct str key, uint64_t hash)
{
    struct session_entry **at = &c->buckets[hash & (c->nbuckets - 1)];
    while (*at && !((*at)->hash == hash && str_eq(str_of((*at)->key, (*at)->n), key)))
        at = &(*at)->chain;
    return at;
}

static void entry_unlink(struct session_cache *c, struct session_entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void entry_push(struct session_cache *c, struct session_entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void entry_drop(struct session_cache *c, struct session_entry *e)
{
    struct session_entry **at = entry_find(c, str_of(e->key, e->n), e->hash);
    *at = e->chain;
    entry_unlink(c, e);
    SSL_SESSION_free(e->session);
    free(e);
    c->count--;
}

void session_cache_free(struct session_cache **cp)
{
    struct session_cache *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    while (c->newest)
        entry_drop(c, c->newest);
    free(c->buckets);
    free(c);
}

static void session_put(struct session_cache *c, struct str key, SSL_SESSION *session, int64_t until)
{
    uint64_t hash = str_hash(key);
    struct session_entry *e = *entry_find(c, key, hash);
    if (e) {
        SSL_SESSION_free(e->session);
        e->session = session;
        e->until = until;
        entry_unlink(c, e);
        entry_push(c, e);
        return;
    }
    if (c->count >= c->max && c->oldest)
        entry_drop(c, c->oldest);
    e = c->max ? malloc(sizeof *e + key.n) : NULL;
    if (!e) {
        SSL_SESSION_free(session);
        return;
    }
    *e = (struct session_entry) { .session = session, .until = until, .hash = hash, .n = key.n };
    memcpy(e->key, key.p, key.n);
    struct session_entry **bucket = &c->buckets[hash & (c->nbuckets - 1)];
    e->chain = *bucket;
    *bucket = e;
    entry_push(c, e);
    c->count++;
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    struct session_slot *slot = SSL_get_ex_data(ssl, slot_index);
    if (!slot || SSL_get_verify_result(ssl) != X509_V_OK)
        return 0;
    session_put(slot->cache, str_of(slot->key, slot->n), session, slot->until);
    return 1; /* we keep the reference */
}

static void slot_free(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
    (void)parent, (void)ad, (void)idx, (void)argl, (void)argp;
    free(ptr);
}

/* --- the chain --- */

/* OpenSSL's own verification (signatures, dates, purpose, name constraints, the host's name), and ours of the chain.
 * Not called for a resumed session: such a one exists because this said yes under the same trust, and it is not used
 * past `until`. */
static int on_verify(X509_STORE_CTX *store, void *arg)
{
    (void)arg;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct session_slot *slot = SSL_get_ex_data(ssl, slot_index);
    if (!origin_path_verify(store, &slot->verdict))
        return 0;
    slot->until = origin_chain_until(X509_STORE_CTX_get0_chain(store));
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

SSL_CTX *origin_tls_new(const struct policy *p, struct str system_roots, struct str own_ca, struct err *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    X509 *own = NULL;
    if (!ctx) {
        err_set(err, "TLS: out of memory");
        return NULL;
    }
    if (slot_index < 0)
        slot_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, slot_free);
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
    /* CLEANSE_PLAINTEXT: an answer may hold a real value until the scrubber took it out. */
    SSL_CTX_set_options(ctx, SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, on_verify, NULL);
    SSL_CTX_set_verify_depth(ctx, 8);
    SSL_CTX_set_max_cert_list(ctx, 64 * 1024);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_new_session);
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

SSL *origin_tls_start(SSL_CTX *ctx, const struct host *host, bool h2, struct session_cache *c, struct str key)
{
    static const unsigned char offer[] = "\2h2\10http/1.1";
    SSL *ssl = SSL_new(ctx);
    struct session_slot *slot = malloc(sizeof *slot + key.n + 1);
    if (!ssl || SSL_set_alpn_protos(ssl, offer + (h2 ? 0 : 3), h2 ? 12 : 9) != 0 || !slot || SSL_set_ex_data(ssl, slot_index, slot) != 1) {
        free(slot);
        SSL_free(ssl);
        return NULL;
    }
    int64_t now = clock_wall_us() / 1000000;
    *slot = (struct session_slot) { .cache = c, .n = key.n + 1 };
    memcpy(slot->key, key.p, key.n);
    slot->key[key.n] = h2 ? '2' : '1';
    key = str_of(slot->key, slot->n);
    if (expect_host(ssl, host)) {
        SSL_free(ssl);
        return NULL;
    }
    X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl), (time_t)now);
    struct session_entry *e = *entry_find(c, key, str_hash(key));
    if (e && now <= e->until && SSL_SESSION_is_resumable(e->session)) {
        SSL_set_session(ssl, e->session);
        slot->until = e->until;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}

const char *origin_tls_why(SSL *ssl, char *out, size_t size)
{
    const struct session_slot *slot = SSL_get_ex_data(ssl, slot_index);
    long r = SSL_get_verify_result(ssl);
    if (r == X509_V_OK)
        return NULL;
    if (slot->verdict.fault)
        return origin_chain_say(&slot->verdict, out, size);
    snprintf(out, size, "%s", X509_verify_cert_error_string(r));
    return out;
}
