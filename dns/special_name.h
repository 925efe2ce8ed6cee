/* SPDX-License-Identifier: Apache-2.0
 *
 * special_name: names that must not be asked of a DNS server because no server out there owns them: single labels,
 * special-use names (RFC 6761 and its registry: localhost, local, invalid, onion, test, example, arpa, alt), internal,
 * and names under a top-level domain that does not exist. A `*` rule does not reach them; an operator who writes one in
 * a rule or in resolver.hosts gets it. Pure. */
#ifndef DNS_SPECIAL_NAME_H
#define DNS_SPECIAL_NAME_H

#include "base/str.h"
#include "policy/config.h"

enum special_kind { SPECIAL_NO = 0, SPECIAL_USE, SPECIAL_UNDELEGATED };
/* name: canonical. *ret_why: static words. */
enum special_kind special_name(struct str name, const char **ret_why);
/* Of a special name: does a server that is asked for it say that it does not exist (RFC 6303, 6761, 6762, 7686, 8375)? Not of
 * single labels, .test and .example, which somebody here may have meant. */
bool special_name_absent(struct str name);
/* Does the rule name this host itself, exactly or by a suffix (and not by "*")? NULL: no. */
bool special_name_written(const struct rule *rule, const struct host *host);

#endif
