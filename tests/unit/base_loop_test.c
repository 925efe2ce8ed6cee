/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static int fired[64];
static int order[256], norder;

struct numbered {
    struct timer t;
    int n;
};
static void on_timer(struct timer *t)
{
    struct numbered *x = (struct numbered *)t;
    fired[x->n]++;
    order[norder++] = x->n;
}

static void timers_fire_in_order_and_once(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct numbered v[4] = { { .t.cb = on_timer, .n = 0 },
                             { .t.cb = on_timer, .n = 1 },
                             { .t.cb = on_timer, .n = 2 },
                             { .t.cb = on_timer, .n = 3 } };
    norder = 0;
    timer_set(l, &v[0].t, 30);
    timer_set(l, &v[1].t, 5);
    timer_set(l, &v[2].t, 9000); /* further than one turn of the wheel */
    timer_set(l, &v[3].t, 10);
    timer_clear(&v[3].t);
    uint64_t start = loop_now_ms(l);
    while (loop_now_ms(l) < start + 60)
        loop_run_once(l, 10);
    assert_int_equal(norder, 2);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    assert_int_equal(fired[2], 0);
    assert_int_equal(fired[3], 0);
    timer_clear(&v[2].t);
    loop_free(l);
}

static void far_timer_is_not_run_by_an_earlier_turn(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct numbered a = { .t.cb = on_timer, .n = 10 }, b = { .t.cb = on_timer, .n = 11 };
    timer_set(l, &a.t, 20);
    timer_set(l, &b.t, 20 + 8192); /* same slot, one turn later */
    uint64_t start = loop_now_ms(l);
    while (loop_now_ms(l) < start + 60)
        loop_run_once(l, 10);
    assert_int_equal(fired[10], 1);
    assert_int_equal(fired[11], 0);
    timer_clear(&b.t);
    loop_free(l);
}

static struct numbered *victim;
static void on_timer_clear_other(struct timer *t)
{
    (void)t;
    timer_clear(&victim->t);
}

static void a_timer_may_clear_another_that_is_due(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    struct numbered a = { .t.cb = on_timer_clear_other }, b = { .t.cb = on_timer, .n = 20 },
                    c = { .t.cb = on_timer, .n = 21 };
    victim = &b;
    timer_set(l, &b.t, 3);
    timer_set(l, &c.t, 3);
    timer_set(l, &a.t, 3); /* linked last, so run first or last: whichever, b fires at most once and c always */
    uint64_t start = loop_now_ms(l);
    while (loop_now_ms(l) < start + 20)
        loop_run_once(l, 5);
    assert_true(fired[20] <= 1);
    assert_int_equal(fired[21], 1);
    assert_null(b.t.loop);
    loop_free(l);
}

static struct watch pair_w[2];
static int seen;
static void on_readable_delete_other(struct watch *w, uint32_t ev)
{
    (void)ev;
    seen++;
    watch_del(w == &pair_w[0] ? &pair_w[1] : &pair_w[0]);
    watch_del(w);
}

static void an_event_of_a_deleted_watch_is_dropped(void **state)
{
    (void)state;
    struct loop *l = loop_new();
    int s[2][2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s[i]), 0);
        pair_w[i] = (struct watch) { .fd = s[i][0], .events = EPOLLIN, .cb = on_readable_delete_other };
        assert_int_equal(watch_add(l, &pair_w[i]), 0);
        assert_int_equal(write(s[i][1], "x", 1), 1);
    }
    loop_run_once(l, 100); /* both are readable in one round; the first to run deletes the other */
    loop_run_once(l, 0);
    assert_int_equal(seen, 1);
    for (int i = 0; i < 4; i++)
        close(s[i / 2][i % 2]);
    loop_free(l);
}

static int ran;
static struct task self_task;
static struct loop *task_loop;
static void on_task(struct task *t)
{
    if (++ran < 3)
        loop_defer(task_loop, t);
}

static void tasks_run_after_the_callback_and_can_be_cancelled(void **state)
{
    (void)state;
    task_loop = loop_new();
    self_task.cb = on_task;
    loop_defer(task_loop, &self_task);
    loop_defer(task_loop, &self_task); /* queued once */
    loop_run_once(task_loop, 0);
    assert_int_equal(ran, 3);
    struct task other = { .cb = on_task };
    loop_defer(task_loop, &other);
    task_cancel(&other);
    loop_run_once(task_loop, 0);
    assert_int_equal(ran, 3);
    loop_free(task_loop);
}

static int greedy_runs, other_runs;
static struct loop *greedy_loop;
static void on_greedy(struct task *t)
{
    greedy_runs++;
    loop_defer(greedy_loop, t);
}
static void on_other(struct watch *w, uint32_t ev)
{
    (void)w, (void)ev;
    other_runs++;
}

/* Whoever has more to do than fits one turn defers itself: the others must be heard in between. */
static void a_task_that_defers_itself_starves_nobody(void **state)
{
    (void)state;
    int s[2];
    greedy_loop = loop_new();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    struct watch w = { .fd = s[0], .events = EPOLLIN, .cb = on_other };
    assert_int_equal(watch_add(greedy_loop, &w), 0);
    assert_int_equal(write(s[1], "x", 1), 1);
    struct task greedy = { .cb = on_greedy };
    loop_defer(greedy_loop, &greedy);
    for (int i = 0; i < 10; i++)
        loop_run_once(greedy_loop, 1000);
    assert_true(greedy_runs >= 10 && greedy_runs < 1000);
    assert_int_equal(other_runs, 10);
    task_cancel(&greedy);
    watch_del(&w);
    close(s[0]);
    close(s[1]);
    loop_free(greedy_loop);
}

static struct loop *inner_loop;
static int inner_order[4], inner_n;
static struct task inner_tasks[4];

static void on_inner(struct task *t)
{
    long i = t - inner_tasks;
    inner_order[inner_n++] = (int)i;
    if (i == 0)
        loop_run_once(inner_loop, 0);
    if (i == 1)
        loop_defer(inner_loop, &inner_tasks[3]);
}

/* A role that ends turns the loop for a while longer, from a task of that loop. */
static void a_task_may_run_the_loop(void **state)
{
    (void)state;
    inner_loop = loop_new();
    for (int i = 0; i < 4; i++)
        inner_tasks[i].cb = on_inner;
    for (int i = 0; i < 3; i++)
        loop_defer(inner_loop, &inner_tasks[i]);
    loop_run_once(inner_loop, 0);
    loop_run_once(inner_loop, 0);
    assert_int_equal(inner_n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(inner_order[i], i);
    loop_free(inner_loop);
}

static struct timer again_timer;
static struct loop *again_loop;
static int again_runs;
static void on_again(struct timer *t)
{
    again_runs++;
    timer_set(again_loop, t, 0);
}

/* Set again to now in its own callback: once a tick, not for ever in this round. */
static void a_timer_may_set_itself_again(void **state)
{
    (void)state;
    again_loop = loop_new();
    again_timer.cb = on_again;
    timer_set(again_loop, &again_timer, 0);
    uint64_t start = loop_now_ms(again_loop);
    while (loop_now_ms(again_loop) < start + 20)
        loop_run_once(again_loop, 5);
    assert_true(again_runs >= 2 && again_runs <= 22);
    timer_clear(&again_timer);
    loop_free(again_loop);
}

static void many_timers_cost_little(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    struct loop *l = loop_new();
    struct timer *v = calloc(MANY, sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < MANY; i++)
        timer_set(l, &v[i], 60000 + (uint64_t)i);
    for (int i = 0; i < 1000; i++)
        loop_run_once(l, 0);
    for (int i = 0; i < MANY; i++)
        timer_clear(&v[i]);
    free(v);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_and_once),
        cmocka_unit_test(far_timer_is_not_run_by_an_earlier_turn),
        cmocka_unit_test(a_timer_may_clear_another_that_is_due),
        cmocka_unit_test(an_event_of_a_deleted_watch_is_dropped),
        cmocka_unit_test(tasks_run_after_the_callback_and_can_be_cancelled),
        cmocka_unit_test(a_task_that_defers_itself_starves_nobody),
        cmocka_unit_test(a_task_may_run_the_loop),
        cmocka_unit_test(a_timer_may_set_itself_again),
        cmocka_unit_test(many_timers_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
