/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses in the file and the address guard: hosts whose own address is refused under every rule that lets them
 * through. Warnings: nothing passes for it that would not. */
#include "policy/address_known.h"
#include "policy/host_pattern.h"
#include "policy/policy_impl.h"

enum { WORK_MAX = 1000000 }; /* addresses under rules: some tenths of a second, in every role that compiles the file */

/* The pattern by which a rule covers the host, which it does. */
static const struct host_pattern *pattern_of(const struct rule *rule, const struct host *host)
{
    size_t i = 0;
    while (i + 1 < rule->nhosts && !host_pattern_matches(&rule->hosts[i], host))
        i++;
    return &rule->hosts[i];
}

/* of: say it only where this rule is the first that lets the host through; NULL: wherever. */
static void check_host(const struct policy *p, struct diag *diag, const struct host *host, const struct config_host_entry *fixed, const struct rule *of)
{
    const struct rule *rule;
    struct address_fault fault;
    char text[ADDRESS_FAULT_TEXT];
    if (address_known_refused_by_all(p, NULL, host, fixed, 0, 0, &rule, &fault) && (!of || rule == of))
        policy_warning(p, diag, pattern_of(rule, host)->at, "hosts: expected a host whose address may be dialled, got \"%s\", which gets address_denied: %s", host->name,
                       address_fault_put(&fault, rule, text));
}

void policy_check_addresses(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    size_t work = 0; /* a huge file is checked as far as that goes */
    for (size_t i = 0; i < c->nhosts && (work += c->nrules * (c->hosts[i].nips + 1)) < WORK_MAX; i++)
        check_host(p, diag, &c->hosts[i].host, &c->hosts[i], NULL);
    for (size_t i = 0; i < c->nrules; i++)
        for (size_t k = 0; c->rules[i].action != RULE_DENY && k < c->rules[i].nhosts; k++) {
            const struct host_pattern *h = &c->rules[i].hosts[k];
            if (h->kind == PATTERN_EXACT && host_is_ip(&h->host) && !address_pool_contains(&c->synthetic_pool, &h->host.ip) && (work += c->nrules) < WORK_MAX)
                check_host(p, diag, &h->host, NULL, &c->rules[i]);
        }
}
