/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/snapshot.h"

#include "base/log.h"
#include "policy/host_pattern.h"

#include <stdlib.h>

static int by_rule_name(const void *a, const void *b)
{
    const struct rule *const *x = a, *const *y = b;
    return str_cmp((*x)->name, (*y)->name);
}

static int by_host_name(const void *a, const void *b)
{
    const struct config_host_entry *const *x = a, *const *y = b;
    return str_cmp(host_str(&(*x)->host), host_str(&(*y)->host));
}

static void add_server(struct snapshot *s, struct dns_server server)
{
    for (size_t i = 0; i < s->nservers; i++)
        if (dns_server_eq(&s->servers[i], &server))
            return;
    if (s->nservers == DNS_SERVERS_MAX)
        s->servers_skipped++;
    else
        s->servers[s->nservers++] = server;
}

static void add_servers(struct snapshot *s, struct str text)
{
    for (size_t i = 0; i < s->config->nupstreams; i++) {
        const struct config_upstream *u = &s->config->upstreams[i];
        struct resolv_conf conf;
        switch (u->kind) {
        case UPSTREAM_SYSTEM:
            resolv_conf_parse(text, &conf);
            s->servers_skipped += conf.skipped;
            for (size_t k = 0; k < conf.n; k++)
                add_server(s, conf.servers[k]);
            break;
        case UPSTREAM_UDP:
        case UPSTREAM_TCP:
            add_server(s, (struct dns_server) { .ip = u->ip, .port = u->port, .tcp = u->kind == UPSTREAM_TCP });
            break;
        case UPSTREAM_TLS:
            add_server(s, (struct dns_server) { .ip = u->ip, .port = u->port, .tls = &u->name });
            break;
        }
    }
}

struct snapshot *snapshot_new(struct policy *p, struct str resolv_conf)
{
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->refs = 1;
    s->policy = policy_ref(p);
    s->config = policy_config(p);
    s->nrules = s->config->nrules;
    s->nhosts = s->config->nhosts;
    s->rules = calloc(s->nrules + 1, sizeof *s->rules);
    s->hosts = calloc(s->nhosts + 1, sizeof *s->hosts);
    if (!s->rules || !s->hosts) {
        snapshot_unref(&s);
        return NULL;
    }
    for (size_t i = 0; i < s->nrules; i++)
        s->rules[i] = &s->config->rules[i];
    for (size_t i = 0; i < s->nhosts; i++)
        s->hosts[i] = &s->config->hosts[i];
    qsort(s->rules, s->nrules, sizeof *s->rules, by_rule_name);
    qsort(s->hosts, s->nhosts, sizeof *s->hosts, by_host_name);
    add_servers(s, resolv_conf);
    return s;
}

struct snapshot *snapshot_ref(struct snapshot *s)
{
    MUST(s->refs > 0);
    s->refs++;
    return s;
}

void snapshot_unref(struct snapshot **sp)
{
    struct snapshot *s = *sp;
    *sp = NULL;
    if (!s || --s->refs > 0)
        return;
    policy_unref(&s->policy);
    free(s->rules);
    free(s->hosts);
    free(s);
}

const struct rule *snapshot_rule(const struct snapshot *s, struct str name)
{
    const struct rule key = { .name = name }, *k = &key;
    const struct rule **at = bsearch(&k, s->rules, s->nrules, sizeof *s->rules, by_rule_name);
    return at ? *at : NULL;
}

const struct config_host_entry *snapshot_host(const struct snapshot *s, const struct host *h)
{
    const struct config_host_entry key = { .host = *h }, *k = &key;
    const struct config_host_entry **at = bsearch(&k, s->hosts, s->nhosts, sizeof *s->hosts, by_host_name);
    return at ? *at : NULL;
}

static bool agents_fit(const struct rule *r, const struct agent *agent)
{
    for (size_t i = 0; i < r->agents.n; i++)
        if (str_eq(r->agents.v[i], agent->name))
            return true;
    return !r->agents.given;
}

static bool ports_fit(const struct rule *r, uint16_t port)
{
    for (size_t i = 0; i < r->nports; i++)
        if (r->ports[i] == port)
            return true;
    return r->nports == 0 && ((r->https && port == 443) || (r->http && port == 80));
}

bool snapshot_rule_may_match(const struct rule *r, const struct agent *agent, const struct host *host, uint16_t port,
                             int64_t now_us)
{
    if (!agents_fit(r, agent) || !ports_fit(r, port) || (r->expires_us != 0 && now_us >= r->expires_us))
        return false;
    for (size_t i = 0; i < r->nhosts; i++)
        if (host_pattern_matches(&r->hosts[i], host))
            return true;
    return false;
}
