/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaf cache over a socket pair: with the real signer in the same loop, and with a scripted ca that answers what
 * the test says. The clock is the real one plus what the test adds. */
#include "base/buf.h"
#include "base/clock.h"
#include "ca/leaf.h"
#include "ca/leaf_cache.h"
#include "ca/root.h"
#include "ca/signer.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t skew_us;

static int64_t real_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + skew_us;
}
uint64_t clock_mono_us(void)
{
    return (uint64_t)real_us(CLOCK_MONOTONIC);
}
uint64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}
int64_t clock_wall_us(void)
{
    return real_us(CLOCK_REALTIME);
}
void rand_bytes(void *out, size_t n)
{
    assert_int_equal(getrandom(out, n, 0), n);
}

static const int64_t minute = 60 * 1000000, day = INT64_C(86400000000);

static struct {
    struct loop *loop;
    struct signer *signer;
    struct leaf_cache *cache;
} t;

static int setup(void **state)
{
    (void)state;
    struct err err = { "" };
    struct buf cert, key;
    EVP_PKEY *k;
    X509 *c;
    buf_init(&cert, 65536);
    buf_init(&key, 65536);
    key.wipe = true;
    skew_us = 0;
    t.loop = loop_new();
    if (root_make(clock_wall_us(), &k, &c, &err) || root_put_cert(c, &cert) || root_put_key(k, &key))
        return -1;
    t.signer = signer_new(t.loop, buf_str(&cert), buf_str(&key), &err);
    t.cache = leaf_cache_new(t.loop, 3, &err);
    buf_done(&cert);
    buf_done(&key);
    EVP_PKEY_free(k);
    X509_free(c);
    return t.signer && t.cache ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    leaf_cache_free(&t.cache);
    signer_free(&t.signer);
    loop_free(t.loop);
    return 0;
}

/* ---- those who ask ---- */

struct asker {
    unsigned called;
    bool got;       /* a certificate */
    X509 *cert;     /* borrowed; only compared */
    bool host_fits; /* the certificate is for `host` */
    const char *host;
    struct leaf_wait *wait;
    struct leaf_wait **cancel; /* in the callback: cancel this one */
    bool free_cache;           /* in the callback: free the cache */
    struct asker *then;        /* in the callback: ask for this one */
};

static void asker_ask(struct asker *a, const char *host, int want);

static void on_leaf(void *ctx, X509 *cert)
{
    struct asker *a = ctx;
    a->called++;
    a->wait = NULL;
    a->got = cert != NULL;
    a->cert = cert;
    a->host_fits = cert && X509_check_host(cert, a->host, 0, 0, NULL) == 1;
    if (a->cancel)
        leaf_wait_cancel(a->cancel);
    if (a->then)
        asker_ask(a->then, a->then->host, 0);
    if (a->free_cache)
        leaf_cache_free(&t.cache);
}

static int ask(struct asker *a, const char *host, bool is_ip, bool refusal)
{
    X509 *cert = NULL;
    a->host = host;
    unsigned before = a->called;
    int r = leaf_cache_get(t.cache, str_c(host), is_ip, refusal, &cert, on_leaf, a, &a->wait);
    assert_int_equal(a->called, before); /* never on our stack */
    assert_true((r == 1) == (cert != NULL));
    if (r == 1)
        a->cert = cert;
    return r;
}

static void asker_ask(struct asker *a, const char *host, int want)
{
    assert_int_equal(ask(a, host, false, false), want);
}

static void turn_until(const unsigned *n, unsigned until)
{
    for (int i = 0; i < 500 && *n < until; i++)
        loop_run_once(t.loop, 10);
}

static void connect_signer(uint64_t rate)
{
    static unsigned index;
    int fds[2];
    struct err err;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(signer_add_worker(t.signer, index++, fds[0], rate, &err), 0);
    assert_int_equal(leaf_cache_connect(t.cache, fds[1], &err), 0);
}

static void pass_time(int64_t us)
{
    skew_us += us;
    for (int i = 0; i < 4; i++)
        loop_run_once(t.loop, 0);
}

/* ---- a scripted ca ---- */

struct fake_ca {
    struct msg_channel *ch;
    bool closed;
    unsigned asked;
    uint64_t ids[16];
    char hosts[16][64], spki[LEAF_SPKI_SIZE];
};

static int fake_on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct fake_ca *f = ctx;
    struct msg_reader r = msg_reader(m->body);
    msg_get_u8(&r);
    struct str host = msg_get_str(&r, 63), spki = msg_get_str(&r, 200);
    msg_get_u8(&r);
    assert_true(msg_reader_end(&r) && m->type == CA_SIGN && spki.n == LEAF_SPKI_SIZE && f->asked < 16);
    memcpy(f->spki, spki.p, spki.n);
    memcpy(f->hosts[f->asked], host.p, host.n);
    f->hosts[f->asked][host.n] = 0;
    f->ids[f->asked++] = m->id;
    return 0;
}

static void fake_on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    ((struct fake_ca *)ctx)->closed = true;
}

static const struct msg_ops fake_ops = { .on_message = fake_on_message, .on_closed = fake_on_closed };

static void connect_fake(struct fake_ca *f)
{
    int fds[2];
    struct err err;
    *f = (struct fake_ca) { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    f->ch = msg_channel_new(t.loop, fds[0], &fake_ops, f);
    assert_non_null(f->ch);
    assert_int_equal(leaf_cache_connect(t.cache, fds[1], &err), 0);
}

static void fake_answer(struct fake_ca *f, uint64_t id, uint8_t status, struct str leaf, uint64_t expires)
{
    struct msg_writer w;
    msg_writer_init(&w);
    msg_put_u8(&w, status);
    msg_put_str(&w, leaf);
    msg_put_u64(&w, expires);
    assert_int_equal(msg_send(f->ch, CA_SIGNED, id, buf_str(&w.buf), NULL, 0), 0);
    buf_done(&w.buf);
}

/* A good leaf for the host, with the key asked for (or another). */
static void fake_sign(struct fake_ca *f, uint64_t id, const char *host, EVP_PKEY *other_key)
{
    struct buf leaf;
    struct err err;
    int64_t expires;
    unsigned char *der = NULL;
    buf_init(&leaf, 8192);
    if (other_key)
        assert_int_equal(i2d_PUBKEY(other_key, &der), LEAF_SPKI_SIZE);
    assert_int_equal(signer_make_leaf(t.signer, false, str_c(host), str_of(der ? (char *)der : f->spki, LEAF_SPKI_SIZE),
                                      false, clock_wall_us(), &leaf, &expires, &err),
                     0);
    fake_answer(f, id, CA_OK, buf_str(&leaf), (uint64_t)expires);
    OPENSSL_free(der);
    buf_done(&leaf);
}

/* ---- tests ---- */

static void hit_and_miss(void **state)
{
    (void)state;
    connect_signer(200);
    struct asker a = { 0 }, b = { 0 }, ip = { 0 }, refusal = { 0 };
    asker_ask(&a, "api.test", 0);
    turn_until(&a.called, 1);
    assert_true(a.called == 1 && a.got && a.host_fits);
    assert_int_equal(leaf_cache_size(t.cache), 1);
    asker_ask(&b, "api.test", 1);
    assert_ptr_equal(b.cert, a.cert);
    assert_int_equal(X509_check_private_key(b.cert, leaf_cache_key(t.cache)), 1);
    /* a refusal leaf is another one */
    assert_int_equal(ask(&refusal, "api.test", false, true), 0);
    turn_until(&refusal.called, 1);
    assert_true(refusal.got && refusal.host_fits && refusal.cert != a.cert);
    assert_int_equal(ask(&ip, "127.0.0.1", true, false), 0);
    turn_until(&ip.called, 1);
    assert_int_equal(ip.called, 1);
    assert_true(ip.got && !ip.host_fits);
    assert_int_equal(ask(&ip, "127.0.0.1", true, false), 1);
    assert_int_equal(X509_check_ip_asc(ip.cert, "127.0.0.1", 0), 1);
    assert_int_equal(leaf_cache_size(t.cache), 3);
}

static void refused_at_once(void **state)
{
    (void)state;
    connect_signer(200);
    static char long_host[255];
    memset(long_host, 'a', 254);
    struct asker a = { 0 };
    static const char *const names[] = { "", "*.test", "API.test", "a..test", "127.0.0.1", "a.test.", long_host };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(ask(&a, names[i], false, false), -1);
    assert_int_equal(ask(&a, "api.test", true, false), -1);
    asker_ask(&a, "api.test", 0); /* control */
    turn_until(&a.called, 1);
    assert_int_equal(a.called, 1);
}

static void single_flight(void **state)
{
    (void)state;
    struct fake_ca f;
    connect_fake(&f);
    struct asker a = { 0 }, b = { 0 }, c = { 0 }, other = { 0 };
    asker_ask(&a, "api.test", 0);
    asker_ask(&b, "api.test", 0);
    asker_ask(&other, "other.test", 0);
    turn_until(&f.asked, 2);
    asker_ask(&c, "api.test", 0);
    pass_time(0);
    assert_int_equal(f.asked, 2);
    assert_string_equal(f.hosts[0], "api.test");
    leaf_wait_cancel(&b.wait);
    assert_null(b.wait);
    fake_sign(&f, f.ids[0], "api.test", NULL);
    turn_until(&a.called, 1);
    turn_until(&c.called, 1);
    assert_true(a.got && c.got && a.cert == c.cert);
    assert_int_equal(b.called, 0);
    assert_int_equal(other.called, 0);
    fake_answer(&f, f.ids[1], CA_REFUSED, STR(""), 0);
    turn_until(&other.called, 1);
    assert_true(other.called == 1 && !other.got);
    assert_int_equal(leaf_cache_size(t.cache), 1);
    asker_ask(&other, "other.test", 0); /* a refusal is not remembered */
    msg_channel_free(&f.ch);
}

static void cancel_in_a_callback(void **state)
{
    (void)state;
    struct fake_ca f;
    connect_fake(&f);
    struct asker a = { 0 }, b = { 0 }, then = { .host = "then.test" };
    asker_ask(&a, "api.test", 0);
    asker_ask(&b, "api.test", 0);
    a.cancel = &b.wait; /* whichever is called first cancels the other, after the answer came */
    b.cancel = &a.wait;
    a.then = b.then = &then;
    turn_until(&f.asked, 1);
    fake_sign(&f, f.ids[0], "api.test", NULL);
    for (int i = 0; i < 20; i++)
        loop_run_once(t.loop, 1);
    assert_int_equal(a.called + b.called, 1);
    assert_int_equal(f.asked, 2);
    assert_string_equal(f.hosts[1], "then.test");
    struct leaf_wait *none = NULL;
    leaf_wait_cancel(&none);
    msg_channel_free(&f.ch);
}

static void deadline(void **state)
{
    (void)state;
    struct asker a = { 0 }, late = { 0 };
    asker_ask(&a, "api.test", 0); /* no ca at all */
    pass_time(4900 * 1000);
    assert_int_equal(a.called, 0);
    pass_time(200 * 1000);
    assert_true(a.called == 1 && !a.got);
    /* a ca that does not answer; its answer after the deadline is nobody's */
    struct fake_ca f;
    connect_fake(&f);
    asker_ask(&late, "late.test", 0);
    turn_until(&f.asked, 1);
    pass_time(5100 * 1000);
    assert_true(late.called == 1 && !late.got);
    fake_sign(&f, f.ids[0], "late.test", NULL);
    pass_time(0);
    assert_int_equal(leaf_cache_size(t.cache), 0);
    assert_false(f.closed);
    msg_channel_free(&f.ch);
}

static void reconnect(void **state)
{
    (void)state;
    struct fake_ca f;
    struct asker a = { 0 }, b = { 0 };
    asker_ask(&b, "before.test", 0); /* before there is any ca */
    connect_fake(&f);
    asker_ask(&a, "api.test", 0);
    turn_until(&f.asked, 2);
    assert_int_equal(f.asked, 2);
    msg_channel_free(&f.ch); /* it died with both unanswered */
    pass_time(0);
    assert_int_equal(a.called + b.called, 0);
    connect_signer(200);
    turn_until(&a.called, 1);
    turn_until(&b.called, 1);
    assert_true(a.host_fits && b.host_fits);
}

static void rate_limited(void **state)
{
    (void)state;
    connect_signer(1);
    static struct asker a[12];
    static char hosts[12][16];
    unsigned none = 0;
    memset(a, 0, sizeof a);
    for (unsigned i = 0; i < 12; i++) {
        snprintf(hosts[i], sizeof hosts[i], "h%u.test", i);
        asker_ask(&a[i], hosts[i], 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        turn_until(&a[i].called, 1);
        assert_int_equal(a[i].called, 1);
        none += !a[i].got;
    }
    assert_in_range(none, 1, 2);
}

static void expiry(void **state)
{
    (void)state;
    connect_signer(200);
    const struct {
        bool refusal;
        int64_t still, over;
    } cases[] = { { false, 5 * day - 31 * minute, 2 * minute }, { true, 54 * minute, 2 * minute } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asker a = { 0 };
        assert_int_equal(ask(&a, "api.test", false, cases[i].refusal), 0);
        turn_until(&a.called, 1);
        pass_time(cases[i].still);
        assert_int_equal(ask(&a, "api.test", false, cases[i].refusal), 1);
        pass_time(cases[i].over);
        assert_int_equal(ask(&a, "api.test", false, cases[i].refusal), 0);
        turn_until(&a.called, 2);
        assert_true(a.called == 2 && a.got);
    }
}

static void too_short_to_keep(void **state)
{
    (void)state;
    connect_signer(200);
    pass_time(396 * day - 10 * minute); /* the CA ends in ten minutes */
    struct asker a = { 0 };
    for (unsigned i = 1; i <= 3; i++) {
        asker_ask(&a, "api.test", 0);
        turn_until(&a.called, i);
        assert_true(a.called == i && a.got);
        assert_int_equal(leaf_cache_size(t.cache), 0);
    }
    pass_time(11 * minute);
    asker_ask(&a, "api.test", 0);
    turn_until(&a.called, 4);
    assert_true(a.called == 4 && !a.got);
}

static void least_recently_used(void **state)
{
    (void)state;
    connect_signer(200);
    static const char *const hosts[] = { "a.test", "b.test", "c.test" };
    struct asker a[3] = { 0 }, d = { 0 };
    for (size_t i = 0; i < 3; i++) {
        asker_ask(&a[i], hosts[i], 0);
        turn_until(&a[i].called, 1);
    }
    asker_ask(&a[0], "a.test", 1); /* now b is the oldest */
    X509 *lent = NULL;
    struct leaf_wait *w = NULL;
    assert_int_equal(leaf_cache_get(t.cache, STR("b.test"), false, false, &lent, on_leaf, &d, &w), 1);
    asker_ask(&a[0], "a.test", 1);
    asker_ask(&a[2], "c.test", 1);
    asker_ask(&d, "d.test", 0);
    turn_until(&d.called, 1);
    assert_int_equal(leaf_cache_size(t.cache), 3);
    asker_ask(&a[0], "a.test", 1);
    asker_ask(&a[2], "c.test", 1);
    asker_ask(&d, "d.test", 1);
    asker_ask(&a[1], "b.test", 0);
}

static void flush(void **state)
{
    (void)state;
    struct fake_ca f;
    connect_fake(&f);
    struct asker kept = { 0 }, asked = { 0 };
    asker_ask(&kept, "kept.test", 0);
    turn_until(&f.asked, 1);
    fake_sign(&f, f.ids[0], "kept.test", NULL);
    turn_until(&kept.called, 1);
    asker_ask(&asked, "asked.test", 0);
    turn_until(&f.asked, 2);
    X509 *lent = NULL;
    struct leaf_wait *w = NULL;
    assert_int_equal(leaf_cache_get(t.cache, STR("kept.test"), false, false, &lent, on_leaf, &kept, &w), 1);
    leaf_cache_flush(t.cache);
    assert_int_equal(X509_check_host(lent, "kept.test", 0, 0, NULL), 1); /* what is lent is still there in this round */
    assert_int_equal(leaf_cache_size(t.cache), 0);
    turn_until(&f.asked, 3);
    assert_int_equal(f.asked, 3); /* asked again under a new id */
    assert_string_equal(f.hosts[2], "asked.test");
    assert_true(f.ids[2] != f.ids[1]);
    fake_sign(&f, f.ids[1], "asked.test", NULL); /* signed by the old CA: not taken */
    pass_time(0);
    assert_int_equal(asked.called, 0);
    fake_sign(&f, f.ids[2], "asked.test", NULL);
    turn_until(&asked.called, 1);
    assert_true(asked.got);
    asker_ask(&kept, "kept.test", 0);
    msg_channel_free(&f.ch);
}

static void hostile_ca(void **state)
{
    (void)state;
    enum kind { RIGHT, OTHER_HOST, OTHER_KEY, GARBAGE, TRAILING, EMPTY, BAD_STATUS, BAD_EXPIRY, UNKNOWN_ID };
    EVP_PKEY *other = EVP_EC_gen("P-256");
    for (enum kind k = RIGHT; k <= UNKNOWN_ID; k++) {
        struct fake_ca f;
        struct asker a = { 0 };
        leaf_cache_flush(t.cache);
        connect_fake(&f);
        asker_ask(&a, "api.test", 0);
        turn_until(&f.asked, 1);
        uint64_t id = f.ids[0];
        switch (k) {
        case RIGHT:
            fake_sign(&f, id, "api.test", NULL);
            break;
        case OTHER_HOST:
            fake_sign(&f, id, "evil.test", NULL);
            break;
        case OTHER_KEY:
            fake_sign(&f, id, "api.test", other);
            break;
        case GARBAGE:
            fake_answer(&f, id, CA_OK, STR("garbage"), 1);
            break;
        case TRAILING:
            fake_answer(&f, id, CA_OK, STR("\x30\x00\x00"), 1);
            break;
        case EMPTY:
            fake_answer(&f, id, CA_OK, STR(""), 1);
            break;
        case BAD_STATUS:
            fake_answer(&f, id, 3, STR(""), 1);
            break;
        case BAD_EXPIRY:
            fake_answer(&f, id, CA_REFUSED, STR(""), UINT64_MAX);
            break;
        case UNKNOWN_ID:
            fake_sign(&f, id + 2048, "api.test", NULL);
            break;
        }
        for (int i = 0; i < 10; i++)
            loop_run_once(t.loop, 1);
        bool closes = k != RIGHT && k != UNKNOWN_ID;
        if (f.closed != closes || a.called != (k == RIGHT) || leaf_cache_size(t.cache) != (k == RIGHT))
            fail_msg("kind %d: closed %d called %u", (int)k, f.closed, a.called);
        /* whatever it was, the next ca serves the request that waits */
        connect_signer(200);
        turn_until(&a.called, 1);
        assert_true(a.called == 1 && a.got && a.host_fits);
        msg_channel_free(&f.ch);
    }
    EVP_PKEY_free(other);
    assert_int_equal(ERR_peek_error(), 0);
}

static void bounded(void **state)
{
    (void)state;
    enum { MANY = 2048 };
    static char hosts[MANY + 1][16];
    struct asker *a = calloc(MANY + 1, sizeof *a);
    assert_non_null(a);
    for (unsigned i = 0; i <= MANY; i++)
        snprintf(hosts[i], sizeof hosts[i], "h%u.test", i);
    for (unsigned i = 0; i < MANY; i++)
        asker_ask(&a[i], hosts[i], 0);
    asker_ask(&a[MANY], hosts[MANY], -1);
    asker_ask(&a[MANY], hosts[0], 0); /* joining one that is asked costs nothing */
    connect_signer(1000);
    uint64_t start = clock_mono_ms();
    bool all = true;
    for (unsigned i = 0; i <= MANY; i++) {
        turn_until(&a[i].called, 1);
        assert_int_equal(a[i].called, 1);
        all = all && a[i].got;
    }
    /* On a machine too slow for so many signatures the rest ends at its deadline; each is answered once either way. */
    assert_true(all || clock_mono_ms() - start >= 4500);
    if (all)
        assert_int_equal(leaf_cache_size(t.cache), 3);
    free(a);
}

static void freed_while_waiting(void **state)
{
    (void)state;
    connect_signer(200);
    struct asker a = { 0 }, b = { .free_cache = true }, c = { 0 };
    asker_ask(&b, "api.test", 0);
    asker_ask(&a, "api.test", 0);
    asker_ask(&c, "other.test", 0);
    turn_until(&b.called, 1);
    for (int i = 0; i < 10; i++)
        loop_run_once(t.loop, 1);
    assert_null(t.cache);
    assert_int_equal(b.called, 1);
    assert_int_equal(a.called, 0); /* came after b */
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(hit_and_miss), T(refused_at_once), T(single_flight), T(cancel_in_a_callback), T(deadline),
        T(reconnect),    T(rate_limited),    T(expiry),        T(too_short_to_keep),    T(least_recently_used),
        T(flush),        T(hostile_ca),      T(bounded),       T(freed_while_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
