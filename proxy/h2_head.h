/* SPDX-License-Identifier: Apache-2.0
 *
 * h2_head: from the fields of one HTTP/2 header block (RFC 9113 8), as HPACK gives them one after the other, to a request as the
 * exchange takes it, or to a trailer section. Pure: what a peer sent on the wire and in which frames is the session's business.
 *
 * Every name and value is judged as HTTP/1.1's are, since it may be written as such: a value with CR, LF, NUL or another control
 * character, a name that is no lower-case token or that some servers read as another, a method, path or authority with a byte that
 * cannot stand there, pseudo-fields that are missing, twice, unknown or behind others. The library that runs the session refuses
 * most of that too; what is decided here does not rely on it.
 *
 * Differences that HTTP/2 makes for the exchange end here: Host is what :authority said, several Cookie fields are one
 * (RFC 9113 8.2.3), a body of unknown length is "chunked". */
#ifndef PROXY_H2_HEAD_H
#define PROXY_H2_HEAD_H

#include "proxy/exchange.h"

/* One block while it comes. Zero at first (h2_head_init); h2_head_done frees it. */
struct h2_head {
    struct buf bytes; /* name, value, name, value … */
    struct h2_size {
        uint32_t name_n, value_n;
    } *sizes;
    size_t n, cap;
    size_t list;       /* its size as RFC 9113 6.5.2 counts it */
    bool too_large;    /* over the limits: the rest was not kept */
};

void h2_head_init(struct h2_head *h);
void h2_head_done(struct h2_head *h);
/* The next field. Over lim->head_bytes or lim->fields, or without memory, nothing more is kept and too_large set. */
void h2_head_add(struct h2_head *h, struct str name, struct str value, const struct h1_limits *lim);

/* What a block says of a request besides what struct request holds. */
struct h2_request {
    struct request r;     /* r.mem owns everything */
    struct str scheme, authority; /* of the pseudo-fields; STR_NONE: not there */
    struct str host;      /* of the Host field; STR_NONE: not there */
    struct str protocol;  /* :protocol (RFC 8441); STR_NONE: not there */
    const char *fault;    /* static: malformed (RFC 9113 8.1.1); NULL: it is fine. The rest is as far as it could be read. */
};
/* end: the block ends the request (no body follows). 0, or -1: out of memory. */
int h2_head_request(const struct h2_head *h, bool end, const struct h1_limits *lim, struct h2_request *ret);
/* The block as trailers: fields (at most max) borrow from h. NULL, or why it is malformed. Names that may not be in trailers are left
 * out as in HTTP/1.1. */
const char *h2_head_trailers(const struct h2_head *h, struct field *fields, size_t max, size_t *ret_n);

#endif
