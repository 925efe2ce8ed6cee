/* SPDX-License-Identifier: Apache-2.0
 *
 * One leaf is: shape checks, one point put on the curve (1 us), the TBSCertificate (leaf.c), SHA-256 and one ECDSA
 * signature (25 us). Whether the bytes are a good certificate is proved once at the start by a leaf for the CA's own
 * key, read back and verified by OpenSSL; after that they only differ in the values. */
#include "ca/signer.h"

#include "base/clock.h"
#include "base/log.h"
#include "ca/leaf.h"
#include "ca/root.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    HOUR_S = 3600,
    BACKDATE_S = 48 * HOUR_S,
    LIFE_S = 7 * 24 * HOUR_S, /* from notBefore: five days from now */
    REFUSAL_LIFE_S = HOUR_S,  /* from now */
    WORKERS_MAX = 4096,
    BURST_S = 10,
    KIND_DNS = 1,
    KIND_IP = 2,
    NAME_FIELD_MAX = 1024,
    SPKI_FIELD_MAX = 1024,
    SIGNATURE_MAX = 80,
    ISSUER_MAX = 512,
    KEY_ID_SIZE = 20,
};

/* A worker's channel and what is left of its share. The share belongs to the index and outlives the channel, so that a
 * worker gains nothing by dying. */
struct served {
    struct served *next;
    struct signer *signer;
    unsigned index;
    struct msg_channel *channel; /* NULL: it is gone */
    uint64_t rate, millileaves, filled_ms;
};

struct signer {
    struct loop *loop;
    struct served *served;
    EVP_PKEY *key;
    EVP_PKEY_CTX *sign;
    EVP_MD *sha256;
    EC_GROUP *group;
    EC_POINT *point;        /* scratch */
    int64_t from_us, to_us; /* of the CA */
    size_t issuer_n, issuer_key_n;
    unsigned char issuer[ISSUER_MAX], issuer_key[LEAF_ID_MAX];
};

/* ---- one leaf ---- */

/* RFC 7093 method 1: the leftmost 160 bits of SHA-256 of the key's bits. */
static int key_id(const struct signer *s, struct str point, unsigned char ret[KEY_ID_SIZE])
{
    unsigned char digest[32];
    unsigned n;
    if (EVP_Digest(point.p, point.n, digest, &n, s->sha256, NULL) != 1)
        return -1;
    memcpy(ret, digest, KEY_ID_SIZE);
    return 0;
}

static bool on_curve(struct signer *s, struct str point)
{
    bool on = EC_POINT_oct2point(s->group, s->point, (const unsigned char *)point.p, point.n, NULL) == 1;
    ERR_clear_error();
    return on;
}

static int validity(const struct signer *s, bool refusal, int64_t now_us, struct leaf_fields *f, struct err *err)
{
    if (now_us < s->from_us || now_us >= s->to_us)
        return err_set(
            err, "ca: the CA certificate is not valid now (`outgate ca rotate` makes a new one; or check the clock)");
    int64_t now = now_us / 1000000, ca_from = s->from_us / 1000000, ca_to = s->to_us / 1000000;
    f->from_s = now - BACKDATE_S > ca_from ? now - BACKDATE_S : ca_from;
    f->to_s = refusal ? now + REFUSAL_LIFE_S : now - BACKDATE_S + LIFE_S;
    if (f->to_s > ca_to)
        f->to_s = ca_to;
    return 0;
}

static int sign_tbs(struct signer *s, struct str tbs, unsigned char ret[SIGNATURE_MAX], size_t *ret_n)
{
    unsigned char digest[32];
    unsigned n;
    *ret_n = SIGNATURE_MAX;
    if (EVP_Digest(tbs.p, tbs.n, digest, &n, s->sha256, NULL) == 1 &&
        EVP_PKEY_sign(s->sign, ret, ret_n, digest, n) == 1)
        return 0;
    ERR_clear_error();
    return -1;
}

static int shape_check(struct signer *s, bool is_ip, struct str name, struct str spki, unsigned char address[16],
                       struct leaf_fields *f, unsigned char id[KEY_ID_SIZE], struct err *err)
{
    struct str point;
    char shown[80];
    if (is_ip) {
        f->name = str_of(address, leaf_name_to_ip(name, address));
        if (!f->name.n)
            return err_set(err, "ca: expected an IP address, got \"%s\"", str_escape(name, shown, sizeof shown));
    } else {
        f->name = name;
        if (!leaf_name_is_dns(name))
            return err_set(err, "ca: expected a canonical host name, got \"%s\"",
                           str_escape(name, shown, sizeof shown));
    }
    if (!leaf_spki_point(spki, &point) || !on_curve(s, point))
        return err_set(err, "ca: expected an uncompressed P-256 public key, got %zu bytes that are none", spki.n);
    if (key_id(s, point, id))
        return err_set(err, "ca: SHA-256 failed");
    f->is_ip = is_ip;
    f->spki = spki;
    f->key_id = str_of(id, KEY_ID_SIZE);
    return 0;
}

int signer_make_leaf(struct signer *s, bool is_ip, struct str name, struct str spki, bool refusal, int64_t now_us,
                     struct buf *out, int64_t *ret_expires_us, struct err *err)
{
    unsigned char serial[16], address[16], id[KEY_ID_SIZE], signature[SIGNATURE_MAX];
    struct leaf_fields f = { .issuer = str_of(s->issuer, s->issuer_n),
                             .issuer_key = str_of(s->issuer_key, s->issuer_key_n),
                             .serial = str_of(serial, sizeof serial) };
    if (shape_check(s, is_ip, name, spki, address, &f, id, err) || validity(s, refusal, now_us, &f, err))
        return -1;
    do
        rand_bytes(serial, sizeof serial);
    while (!serial[0]); /* never zero, always 16 octets (or 17 with the sign) */
    struct der tbs, cert;
    size_t n;
    der_init(&tbs);
    leaf_put_tbs(&tbs, &f);
    if (tbs.bad || sign_tbs(s, der_str(&tbs), signature, &n))
        return err_set(err, "ca: the leaf could not be signed");
    der_init(&cert);
    leaf_wrap(&cert, der_str(&tbs), str_of(signature, n));
    if (cert.bad || buf_put(out, der_str(&cert)))
        return err_set(err, "ca: the leaf does not fit");
    *ret_expires_us = f.to_s * 1000000;
    return 0;
}

/* ---- the start ---- */

static int take_issuer(struct signer *s, X509 *cert)
{
    unsigned char *name = NULL;
    int n = i2d_X509_NAME(X509_get_subject_name(cert), &name);
    const ASN1_OCTET_STRING *id = X509_get0_subject_key_id(cert);
    bool fits = n > 0 && n <= ISSUER_MAX && id && ASN1_STRING_length(id) > 0 && ASN1_STRING_length(id) <= LEAF_ID_MAX;
    if (fits) {
        s->issuer_n = (size_t)n;
        memcpy(s->issuer, name, s->issuer_n);
        s->issuer_key_n = (size_t)ASN1_STRING_length(id);
        memcpy(s->issuer_key, ASN1_STRING_get0_data(id), s->issuer_key_n);
    }
    OPENSSL_free(name);
    return fits ? 0 : -1;
}

/* Makes a leaf, lets OpenSSL read it, write it again and verify it. Also wakes everything OpenSSL opens lazily, before
 * the role locks itself down. */
static int self_check(struct signer *s)
{
    unsigned char *spki = NULL, *again = NULL;
    int n = i2d_PUBKEY(s->key, &spki), m = 0;
    int64_t expires;
    struct buf leaf;
    buf_init(&leaf, DER_MAX);
    X509 *cert = NULL;
    bool good = n > 0 && signer_make_leaf(s, false, STR("self-check.invalid"), str_of(spki, (size_t)n), true,
                                          s->to_us - 1, &leaf, &expires, NULL) == 0;
    if (good) {
        struct str der = buf_str(&leaf);
        const unsigned char *p = (const unsigned char *)der.p;
        cert = d2i_X509(NULL, &p, (long)der.n);
        m = cert && p == (const unsigned char *)der.p + der.n ? i2d_X509(cert, &again) : 0;
        good = m > 0 && str_eq(der, str_of(again, (size_t)m)) && X509_verify(cert, s->key) == 1;
    }
    OPENSSL_free(spki);
    OPENSSL_free(again);
    X509_free(cert);
    buf_done(&leaf);
    ERR_clear_error();
    return good ? 0 : -1;
}

struct signer *signer_new(struct loop *l, struct str cert_pem, struct str key_pem, struct err *err)
{
    struct signer *s = calloc(1, sizeof *s);
    X509 *cert = NULL;
    if (!s) {
        err_set(err, "ca: out of memory");
        return NULL;
    }
    s->loop = l;
    if (root_load(cert_pem, key_pem, clock_wall_us(), &s->key, &cert, err)) {
        signer_free(&s);
        return NULL;
    }
    s->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    s->group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    s->point = s->group ? EC_POINT_new(s->group) : NULL;
    s->sign = EVP_PKEY_CTX_new(s->key, NULL);
    bool ready = s->sha256 && s->point && s->sign && EVP_PKEY_sign_init(s->sign) == 1 &&
                 EVP_PKEY_CTX_set_signature_md(s->sign, s->sha256) == 1 && take_issuer(s, cert) == 0 &&
                 root_validity(cert, &s->from_us, &s->to_us) == 0 && self_check(s) == 0;
    X509_free(cert);
    if (!ready) {
        ERR_clear_error();
        err_set(err, "ca: the signer does not work with this CA (its self-check failed)");
        signer_free(&s);
    }
    return s;
}

void signer_free(struct signer **sp)
{
    struct signer *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    while (s->served) {
        struct served *w = s->served;
        s->served = w->next;
        msg_channel_free(&w->channel);
        free(w);
    }
    EVP_PKEY_CTX_free(s->sign);
    EVP_PKEY_free(s->key); /* OpenSSL wipes the number */
    EVP_MD_free(s->sha256);
    EC_POINT_free(s->point);
    EC_GROUP_free(s->group);
    free(s);
}

/* ---- serving workers ---- */

static bool take_share(struct served *w)
{
    uint64_t now = loop_now_ms(w->signer->loop), most = w->rate * BURST_S * 1000, gone = now - w->filled_ms;
    if (gone > BURST_S * 1000)
        gone = BURST_S * 1000;
    w->millileaves += gone * w->rate;
    if (w->millileaves > most)
        w->millileaves = most;
    w->filled_ms = now;
    if (w->millileaves < 1000)
        return false;
    w->millileaves -= 1000;
    return true;
}

int signer_answer(struct signer *s, struct str body, bool over_rate, int64_t now_us, struct msg_writer *ret)
{
    struct msg_reader r = msg_reader(body);
    uint8_t kind = msg_get_u8(&r);
    struct str name = msg_get_str(&r, NAME_FIELD_MAX), spki = msg_get_str(&r, SPKI_FIELD_MAX);
    uint8_t refusal = msg_get_u8(&r);
    if (!msg_reader_end(&r) || (kind != KIND_DNS && kind != KIND_IP) || refusal > 1)
        return -1;
    struct buf leaf;
    buf_init(&leaf, DER_MAX);
    int64_t expires_us = 0;
    struct err err;
    enum ca_status status = CA_OK;
    if (over_rate) {
        status = CA_RATE_LIMITED;
    } else if (signer_make_leaf(s, kind == KIND_IP, name, spki, refusal, now_us, &leaf, &expires_us, &err)) {
        status = CA_REFUSED;
        log_error("%s", err.text);
    }
    msg_put_u8(ret, (uint8_t)status);
    msg_put_str(ret, buf_str(&leaf));
    msg_put_u64(ret, (uint64_t)expires_us);
    buf_done(&leaf);
    return ret->buf.failed ? -1 : 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    struct served *w = ctx;
    if (m->type != CA_SIGN || m->nfds)
        return -1;
    struct msg_writer answer;
    msg_writer_init(&answer);
    int r = signer_answer(w->signer, m->body, !take_share(w), clock_wall_us(), &answer);
    if (!r)
        r = msg_send(ch, CA_SIGNED, m->id, buf_str(&answer.buf), NULL,
                     0); /* a worker that reads no answers is broken */
    buf_done(&answer.buf);
    return r;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct served *w = ctx;
    msg_channel_free(&w->channel);
}

static const struct msg_ops ops = { .on_message = on_message, .on_closed = on_closed };

static struct served *served_of(struct signer *s, unsigned index, uint64_t rate)
{
    for (struct served *w = s->served; w; w = w->next)
        if (w->index == index)
            return w;
    struct served *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (struct served) { .next = s->served,
                           .signer = s,
                           .index = index,
                           .millileaves = rate * BURST_S * 1000,
                           .filled_ms = loop_now_ms(s->loop) };
    s->served = w;
    return w;
}

int signer_add_worker(struct signer *s, unsigned index, int fd, uint64_t rate, struct err *err)
{
    struct served *w = index < WORKERS_MAX && rate <= UINT32_MAX ? served_of(s, index, rate) : NULL;
    struct msg_channel *ch = w ? msg_channel_new(s->loop, fd, &ops, w) : NULL;
    if (!ch) {
        close(fd);
        return err_set(err, "ca: worker %u cannot be served (out of memory or descriptors)", index);
    }
    msg_channel_free(&w->channel); /* of the one before it */
    w->channel = ch;
    w->rate = rate;
    return 0;
}
