/* SPDX-License-Identifier: Apache-2.0
 *
 * event: one record while it is made. An event is typed values, not text: the logger alone turns it into a JSON line,
 * so that whoever emits it cannot break a line, a field or the chain. Fields are those of fields.def; a value longer
 * than its field's maximum is cut there. Knows no policy type: names come as strings. Building one allocates nothing.
 *
 * A struct event is 8 KiB: keep one per process (or mark a local one EVENT_LOCAL, so that a build which zeroes locals
 * does not clear it each time); event_init touches only its head. A field put twice keeps the last value. */
#ifndef AUDIT_EVENT_H
#define AUDIT_EVENT_H

#include "base/str.h"

#include <stdio.h>

enum event_type {
    EVENT_NONE = 0,
    EVENT_OPEN,
    EVENT_CLOSE,
    EVENT_CONN,
    EVENT_DNS,
    EVENT_LEASE,
    EVENT_FINDING,
    EVENT_APPROVAL,
    EVENT_CONFIG,
    EVENT_LIFECYCLE,
    EVENT_CHECKPOINT, /* the logger's alone: one that comes out of a ring is refused */
    EVENT_TYPE_COUNT
};
const char *event_type_name(enum event_type t);

enum event_field {
    FIELD_NONE = 0,
#define FIELD(name, path, kind, max, doc) FIELD_##name,
#include "audit/fields.def"
#undef FIELD
    FIELD_COUNT_OF /* number of fields, plus one */
};

enum event_kind { KIND_NONE = 0, KIND_STR, KIND_U64, KIND_BOOL, KIND_LIST, KIND_RAW, KIND_NULL };
struct event_field_desc {
    const char *path; /* dotted where nested */
    enum event_kind kind;
    uint16_t max;
    const char *doc;
};
extern const struct event_field_desc event_fields[FIELD_COUNT_OF];

enum {
    EVENT_MAX = 8 * 1024, /* encoded record, the most there can be */
    EVENT_HEAD = 16,      /* u16 type, u16 flags, u32 zero, i64 time of emission (µs since 1970) */
};
enum event_flag {
    EVENT_FLAG_CUT = 1,     /* something was left out */
    EVENT_FLAG_COMPACT = 2, /* a close squeezed into its reservation: the logger adds what its open said */
};

/* Encoded on the go into own storage: EVENT_HEAD, then per value u8 field, u8 kind, u16 length, bytes; little-endian.
 */
struct event {
    enum event_type type;
    uint16_t n;
    bool cut; /* something did not fit and was left out; the line then says "cut":true */
    unsigned char bytes[EVENT_MAX];
};
#define EVENT_LOCAL __attribute__((uninitialized))

/* Stamps the time of emission (clock_wall_us): it becomes the line's ts. */
void event_init(struct event *e, enum event_type type);
/* A STR over its maximum is cut and ends in "...[+BYTES sha256:16 hex of the whole]" where the maximum is 64 or more.
 * For the RAW field (features) v is one JSON value in printable ASCII, at most 16 deep, numbers at most 18 characters;
 * anything else is logged as a string. */
void event_put_str(struct event *e, enum event_field f, struct str v);
void event_put_u64(struct event *e, enum event_field f, uint64_t v);
void event_put_bool(struct event *e, enum event_field f, bool v);
/* Adds one element to a LIST field. */
void event_add(struct event *e, enum event_field f, struct str v);
/* An explicit null (e.g. rule); an empty list for a LIST. */
void event_put_null(struct event *e, enum event_field f);
/* For open and close the logger itself adds "rule":null, "credentials":[] and (close) "findings":[] where they are
 * absent. */

/* Sortable ids: 10 characters of time (ms, Crockford base32) and 16 of chance (as ULID). NUL-terminated. */
void event_id_new(char out[27]);

/* Ids that strictly ascend, whatever the clock does: the logger's, one per line. Zero-initialised. */
struct event_ids {
    uint64_t ms;
    char text[27];
};
void event_ids_next(struct event_ids *s, uint64_t now_ms);
/* Continues after an id read back from a line (26 characters). */
void event_ids_continue(struct event_ids *s, struct str id);

/* docs/AUDIT-LOG.md, from fields.def. */
void audit_print_doc(FILE *out);

#endif
