/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ms(void)
{
    return mono_ns() / 1000000;
}

uint64_t clock_mono_us(void)
{
    return mono_ns() / 1000;
}

int64_t clock_wall_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A signal may cut a request of more than 256 bytes short. */
static void rand_fetch(unsigned char *p, size_t n)
{
    while (n) {
        ssize_t k = getrandom(p, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            abort();
        p += k;
        n -= (size_t)k;
    }
}

/* Small requests are served from a pool, so that an id or a serial costs no system call. What was handed out is wiped at
 * once. A forked child must not repeat its parent's pool: no child draws from it before it executes something else. Threads
 * that draw at the same time must lock, as the minter's do. */
void rand_bytes(void *out, size_t n)
{
    static unsigned char pool[1024];
    static size_t left;
    unsigned char *p = out;
    if (n <= sizeof pool / 16) {
        if (left < n) {
            rand_fetch(pool, sizeof pool);
            left = sizeof pool;
        }
        memcpy(p, pool + sizeof pool - left, n);
        explicit_bzero(pool + sizeof pool - left, n);
        left -= n;
        return;
    }
    rand_fetch(p, n);
}
