/* SPDX-License-Identifier: Apache-2.0
 *
 * secret: a real credential value in memory. The type hides its bytes so that printing, comparing or copying one by
 * accident does not compile; secret_reveal is the one function that turns it into bytes (grep lists every use). Memory is
 * page-locked, excluded from core dumps and from children, and wiped on release. Where the kernel has memfd_secret the
 * bytes live in such a mapping. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include "base/buf.h"
#include "base/str.h"

struct secret; /* immutable, reference-counted within one process */

enum { SECRET_MAX = 64 * 1024 };

/* Prepares the locked arena; call once per process before lock-down. 0, or -1 where not one page could be locked. */
int secret_init(void);
/* Copies n bytes (1 … SECRET_MAX) in; the caller wipes its own copy. NULL when full. */
struct secret *secret_new(const void *p, size_t n);
struct secret *secret_ref(struct secret *s);
/* Wipes with the last reference; takes the address and leaves NULL. NULL is fine. */
void secret_unref(struct secret **s);
size_t secret_size(const struct secret *s);
/* The bytes, borrowed: for writing into a request, building needles, and the mint channel. Nothing else. */
struct str secret_reveal(const struct secret *s);
/* explicit_bzero under one name. */
void secret_wipe(void *p, size_t n);
/* Constant time over the longer of both. */
bool secret_equal(struct str a, struct str b);

#endif
