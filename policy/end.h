/* SPDX-License-Identifier: Apache-2.0
 *
 * end: the one table of how a request ends, shared by whoever can end one (policy, mint, dns, proxy). */
#ifndef POLICY_END_H
#define POLICY_END_H

#include "base/str.h"

#include <stdio.h>

enum end {
#define END(name, code, status, sentence, hint) END_##name,
#include "policy/end.def"
#undef END
    END_COUNT
};

/* "host_denied"; never NULL for a value of the enum. */
const char *end_code(enum end e);
unsigned end_status(enum end e);
const char *end_sentence(enum end e);
const char *end_hint(enum end e);
/* The (first) value whose code this is, or END_UNSET. */
enum end end_from_code(struct str code);
/* The table of codes, as Markdown (docs/REFUSALS.md). */
void end_print_doc(FILE *out);

#endif
