/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/origin_tls.h"

#include "base/clock.h"
#include "policy/origin_trust.h"

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
    struct origin_proof proof;
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
    session_put(slot->cache, str_of(slot->key, slot->n), session, slot->proof.until);
    return 1; /* we keep the reference */
}

static void slot_free(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
    (void)parent, (void)ad, (void)idx, (void)argl, (void)argp;
    free(ptr);
}

SSL_CTX *origin_tls_new(const struct policy *p, struct str system_roots, struct str own_ca, struct err *err)
{
    SSL_CTX *ctx = origin_trust_new(p, system_roots, own_ca, err);
    if (!ctx)
        return NULL;
    if (slot_index < 0)
        slot_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, slot_free);
    /* CLEANSE_PLAINTEXT: an answer may hold a real value until the scrubber took it out. */
    SSL_CTX_set_options(ctx, SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_new_session);
    return ctx;
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
    if (origin_trust_expect(ssl, host, &slot->proof, now)) {
        SSL_free(ssl);
        return NULL;
    }
    struct session_entry *e = *entry_find(c, key, str_hash(key));
    if (e && now <= e->until && SSL_SESSION_is_resumable(e->session)) {
        SSL_set_session(ssl, e->session);
        slot->proof.until = e->until;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}
