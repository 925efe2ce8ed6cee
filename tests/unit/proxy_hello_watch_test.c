/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may say what in clear text behind a ClientHello: dialogues as tables, each cut into pieces of every size; each
 * refusal beside one that differs in one record and passes; and OpenSSL's own second ClientHello. */
#include "proxy/hello_watch.h"

#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { FIRST = 10, TURNS = 4 };

#define RETRY                                                                                                          \
    "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2" \
    "\xc8\xa8\x33\x9c"
#define ALMOST                                                                                                         \
    "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2" \
    "\xc8\xa8\x33\x9d"
#define ANSWER(random) "\x16\x03\x03\0\x28\x02\0\0\x24\x03\x03" random "\0\0"
#define SPLIT          "\x16\x03\x03\0\x03\x02\0\0\x16\x03\x03\0\x25\x24\x03\x03" RETRY "\0\0"
#define HELLO          "\x16\x03\x01\0\x05\x01\0\0\x01x"
#define EARLY          "\x17\x03\x03\0\x03\x16\x01\x01"
#define CHANGE         "\x14\x03\x03\0\x01\x01"
#define WARNING        "\x15\x03\x03\0\x02\x01\x70"

enum result { PASSES = 0, HELD /* the last of the client's, at its handshake record */, REFUSED };

/* client and server by turns, behind a first ClientHello of FIRST bytes */
static const struct dialogue {
    const char *what;
    struct {
        const char *bytes;
        size_t n;
    } turns[TURNS];
    enum result result;
    size_t passed; /* HELD: bytes of the client's last turn that go on */
} dialogues[] = {
#define SAYS(bytes)                                                                                                    \
    {                                                                                                                  \
        bytes, sizeof(bytes) - 1                                                                                       \
    }
    { "nothing more", { SAYS("") }, PASSES, 0 },
    { "early data, a warning and the empty change", { SAYS(EARLY CHANGE WARNING EARLY) }, PASSES, 0 },
    { "a second hello unasked", { SAYS(EARLY HELLO) }, REFUSED, 0 },
    { "control: it is asked for", { SAYS(EARLY), SAYS(ANSWER(RETRY)), SAYS(CHANGE HELLO) }, HELD, 6 },
    { "asked for in two records", { SAYS(""), SAYS(SPLIT), SAYS(HELLO) }, HELD, 0 },
    { "asked for behind a warning and a change",
      { SAYS(""), SAYS(WARNING CHANGE ANSWER(RETRY)), SAYS(HELLO) },
      HELD,
      0 },
    { "late early data before the second", { SAYS(""), SAYS(ANSWER(RETRY)), SAYS(EARLY EARLY HELLO) }, HELD, 16 },
    { "another handshake message in its place",
      { SAYS(""), SAYS(ANSWER(RETRY)), SAYS("\x16\x03\x03\0\x04\x0b") },
      HELD,
      0 },
    { "a random that is almost that", { SAYS(""), SAYS(ANSWER(ALMOST)), SAYS(HELLO) }, PASSES, 0 },
    { "behind a ServerHello anything", { SAYS(""), SAYS(ANSWER(ALMOST) "any"), SAYS("thing" HELLO) }, PASSES, 0 },
    { "half a ServerHello is none",
      { SAYS(""), SAYS("\x16\x03\x03\0\x28\x02\0\0\x24\x03\x03"), SAYS(HELLO) },
      REFUSED,
      0 },
    { "no TLS behind the hello", { SAYS("GET / HTTP/1.1") }, REFUSED, 0 },
    { "a heartbeat", { SAYS("\x18") }, REFUSED, 0 },
    { "another version", { SAYS("\x17\x02") }, REFUSED, 0 },
    { "no TLS behind the request for another", { SAYS(""), SAYS(ANSWER(RETRY)), SAYS("GET") }, REFUSED, 0 },
    { "no TLS from the host", { SAYS(""), SAYS("220 mail") }, REFUSED, 0 },
    { "data from the host before its hello", { SAYS(""), SAYS("\x17\x03\x03\0\x01x") }, REFUSED, 0 },
    { "another message from the host", { SAYS(""), SAYS("\x16\x03\x03\0\x04\x00") }, REFUSED, 0 },
    { "an alert and no more", { SAYS(""), SAYS(WARNING) }, PASSES, 0 },
};

static enum result play(const struct dialogue *d, size_t piece, size_t *ret_passed)
{
    struct hello_watch w;
    const char *why = NULL;
    hello_watch_init(&w, FIRST);
    *ret_passed = 0;
    assert_int_equal(hello_watch_client(&w, STR(HELLO), &why), FIRST);
    for (size_t t = 0; t < TURNS; t++) {
        struct str rest = str_of(d->turns[t].bytes ? d->turns[t].bytes : "", d->turns[t].n);
        size_t passed = 0;
        while (rest.n) {
            struct str part = str_sub(rest, 0, rest.n < piece ? rest.n : piece);
            char *copy = malloc(part.n); /* exact, for the sanitizer to see a byte too far */
            memcpy(copy, part.p, part.n);
            size_t n = part.n;
            if (t % 2)
                why = hello_watch_server(&w, str_of(copy, part.n));
            else
                n = hello_watch_client(&w, str_of(copy, part.n), &why);
            free(copy);
            passed += n;
            if (why)
                return REFUSED;
            if (w.state == HELLO_HELD) {
                *ret_passed = passed;
                return HELD;
            }
            assert_int_equal(n, part.n);
            rest = str_from(rest, n);
        }
    }
    return PASSES;
}

static void test_dialogues(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dialogues / sizeof *dialogues; i++)
        for (size_t piece = 1; piece <= 64; piece++) {
            size_t passed;
            enum result r = play(&dialogues[i], piece, &passed);
            if (r != dialogues[i].result || (r == HELD && passed != dialogues[i].passed))
                fail_msg("%s, pieces of %zu: %d, %zu", dialogues[i].what, piece, (int)r, passed);
        }
}

/* --- the real thing --- */

static SSL *peer(const SSL_METHOD *method, char *groups, BIO **ret_in, BIO **ret_out)
{
    SSL_CTX *ctx = SSL_CTX_new(method);
    assert_int_equal(SSL_CTX_set1_groups_list(ctx, groups), 1);
    SSL *ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    *ret_in = BIO_new(BIO_s_mem());
    *ret_out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, *ret_in, *ret_out);
    return ssl;
}

static void certify(SSL *server)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    assert_true(X509_set_pubkey(cert, key) && X509_sign(cert, key, EVP_sha256()) > 0);
    assert_true(SSL_use_certificate(server, cert) == 1 && SSL_use_PrivateKey(server, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static struct str said(BIO *out, char *mem, size_t size)
{
    int n = BIO_read(out, mem, (int)size);
    return str_of(mem, n > 0 ? (size_t)n : 0);
}

static void test_openssl(void **state)
{
    (void)state;
    for (int retries = 0; retries < 2; retries++) {
        char mem[16384];
        const char *why;
        struct hello_watch w;
        BIO *cin, *cout, *sin, *sout;
        SSL *client = peer(TLS_client_method(), "X25519:P-384", &cin, &cout),
            *server = peer(TLS_server_method(), retries ? "P-384" : "X25519", &sin, &sout);
        certify(server);
        SSL_connect(client);
        struct str s = said(cout, mem, sizeof mem);
        hello_watch_init(&w, s.n);
        assert_int_equal(hello_watch_client(&w, s, &why), s.n);
        BIO_write(sin, s.p, (int)s.n);
        SSL_accept(server);
        s = said(sout, mem, sizeof mem);
        assert_true(s.n > 0);
        assert_null(hello_watch_server(&w, s));
        assert_int_equal(w.state, retries ? HELLO_RETRIED : HELLO_OVER);
        if (retries) {
            BIO_write(cin, s.p, (int)s.n);
            SSL_connect(client);
            s = said(cout, mem, sizeof mem);
            size_t n = hello_watch_client(&w, s, &why);
            assert_int_equal(w.state, HELLO_HELD);
            assert_true(n < s.n && s.p[n] == 0x16 && s.p[n + 5] == 1);
        }
        SSL_free(client);
        SSL_free(server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_dialogues), cmocka_unit_test(test_openssl) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
