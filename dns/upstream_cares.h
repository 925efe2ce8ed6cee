/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_cares: carries questions to servers that are asked in the clear, over UDP or TCP, by c-ares: retries, the
 * next server of a step, TCP for a cut answer. One lane carries one question at a time. Opens no file after
 * upstream_cares_new. */
#ifndef DNS_UPSTREAM_CARES_H
#define DNS_UPSTREAM_CARES_H

#include "dns/upstream_leg.h"

struct upstream_cares;

/* Lanes for questions over UDP (and TCP after a cut answer), and for ones over TCP only. try_ms: as of upstream_new. */
struct upstream_cares *upstream_cares_new(struct loop *l, size_t udp_lanes, size_t tcp_lanes, unsigned try_ms,
                                          struct err *err);
/* No leg may be held. */
void upstream_cares_free(struct upstream_cares **c);
/* The servers of a step (below DNS_SERVERS_MAX), all over UDP or all over TCP, for legs that start from now on. */
void upstream_cares_set(struct upstream_cares *c, size_t step, const struct dns_server *v, size_t n);
/* The caller sees to it that a lane of the step's kind is free. */
void upstream_cares_start(struct upstream_cares *c, struct upstream_leg *leg);
/* Adds the servers that the leg under way was at to its blame, and tells the operator. */
void upstream_cares_blame(struct upstream_leg *leg);
/* Frees the leg's lane, if it has one; an end that is not there yet does not come. */
void upstream_cares_leave(struct upstream_leg *leg);
uint64_t upstream_cares_strays(const struct upstream_cares *c);

#endif
