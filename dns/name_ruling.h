/* SPDX-License-Identifier: Apache-2.0
 *
 * name_ruling: what policy makes of one question of the DNS port, before anything else happens to its name. Rules of
 * the file come first; then special names, which nobody out there owns; a name that passes both may get an answer. What
 * a name would carry out is not judged here but after, by dns/name_guard.h: dns/responder.c asks it of questions,
 * dns/dial_job.c of dials. Pure.
 *
 * Refused is refused for every record type, so that no type tells more than another. Two kinds of names are said not to
 * exist instead, because some clients (musl) that get to them by their own doing stop at anything else: what search
 * lists append (cluster.local, .internal, .lan), and addresses asked backwards (.arpa). A name that a rule or
 * resolver.hosts writes out is none of those. */
#ifndef DNS_NAME_RULING_H
#define DNS_NAME_RULING_H

#include "dns/query.h"
#include "policy/policy.h"

struct snapshot; /* dns/snapshot.h */

enum name_fate {
    NAME_REFUSED = 0,
    NAME_ABSENT,  /* NXDOMAIN */
    NAME_NO_DATA, /* it exists, without records of this type */
    NAME_ADDRESS, /* answered with addresses, by resolver.answer */
    NAME_RECORDS, /* answered with what upstream has of another type that the rule lists */
};
struct name_ruling {
    enum name_fate fate;
    enum verdict_kind verdict;             /* for the event */
    enum end code;                         /* of a deny or ask */
    const struct rule *rule;               /* that decided; NULL: none */
    const struct config_host_entry *fixed; /* of resolver.hosts; NULL: none */
    const char *why;                       /* static words, or NULL */
    struct host host;                      /* the name, where it can be one */
};
/* q: of a QUERY_ASK. */
void name_rule(const struct snapshot *s, const struct agent *agent, const struct query *q, int64_t now_us,
               struct name_ruling *ret);

#endif
