/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: one credential value that lives minutes, as the sidecar gave it: id, value (a struct secret), end, refresh time, and
 * the scope it was narrowed to. "Expiry" everywhere means expires_at minus 30 s of skew. */
#ifndef MINT_LEASE_H
#define MINT_LEASE_H

#include "base/secret.h"
#include "policy/policy.h"

enum { LEASE_ID_MAX = 128, LEASE_SKEW_MS = 30000 };

struct lease_scope {
    struct name_list hosts, methods;      /* host patterns as text ("*.x" or exact); given == false: not narrowed */
    struct path_pattern *paths;
    size_t npaths;
};
struct lease {
    unsigned refs;
    char id[LEASE_ID_MAX + 1];
    struct str credential, agent; /* names, in the lease's arena */
    struct secret *value;
    int64_t expires_us; /* as clamped, before skew */
    int64_t refresh_us;
    struct lease_scope scope;
    struct arena arena;
};
struct lease *lease_ref(struct lease *l);
void lease_unref(struct lease **l);
bool lease_expired(const struct lease *l, int64_t now_us);
/* May this lease serve the request (its own narrowed scope)? */
bool lease_covers(const struct lease *l, const struct ask *ask);

#endif
