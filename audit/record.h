/* SPDX-License-Identifier: Apache-2.0
 *
 * record: one encoded event read back. The bytes come from memory that a possibly broken writer shares, so the caller
 * copies them out first; decoding then checks every length, kind and field, and a record that is wrong anywhere is
 * wrong as a whole. Values are borrowed from the copy. */
#ifndef AUDIT_RECORD_H
#define AUDIT_RECORD_H

#include "audit/event.h"

struct record_value {
    const unsigned char *p; /* KIND_LIST: head of the first element */
    uint16_t n;             /* KIND_LIST: from there to the record's end (elements of other fields may lie between) */
    uint8_t kind;
};
struct record {
    enum event_type type;
    uint16_t flags; /* enum event_flag */
    int64_t wall_us;
    uint64_t present[2];                   /* one bit per field */
    struct record_value v[FIELD_COUNT_OF]; /* valid only where present */
};

/* Of its kilobyte record_decode sets what is read: not worth zeroing where it is made for every record. */
#define RECORD_LOCAL __attribute__((uninitialized))

/* False: not a record. Fields that only the logger may set (role, worker, cut, and a checkpoint's) are passed over. */
bool record_decode(const void *bytes, size_t n, struct record *ret);

static inline bool record_has(const struct record *r, enum event_field f)
{
    return r->present[(unsigned)f / 64] >> ((unsigned)f % 64) & 1;
}
/* Bytes of a STR or RAW value; STR_NONE when absent or null. */
struct str record_str(const struct record *r, enum event_field f);
void record_set(struct record *r, enum event_field f, struct record_value v);
/* Adds to r every field of `from` that r lacks and that an open and its close have in common (agent … credentials). */
void record_inherit(struct record *r, const struct record *from);

#endif
