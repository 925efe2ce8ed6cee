/* SPDX-License-Identifier: Apache-2.0
 *
 * host_pattern: what a rule or credential says about hosts: an exact name or address, "*." and a suffix (one label or
 * more in front, never the bare name), or "*" (any name, never an address). Matching is by whole labels: "*.x.test"
 * does not match "evilx.test". */
#ifndef POLICY_HOST_PATTERN_H
#define POLICY_HOST_PATTERN_H

#include "policy/config.h"

/* 0 or -1 with the reason. *ret_converted: a U-label was turned into an A-label. `at` is left for the caller. */
int host_pattern_parse(struct str text, struct host_pattern *ret, bool *ret_converted, struct err *err);
bool host_pattern_matches(const struct host_pattern *p, const struct host *h);
/* Every host that b matches is matched by a. */
bool host_pattern_covers(const struct host_pattern *a, const struct host_pattern *b);

#endif
