/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/age_clock.h"

void age_clock_start(struct age_clock *c, int64_t from_us, int64_t wall_us, uint64_t mono_us)
{
    *c = (struct age_clock) { .at_us = from_us > 0 && from_us < wall_us ? from_us : wall_us, .mono_us = mono_us };
}

int64_t age_clock_us(struct age_clock *c, int64_t wall_us, uint64_t mono_us)
{
    uint64_t passed = mono_us - c->mono_us, most = (uint64_t)INT64_MAX / (2 * (AGE_CATCH_UP + 1));
    c->mono_us = mono_us;
    int64_t step = (int64_t)(passed < most ? passed : most) * (AGE_CATCH_UP + 1);
    if (wall_us <= c->at_us || wall_us - c->at_us <= step)
        c->at_us = wall_us;
    else
        c->at_us += step;
    return c->at_us;
}
