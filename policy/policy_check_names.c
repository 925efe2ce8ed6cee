/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file says of names and cannot mean: name servers that are ourselves, no rule at all, and settings for names
 * that no rule lets through. Warnings: nothing passes for it that would not. */
#include "policy/policy_impl.h"

static const struct config_at top = { 1, 1 };

static void check_loop(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < c->nupstreams; i++)
        for (size_t k = 0; k < c->ndns; k++)
            if (c->upstreams[i].ip.family && config_listener_hears(&c->dns[k], &c->upstreams[i].ip, c->upstreams[i].port))
                policy_warning(p, diag, c->upstreams[i].at,
                               "resolver.upstreams: expected a name server of somebody else, got our own listen.dns \"%.*s\" on line %u: a question "
                               "would come back to us, and be refused or asked again",
                               STR_ARG(c->dns[k].text), c->dns[k].at.line);
}

/* Does some rule let names through that nobody wrote out? of: only such as this covers, or is covered by; NULL: any. */
static bool lets_through(const struct config *c, const struct host_pattern *of)
{
    for (size_t i = 0; i < c->nrules; i++)
        for (size_t k = 0; c->rules[i].action != RULE_DENY && k < c->rules[i].nhosts; k++) {
            const struct host_pattern *h = &c->rules[i].hosts[k];
            if (h->kind != PATTERN_EXACT && (!of || host_pattern_covers(of, h) || host_pattern_covers(h, of)))
                return true;
        }
    return false;
}

/* Names that a rule or resolver.hosts writes out are neither scored nor charged. */
static void check_findings(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    if (c->observe)
        return; /* there every name may meet them */
    const struct {
        const char *key;
        struct config_at at;
    } given[] = { { "dns_tunnel", c->exfiltration.tunnel_at }, { "agent", c->exfiltration.agent_at } };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].at.line && !lets_through(c, NULL))
            policy_warning(p, diag, given[i].at,
                           "exfiltration.%s: expected a rule with \"*\" or \"*.\" in its hosts (or mode: observe), got none: names that are written out "
                           "are not charged, and it changes nothing",
                           given[i].key);
    for (size_t i = 0; i < c->exfiltration.nexempt; i++)
        if (!lets_through(c, &c->exfiltration.exempt[i]))
            policy_warning(p, diag, c->exfiltration.exempt[i].at,
                           "exfiltration.exempt: expected names that a rule lets through by \"*\" or \"*.\", got some that none does: it changes nothing");
}

void policy_check_names(const struct policy *p, struct diag *diag)
{
    check_loop(p, diag);
    if (p->config->nrules == 0 && !p->config->observe)
        policy_warning(p, diag, top, "rules: expected at least one, got none: every request and every name is refused");
    check_findings(p, diag);
}
