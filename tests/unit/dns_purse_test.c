/* SPDX-License-Identifier: Apache-2.0
 *
 * The purse before a disk that the test holds: fdatasync below is what it syncs with. What a crash would find is what
 * was synced last. */
#include "dns/purse.h"

#include "base/clock.h"
#include "base/str.h"
#include "dns/budget_file.h"
#include "dns/name_cost.h"
#include "dns/unsaved_names.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNSAVED = 20, LONG_MS = 1000000 };

static const struct budget_limits budgets = {
    .bits = 100000, .refill = 0, .agent_bits = 0, .agent_refill = 0, .zones = 0, .unsaved = UNSAVED
};

/* --- the disk --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static atomic_int syncs, error;
static int durable; /* a file: what a crash leaves */

int fdatasync(int fd)
{
    static char bytes[2 * BUDGET_FILE_PLACE];
    pthread_mutex_lock(&lock);
    while (hangs)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    syncs++;
    if (error) {
        errno = error;
        return -1;
    }
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0 || pwrite(durable, bytes, (size_t)n, 0) != n)
        abort();
    return 0;
}


static void disk_hangs(bool yes)
{
    pthread_mutex_lock(&lock);
    hangs = yes;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

/* --- a purse, and names --- */

struct play {
    struct loop *loop;
    struct budget *budget;
    struct purse *purse;
    struct limits limits;
    unsigned names;
};

struct waiter {
    struct purse_wait w;
    bool waits, decided;
    unsigned bits;
};

static int file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void on_decided(struct task *t)
{
    struct waiter *w = (struct waiter *)((char *)t - offsetof(struct waiter, w.decided));
    assert_false(w->decided);
    w->decided = true;
    w->waits = false;
}

static void until_decided(struct play *p, const struct waiter *w)
{
    while (!w->decided)
        loop_run_once(p->loop, 1000);
}

/* After a start: until the file says that more may be out. */
static void settle(struct play *p)
{
    while (budget_unsaved(p->budget) > 0)
        loop_run_once(p->loop, 1000);
}

static void start(struct play *p)
{
    *p = (struct play) { .loop = loop_new(), .budget = budget_new(&budgets, clock_mono_ms(), NULL) };
    assert_non_null(p->budget);
    p->purse = purse_new(p->loop, p->budget, NULL);
    assert_non_null(p->purse);
    limits_default(&p->limits);
    p->limits.name_saves = 1000000;
    p->limits.name_wait = LONG_MS;
    purse_set_limits(p->purse, &p->limits);
    disk_hangs(false);
    error = 0;
    durable = file("durable");
    purse_open(p->purse, file("budgets"));
}

static void stop(struct play *p)
{
    purse_free(&p->purse);
    budget_free(&p->budget);
    loop_free(p->loop);
    close(durable);
}

static uint64_t hash(const char *name)
{
    return str_hash(str_c(name));
}

/* A name of agent `who`. END_OK: w->waits says whether it has left. */
static enum end ask(struct play *p, const char *who, const char *name, unsigned bits, struct waiter *w)
{
    struct budget_account a;
    enum end end = END_OK;
    const char *why;
    struct budget_event e = { .agent = str_c(who),
                              .zone = STR("z.test"),
                              .name = str_c(name),
                              .in_zone = bits * COST_BIT,
                              .approved = true,
                              .free_seen = true,
                              .hold = !purse_ready(p->purse, hash(who), &end, &why) };
    *w = (struct waiter) { .w.decided.cb = on_decided, .bits = bits };
    enum budget_verdict v = budget_charge(p->budget, &e, loop_now_ms(p->loop), &a);
    if (v == BUDGET_HELD) {
        assert_true(end != END_OK);
        return end;
    }
    assert_int_equal(v, BUDGET_OK);
    w->waits = purse_charged(p->purse, hash(who), hash(name), a.charged);
    if (w->waits)
        purse_wait(p->purse, &w->w);
    return END_OK;
}

static enum end ask_new(struct play *p, const char *who, unsigned bits, struct waiter *w)
{
    char name[32];
    snprintf(name, sizeof name, "n%u.z.test", p->names++);
    return ask(p, who, name, bits, w);
}

/* What a process that starts after a crash now would find spent. */
static uint32_t found(const char *who)
{
    struct budget *b = budget_new(&budgets, 1, NULL);
    struct budget_file f;
    struct err err;
    assert_int_equal(budget_file_open(&f, durable, b, 1, &err), BUDGET_STATE_NOT_LAST);
    uint32_t n = budget_spent(b, str_c(who), STR("z.test"), 1);
    budget_free(&b);
    return n ? n : UNSAVED; /* where a zone begins that is not in it */
}

/* --- --- */

static void test_who_waits(void **state)
{
    (void)state;
    struct play p;
    struct waiter early, a, b, c, d;
    start(&p);
    /* After a start the file must say first that more may be out. */
    disk_hangs(true);
    assert_int_equal(ask(&p, "a", "www.z.test", 5, &early), END_OK);
    assert_true(early.waits);
    disk_hangs(false);
    until_decided(&p, &early);
    /* Nothing waits that fits into what may be unsaved; what does not waits until it is saved. */
    disk_hangs(true);
    assert_int_equal(ask_new(&p, "a", 10, &a), END_OK);
    assert_false(a.waits);
    assert_int_equal(ask(&p, "a", "b.z.test", 10, &b), END_OK);
    assert_true(b.waits);
    /* Asked again it costs nothing, and does not pass itself; another that is known does. */
    assert_int_equal(ask(&p, "a", "b.z.test", 10, &c), END_OK);
    assert_true(c.waits);
    assert_int_equal(ask(&p, "a", "www.z.test", 5, &d), END_OK);
    assert_false(d.waits);
    for (int i = 0; i < 10; i++)
        loop_run_once(p.loop, 1);
    assert_true(b.waits && c.waits);
    disk_hangs(false);
    until_decided(&p, &b);
    until_decided(&p, &c);
    assert_int_equal(b.w.end, END_OK);
    assert_int_equal(c.w.end, END_OK);
    assert_true(found("a") >= 5 + 10 + 10);
    assert_int_equal(ask(&p, "a", "b.z.test", 10, &c), END_OK);
    assert_false(c.waits); /* the control */
    stop(&p);
}

/* Who has its charge in the save that is under way goes with that, whoever charges meanwhile; asked again, too. */
static void test_own_save(void **state)
{
    (void)state;
    struct play p;
    struct waiter own, again, other, later;
    start(&p);
    settle(&p);
    disk_hangs(true);
    assert_int_equal(ask(&p, "a", "own.z.test", 25, &own), END_OK);
    assert_int_equal(ask(&p, "b", "other.z.test", 25, &other), END_OK);
    assert_int_equal(ask(&p, "a", "own.z.test", 25, &again), END_OK);
    assert_int_equal(ask(&p, "b", "other.z.test", 25, &later), END_OK);
    assert_true(own.waits && other.waits && again.waits && later.waits);
    int before = syncs;
    disk_hangs(false);
    while (syncs == before)
        usleep(1000);
    disk_hangs(true); /* the next one begins when the loop has seen this one's end */
    until_decided(&p, &own);
    until_decided(&p, &again);
    assert_true(own.w.end == END_OK && again.w.end == END_OK);
    assert_true(found("a") >= 25);
    for (int i = 0; i < 10; i++)
        loop_run_once(p.loop, 1);
    assert_true(other.waits && later.waits);
    disk_hangs(false);
    until_decided(&p, &other);
    until_decided(&p, &later);
    stop(&p);
}

/* A hundred names that came while a save was under way: one save more. */
static void test_together(void **state)
{
    (void)state;
    struct play p;
    static struct waiter w[100];
    start(&p);
    settle(&p);
    disk_hangs(true);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(ask_new(&p, i % 2 ? "a" : "b", 25, &w[i]), END_OK);
        assert_true(w[i].waits);
    }
    int before = syncs;
    disk_hangs(false);
    for (unsigned i = 0; i < 100; i++) {
        until_decided(&p, &w[i]);
        assert_int_equal(w[i].w.end, END_OK);
    }
    assert_int_equal(syncs, before + 2);
    assert_true(found("a") >= 50 * 25 && found("b") >= 50 * 25);
    stop(&p);
}

static void test_given_up(void **state)
{
    (void)state;
    struct play p;
    struct waiter a, b, again;
    start(&p);
    settle(&p);
    disk_hangs(true);
    assert_int_equal(ask(&p, "a", "gone.z.test", 30, &a), END_OK);
    assert_int_equal(ask_new(&p, "a", 30, &b), END_OK);
    purse_wait_done(&a.w);
    assert_int_equal(ask(&p, "a", "gone.z.test", 30, &again), END_OK);
    assert_true(again.waits); /* that nobody waits for it has saved nothing */
    disk_hangs(false);
    until_decided(&p, &b);
    until_decided(&p, &again);
    assert_false(a.decided);
    stop(&p);
}

/* A disk that fails: who waits is refused, what would have to wait is not charged, what costs nothing goes. */
static void test_fails(void **state)
{
    (void)state;
    struct play p;
    struct waiter a, b, known;
    start(&p);
    assert_int_equal(ask(&p, "a", "known.z.test", 30, &known), END_OK);
    until_decided(&p, &known);
    settle(&p);
    error = EIO;
    assert_int_equal(ask_new(&p, "a", 30, &a), END_OK);
    assert_true(a.waits);
    until_decided(&p, &a);
    assert_int_equal(a.w.end, END_AUDIT_UNAVAILABLE);
    uint32_t before = budget_spent(p.budget, STR("a"), STR("z.test"), clock_mono_ms());
    assert_int_equal(ask_new(&p, "a", 30, &b), END_AUDIT_UNAVAILABLE);
    assert_int_equal(budget_spent(p.budget, STR("a"), STR("z.test"), clock_mono_ms()), before);
    assert_int_equal(ask(&p, "a", "known.z.test", 30, &known), END_OK);
    assert_false(known.waits);
    error = 0;
    enum end end;
    const char *why;
    while (!purse_ready(p.purse, hash("a"), &end, &why)) /* the control: it is tried again */
        loop_run_once(p.loop, 1000);
    assert_int_equal(ask_new(&p, "a", 30, &b), END_OK);
    until_decided(&p, &b);
    assert_int_equal(b.w.end, END_OK);
    stop(&p);
}

/* A disk that hangs does the same, after a while. */
static void test_hangs(void **state)
{
    (void)state;
    struct play p;
    struct waiter a, b, c, known;
    start(&p);
    assert_int_equal(ask(&p, "a", "known.z.test", 30, &known), END_OK);
    until_decided(&p, &known);
    settle(&p);
    p.limits.name_wait = 20;
    purse_set_limits(p.purse, &p.limits);
    disk_hangs(true);
    assert_int_equal(ask(&p, "a", "a.z.test", 30, &a), END_OK);
    assert_true(a.waits);
    until_decided(&p, &a);
    assert_int_equal(a.w.end, END_AUDIT_UNAVAILABLE);
    enum end end;
    const char *why;
    while (purse_ready(p.purse, hash("b"), &end, &why))
        loop_run_once(p.loop, 1);
    assert_int_equal(ask_new(&p, "b", 30, &b), END_AUDIT_UNAVAILABLE);
    assert_int_equal(ask(&p, "a", "known.z.test", 30, &known), END_OK);
    assert_false(known.waits);
    assert_int_equal(ask(&p, "a", "a.z.test", 30, &c), END_OK); /* known, and its charge is in no file */
    assert_true(c.waits);
    until_decided(&p, &c);
    assert_int_equal(c.w.end, END_AUDIT_UNAVAILABLE);
    disk_hangs(false);
    while (!purse_ready(p.purse, hash("b"), &end, &why)) /* the control */
        loop_run_once(p.loop, 1000);
    p.limits.name_wait = LONG_MS;
    purse_set_limits(p.purse, &p.limits);
    assert_int_equal(ask_new(&p, "b", 30, &b), END_OK);
    until_decided(&p, &b);
    assert_int_equal(b.w.end, END_OK);
    stop(&p);
}

/* One agent's names do not take all the places; past them nothing is charged. */
static void test_places(void **state)
{
    (void)state;
    struct play p;
    static struct waiter w[UNSAVED_NAMES_MAX];
    struct waiter other;
    unsigned n = 0;
    start(&p);
    settle(&p);
    p.limits.names_unsaved = 100;
    purse_set_limits(p.purse, &p.limits);
    disk_hangs(true);
    enum end end;
    while ((end = ask_new(&p, "a", 25, &w[n])) == END_OK && n < 200)
        n++;
    assert_int_equal(end, END_RATE_LIMITED);
    assert_in_range(n, 60, 80);
    assert_int_equal(budget_spent(p.budget, STR("a"), STR("z.test"), clock_mono_ms()), n * 25);
    assert_int_equal(ask_new(&p, "other", 25, &other), END_OK);
    disk_hangs(false);
    until_decided(&p, &other);
    for (unsigned i = 0; i < n; i++)
        until_decided(&p, &w[i]);
    assert_int_equal(ask_new(&p, "a", 25, &w[0]), END_OK); /* the control */
    until_decided(&p, &w[0]);
    stop(&p);
}

/* Whatever order names, the disk and its failures come in: a crash at any moment finds at least what has left. */
static void test_a_crash_loses_nothing(void **state)
{
    (void)state;
    enum { WAITERS = 64 };
    static struct waiter w[WAITERS];
    uint64_t all_left = 0, all_waited = 0;
    for (unsigned round = 0; round < 32; round++) {
        struct play p;
        uint64_t x = round + 1;
        uint32_t left = 0, waited = 0;
        start(&p);
        settle(&p);
        memset(w, 0, sizeof w);
        for (unsigned step = 0; step < 200; step++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            unsigned what = (unsigned)(x >> 33) % 8;
            struct waiter *at = &w[(x >> 40) % WAITERS];
            if (what < 4 && !at->waits) {
                if (ask_new(&p, "a", 1 + (unsigned)(x >> 50) % 30, at) == END_OK && !at->waits)
                    left += at->bits;
                waited += at->waits;
            } else if (what == 4) {
                disk_hangs(true);
            } else if (what == 5) {
                disk_hangs(false);
            } else if (what == 6 && round % 16 == 15) { /* it is tried again after a second */
                error = (x >> 45) % 4 ? 0 : EIO;
            } else if (at->waits && (x >> 45) % 8 == 0) {
                purse_wait_done(&at->w);
                at->waits = false;
            }
            loop_run_once(p.loop, what == 7 && !hangs ? 5 : 0);
            for (unsigned i = 0; i < WAITERS; i++)
                if (w[i].decided && w[i].bits) {
                    left += w[i].w.end == END_OK ? w[i].bits : 0;
                    w[i].bits = 0;
                }
            if (left > found("a")) /* with UNSAVED bits more for what may have gone */
                fail_msg("round %u step %u: %u bits left, a crash would find %u", round, step, left, found("a"));
        }
        error = 0;
        disk_hangs(false);
        for (unsigned i = 0; i < WAITERS; i++)
            while (w[i].waits)
                loop_run_once(p.loop, 1000);
        stop(&p);
        all_left += left;
        all_waited += waited;
    }
    assert_true(all_left > 1000 && all_waited > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_waits),
        cmocka_unit_test(test_own_save),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_a_crash_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
