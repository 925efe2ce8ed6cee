/* SPDX-License-Identifier: Apache-2.0
 *
 * rewrite: what of a head goes on, in both directions. Heads are serialised from the model, in order and case as received; only what
 * this file says is different: hop-by-hop and Proxy-* fields and those that Connection nominates are removed; Host and framing (in HTTP/2
 * :authority and, where it is known, Content-Length) are
 * written anew from what was decided; Accept-Encoding and gRPC's become identity and Range is dropped where the answer will be scrubbed;
 * Alt-Svc, NEL, Report-To and Reporting-Endpoints are removed from answers; trailers pass except framing, auth and Host. */
#ifndef PROXY_REWRITE_H
#define PROXY_REWRITE_H

#include "proxy/exchange.h"

/* Static sentence when the request's fields cannot be sent on safely, else NULL; with the refusal in *ret_end. */
const char *rewrite_request_check(const struct exchange *x, enum end *ret_end);
/* The HTTP/1.1 request head into out (wiped), placeholders swapped. END_OK or why not. */
enum end rewrite_request_h1(struct exchange *x, struct buf *out);
/* The same for HTTP/2 (RFC 9113 8.3.1): pseudo-fields first, names in lower case, `te: trailers` where the request had it. Field secret:
 * it holds a real value or may hold one of the agent's own, and must enter no compression table (RFC 7541 7.1.3). All borrow from out. */
enum { REWRITE_FIELDS_MAX = H1_FIELDS_MAX + 8 };
struct rewrite_field {
    struct field f;
    bool secret;
};
enum end rewrite_request_h2(struct exchange *x, struct rewrite_field *fields, size_t *ret_n, struct buf *out);
/* End-to-end fields of an answer, as views of h (values possibly replaced by scrubbed copies in *scratch), at most max. */
size_t rewrite_answer_fields(struct exchange *x, const struct h1_head *h, struct field *out, size_t max, struct buf *scratch);
/* Is a real value in the name of a field or trailer? Then it is left out. */
bool rewrite_name_is_value(struct exchange *x, struct str name, struct buf *scratch);
/* Scrubs one value into scratch, at its end; *replaced counts those of this message. Only rewrite_scrub_done gives the fields their new
 * values: nothing may be added to scratch after it while they are used. */
void rewrite_scrub_value(struct exchange *x, struct field *f, size_t index, size_t *replaced, struct buf *scratch);
void rewrite_scrub_done(struct field *fields, size_t replaced, const struct buf *scratch);
/* May this trailer field pass? */
bool rewrite_trailer_passes(struct str name);

#endif
