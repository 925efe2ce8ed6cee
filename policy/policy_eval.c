/* SPDX-License-Identifier: Apache-2.0
 *
 * The decisions. The index yields the rules that name the host, in the order of the file; the first that fits decides.
 * What did not fit tells the nearest miss: port and scheme, then method, then path. Deny rules that do not fit are no
 * misses. A tunnel rule is for CONNECT alone: no request inside one that is intercepted fits it. */
#include "policy/dns_type.h"
#include "policy/path_pattern.h"
#include "policy/policy_impl.h"

bool ports_fit(const uint16_t *ports, size_t n, uint16_t port)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == port)
            return true;
    return false;
}

bool methods_fit(const struct name_list *methods, struct str method)
{
    if (!methods->given)
        return true;
    for (size_t i = 0; i < methods->n; i++)
        if (str_eq(methods->v[i], method))
            return true;
    return false;
}

/* For deny rules: "delete" is another method than "DELETE", but not to every server. */
static bool methods_fit_nocase(const struct name_list *methods, struct str method)
{
    for (size_t i = 0; i < methods->n; i++)
        if (str_eq_nocase(methods->v[i], method))
            return true;
    return !methods->given;
}

bool paths_fit(const struct path_pattern *paths, size_t n, struct str path)
{
    if (!n)
        return true;
    for (size_t i = 0; i < n; i++)
        if (path_pattern_matches(&paths[i], path))
            return true;
    return false;
}

/* For deny rules: the server behind may not tell upper from lower case. */
static bool paths_fit_nocase(const struct path_pattern *paths, size_t n, struct str path)
{
    if (!n)
        return true;
    for (size_t i = 0; i < n; i++)
        if (path_pattern_matches_nocase(&paths[i], path))
            return true;
    return false;
}

/* The rule covers this scheme on this port. Without ports each scheme has its own; a deny rule then covers all. */
static bool endpoint_fits(const struct rule *rule, enum scheme scheme, uint16_t port)
{
    if (scheme == SCHEME_HTTPS ? !rule->https : scheme == SCHEME_HTTP ? !rule->http : true)
        return false;
    if (rule->nports)
        return ports_fit(rule->ports, rule->nports, port);
    return rule->action == RULE_DENY || port == (scheme == SCHEME_HTTPS ? 443 : 80);
}

static bool rule_live(const struct policy *p, const struct rule *rule, const struct agent *agent, int64_t now_us)
{
    return agent_in(p, p->rule_agents[rule->index], agent) && (!rule->expires_us || now_us < rule->expires_us);
}

enum fit rule_fit(const struct policy *p, const struct rule *rule, const struct ask *ask)
{
    if (!rule_live(p, rule, ask->agent, ask->now_us))
        return FIT_NO;
    if (rule->action == RULE_TUNNEL || !endpoint_fits(rule, ask->scheme, ask->port))
        return FIT_PORT;
    bool method = rule->action == RULE_DENY ? methods_fit_nocase(&rule->methods, ask->method)
                                            : methods_fit(&rule->methods, ask->method);
    if (!method)
        return FIT_METHOD;
    bool path = rule->action == RULE_DENY ? paths_fit_nocase(rule->paths, rule->npaths, ask->path)
                                          : paths_fit(rule->paths, rule->npaths, ask->path);
    return path ? FIT_YES : FIT_PATH;
}

static enum end code_of(enum fit miss)
{
    switch (miss) {
    case FIT_PORT:
        return END_PORT_DENIED;
    case FIT_METHOD:
        return END_METHOD_DENIED;
    case FIT_PATH:
        return END_PATH_DENIED;
    case FIT_NO:
    case FIT_YES:
        break;
    }
    return END_HOST_DENIED;
}

static void decide(struct verdict *v, const struct rule *rule)
{
    v->rule = rule;
    v->near = NULL;
    switch (rule->action) {
    case RULE_ALLOW:
        v->kind = VERDICT_ALLOW;
        v->code = END_OK;
        return;
    case RULE_ASK:
        v->kind = VERDICT_ASK;
        v->code = END_APPROVAL_REQUIRED;
        return;
    case RULE_TUNNEL: /* fits no request */
    case RULE_DENY:
        break;
    }
    v->kind = VERDICT_DENY;
    v->code = END_HOST_DENIED;
}

/* mode: observe lets through what a rule, or the lack of one, refuses; who asks must still be known. */
static void observe(const struct policy *p, struct verdict *v)
{
    if (p->config->observe && v->kind != VERDICT_ALLOW)
        v->kind = VERDICT_OBSERVE;
}

void policy_eval(const struct policy *p, const struct ask *ask, struct verdict *ret)
{
    struct verdict v = { .kind = VERDICT_DENY, .code = END_HOST_DENIED };
    struct id_walk walk __attribute__((uninitialized)); /* 2 KiB: id_walk_start sets what is used */
    enum fit best = FIT_NO;
    uint32_t id;
    if (!ask->agent || !ask->host) {
        *ret = (struct verdict) { .kind = VERDICT_DENY, .code = ask->agent ? END_BAD_REQUEST : END_UNKNOWN_AGENT };
        return;
    }
    id_walk_start(&walk, p->rule_index, ask->host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        enum fit fit = rule_fit(p, rule, ask);
        if (fit >= FIT_METHOD) {
            v.by_method |= rule->methods.given;
            v.by_path |= rule->npaths > 0;
        }
        if (fit == FIT_YES) {
            decide(&v, rule);
            break;
        }
        if (fit > best && rule->action != RULE_DENY) {
            best = fit;
            v.code = code_of(fit);
            v.near = rule;
        }
    }
    observe(p, &v);
    *ret = v;
}

/* Before the scheme is seen: can the rule fit, and must it? */
enum chance { CHANCE_NO = 0, CHANCE_MAYBE, CHANCE_YES };
static enum chance connect_chance(const struct rule *rule, uint16_t port)
{
    if (rule->action == RULE_TUNNEL) /* whatever the first bytes show: it is its own business what it does with them */
        return endpoint_fits(rule, SCHEME_HTTPS, port) ? CHANCE_YES : CHANCE_NO;
    bool https = endpoint_fits(rule, SCHEME_HTTPS, port), http = endpoint_fits(rule, SCHEME_HTTP, port);
    if (!https && !http)
        return CHANCE_NO;
    return https && http && !rule->methods.given && !rule->npaths ? CHANCE_YES : CHANCE_MAYBE;
}

void policy_eval_connect(const struct policy *p, const struct agent *agent, const struct host *host, uint16_t port,
                         int64_t now_us, struct verdict *ret)
{
    struct verdict v = { .kind = VERDICT_DENY, .code = END_HOST_DENIED };
    struct id_walk walk __attribute__((uninitialized));
    uint32_t id;
    if (!agent || !host) {
        *ret = (struct verdict) { .kind = VERDICT_DENY, .code = agent ? END_BAD_REQUEST : END_UNKNOWN_AGENT };
        return;
    }
    const struct rule *denies = NULL; /* the first rule that may deny, when nothing after it may allow */
    id_walk_start(&walk, p->rule_index, host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        if (!rule_live(p, rule, agent, now_us))
            continue;
        enum chance chance = connect_chance(rule, port);
        if (chance != CHANCE_NO && rule->action == RULE_TUNNEL) {
            if (!denies) {
                *ret = (struct verdict) { .kind = VERDICT_TUNNEL, .code = END_OK, .rule = rule };
                return;
            }
            continue; /* some requests are denied before it, which only whoever reads them can tell */
        }
        if (chance != CHANCE_NO && rule->action != RULE_DENY) {
            /* ask is decided per request as well, where it can say what it asks for */
            *ret = (struct verdict) { .kind = VERDICT_ALLOW, .code = END_OK, .rule = rule };
            return;
        }
        if (chance != CHANCE_NO && !denies)
            denies = rule;
        if (chance == CHANCE_YES)
            break;
        if (chance == CHANCE_NO && rule->action != RULE_DENY && !v.near) {
            v.near = rule;
            v.code = END_PORT_DENIED;
        }
    }
    if (denies)
        decide(&v, denies);
    observe(p, &v);
    *ret = v;
}

/* A deny rule past which nothing of its hosts goes. */
static bool denies_all(const struct rule *rule)
{
    return rule->action == RULE_DENY && !rule->nports && rule->https && rule->http && !rule->methods.given &&
           !rule->npaths;
}

/* Does one of the rule's own ports lead to it, past the deny rules before it? */
static bool some_port_passes(const struct policy *p, const struct rule *rule, const struct agent *agent,
                             const struct host *host, int64_t now_us)
{
    static const uint16_t both[] = { 443, 80 };
    const uint16_t *ports = rule->nports ? rule->ports : both;
    size_t n = rule->nports ? rule->nports : 2;
    for (size_t i = 0; i < n; i++) {
        struct verdict v;
        policy_eval_connect(p, agent, host, ports[i], now_us, &v);
        if ((v.kind == VERDICT_ALLOW || v.kind == VERDICT_TUNNEL) && v.rule == rule)
            return true;
    }
    return false;
}

void policy_eval_name(const struct policy *p, const struct agent *agent, const struct host *host, int64_t now_us,
                      struct verdict *ret)
{
    struct verdict v = { .kind = VERDICT_DENY, .code = END_HOST_DENIED };
    struct id_walk walk __attribute__((uninitialized));
    const struct rule *asks = NULL, *denies = NULL;
    uint32_t id;
    if (!agent || !host) {
        *ret = (struct verdict) { .kind = VERDICT_DENY, .code = agent ? END_BAD_REQUEST : END_UNKNOWN_AGENT };
        return;
    }
    id_walk_start(&walk, p->rule_index, host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        if (!rule_live(p, rule, agent, now_us))
            continue;
        if (rule->action == RULE_DENY) {
            denies = denies ? denies : rule;
            if (denies_all(rule))
                break;
        } else if (rule->action == RULE_ASK) {
            asks = asks ? asks : rule;
        } else if ((!denies && !asks) || some_port_passes(p, rule, agent, host, now_us)) {
            *ret = (struct verdict) { .kind = VERDICT_ALLOW, .code = END_OK, .rule = rule };
            return;
        }
    }
    if (asks && (!denies || asks->index < denies->index || some_port_passes(p, asks, agent, host, now_us)))
        decide(&v, asks);
    else if (denies)
        decide(&v, denies);
    observe(p, &v);
    *ret = v;
}

bool policy_rule_lists(const struct rule *rule, uint16_t dns_type)
{
    if (!rule->ndns_types)
        return dns_type == DNS_TYPE_A || dns_type == DNS_TYPE_AAAA;
    for (size_t i = 0; i < rule->ndns_types; i++)
        if (rule->dns_types[i] == dns_type)
            return true;
    return false;
}

/* Bytes at the end of the host that one of the rule's patterns writes out. */
static size_t rule_written(const struct rule *rule, const struct host *host)
{
    size_t most = 0;
    for (size_t i = 0; i < rule->nhosts; i++) {
        const struct host_pattern *h = &rule->hosts[i];
        size_t n = h->kind == PATTERN_EXACT ? host->n : h->kind == PATTERN_SUFFIX ? h->host.n : 0;
        if (n > most && host_pattern_matches(h, host))
            most = n;
    }
    return most;
}

/* Does nothing that comes before the rule, and that is no allow rule, keep a connection to this port from it? */
static bool reached_without(const struct policy *p, const struct rule *rule, const struct agent *agent,
                            const struct host *host, uint16_t port, int64_t now_us)
{
    struct id_walk walk __attribute__((uninitialized));
    uint32_t id;
    bool denies = false;
    if (connect_chance(rule, port) == CHANCE_NO)
        return false;
    id_walk_start(&walk, p->rule_index, host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *before = &p->config->rules[id];
        if (before == rule)
            return rule->action == RULE_ALLOW || !denies; /* as at CONNECT: no tunnel where a request may be denied */
        if ((before->action != RULE_DENY && before->action != RULE_ASK) || !rule_live(p, before, agent, now_us))
            continue;
        enum chance chance = connect_chance(before, port);
        if (chance == CHANCE_YES)
            return false;
        denies |= chance == CHANCE_MAYBE && before->action == RULE_DENY;
    }
    return false;
}

static bool reached_on_some_port(const struct policy *p, const struct rule *rule, const struct agent *agent,
                                 const struct host *host, int64_t now_us)
{
    static const uint16_t both[] = { 443, 80 };
    const uint16_t *ports = rule->nports ? rule->ports : both;
    size_t n = rule->nports ? rule->nports : 2;
    for (size_t i = 0; i < n; i++)
        if (reached_without(p, rule, agent, host, ports[i], now_us))
            return true;
    return false;
}

size_t policy_written(const struct policy *p, const struct agent *agent, const struct host *host, uint16_t port,
                      uint16_t dns_type, int64_t now_us)
{
    struct id_walk walk __attribute__((uninitialized));
    size_t most = 0;
    uint32_t id;
    if (!agent || !host)
        return 0;
    id_walk_start(&walk, p->rule_index, host);
    while (most < host->n && id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        if (!rule_live(p, rule, agent, now_us))
            continue;
        if (denies_all(rule))
            break;
        size_t n = rule->action == RULE_ALLOW || rule->action == RULE_TUNNEL ? rule_written(rule, host) : 0;
        if (n <= most || (dns_type && !policy_rule_lists(rule, dns_type)))
            continue;
        if (port ? reached_without(p, rule, agent, host, port, now_us)
                 : reached_on_some_port(p, rule, agent, host, now_us))
            most = n;
    }
    return most;
}

bool policy_tunnels(const struct policy *p, const struct ask *ask, struct verdict *ret)
{
    struct verdict v;
    policy_eval_connect(p, ask->agent, ask->host, ask->port, ask->now_us, &v);
    if (v.kind != VERDICT_TUNNEL)
        return false;
    *ret = v;
    return true;
}

size_t policy_credentials(const struct policy *p, const struct agent *agent, const struct host *host,
                          const struct credential **ret, size_t max)
{
    struct id_walk walk __attribute__((uninitialized));
    size_t n = 0;
    uint32_t id;
    if (!agent || !host)
        return 0;
    id_walk_start(&walk, p->credential_index, host);
    while (id_walk_next(&walk, &id)) {
        if (!agent_in(p, p->credential_agents[id], agent))
            continue;
        if (n < max)
            ret[n] = &p->config->credentials[id];
        n++;
    }
    return n;
}

/* Of the same snapshot: a pointer into another one would index foreign memory. */
static bool credential_is_ours(const struct policy *p, const struct credential *c)
{
    return c && c->index < p->config->ncredentials && c == &p->config->credentials[c->index];
}

enum end policy_credential_scope(const struct policy *p, const struct credential *c, const struct ask *ask)
{
    if (!ask->agent || !ask->host || !credential_is_ours(p, c) ||
        !agent_in(p, p->credential_agents[c->index], ask->agent))
        return END_PLACEHOLDER_WRONG_HOST;
    bool host = false;
    for (size_t i = 0; i < c->nhosts && !host; i++)
        host = host_pattern_matches(&c->hosts[i], ask->host);
    if (!host)
        return END_PLACEHOLDER_WRONG_HOST;
    if (ask->scheme != SCHEME_HTTPS && !(ask->scheme == SCHEME_HTTP && c->allow_plain_http))
        return END_PLACEHOLDER_OUT_OF_SCOPE;
    bool port = c->ports_given ? ports_fit(c->ports, c->nports, ask->port)
                               : ask->port == (ask->scheme == SCHEME_HTTPS ? 443 : 80);
    if (!port || !methods_fit(&c->methods, ask->method) || !paths_fit(c->paths, c->npaths, ask->path))
        return END_PLACEHOLDER_OUT_OF_SCOPE;
    return END_OK;
}

bool policy_credential_tolerates(const struct credential *c, const struct host *host)
{
    for (size_t i = 0; i < c->ntolerate; i++)
        if (host_pattern_matches(&c->tolerate[i], host))
            return true;
    return false;
}
