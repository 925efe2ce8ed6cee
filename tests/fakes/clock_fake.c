/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/clock_fake.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static uint64_t advanced_us;
static int64_t wall_jump_us;

static uint64_t read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void clock_fake_advance_ms(uint64_t ms)
{
    advanced_us += ms * 1000;
}

void clock_fake_jump_wall_ms(int64_t ms)
{
    wall_jump_us += ms * 1000;
}

uint64_t clock_fake_real_ms(void)
{
    return read_us(CLOCK_MONOTONIC) / 1000;
}

uint64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC) + advanced_us;
}

uint64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t clock_wall_us(void)
{
    return (int64_t)(read_us(CLOCK_REALTIME) + advanced_us) + wall_jump_us;
}

void rand_bytes(void *out, size_t n)
{
    if (getrandom(out, n, 0) != (ssize_t)n)
        abort();
}
