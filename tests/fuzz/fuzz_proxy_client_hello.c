/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the beginning of a tunnel: what is ready stays ready and says the same when more follows, and says so with none of its
 * bytes missing; what is bad stays bad. OpenSSL, given the same bytes, sees the same name or none at all. */
#include "proxy/client_hello.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 65536 };

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fuzz_proxy_client_hello: %s\n", what);
        abort();
    }
}

static char seen[1024];
static bool saw;

static int on_hello(SSL *ssl, int *alert, void *arg)
{
    (void)alert;
    (void)arg;
    const unsigned char *p;
    size_t n;
    saw = true;
    seen[0] = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n) && n > 5)
        snprintf(seen, sizeof seen, "%.*s", (int)(n - 5), (const char *)p + 5);
    return SSL_CLIENT_HELLO_ERROR;
}

static void ask_openssl(const uint8_t *data, size_t size)
{
    static SSL_CTX *ctx;
    if (!ctx) {
        ctx = SSL_CTX_new(TLS_server_method());
        SSL_CTX_set_client_hello_cb(ctx, on_hello, NULL);
    }
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new_mem_buf(data, (int)size), *out = BIO_new(BIO_s_null());
    check(ssl && in && out, "memory");
    SSL_set_bio(ssl, in, out);
    saw = false;
    SSL_accept(ssl);
    ERR_clear_error();
    SSL_free(ssl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buf scratch = { .max = 1 << 20 };
    struct client_hello_said said, again;
    const char *why;
    char first[1024] = "", second[1024] = "";
    if (size > MAX)
        return 0;
    struct client_hello_walk whole = { 0 }, walk = { 0 };
    enum client_hello r = client_hello_read(&whole, str_of(data, size), MAX, &scratch, &said, &why);
    check((r == HELLO_BAD) == (why != NULL), "a reason");
    if (r == HELLO_READY) {
        snprintf(first, sizeof first, "%.*s", STR_ARG(said.sni.p ? said.sni : STR("")));
        check(said.bytes && said.bytes <= size, "records of another size");
        ask_openssl(data, size);
        check(!saw || !strcmp(first, seen), "another name than OpenSSL");
    }
    enum client_hello before = HELLO_MORE;
    size_t step = size / 64 + 1;
    for (size_t n = 0; n <= size; n += step) {
        enum client_hello part = client_hello_read(&walk, str_of(data, n), MAX, &scratch, &again, &why);
        check(before == HELLO_MORE || part == before, "it changed its mind");
        before = part;
    }
    check(before == HELLO_MORE || before == r, "it changed its mind at the end");
    check(client_hello_read(&walk, str_of(data, size), MAX, &scratch, &again, &why) == r, "in pieces it is another");
    if (r == HELLO_READY) {
        snprintf(second, sizeof second, "%.*s", STR_ARG(again.sni.p ? again.sni : STR("")));
        check(!strcmp(first, second), "in pieces it has another name");
        check(again.bytes == said.bytes && again.hides_name == said.hides_name, "in pieces it says something else");
    }
    return 0;
}
