/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include <stddef.h>

const struct limit_desc limit_table[] = {
#define LIMIT(name, kind, dflt, min, max, reason)                                                                      \
    { #name, LIMIT_##kind, dflt, min, max, reason, (unsigned)offsetof(struct limits, name) },
#include "base/limits.def"
#undef LIMIT
    { NULL, LIMIT_COUNT, 0, 0, 0, NULL, 0 },
};

void limits_default(struct limits *l)
{
#define LIMIT(name, kind, dflt, min, max, reason) l->name = dflt;
#include "base/limits.def"
#undef LIMIT
}
