/* SPDX-License-Identifier: Apache-2.0
 *
 * A clock that is wrong deletes nothing: the age clock, what segments' names say, and the logger's pruning by both. */
#include "tests/unit/audit_lab.h"

#include "audit/age_clock.h"
#include "audit/segment.h"

#include "tests/fakes/clock_fake.c"

static const int64_t hour = 3600000000, day = 24 * hour, epoch = 21000; /* days: of the year 2027 */
enum { DAY_MS = 86400000, PRUNE_MS = 61000 };

/* --- the clock --- */

static void goes_with_the_wall(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 0, 21000 * day, 5);
    assert_true(age_clock_us(&c, 21000 * day, 5) == 21000 * day);
    for (int64_t t = 1; t < 100; t++)
        assert_true(age_clock_us(&c, 21000 * day + t * hour, 5 + (uint64_t)(t * hour)) == 21000 * day + t * hour);
}

/* Never ahead of a wall clock that is behind, and with it again once it is right. */
static void waits_where_the_wall_falls_back(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 0, 21000 * day, 0);
    assert_true(age_clock_us(&c, 20900 * day, 0) == 20900 * day);
    assert_true(age_clock_us(&c, 20900 * day + hour, (uint64_t)hour) == 20900 * day + hour);
    assert_true(c.at_us == 20999 * day - hour);
    assert_true(age_clock_us(&c, 21000 * day + 2 * hour, (uint64_t)(2 * hour)) == 21000 * day); /* 26 hours, at 25 a one */
    assert_true(age_clock_us(&c, 21000 * day + 4 * hour, (uint64_t)(4 * hour)) == 21000 * day + 4 * hour);
    assert_true(age_clock_us(&c, 60, (uint64_t)(4 * hour)) == 60); /* 1970 */
    assert_true(age_clock_us(&c, 21000 * day + 4 * hour, (uint64_t)(4 * hour)) == 21000 * day + 4 * hour);
    assert_true(age_clock_us(&c, 20900 * day, (uint64_t)(8 * day)) == 20900 * day); /* it stayed: it is the time */
    assert_true(c.at_us == 20900 * day);
}

static void follows_a_leap_slowly(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 0, 21000 * day, 0);
    assert_true(age_clock_us(&c, 21100 * day, 0) == 21000 * day);
    assert_true(age_clock_us(&c, 21100 * day, (uint64_t)hour) == 21000 * day + 25 * hour);
    assert_true(age_clock_us(&c, 21000 * day + hour, (uint64_t)hour) == 21000 * day + hour); /* set right again */
    assert_true(age_clock_us(&c, 21100 * day, (uint64_t)hour) == 21000 * day + 25 * hour);   /* no more than conceded */
    assert_true(age_clock_us(&c, 21000 * day + 2 * hour, (uint64_t)(2 * hour)) == 21000 * day + 2 * hour);
    assert_true(age_clock_us(&c, 21100 * day, (uint64_t)(2 * hour)) == 21000 * day + 2 * hour); /* and it is taken back */
    assert_true(age_clock_us(&c, 21104 * day, (uint64_t)(4 * day)) < 21104 * day);
    assert_true(age_clock_us(&c, 21105 * day, (uint64_t)(5 * day)) == 21105 * day); /* it stayed: it is the time */
    assert_true(age_clock_us(&c, INT64_MAX, UINT64_MAX) > 21105 * day);             /* and nothing overflows */
}

static void goes_on_after_a_stop(void **state)
{
    (void)state;
    struct age_clock c;
    age_clock_start(&c, 21000 * day, 21007 * day, 77);
    assert_true(age_clock_us(&c, 21007 * day, 77) == 21000 * day);
    assert_true(age_clock_us(&c, 21007 * day + 8 * hour, 77 + (uint64_t)(8 * hour)) == 21007 * day + 8 * hour);
    age_clock_start(&c, 21007 * day, 60, 0); /* a machine whose clock begins at 1970 */
    assert_true(age_clock_us(&c, 60, 0) == 60);
    assert_true(age_clock_us(&c, 60 + hour / 60, (uint64_t)hour / 60) == 60 + hour / 60);
    assert_true(age_clock_us(&c, 21007 * day + hour, (uint64_t)hour) == 21007 * day + hour); /* was set right */
}

/* A log that is begun before the clock was set. */
static void believes_the_first_that_is_set(void **state)
{
    (void)state;
    struct age_clock c;
    for (int again = 0; again < 2; again++) { /* the first time, and after a stop */
        age_clock_start(&c, again ? c.at_us : 0, 60, 0);
        assert_true(age_clock_us(&c, 70, 10) == 70);
    }
    assert_true(age_clock_us(&c, 21000 * day, 20) == 21000 * day);
    assert_true(age_clock_us(&c, 21100 * day, 20) == 21000 * day); /* and that a leap is followed slowly */
    assert_true(age_clock_us(&c, 80, (uint64_t)hour) == 80);       /* unset again: nothing is known from it */
    assert_true(c.at_us == 21000 * day);
}

/* --- what names say --- */

static size_t expired(const int64_t *days, size_t n, int64_t before, int64_t now)
{
    struct segment v[8] = { 0 };
    for (size_t i = 0; i < n; i++)
        v[i].start_us = days[i] ? (epoch + days[i]) * day : days[i];
    struct segments s = { .list = { .v = v, .n = n } };
    return segments_expired(&s, (epoch + before) * day, (epoch + now) * day);
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
    /* and the next that is right says when it ended at the latest */
    assert_int_equal(EXPIRED(95, 100, 90, 92, 1, 2, 99), 1);
    assert_int_equal(EXPIRED(95, 100, 90, 92, 1, 2, 94, 99), 4);
    assert_int_equal(EXPIRED(95, 100, 90, 1, 2, 99), 0);
    assert_int_equal(EXPIRED(95, 100, 90, 0, 94, 99), 2); /* 0: 1970 */
    assert_int_equal(EXPIRED(95, 100, 0, 0, 94, 95, 99), 2); /* the log begins before the clock was set */
    assert_int_equal(EXPIRED(95, 100, 0, 0, 99), 0);
    assert_int_equal(EXPIRED(95, 100, 90, 92, 1, 2), 1);
    assert_int_equal(EXPIRED(95, 100, 465, 92, 93, 99), 2); /* the first of all says nothing either */
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

static void begun(struct world *w)
{
    *w = (struct world) { 0 };
    lab_init(&w->lab, "/tmp");
    w->lab.options.segment_bytes = 1; /* one for each batch */
    w->lab.options.keep_ms = 10ull * DAY_MS;
    lab_start(&w->lab);
    lab_ring_init(&w->lab, &w->ring, 1 << 20);
    lab_ring_add(&w->lab, &w->ring, "worker", 0, 1);
}

static void started(struct world *w)
{
    begun(w);
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

static void start_again(struct world *w)
{
    lab_start(&w->lab);
    lab_ring_done(&w->ring);
    lab_ring_init(&w->lab, &w->ring, 1 << 20);
    lab_ring_add(&w->lab, &w->ring, "worker", 0, 2);
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
    start_again(&w);
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

/* A machine that boots at 1970 and is told the time later: what is old goes as ever. */
static void a_clock_that_was_behind_stops_no_pruning(void **state)
{
    (void)state;
    struct world w;
    started(&w);
    int64_t behind_ms = clock_wall_us() / 1000;
    clock_fake_jump_wall_ms(-behind_ms); /* while it runs */
    prune(&w);
    lab_stop(&w.lab);
    start_again(&w); /* when it starts */
    prune(&w);
    lab_stop(&w.lab);
    start_again(&w);
    clock_fake_jump_wall_ms(behind_ms);
    prune(&w);
    assert_true(has_first(&w));
    for (int i = 0; i < 11; i++)
        clock_fake_advance_ms(DAY_MS);
    prune(&w);
    assert_false(has_first(&w));
    assert_true(lab_count(&w.lab, "lifecycle", "what", "pruned") > 0);
    ended(&w);
}

static void a_log_begun_before_the_clock_was_set(void **state)
{
    (void)state;
    struct world w;
    int64_t behind_ms = clock_wall_us() / 1000;
    clock_fake_jump_wall_ms(-behind_ms);
    begun(&w);
    write_one(&w);
    write_one(&w);
    lab_stop(&w.lab);
    start_again(&w);
    clock_fake_jump_wall_ms(behind_ms);
    prune(&w);
    assert_true(has_first(&w));
    clock_fake_advance_ms(9ull * DAY_MS);
    prune(&w);
    assert_true(has_first(&w));
    clock_fake_advance_ms(2ull * DAY_MS);
    prune(&w);
    assert_false(has_first(&w));
    ended(&w);
}

/* The anchor's time, made later by somebody who has no key, under a leap. */
static void a_time_that_is_not_signed_is_not_believed(void **state)
{
    (void)state;
    struct world w;
    size_t n;
    char ts[28];
    started(&w);
    lab_stop(&w.lab);
    clock_fake_jump_wall_ms(3650ll * DAY_MS);
    char *text = lab_read(w.lab.keys, AUDIT_ANCHOR_NAME, &n), *at = strstr(text, "\"ts\":\"");
    assert_non_null(at);
    memcpy(at + 6, clock_format_us(clock_wall_us(), ts), 27);
    lab_put(w.lab.keys, AUDIT_ANCHOR_NAME, text, n);
    free(text);
    start_again(&w);
    prune(&w);
    assert_true(has_first(&w));
    clock_fake_jump_wall_ms(-3650ll * DAY_MS);
    ended(&w);
}

/* Without an anchor the newest name says nothing: it may be the leap's own. */
static void a_leap_without_an_anchor_deletes_nothing(void **state)
{
    (void)state;
    struct world w;
    started(&w);
    clock_fake_jump_wall_ms(3650ll * DAY_MS);
    write_one(&w);
    lab_stop(&w.lab);
    unlink(w.lab.anchor);
    start_again(&w);
    prune(&w);
    assert_true(has_first(&w));
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "chain_broken"), 1);
    clock_fake_jump_wall_ms(-3650ll * DAY_MS);
    lab_stop(&w.lab);
    lab_ring_done(&w.ring);
    lab_done(&w.lab);
}

/* To the microsecond: what pruning asks of both clocks it asks about one instant. */
static void one_instant(void **state)
{
    (void)state;
    struct world w;
    struct dirent **v;
    struct segment second;
    begun(&w);
    write_one(&w);
    clock_fake_advance_ms(3600 * 1000);
    write_one(&w);
    int n = lab_segments(&w.lab, &v);
    assert_true(n > 2 && segment_name_parse(str_c(v[1]->d_name), &second));
    lab_segments_free(v, n);
    lab_stop(&w.lab);
    start_again(&w); /* knows the names, which are in whole seconds */
    clock_fake_stand(0);
    const int64_t edge_us = second.start_us + 10 * day, rest_ms = (edge_us - clock_wall_us()) / 1000;
    clock_fake_advance_ms((uint64_t)rest_ms - PRUNE_MS);
    for (int i = 0; i < 20; i++) { /* the next that comes is pruning: what was written by then is synced and in the anchor */
        loop_run_once(w.lab.loop, 0);
        clock_fake_advance_ms(1000);
    }
    clock_fake_advance_ms(PRUNE_MS - 20 * 1000);
    assert_true(clock_wall_us() == edge_us);
    clock_fake_stand(1);
    for (int i = 0; i < 5; i++)
        loop_run_once(w.lab.loop, 0);
    clock_fake_stand(0);
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "pruned"), 0);
    clock_fake_run();
    prune(&w);
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "pruned"), 1);
    assert_int_equal(lab_count(&w.lab, "lifecycle", "what", "prune_waits"), 0);
    ended(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_with_the_wall),
        cmocka_unit_test(waits_where_the_wall_falls_back),
        cmocka_unit_test(follows_a_leap_slowly),
        cmocka_unit_test(goes_on_after_a_stop),
        cmocka_unit_test(believes_the_first_that_is_set),
        cmocka_unit_test(names_given_by_a_wrong_clock),
        cmocka_unit_test(a_leap_deletes_nothing),
        cmocka_unit_test(a_leap_that_stays_is_time),
        cmocka_unit_test(a_clock_that_was_behind_stops_no_pruning),
        cmocka_unit_test(a_log_begun_before_the_clock_was_set),
        cmocka_unit_test(a_time_that_is_not_signed_is_not_believed),
        cmocka_unit_test(a_leap_without_an_anchor_deletes_nothing),
        cmocka_unit_test(one_instant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
