/* SPDX-License-Identifier: Apache-2.0
 *
 * scrub: turns real values in what comes back to an agent into placeholders, in the forms of form.h (raw, base64 at its
 * three alignments in both alphabets, hex, percent-encoded, JSON-escaped), across any chunk border. Where several
 * values match, the leftmost and there the longest is taken; the result does not depend on how the text was cut into
 * chunks. Only a live prefix of a value is held back (less than the longest needle), to the end of the body. A base64
 * match is replaced by base64 of the placeholder cut or padded to the value's length, so that alignment and length
 * stay; other forms change the length. */
#ifndef MINT_SCRUB_H
#define MINT_SCRUB_H

#include "mint/lease_client.h"

struct scrub {
    struct lease_set *set; /* referenced */
    struct buf held;       /* wiped; the live prefix */
    uint64_t hits;
    uint64_t hit_credentials; /* bit i: item i of the set (i < 64); scrub_update carries it over by credential */
};
/* NULL set or an empty one: nothing to scrub; feed then only copies. */
void scrub_init(struct scrub *s, struct lease_set *set);
void scrub_done(struct scrub *s);
/* A newer set (or NULL) in mid stream: what is held back stays and is judged by the new one. */
void scrub_update(struct scrub *s, struct lease_set *set);
/* Appends what may go on to out. last: nothing follows, the held prefix goes too. 0 or -1 (out is full or memory is
 * out: end the answer). What is appended may be longer than what came in: by what was held, and by the longer
 * placeholders. */
int scrub_feed(struct scrub *s, struct str in, bool last, struct buf *out);
/* The same for the usual case, without a copy: true when nothing was held and nothing in `in` is to be replaced: *ret is what of it may
 * go on, the rest is held. False: nothing happened, feed it. */
bool scrub_clean(struct scrub *s, struct str in, struct str *ret);
/* One-shot, for a header value or reason phrase: true and the replacement in out when something was replaced (hits is
 * increased); false: unchanged, nothing was written. When out is full it is true and out->failed is set. */
bool scrub_text(struct lease_set *set, struct str in, struct buf *out, uint64_t *hits);

#endif
