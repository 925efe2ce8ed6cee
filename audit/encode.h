/* SPDX-License-Identifier: Apache-2.0
 *
 * encode: record -> one JSON line. Fields in the order of fields.def, dotted paths as nested objects. The output is
 * printable ASCII and nothing else: controls, DEL and every byte above are escaped (valid UTF-8 as \uXXXX, so bidi
 * controls and U+2028 never act; what is not UTF-8 as \ufffd), so that a line is always one line, in any viewer. */
#ifndef AUDIT_ENCODE_H
#define AUDIT_ENCODE_H

#include "audit/record.h"

/* A byte of a value becomes at most six, an empty list element (4 bytes in the record) three; keys and head fit the
 * rest. */
enum { ENCODE_LINE_MAX = 6 * EVENT_MAX + 8 * 1024 };

struct encode_head {
    uint64_t seq;
    const char *prev; /* 64 hex digits */
    const char *id;   /* 26 characters */
    int64_t wall_us;
    struct str role; /* our own word, printable */
    bool has_worker;
    unsigned worker;
};
/* The line with its LF, into out (ENCODE_LINE_MAX bytes); its length. */
size_t encode_line(const struct record *r, const struct encode_head *h, char *out);

/* "…" with escapes; out must have 6 * s.n + 18 bytes. Returns the end. */
char *encode_string(char *out, struct str s);
/* Is this one JSON value in printable ASCII, at most 16 deep, without U+0000, with paired surrogates and numbers that
 * any reader can hold? */
bool encode_raw_ok(struct str s);

#endif
