/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/clock_fake.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static uint64_t advanced_us;
static int64_t wall_jump_us;
static struct {
    bool on;
    uint64_t mono_us, wall_us, tick_us;
} still;

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

void clock_fake_stand(uint64_t tick_us)
{
    if (!still.on) {
        still.mono_us = read_us(CLOCK_MONOTONIC);
        still.wall_us = read_us(CLOCK_REALTIME);
    }
    still.on = true;
    still.tick_us = 0;
    still.wall_us -= (uint64_t)clock_wall_us() % 1000000;
    still.tick_us = tick_us;
}

void clock_fake_run(void)
{
    still.on = false;
}

uint64_t clock_fake_real_ms(void)
{
    return read_us(CLOCK_MONOTONIC) / 1000;
}

uint64_t clock_mono_us(void)
{
    return (still.on ? still.mono_us : read_us(CLOCK_MONOTONIC)) + advanced_us;
}

uint64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t clock_wall_us(void)
{
    uint64_t us = still.on ? still.wall_us : read_us(CLOCK_REALTIME);
    still.wall_us += still.tick_us;
    return (int64_t)(us + advanced_us) + wall_jump_us;
}

void rand_bytes(void *out, size_t n)
{
    if (getrandom(out, n, 0) != (ssize_t)n)
        abort();
}
