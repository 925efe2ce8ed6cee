/* SPDX-License-Identifier: Apache-2.0
 *
 * event_counter: every event is in some line, whatever the keys and however full the log; time is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "audit/event_counter.h"
#include "audit/record.h"
#include "audit/ring.h"
#include "tests/fakes/clock_fake.c"

#include <sys/eventfd.h>

enum { PLACES = 16 };

static struct {
    struct loop *loop;
    struct sink *sink;
    struct ring_reader ring;
    struct event_counter *counter;
} lab;

static void start(void)
{
    struct err err = { "" };
    clock_fake_stand(0);
    int ring = sink_ring_new(RING_MIN_BYTES, &err);
    assert_true(ring >= 0);
    lab.loop = loop_new();
    assert_int_equal(ring_reader_init(&lab.ring, ring, &err), 0);
    lab.sink = sink_open(ring, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &err);
    assert_non_null(lab.sink);
    lab.counter = event_counter_new(lab.loop, lab.sink, PLACES, &err);
    assert_non_null(lab.counter);
}

static void stop(void)
{
    event_counter_free(&lab.counter);
    sink_free(&lab.sink);
    ring_reader_done(&lab.ring);
    loop_free(lab.loop);
    clock_fake_run();
}

static void pass(uint64_t ms)
{
    clock_fake_advance_ms(ms);
    loop_run_once(lab.loop, 0);
    loop_run_once(lab.loop, 0);
}

static void build(struct event *e, uint64_t key, uint64_t number)
{
    char text[32];
    event_init(e, EVENT_FINDING);
    event_put_u64(e, FIELD_SCORE, number);
    snprintf(text, sizeof text, "%llu", (unsigned long long)key);
    event_put_str(e, FIELD_AGENT, str_c(text));
}

/* As its callers do. */
static int happens(uint64_t key, uint64_t number, uint64_t per_second)
{
    static struct event e;
    struct event_place *at = event_counter_at(lab.counter, key);
    if (!at)
        return -1;
    if (!event_place_take(at, per_second)) {
        struct event *sample = event_place_count(at);
        if (sample)
            build(sample, key, number);
        return 0;
    }
    build(&e, key, number);
    return sink_write(lab.sink, &e, false);
}

struct line {
    uint64_t key, number, count; /* count 0: one that stands for itself */
    bool ok;
};

static uint64_t u64_of(const struct record *r, enum event_field f)
{
    uint64_t v = 0;
    if (record_has(r, f))
        memcpy(&v, r->v[f].p, 8);
    return v;
}

static struct line next(void)
{
    static unsigned char bytes[EVENT_MAX];
    static struct record r;
    size_t n;
    struct line l = { 0 };
    if (ring_reader_next(&lab.ring, bytes, &n) != RING_RECORD)
        return l;
    ring_reader_commit(&lab.ring);
    assert_true(record_decode(bytes, n, &r));
    l.ok = true;
    for (struct str s = record_str(&r, FIELD_AGENT); s.n > 0; s = str_from(s, 1))
        l.key = l.key * 10 + (uint64_t)(*s.p - '0');
    l.number = u64_of(&r, FIELD_SCORE);
    l.count = u64_of(&r, FIELD_COUNT);
    return l;
}

/* Reads all lines; how many events they stand for. */
static uint64_t drain(uint64_t *ret_lines)
{
    uint64_t events = 0;
    *ret_lines = 0;
    for (struct line l; (l = next()).ok; (*ret_lines)++)
        events += l.count ? l.count : 1;
    return events;
}

static void fill(void)
{
    static struct event e;
    char text[1024];
    event_init(&e, EVENT_LIFECYCLE);
    memset(text, 'x', sizeof text);
    event_put_str(&e, FIELD_MESSAGE, str_of(text, sizeof text));
    while (sink_write(lab.sink, &e, false) == 0)
        ;
    event_init(&e, EVENT_LIFECYCLE);
    while (sink_write(lab.sink, &e, false) == 0)
        ;
}

static void test_a_second(void **state)
{
    (void)state;
    start();
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(happens(7, i, 3), 0);
    assert_int_equal(happens(8, 0, 3), 0); /* another key has a second of its own */
    for (uint64_t i = 0; i < 3; i++) {
        struct line l = next();
        assert_true(l.ok && l.key == 7 && l.number == i && !l.count);
    }
    assert_int_equal(next().key, 8);
    assert_false(next().ok);
    pass(999);
    assert_false(next().ok);
    pass(300);
    struct line l = next();
    assert_true(l.ok);
    assert_int_equal(l.key, 7);
    assert_int_equal(l.number, 6); /* 3, 4 and 6 were built: the fourth stands for all seven */
    assert_int_equal(l.count, 7);
    assert_false(next().ok);
    assert_int_equal(happens(7, 11, 3), 0);
    assert_true(next().ok);
    stop();
}

/* The next second begins with the event that finds the last one over, not with the timer. */
static void test_late_timer(void **state)
{
    (void)state;
    start();
    for (uint64_t i = 0; i < 5; i++)
        happens(7, i, 1);
    assert_int_equal(next().number, 0);
    clock_fake_advance_ms(1000);
    loop_run_once(lab.loop, 0);
    happens(7, 5, 1);
    struct line l = next();
    assert_true(l.count == 4 && l.number == 4); /* the fourth of those that were counted */
    assert_int_equal(next().number, 5);
    stop();
}

/* Far more keys than places: each event is still in some line. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { N = 5000 };
    uint64_t seen = 0, lines;
    start();
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(happens(1 + i * 2654435761u % 300, i, 1), 0);
        if (i % 16 == 0)
            seen += drain(&lines);
    }
    pass(1500);
    seen += drain(&lines);
    assert_int_equal(seen, N);
    stop();
}

/* A log without room: what is counted stays counted, and a key that would need another's place is told so. */
static void test_no_room(void **state)
{
    (void)state;
    uint64_t lines;
    start();
    for (uint64_t k = 1; k <= PLACES; k++)
        for (uint64_t i = 0; i < 3; i++)
            assert_int_equal(happens(k, i, 1), 0);
    drain(&lines);
    fill();
    assert_null(event_counter_at(lab.counter, 100));
    pass(1500);
    assert_null(event_counter_at(lab.counter, 100));
    struct event_place *own = event_counter_at(lab.counter, 3); /* its second is over, and its line not written */
    assert_null(own);
    while (next().ok)
        ;
    assert_non_null(event_counter_at(lab.counter, 100)); /* the control: room, and one of them gave way */
    pass(300);
    assert_int_equal(drain(&lines), PLACES * 2);
    stop();
}

static void test_end(void **state)
{
    (void)state;
    struct err err;
    start();
    for (uint64_t i = 0; i < 5; i++)
        happens(7, i, 1);
    next();
    event_counter_free(&lab.counter);
    assert_int_equal(next().count, 4);
    assert_false(next().ok);
    lab.counter = event_counter_new(lab.loop, lab.sink, PLACES, &err);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second), cmocka_unit_test(test_late_timer), cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_no_room),  cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
