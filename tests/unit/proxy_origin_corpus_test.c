/* SPDX-License-Identifier: Apache-2.0
 *
 * Another project's certificate chains (C2SP/x509-limbo), read from OUTGATE_CORPORA/x509/limbo.json (none of it is in
 * this tree). Each is presented by a TLS server to the code that a worker meets origins with, at the case's time, under
 * the case's name and roots (as an operator's origin.ca_file). Every case must end as the corpus says, but for those of
 * the two lists below, which must still differ. */
#include "base/buf.h"
#include "base/clock.h"
#include "tests/lib/origin_rig.h"

#include <jansson.h>
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct exception {
    const char *of; /* a case, or a feature that cases have */
    const char *reason;
} accepted_anyway[] = {
    { "has-crl", "there is no revocation list to give us: revocation is not checked" },
    { "webpki::eku::ee-without-eku", "RFC 5280 4.2.1.12 permits it (rfc5280::eku::ee-without-eku is to be accepted); private CAs issue such" },
    { "webpki::cn::not-in-san", "the common name is not read where there are alternative names (RFC 9525 2); chains to accept have such" },
    { "webpki::cn::punycode-not-in-san", "the common name is not read where there are alternative names (RFC 9525 2)" },
    { "rfc5280::aki::cross-signed-root-missing-aki", "a root is a name and a key (RFC 5280 6.1.1 d): who signed it is not asked, so neither is an AKI" },
    { "pedantic-public-suffix-wildcard", "public suffixes are not asked of an origin's certificate" },
}, refused_anyway[] = {
    { "rfc5280::validity::notafter-exact", "OpenSSL takes the last second of a certificate for past its end" },
    { "rfc5280::ca-as-leaf", "RFC 5280 lets a CA's certificate be a server's, BR 7.1.2.7.8 does not" },
};

static const char *exception_for(const char *of, const struct exception *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].of, of))
            return list[i].reason;
    return NULL;
}
#define EXCEPTION(of, list) exception_for(of, list, sizeof(list) / sizeof *(list))

struct counts {
    unsigned to_refuse, to_accept, accepted_wrongly, refused_wrongly, named, not_ours, no_handshake;
};

static X509 *read_cert(const char *pem)
{
    BIO *b = BIO_new_mem_buf(pem, -1);
    X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);
    BIO_free(b);
    return x;
}

/* A case without a key (a real site's chain): one that agrees with the certificate in its public half alone. The chain
 * is judged before the signature that it cannot make. */
static EVP_PKEY *key_like(X509 *leaf)
{
    EVP_PKEY *public = X509_get0_pubkey(leaf), *key = NULL;
    OSSL_PARAM *params = NULL, *merged;
    BIGNUM *odd = BN_new();
    BN_set_word(odd, 65539);
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    bool rsa = EVP_PKEY_is_a(public, "RSA");
    OSSL_PARAM_BLD_push_BN(bld, rsa ? OSSL_PKEY_PARAM_RSA_D : OSSL_PKEY_PARAM_PRIV_KEY, odd);
    OSSL_PARAM *private = OSSL_PARAM_BLD_to_param(bld);
    assert_int_equal(EVP_PKEY_todata(public, EVP_PKEY_PUBLIC_KEY, &params), 1);
    merged = OSSL_PARAM_merge(params, private);
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, rsa ? "RSA" : "EC", NULL);
    EVP_PKEY_fromdata_init(c);
    assert_int_equal(EVP_PKEY_fromdata(c, &key, EVP_PKEY_KEYPAIR, merged), 1);
    EVP_PKEY_CTX_free(c);
    OSSL_PARAM_free(merged);
    OSSL_PARAM_free(params);
    OSSL_PARAM_free(private);
    OSSL_PARAM_BLD_free(bld);
    BN_free(odd);
    return key;
}

static EVP_PKEY *read_key(const char *pem, X509 *leaf)
{
    BIO *b = pem ? BIO_new_mem_buf(pem, -1) : NULL;
    EVP_PKEY *key = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : key_like(leaf);
    BIO_free(b);
    return key;
}

static SSL_CTX *make_server(const json_t *c)
{
    size_t i;
    json_t *v;
    STACK_OF(X509) *sent = sk_X509_new_null();
    X509 *leaf = read_cert(json_string_value(json_object_get(c, "peer_certificate")));
    EVP_PKEY *key = leaf ? read_key(json_string_value(json_object_get(c, "peer_certificate_key")), leaf) : NULL;
    json_array_foreach(json_object_get(c, "untrusted_intermediates"), i, v)
    {
        X509 *x = read_cert(json_string_value(v));
        if (x)
            sk_X509_push(sent, x);
    }
    SSL_CTX *server = key ? origin_rig_server(leaf, sent, key) : NULL;
    EVP_PKEY_free(key);
    X509_free(leaf);
    sk_X509_pop_free(sent, X509_free);
    return server;
}

/* What a server cannot even load or sign with is no chain that it could present: refused, by nobody in particular. */
static bool accepts(const json_t *c, const struct host *host, char *why, size_t why_size, struct counts *n)
{
    struct buf roots;
    struct origin_rig rig;
    size_t i;
    json_t *v;
    int64_t at_us = 0;
    const char *at = json_string_value(json_object_get(c, "validation_time"));
    buf_init(&roots, 8u << 20);
    json_array_foreach(json_object_get(c, "trusted_certs"), i, v) buf_put(&roots, str_c(json_string_value(v)));
    origin_rig_init(&rig, buf_str(&roots), false, STR_NONE);
    SSL_CTX *server = make_server(c);
    assert_true(!at || !clock_parse_rfc3339(at, strlen(at), &at_us));
    struct origin_meeting m = { 0 };
    snprintf(m.why, sizeof m.why, "no server can load it");
    bool keyless = json_is_null(json_object_get(c, "peer_certificate_key"));
    if (server)
        m = origin_rig_meet(&rig, server, host, (time_t)(at_us / 1000000));
    if (!m.refused && !m.connected && !keyless) {
        n->no_handshake++;
        snprintf(m.why, sizeof m.why, "no handshake");
    }
    snprintf(why, why_size, "%s", m.why);
    SSL_CTX_free(server);
    origin_rig_done(&rig);
    buf_done(&roots);
    return m.connected || (keyless && server && !m.refused);
}

static void judge(const json_t *c, struct counts *n)
{
    const char *id = json_string_value(json_object_get(c, "id"));
    const char *name = json_string_value(json_object_get(json_object_get(c, "expected_peer_name"), "value"));
    bool server = !strcmp(json_string_value(json_object_get(c, "validation_kind")), "SERVER");
    bool good = !strcmp(json_string_value(json_object_get(c, "expected_result")), "SUCCESS");
    struct host host;
    char why[160];
    if (!server || !name) {
        n->not_ours++; /* a client's certificate */
        return;
    }
    *(good ? &n->to_accept : &n->to_refuse) += 1;
    bool accepted = !host_parse(str_c(name), &host, NULL) && accepts(c, &host, why, sizeof why, n);
    const char *own = good ? EXCEPTION(id, refused_anyway) : EXCEPTION(id, accepted_anyway), *reason = own;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(c, "features"), i, v) if (!reason && !good) reason =
        EXCEPTION(json_string_value(v), accepted_anyway);
    bool differs = accepted != good;
    if (differs && reason) {
        print_message("%s: %s: %s\n", id, accepted ? "accepted" : "refused", reason);
        n->named++;
    } else if (differs) {
        print_message("%s: WRONGLY %s%s%s\n", id, accepted ? "ACCEPTED" : "REFUSED", accepted ? "" : ": ",
                      accepted ? "" : why);
        *(accepted ? &n->accepted_wrongly : &n->refused_wrongly) += 1;
    } else if (getenv("OUTGATE_TEST_VERBOSE")) {
        print_message("%s: %s\n", id, accepted ? "accepted" : why);
    }
    if (!differs && own)
        fail_msg("%s: an exception is named that is none any more", id);
}

static void chains(void **state)
{
    (void)state;
    const char *folder = getenv("OUTGATE_CORPORA");
    if (!folder) {
        print_message("skipped: OUTGATE_CORPORA is not set (a folder with x509/limbo.json)\n");
        skip();
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/x509/limbo.json", folder);
    json_error_t e;
    json_t *all = json_load_file(path, 0, &e), *c;
    if (!all) {
        print_message("skipped: %s: %s\n", path, e.text);
        skip();
    }
    struct counts n = { 0 };
    size_t i;
    json_array_foreach(json_object_get(all, "testcases"), i, c) judge(c, &n);
    json_decref(all);
    print_message("%u to refuse, %u wrongly accepted; %u to accept, %u wrongly refused; %u named exceptions, %u "
                  "clients' certificates left out, "
                  "%u refused by the handshake alone\n",
                  n.to_refuse, n.accepted_wrongly, n.to_accept, n.refused_wrongly, n.named, n.not_ours, n.no_handshake);
    assert_true(n.to_refuse > 30 && n.to_accept > 10);
    assert_int_equal(n.accepted_wrongly, 0);
    assert_int_equal(n.refused_wrongly, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(chains) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
