/* SPDX-License-Identifier: Apache-2.0
 *
 * name_approval: how a name that is let through was approved: written out by an operator, or let through by a pattern or
 * by nothing but `mode: observe`; and how much of it an operator wrote. Names that are written out carry nobody's message, so
 * they are not charged. Pure. */
#ifndef DNS_NAME_APPROVAL_H
#define DNS_NAME_APPROVAL_H

#include "dns/detector.h"
#include "policy/policy.h"

/* rule: that lets it through; NULL: none. host: NULL: it is not let through, or can be no host name. fixed: resolver.hosts
 * has it. ret_written: bytes at its end that an operator wrote. */
enum detector_approval name_approval_of(const struct config *c, const struct rule *rule, const struct host *host, bool fixed,
                                        size_t *ret_written);
/* As that; and where a pattern of the rule lets the name through, other rules of the policy are asked whether an operator
 * wrote it (policy_written, whose port and dns_type these are). */
enum detector_approval name_approval_by_all(const struct policy *p, const struct agent *agent, const struct rule *rule,
                                            const struct host *host, bool fixed, uint16_t port, uint16_t dns_type,
                                            int64_t now_us, size_t *ret_written);
/* exfiltration.exempt covers it. */
bool name_approval_exempt(const struct config *c, const struct host *host);

#endif
