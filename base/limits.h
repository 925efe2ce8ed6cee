/* SPDX-License-Identifier: Apache-2.0
 *
 * limits: the values of limits.def for one snapshot. Units: COUNT plain, BYTES bytes, MS milliseconds. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#include <stdint.h>

enum limit_kind { LIMIT_COUNT, LIMIT_BYTES, LIMIT_MS };

struct limits {
#define LIMIT(name, kind, dflt, min, max, reason) uint64_t name;
#include "base/limits.def"
#undef LIMIT
};

struct limit_desc {
    const char *name;
    enum limit_kind kind;
    uint64_t dflt, min, max;
    const char *reason;
    unsigned offset; /* of the uint64_t in struct limits */
};

/* The table, ended by a NULL name. */
extern const struct limit_desc limit_table[];
void limits_default(struct limits *l);

#endif
