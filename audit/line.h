/* SPDX-License-Identifier: Apache-2.0
 *
 * line: a stored line read back: its head, strictly (the bytes that encode.c writes and no others), and a reader that
 * yields the lines of a segment with bounded memory. For verification, recovery and tail. */
#ifndef AUDIT_LINE_H
#define AUDIT_LINE_H

#include "base/err.h"
#include "base/str.h"

enum { LINE_MAX_BYTES = 64 * 1024 }; /* >= ENCODE_LINE_MAX */

struct line_head {
    uint64_t seq;
    struct str prev, ts, id, type; /* borrowed */
    struct str rest;               /* from the byte after the type's quote: ",…}" */
};
/* line: without its LF. */
bool line_parse(struct str line, struct line_head *ret);
/* The value of a top-level member that our own encoder wrote: `,"key":` followed by a string (quotes taken off, escapes
 * as they stand) or a number. A quote inside a value is always escaped, so the first occurrence is the member. STR_NONE
 * when absent. */
struct str line_member(struct str rest, const char *key);
bool line_member_u64(struct str rest, const char *key, uint64_t *ret);

struct line_reader {
    int fd;
    char *mem;       /* owned */
    size_t at, end;  /* unread bytes in mem */
    uint64_t offset; /* in the file, of mem[at] */
    uint64_t number; /* of the line last returned, from 1 */
    bool eof, failed;
};
enum line_result { LINE_OK, LINE_END, LINE_TORN, LINE_TOO_LONG, LINE_ERROR };
/* Starts at `offset` of fd (borrowed). 0 or -1 (memory). */
int line_reader_init(struct line_reader *r, int fd, uint64_t offset);
void line_reader_done(struct line_reader *r);
/* The next line without its LF, borrowed until the next call. LINE_TORN: the file ends without a LF; *ret is what is
 * there, and a later call looks again (the file may have grown). */
enum line_result line_next(struct line_reader *r, struct str *ret);

/* Lower-case hex SHA-256 of a line, as in `prev`. */
void line_hash(struct str line, char out[64]);

#endif
