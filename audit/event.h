/* SPDX-License-Identifier: Apache-2.0
 *
 * event: one record while it is made. An event is typed values, not text: the logger alone turns it into a JSON line, so
 * that whoever emits it cannot break a line, a field or the chain. Fields are those of fields.def; a value longer than its
 * field's maximum is cut there. Knows no policy type: names come as strings. Building one allocates nothing. */
#ifndef AUDIT_EVENT_H
#define AUDIT_EVENT_H

#include "base/str.h"

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
    EVENT_CHECKPOINT,
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

enum { EVENT_MAX = 8 * 1024 }; /* encoded record, the most there can be */

/* Encoded on the go into own storage: u16 type, then per value u8 field, u8 kind, u16 length, bytes (see ring.h). */
struct event {
    enum event_type type;
    uint16_t n;
    bool cut; /* something did not fit and was left out */
    unsigned char bytes[EVENT_MAX];
};

void event_init(struct event *e, enum event_type type);
void event_put_str(struct event *e, enum event_field f, struct str v);
void event_put_u64(struct event *e, enum event_field f, uint64_t v);
/* Adds one element to a LIST field. */
void event_add(struct event *e, enum event_field f, struct str v);
/* An explicit null (e.g. rule). */
void event_put_null(struct event *e, enum event_field f);

/* Sortable ids: 10 characters of time (ms, Crockford base32) and 16 of chance (as ULID). NUL-terminated. */
void event_id_new(char out[27]);

#endif
