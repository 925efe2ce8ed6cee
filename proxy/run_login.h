/* SPDX-License-Identifier: Apache-2.0
 *
 * run_login: logins that live as long as one `outgate run`. The supervisor makes a random token for each and tells the
 * workers all that live, as digests: nothing that a worker holds lets anyone in. */
#ifndef PROXY_RUN_LOGIN_H
#define PROXY_RUN_LOGIN_H

#include "base/str.h"
#include "policy/config.h"

enum { RUN_LOGINS_MAX = 64, RUN_LOGIN_DIGEST = 32 };

struct run_login {
    uint64_t id; /* never 0, never used again */
    char agent[CONFIG_NAME_MAX + 1];
    unsigned char digest[RUN_LOGIN_DIGEST];
};
struct run_logins {
    size_t n;
    struct run_login v[RUN_LOGINS_MAX];
};

/* SHA-256 of the token. */
void run_login_digest(struct str token, unsigned char out[RUN_LOGIN_DIGEST]);
/* The login whose token has this digest, or NULL. Takes as long whichever it is, and when it is none. */
const struct run_login *run_logins_find(const struct run_logins *l, const unsigned char digest[RUN_LOGIN_DIGEST]);
/* Does the run with this id still go on? */
bool run_logins_has(const struct run_logins *l, uint64_t id);

#endif
