/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/address_pool.h"

#include "base/log.h"

enum { COUNTED_BYTES = 4 /* places are counted in the last of an address */ };

static unsigned width(const struct cidr *c)
{
    return c->net.family == 4 ? 32 : 128;
}

static const struct cidr *network(const struct address_pool *p, uint8_t family)
{
    return family == 4 ? &p->v4 : &p->v6;
}

bool address_pool_given(const struct address_pool *p)
{
    return p->v4.net.family || p->v6.net.family;
}

bool address_pool_has(const struct address_pool *p, uint8_t family)
{
    return network(p, family)->net.family != 0;
}

static bool cidr_equal(const struct cidr *a, const struct cidr *b)
{
    return a->net.family == b->net.family && (!a->net.family || (a->bits == b->bits && ip_equal(&a->net, &b->net)));
}

bool address_pool_equal(const struct address_pool *a, const struct address_pool *b)
{
    return cidr_equal(&a->v4, &b->v4) && cidr_equal(&a->v6, &b->v6);
}

bool address_pool_contains(const struct address_pool *p, const struct ip *ip)
{
    struct ip plain = ip_unmapped(ip);
    return cidr_contains(&p->v4, &plain) || cidr_contains(&p->v6, &plain);
}

static uint32_t places_of(const struct cidr *c)
{
    unsigned bits = width(c) - c->bits;
    return bits >= 24 ? ADDRESS_POOL_MAX : bits < ADDRESS_POOL_HOST_BITS ? 0 : (1u << bits) - 2;
}

uint32_t address_pool_places(const struct address_pool *p)
{
    uint32_t n = ADDRESS_POOL_MAX;
    for (uint8_t family = 4; family <= 6; family = (uint8_t)(family + 2))
        if (address_pool_has(p, family) && places_of(network(p, family)) < n)
            n = places_of(network(p, family));
    return address_pool_given(p) ? n : 0;
}

bool address_pool_place(const struct address_pool *p, const struct ip *ip, uint32_t *ret)
{
    struct ip plain = ip_unmapped(ip);
    const struct cidr *c = network(p, plain.family);
    if (!cidr_contains(c, &plain))
        return false;
    size_t n = width(c) / 8, from = n - COUNTED_BYTES;
    if (memcmp(plain.b, c->net.b, from) != 0) /* beyond the part of a large network that has places */
        return false;
    uint32_t at = 0;
    for (size_t i = from; i < n; i++)
        at = at << 8 | (uint32_t)(plain.b[i] ^ c->net.b[i]); /* what is the network's own is zero */
    if (at == 0 || at - 1 >= address_pool_places(p))
        return false;
    *ret = at - 1;
    return true;
}

struct ip address_pool_address(const struct address_pool *p, uint8_t family, uint32_t place)
{
    const struct cidr *c = network(p, family);
    MUST(c->net.family && place < address_pool_places(p));
    struct ip ip = c->net;
    size_t n = width(c) / 8;
    uint32_t at = place + 1;
    for (size_t i = 0; i < COUNTED_BYTES; i++, at >>= 8)
        ip.b[n - 1 - i] = (uint8_t)(ip.b[n - 1 - i] | (at & 0xff));
    return ip;
}
