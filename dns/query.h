/* SPDX-License-Identifier: Apache-2.0
 *
 * query: a message that came to the DNS port, read strictly: one question (RFC 1035 section 4), at most one OPT record
 * (RFC 6891), nothing else and nothing behind it. Pure: bytes in, value out, nothing allocated. What cannot be answered
 * in its own terms is told apart here: an answer is never answered (RFC 1035 has no such thing, and two servers would
 * talk for ever), and what is malformed or asks for something that this port never does gets its code. Options of the
 * client (subnet, cookie, padding) are checked for their lengths and read no further. */
#ifndef DNS_QUERY_H
#define DNS_QUERY_H

#include "base/str.h"

enum {
    QUERY_HEADER = 12,
    QUERY_BYTES_MAX = 4096, /* a longer message is none: the longest question with padding has some 300 */
    QUERY_NAME_MAX = 255,   /* bytes of a name on the wire */
    QUERY_TEXT_MAX = 4 * QUERY_NAME_MAX,
    QUERY_PLAIN_BYTES = 512, /* of an answer over UDP to who says nothing (RFC 1035 4.2.1) */
    QUERY_UDP_BYTES = 1232,  /* the most over UDP, whatever the client takes: passes every link in one piece */
};

enum query_result {
    QUERY_IGNORE = 0, /* no header, or an answer: say nothing */
    QUERY_REFUSE,     /* answer with `rcode` */
    QUERY_ASK,        /* a question of class IN */
};

struct query {
    uint16_t id;
    unsigned char flags[2];
    uint16_t rcode; /* with QUERY_REFUSE: FORMERR, NOTIMP, REFUSED or BADVERS */
    struct str
        question; /* name, type and class as they came (letter case too): borrowed; empty where it cannot be read */
    uint16_t type;
    uint16_t udp_bytes; /* what the client takes over UDP: 512 to 1232 */
    bool edns, dnssec_ok;
    bool odd;   /* a label has a byte other than letters, digits, `-` and `_` */
    uint16_t n; /* of the name */
    char name[QUERY_TEXT_MAX +
              1]; /* lower case, dots between labels; odd bytes as \DDD (RFC 1035 5.1). "" is the root */
};
enum query_result query_parse(struct str message, struct query *ret);

static inline struct str query_name(const struct query *q)
{
    return str_of(q->name, q->n);
}

#endif
