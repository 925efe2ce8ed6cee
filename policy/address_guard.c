/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a connection may go, whatever the name said. One table of prefixes per family, the first that holds the address
 * decides; IPv6 outside 2000::/3 that no row explains is refused. IPv4 inside an IPv6 address is judged as if dialled
 * itself, because some router or kernel will do just that. Exceptions are per address family: what opens 10.0.0.0/8
 * does not open 10.0.0.1 behind NAT64, except that a v4-mapped address is the IPv4 address.
 *
 * Sources: IANA special-purpose registries (RFC 6890 and updates); metadata addresses from the providers' documents. */
#include "policy/policy.h"

enum guard_class { GUARD_OPEN = 0, GUARD_CLOSED, GUARD_NEVER };
struct guard_row {
    uint8_t b[16], bits;
    enum guard_class class;
    const char *why;
};

static const char never_metadata[] = "metadata";

static const struct guard_row v4_rows[] = {
    { { 0, 0, 0, 0 }, 32, GUARD_NEVER, "unspecified" },
    { { 169, 254, 169, 254 }, 32, GUARD_NEVER, never_metadata }, /* AWS, GCP, Azure, OpenStack, Oracle, … */
    { { 169, 254, 169, 253 }, 32, GUARD_NEVER, never_metadata }, /* AWS: resolver */
    { { 169, 254, 170, 2 }, 32, GUARD_NEVER, never_metadata },   /* AWS: container credentials */
    { { 169, 254, 170, 23 }, 32, GUARD_NEVER, never_metadata },  /* AWS: pod identity */
    { { 169, 254, 0, 23 }, 32, GUARD_NEVER, never_metadata },    /* Tencent */
    { { 169, 254, 42, 42 }, 32, GUARD_NEVER, never_metadata },   /* Scaleway */
    { { 100, 100, 100, 200 }, 32, GUARD_NEVER, never_metadata }, /* Alibaba */
    { { 168, 63, 129, 16 }, 32, GUARD_NEVER, never_metadata },   /* Azure: wire server */
    { { 192, 0, 0, 192 }, 32, GUARD_NEVER, never_metadata },     /* Oracle, classic */
    { { 0 }, 8, GUARD_CLOSED, "this network" },
    { { 10 }, 8, GUARD_CLOSED, "private" },
    { { 100, 64 }, 10, GUARD_CLOSED, "shared" },
    { { 127 }, 8, GUARD_CLOSED, "loopback" },
    { { 169, 254 }, 16, GUARD_CLOSED, "link-local" },
    { { 172, 16 }, 12, GUARD_CLOSED, "private" },
    { { 192, 0, 0 }, 24, GUARD_CLOSED, "reserved" },
    { { 192, 88, 99 }, 24, GUARD_CLOSED, "reserved" }, /* 6to4 relays, deprecated */
    { { 192, 168 }, 16, GUARD_CLOSED, "private" },
    { { 198, 18 }, 15, GUARD_CLOSED, "benchmark" },
    { { 224 }, 4, GUARD_CLOSED, "multicast" },
    { { 255, 255, 255, 255 }, 32, GUARD_CLOSED, "broadcast" },
    { { 240 }, 4, GUARD_CLOSED, "reserved" },
    { { 0 }, 0, GUARD_OPEN, "" },
};

static const struct guard_row v6_rows[] = {
    { { 0 }, 128, GUARD_NEVER, "unspecified" },
    { { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54 }, 128, GUARD_NEVER, never_metadata }, /* AWS */
    { { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x53 }, 128, GUARD_NEVER, never_metadata },
    { { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23 }, 128, GUARD_NEVER, never_metadata },
    { { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54 }, 128, GUARD_NEVER, never_metadata }, /* GCP */
    { { 0xfd, 0x00, 0x00, 0x42, [15] = 0x42 }, 128, GUARD_NEVER, never_metadata },              /* Scaleway */
    { { [15] = 1 }, 128, GUARD_CLOSED, "loopback" },
    { { 0xfe, 0x80 }, 10, GUARD_CLOSED, "link-local" },
    { { 0xfe, 0xc0 }, 10, GUARD_CLOSED, "site-local" },
    { { 0xfc }, 7, GUARD_CLOSED, "private" },
    { { 0xff }, 8, GUARD_CLOSED, "multicast" },
    { { 0x00, 0x64, 0xff, 0x9b, [15] = 0 }, 96, GUARD_OPEN, "" }, /* NAT64: the IPv4 inside decides */
    { { 0x20, 0x01, 0x0d, 0xb8 }, 32, GUARD_CLOSED, "documentation" },
    { { 0x20, 0x01, 0x00, 0x02 }, 48, GUARD_CLOSED, "benchmark" },
    { { 0x20, 0x01, 0x00, 0x10 }, 28, GUARD_CLOSED, "reserved" }, /* ORCHID */
    { { 0x20, 0x01, 0x00, 0x20 }, 28, GUARD_CLOSED, "reserved" },
    { { 0x3f, 0xff }, 20, GUARD_CLOSED, "documentation" },
    { { 0x20 }, 3, GUARD_OPEN, "" },
    { { 0 }, 0, GUARD_CLOSED, "reserved" },
};

static const struct guard_row *row_of(const struct ip *ip)
{
    const struct guard_row *row = ip->family == 4 ? v4_rows : v6_rows;
    for (;; row++) { /* the last row holds everything */
        struct cidr c = { .net = { .family = ip->family }, .bits = row->bits };
        memcpy(c.net.b, row->b, sizeof row->b);
        if (cidr_contains(&c, ip))
            return row;
    }
}

enum { EMBEDDED_MAX = 4 };

static struct ip v4_at(const uint8_t *b)
{
    struct ip ip = { .family = 4 };
    memcpy(ip.b, b, 4);
    return ip;
}

static bool starts(const struct ip *ip, const void *prefix, size_t n)
{
    return !memcmp(ip->b, prefix, n);
}

static bool is_loopback(const struct ip *ip)
{
    static const struct ip one = { .family = 6, .b = { [15] = 1 } };
    return ip->family == 4 ? ip->b[0] == 127 : ip_equal(ip, &one);
}

static bool is_unspecified(const struct ip *ip)
{
    static const uint8_t zeros[16];
    return ip->family && !memcmp(ip->b, zeros, sizeof zeros);
}

/* The IPv4 addresses that an IPv6 address may end up at. */
static size_t embedded(const struct ip *ip, struct ip out[EMBEDDED_MAX])
{
    static const uint8_t zeros[12];
    const uint8_t *b = ip->b;
    size_t n = 0;
    if (ip->family != 6)
        return 0;
    if (starts(ip, zeros, 12) || /* v4-compatible, RFC 4291 2.5.5.1 */
        starts(ip, "\0\0\0\0\0\0\0\0\xff\xff\0\0", 12) /* v4-translated, RFC 2765 */ ||
        starts(ip, "\0\x64\xff\x9b\0\0\0\0\0\0\0\0", 12)) /* NAT64, RFC 6052 */
        out[n++] = v4_at(b + 12);
    if (starts(ip, "\0\x64\xff\x9b\0\1", 6)) { /* local NAT64, RFC 8215: of /48 (RFC 6052 2.2) or /96 */
        const struct ip both[2] = { v4_at((const uint8_t[4]) { b[6], b[7], b[9], b[10] }), v4_at(b + 12) };
        for (size_t i = 0; i < 2; i++)
            if (!is_unspecified(&both[i])) /* the form that this address does not have */
                out[n++] = both[i];
    }
    if (starts(ip, "\x20\x02", 2)) /* 6to4, RFC 3056 */
        out[n++] = v4_at(b + 2);
    if (starts(ip, "\x20\x01\0\0", 4)) { /* Teredo, RFC 4380: server, and client with its bits flipped */
        out[n++] = v4_at(b + 4);
        out[n++] = v4_at((const uint8_t[4]) { (uint8_t)~b[12], (uint8_t)~b[13], (uint8_t)~b[14], (uint8_t)~b[15] });
    }
    if ((b[8] & 0xfd) == 0 && !b[9] && b[10] == 0x5e && b[11] == 0xfe) /* ISATAP, RFC 5214 */
        out[n++] = v4_at(b + 12);
    return n;
}

/* Ourselves: as bound, and by loopback where bound to any address. (Interface addresses are listed one by one.) */
static bool is_own(const struct ip *ip, uint16_t port, const struct own_addresses *own)
{
    for (size_t i = 0; own && i < own->n; i++) {
        struct ip listed = ip_unmapped(&own->ips[i]);
        if (own->ports[i] == port && (ip_equal(&listed, ip) || (is_unspecified(&listed) && is_loopback(ip))))
            return true;
    }
    return false;
}

static bool is_allowed(const struct policy *p, const struct rule *rule, const struct ip *ip)
{
    const struct config *c = policy_config(p);
    for (size_t i = 0; i < c->nallow_addresses; i++)
        if (cidr_contains(&c->allow_addresses[i], ip))
            return true;
    for (size_t i = 0; rule && i < rule->nallow_addresses; i++)
        if (cidr_contains(&rule->allow_addresses[i], ip))
            return true;
    return false;
}

static bool refused(const struct policy *p, const struct rule *rule, const struct ip *ip, uint16_t port,
                    const struct own_addresses *own, const char **ret_why)
{
    const struct guard_row *row = row_of(ip);
    *ret_why = row->why;
    if (row->class == GUARD_NEVER)
        return true;
    if (is_own(ip, port, own)) {
        *ret_why = "own listener";
        return true;
    }
    if (address_pool_contains(&policy_config(p)->synthetic_pool, ip)) { /* it stands for a name and leads nowhere */
        *ret_why = "virtual";
        return true;
    }
    return row->class == GUARD_CLOSED && !is_allowed(p, rule, ip);
}

enum end address_guard(const struct policy *p, const struct rule *rule, const struct ip *ip, uint16_t port,
                       const struct own_addresses *own, const char **ret_why)
{
    struct ip outer = ip_unmapped(ip), inner[EMBEDDED_MAX];
    const char *why = "no address";
    bool deny = !outer.family || refused(p, rule, &outer, port, own, &why);
    if (outer.family == 6 && !is_unspecified(&outer) && !is_loopback(&outer)) {
        size_t n = embedded(&outer, inner);
        for (size_t i = 0; i < n && !deny; i++)
            deny = refused(p, rule, &inner[i], port, own, &why);
    }
    if (!deny)
        return END_OK;
    if (ret_why)
        *ret_why = why;
    return END_ADDRESS_DENIED;
}
