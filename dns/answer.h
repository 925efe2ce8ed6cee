/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: an answer of the DNS port, written into the caller's bytes: the question as it came (letter case too), then
 * whole records as long as they fit, then OPT where the question had one. What does not fit sets TC, so that the client
 * asks again over TCP. One without records is at most the question and an OPT of 11 bytes: nobody can make us send
 * much more than it sent. Pure; no allocation. */
#ifndef DNS_ANSWER_H
#define DNS_ANSWER_H

#include "dns/query.h"
#include "policy/ip.h"

enum {
    ANSWER_TCP_BYTES = 16384 /* the most over TCP: 256 addresses have 7 KiB */,
    ANSWER_NEGATIVE_S = 30 /* how long clients keep "there is none" */
};

struct answer {
    const struct query *q;
    unsigned char *out;
    size_t n, max;
    uint16_t answers, authorities, rcode;
    bool cut;
};

/* out: room for max bytes, and at least QUERY_PLAIN_BYTES. */
void answer_start(struct answer *r, const struct query *q, uint16_t rcode, unsigned char *out, size_t max);
/* One A or AAAA record of the question's name. */
void answer_address(struct answer *r, const struct ip *ip, uint32_t ttl_s);
/* One record of any other type: its data as it stands on the wire, names in it written out. */
void answer_record(struct answer *r, uint16_t type, struct str data, uint32_t ttl_s);
/* A SOA of ours, without which clients keep no negative answer (RFC 2308): of the name itself where it exists, else of
 * what is above it. */
void answer_soa(struct answer *r, uint32_t ttl_s);
/* Its length. */
size_t answer_end(struct answer *r);

#endif
