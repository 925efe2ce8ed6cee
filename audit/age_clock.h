/* SPDX-License-Identifier: Apache-2.0
 *
 * age_clock: what time it is, for deciding that something is old enough to be deleted. The wall clock alone must not
 * say so: set wrong by years, for a minute, it would take the whole log with it. This clock goes with the wall clock, but
 * when that one leaps it follows at AGE_CATCH_UP times the speed of time as it really passes. A machine that was off for a
 * week is caught up with in a few hours; a leap of a hundred days is four days in which somebody can set the clock right,
 * and then nothing was deleted. It never goes ahead of the wall clock. docs/decisions/0019. */
#ifndef AUDIT_AGE_CLOCK_H
#define AUDIT_AGE_CLOCK_H

#include <stdint.h>

enum { AGE_CATCH_UP = 24 };

struct age_clock {
    int64_t at_us;
    uint64_t mono_us;
};

/* from_us: what it said when it was last stopped; 0: nobody knows, the wall clock is believed. */
void age_clock_start(struct age_clock *c, int64_t from_us, int64_t wall_us, uint64_t mono_us);
int64_t age_clock_us(struct age_clock *c, int64_t wall_us, uint64_t mono_us);

#endif
