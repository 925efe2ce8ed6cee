/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_type: DNS record types by number and by name, as a rule lists them and an event shows them. Not for their
 * contents: dns/wire.h and dns/answer.h know those. */
#ifndef POLICY_DNS_TYPE_H
#define POLICY_DNS_TYPE_H

#include "base/str.h"

enum dns_type {
    DNS_TYPE_A = 1,
    DNS_TYPE_NS = 2,
    DNS_TYPE_CNAME = 5,
    DNS_TYPE_SOA = 6,
    DNS_TYPE_PTR = 12,
    DNS_TYPE_MX = 15,
    DNS_TYPE_TXT = 16,
    DNS_TYPE_AAAA = 28,
    DNS_TYPE_SRV = 33,
    DNS_TYPE_OPT = 41,
    DNS_TYPE_SSHFP = 44,
    DNS_TYPE_TLSA = 52,
    DNS_TYPE_SVCB = 64,
    DNS_TYPE_HTTPS = 65,
    DNS_TYPE_CAA = 257,
};

enum { DNS_TYPE_NAME = 10 };
/* "A", or "TYPE65280" (RFC 3597) for one without a name here. Returns out. */
const char *dns_type_format(uint16_t type, char out[DNS_TYPE_NAME]);
/* May a rule list it? Of the types whose contents we can read, not those that would lead past what we see (HTTPS and
 * SVCB: encrypted names, QUIC) or that are followed here (CNAME). */
bool dns_type_listable(uint16_t type);
/* "A, AAAA, ..." of the listable ones, for messages. */
extern const char dns_type_listables[];
/* A name as dns_type_format writes it, upper case. */
bool dns_type_parse(struct str text, uint16_t *ret);

#endif
