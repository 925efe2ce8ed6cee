/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fair.h"

#include "base/log.h"

enum { STEP_MS = 100, BURST_MS = FAIR_BURST_S * 1000 };

bool fair_take(struct fair_stock *f, uint64_t owner, uint64_t n, uint64_t all)
{
    uint64_t *held = &f->held[owner % FAIR_PLACES];
    if (!fair_may(*held, f->used, all) || n > all - f->used)
        return false;
    *held += n;
    f->used += n;
    return true;
}

void fair_give(struct fair_stock *f, uint64_t owner, uint64_t n)
{
    uint64_t *held = &f->held[owner % FAIR_PLACES];
    MUST(*held >= n && f->used >= n);
    *held -= n;
    f->used -= n;
}

static void fill(struct fair_rate *f, uint64_t per_second, uint64_t now_ms)
{
    uint64_t full = per_second * BURST_MS, gone = now_ms - f->filled_ms;
    if (!f->started || gone > BURST_MS)
        gone = BURST_MS;
    f->started = true;
    f->filled_ms = now_ms;
    f->milli += gone * per_second;
    if (f->milli > full)
        f->milli = full;
}

/* What an owner took fades like e^(-t / burst), in steps long enough to show in whole numbers. */
static uint64_t faded(struct fair_rate *f, uint64_t owner, uint64_t now_ms)
{
    uint64_t gone = now_ms - f->taken[owner % FAIR_PLACES].since_ms, *milli = &f->taken[owner % FAIR_PLACES].milli;
    if (gone < STEP_MS)
        return *milli;
    *milli -= gone < BURST_MS ? *milli * gone / BURST_MS : *milli;
    f->taken[owner % FAIR_PLACES].since_ms = now_ms;
    return *milli;
}

bool fair_rate_take(struct fair_rate *f, uint64_t owner, uint64_t per_second, uint64_t now_ms)
{
    fill(f, per_second, now_ms);
    if (f->milli < 1000 || faded(f, owner, now_ms) / FAIR_SHARE >= f->milli)
        return false;
    f->milli -= 1000;
    f->taken[owner % FAIR_PLACES].milli += 1000;
    return true;
}
