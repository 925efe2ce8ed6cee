/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual_table: which name each address of resolver.synthetic.pool stands for, and for which agent, in shared memory:
 * made and kept by the supervisor, so that it outlives whoever dies; one writer, the resolver; any number of readers,
 * who look an address up without asking anybody. A record has a counter that is odd while it is written: a reader sees
 * all of it or none. A reader trusts nothing in it: whatever is not a whole record of that agent's is no answer.
 * Who gets which place, and for how long, is dns/virtual_names.h. */
#ifndef DNS_VIRTUAL_TABLE_H
#define DNS_VIRTUAL_TABLE_H

#include "base/err.h"
#include "policy/address_pool.h"
#include "policy/config.h"
#include "policy/host.h"

enum { VIRTUAL_AGENT_MAX = CONFIG_NAME_MAX, VIRTUAL_KEY = 16 };

/* --- the supervisor's --- */

/* A new memfd of at most max_bytes, sealed in size, with no names in it. key: decides where names go (virtual_names.h),
 * unknown to agents. The descriptor, or -1. */
int virtual_table_new(const struct address_pool *pool, uint64_t max_bytes, const unsigned char key[VIRTUAL_KEY],
                      struct err *err);
/* The same memory as a descriptor that cannot be written through. -1: none. */
int virtual_table_reader(int fd, struct err *err);

/* --- everybody's --- */

struct virtual_table;
/* Maps the table in fd, which stays the caller's, if it is one of this pool. NULL with the reason. */
struct virtual_table *virtual_table_map(int fd, const struct address_pool *pool, bool writer, struct err *err);
struct virtual_table *virtual_table_ref(struct virtual_table *t);
void virtual_table_unref(struct virtual_table **t);

/* What does this address stand for, when this agent says it? False: nothing, or it is another agent's; nobody is told
 * which. */
bool virtual_table_find(const struct virtual_table *t, const struct ip *ip, struct str agent, struct host *ret);

/* --- the writer's --- */

struct virtual_record {
    uint8_t agent_n, name_n;
    char agent[VIRTUAL_AGENT_MAX], name[HOST_MAX + 1];
};

bool virtual_table_same(const struct virtual_table *a, const struct virtual_table *b);
const struct address_pool *virtual_table_pool(const struct virtual_table *t);
uint32_t virtual_table_places(const struct virtual_table *t);
void virtual_table_key(const struct virtual_table *t, uint64_t ret[2]);
bool virtual_table_taken(const struct virtual_table *t, uint32_t place);
/* A whole record, and when its address was used last (clock_mono_ms). False: none is there. */
bool virtual_table_read(const struct virtual_table *t, uint32_t place, struct virtual_record *ret, uint64_t *ret_ms);
void virtual_table_write(struct virtual_table *t, uint32_t place, struct str agent, struct str name, uint64_t now_ms);
void virtual_table_touch(struct virtual_table *t, uint32_t place, uint64_t now_ms);
void virtual_table_clear(struct virtual_table *t, uint32_t place);

#endif
