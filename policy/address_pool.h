/* SPDX-License-Identifier: Apache-2.0
 *
 * address_pool: the networks of resolver.synthetic.pool, at most one of each family, as a row of numbered places. A
 * place has one address in each of them; a network's first and last address are nobody's. Pure arithmetic: who has a
 * place is said elsewhere (dns/virtual_names.h). */
#ifndef POLICY_ADDRESS_POOL_H
#define POLICY_ADDRESS_POOL_H

#include "policy/ip.h"

enum {
    ADDRESS_POOL_MAX = (1 << 24) - 2, /* places: a /8, or the first part of a larger IPv6 network */
    ADDRESS_POOL_HOST_BITS = 2,       /* the smallest network has two places */
};

/* family 0: no network of that family. */
struct address_pool {
    struct cidr v4, v6;
};

bool address_pool_given(const struct address_pool *p);
bool address_pool_has(const struct address_pool *p, uint8_t family);
bool address_pool_equal(const struct address_pool *a, const struct address_pool *b);
/* Inside one of the networks, with or without a place? A v4-mapped address is the IPv4 address, here and below. */
bool address_pool_contains(const struct address_pool *p, const struct ip *ip);
/* How many there are: as many as the smaller network has. */
uint32_t address_pool_places(const struct address_pool *p);
/* The place of this address. False: it has none. */
bool address_pool_place(const struct address_pool *p, const struct ip *ip, uint32_t *ret);
/* Its address in the network of that family, which there is. */
struct ip address_pool_address(const struct address_pool *p, uint8_t family, uint32_t place);

#endif
