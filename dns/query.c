/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/query.h"

#include "dns/wire.h"
#include "policy/dns_type.h"

enum { OPCODE = 0x78, RESPONSE = 0x80, OPT_FIXED = 11, CLASS_IN = 1, META_FIRST = 249, META_LAST = 254 };

static uint16_t peek16(const unsigned char *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static bool host_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || ascii_digit((char)c) || c == '-' || c == '_';
}

static void put_byte(struct query *q, unsigned char c)
{
    c = (unsigned char)ascii_lower((char)c);
    if (host_byte(c)) {
        q->name[q->n++] = (char)c;
        return;
    }
    q->odd = true;
    q->name[q->n++] = '\\';
    q->name[q->n++] = (char)('0' + c / 100);
    q->name[q->n++] = (char)('0' + c / 10 % 10);
    q->name[q->n++] = (char)('0' + c % 10);
}

/* The name of the question. Where it ends, or 0: malformed. A pointer is malformed too: there is nothing in front of
 * the first name that it could point to. */
static size_t read_name(struct query *q, const unsigned char *p, size_t n)
{
    size_t at = QUERY_HEADER;
    while (at < n && p[at]) {
        size_t label = p[at++];
        if (label > 63 || n - at < label || at + label - QUERY_HEADER >= QUERY_NAME_MAX)
            return 0;
        if (q->n)
            q->name[q->n++] = '.';
        for (size_t end = at + label; at < end; at++)
            put_byte(q, p[at]);
    }
    q->name[q->n] = '\0';
    return at < n ? at + 1 : 0;
}

/* The OPT record that must fill the rest. */
static bool read_opt(struct query *q, const unsigned char *p, size_t n, unsigned *ret_version)
{
    if (n < OPT_FIXED || p[0] != 0 || peek16(p + 1) != DNS_TYPE_OPT || (size_t)peek16(p + 9) != n - OPT_FIXED)
        return false;
    uint16_t bytes = peek16(p + 3);
    q->udp_bytes = bytes < QUERY_PLAIN_BYTES ? QUERY_PLAIN_BYTES : bytes > QUERY_UDP_BYTES ? QUERY_UDP_BYTES : bytes;
    q->dnssec_ok = (p[7] & 0x80) != 0;
    *ret_version = p[6];
    for (size_t at = OPT_FIXED; at < n;) {
        if (n - at < 4 || n - at - 4 < peek16(p + at + 2))
            return false;
        at += (size_t)4 + peek16(p + at + 2);
    }
    q->edns = true;
    return true;
}

static enum query_result refuse(struct query *q, uint16_t rcode)
{
    q->rcode = rcode;
    return QUERY_REFUSE;
}

enum query_result query_parse(struct str message, struct query *ret)
{
    const unsigned char *p = (const unsigned char *)message.p;
    struct query *q = ret;
    size_t n = message.n;
    if (n < QUERY_HEADER || p[2] & RESPONSE)
        return QUERY_IGNORE;
    memset(q, 0, offsetof(struct query, name));
    q->name[0] = '\0';
    q->id = peek16(p);
    q->flags[0] = p[2];
    q->flags[1] = p[3];
    q->udp_bytes = QUERY_PLAIN_BYTES;
    if (p[2] & OPCODE)
        return refuse(q, WIRE_NOTIMP);
    unsigned additional = peek16(p + 10);
    if (n > QUERY_BYTES_MAX || peek16(p + 4) != 1 || peek16(p + 6) || peek16(p + 8) || additional > 1)
        return refuse(q, WIRE_FORMERR);
    size_t end = read_name(q, p, n);
    if (!end || n - end < 4) {
        q->n = 0;
        q->name[0] = '\0';
        return refuse(q, WIRE_FORMERR);
    }
    q->type = peek16(p + end);
    uint16_t class = peek16(p + end + 2);
    q->question = str_of(p + QUERY_HEADER, end + 4 - QUERY_HEADER);
    unsigned version = 0;
    if (additional ? !read_opt(q, p + end + 4, n - end - 4, &version) : n != end + 4)
        return refuse(q, WIRE_FORMERR);
    if (version)
        return refuse(q, WIRE_BADVERS);
    bool meta = q->type == 0 || q->type == DNS_TYPE_OPT || (q->type >= META_FIRST && q->type <= META_LAST);
    if (class != CLASS_IN || meta) /* transfers, keys, signatures: not asked here */
        return refuse(q, WIRE_REFUSED);
    return QUERY_ASK;
}
