/* SPDX-License-Identifier: Apache-2.0
 *
 * record_text: the data of a DNS record in words, as a log shows it: close to RFC 1035's zone files, for the types whose
 * contents we read; of any other RFC 3597's form. Not meant to be read back. Pure. */
#ifndef DNS_RECORD_TEXT_H
#define DNS_RECORD_TEXT_H

#include "base/str.h"

#include <stdint.h>

enum { RECORD_TEXT = 300 };
/* data: as wire_answer has it, any bytes. Cut to fit, NUL-terminated, printable ASCII. Returns out. */
const char *record_text(uint16_t type, struct str data, char out[RECORD_TEXT]);

#endif
