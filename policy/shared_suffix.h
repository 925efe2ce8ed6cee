/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_suffix: suffixes under which anyone can have a name and which the public suffix list of a system may lack,
 * because it is older than they are. Not a copy of that list: whoever asks here asks libpsl as well. Pure. */
#ifndef POLICY_SHARED_SUFFIX_H
#define POLICY_SHARED_SUFFIX_H

#include "base/str.h"

/* Is the suffix one of these, or above one? Names of strangers are below both. */
bool shared_suffix_reaches(struct str suffix);
/* The part of a name from a tenant's label on (the label before the longest of these suffixes); STR_NONE: the name is
 * below none. */
struct str shared_suffix_tenant(struct str name);

#endif
