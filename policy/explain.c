/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate explain`: the same functions that decide, asked one by one, with the line of the file that made each step.
 */
#include "base/buf.h"
#include "policy/policy_impl.h"

static void put_at(struct buf *out, const struct policy *p, struct config_at at)
{
    buf_putf(out, " (%.*s:%u:%u)\n", STR_ARG(p->config->file), at.line, at.col);
}

/* Outside bytes, printable. */
static void put_text(struct buf *out, struct str s)
{
    char shown[600];
    buf_putf(out, "%s", str_escape(s, shown, sizeof shown));
}

static const char *scheme_name(enum scheme s)
{
    return s == SCHEME_HTTPS ? "https" : "http";
}

static const char *tunnel_words(const struct rule *rule, const struct ask *ask)
{
    if (rule->nports ? !ports_fit(rule->ports, rule->nports, ask->port) : ask->port != 443)
        return "no: other ports";
    return ask->scheme == SCHEME_HTTP ? "no: a tunnel begins with CONNECT or SOCKS5, and http with neither" : "no: a rule before it depends on the request";
}

static const char *fit_words(enum fit fit, const struct rule *rule, const struct ask *ask, bool expired)
{
    if (rule->action == RULE_TUNNEL && fit == FIT_PORT)
        return tunnel_words(rule, ask);
    switch (fit) {
    case FIT_NO:
        return expired ? "no: it has expired" : "no: it is for other agents";
    case FIT_PORT:
        return "no: other ports or schemes";
    case FIT_METHOD:
        return "no: other methods";
    case FIT_PATH:
        return "no: other paths";
    case FIT_YES:
        break;
    }
    return "yes";
}

static const char *action_name(enum rule_action a)
{
    switch (a) {
    case RULE_ALLOW:
        return "allow";
    case RULE_ASK:
        return "ask";
    case RULE_TUNNEL:
        return "tunnel";
    case RULE_DENY:
        break;
    }
    return "deny";
}

static bool is_virtual(const struct policy *p, const struct host *host)
{
    return host_is_ip(host) && address_pool_contains(&p->config->synthetic_pool, &host->ip);
}

static void put_request(const struct policy *p, const struct ask *ask, struct buf *out)
{
    buf_putf(out, "agent %.*s", STR_ARG(ask->agent->name));
    put_at(out, p, ask->agent->at);
    buf_putf(out, "request ");
    put_text(out, ask->method);
    buf_putf(out, " ");
    if (ask->scheme != SCHEME_NONE)
        buf_putf(out, "%s ", scheme_name(ask->scheme));
    authority_put(out, ask->host, ask->port, 0);
    if (ask->path.n)
        buf_putf(out, " ");
    put_text(out, ask->path);
    buf_putf(out, "\n");
    if (is_virtual(p, ask->host)) {
        buf_putf(out, "host: a virtual address, which the server takes for the name that the agent was given it for: ask for that name");
        put_at(out, p, p->config->synthetic_pool_at);
    }
}

/* tunnel: the rule that takes the connection at CONNECT; NULL: none does. */
static void put_rules(const struct policy *p, const struct ask *ask, const struct rule *tunnel, struct buf *out)
{
    struct id_walk walk;
    uint32_t id;
    size_t seen = 0;
    id_walk_start(&walk, p->rule_index, ask->host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        enum fit fit = rule_fit(p, rule, ask);
        bool expired = rule->expires_us && ask->now_us >= rule->expires_us;
        seen++;
        const char *words = rule == tunnel ? "yes" : fit_words(fit, rule, ask, expired);
        buf_putf(out, "rule %.*s [%s]: %s", STR_ARG(rule->name), action_name(rule->action), words);
        put_at(out, p, rule->at);
        if (fit == FIT_YES || rule == tunnel)
            break;
    }
    if (!seen)
        buf_putf(out, "rules: none of %zu names this host\n", p->config->nrules);
}

static void put_verdict(const struct policy *p, const struct ask *ask, const struct verdict *at_connect, struct buf *out)
{
    static const char *const names[] = {
        [VERDICT_DENY] = "deny",       [VERDICT_ALLOW] = "allow",   [VERDICT_ASK] = "ask",
        [VERDICT_OBSERVE] = "observe", [VERDICT_TUNNEL] = "tunnel",
    };
    struct verdict v;
    if (at_connect)
        v = *at_connect;
    else
        policy_eval(p, ask, &v);
    buf_putf(out, "the rules say %s", names[v.kind]);
    if (v.code != END_OK)
        buf_putf(out, " %s: %s", end_code(v.code), end_sentence(v.code));
    if (v.rule) {
        buf_putf(out, ", by rule %.*s", STR_ARG(v.rule->name));
        put_at(out, p, v.rule->at);
    } else if (v.near) {
        buf_putf(out, ", nearest is rule %.*s", STR_ARG(v.near->name));
        put_at(out, p, v.near->at);
    } else {
        buf_putf(out, "\n");
    }
}

/* Whoever allows a tunnel is to see how far it reaches. */
static void put_tunnel(const struct rule *rule, const struct ask *ask, struct buf *out)
{
    buf_putf(out, "tunnel: ");
    if (rule->tls_none)
        buf_putf(out, "whatever the client says");
    else
        buf_putf(out, "TLS whose server name is %s, or absent%s,", ask->host->name, rule->ech_passes ? ", or hidden by ECH" : "");
    buf_putf(out, " goes through unread to ");
    authority_put(out, ask->host, ask->port, 0);
    buf_putf(out, "\ntunnel: the rule covers");
    for (size_t i = 0; i < rule->nhosts; i++) {
        const struct host_pattern *h = &rule->hosts[i];
        buf_putf(out, "%s%s%s", i ? ", " : " ", h->kind == PATTERN_EXACT ? "" : h->kind == PATTERN_ANY ? "*" : "*.", h->kind == PATTERN_ANY ? "" : h->host.name);
    }
    buf_putf(out, " on port%s", rule->nports > 1 ? "s" : "");
    for (size_t i = 0; i < rule->nports; i++)
        buf_putf(out, "%s%u", i ? ", " : " ", rule->ports[i]);
    buf_putf(out, "%s\ncredentials: none can be swapped, because a tunnel is not read\n", rule->nports ? "" : " 443");
}

static void put_credentials(const struct policy *p, const struct ask *ask, struct buf *out)
{
    const struct credential *found[64];
    size_t n = policy_credentials(p, ask->agent, ask->host, found, sizeof found / sizeof *found);
    for (size_t i = 0; i < n && i < sizeof found / sizeof *found; i++) {
        enum end scope = policy_credential_scope(p, found[i], ask);
        buf_putf(out, "credential %.*s: %s", STR_ARG(found[i]->name),
                 ask->scheme == SCHEME_NONE ? "swapped in requests in its scope, where its placeholder stands in one of its slots"
                 : scope == END_OK          ? "swapped where its placeholder stands in one of its slots"
                                            : end_code(scope));
        put_at(out, p, found[i]->at);
    }
    if (!n)
        buf_putf(out, "credentials: none for this agent and host\n");
}

const struct host_pattern *policy_suffix_of(const struct policy *p, const struct agent *agent, const struct host *host, const struct rule **ret_rule)
{
    for (size_t i = 0; i < p->config->nrules; i++) {
        const struct rule *rule = &p->config->rules[i];
        for (size_t k = 0; rule->action != RULE_DENY && agent_in(p, p->rule_agents[i], agent) && k < rule->nhosts; k++)
            if (rule->hosts[k].kind == PATTERN_SUFFIX && host_eq(&rule->hosts[k].host, host)) {
                *ret_rule = rule;
                return &rule->hosts[k];
            }
    }
    return NULL;
}

int policy_explain(const struct policy *p, const struct ask *ask, struct buf *out)
{
    if (!ask->agent || !ask->host)
        return -1;
    put_request(p, ask, out);
    if (is_virtual(p, ask->host)) /* nothing is decided by the address */
        return out->failed ? -1 : 0;
    struct verdict v = { 0 };
    bool tunnel = ask->scheme != SCHEME_HTTP && policy_tunnels(p, ask, &v); /* http comes in absolute form, without a CONNECT */
    bool connect = str_eq(ask->method, STR("CONNECT")) && !ask->path.n;
    if (connect && !tunnel)
        policy_eval_connect(p, ask->agent, ask->host, ask->port, ask->now_us, &v);
    if (connect && !tunnel && v.kind == VERDICT_ALLOW)
        buf_putf(out, "connect: intercepted; rules decide about each request in it, with its method and path\n");
    else
        put_rules(p, ask, tunnel ? v.rule : NULL, out);
    if (tunnel) {
        put_tunnel(v.rule, ask, out);
    } else {
        put_verdict(p, ask, connect ? &v : NULL, out);
        put_credentials(p, ask, out);
    }
    return out->failed ? -1 : 0;
}
