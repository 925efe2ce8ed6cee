/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/age_clock.h"

void age_clock_start(struct age_clock *c, int64_t from_us, int64_t wall_us, uint64_t mono_us)
{
    *c = (struct age_clock) { .at_us = from_us >= AGE_CLOCK_SET_US ? from_us : wall_us, .mono_us = mono_us };
}

int64_t age_clock_us(struct age_clock *c, int64_t wall_us, uint64_t mono_us)
{
    uint64_t passed = mono_us - c->mono_us, most = (uint64_t)INT64_MAX / (2 * (AGE_CATCH_UP + 1));
    c->mono_us = mono_us;
    if (c->at_us < AGE_CLOCK_SET_US)
        c->at_us = wall_us;
    if (wall_us < AGE_CLOCK_SET_US)
        return wall_us;
    int64_t step = (int64_t)(passed < most ? passed : most) * (AGE_CATCH_UP + 1), gap = wall_us - c->at_us;
    if (gap > step)
        c->at_us += step;
    else if (gap < -step)
        c->at_us -= step;
    else
        c->at_us = wall_us;
    return c->at_us < wall_us ? c->at_us : wall_us;
}
