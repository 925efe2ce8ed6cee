/* SPDX-License-Identifier: Apache-2.0
 *
 * base64: RFC 4648 section 4, strict: what decodes is exactly what encodes again to the same text, but for the padding,
 * which may be whole or absent. */
#ifndef MINT_BASE64_H
#define MINT_BASE64_H

#include "base/buf.h"
#include "base/str.h"

/* Room that base64_decode needs for n characters. */
static inline size_t base64_room(size_t n)
{
    return n / 4 * 3 + 3;
}
/* Decodes canonical text (right alphabet, no white space, unused bits zero, padding whole or absent). 0 and the length,
 * or -1. *ret_padded: padding stood there, or none was due. */
int base64_decode(struct str text, char *out, size_t *ret_n, bool *ret_padded);
/* Appends the encoding. */
void base64_put(struct buf *out, struct str bytes, bool padded);
/* Appends those characters of an encoding of (`before` bytes, then `bytes`, then anything) that depend on `bytes`
 * alone: what a search must look for. before is 0, 1 or 2; url: the alphabet of section 5. */
void base64_put_inner(struct buf *out, struct str bytes, unsigned before, bool url);

#endif
