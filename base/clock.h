/* SPDX-License-Identifier: Apache-2.0
 *
 * clock and rand: the two link seams through which a process sees time and chance. Tests link tests/fakes/clock_fake.c
 * instead of clock.c and move time by hand. Nothing else in the tree calls clock_gettime, time or getrandom. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic, milliseconds / microseconds; never goes back. For waits and durations. */
uint64_t clock_mono_ms(void);
uint64_t clock_mono_us(void);
/* Wall clock, microseconds since 1970 UTC. For what people read and for expiry; may jump. */
int64_t clock_wall_us(void);
/* Random bytes fit for keys; aborts the process when the kernel has none (fail closed). */
void rand_bytes(void *out, size_t n);

/* RFC 3339 UTC with microseconds: "2026-01-01T00:10:00.123456Z" (27 characters, NUL added). Returns out. */
const char *clock_format_us(int64_t wall_us, char out[28]);
/* RFC 3339 date-time with Z or a numeric offset and optional fraction, to microseconds; 0 or -1 (out of grammar or out
 * of range). */
int clock_parse_rfc3339(const char *p, size_t n, int64_t *ret_wall_us);

#endif
