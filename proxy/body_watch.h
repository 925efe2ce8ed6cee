/* SPDX-License-Identifier: Apache-2.0
 *
 * body_watch: the filter point of what a client sends. Looks for placeholders (inert in a body: forwarded, with a finding: agents
 * quote tokens in prompts) and for live real values (never forwarded: the exchange is cut before that chunk leaves), across any
 * chunk border. Changes nothing. */
#ifndef PROXY_BODY_WATCH_H
#define PROXY_BODY_WATCH_H

#include "base/buf.h"
#include "base/needles.h"

struct body_watch {
    struct needles *placeholders, *values; /* borrowed; NULL: not looked for */
    bool found_placeholder;
    unsigned placeholder_id; /* first one found */
    struct buf carry; /* wiped; the end of what was seen, where it may begin a needle: shorter than the longest one */
};

enum body_sight { BODY_CLEAN = 0, BODY_PLACEHOLDER /* first time seen */, BODY_REAL_VALUE };

void body_watch_init(struct body_watch *b, struct needles *placeholders, struct needles *values);
/* Other values from now on; what was kept of the bytes before is kept. */
void body_watch_renew(struct body_watch *b, struct needles *values);
/* Wipes the carry. */
void body_watch_done(struct body_watch *b);
enum body_sight body_watch_feed(struct body_watch *b, struct str data);

#endif
