/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_log: the `dns` events (PRODUCT: Events). Beyond `per_second` of one (agent, registrable domain, verdict) an event
 * is counted, and the second ends with one line that carries the count and its last event as a sample. Names of ever new
 * domains are counted together beyond DNS_LOG_DOMAINS times as many of one (agent, verdict). */
#ifndef DNS_DNS_LOG_H
#define DNS_DNS_LOG_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"
#include "policy/ip.h"

enum { DNS_LOG_DOMAINS = 10 };

struct dns_record {
    struct str agent, client, conn_id, request_id, rule;
    struct str qname, qtype, rcode;
    struct str shown;   /* qname as the log shows it (name_shown.h); empty: as it is */
    struct str verdict; /* allow, deny, observe or ask */
    struct str code;    /* of a deny */
    struct str dns_id;
    struct str message;
    const struct ip *ips;
    size_t n;
    struct str records; /* of a type that is no address, as in a wire_answer */
    uint16_t type;      /* of those */
    uint64_t ms;
};

struct canary;
struct dns_log;
/* sink is borrowed; NULL: nothing is ever taken. */
struct dns_log *dns_log_new(struct loop *l, struct sink *sink, struct err *err);
/* Writes what is still counted. */
void dns_log_free(struct dns_log **d);
void dns_log_configure(struct dns_log *d, uint64_t per_second, uint64_t lag_ms);
/* Whose pieces are masked in what servers said (answers, message), as names are in name_shown.h; NULL, as at first: none. A
 * reference is taken. */
void dns_log_set_canary(struct dns_log *d, struct canary *canary);
/* May a packet leave, as far as the log is concerned? */
bool dns_log_ready(struct dns_log *d);
/* 0: taken or counted. -1: the log has no room, so what this record speaks of must not be used; where it could be counted
 * all the same, a line comes later. */
int dns_log_write(struct dns_log *d, const struct dns_record *r);

#endif
