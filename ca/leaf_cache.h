/* SPDX-License-Identifier: Apache-2.0
 *
 * leaf_cache: a worker's leaves: one P-256 key of its own (made at start, never leaves the process), certificates by
 * canonical host in an LRU, single flight to the signer. A cached leaf is used until half an hour before its end (a
 * refusal leaf: five minutes). Never calls back on the caller's stack. */
#ifndef CA_LEAF_CACHE_H
#define CA_LEAF_CACHE_H

#include "base/err.h"
#include "base/loop.h"
#include "base/msg.h"

#include <openssl/ssl.h>

struct leaf_cache;
struct leaf_wait; /* one waiter */

struct leaf_cache *leaf_cache_new(struct loop *l, size_t max_leaves, struct err *err);
void leaf_cache_free(struct leaf_cache **c);
/* The (new) channel to the ca; takes fd (closed here on failure too). Requests waiting on an old one are sent again. */
int leaf_cache_connect(struct leaf_cache *c, int fd, struct err *err);

/* Asks for the leaf of this host. Returns 1 and a borrowed certificate (valid until the loop's next round; use it at
 * once with SSL_use_certificate); 0: cb will be called once on a later stack, with NULL when no leaf can be had (ca
 * away for 5 s, refused, rate limited); -1: refused at once. *ret_wait cancels (leaf_wait_cancel) before cb ran. */
int leaf_cache_get(struct leaf_cache *c, struct str host, bool is_ip, bool refusal, X509 **ret_cert,
                   void (*cb)(void *ctx, X509 *cert), void *ctx, struct leaf_wait **ret_wait);
/* Would leaf_cache_get do without asking the ca (again)? */
bool leaf_cache_has(struct leaf_cache *c, struct str host, bool is_ip, bool refusal);
void leaf_wait_cancel(struct leaf_wait **w);
EVP_PKEY *leaf_cache_key(struct leaf_cache *c);
/* The new CA after a rotation: forget every leaf. */
void leaf_cache_flush(struct leaf_cache *c);
size_t leaf_cache_size(const struct leaf_cache *c);

#endif
