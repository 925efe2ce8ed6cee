/* SPDX-License-Identifier: Apache-2.0
 *
 * h1_body: body framing of one message, both directions: counts a length, reads chunks (strictly: 1 to 16 hex digits,
 * no white space, extensions dropped and bounded, CRLF everywhere), or runs until close; and writes the same. Pure. */
#ifndef PROXY_H1_BODY_H
#define PROXY_H1_BODY_H

#include "proxy/h1_head.h"

struct h1_body_in {
    enum h1_body kind;
    uint64_t left; /* of the length or the chunk */
    uint8_t state;
    uint8_t digits;
    size_t ext_bytes, ext_max;
    size_t trailer_max;
    size_t scanned; /* of a trailer section that is not all there */
};
enum h1_body_event {
    H1_BODY_MORE = 0, /* all given was consumed or a longer prefix is needed: drop *ret_used bytes, read more */
    H1_BODY_DATA,     /* *ret_data is body bytes (borrowed) */
    H1_BODY_TRAILERS, /* *ret_data is the trailer section without its empty line (may be empty): parse with
                         h1_trailers_parse */
    H1_BODY_END,      /* the message is complete */
    H1_BODY_BAD = -1,
};
void h1_body_in_init(struct h1_body_in *b, const struct h1_head *h, size_t ext_max, size_t trailer_max);
/* One step: looks at `bytes`, says how many were used (*ret_used) and what they were. Call again with the rest until
 * MORE, END or BAD. With H1_BODY_NONE or length 0 the first call gives END with nothing used. Chunked gives DATA…,
 * TRAILERS (also when empty), END. */
enum h1_body_event h1_body_next(struct h1_body_in *b, struct str bytes, size_t *ret_used, struct str *ret_data,
                                struct h1_fault *fault);
/* The peer closed: complete for until-close; otherwise truncated (false). */
bool h1_body_closed(struct h1_body_in *b);

/* Writing. data.n > 0 (an empty chunk would end the body: the buffer fails instead). The last chunk is h1_chunk_end:
 * "0\r\n" + trailer fields + "\r\n". */
void h1_put_chunk(struct buf *out, struct str data);
void h1_put_chunk_end(struct buf *out, const struct field *trailers, size_t n);

#endif
