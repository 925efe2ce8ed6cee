/* SPDX-License-Identifier: Apache-2.0
 *
 * A clock that is wrong deletes nothing: the age clock, what segments' names say, and the logger's pruning by both. */
#include "tests/unit/audit_lab.h"

#include "audit/age_clock.h"
#include "audit/segment.h"

#include "tests/fakes/clock_fake.c"

static const int64_t hour = 3600000000, day = 24 * hour;
enum { DAY_MS = 86400000, PRUNE_MS = 61000 };

/* --- the clock --- */

static void goes_with_the_wall(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 0, 1000 * day, 5);
    assert_true(age_clock_us(&c, 1000 * day, 5) == 1000 * day);
    for (int64_t t = 1; t < 100; t++)
        assert_true(age_clock_us(&c, 1000 * day + t * hour, 5 + (uint64_t)(t * hour)) == 1000 * day + t * hour);
    assert_true(age_clock_us(&c, 900 * day, 5 + (uint64_t)(100 * hour)) == 900 * day); /* back at once */
}

static void follows_a_leap_slowly(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 0, 1000 * day, 0);
    assert_true(age_clock_us(&c, 1100 * day, 0) == 1000 * day);
    assert_true(age_clock_us(&c, 1100 * day, (uint64_t)hour) == 1000 * day + 25 * hour);
    assert_true(age_clock_us(&c, 1000 * day + hour, (uint64_t)hour) == 1000 * day + hour); /* set right again */
    assert_true(age_clock_us(&c, 1100 * day, (uint64_t)hour) == 1000 * day + hour);
    assert_true(age_clock_us(&c, 1104 * day, (uint64_t)(4 * day)) < 1104 * day);
    assert_true(age_clock_us(&c, 1105 * day, (uint64_t)(5 * day)) == 1105 * day); /* it stayed: it is the time */
    assert_true(age_clock_us(&c, INT64_MAX, UINT64_MAX) > 1105 * day);             /* and nothing overflows */
}

static void goes_on_after_a_stop(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 1000 * day, 1007 * day, 77);
    assert_true(age_clock_us(&c, 1007 * day, 77) == 1000 * day);
    assert_true(age_clock_us(&c, 1007 * day + 8 * hour, 77 + (uint64_t)(8 * hour)) == 1007 * day + 8 * hour);
    age_clock_start(&c, 1007 * day, 1000 * day, 0); /* from the future: the wall is the most that is believed */
    assert_true(age_clock_us(&c, 1000 * day, 0) == 1000 * day);
}

/* --- what names say --- */

static size_t expired(const int64_t *days, size_t n, int64_t before, int64_t now)
{
    struct segment v[8] = { 0 };
    for (size_t i = 0; i < n; i++)
        v[i].start_us = days[i] * day;
    struct segments s = { .list = { .v = v, .n = n } };
    return segments_expired(&s, before * day, now * day);
}
#define EXPIRED(before, now, ...)                                                                                      \
    expired((const int64_t[]) { __VA_ARGS__ }, sizeof((const int64_t[]) { __VA_ARGS__ }) / sizeof(int64_t), before, now)

static void names_given_by_a_wrong_clock(void **state)
{
    (void)state;
    assert_int_equal(EXPIRED(95, 100, 90, 91, 92, 99), 2);
    assert_int_equal(EXPIRED(95, 100, 90, 91, 92, 93), 3); /* never the last */
    /* a year ahead for a while: what came after says when it ended at the latest */
    assert_int_equal(EXPIRED(95, 100, 90, 465, 466, 92, 99), 3);
    assert_int_equal(EXPIRED(95, 100, 90, 91, 465, 98, 99), 1);
    assert_int_equal(EXPIRED(95, 100, 90, 91, 465), 1); /* nothing came after */
    /* a year behind for a while: what came before says when it began at the earliest */
    assert_int_equal(EXPIRED(95, 100, 90, 98, 1, 2, 99), 0);
    assert_int_equal(EXPIRED(95, 100, 90, 92, 1, 2, 99), 3);
}

/* --- the logger --- */

struct world {
    struct lab lab;
    struct lab_ring ring;
    int n;
};

static void write_one(struct world *w)
{
    char id[16];
    snprintf(id, sizeof id, "R%d", w->n++);
    lab_write(&w->ring, EVENT_OPEN, id);
    lab_write(&w->ring, EVENT_CLOSE, id);
    lab_settle(&w->lab, &w->ring);
}

/* The timer of pruning comes, and what it says is written. */
static void prune(struct world *w)
{
    clock_fake_advance_ms(PRUNE_MS);
    for (int i = 0; i < 5; i++)
        loop_run_once(w->lab.loop, 0);
    write_one(w);
}

static void started(struct world *w)
{
    *w = (struct world) { 0 };
    lab_init(&w->lab, "/tmp");
    w->lab.options.segment_bytes = 1; /* one for each batch */
    w->lab.options.keep_ms = 10ull * DAY_MS;
    lab_start(&w->lab);
    lab_ring_init(&w->lab, &w->ring, 1 << 20);
    lab_ring_add(&w->lab, &w->ring, "worker", 0, 1);
    for (int i = 0; i < 5; i++) {
        write_one(w);
        clock_fake_advance_ms(DAY_MS);
        prune(w);
    }
}

static void ended(struct world *w)
{
    lab_stop(&w->lab);
    assert_verifies(&w->lab);
    lab_ring_done(&w->ring);
    lab_done(&w->lab);
}

static bool has_first(const struct world *w)
{
    return lab_count(&w->lab, "open", "request_id", "R0") == 1;
}

static void a_leap_deletes_nothing(void **state)
{
    (void)state;
    struct world w;
    started(&w);
    clock_fake_jump_wall_ms(3650ll * DAY_MS);
    prune(&w);
    prune(&w);
    assert_true(has_first(&w));
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "prune_waits"), 1);
    lab_stop(&w.lab); /* nor does another logger, which was not there when it leapt */
    lab_start(&w.lab);
    lab_ring_done(&w.ring);
    lab_ring_init(&w.lab, &w.ring, 1 << 20);
    lab_ring_add(&w.lab, &w.ring, "worker", 0, 2);
    prune(&w);
    assert_true(has_first(&w));
    clock_fake_jump_wall_ms(-3650ll * DAY_MS);
    prune(&w);
    assert_true(has_first(&w));
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "pruned"), 0);
    for (int i = 0; i < 11; i++) /* the control: the same days pass */
        clock_fake_advance_ms(DAY_MS);
    prune(&w);
    assert_false(has_first(&w));
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "pruned"), 1);
    ended(&w);
}

static void a_leap_that_stays_is_time(void **state)
{
    (void)state;
    struct world w;
    started(&w);
    clock_fake_jump_wall_ms(100ll * DAY_MS);
    clock_fake_advance_ms(3 * 3600 * 1000);
    prune(&w);
    assert_true(has_first(&w)); /* eight days: within keep */
    clock_fake_advance_ms(12 * 3600 * 1000);
    prune(&w);
    assert_false(has_first(&w));
    ended(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_with_the_wall),           cmocka_unit_test(follows_a_leap_slowly),
        cmocka_unit_test(goes_on_after_a_stop),         cmocka_unit_test(names_given_by_a_wrong_clock),
        cmocka_unit_test(a_leap_deletes_nothing),       cmocka_unit_test(a_leap_that_stays_is_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
