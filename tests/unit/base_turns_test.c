/* SPDX-License-Identifier: Apache-2.0 */
#include "base/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the ones above */
#include <cmocka.h>

enum { MOST = 100, STEP = 40 };

static struct turns turns;
static char order[64];
static size_t norder;
static unsigned rounds;

struct work {
    struct turn t;
    char name;
    int left; /* steps */
    struct turn *cancels;
};

/* Works like what it is for: a step at a time while it may, then it waits. */
static void work(struct turn *t)
{
    struct work *w = (struct work *)t;
    if (w->cancels)
        turn_cancel(w->cancels);
    while (w->left && turns_may(&turns, &w->t)) {
        turns_spend(&turns, STEP);
        order[norder++] = w->name;
        w->left--;
    }
    if (w->left)
        turns_wait(&turns, &w->t);
}

static void settle(struct loop *l)
{
    for (rounds = 0; turns.waiting; rounds++)
        loop_run_once(l, 0);
    order[norder] = 0;
}

static struct loop *begin(void)
{
    struct loop *l = loop_new();
    assert_non_null(l);
    turns_init(&turns, l, MOST);
    norder = 0;
    return l;
}

/* Three steps fit a round (the third begins below MOST); who has more waits behind the others. */
static void test_in_order(void **state)
{
    (void)state;
    struct loop *l = begin();
    struct work a = { .t.cb = work, .name = 'a', .left = 5 }, b = { .t.cb = work, .name = 'b', .left = 4 }, c = { .t.cb = work, .name = 'c', .left = 1 };
    work(&a.t);
    assert_int_equal(a.left, 2);
    work(&b.t); /* the round is used up */
    work(&c.t);
    assert_int_equal(b.left, 4);
    assert_int_equal(c.left, 1);
    turns_wait(&turns, &c.t); /* asked twice, waits once */
    settle(l);
    assert_string_equal(order, "aaaaabcbbb");
    turns_done(&turns);
    loop_free(l);
}

/* Nobody goes ahead of one who waits, also where the new round has room. */
static void test_nobody_overtakes(void **state)
{
    (void)state;
    struct loop *l = begin();
    struct work a = { .t.cb = work, .name = 'a', .left = 4 }, b = { .t.cb = work, .name = 'b', .left = 1 };
    work(&a.t);
    turns.round--; /* as if the next round had begun, before the turn of a */
    assert_false(turns_may(&turns, &b.t));
    work(&b.t);
    settle(l);
    assert_string_equal(order, "aaaab");
    turns_done(&turns);
    loop_free(l);
}

/* One that is cancelled is not called; by another one's turn as well. */
static void test_cancelled(void **state)
{
    (void)state;
    struct loop *l = begin();
    struct work a = { .t.cb = work, .name = 'a', .left = 4 }, b = { .t.cb = work, .name = 'b', .left = 1 }, c = { .t.cb = work, .name = 'c', .left = 1 };
    work(&a.t);
    work(&b.t);
    work(&c.t);
    a.cancels = &b.t;
    settle(l);
    assert_string_equal(order, "aaaac");
    turn_cancel(&b.t); /* twice is once */
    assert_int_equal(turns.waiting, 0);
    turns_done(&turns);
    loop_free(l);
}

/* A step that is larger than a round is done all the same, one a round. */
static void test_large_steps(void **state)
{
    (void)state;
    struct loop *l = begin();
    turns.most = 1;
    struct work a = { .t.cb = work, .name = 'a', .left = 3 };
    work(&a.t);
    assert_int_equal(a.left, 2);
    settle(l);
    assert_string_equal(order, "aaa");
    assert_true(rounds >= 2);
    turns_done(&turns);
    loop_free(l);
}

/* One owner has three that wait and another one: it is its turn after one of theirs. */
static void test_owners(void **state)
{
    (void)state;
    struct loop *l = begin();
    turns.most = STEP; /* one step a round */
    struct work a[3], b = { .t = { .cb = work, .owner = 7 }, .name = 'b', .left = 2 };
    for (int i = 0; i < 3; i++) {
        a[i] = (struct work) { .t = { .cb = work, .owner = 3 }, .name = (char)('x' + i), .left = 2 };
        work(&a[i].t);
    }
    assert_true(turns.waiting == 3 && norder == 1);
    work(&b.t); /* the round is used up */
    settle(l);
    assert_string_equal(order, "xxbybzyz");
    turns_done(&turns);
    loop_free(l);
}

/* One who has nothing waiting goes ahead of another who has, by one round's share. */
static void test_owner_without_queue(void **state)
{
    (void)state;
    struct loop *l = begin();
    struct work a = { .t = { .cb = work, .owner = 3 }, .name = 'a', .left = 4 }, b = { .t = { .cb = work, .owner = 7 }, .name = 'b', .left = 5 };
    work(&a.t);
    assert_int_equal(a.left, 1);
    turns.round--; /* as if the next round had begun, before the turn of a */
    work(&b.t);
    assert_int_equal(b.left, 2);
    settle(l);
    assert_string_equal(order, "aaabbbabb");
    turns_done(&turns);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_nobody_overtakes),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_large_steps),
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_owner_without_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
