/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/origin_path.h"

#include <openssl/x509_vfy.h>

/* SIGNATURES bounds what an origin can make us compute after its first chain: so many certificates in the chains that
 * are tried, each of them a signature at most. */
enum { SIGNATURES = 24, QUEUE = 64, SENT_MAX = 32 };

/* Sets of sent certificates to leave out, in the order in which they are tried: each a bit for each certificate. */
struct tries {
    uint32_t without[QUEUE];
    size_t n;
    int signatures; /* left */
};

static void add_try(struct tries *t, uint32_t without)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->without[i] == without)
            return;
    if (t->n < QUEUE)
        t->without[t->n++] = without;
}

/* Every sent certificate above the host's own in a chain that was refused is one to try without. */
static void add_tries(struct tries *t, uint32_t without, STACK_OF(X509) * chain, STACK_OF(X509) * sent)
{
    for (int i = 1; i < sk_X509_num(chain); i++)
        for (int j = 0; j < sk_X509_num(sent) && j < SENT_MAX; j++)
            if (sk_X509_value(sent, j) == sk_X509_value(chain, i))
                add_try(t, without | UINT32_C(1) << j);
}

static bool judge(X509_STORE_CTX *c, struct chain_verdict *ret_verdict)
{
    *ret_verdict = (struct chain_verdict) { .fault = CHAIN_FINE };
    if (X509_verify_cert(c) != 1)
        return false;
    *ret_verdict = origin_chain_check(X509_STORE_CTX_get0_chain(c));
    if (!ret_verdict->fault)
        return true;
    X509_STORE_CTX_set_error(c, X509_V_ERR_APPLICATION_VERIFICATION);
    return false;
}

/* The host's own certificate is what it is in every chain. */
static bool hopeless(X509_STORE_CTX *c, const struct chain_verdict *v)
{
    int e = X509_STORE_CTX_get_error(c);
    return e == X509_V_ERR_HOSTNAME_MISMATCH || e == X509_V_ERR_IP_ADDRESS_MISMATCH ||
           (v->fault && v->place == CHAIN_HOST);
}

/* True: accepted, and the chain is now first's. */
static bool verify_without(X509_STORE_CTX *first, STACK_OF(X509) * sent, uint32_t without, struct tries *t)
{
    struct chain_verdict v;
    X509_STORE_CTX *c = X509_STORE_CTX_new();
    STACK_OF(X509) *kept = sk_X509_new_null();
    bool ok = c && kept;
    for (int j = 0; ok && j < sk_X509_num(sent) && j < SENT_MAX; j++)
        ok = without >> j & 1 || sk_X509_push(kept, sk_X509_value(sent, j)) > 0;
    ok = ok && X509_STORE_CTX_init(c, X509_STORE_CTX_get0_store(first), X509_STORE_CTX_get0_cert(first), kept) == 1 &&
         X509_VERIFY_PARAM_set1(X509_STORE_CTX_get0_param(c), X509_STORE_CTX_get0_param(first)) == 1;
    bool found = ok && judge(c, &v);
    t->signatures -= c ? sk_X509_num(X509_STORE_CTX_get0_chain(c)) : SIGNATURES;
    if (found) {
        X509_STORE_CTX_set0_verified_chain(first, X509_STORE_CTX_get1_chain(c));
        X509_STORE_CTX_set_error(first, X509_V_OK);
        X509_STORE_CTX_set_error_depth(first, 0);
    } else if (ok) {
        add_tries(t, without, X509_STORE_CTX_get0_chain(c), sent);
    }
    X509_STORE_CTX_free(c);
    sk_X509_free(kept);
    return found;
}

static bool policies_fit(X509_STORE_CTX *store, struct chain_verdict *ret_verdict)
{
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(store);
    X509 *host = X509_STORE_CTX_get0_cert(store);
    *ret_verdict = (struct chain_verdict) { .fault = CHAIN_FINE };
    if (!origin_chain_policies_fit(host))
        *ret_verdict = (struct chain_verdict) { .fault = CHAIN_POLICIES, .place = CHAIN_HOST };
    for (int i = 0; !ret_verdict->fault && i < sk_X509_num(sent); i++)
        if (sk_X509_value(sent, i) != host && !origin_chain_policies_fit(sk_X509_value(sent, i)))
            *ret_verdict = (struct chain_verdict) { .fault = CHAIN_POLICIES, .place = CHAIN_INTERMEDIATE };
    if (!ret_verdict->fault)
        return true;
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return false;
}

bool origin_path_verify(X509_STORE_CTX *store, struct chain_verdict *ret_verdict)
{
    if (!policies_fit(store, ret_verdict))
        return false;
    if (judge(store, ret_verdict))
        return true;
    if (hopeless(store, ret_verdict))
        return false;
    struct tries t = { .signatures = SIGNATURES };
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(store);
    add_tries(&t, 0, X509_STORE_CTX_get0_chain(store), sent);
    for (size_t i = 0; i < t.n && t.signatures > 0; i++)
        if (verify_without(store, sent, t.without[i], &t)) {
            *ret_verdict = (struct chain_verdict) { .fault = CHAIN_FINE };
            return true;
        }
    return false;
}
