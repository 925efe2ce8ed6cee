/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU microseconds for an origin's chain: read from the wire and verified by OpenSSL, and what origin_chain adds.
 *   origin_bench CHAIN.pem    (the host's certificate first, its root last)
 *   cc -O2 -D_GNU_SOURCE -I. tests/bench/origin_bench.c policy/origin_chain.c policy/host.c policy/ip.c base/str.c
 * base/err.c base/buf.c -lcrypto -lidn2 */
#include "policy/origin_chain.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 3000, MAX = 10 };

struct der {
    unsigned char *p;
    int n;
};

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int read_chain(const char *path, struct der ders[MAX])
{
    BIO *b = BIO_new_file(path, "r");
    int n = 0;
    for (X509 *x; b && n < MAX && (x = PEM_read_bio_X509(b, NULL, NULL, NULL)); X509_free(x), n++)
        ders[n].n = i2d_X509(x, &ders[n].p);
    BIO_free(b);
    ERR_clear_error();
    return n;
}

/* Everything but the root is new on each connection. */
static double once(struct der ders[MAX], int n, X509_STORE *store, bool check)
{
    double before = cpu_us();
    STACK_OF(X509) *sent = sk_X509_new_null();
    for (int i = 0; i < n - 1; i++) {
        const unsigned char *p = ders[i].p;
        sk_X509_push(sent, d2i_X509(NULL, &p, ders[i].n));
    }
    X509_STORE_CTX *c = X509_STORE_CTX_new();
    X509_STORE_CTX_init(c, store, sk_X509_value(sent, 0), sent);
    X509_STORE_CTX_set_default(c, "ssl_server");
    X509_STORE_CTX_set_flags(c, X509_V_FLAG_NO_CHECK_TIME);
    if (X509_verify_cert(c) != 1) {
        fprintf(stderr, "%s\n", X509_verify_cert_error_string(X509_STORE_CTX_get_error(c)));
        exit(1);
    }
    if (check) {
        struct chain_verdict v = origin_chain_check(X509_STORE_CTX_get0_chain(c));
        if (v.fault) {
            char said[200];
            fprintf(stderr, "%s\n", origin_chain_say(&v, said, sizeof said));
            exit(1);
        }
    }
    X509_STORE_CTX_free(c);
    sk_X509_pop_free(sent, X509_free);
    return cpu_us() - before;
}

int main(int argc, char **argv)
{
    struct der ders[MAX];
    int n = argc == 2 ? read_chain(argv[1], ders) : 0;
    if (n < 2) {
        fprintf(stderr, "expected: origin_bench CHAIN.pem, with two certificates at least\n");
        return 2;
    }
    const unsigned char *p = ders[n - 1].p;
    X509 *root = d2i_X509(NULL, &p, ders[n - 1].n);
    X509_STORE *store = X509_STORE_new();
    origin_chain_system_root(root);
    X509_STORE_add_cert(store, root);
    double us[2] = { 0 };
    for (int i = 0; i < N; i++) /* alternating, so that both see the same machine */
        for (int check = 0; check < 2; check++)
            us[check] += once(ders, n, store, check);
    printf("chain of %d: OpenSSL %.1f us, with origin_chain %.1f us: %.1f us more\n", n, us[0] / N, us[1] / N,
           (us[1] - us[0]) / N);
    X509_STORE_free(store);
    X509_free(root);
    return 0;
}
