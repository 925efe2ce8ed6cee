/* SPDX-License-Identifier: Apache-2.0
 *
 * json: the few lines it takes to write JSON by hand: strings escaped to pure ASCII on one line, whatever bytes they hold
 * (invalid UTF-8 becomes U+FFFD, controls and direction marks are escaped). Reading JSON is jansson's. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"

/* "…" with its quotes; the caller looks at out->failed. */
void json_put_str(struct buf *out, struct str s);
/* The string, or null for STR_NONE. */
void json_put_str_or_null(struct buf *out, struct str s);

#endif
