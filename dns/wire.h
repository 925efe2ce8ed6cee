/* SPDX-License-Identifier: Apache-2.0
 *
 * wire: the DNS message format (RFC 1035 section 4), as far as a look-up of ours needs it: one question of class IN,
 * written with random letter case (draft-vixie-dnsext-dns0x20), and what of an answer we are willing to believe. Pure:
 * bytes in, value out. No EDNS in the clear: an address answer of over 512 bytes comes over TCP, so no answer is ever
 * fragmented (fragments are how answers are forged), and nothing of ours (client subnet, cookies) rides along. Over TLS
 * a question has an OPT record with padding and nothing else.
 *
 * Believed: the answer section only, and in it only the chain that starts at the question's name (RFC 2181 5.4.1:
 * additional data and answers about other names are ignored), at most WIRE_CHAIN_MAX aliases. From the authority
 * section one thing is read: how long "there is none" may be kept (RFC 2308). */
#ifndef DNS_WIRE_H
#define DNS_WIRE_H

#include "base/err.h"
#include "policy/ip.h"

enum {
    WIRE_QUERY_MAX = 12 + 255 + 4,
    WIRE_MESSAGE_MAX = 65535,
    WIRE_ADDRESSES_MAX = 256, /* more in one answer: refused, for an address we do not keep is one we do not vet */
    WIRE_RECORDS_MAX = 512,
    WIRE_DATA_MAX = 8192, /* of records other than addresses in one answer */
    WIRE_CHAIN_MAX = 8,
    WIRE_CHAIN_TEXT = 600,
};
enum wire_type { WIRE_A = 1, WIRE_CNAME = 5, WIRE_SOA = 6, WIRE_AAAA = 28 };
enum wire_rcode {
    WIRE_NOERROR = 0,
    WIRE_FORMERR = 1,
    WIRE_SERVFAIL = 2,
    WIRE_NXDOMAIN = 3,
    WIRE_NOTIMP = 4,
    WIRE_REFUSED = 5,
    WIRE_BADVERS = 16, /* RFC 6891: four bits in the header, eight in OPT */
};

struct wire_query {
    unsigned char bytes[WIRE_QUERY_MAX];
    size_t n;
    uint16_t type;
};
/* `name`: canonical, of at most 253 bytes of LDH and underscore. `chance`: 34 random bytes: 2 for the id, the rest
 * decide the case of each letter. 0, or -1 (not such a name). */
enum { WIRE_CHANCE = 34 };
int wire_query_make(struct wire_query *ret, struct str name, uint16_t type, const unsigned char chance[WIRE_CHANCE]);

/* The question as it goes over TLS: filled up to a multiple of 128 bytes (RFC 7830, RFC 8467 4.1), so that a name's
 * length does not show. Returns the size. */
enum { WIRE_PADDED_MAX = 384 };
size_t wire_query_pad(const struct wire_query *q, unsigned char out[WIRE_PADDED_MAX]);

/* Is this packet an answer to exactly this question: id, one question, and that bit for bit, letter case too? */
bool wire_echoes(const struct wire_query *q, struct str packet);
bool wire_truncated(struct str packet);

struct wire_answer {
    uint16_t rcode;
    bool soa;         /* no addresses, and a SOA says so (else it may be a lame server) */
    uint32_t ttl_s;   /* the least on the way; of a negative answer min(SOA's TTL, its MINIMUM), 0 without SOA */
    unsigned aliases; /* CNAMEs followed */
    char chain[WIRE_CHAIN_TEXT]; /* them in their order, printable, a comma between; cut to fit; "" none */
    size_t n;
    struct ip ips[WIRE_ADDRESSES_MAX]; /* each once, in the order they came */
    size_t records; /* of a type that is no address: u16 length and data each, names in it written out in lower case */
    size_t data_n;
    unsigned char data[WIRE_DATA_MAX];
};
/* For a packet that wire_echoes. 0; -1: malformed, a chain that is too long or loops, a name with two meanings, too
 * many addresses. */
int wire_answer_parse(const struct wire_query *q, struct str packet, struct wire_answer *ret, struct err *err);

/* "NOERROR", "NXDOMAIN", …; "RCODE" for the ones without a name here. */
const char *wire_rcode_name(uint16_t rcode);

#endif
