/* SPDX-License-Identifier: Apache-2.0
 *
 * zone: whose servers see the questions for a name: its registrable domain by the public suffix list. Under a suffix of
 * the list's private section (a cloud's, where anybody can have a name) that is the tenant's, and above it there is the
 * public zone of whoever lets to tenants: who has many tenants there sees what all of them are asked. Pure;
 * what it said lately is kept, in 128 KiB. For one thread. */
#ifndef DNS_ZONE_H
#define DNS_ZONE_H

#include "base/str.h"

/* Parts of the name that was given, from some label on to its end. */
struct zone {
    struct str zone;  /* the registrable domain; the name itself where it is a suffix or a single label */
    struct str above; /* the public zone above a tenant's; STR_NONE: no private suffix is in it */
};

/* name: canonical, at most HOST_MAX bytes. Below no known suffix the last two labels are the zone. */
void zone_of(struct str name, struct zone *ret);
/* The labels of name that stand before `zone`, without the dot between; empty: it is the zone. */
struct str zone_before(struct str name, struct str zone);

#endif
