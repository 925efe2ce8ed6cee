/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates as an origin may send them, one after the other. Whatever they say, there is a verdict with a sentence;
 * one that is good has what a good one must have; and a root that the system vouches for is refused for nothing that
 * another is not. */
#include "policy/origin_chain.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void must_be_good(STACK_OF(X509) * chain)
{
    int n = sk_X509_num(chain);
    X509 *host = sk_X509_value(chain, 0);
    MUST(X509_get_ext_by_NID(host, NID_subject_alt_name, -1) >= 0);
    MUST(n == 1 || !(X509_get_extension_flags(host) & EXFLAG_CA));
    for (int i = 0; i < n; i++) {
        X509 *x = sk_X509_value(chain, i);
        MUST(X509_get_version(x) == X509_VERSION_3 && X509_get0_pubkey(x));
        MUST(i == 0 || X509_get_extension_flags(x) & EXFLAG_CA);
    }
}

static enum chain_fault check(STACK_OF(X509) * chain)
{
    struct chain_verdict v = origin_chain_check(chain);
    char said[200];
    MUST(v.fault >= CHAIN_FINE && v.fault < CHAIN_FAULTS && strlen(origin_chain_say(&v, said, sizeof said)) < 150);
    if (!v.fault)
        must_be_good(chain);
    return v.fault;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned char *p = data, *end = data + size;
    STACK_OF(X509) *chain = sk_X509_new_null();
    for (X509 *x; sk_X509_num(chain) < 10 && (x = d2i_X509(NULL, &p, end - p));)
        sk_X509_push(chain, x);
    int n = sk_X509_num(chain);
    enum chain_fault named = check(chain);
    if (n > 1) {
        (void)origin_chain_until(chain);
        MUST(!origin_chain_system_root(sk_X509_value(chain, n - 1)));
        enum chain_fault system = check(chain);
        MUST(named || !system);
    }
    sk_X509_pop_free(chain, X509_free);
    ERR_clear_error();
    return 0;
}
