/* SPDX-License-Identifier: Apache-2.0
 *
 * h2_field: one field as HTTP/2 carries it (RFC 9113 8.2), on either side: what its name and value must be, and how
 * nghttp2 takes it. */
#ifndef PROXY_H2_FIELD_H
#define PROXY_H2_FIELD_H

#include "base/str.h"

#include <nghttp2/nghttp2.h>

/* NULL, or why it can be no field (static): a name that is no lower-case token, a value with a control character.
 * nghttp2 looks at that too; nothing that is written on relies on it. */
const char *h2_field_fault(struct str name, struct str value);
/* Borrows both, which nghttp2 copies. secret: it never enters the compression's table. */
nghttp2_nv h2_field_nv(struct str name, struct str value, bool secret);

#endif
