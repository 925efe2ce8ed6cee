/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/answer.h"

#include "base/log.h"
#include "dns/wire.h"
#include "policy/dns_type.h"

enum { OPT_BYTES = 11, RECORD_FIXED = 12 /* pointer, type, class, TTL, length */ };

static void put16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
}

static void put32(unsigned char *p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v & 0xffff);
}

void answer_start(struct answer *r, const struct query *q, uint16_t rcode, unsigned char *out, size_t max)
{
    MUST(max >= QUERY_PLAIN_BYTES);
    *r = (struct answer) {
        .q = q, .out = out, .n = QUERY_HEADER, .max = max - (q->edns ? OPT_BYTES : 0), .rcode = rcode
    };
    put16(out, q->id);
    out[2] = (unsigned char)(0x80 | (q->flags[0] & 0x79)); /* QR, the opcode, RD */
    out[3] = (unsigned char)(0x80 | (q->flags[1] & 0x10)); /* RA, CD */
    memset(out + 4, 0, 8);
    out[3] |= (unsigned char)(rcode & 15);
    if (q->question.n) {
        out[5] = 1;
        memcpy(out + r->n, q->question.p, q->question.n);
        r->n += q->question.n;
    }
}

/* The front of a record whose owner is at `owner` of the message; where its data goes, or NULL: no room. */
static unsigned char *record(struct answer *r, size_t owner, uint16_t type, uint32_t ttl_s, size_t data)
{
    if (r->cut || r->max - r->n < RECORD_FIXED + data) {
        r->cut = true;
        return NULL;
    }
    unsigned char *p = r->out + r->n;
    put16(p, (unsigned)(0xc000 | owner));
    put16(p + 2, type);
    put16(p + 4, 1);
    put32(p + 6, ttl_s);
    put16(p + 10, (unsigned)data);
    r->n += RECORD_FIXED + data;
    return p + RECORD_FIXED;
}

void answer_address(struct answer *r, const struct ip *ip, uint32_t ttl_s)
{
    size_t data = ip->family == 4 ? 4 : 16;
    unsigned char *p = record(r, QUERY_HEADER, ip->family == 4 ? DNS_TYPE_A : DNS_TYPE_AAAA, ttl_s, data);
    if (!p)
        return;
    memcpy(p, ip->b, data);
    r->answers++;
}

void answer_record(struct answer *r, uint16_t type, struct str data, uint32_t ttl_s)
{
    unsigned char *p = record(r, QUERY_HEADER, type, ttl_s, data.n);
    if (!p)
        return;
    memcpy(p, data.p, data.n);
    r->answers++;
}

void answer_soa(struct answer *r, uint32_t ttl_s)
{
    /* The names of whoever answers: outgate.invalid, in no zone that exists. */
    static const unsigned char names[] = "\7outgate\7invalid\0\7outgate\7invalid";
    static const uint32_t refresh = 3600, retry = 600, expire = 86400;
    size_t owner = QUERY_HEADER;
    if (r->rcode == WIRE_NXDOMAIN && r->q->question.p[0])
        owner += (size_t)(unsigned char)r->q->question.p[0] + 1;
    unsigned char *p = record(r, owner, DNS_TYPE_SOA, ttl_s, sizeof names + 5 * 4);
    if (!p)
        return;
    memcpy(p, names, sizeof names);
    p += sizeof names;
    put32(p, 1); /* serial: nobody transfers it */
    put32(p + 4, refresh);
    put32(p + 8, retry);
    put32(p + 12, expire);
    put32(p + 16, ttl_s);
    r->authorities++;
}

size_t answer_end(struct answer *r)
{
    put16(r->out + 6, r->answers);
    put16(r->out + 8, r->authorities);
    if (r->cut)
        r->out[2] |= 0x02;
    if (!r->q->edns)
        return r->n;
    unsigned char *p = r->out + r->n;
    memset(p, 0, OPT_BYTES);
    put16(p + 1, DNS_TYPE_OPT);
    put16(p + 3, QUERY_UDP_BYTES);
    p[5] = (unsigned char)(r->rcode >> 4);
    p[7] = r->q->dnssec_ok ? 0x80 : 0; /* RFC 3225 3: copied, without signatures */
    r->out[11] = 1;
    r->n += OPT_BYTES;
    return r->n;
}
