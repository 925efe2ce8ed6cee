/* SPDX-License-Identifier: Apache-2.0
 *
 * host_index: from a host to the numbers of all patterns that match it, at a cost that depends on the host's labels and
 * not on how many patterns there are. One hash, computed from the end of the name, gives the key of every suffix on the
 * way. Immutable. */
#ifndef POLICY_HOST_INDEX_H
#define POLICY_HOST_INDEX_H

#include "policy/host_pattern.h"

struct host_index;
struct host_index_entry {
    const struct host_pattern *pattern; /* borrowed: must outlive the index */
    uint32_t id;
};
/* Ids in ascending order, without repetition. */
struct id_list {
    const uint32_t *v;
    size_t n;
};
/* Most lists that one host can have: one per label, the exact name, and "*". */
enum { HOST_INDEX_LISTS = 130 };

/* NULL when memory is out. entries is reordered. */
struct host_index *host_index_new(struct host_index_entry *entries, size_t n);
void host_index_free(struct host_index *x);
/* Fills lists (room for HOST_INDEX_LISTS) and returns how many. */
size_t host_index_find(const struct host_index *x, const struct host *h, struct id_list *lists);

/* Walks several ascending lists as one, each id once. */
struct id_walk {
    struct id_list lists[HOST_INDEX_LISTS];
    size_t n;
};
static inline void id_walk_start(struct id_walk *w, const struct host_index *x, const struct host *h)
{
    w->n = host_index_find(x, h, w->lists);
}
/* False at the end. */
bool id_walk_next(struct id_walk *w, uint32_t *ret);

#endif
