/* SPDX-License-Identifier: Apache-2.0
 *
 * Every read goes through struct cursor, which knows its end. Compression pointers may only point backwards, strictly
 * below the place they were reached from last (RFC 1035 4.1.4 says "prior occurrence"), so that no name loops. Names
 * are compared as wire bytes in lower case: no text form, so no escaping to get wrong. */
#include "dns/wire.h"

#include "policy/dns_type.h"

#include <assert.h>
#include <string.h>

enum { HEADER = 12, NAME_MAX_WIRE = 255 };

struct cursor {
    const unsigned char *base;
    size_t n, at;
    bool bad;
};

struct wire_name {
    unsigned char b[NAME_MAX_WIRE]; /* lower case, with the root's zero */
    size_t n;
};

static uint16_t peek16(const unsigned char *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint16_t get16(struct cursor *c)
{
    if (c->n - c->at < 2) {
        c->bad = true;
        return 0;
    }
    uint16_t v = peek16(c->base + c->at);
    c->at += 2;
    return v;
}

static uint32_t get32(struct cursor *c)
{
    uint32_t high = get16(c);
    return high << 16 | get16(c);
}

/* Reads a name, following compression; the cursor ends behind its first pointer or root. */
static void get_name(struct cursor *c, struct wire_name *ret)
{
    size_t at = c->at, floor = c->at;
    bool jumped = false;
    ret->n = 0;
    for (;;) {
        if (at >= c->n)
            goto bad;
        unsigned char label = c->base[at];
        if ((label & 0xc0) == 0xc0) {
            if (c->n - at < 2)
                goto bad;
            size_t to = (size_t)(label & 0x3f) << 8 | c->base[at + 1];
            if (!jumped)
                c->at = at + 2;
            jumped = true;
            if (to >= floor || to < HEADER)
                goto bad;
            at = floor = to;
            continue;
        }
        if (label & 0xc0 || c->n - at < (size_t)label + 1 || ret->n + label + 1 > NAME_MAX_WIRE)
            goto bad;
        ret->b[ret->n++] = label;
        for (size_t i = 1; i <= label; i++)
            ret->b[ret->n++] = (unsigned char)ascii_lower((char)c->base[at + i]);
        at += (size_t)label + 1;
        if (label == 0)
            break;
    }
    if (!jumped)
        c->at = at;
    return;
bad:
    c->bad = true;
}

static bool name_eq(const struct wire_name *a, const struct wire_name *b)
{
    return a->n == b->n && memcmp(a->b, b->b, a->n) == 0;
}

/* For the event only: dots between labels, anything unusual as '?'. Appended behind what is there, as far as it fits. */
static void chain_print(const struct wire_name *name, char out[WIRE_CHAIN_TEXT])
{
    size_t o = strlen(out);
    bool first = true;
    if (o > 0 && o < WIRE_CHAIN_TEXT - 2) {
        out[o++] = ',';
        out[o++] = ' ';
    }
    for (size_t i = 0; i < name->n && name->b[i] != 0; first = false) {
        size_t label = name->b[i++];
        if (!first && o < WIRE_CHAIN_TEXT - 1)
            out[o++] = '.';
        for (; label > 0 && i < name->n && o < WIRE_CHAIN_TEXT - 1; label--, i++) {
            char ch = (char)name->b[i];
            out[o++] = ascii_alpha(ch) || ascii_digit(ch) || ch == '-' || ch == '_' ? ch : '?';
        }
        i += label; /* what did not fit */
    }
    out[o] = '\0';
}

int wire_query_make(struct wire_query *ret, struct str name, uint16_t type, const unsigned char chance[WIRE_CHANCE])
{
    struct wire_query q = { .type = type };
    if (name.n == 0 || name.n > 253)
        return -1;
    q.bytes[0] = chance[0];
    q.bytes[1] = chance[1];
    q.bytes[2] = 0x01; /* recursion desired */
    q.bytes[5] = 1;    /* one question */
    size_t at = HEADER, bit = 0;
    struct str label;
    for (struct str rest = name; str_split(&rest, '.', &label);) {
        if (label.n == 0 || label.n > 63)
            return -1;
        q.bytes[at++] = (unsigned char)label.n;
        for (size_t i = 0; i < label.n; i++, bit++) {
            char ch = label.p[i];
            if (ch >= 'a' && ch <= 'z') {
                if (chance[2 + (bit >> 3) % (WIRE_CHANCE - 2)] >> (bit & 7) & 1)
                    ch = (char)(ch - 32);
            } else if (!ascii_digit(ch) && ch != '-' && ch != '_') {
                return -1;
            }
            q.bytes[at++] = (unsigned char)ch;
        }
    }
    q.bytes[at++] = 0;
    q.bytes[at++] = (unsigned char)(type >> 8);
    q.bytes[at++] = (unsigned char)type;
    q.bytes[at++] = 0;
    q.bytes[at++] = 1; /* IN */
    q.n = at;
    *ret = q;
    return 0;
}

size_t wire_query_pad(const struct wire_query *q, unsigned char out[WIRE_PADDED_MAX])
{
    enum { BLOCK = 128, OPT_FIXED = 11, OPTION_FIXED = 4, PADDING = 12, UDP_BYTES = 1232 };
    static_assert((WIRE_QUERY_MAX + OPT_FIXED + OPTION_FIXED + BLOCK - 1) / BLOCK * BLOCK == WIRE_PADDED_MAX, "the longest");
    size_t n = (q->n + OPT_FIXED + OPTION_FIXED + BLOCK - 1) / BLOCK * BLOCK;
    size_t padding = n - q->n - OPT_FIXED - OPTION_FIXED;
    memset(out, 0, n);
    memcpy(out, q->bytes, q->n);
    out[11] = 1; /* one additional record: OPT of the root (RFC 6891 6.1.2) */
    unsigned char *opt = out + q->n;
    opt[2] = DNS_TYPE_OPT;
    opt[3] = UDP_BYTES >> 8;
    opt[4] = UDP_BYTES & 255;
    opt[9] = (unsigned char)((padding + OPTION_FIXED) >> 8);
    opt[10] = (unsigned char)(padding + OPTION_FIXED);
    opt[12] = PADDING;
    opt[13] = (unsigned char)(padding >> 8);
    opt[14] = (unsigned char)padding;
    return n;
}

bool wire_echoes(const struct wire_query *q, struct str packet)
{
    const unsigned char *p = (const unsigned char *)packet.p;
    if (packet.n < q->n || packet.n > WIRE_MESSAGE_MAX)
        return false;
    bool response = (p[2] & 0x80) != 0, query_opcode = (p[2] & 0x78) == 0;
    return response && query_opcode && memcmp(p, q->bytes, 2) == 0 && peek16(p + 4) == 1 &&
           memcmp(p + HEADER, q->bytes + HEADER, q->n - HEADER) == 0;
}

bool wire_truncated(struct str packet)
{
    return packet.n >= HEADER && ((unsigned char)packet.p[2] & 0x02) != 0;
}

struct record {
    size_t owner; /* offset of the owner's name */
    uint16_t type;
    uint32_t ttl_s;
    size_t data, n;
};

static void get_record(struct cursor *c, struct record *ret, bool *ret_in)
{
    struct wire_name skipped;
    ret->owner = c->at;
    get_name(c, &skipped);
    ret->type = get16(c);
    *ret_in = get16(c) == 1;
    ret->ttl_s = get32(c);
    if (ret->ttl_s >> 31) /* RFC 2181 8 */
        ret->ttl_s = 0;
    ret->n = get16(c);
    ret->data = c->at;
    if (c->bad || c->n - c->at < ret->n)
        c->bad = true;
    else
        c->at += ret->n;
}

static bool name_at(const struct cursor *c, size_t at, size_t end, struct wire_name *ret)
{
    struct cursor k = { c->base, c->n, at, false };
    get_name(&k, ret);
    return !k.bad && (end == 0 || k.at == end);
}

static int add_address(struct wire_answer *a, const struct cursor *c, const struct record *r, struct err *err)
{
    size_t want = r->type == WIRE_A ? 4 : 16;
    if (r->n != want)
        return err_set(err, "an address record of %zu bytes", r->n);
    struct ip ip = { .family = want == 4 ? 4 : 6 };
    memcpy(ip.b, c->base + r->data, want);
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(&a->ips[i], &ip, sizeof ip) == 0)
            return 0;
    if (a->n == WIRE_ADDRESSES_MAX)
        return err_set(err, "more than %d addresses", WIRE_ADDRESSES_MAX);
    a->ips[a->n++] = ip;
    return 0;
}

/* Where in its data the name begins that ends it; -1: none does. */
static int name_in(uint16_t type)
{
    switch (type) {
    case DNS_TYPE_NS:
    case DNS_TYPE_PTR:
        return 0;
    case DNS_TYPE_MX:
        return 2;
    case DNS_TYPE_SRV:
        return 6;
    default:
        return -1;
    }
}

/* Strings that fill the data (RFC 1035 3.3.14). */
static bool strings_fit(const unsigned char *p, size_t n)
{
    size_t at = 0;
    while (at < n)
        at += (size_t)p[at] + 1;
    return n > 0 && at == n;
}

static int add_record(struct wire_answer *a, const struct cursor *c, const struct record *r, struct err *err)
{
    struct wire_name name = { .n = 0 };
    int at = name_in(r->type);
    size_t front = at < 0 ? r->n : (size_t)at;
    if (at >= 0 && (r->n <= front || !name_at(c, r->data + front, r->data + r->n, &name)))
        return err_set(err, "a malformed record");
    if (r->type == DNS_TYPE_TXT && !strings_fit(c->base + r->data, r->n))
        return err_set(err, "a malformed text");
    size_t n = front + name.n;
    if (n > UINT16_MAX || sizeof a->data - a->data_n < 2 + n)
        return err_set(err, "more than %d bytes of records", WIRE_DATA_MAX);
    unsigned char *p = a->data + a->data_n;
    p[0] = (unsigned char)(n >> 8);
    p[1] = (unsigned char)n;
    memcpy(p + 2, c->base + r->data, front);
    memcpy(p + 2 + front, name.b, name.n);
    a->data_n += 2 + n;
    a->records++;
    return 0;
}

/* What the records say about `name`: addresses are added; an alias replaces *name. 1: an alias, 0: the chain ends here,
 * -1. */
static int chain_step(const struct cursor *c, const struct record *v, size_t n, uint16_t type, struct wire_name *name,
                      struct wire_answer *a, struct err *err)
{
    struct wire_name owner, target, next;
    bool alias = false;
    for (size_t i = 0; i < n; i++) {
        if (!name_at(c, v[i].owner, 0, &owner) || !name_eq(&owner, name))
            continue;
        if (v[i].type == type) {
            bool address = type == WIRE_A || type == WIRE_AAAA;
            if ((address ? add_address(a, c, &v[i], err) : add_record(a, c, &v[i], err)) < 0)
                return -1;
        } else if (v[i].type == WIRE_CNAME) {
            if (!name_at(c, v[i].data, v[i].data + v[i].n, &target))
                return err_set(err, "a malformed alias");
            if (alias && !name_eq(&target, &next))
                return err_set(err, "two aliases for one name");
            next = target;
            alias = true;
        } else {
            continue;
        }
        if (v[i].ttl_s < a->ttl_s)
            a->ttl_s = v[i].ttl_s;
    }
    if (alias && a->n + a->records > 0)
        return err_set(err, "an alias and addresses for one name");
    if (alias)
        *name = next;
    return alias;
}

/* How long "none" may be kept, from the first SOA of the authority section. */
static void read_negative(struct cursor *c, unsigned count, struct wire_answer *a)
{
    for (unsigned i = 0; i < count && i < WIRE_RECORDS_MAX; i++) {
        struct record r;
        bool in;
        get_record(c, &r, &in);
        if (c->bad)
            return;
        if (r.type != WIRE_SOA || !in || r.n < 22)
            continue;
        uint32_t minimum = (uint32_t)peek16(c->base + r.data + r.n - 4) << 16 | peek16(c->base + r.data + r.n - 2);
        a->soa = true;
        a->ttl_s = r.ttl_s < minimum ? r.ttl_s : minimum;
        return;
    }
}

int wire_answer_parse(const struct wire_query *q, struct str packet, struct wire_answer *ret, struct err *err)
{
    struct cursor c = { (const unsigned char *)packet.p, packet.n, q->n, false };
    struct record records[WIRE_RECORDS_MAX];
    memset(ret, 0, offsetof(struct wire_answer, ips));
    ret->records = ret->data_n = 0;
    if (packet.n < q->n || packet.n > WIRE_MESSAGE_MAX)
        return err_set(err, "a message of %zu bytes", packet.n);
    ret->rcode = c.base[3] & 15;
    unsigned answers = peek16(c.base + 6), authorities = peek16(c.base + 8);
    if (answers > WIRE_RECORDS_MAX)
        return err_set(err, "more than %d records", WIRE_RECORDS_MAX);
    size_t n = 0;
    for (unsigned i = 0; i < answers; i++) {
        bool in;
        get_record(&c, &records[n], &in);
        if (c.bad)
            return err_set(err, "a malformed record");
        n += in;
    }
    if (ret->rcode != WIRE_NOERROR && ret->rcode != WIRE_NXDOMAIN)
        return 0;
    struct wire_name name;
    struct cursor question = { c.base, q->n, HEADER, false };
    get_name(&question, &name);
    ret->ttl_s = UINT32_MAX;
    for (int more; (more = chain_step(&c, records, n, q->type, &name, ret, err)) != 0;) {
        if (more < 0)
            return -1;
        if (ret->aliases == WIRE_CHAIN_MAX)
            return err_set(err, "more than %d aliases in a row", WIRE_CHAIN_MAX);
        ret->aliases++;
        chain_print(&name, ret->chain);
    }
    if (ret->n + ret->records > 0 && ret->rcode == WIRE_NXDOMAIN)
        return err_set(err, "records for a name that does not exist");
    if (ret->n + ret->records == 0) {
        ret->ttl_s = 0;
        read_negative(&c, authorities, ret);
    }
    return 0;
}

const char *wire_rcode_name(uint16_t rcode)
{
    static const char *const names[] = { "NOERROR",  "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
                                         "YXDOMAIN", "YXRRSET", "NXRRSET",  "NOTAUTH",  "NOTZONE" };
    if (rcode == WIRE_BADVERS)
        return "BADVERS";
    return rcode < sizeof names / sizeof *names ? names[rcode] : "RCODE";
}
