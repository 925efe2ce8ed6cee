/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot: one policy as the resolver uses it: rules by name, fixed hosts by name, the upstream servers. Immutable,
 * reference-counted: a dial ends under the snapshot it began with. */
#ifndef DNS_SNAPSHOT_H
#define DNS_SNAPSHOT_H

#include "dns/resolv_conf.h"
#include "policy/policy.h"

struct snapshot {
    unsigned refs;
    struct policy *policy;
    const struct config *config;
    const struct rule **rules; /* by name */
    const struct config_host_entry **hosts;
    size_t nrules, nhosts;
    struct dns_server servers[DNS_SERVERS_MAX];
    size_t nservers;
    unsigned servers_skipped;
};

/* Takes a reference of its own to p. NULL when out of memory. */
struct snapshot *snapshot_new(struct policy *p, struct str resolv_conf);
struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot **s);
const struct rule *snapshot_rule(const struct snapshot *s, struct str name);
const struct config_host_entry *snapshot_host(const struct snapshot *s, const struct host *h);

/* Could this rule be the one that lets (agent, host, port) through at that time, as far as can be told without scheme,
 * method and path? Its action is not asked. */
bool snapshot_rule_may_match(const struct rule *r, const struct agent *agent, const struct host *host, uint16_t port,
                             int64_t now_us);

#endif
