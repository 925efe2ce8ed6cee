/* SPDX-License-Identifier: Apache-2.0
 *
 * canary: pieces of placeholders in other text. A placeholder is no secret, but it has no business in a name, so a
 * piece of one is an alarm that is almost never false, and says whose it was. Found are ten of its letters and digits
 * as they are or reversed, ten characters of its base64 at any alignment, and six of its characters in hex or base32:
 * in any case, and with `.`, `-`, `_` and the like strewn in or taken out. Its fixed beginning ("ghp_"), which all of
 * its kind have, is no piece of it.
 *
 * Immutable; built once for a snapshot from all its placeholders, then read by anybody. A look takes about the same
 * time with one or thousands. */
#ifndef DNS_CANARY_H
#define DNS_CANARY_H

#include "base/err.h"
#include "base/str.h"

enum { CANARY_PIECE = 10, CANARY_SOURCES_MAX = 65536, CANARY_TEXT_MAX = 1024, CANARY_LOOK_MAX = 768 };

struct canary_source {
    struct str text; /* the placeholder, at most CANARY_TEXT_MAX bytes */
    size_t fixed;    /* bytes at its beginning that all of its kind have */
    struct str agent, credential;
};
enum canary_form { CANARY_PLAIN = 0, CANARY_REVERSED, CANARY_HEX, CANARY_BASE32, CANARY_BASE64 };
const char *canary_form_text(enum canary_form f);

struct canary;
/* Copies what it needs. An empty set finds nothing. NULL: too many, one too long, or out of memory. */
struct canary *canary_new(const struct canary_source *v, size_t n, struct err *err);
struct canary *canary_ref(struct canary *c);
void canary_unref(struct canary **c);

struct canary_hit {
    struct str agent, credential; /* borrowed from the canary */
    enum canary_form form;
};
/* Is there a piece of one in text (any bytes; of a longer one the first CANARY_LOOK_MAX)? */
bool canary_find(const struct canary *c, struct str text, struct canary_hit *ret);
size_t canary_bytes(const struct canary *c);

#endif
