/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry is one (host, kind, refusal). It is asked (in the slot table of requests under way, on no list), kept (in
 * the LRU list), or neither (just answered with something not worth keeping). Waiters hang on an asked entry; when the
 * answer or the deadline comes they move to the list of the answered, each with its own reference to the certificate,
 * and a task calls them one by one on a later stack. From then on the entry does not know them: it may be evicted at
 * once.
 *
 * Evicted certificates are freed by a timer in a later round, because leaf_cache_get lends them for the rest of its
 * own. */
#include "ca/leaf_cache.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "ca/leaf.h"
#include "ca/signer.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ASKED_MAX = 2048, /* requests under way: the signer's burst at its default rate */
    DEADLINE_MS = 5000,
    MARGIN_US_MINUTE = 60 * 1000000,
    KEEP_MARGIN_MIN = 30,
    KEEP_MARGIN_REFUSAL_MIN = 5,
    HOST_MAX_BYTES = LEAF_NAME_MAX,
};

struct leaf_wait {
    struct leaf_wait *next, **link;
    void (*cb)(void *ctx, X509 *cert);
    void *ctx;
    X509 *cert; /* answered: a reference, or NULL */
};

struct entry {
    struct leaf_cache *cache;
    struct entry *chain;         /* of its hash bucket */
    struct entry *newer, *older; /* LRU; only kept ones */
    struct leaf_wait *waits;     /* only asked ones */
    struct timer deadline;
    uint64_t id; /* of the request under way, 0: not asked */
    X509 *cert;  /* kept ones */
    int64_t use_until_us;
    bool is_ip, refusal;
    uint8_t n;
    char host[HOST_MAX_BYTES];
};

struct leaf_cache {
    struct loop *loop;
    struct msg_channel *channel; /* NULL: the ca is away */
    EVP_PKEY *key;
    size_t spki_n;
    unsigned char spki[LEAF_SPKI_SIZE];
    struct entry **buckets;
    size_t nbuckets; /* a power of two */
    size_t kept, max_kept, asked;
    struct entry *newest, *oldest;
    struct entry *slots[ASKED_MAX]; /* id % ASKED_MAX */
    uint64_t next_id;
    struct leaf_wait *answered;
    struct task deliver;
    STACK_OF(X509) * lent;
    struct timer lent_over;
    bool delivering, gone; /* freed by a callback it is running: the memory goes when that returns */
};

#define CONTAINER(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* ---- certificates on loan ---- */

static void lent_free(struct timer *t)
{
    struct leaf_cache *c = CONTAINER(t, struct leaf_cache, lent_over);
    for (X509 *cert; (cert = sk_X509_pop(c->lent));)
        X509_free(cert);
}

static void cert_retire(struct leaf_cache *c, X509 *cert)
{
    if (!cert)
        return;
    if (!sk_X509_push(c->lent, cert)) {
        X509_free(cert); /* no memory: the loan ends early; SSL_use_certificate took its own reference */
        return;
    }
    if (!c->lent_over.loop)
        timer_set(c->loop, &c->lent_over, 1);
}

/* ---- the table ---- */

static struct entry **bucket_of(struct leaf_cache *c, struct str host)
{
    return &c->buckets[str_hash(host) & (c->nbuckets - 1)];
}

static struct entry *entry_find(struct leaf_cache *c, struct str host, bool is_ip, bool refusal)
{
    for (struct entry *e = *bucket_of(c, host); e; e = e->chain)
        if (str_eq(host, str_of(e->host, e->n)) && e->is_ip == is_ip && e->refusal == refusal)
            return e;
    return NULL;
}

static void lru_unlink(struct leaf_cache *c, struct entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    e->newer = e->older = NULL;
    c->kept--;
}

static void lru_push(struct leaf_cache *c, struct entry *e)
{
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
    c->kept++;
}

/* Takes e, which nobody waits for and which is not asked, out of everything and frees it. */
static void entry_free(struct leaf_cache *c, struct entry *e)
{
    MUST(!e->waits && !e->id);
    if (e->cert)
        lru_unlink(c, e);
    struct entry **at = bucket_of(c, str_of(e->host, e->n));
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    cert_retire(c, e->cert);
    free(e);
}

static void on_deadline(struct timer *t);

static struct entry *entry_new(struct leaf_cache *c, struct str host, bool is_ip, bool refusal)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    *e = (struct entry) {
        .cache = c, .is_ip = is_ip, .refusal = refusal, .n = (uint8_t)host.n, .deadline.cb = on_deadline
    };
    memcpy(e->host, host.p, host.n);
    struct entry **bucket = bucket_of(c, host);
    e->chain = *bucket;
    *bucket = e;
    return e;
}

/* ---- waiting ---- */

static void wait_link(struct leaf_wait **list, struct leaf_wait *w)
{
    w->next = *list;
    if (w->next)
        w->next->link = &w->next;
    w->link = list;
    *list = w;
}

static void wait_unlink(struct leaf_wait *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
}

/* Takes the request off the slot table and hands its waiters over to the task; cert is borrowed, NULL: there is none.
 */
static void entry_answer(struct leaf_cache *c, struct entry *e, X509 *cert)
{
    c->slots[e->id % ASKED_MAX] = NULL;
    e->id = 0;
    c->asked--;
    timer_clear(&e->deadline);
    for (struct leaf_wait *w; (w = e->waits);) {
        wait_unlink(w);
        if (cert && X509_up_ref(cert))
            w->cert = cert;
        wait_link(&c->answered, w);
    }
    loop_defer(c->loop, &c->deliver);
}

static void on_deliver(struct task *t)
{
    struct leaf_cache *c = CONTAINER(t, struct leaf_cache, deliver);
    c->delivering = true;
    for (struct leaf_wait *w; (w = c->answered);) {
        wait_unlink(w);
        struct leaf_wait mine = *w;
        free(w);
        mine.cb(mine.ctx, mine.cert);
        if (c->gone)
            X509_free(mine.cert);
        else
            cert_retire(c, mine.cert); /* lent to the callback for the rest of the round */
    }
    c->delivering = false;
    if (c->gone)
        free(c);
}

void leaf_wait_cancel(struct leaf_wait **wp)
{
    struct leaf_wait *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    wait_unlink(w);
    X509_free(w->cert);
    free(w);
}

static void on_deadline(struct timer *t)
{
    struct entry *e = CONTAINER(t, struct entry, deadline);
    struct leaf_cache *c = e->cache;
    entry_answer(c, e, NULL);
    entry_free(c, e);
}

/* ---- asking the ca ---- */

/* 0, or -1: it did not go out (the channel is gone or full), which the deadline or a new channel will settle. */
static int entry_send(struct leaf_cache *c, const struct entry *e)
{
    if (!c->channel)
        return -1;
    struct msg_writer w;
    msg_writer_init(&w);
    msg_put_u8(&w, e->is_ip ? 2 : 1);
    msg_put_str(&w, str_of(e->host, e->n));
    msg_put_str(&w, str_of(c->spki, c->spki_n));
    msg_put_u8(&w, e->refusal);
    int r = w.buf.failed ? -1 : msg_send(c->channel, CA_SIGN, e->id, buf_str(&w.buf), NULL, 0);
    buf_done(&w.buf);
    return r;
}

/* A free slot's next id; the table has room. */
static void entry_ask(struct leaf_cache *c, struct entry *e)
{
    do
        c->next_id++;
    while (c->slots[c->next_id % ASKED_MAX]);
    e->id = c->next_id;
    c->slots[e->id % ASKED_MAX] = e;
    (void)entry_send(c, e);
}

/* The certificate in an answer, or NULL where it is not exactly what was asked for. */
static X509 *answer_cert(struct leaf_cache *c, const struct entry *e, struct str der)
{
    char host[HOST_MAX_BYTES + 1];
    memcpy(host, e->host, e->n);
    host[e->n] = 0;
    const unsigned char *p = (const unsigned char *)der.p;
    X509 *cert = der.n && der.n <= DER_MAX ? d2i_X509(NULL, &p, (long)der.n) : NULL;
    bool good = cert && p == (const unsigned char *)der.p + der.n && X509_check_private_key(cert, c->key) == 1 &&
                (e->is_ip ? X509_check_ip_asc(cert, host, 0) : X509_check_host(cert, host, e->n, 0, NULL)) == 1;
    ERR_clear_error();
    if (good)
        return cert;
    X509_free(cert);
    return NULL;
}

static void entry_keep(struct leaf_cache *c, struct entry *e, X509 *cert, int64_t expires_us)
{
    int64_t margin = (e->refusal ? KEEP_MARGIN_REFUSAL_MIN : KEEP_MARGIN_MIN) * (int64_t)MARGIN_US_MINUTE;
    e->use_until_us = expires_us - margin;
    if (clock_wall_us() >= e->use_until_us) { /* too short to keep: those who asked had it */
        cert_retire(c, cert);
        entry_free(c, e);
        return;
    }
    while (c->kept >= c->max_kept)
        entry_free(c, c->oldest);
    e->cert = cert;
    lru_push(c, e);
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct leaf_cache *c = ctx;
    struct msg_reader r = msg_reader(m->body);
    uint8_t status = msg_get_u8(&r);
    struct str der = msg_get_str(&r, DER_MAX);
    uint64_t expires = msg_get_u64(&r);
    if (m->type != CA_SIGNED || m->nfds || !msg_reader_end(&r) || status > CA_RATE_LIMITED || expires > INT64_MAX)
        return -1;
    struct entry *e = c->slots[m->id % ASKED_MAX];
    if (!e || e->id != m->id)
        return 0; /* late: the deadline passed, or it was asked again */
    X509 *cert = status == CA_OK ? answer_cert(c, e, der) : NULL;
    if (status == CA_OK && !cert)
        return -1; /* a broken ca; what waits is sent to the next one or runs into its deadline */
    entry_answer(c, e, cert);
    if (cert)
        entry_keep(c, e, cert, (int64_t)expires);
    else
        entry_free(c, e);
    return 0;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct leaf_cache *c = ctx;
    msg_channel_free(&c->channel);
}

static const struct msg_ops ops = { .on_message = on_message, .on_closed = on_closed };

static void ask_again(struct leaf_cache *c)
{
    for (size_t i = 0; i < ASKED_MAX; i++)
        if (c->slots[i])
            (void)entry_send(c, c->slots[i]);
}

int leaf_cache_connect(struct leaf_cache *c, int fd, struct err *err)
{
    struct msg_channel *ch = msg_channel_new(c->loop, fd, &ops, c);
    if (!ch) {
        close(fd);
        return err_set_errno(err, "leaf cache: the channel to the ca cannot be used");
    }
    msg_channel_free(&c->channel);
    c->channel = ch;
    ask_again(c);
    return 0;
}

/* ---- the interface ---- */

static int make_key(struct leaf_cache *c)
{
    unsigned char *spki = NULL;
    struct str point;
    c->key = EVP_EC_gen("P-256");
    int n = c->key ? i2d_PUBKEY(c->key, &spki) : -1;
    bool good = n == LEAF_SPKI_SIZE && leaf_spki_point(str_of(spki, (size_t)n), &point);
    if (good) {
        c->spki_n = (size_t)n;
        memcpy(c->spki, spki, c->spki_n);
    }
    OPENSSL_free(spki);
    ERR_clear_error();
    return good ? 0 : -1;
}

struct leaf_cache *leaf_cache_new(struct loop *l, size_t max_leaves, struct err *err)
{
    struct leaf_cache *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(err, "leaf cache: out of memory");
        return NULL;
    }
    *c = (struct leaf_cache) { .loop = l, .max_kept = max_leaves ? max_leaves : 1, .nbuckets = 64 };
    while (c->nbuckets < c->max_kept && c->nbuckets < (size_t)1 << 20)
        c->nbuckets *= 2;
    c->deliver.cb = on_deliver;
    c->lent_over.cb = lent_free;
    c->buckets = calloc(c->nbuckets, sizeof *c->buckets);
    c->lent = sk_X509_new_null();
    if (!c->buckets || !c->lent || make_key(c)) {
        err_set(err, "leaf cache: no memory, or no P-256 key from OpenSSL");
        leaf_cache_free(&c);
    }
    return c;
}

/* Everything that is kept goes; what is asked stays asked. */
static void kept_drop(struct leaf_cache *c)
{
    while (c->oldest)
        entry_free(c, c->oldest);
}

void leaf_cache_free(struct leaf_cache **cp)
{
    struct leaf_cache *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    msg_channel_free(&c->channel);
    for (size_t i = 0; i < ASKED_MAX; i++) {
        struct entry *e = c->slots[i];
        if (e) {
            entry_answer(c, e, NULL);
            entry_free(c, e);
        }
    }
    kept_drop(c);
    for (struct leaf_wait *w; (w = c->answered);)
        leaf_wait_cancel(&w); /* nobody is called any more */
    task_cancel(&c->deliver);
    timer_clear(&c->lent_over);
    sk_X509_pop_free(c->lent, X509_free);
    EVP_PKEY_free(c->key);
    free(c->buckets);
    if (c->delivering)
        c->gone = true;
    else
        free(c);
}

bool leaf_cache_has(struct leaf_cache *c, struct str host, bool is_ip, bool refusal)
{
    const struct entry *e = entry_find(c, host, is_ip, refusal);
    return e && (!e->cert || clock_wall_us() < e->use_until_us);
}

int leaf_cache_get(struct leaf_cache *c, struct str host, bool is_ip, bool refusal, X509 **ret_cert,
                   void (*cb)(void *ctx, X509 *cert), void *ctx, struct leaf_wait **ret_wait)
{
    unsigned char address[16];
    if (is_ip ? !leaf_name_to_ip(host, address) : !leaf_name_is_dns(host))
        return -1;
    struct entry *e = entry_find(c, host, is_ip, refusal);
    if (e && e->cert) {
        if (clock_wall_us() < e->use_until_us) {
            lru_unlink(c, e);
            lru_push(c, e);
            *ret_cert = e->cert;
            return 1;
        }
        entry_free(c, e);
        e = NULL;
    }
    if (!e && c->asked >= ASKED_MAX)
        return -1;
    struct leaf_wait *w = calloc(1, sizeof *w);
    if (!w)
        return -1;
    if (!e) {
        e = entry_new(c, host, is_ip, refusal);
        if (!e) {
            free(w);
            return -1;
        }
        c->asked++;
        timer_set(c->loop, &e->deadline, DEADLINE_MS);
        entry_ask(c, e);
    }
    w->cb = cb;
    w->ctx = ctx;
    wait_link(&e->waits, w);
    *ret_wait = w;
    return 0;
}

EVP_PKEY *leaf_cache_key(struct leaf_cache *c)
{
    return c->key;
}

void leaf_cache_flush(struct leaf_cache *c)
{
    kept_drop(c);
    /* An answer on its way was signed by the old CA: ask again under new ids, so that it is not taken. */
    struct entry *asked[ASKED_MAX];
    size_t n = 0;
    for (size_t i = 0; i < ASKED_MAX; i++) {
        if (c->slots[i])
            asked[n++] = c->slots[i];
        c->slots[i] = NULL;
    }
    for (size_t i = 0; i < n; i++)
        entry_ask(c, asked[i]);
}

size_t leaf_cache_size(const struct leaf_cache *c)
{
    return c->kept;
}
