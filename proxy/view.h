/* SPDX-License-Identifier: Apache-2.0
 *
 * view: what one snapshot means to a worker: policy, placeholders, the TLS context that judges origins, and our CA certificate
 * as clients fetch it. Immutable and reference-counted: an exchange ends under the view it began with. */
#ifndef PROXY_VIEW_H
#define PROXY_VIEW_H

#include "dns/canary.h"
#include "proxy/worker.h"

#include <openssl/ssl.h>

struct view {
    unsigned refs;
    uint64_t number; /* grows with every snapshot; part of every pool key */
    struct policy *policy;
    const struct config *config;
    const struct limits *limits;
    struct placeholder_table *placeholders;
    struct needles *placeholder_needles;
    struct canary *canary; /* pieces of them, for names */
    struct virtual_table *names; /* NULL: none */
    SSL_CTX *origin_tls;
    struct str own_ca; /* PEM, owned */
    struct str parent_login; /* "Basic …" for origin.parent_proxy, owned; STR_NONE: none */
};

/* NULL with the reason: an empty trust store, an unreadable CA file. */
struct view *view_new(const struct worker_snapshot *s, uint64_t number, struct err *err);
struct view *view_ref(struct view *v);
void view_unref(struct view **v);

#endif
