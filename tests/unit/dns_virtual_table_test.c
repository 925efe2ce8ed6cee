/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared memory behind virtual addresses: what a reader takes from it while a writer in another process writes, when
 * it died in the middle, and when there is anything at all in it. */
#include "dns/virtual_table.h"

#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROOM = 65536, RECORD_NAME_AT = 16 + 2 + VIRTUAL_AGENT_MAX /* of a record: counter, time, lengths, agent */ };
static const unsigned char key[VIRTUAL_KEY] = "sixteen bytes ..";

static struct address_pool pool_of(const char *v4)
{
    struct address_pool p = { 0 };
    assert_int_equal(cidr_parse(str_c(v4), &p.v4), 0);
    assert_int_equal(cidr_parse(STR("fd78::/64"), &p.v6), 0);
    return p;
}

static int table_new(const struct address_pool *p)
{
    struct err err;
    int fd = virtual_table_new(p, ROOM, key, &err);
    assert_true(fd >= 0);
    return fd;
}

static struct virtual_table *map(int fd, const struct address_pool *p, bool writer)
{
    struct err err = { "" };
    struct virtual_table *t = virtual_table_map(fd, p, writer, &err);
    if (!t)
        fail_msg("%s", err.text);
    return t;
}

static bool finds(const struct virtual_table *t, uint8_t family, uint32_t place, const char *agent, const char *name)
{
    struct host h;
    struct ip ip = address_pool_address(virtual_table_pool(t), family, place);
    if (!virtual_table_find(t, &ip, str_c(agent), &h))
        return false;
    assert_string_equal(h.name, name);
    assert_int_equal(h.ip.family, 0);
    return true;
}

static void test_found(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/16");
    struct err err;
    int fd = table_new(&p), reader = virtual_table_reader(fd, &err);
    struct virtual_table *w = map(fd, &p, true), *r = map(reader, &p, false);
    assert_true(virtual_table_places(w) > 150 && virtual_table_places(w) < 200); /* as many as there is room for */
    assert_int_equal(virtual_table_places(r), virtual_table_places(w));
    assert_true(virtual_table_same(w, r));
    assert_false(finds(r, 4, 7, "coder", "a.test"));
    virtual_table_write(w, 7, STR("coder"), STR("a.test"), 5);
    virtual_table_write(w, 64, STR("other"), STR("a.test"), 6);
    for (uint8_t family = 4; family <= 6; family = (uint8_t)(family + 2)) {
        assert_true(finds(r, family, 7, "coder", "a.test"));
        assert_true(finds(r, family, 64, "other", "a.test"));
        assert_false(finds(r, family, 7, "other", "a.test"));
        assert_false(finds(r, family, 64, "coder", "a.test"));
        assert_false(finds(r, family, 7, "code", "a.test"));
        assert_false(finds(r, family, 7, "", "a.test"));
        assert_false(finds(r, family, 8, "coder", "a.test"));
    }
    virtual_table_write(w, 7, STR("coder"), STR("b.test"), 7);
    assert_true(finds(r, 4, 7, "coder", "b.test"));
    virtual_table_clear(w, 7);
    assert_false(finds(r, 4, 7, "coder", "b.test"));
    struct ip beyond;
    struct host h;
    assert_int_equal(ip_parse(STR("10.78.200.1"), &beyond), 0); /* of the pool, behind what there is room for */
    assert_false(virtual_table_find(r, &beyond, STR("coder"), &h));
    virtual_table_unref(&w);
    virtual_table_unref(&r);
    close(reader);
    close(fd);
}

/* Who may only read cannot write, whatever it does; and what is no table of this pool is not taken for one. */
static void test_maps(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/16"), other = pool_of("10.79.0.0/16"), small = pool_of("10.78.0.0/30");
    struct err err;
    int fd = table_new(&p), reader = virtual_table_reader(fd, &err);
    assert_null(virtual_table_map(reader, &p, true, &err));
    assert_int_equal(write(reader, "x", 1), -1);
    assert_null(virtual_table_map(fd, &other, false, &err));
    assert_null(virtual_table_map(fd, &small, false, &err));
    assert_int_equal(ftruncate(fd, 0), -1);
    struct virtual_table *t = map(fd, &p, true); /* the control */
    int second = table_new(&p);
    struct virtual_table *u = map(second, &p, true);
    assert_false(virtual_table_same(t, u));
    virtual_table_unref(&t);
    virtual_table_unref(&u);
    close(second);
    close(reader);
    int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(ftruncate(plain, st.st_size), 0);
    assert_null(virtual_table_map(plain, &p, false, &err)); /* can shrink under us */
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_null(virtual_table_map(plain, &p, false, &err)); /* zeros */
    close(plain);
    close(fd);
    assert_int_equal(virtual_table_new(&p, 100, key, &err), -1);
    fd = virtual_table_new(&small, 1 << 30, key, &err);
    t = map(fd, &small, true);
    assert_int_equal(virtual_table_places(t), 2);
    virtual_table_unref(&t);
    close(fd);
}

/* A writer in another process turns one record from this to that and back, as fast as it can. Whoever looks sees one of
 * them or neither, never parts of both. */
static void test_both_or_none(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/16");
    char longest[HOST_MAX + 1];
    memset(longest, 'b', sizeof longest);
    for (size_t i = 50; i < HOST_MAX; i += 50)
        longest[i] = '.';
    longest[HOST_MAX] = '\0';
    int fd = table_new(&p);
    struct virtual_table *t = map(fd, &p, true);
    virtual_table_write(t, 3, STR("a"), STR("a.test"), 1);
    pid_t writer = fork();
    if (writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails ends it too */
        for (;;) {
            virtual_table_write(t, 3, STR("an-agent-with-a-long-name"), str_c(longest), 2);
            virtual_table_write(t, 3, STR("a"), STR("a.test"), 1);
        }
    }
    unsigned seen_a = 0, seen_b = 0;
    while (seen_a < 20000 || seen_b < 20000) {
        struct virtual_record r;
        uint64_t ms;
        if (!virtual_table_read(t, 3, &r, &ms))
            continue;
        bool is_a = r.agent_n == 1;
        assert_true(is_a ? str_eq(str_of(r.name, r.name_n), STR("a.test")) : str_eq(str_of(r.name, r.name_n), str_c(longest)));
        assert_true(str_eq(str_of(r.agent, r.agent_n), is_a ? STR("a") : STR("an-agent-with-a-long-name")));
        seen_a += is_a;
        seen_b += !is_a;
    }
    kill(writer, SIGKILL);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    virtual_table_unref(&t);
    close(fd);
}

static unsigned char *raw(int fd, size_t *ret_n)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    *ret_n = (size_t)st.st_size;
    void *p = mmap(NULL, *ret_n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* A writer that died in the middle: nobody reads that record, until it is written anew. */
static void test_half_written(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/16");
    int fd = table_new(&p);
    struct virtual_table *t = map(fd, &p, true);
    size_t n;
    unsigned char *m = raw(fd, &n);
    virtual_table_write(t, 9, STR("coder"), STR("half.written.test"), 1);
    unsigned char *name = memmem(m, n, "half.written.test", 17);
    assert_non_null(name);
    name[-RECORD_NAME_AT] |= 1;
    assert_false(finds(t, 4, 9, "coder", "half.written.test"));
    name[-RECORD_NAME_AT] ^= 1; /* the control */
    assert_true(finds(t, 4, 9, "coder", "half.written.test"));
    name[-RECORD_NAME_AT] |= 1;
    virtual_table_write(t, 9, STR("coder"), STR("whole.test"), 1);
    assert_true(finds(t, 4, 9, "coder", "whole.test"));
    munmap(m, n);
    virtual_table_unref(&t);
    close(fd);
}

/* What is no canonical name is no answer, whoever wrote it. */
static void test_odd_names(void **state)
{
    (void)state;
    static const char *const odd[] = { "A.test", "a.test.", "a..test", "10.0.0.1", "0x7f.1", "::1", "a b.test", "a.test:443", "*.test", "-" };
    struct address_pool p = pool_of("10.78.0.0/16");
    int fd = table_new(&p);
    struct virtual_table *t = map(fd, &p, true);
    for (size_t i = 0; i + 1 < sizeof odd / sizeof *odd; i++) {
        virtual_table_write(t, 0, STR("coder"), str_c(odd[i]), 1);
        if (finds(t, 4, 0, "coder", ""))
            fail_msg("%s", odd[i]);
    }
    virtual_table_unref(&t);
    close(fd);
}

static void test_garbage(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/16");
    int fd = table_new(&p);
    struct virtual_table *t = map(fd, &p, false);
    size_t n;
    unsigned char *m = raw(fd, &n);
    for (unsigned round = 0; round < 300; round++) {
        rand_bytes(m, n);
        if (round % 3 == 1) /* every record there, and whole */
            for (size_t i = 0; i < n; i += 8)
                m[i] = (unsigned char)(m[i] & 0xfe);
        if (round % 3 == 2)
            memset(m, (int)round, n);
        for (uint32_t place = 0; place < virtual_table_places(t); place++) {
            struct ip ip = address_pool_address(&p, 4, place);
            struct host h, again;
            struct virtual_record r;
            uint64_t ms;
            if (virtual_table_read(t, place, &r, &ms)) {
                assert_true(r.agent_n > 0 && r.agent_n <= VIRTUAL_AGENT_MAX && r.name_n > 0 && r.name_n <= HOST_MAX);
                if (virtual_table_find(t, &ip, str_of(r.agent, r.agent_n), &h))
                    assert_true(host_parse(host_str(&h), &again, NULL) == 0 && host_eq(&h, &again));
            }
        }
    }
    munmap(m, n);
    virtual_table_unref(&t);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),     cmocka_unit_test(test_maps),      cmocka_unit_test(test_both_or_none),
        cmocka_unit_test(test_half_written), cmocka_unit_test(test_odd_names), cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
