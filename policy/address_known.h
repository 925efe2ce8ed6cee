/* SPDX-License-Identifier: Apache-2.0
 *
 * address_known: what the address guard says of addresses that stand in the file: a host that is one, and those of
 * resolver.hosts. For `check` and `explain`, which look nothing up; who dials asks the guard itself. Pure. */
#ifndef POLICY_ADDRESS_KNOWN_H
#define POLICY_ADDRESS_KNOWN_H

#include "policy/policy.h"

struct address_fault {
    struct ip ip;
    const char *why; /* of the guard, static */
    bool fixed;      /* it is the host's in resolver.hosts */
    bool never;      /* no allow_addresses opens it */
};
/* Is one of the host's addresses refused under this rule (NULL: none)? One spoils all. port 0: whatever listens there. fixed: the host's entry in
 * resolver.hosts, NULL: none. False: none is, or the file has none. */
bool address_known_refused(const struct policy *p, const struct rule *rule, const struct host *host, const struct config_host_entry *fixed, uint16_t port,
                           struct address_fault *ret);
/* Under every rule by which the agent (NULL: some agent) may get to the host, as far as the file tells without method and path?
 * *ret_rule: the first of them; NULL: there is none, and false. port 0: any. */
bool address_known_refused_by_all(const struct policy *p, const struct agent *agent, const struct host *host,
                                  const struct config_host_entry *fixed, uint16_t port, int64_t now_us, const struct rule **ret_rule,
                                  struct address_fault *ret);
/* The host's entry in resolver.hosts; NULL: it has none, or is an address. Looks at each. */
const struct config_host_entry *address_known_entry(const struct config *c, const struct host *host);
/* "127.0.0.2 of resolver.hosts is refused (loopback): …" and what opens it. Returns out. */
enum { ADDRESS_FAULT_TEXT = 320 };
const char *address_fault_put(const struct address_fault *f, const struct rule *rule, char out[ADDRESS_FAULT_TEXT]);

#endif
