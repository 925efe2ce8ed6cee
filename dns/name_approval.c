/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_approval.h"

#include "policy/host_pattern.h"

/* Bytes at the end of the name that the pattern writes out. */
static size_t written_by(const struct host_pattern *p, const struct host *host)
{
    if (!host_pattern_matches(p, host))
        return 0;
    return p->kind == PATTERN_EXACT ? host->n : p->kind == PATTERN_SUFFIX ? p->host.n : 0;
}

static size_t written_by_any(const struct host_pattern *v, size_t n, const struct host *host)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t written = written_by(&v[i], host);
        most = written > most ? written : most;
    }
    return most;
}

bool name_approval_exempt(const struct config *c, const struct host *host)
{
    for (size_t i = 0; i < c->exfiltration.nexempt; i++)
        if (host_pattern_matches(&c->exfiltration.exempt[i], host))
            return true;
    return false;
}

enum detector_approval name_approval_of(const struct config *c, const struct rule *rule, const struct host *host, bool fixed,
                                        size_t *ret_written)
{
    *ret_written = 0;
    if (!host)
        return DETECTOR_UNAPPROVED;
    size_t exempted = written_by_any(c->exfiltration.exempt, c->exfiltration.nexempt, host);
    size_t ruled = rule ? written_by_any(rule->hosts, rule->nhosts, host) : 0;
    *ret_written = exempted > ruled ? exempted : ruled;
    if (fixed)
        *ret_written = host->n;
    if (name_approval_exempt(c, host) || *ret_written == host->n)
        return DETECTOR_EXACT;
    return rule ? DETECTOR_WILDCARD : DETECTOR_UNAPPROVED;
}

enum detector_approval name_approval_by_all(const struct policy *p, const struct agent *agent, const struct rule *rule,
                                            const struct host *host, bool fixed, uint16_t port, uint16_t dns_type,
                                            int64_t now_us, size_t *ret_written)
{
    enum detector_approval approval = name_approval_of(policy_config(p), rule, host, fixed, ret_written);
    if (approval != DETECTOR_WILDCARD)
        return approval;
    size_t n = policy_written(p, agent, host, port, dns_type, now_us);
    if (n > *ret_written)
        *ret_written = n;
    return n == host->n ? DETECTOR_EXACT : DETECTOR_WILDCARD;
}
