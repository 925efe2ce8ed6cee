/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/h2_mem.h"

#include "base/secret.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void *take(size_t n, void *ctx)
{
    (void)ctx;
    return malloc(n);
}

static void *take_zeroed(size_t n, size_t each, void *ctx)
{
    (void)ctx;
    return calloc(n, each);
}

static void give(void *p, void *ctx)
{
    (void)ctx;
    if (!p)
        return;
    secret_wipe(p, malloc_usable_size(p));
    free(p);
}

/* The C library's would leave the bytes where they were. */
static void *move(void *p, size_t n, void *ctx)
{
    if (!p)
        return take(n, ctx);
    size_t had = malloc_usable_size(p);
    void *q = malloc(n ? n : 1);
    if (!q)
        return NULL;
    memcpy(q, p, had < n ? had : n);
    give(p, ctx);
    return q;
}

nghttp2_mem *h2_mem_wiping(void)
{
    static nghttp2_mem mem = { NULL, take, give, take_zeroed, move };
    return &mem;
}
