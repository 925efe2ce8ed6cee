/* SPDX-License-Identifier: Apache-2.0
 *
 * A head, a bit for each place that is taken, and the records. Bits spare pages: where none is set, no record is
 * looked at, and memory that nobody touched is none. */
#include "dns/virtual_table.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_MAGIC UINT64_C(0x31656c6261546756)
enum {
    TABLE_VERSION = 1,
    RECORD_WORDS = 40,
    READ_TRIES = 1000, /* a writer is done within a microsecond, unless it was stopped in the middle */
};
static const int table_seals = F_SEAL_SHRINK | F_SEAL_GROW;

struct table_head {
    uint64_t magic, version, places, id[2], key[2];
    struct address_pool pool;
};
struct table_record {
    _Atomic uint64_t turn; /* odd: being written */
    _Atomic uint64_t used_ms;
    _Atomic uint64_t words[RECORD_WORDS]; /* a struct virtual_record */
};
union record_words {
    struct virtual_record record;
    uint64_t words[RECORD_WORDS];
};
static_assert(sizeof(struct virtual_record) == RECORD_WORDS * 8, "a record is whole words");
static_assert(sizeof(struct table_head) % 8 == 0, "bits begin on a word");

struct virtual_table {
    unsigned refs;
    struct table_head head; /* as it was when it was mapped: what is in the memory may change */
    char *base;
    size_t bytes;
    _Atomic uint64_t *taken; /* bits */
    struct table_record *records;
};

static size_t bit_words(uint64_t places)
{
    return (size_t)((places + 63) / 64);
}

static size_t bytes_of(uint64_t places)
{
    return sizeof(struct table_head) + bit_words(places) * 8 + (size_t)places * sizeof(struct table_record);
}

int virtual_table_new(const struct address_pool *pool, uint64_t max_bytes, const unsigned char key[VIRTUAL_KEY],
                      struct err *err)
{
    struct table_head head = { .magic = TABLE_MAGIC, .version = TABLE_VERSION, .pool = *pool };
    uint64_t room = max_bytes > sizeof head + 8 ? (max_bytes - sizeof head - 8) * 8 / (sizeof(struct table_record) * 8 + 1) : 0;
    head.places = address_pool_places(pool);
    if (head.places > room)
        head.places = room;
    if (head.places == 0)
        return err_set(err, "virtual names: expected room for one, got %llu bytes", (unsigned long long)max_bytes);
    rand_bytes(head.id, sizeof head.id);
    memcpy(head.key, key, sizeof head.key);
    int fd = memfd_create("outgate-virtual-names", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set_errno(err, "virtual names");
    if (ftruncate(fd, (off_t)bytes_of(head.places)) || pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        fchmod(fd, 0600) || fcntl(fd, F_ADD_SEALS, table_seals | F_SEAL_SEAL)) {
        err_set_errno(err, "virtual names: no memory for %llu", (unsigned long long)head.places);
        close(fd);
        return -1;
    }
    return fd;
}

int virtual_table_reader(int fd, struct err *err)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    return reader < 0 ? err_set_errno(err, "virtual names: cannot open them for reading only") : reader;
}

struct virtual_table *virtual_table_map(int fd, const struct address_pool *pool, bool writer, struct err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & table_seals) != table_seals || fstat(fd, &st) || st.st_size < (off_t)bytes_of(1) ||
        st.st_size > (off_t)bytes_of(ADDRESS_POOL_MAX)) {
        err_set(err, "virtual names: expected a memfd sealed in size, got another descriptor");
        return NULL;
    }
    struct virtual_table *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(err, "virtual names: out of memory");
        return NULL;
    }
    t->refs = 1;
    t->bytes = (size_t)st.st_size;
    void *base = mmap(NULL, t->bytes, writer ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        err_set_errno(err, "virtual names");
        free(t);
        return NULL;
    }
    t->base = base;
    memcpy(&t->head, base, sizeof t->head);
    if (t->head.magic != TABLE_MAGIC || t->head.version != TABLE_VERSION || t->head.places == 0 ||
        t->head.places > address_pool_places(pool) || bytes_of(t->head.places) != t->bytes ||
        !address_pool_equal(&t->head.pool, pool)) {
        err_set(err, "virtual names: expected a table of this pool, got another");
        virtual_table_unref(&t);
        return NULL;
    }
    t->taken = (void *)(t->base + sizeof(struct table_head));
    t->records = (void *)(t->base + sizeof(struct table_head) + bit_words(t->head.places) * 8);
    return t;
}

struct virtual_table *virtual_table_ref(struct virtual_table *t)
{
    if (t)
        t->refs++;
    return t;
}

void virtual_table_unref(struct virtual_table **tp)
{
    struct virtual_table *t = *tp;
    *tp = NULL;
    if (!t || --t->refs > 0)
        return;
    munmap(t->base, t->bytes);
    free(t);
}

bool virtual_table_same(const struct virtual_table *a, const struct virtual_table *b)
{
    return memcmp(a->head.id, b->head.id, sizeof a->head.id) == 0;
}

const struct address_pool *virtual_table_pool(const struct virtual_table *t)
{
    return &t->head.pool;
}

uint32_t virtual_table_places(const struct virtual_table *t)
{
    return (uint32_t)t->head.places;
}

void virtual_table_key(const struct virtual_table *t, uint64_t ret[2])
{
    memcpy(ret, t->head.key, sizeof t->head.key);
}

bool virtual_table_taken(const struct virtual_table *t, uint32_t place)
{
    return place < t->head.places &&
           (atomic_load_explicit(&t->taken[place / 64], memory_order_acquire) >> (place % 64) & 1);
}

bool virtual_table_read(const struct virtual_table *t, uint32_t place, struct virtual_record *ret, uint64_t *ret_ms)
{
    if (!virtual_table_taken(t, place))
        return false;
    struct table_record *r = &t->records[place];
    for (unsigned i = 0; i < READ_TRIES; i++) {
        union record_words copy;
        uint64_t turn = atomic_load_explicit(&r->turn, memory_order_acquire);
        for (size_t k = 0; k < RECORD_WORDS; k++)
            copy.words[k] = atomic_load_explicit(&r->words[k], memory_order_relaxed);
        uint64_t ms = atomic_load_explicit(&r->used_ms, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if ((turn & 1) || atomic_load_explicit(&r->turn, memory_order_relaxed) != turn)
            continue;
        if (copy.record.agent_n == 0 || copy.record.agent_n > VIRTUAL_AGENT_MAX || copy.record.name_n == 0 ||
            copy.record.name_n > HOST_MAX)
            return false;
        *ret = copy.record;
        *ret_ms = ms;
        return true;
    }
    return false;
}

bool virtual_table_find(const struct virtual_table *t, const struct ip *ip, struct str agent, struct host *ret)
{
    uint32_t place;
    uint64_t ms;
    struct virtual_record r;
    struct host host;
    if (!address_pool_place(&t->head.pool, ip, &place) || !virtual_table_read(t, place, &r, &ms) ||
        !str_eq(str_of(r.agent, r.agent_n), agent))
        return false;
    struct str name = str_of(r.name, r.name_n);
    if (host_parse(name, &host, NULL) || host_is_ip(&host) || !str_eq(host_str(&host), name))
        return false;
    *ret = host;
    return true;
}

/* Between these two the record is nobody's to read. A writer that died in the middle left it odd. */
static uint64_t begin(struct table_record *r)
{
    uint64_t turn = atomic_load_explicit(&r->turn, memory_order_relaxed) | 1;
    atomic_store_explicit(&r->turn, turn, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    return turn;
}

static void end(struct table_record *r, uint64_t turn)
{
    atomic_store_explicit(&r->turn, turn + 1, memory_order_release);
}

static void put(struct virtual_table *t, uint32_t place, const struct virtual_record *v)
{
    MUST(place < t->head.places);
    struct table_record *r = &t->records[place];
    union record_words copy = { .record = *v };
    uint64_t turn = begin(r);
    for (size_t k = 0; k < RECORD_WORDS; k++)
        atomic_store_explicit(&r->words[k], copy.words[k], memory_order_relaxed);
    end(r, turn);
}

void virtual_table_write(struct virtual_table *t, uint32_t place, struct str agent, struct str name, uint64_t now_ms)
{
    struct virtual_record v = { .agent_n = (uint8_t)agent.n, .name_n = (uint8_t)name.n };
    MUST(agent.n > 0 && agent.n <= sizeof v.agent && name.n > 0 && name.n <= HOST_MAX);
    memcpy(v.agent, agent.p, agent.n);
    memcpy(v.name, name.p, name.n);
    put(t, place, &v);
    virtual_table_touch(t, place, now_ms);
    atomic_fetch_or_explicit(&t->taken[place / 64], UINT64_C(1) << (place % 64), memory_order_release);
}

void virtual_table_touch(struct virtual_table *t, uint32_t place, uint64_t now_ms)
{
    MUST(place < t->head.places);
    atomic_store_explicit(&t->records[place].used_ms, now_ms, memory_order_relaxed);
}

void virtual_table_clear(struct virtual_table *t, uint32_t place)
{
    static const struct virtual_record nobody;
    put(t, place, &nobody);
    atomic_fetch_and_explicit(&t->taken[place / 64], ~(UINT64_C(1) << (place % 64)), memory_order_release);
}
