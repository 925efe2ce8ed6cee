/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker and logger die together: the worker's dead ring, the one of its next incarnation, and a logger that starts
 * with both. Every open gets exactly one close, the real one where it was taken; and a dead ring is called closed only
 * when nothing of it is left. */
#include "audit_lab.h"

struct closed_rings {
    unsigned n, generation;
};

static void on_closed(void *ctx, const char *role, unsigned index, unsigned generation)
{
    struct closed_rings *c = ctx;
    assert_string_equal(role, "worker");
    assert_int_equal(index, 3);
    c->n++;
    c->generation = generation;
}

static void turn(struct lab *lab, int n)
{
    while (n--)
        loop_run_once(lab->loop, 5);
}

static size_t closes(const struct lab *lab, const char *id)
{
    return lab_count(lab, "close", "request_id", id);
}

static const char *end_of(const struct lab *lab, const char *id, char out[32])
{
    json_t *all = lab_lines(lab), *line;
    size_t i;
    out[0] = '\0';
    json_array_foreach(all, i,
                       line) if (!strcmp(lab_text(line, "type"), "close") && !strcmp(lab_text(line, "request_id"), id))
        snprintf(out, 32, "%s", lab_text(line, "end"));
    json_decref(all);
    return out;
}

/* taken: the old worker's close was taken before everything died. */
static void both_die(bool taken, bool next_has_lines)
{
    struct lab lab;
    struct lab_ring old, next;
    struct closed_rings closed = { 0 };
    char end[32];
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    lab_ring_init(&lab, &old, RING_MIN_BYTES);
    lab_ring_init(&lab, &next, RING_MIN_BYTES);
    lab_ring_add(&lab, &old, "worker", 3, 1);
    lab_write(&old, EVENT_OPEN, "A");
    lab_settle(&lab, &old);
    if (next_has_lines) { /* the old one died and its successor was read, but the dead ring was not dropped yet */
        lab_ring_add(&lab, &next, "worker", 3, 2);
        lab_write(&next, EVENT_OPEN, "B");
        lab_settle(&lab, &next);
    }
    logger_free(&lab.logger); /* killed: no flush */
    if (taken)
        lab_write(&old, EVENT_CLOSE, "A");
    lab_start(&lab);
    logger_on_ring_closed(lab.logger, on_closed, &closed);
    lab_ring_add(&lab, &old, "worker", 3, 1);
    turn(&lab, 2);
    lab_ring_add(&lab, &next, "worker", 3, 2);
    turn(&lab, 2);
    assert_int_equal(closed.n, 0);
    logger_ring_died(lab.logger, "worker", 3, 1);
    turn(&lab, 6);
    assert_int_equal(closed.n, 1);
    assert_int_equal(closed.generation, 1);
    assert_int_equal(closes(&lab, "A"), 1);
    assert_string_equal(end_of(&lab, "A", end), taken ? "ok" : "worker_died");
    if (next_has_lines) {
        assert_int_equal(closes(&lab, "B"), 0); /* it lives */
        lab_write(&next, EVENT_CLOSE, "B");
        const uint64_t one = 1; /* its sink touches the eventfd of the logger that died */
        assert_int_equal(write(logger_wake_fd(lab.logger), &one, sizeof one), sizeof one);
        lab_settle(&lab, &next);
    }
    logger_ring_died(lab.logger, "worker", 3, 2);
    turn(&lab, 6);
    assert_int_equal(closed.n, 2);
    assert_int_equal(closes(&lab, "A"), 1);
    assert_int_equal(closes(&lab, "B"), next_has_lines);
    assert_verifies(&lab);
    lab_ring_done(&old);
    lab_ring_done(&next);
    lab_done(&lab);
}

static void test_both_die(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        both_die(i & 1, i & 2);
}

/* A ring that nobody knows is closed at once, so that its owner lets it go. */
static void test_unknown_ring(void **state)
{
    (void)state;
    struct lab lab;
    struct closed_rings closed = { 0 };
    lab_init(&lab, "/tmp");
    lab_start(&lab);
    logger_on_ring_closed(lab.logger, on_closed, &closed);
    logger_ring_died(lab.logger, "worker", 3, 7);
    assert_int_equal(closed.n, 1);
    assert_int_equal(closed.generation, 7);
    lab_done(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_die),
        cmocka_unit_test(test_unknown_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
