/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/run_login.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

void run_login_digest(struct str token, unsigned char out[RUN_LOGIN_DIGEST])
{
    SHA256((const unsigned char *)(token.p ? token.p : ""), token.n, out);
}

const struct run_login *run_logins_find(const struct run_logins *l, const unsigned char digest[RUN_LOGIN_DIGEST])
{
    const struct run_login *found = NULL;
    for (size_t i = 0; i < l->n; i++)
        if (!CRYPTO_memcmp(l->v[i].digest, digest, RUN_LOGIN_DIGEST))
            found = &l->v[i];
    return found;
}

bool run_logins_has(const struct run_logins *l, uint64_t id)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].id == id)
            return true;
    return false;
}
