/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/address_known.h"

#include "policy/policy_impl.h"

#include <stdio.h>

static bool guarded(const struct policy *p, const struct rule *rule, const struct ip *ip, uint16_t port, const struct ip *own, const char **ret_why)
{
    const struct own_addresses one = { own, &port, own && own->family ? 1 : 0 };
    return address_guard(p, rule, ip, port, &one, ret_why) != END_OK;
}

/* Ourselves and the name servers that are asked, as far as the file has their addresses. */
static bool refused(const struct policy *p, const struct rule *rule, const struct ip *ip, uint16_t port, const char **ret_why)
{
    const struct config *c = p->config;
    if (guarded(p, rule, ip, port, NULL, ret_why))
        return true;
    for (size_t i = 0; port && i < c->nproxy; i++)
        if (c->proxy[i].kind != LISTENER_UNIX && c->proxy[i].port == port && guarded(p, rule, ip, port, &c->proxy[i].ip, ret_why))
            return true;
    for (size_t i = 0; port && i < c->ndns; i++)
        if (c->dns[i].port == port && guarded(p, rule, ip, port, &c->dns[i].ip, ret_why))
            return true;
    for (size_t i = 0; port && i < c->nupstreams; i++)
        if (c->upstreams[i].port == port && guarded(p, rule, ip, port, &c->upstreams[i].ip, ret_why)) {
            *ret_why = "a DNS server of ours";
            return true;
        }
    return false;
}

const struct config_host_entry *address_known_entry(const struct config *c, const struct host *host)
{
    for (size_t i = 0; !host_is_ip(host) && i < c->nhosts; i++)
        if (host_eq(&c->hosts[i].host, host))
            return &c->hosts[i];
    return NULL;
}

bool address_known_refused(const struct policy *p, const struct rule *rule, const struct host *host, const struct config_host_entry *fixed, uint16_t port,
                           struct address_fault *ret)
{
    static struct cidr everywhere[] = { { .net = { .family = 4 } }, { .net = { .family = 6 } } };
    static const struct rule opens = { .action = RULE_ALLOW, .allow_addresses = everywhere, .nallow_addresses = 2 };
    const struct ip *ips = host_is_ip(host) ? &host->ip : fixed ? fixed->ips : NULL;
    size_t n = host_is_ip(host) ? 1 : fixed ? fixed->nips : 0;
    const char *why, *other;
    for (size_t i = 0; i < n; i++)
        if (refused(p, rule, &ips[i], port, &why)) {
            *ret = (struct address_fault) { .ip = ips[i], .why = why, .fixed = fixed != NULL, .never = refused(p, &opens, &ips[i], port, &other) };
            return true;
        }
    return false;
}

/* Nothing after it gets to its hosts. */
static bool ends(const struct rule *rule, const struct agent *agent, uint16_t port)
{
    bool all_ports = !rule->nports || (port && ports_fit(rule->ports, rule->nports, port));
    return rule->action == RULE_DENY && all_ports && rule->https && rule->http && !rule->methods.given && !rule->npaths && (agent || !rule->agents.given) && !rule->expires_us;
}

bool address_known_refused_by_all(const struct policy *p, const struct agent *agent, const struct host *host,
                                  const struct config_host_entry *fixed, uint16_t port, int64_t now_us, const struct rule **ret_rule,
                                  struct address_fault *ret)
{
    struct id_walk walk;
    uint32_t id;
    *ret_rule = NULL;
    id_walk_start(&walk, p->rule_index, host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        struct address_fault fault;
        if ((agent && !agent_in(p, p->rule_agents[id], agent)) || (now_us && rule->expires_us && now_us >= rule->expires_us))
            continue;
        if (ends(rule, agent, port))
            break;
        if (rule->action == RULE_DENY || (port && rule->nports && !ports_fit(rule->ports, rule->nports, port)))
            continue;
        if (!address_known_refused(p, rule, host, fixed, port, &fault))
            return false;
        if (!*ret_rule)
            *ret = fault;
        *ret_rule = *ret_rule ? *ret_rule : rule;
    }
    return *ret_rule != NULL;
}

const char *address_fault_put(const struct address_fault *f, const struct rule *rule, char out[ADDRESS_FAULT_TEXT])
{
    char ip[46];
    int n = snprintf(out, ADDRESS_FAULT_TEXT, "%s%s is refused (%s): ", ip_format(&f->ip, ip), f->fixed ? " of resolver.hosts" : "", f->why);
    char *rest = out + n;
    size_t room = ADDRESS_FAULT_TEXT - (size_t)n;
    if (f->never)
        snprintf(rest, room, "no allow_addresses opens it");
    else if (rule && rule->action != RULE_DENY)
        snprintf(rest, room, "allow_addresses: [\"%s\"] in rule \"%.*s\", or under origin for all rules, opens it", ip, STR_ARG(rule->name));
    else
        snprintf(rest, room, "allow_addresses: [\"%s\"] under origin opens it", ip);
    return out;
}
