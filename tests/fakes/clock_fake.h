/* SPDX-License-Identifier: Apache-2.0
 *
 * The real clocks plus an offset that a test moves by hand. A test that includes clock_fake.c defines what base/clock.h
 * promises, so the linker leaves base/clock.c out. */
#ifndef TESTS_FAKES_CLOCK_FAKE_H
#define TESTS_FAKES_CLOCK_FAKE_H

#include "base/clock.h"

/* Both clocks. */
void clock_fake_advance_ms(uint64_t ms);
/* Only what the wall says, either way. */
void clock_fake_jump_wall_ms(int64_t ms);
/* From here on time stands still, the wall clock at a whole second, but for what is moved by hand and tick_us at each
 * reading of the wall clock. Until clock_fake_run. */
void clock_fake_stand(uint64_t tick_us);
void clock_fake_run(void);
/* The real monotonic clock, for a test's own patience. */
uint64_t clock_fake_real_ms(void);

#endif
