/* SPDX-License-Identifier: Apache-2.0
 *
 * field: one header or trailer field as received: borrowed name and value (white space around the value taken off). The
 * one shape in which heads travel between the codecs, the swap and the log, whichever protocol they came in. */
#ifndef BASE_FIELD_H
#define BASE_FIELD_H

#include "base/str.h"

struct field {
    struct str name;
    struct str value;
};

#endif
