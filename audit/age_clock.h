/* SPDX-License-Identifier: Apache-2.0
 *
 * age_clock: what time it is, for deciding that something is old enough to be deleted. The wall clock alone must not
 * say so: set wrong by years, for a minute, it would take the whole log with it. This clock goes with the wall clock, but
 * when that one leaps, either way, it follows at AGE_CATCH_UP times the speed of time as it really passes. A machine that
 * was off for a week is caught up with in a few hours; a leap of a hundred days is four days in which somebody can set the
 * clock right, and then nothing was deleted. A clock that was behind for a while, and is right again, is gone with at once;
 * a machine that does not know the time yet (before AGE_CLOCK_SET_US) says nothing of it. docs/decisions/0019. */
#ifndef AUDIT_AGE_CLOCK_H
#define AUDIT_AGE_CLOCK_H

#include <stdint.h>

enum { AGE_CATCH_UP = 24 };
/* 2026-01-01: no clock that was ever set is before it. */
#define AGE_CLOCK_SET_US INT64_C(1767225600000000)

struct age_clock {
    int64_t at_us; /* its own time: to be kept over a stop. Ahead of the wall clock where that one fell back */
    uint64_t mono_us;
};

/* from_us: its own time (at_us) when it was last stopped; where nobody knows (0, or it was never set) the first wall clock
 * that is set is believed. */
void age_clock_start(struct age_clock *c, int64_t from_us, int64_t wall_us, uint64_t mono_us);
/* The time for deciding on age: its own, but never ahead of the wall clock. */
int64_t age_clock_us(struct age_clock *c, int64_t wall_us, uint64_t mono_us);

#endif
