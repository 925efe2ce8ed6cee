/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets which place: the same for the same, none twice, none again before its hold is over, some left for others, and
 * all of it known to the next writer. */
#include "dns/virtual_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOLD = 1000, ROOM = 65536, RECORD_NAME_AT = 16 + 2 + VIRTUAL_AGENT_MAX };
static const unsigned char key[VIRTUAL_KEY] = "sixteen bytes ..";

struct lab {
    struct address_pool pool;
    int fd;
    struct virtual_table *table;
    struct virtual_names *names;
};

static void writer(struct lab *l, uint64_t now)
{
    struct err err;
    virtual_names_free(&l->names);
    virtual_table_unref(&l->table);
    l->table = virtual_table_map(l->fd, &l->pool, true, &err);
    assert_non_null(l->table);
    l->names = virtual_names_new(l->table, now, &err);
    assert_non_null(l->names);
}

static void start(struct lab *l, const char *net)
{
    struct err err;
    *l = (struct lab) { .fd = -1 };
    assert_int_equal(cidr_parse(str_c(net), &l->pool.v4), 0);
    l->fd = virtual_table_new(&l->pool, ROOM, key, &err);
    assert_true(l->fd >= 0);
    writer(l, 1);
}

static void stop(struct lab *l)
{
    virtual_names_free(&l->names);
    virtual_table_unref(&l->table);
    close(l->fd);
}

static const char *numbered(unsigned i)
{
    static char name[32];
    snprintf(name, sizeof name, "n%u.test", i);
    return name;
}

/* Its place, or -1. What is given is what a reader finds. */
static int64_t give(struct lab *l, const char *agent, const char *name, uint64_t now)
{
    uint32_t place;
    struct host h;
    if (!virtual_names_give(l->names, str_c(agent), str_c(name), now, HOLD, &place))
        return -1;
    struct ip ip = address_pool_address(&l->pool, 4, place);
    assert_true(virtual_table_find(l->table, &ip, str_c(agent), &h));
    assert_string_equal(h.name, name);
    return place;
}

static bool holds(struct lab *l, const char *agent, const char *name, int64_t place)
{
    struct host h;
    struct ip ip = address_pool_address(&l->pool, 4, (uint32_t)place);
    return virtual_table_find(l->table, &ip, str_c(agent), &h) && str_eq(host_str(&h), str_c(name));
}

static void test_same(void **state)
{
    (void)state;
    struct lab l;
    bool taken[256] = { 0 };
    int64_t mine[20], theirs[20];
    start(&l, "10.78.0.0/16");
    for (unsigned i = 0; i < 20; i++) {
        mine[i] = give(&l, "coder", numbered(i), 1);
        theirs[i] = give(&l, "other", numbered(i), 1);
        assert_true(mine[i] >= 0 && theirs[i] >= 0);
        assert_false(taken[mine[i]] || taken[theirs[i]] || mine[i] == theirs[i]);
        taken[mine[i]] = taken[theirs[i]] = true;
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(give(&l, "coder", numbered(i), 2 + i), mine[i]);
        assert_int_equal(give(&l, "other", numbered(i), 5 * HOLD), theirs[i]); /* nobody wanted its place */
    }
    stop(&l);
    start(&l, "10.78.0.0/16"); /* a table without names in it, with the same key */
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(give(&l, "coder", numbered(i), 1), mine[i]);
    stop(&l);
}

/* Where places go is nothing that an agent can tell others' names by: they are not one behind the other. */
static void test_scattered(void **state)
{
    (void)state;
    struct lab l;
    unsigned behind = 0;
    start(&l, "10.78.0.0/16");
    for (unsigned i = 0; i < 60; i++) {
        int64_t a = give(&l, "coder", numbered(i), 1);
        behind += a + 1 == give(&l, "other", numbered(i), 1);
    }
    assert_true(behind < 10);
    stop(&l);
}

/* All that one agent can get; how many. */
static unsigned flood(struct lab *l, const char *agent, unsigned from, uint64_t now)
{
    unsigned n = 0;
    while (give(l, agent, numbered(from + n), now) >= 0)
        n++;
    return n;
}

static void test_shares(void **state)
{
    (void)state;
    struct lab l;
    start(&l, "10.78.0.0/16");
    unsigned all = virtual_table_places(l.table), first = flood(&l, "coder", 0, 1);
    assert_true(first > all * 7 / 10 && first < all * 8 / 10);
    assert_int_equal(give(&l, "coder", "one.more.test", 1), -1);
    assert_true(give(&l, "coder", numbered(first / 2), 1) >= 0); /* what it has it keeps */
    unsigned second = flood(&l, "other", 0, 1);
    assert_true(second > all / 8 && first + second < all);
    assert_true(give(&l, "third", "a.test", 1) >= 0);
    for (unsigned i = 0; i < first; i++)
        assert_true(give(&l, "coder", numbered(i), 1) >= 0);
    stop(&l);
}

static void test_smallest(void **state)
{
    (void)state;
    struct lab l;
    start(&l, "10.78.0.0/30");
    int64_t a = give(&l, "coder", "a.test", 1), b = give(&l, "coder", "b.test", 2);
    assert_true(a >= 0 && b >= 0 && a != b);
    assert_int_equal(give(&l, "coder", "c.test", HOLD), -1);
    assert_int_equal(give(&l, "other", "c.test", HOLD), -1);
    assert_int_equal(give(&l, "other", "c.test", HOLD + 1), a); /* only now */
    assert_false(holds(&l, "coder", "a.test", a));
    assert_true(holds(&l, "coder", "b.test", b));
    stop(&l);
}

/* A place is another name's only HOLD after it was used last, and then the agent's own oldest first. */
static void test_hold(void **state)
{
    (void)state;
    struct lab l;
    start(&l, "10.78.0.0/16");
    int64_t other = give(&l, "other", "a.test", 11), third = give(&l, "third", "a.test", 12);
    unsigned n = flood(&l, "coder", 0, 10);
    int64_t oldest = give(&l, "coder", numbered(0), 10), kept = give(&l, "coder", numbered(1), 10);
    for (unsigned i = 2; i < n; i++)
        assert_true(give(&l, "coder", numbered(i), 20) >= 0);
    virtual_names_use(l.names, STR("coder"), str_c(numbered(1)), 500); /* dialled */
    virtual_names_use(l.names, STR("coder"), STR("nobody.test"), 500);
    virtual_names_use(l.names, STR("an agent whose name is longer than any name of an agent can ever be"), STR("a.test"), 500);
    assert_int_equal(give(&l, "coder", "new.test", 10 + HOLD - 1), -1);
    assert_true(holds(&l, "coder", numbered(0), oldest));
    assert_true(give(&l, "coder", "new.test", 10 + HOLD) >= 0);
    assert_false(holds(&l, "coder", numbered(0), oldest));
    assert_int_equal(give(&l, "coder", "newer.test", 10 + HOLD), -1);
    assert_true(holds(&l, "other", "a.test", other));
    assert_true(give(&l, "coder", "newer.test", 11 + HOLD) >= 0); /* it has none that is old; another has */
    assert_false(holds(&l, "other", "a.test", other));
    assert_true(give(&l, "coder", "newest.test", 20 + HOLD) >= 0); /* its own, though another's is older */
    assert_true(holds(&l, "third", "a.test", third));
    for (unsigned i = 3; i < n; i++)
        assert_true(give(&l, "coder", numbered(10000 + i), 20 + HOLD) >= 0);
    assert_true(holds(&l, "third", "a.test", third));
    assert_true(holds(&l, "coder", numbered(1), kept)); /* used since */
    assert_int_equal(give(&l, "coder", numbered(1), 20 + HOLD), kept);
    stop(&l);
}

/* Where one place is not enough, none is taken back. */
static void test_not_in_vain(void **state)
{
    (void)state;
    struct lab l;
    start(&l, "10.78.0.0/16");
    flood(&l, "coder", 0, 100);
    int64_t other[10];
    for (unsigned i = 0; i < 10; i++) {
        other[i] = give(&l, "other", numbered(i), i < 2 ? 1 : 100);
        assert_true(other[i] >= 0);
    }
    assert_int_equal(give(&l, "coder", "new.test", 1 + HOLD), -1);
    assert_true(holds(&l, "other", numbered(0), other[0]) && holds(&l, "other", numbered(1), other[1]));
    assert_true(give(&l, "coder", "new.test", 100 + HOLD) >= 0); /* the control */
    stop(&l);
}

/* What an agent left is somebody else's after the hold. */
static void test_left(void **state)
{
    (void)state;
    struct lab l;
    start(&l, "10.78.0.0/16");
    unsigned all = virtual_table_places(l.table), first = flood(&l, "gone", 0, 1), second = flood(&l, "coder", 0, 2);
    assert_int_equal(give(&l, "coder", numbered(second), HOLD), -1);
    unsigned more = flood(&l, "coder", second, HOLD + 1);
    assert_true(first + second < all && second + more > all * 7 / 10);
    stop(&l);
}

/* The next writer knows what the last one gave, in which order, and when it was used. */
static void test_next_writer(void **state)
{
    (void)state;
    struct lab l;
    static int64_t before[256];
    start(&l, "10.78.0.0/16");
    int64_t other = give(&l, "other", "a.test", 600);
    unsigned n = flood(&l, "coder", 0, 10);
    for (unsigned i = 0; i < n; i++)
        before[i] = give(&l, "coder", numbered(i), 10 + (i * 37) % n);
    writer(&l, 400);
    assert_int_equal(give(&l, "coder", "new.test", 10 + HOLD - 1), -1);
    for (unsigned i = 0; i < n; i++)
        assert_true(holds(&l, "coder", numbered(i), before[i]));
    assert_true(holds(&l, "other", "a.test", other));
    unsigned k = 0; /* the order too: used at 10, at 11, … */
    for (unsigned step = 0; step < 5; step++) {
        while ((k * 37) % n != step)
            k = (k + 1) % n;
        assert_true(give(&l, "coder", numbered(20000 + step), 10 + step + HOLD) >= 0);
        assert_false(holds(&l, "coder", numbered(k), before[k]));
        assert_int_equal(give(&l, "coder", "too.early.test", 10 + step + HOLD), -1);
    }
    writer(&l, 3); /* a clock that began again: times of the future are taken for now */
    assert_int_equal(give(&l, "coder", "new.test", 2 + HOLD), -1);
    assert_true(give(&l, "coder", "new.test", 3 + HOLD) >= 0);
    stop(&l);
}

/* A record that its writer did not finish, and records that no writer made: cleared, and their places given anew. */
static void test_damaged(void **state)
{
    (void)state;
    struct lab l;
    struct stat st;
    start(&l, "10.78.0.0/16");
    int64_t half = give(&l, "coder", "half.test", 1), whole = give(&l, "coder", "whole.test", 1);
    assert_int_equal(fstat(l.fd, &st), 0);
    unsigned char *m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, l.fd, 0);
    assert_true(m != MAP_FAILED);
    unsigned char *at = memmem(m, (size_t)st.st_size, "half.test", 9);
    at[-RECORD_NAME_AT] |= 1;
    virtual_table_write(l.table, (uint32_t)(half + 1) % 100 == (uint32_t)whole ? 150 : (uint32_t)(half + 1) % 100, STR("coder"), STR("whole.test"), 1); /* twice */
    virtual_table_write(l.table, 151, STR("coder"), STR("No.Name"), 1);
    writer(&l, 2);
    struct virtual_record r;
    uint64_t ms;
    unsigned left = 0;
    for (uint32_t i = 0; i < virtual_table_places(l.table); i++)
        left += virtual_table_read(l.table, i, &r, &ms);
    assert_int_equal(left, 1);
    assert_int_equal(give(&l, "coder", "half.test", 3), half); /* by its hash */
    assert_true(give(&l, "coder", "whole.test", 3) >= 0);
    unsigned all = virtual_table_places(l.table);
    assert_true(flood(&l, "coder", 0, 3) > all / 2);
    munmap(m, (size_t)st.st_size);
    stop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),     cmocka_unit_test(test_scattered), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_smallest), cmocka_unit_test(test_hold),      cmocka_unit_test(test_not_in_vain), cmocka_unit_test(test_left),
        cmocka_unit_test(test_next_writer), cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
