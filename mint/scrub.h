/* SPDX-License-Identifier: Apache-2.0
 *
 * scrub: turns real values in what comes back to an agent into placeholders: raw, and base64 at its three alignments (standard
 * and URL alphabet), across any chunk border. Only a live prefix of a value is held back, to the end of the body. A base64 match is
 * replaced by base64 of the placeholder cut or padded to the value's length, so that alignment and length stay. Streaming, bounded
 * (holds back less than the longest needle). */
#ifndef MINT_SCRUB_H
#define MINT_SCRUB_H

#include "mint/lease_client.h"

struct scrub {
    struct lease_set *set; /* referenced */
    struct buf held;       /* wiped; the live prefix */
    uint64_t hits;
    uint64_t hit_credentials; /* bit i: item i of the set (i < 64) */
};
/* NULL set or an empty one: nothing to scrub; feed then only copies. */
void scrub_init(struct scrub *s, struct lease_set *set);
void scrub_done(struct scrub *s);
/* A newer set in mid stream: what is held back stays. */
void scrub_update(struct scrub *s, struct lease_set *set);
/* Appends what may go on to out. last: nothing follows, the held prefix goes too. 0 or -1 (out is full or memory is out). */
int scrub_feed(struct scrub *s, struct str in, bool last, struct buf *out);
/* One-shot, for a header value or reason phrase: true and the replacement in out when something was replaced; false: unchanged. */
bool scrub_text(struct lease_set *set, struct str in, struct buf *out, uint64_t *hits);

#endif
