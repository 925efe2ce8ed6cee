/* SPDX-License-Identifier: Apache-2.0
 *
 * ip: addresses and prefixes as values. Strict text: dotted quad without leading zeros, RFC 5952-readable IPv6 (RFC 4291
 * 2.2), no zone id. */
#ifndef POLICY_IP_H
#define POLICY_IP_H

#include "base/str.h"

struct ip {
    uint8_t family; /* 4, 6, or 0: none */
    uint8_t b[16];  /* network order; 4 or 16 used */
};

struct cidr {
    struct ip net;
    uint8_t bits;
};

/* 0 or -1. */
int ip_parse(struct str text, struct ip *ret);
/* As WHATWG URL's IPv4 number forms (0x7f.1, 2130706433, 0177.0.0.1): 1 and the address when the text is some numeric
 * form of IPv4; 0 when it is none; -1 when it is one but out of range. */
int ip_parse_numeric(struct str text, struct ip *ret);
/* "192.0.2.1", "2001:db8::1" (RFC 5952); out has room for 46 bytes. Returns out. */
const char *ip_format(const struct ip *ip, char out[46]);
/* "10.0.0.0/8", "2001:db8::/32", or a bare address (/32, /128). Host bits set: -1. */
int cidr_parse(struct str text, struct cidr *ret);
bool cidr_contains(const struct cidr *c, const struct ip *ip);
bool ip_equal(const struct ip *a, const struct ip *b);
/* What the kernel dials: a v4-mapped address is the IPv4 address; any other is itself. */
struct ip ip_unmapped(const struct ip *ip);
struct sockaddr_storage;
/* Length of the filled address. */
unsigned ip_to_sockaddr(const struct ip *ip, uint16_t port, struct sockaddr_storage *ret);
int ip_from_sockaddr(const struct sockaddr_storage *sa, struct ip *ret, uint16_t *ret_port);

#endif
