/* SPDX-License-Identifier: Apache-2.0
 *
 * der: writes DER (X.690) from the last byte to the first, so that every length is known when it is written. Internal
 * to ca. Bytes go into a fixed array; what does not fit sets bad and writes nothing more. */
#ifndef CA_DER_H
#define CA_DER_H

#include "base/str.h"

enum { DER_MAX = 4096 };

enum der_tag {
    DER_BOOLEAN = 0x01,
    DER_INTEGER = 0x02,
    DER_BIT_STRING = 0x03,
    DER_OCTET_STRING = 0x04,
    DER_OID = 0x06,
    DER_UTC_TIME = 0x17,
    DER_GENERALIZED_TIME = 0x18,
    DER_SEQUENCE = 0x30,
    DER_CONTEXT_0 = 0x80,             /* primitive */
    DER_CONTEXT_CONSTRUCTED_0 = 0xa0, /* constructed */
};

struct der {
    unsigned char bytes[DER_MAX];
    size_t at; /* first byte written; DER_MAX: none yet */
    bool bad;
};

void der_init(struct der *d);
static inline struct str der_str(const struct der *d)
{
    return str_of(d->bytes + d->at, DER_MAX - d->at);
}
/* Puts raw bytes in front of what is there. */
void der_put(struct der *d, struct str bytes);
void der_put_byte(struct der *d, unsigned char byte);
/* Puts tag and length in front of everything written since `mark` (an earlier d->at). */
void der_close(struct der *d, unsigned tag, size_t mark);
/* A whole element. */
void der_put_element(struct der *d, unsigned tag, struct str content);
/* An unsigned number of n big-endian bytes, n > 0, as the shortest INTEGER. */
void der_put_unsigned(struct der *d, struct str big_endian);
/* UTCTime up to 2049, GeneralizedTime after (RFC 5280 4.1.2.5); whole seconds since 1970. */
void der_put_time(struct der *d, int64_t seconds);

#endif
