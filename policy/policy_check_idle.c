/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written and changes nothing, or less than it says: agents that nobody can be, an address beside the pool that answers in
 * its place, record types that a made-up answer never has, exceptions for addresses of the pool. Warnings. */
#include "policy/dns_type.h"
#include "policy/policy_impl.h"

static void check_agents(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < c->nagents; i++)
        if (c->agents[i].nclaims == 0)
            policy_warning(p, diag, c->agents[i].at, "identify: expected one claim or more, got none: nobody can be agent \"%.*s\"", STR_ARG(c->agents[i].name));
}

static void check_synthetic(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    const struct {
        const char *key, *type;
        const struct ip *ip;
        const struct cidr *pool;
        struct config_at at;
    } families[] = { { "v4", "A", &c->synthetic_v4, &c->synthetic_pool.v4, c->synthetic_v4_pool_at },
                     { "v6", "AAAA", &c->synthetic_v6, &c->synthetic_pool.v6, c->synthetic_v6_pool_at } };
    char ip[46], net[46];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].ip->family && families[i].pool->net.family)
            policy_warning(p, diag, families[i].at, "resolver.synthetic.%s: expected it or a network of its family in pool, got %s and %s/%u: what is answered to %s is out of the pool, and %s changes nothing",
                           families[i].key, ip_format(families[i].ip, ip), ip_format(&families[i].pool->net, net), families[i].pool->bits, families[i].type, families[i].key);
}

/* Of names that are answered here there are addresses and nothing else. */
static void check_types(const struct policy *p, struct diag *diag, const struct rule *rule)
{
    size_t addresses = 0;
    uint16_t other = 0;
    char text[DNS_TYPE_NAME];
    for (size_t i = 0; i < rule->ndns_types; i++) {
        bool address = rule->dns_types[i] == DNS_TYPE_A || rule->dns_types[i] == DNS_TYPE_AAAA;
        addresses += address;
        other = address || other ? other : rule->dns_types[i];
    }
    if (other)
        policy_warning(p, diag, rule->at, "dns_types: expected A and AAAA alone with resolver.answer: synthetic, got %s: it has no record%s (resolver.answer: forward asks for it)",
                       dns_type_format(other, text), addresses ? "" : ", and without A and AAAA the rule's names have no address either");
}

/* An exception that is all within the pool; NULL: none is. */
static const struct cidr *within_pool(const struct config *c, const struct cidr *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct cidr *pool = v[i].net.family == 4 ? &c->synthetic_pool.v4 : &c->synthetic_pool.v6;
        if (pool->net.family && v[i].bits >= pool->bits && cidr_contains(pool, &v[i].net))
            return &v[i];
    }
    return NULL;
}

static void check_exceptions(const struct policy *p, struct diag *diag, const char *key, struct config_at at, const struct cidr *v, size_t n)
{
    const struct cidr *c = within_pool(p->config, v, n);
    char net[46];
    if (c)
        policy_warning(p, diag, at, "%s: expected addresses that somebody has, got %s/%u of resolver.synthetic.pool, which leads nowhere: it opens nothing", key, ip_format(&c->net, net), c->bits);
}

void policy_check_idle(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    check_agents(p, diag);
    check_synthetic(p, diag);
    check_exceptions(p, diag, "origin.allow_addresses", c->synthetic_pool_at, c->allow_addresses, c->nallow_addresses);
    for (size_t i = 0; i < c->nrules; i++) {
        const struct rule *rule = &c->rules[i];
        if (c->ndns && !c->dns_forward && rule->action != RULE_DENY)
            check_types(p, diag, rule);
        check_exceptions(p, diag, "allow_addresses", rule->at, rule->allow_addresses, rule->nallow_addresses);
    }
}
