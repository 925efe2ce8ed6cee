/* SPDX-License-Identifier: Apache-2.0
 *
 * resolver.synthetic.pool: private networks, of which addresses are given out that lead nowhere. What they must not
 * overlap is checked when the whole file is known (policy_check_pool.c). */
#include "policy/config_read.h"

static const char expected_network[] = "a private network without host bits, as 10.78.0.0/16 or fd78::/64 (at most a /30 or /126)";

/* Where nobody out there has an address: RFC 1918, 6598, 2544, 4193. */
static bool is_private(const struct cidr *c)
{
    static const struct cidr rows[] = {
        { { 4, { 10 } }, 8 },       { { 4, { 172, 16 } }, 12 }, { { 4, { 192, 168 } }, 16 },
        { { 4, { 100, 64 } }, 10 }, { { 4, { 198, 18 } }, 15 }, { { 6, { 0xfc } }, 7 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (c->bits >= rows[i].bits && cidr_contains(&rows[i], &c->net))
            return true;
    return false;
}

static bool read_network(struct config_reader *r, const struct ynode *v)
{
    struct address_pool *pool = &r->c->synthetic_pool;
    struct cidr c;
    if (!is_scalar(v) || cidr_parse(v->text, &c) ||
        c.bits > (c.net.family == 4 ? 32 : 128) - ADDRESS_POOL_HOST_BITS)
        return config_expected(r, v, "%s", expected_network);
    if (!is_private(&c))
        return config_expected(r, v, "%s, inside 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 198.18.0.0/15 or fc00::/7",
                               expected_network);
    struct cidr *at = c.net.family == 4 ? &pool->v4 : &pool->v6;
    if (at->net.family)
        return config_expected(r, v, "at most one network of each family");
    *at = c;
    *(c.net.family == 4 ? &r->c->synthetic_v4_pool_at : &r->c->synthetic_v6_pool_at) = (struct config_at) { v->line, v->col };
    return true;
}

bool read_synthetic_pool(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    r->c->synthetic_pool_at = (struct config_at) { v->line, v->col };
    if (v->kind != YNODE_LIST)
        return read_network(r, v);
    if (v->n == 0)
        return config_expected(r, v, "%s", expected_network);
    bool ok = true;
    for (const struct ynode *n = v->first; n; n = n->next)
        ok = read_network(r, n) && ok;
    return ok;
}
