/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/client_tls.h"

#include "base/clock.h"
#include "base/fair.h"
#include "base/stream.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>

struct client_tls {
    SSL_CTX *ctx;
    struct leaf_cache *leaves;
    struct fair_rate asked; /* leaves, by agent: what the ca signs for this worker is for all of them */
    struct ticket_key keys[3];
    size_t nkeys;
};
static int job_index = -1;

static struct client_tls_job *job_of(SSL *ssl)
{
    return SSL_get_ex_data(ssl, job_index);
}

/* --- the ClientHello --- */

/* RFC 6066 3: a list with exactly one host_name. False: malformed. */
static bool read_sni(SSL *ssl, struct str *ret)
{
    const unsigned char *p;
    size_t n;
    *ret = STR_NONE;
    if (!SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n))
        return true;
    if (n < 5)
        return false;
    size_t list = (size_t)p[0] << 8 | p[1], len = (size_t)p[3] << 8 | p[4];
    if (list != n - 2 || p[2] != TLSEXT_NAMETYPE_host_name || len != n - 5 || !len)
        return false;
    *ret = str_of(p + 5, len);
    return true;
}

static bool is_own_name(const struct config *c, const struct host *h)
{
    for (size_t i = 0; i < c->nlisten_names; i++)
        if (str_eq_nocase(c->listen_names[i], host_str(h)))
            return true;
    return false;
}

/* Decides whether the name in the hello is the name of this connection. */
static int on_hello(SSL *ssl, int *alert, void *arg)
{
    (void)arg;
    struct client_tls_job *job = job_of(ssl);
    struct str sni;
    struct host named;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    if (!job)
        return SSL_CLIENT_HELLO_ERROR;
    if (BIO_number_read(SSL_get_rbio(ssl)) > job->config->limits.hello_bytes) { /* the caller sees it too, and says so */
        *alert = SSL_AD_DECODE_ERROR;
        return SSL_CLIENT_HELLO_ERROR;
    }
    job->hello = true;
    bool ok = read_sni(ssl, &sni);
    if (ok && sni.p) {
        str_escape(sni, job->sni, sizeof job->sni);
        /* An address literal is no server name (RFC 6066 3), but clients send it; it must still be the same one. */
        ok = host_parse(sni, &named, NULL) == 0 &&
             (job->host ? host_eq(&named, job->host) : is_own_name(job->config, &named) || host_eq(&named, &job->reached));
    }
    if (!ok) {
        job->name_mismatch = true;
        return SSL_CLIENT_HELLO_ERROR;
    }
    /* Tickets of another agent or another name must not resume here: the context id is checked against the ticket's. */
    unsigned char id[32];
    struct str name = job->host ? host_str(job->host) : STR("");
    char text[640];
    size_t n = 0;
    memcpy(text + n, job->agent.p ? job->agent.p : "", job->agent.n > 256 ? 256 : job->agent.n);
    n += job->agent.n > 256 ? 256 : job->agent.n;
    text[n++] = 0;
    memcpy(text + n, name.p, name.n);
    n += name.n;
    SHA256((const unsigned char *)text, n, id);
    if (SSL_set_session_id_context(ssl, id, sizeof id) != 1)
        return SSL_CLIENT_HELLO_ERROR;
    return SSL_CLIENT_HELLO_SUCCESS;
}

/* --- the leaf --- */

/* A tls: listener and no server name, as from clients that know us by an address: that address, where no other names were asked for. */
static struct str own_name(const struct client_tls_job *job)
{
    struct str reached = host_str(&job->reached);
    if (reached.n && (!job->config->nlisten_names || is_own_name(job->config, &job->reached)))
        return reached;
    return job->config->nlisten_names ? job->config->listen_names[0] : STR("localhost");
}

static void on_leaf(void *ctx, X509 *cert)
{
    struct client_tls_job *job = ctx;
    job->wait = NULL;
    if (!cert)
        job->no_leaf = true;
    job->resume(job->ctx);
}

static int on_cert(SSL *ssl, void *arg)
{
    (void)arg;
    struct client_tls_job *job = job_of(ssl);
    if (!job || job->no_leaf)
        return 0;
    if (job->wait)
        return -1;
    const struct host *h = job->host;
    struct host own;
    if (!h) { /* a tls: listener: the name the client used, or one of ours */
        const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        if (host_parse(name ? str_c(name) : own_name(job), &own, NULL))
            return 0;
        h = &own;
    }
    X509 *cert;
    if (!leaf_cache_has(job->tls->leaves, host_str(h), host_is_ip(h), job->refusal) &&
        !fair_rate_take(&job->tls->asked, str_hash(job->agent), job->config->limits.leaf_rate, (uint64_t)clock_mono_us() / 1000)) {
        job->no_leaf = true;
        return 0;
    }
    int r = leaf_cache_get(job->tls->leaves, host_str(h), host_is_ip(h), job->refusal, &cert, on_leaf, job, &job->wait);
    if (r == 0)
        return -1; /* wait */
    if (r < 0) {
        job->no_leaf = true;
        return 0;
    }
    return SSL_use_certificate(ssl, cert) == 1 && SSL_use_PrivateKey(ssl, leaf_cache_key(job->tls->leaves)) == 1;
}

/* --- ALPN --- */

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned in_n, void *arg)
{
    (void)arg;
    static const unsigned char offer[] = "\2h2\10http/1.1";
    struct client_tls_job *job = job_of(ssl);
    unsigned skip = job && job->host ? 0 : 3; /* the proxy port itself speaks HTTP/1.1 */
    if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_n, offer + skip, 12 - skip, in, in_n) == OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_OK;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

bool client_tls_h2(const SSL *ssl)
{
    const unsigned char *p;
    unsigned n;
    SSL_get0_alpn_selected(ssl, &p, &n);
    return n == 2 && !memcmp(p, "h2", 2);
}

/* --- tickets --- */

static int on_ticket_key(SSL *ssl, unsigned char name[16], unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int enc)
{
    struct client_tls_job *job = job_of(ssl);
    struct client_tls *t = job ? job->tls : NULL;
    if (!t || !t->nkeys)
        return enc ? -1 : 0;
    size_t at = 0;
    if (enc) {
        memcpy(name, t->keys[0].name, 16);
        rand_bytes(iv, 16);
    } else {
        while (at < t->nkeys && memcmp(name, t->keys[at].name, 16) != 0)
            at++;
        if (at == t->nkeys)
            return 0; /* made under a key that is gone: full handshake */
    }
    struct ticket_key *k = &t->keys[at];
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, k->hmac, sizeof k->hmac),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)(uintptr_t)"sha256", 0),
        OSSL_PARAM_construct_end(),
    };
    if (EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, k->aes, iv, enc) != 1 || EVP_MAC_CTX_set_params(mac, params) != 1)
        return -1;
    return enc || at == 0 ? 1 : 2; /* 2: good, but give a new one */
}

void client_tls_set_keys(struct client_tls *t, const struct ticket_key *keys, size_t n)
{
    explicit_bzero(t->keys, sizeof t->keys);
    t->nkeys = n > 3 ? 3 : n;
    memcpy(t->keys, keys, t->nkeys * sizeof *keys);
}

/* --- context --- */

struct client_tls *client_tls_new(struct leaf_cache *leaves, struct err *err)
{
    struct client_tls *t = calloc(1, sizeof *t);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!t || !ctx || stream_tls_context(ctx)) {
        SSL_CTX_free(ctx);
        free(t);
        err_set(err, "TLS: out of memory");
        return NULL;
    }
    if (job_index < 0)
        job_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    t->leaves = leaves;
    t->ctx = ctx;
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_max_early_data(ctx, 0);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_timeout(ctx, 24 * 3600);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket_key);
    SSL_CTX_set_client_hello_cb(ctx, on_hello, NULL);
    SSL_CTX_set_cert_cb(ctx, on_cert, NULL);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
    return t;
}

void client_tls_free(struct client_tls **tp)
{
    struct client_tls *t = *tp;
    *tp = NULL;
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    explicit_bzero(t->keys, sizeof t->keys);
    free(t);
}

SSL *client_tls_start(struct client_tls *t, struct client_tls_job *job)
{
    SSL *ssl = SSL_new(t->ctx);
    if (!ssl || SSL_set_ex_data(ssl, job_index, job) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    job->tls = t;
    SSL_set_accept_state(ssl);
    return ssl;
}

void client_tls_forget(SSL *ssl, struct client_tls_job *job)
{
    if (ssl)
        SSL_set_ex_data(ssl, job_index, NULL);
    leaf_wait_cancel(&job->wait);
}
