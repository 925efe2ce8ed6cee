/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory behind virtual addresses with anything in it, behind its head: a reader finds whole, canonical names or
 * nothing; a writer that begins on it clears what is none, and what it gives is found by whoever was given it and nobody
 * else. The input is written over the memory again and again, to its end. */
#include "dns/virtual_names.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void look(const struct virtual_table *t)
{
    for (uint32_t place = 0; place < virtual_table_places(t); place++) {
        struct ip ip = address_pool_address(virtual_table_pool(t), 4, place);
        struct virtual_record r;
        struct host h, again;
        uint64_t ms;
        CHECK(!virtual_table_find(t, &ip, STR(""), &h));
        if (!virtual_table_read(t, place, &r, &ms))
            continue;
        CHECK(r.agent_n && r.agent_n <= sizeof r.agent && r.name_n && r.name_n <= HOST_MAX);
        if (virtual_table_find(t, &ip, str_of(r.agent, r.agent_n), &h))
            CHECK(!host_parse(host_str(&h), &again, NULL) && host_eq(&h, &again) && !host_is_ip(&h));
    }
}

static void give(struct virtual_names *v, struct str agent, struct str name)
{
    struct host h;
    uint32_t place;
    if (!virtual_names_give(v, agent, name, 1000, 10, &place))
        return;
    const struct virtual_table *t = virtual_names_table(v);
    struct ip ip = address_pool_address(virtual_table_pool(t), 4, place);
    CHECK(virtual_table_find(t, &ip, agent, &h) && str_eq(host_str(&h), name));
    CHECK(!virtual_table_find(t, &ip, STR("nobody's name"), &h));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[VIRTUAL_KEY];
    struct address_pool pool = { 0 };
    struct err err;
    struct stat st;
    CHECK(cidr_parse(STR("10.78.0.0/29"), &pool.v4) == 0);
    int fd = virtual_table_new(&pool, 65536, key, &err);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    struct virtual_table *t = virtual_table_map(fd, &pool, true, &err);
    CHECK(t);
    size_t n = (size_t)st.st_size, head = 96;
    unsigned char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    for (size_t i = head; size && i < n; i++)
        m[i] = data[(i - head) % size];
    look(t);
    struct virtual_names *v = virtual_names_new(t, 1000, &err);
    CHECK(v);
    look(t);
    static const char *const names[] = { "a.test", "b.test", "c.test", "d.test", "e.test", "f.test", "g.test", "h.test" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        give(v, STR("a"), str_c(names[i]));
        give(v, STR("b"), str_c(names[i]));
    }
    look(t);
    virtual_names_free(&v);
    virtual_table_unref(&t);
    munmap(m, n);
    close(fd);
    return 0;
}
