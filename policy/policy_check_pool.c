/* SPDX-License-Identifier: Apache-2.0
 *
 * What must lie outside resolver.synthetic.pool: every address that is somebody's. One of the pool stands for a name. */
#include "policy/policy_impl.h"

#include <stdio.h>

static void check_ip(const struct policy *p, struct diag *diag, const struct ip *ip, const char *whose)
{
    const struct address_pool *pool = &p->config->synthetic_pool;
    char text[46], net[46];
    if (!ip->family || !address_pool_contains(pool, ip))
        return;
    struct ip plain = ip_unmapped(ip);
    bool v4 = cidr_contains(&pool->v4, &plain);
    const struct cidr *c = v4 ? &pool->v4 : &pool->v6;
    policy_error(p, diag, v4 ? p->config->synthetic_v4_pool_at : p->config->synthetic_v6_pool_at,
                 "resolver.synthetic.pool: expected networks without the address of %s, got %s/%u with %s in it", whose, ip_format(&c->net, net),
                 c->bits, ip_format(ip, text));
}

static void check_listeners(const struct policy *p, struct diag *diag, const char *key, const struct config_listener *v, size_t n)
{
    char whose[120];
    for (size_t i = 0; i < n; i++)
        if (v[i].kind != LISTENER_UNIX) {
            snprintf(whose, sizeof whose, "%s \"%.*s\" on line %u", key, STR_ARG(str_sub(v[i].text, 0, 80)), v[i].at.line);
            check_ip(p, diag, &v[i].ip, whose);
        }
}

/* A sandbox's own address. A claim that is wider than the pool may well include it. */
static void check_sources(const struct policy *p, struct diag *diag)
{
    const struct address_pool *pool = &p->config->synthetic_pool;
    for (size_t i = 0; i < p->config->nagents; i++)
        for (size_t k = 0; k < p->config->agents[i].nclaims; k++) {
            const struct config_claim *claim = &p->config->agents[i].claims[k];
            const struct cidr *net = claim->source.net.family == 4 ? &pool->v4 : &pool->v6;
            if (claim->kind == CLAIM_SOURCE && claim->source.bits >= net->bits)
                check_ip(p, diag, &claim->source.net, "an agent");
        }
}

static void check_rules(const struct policy *p, struct diag *diag)
{
    for (size_t i = 0; i < p->config->nrules; i++)
        for (size_t k = 0; k < p->config->rules[i].nhosts; k++) {
            const struct host_pattern *h = &p->config->rules[i].hosts[k];
            if (h->kind == PATTERN_EXACT && host_is_ip(&h->host) && address_pool_contains(&p->config->synthetic_pool, &h->host.ip))
                policy_warning(p, diag, h->at,
                               "hosts: expected a name or an address that somebody has, got %s of resolver.synthetic.pool, which never matches: the rule "
                               "for the name that it stands for decides",
                               h->host.name);
        }
}

void policy_check_pool(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    if (!address_pool_given(&c->synthetic_pool))
        return;
    if (c->dns_forward)
        policy_error(p, diag, c->synthetic_pool_at,
                     "resolver.synthetic.pool: expected resolver.answer: synthetic with it, got forward, which gives clients the hosts' own addresses");
    check_ip(p, diag, &c->synthetic_v4, "synthetic.v4");
    check_ip(p, diag, &c->synthetic_v6, "synthetic.v6");
    check_listeners(p, diag, "listen.proxy", c->proxy, c->nproxy);
    check_listeners(p, diag, "listen.dns", c->dns, c->ndns);
    for (size_t i = 0; i < c->nupstreams; i++)
        check_ip(p, diag, &c->upstreams[i].ip, "a name server of resolver.upstreams");
    for (size_t i = 0; i < c->nhosts; i++)
        for (size_t k = 0; k < c->hosts[i].nips; k++)
            check_ip(p, diag, &c->hosts[i].ips[k], "a host of resolver.hosts");
    if (c->parent_proxy.given)
        check_ip(p, diag, &c->parent_proxy.host.ip, "origin.parent_proxy");
    check_sources(p, diag);
    check_rules(p, diag);
}
