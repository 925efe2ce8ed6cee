/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ip.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

static int v4_parse(struct str text, uint8_t out[4])
{
    size_t i = 0;
    for (int part = 0; part < 4; part++) {
        if (part && (i >= text.n || text.p[i++] != '.'))
            return -1;
        size_t start = i;
        unsigned v = 0;
        while (i < text.n && i - start < 3 && ascii_digit(text.p[i]))
            v = v * 10 + (unsigned)(text.p[i++] - '0');
        if (i == start || v > 255 || (text.p[start] == '0' && i - start > 1))
            return -1;
        out[part] = (uint8_t)v;
    }
    return i == text.n ? 0 : -1;
}

/* RFC 4291 2.2: groups of 1-4 hex digits, at most one "::" for one group or more, the last 32 bits perhaps dotted. */
static int v6_parse(struct str text, uint8_t out[16])
{
    uint8_t head[16], tail[16];
    size_t nhead = 0, ntail = 0, i = 0;
    bool gap = false;
    if (text.n >= 2 && text.p[0] == ':' && text.p[1] == ':') {
        gap = true;
        i = 2;
    }
    while (i < text.n) {
        uint8_t *to = gap ? tail : head;
        size_t *n = gap ? &ntail : &nhead;
        size_t start = i;
        unsigned v = 0;
        while (i < text.n && i - start < 4 && ascii_hex(text.p[i]) >= 0)
            v = v << 4 | (unsigned)ascii_hex(text.p[i++]);
        if (i < text.n && text.p[i] == '.') {
            if (*n + 4 > 16 || v4_parse(str_from(text, start), to + *n))
                return -1;
            *n += 4;
            break;
        }
        if (i == start || *n + 2 > 16)
            return -1;
        to[(*n)++] = (uint8_t)(v >> 8);
        to[(*n)++] = (uint8_t)(v & 0xff);
        if (i == text.n)
            break;
        if (text.p[i++] != ':' || i == text.n)
            return -1;
        if (text.p[i] == ':') {
            if (gap)
                return -1;
            gap = true;
            i++;
        }
    }
    if (gap ? nhead + ntail > 14 : nhead != 16)
        return -1;
    memset(out, 0, 16);
    memcpy(out, head, nhead);
    memcpy(out + 16 - ntail, tail, ntail);
    return 0;
}

int ip_parse(struct str text, struct ip *ret)
{
    struct ip ip = { 0 };
    if (text.n < 2 || text.n > 45)
        return -1;
    if (memchr(text.p, ':', text.n)) {
        if (v6_parse(text, ip.b))
            return -1;
        ip.family = 6;
    } else {
        if (v4_parse(text, ip.b))
            return -1;
        ip.family = 4;
    }
    *ret = ip;
    return 0;
}

/* One number of WHATWG's IPv4 parser: decimal, 0octal, 0xhex ("0x" alone is 0). 1: a number; 0: none; -1: digits that
 * are no number of their base, or past 2^33 (any such value is out of range, whatever its place). */
static int number_parse(struct str s, uint64_t *ret)
{
    unsigned base = 10;
    uint64_t v = 0;
    if (s.n >= 2 && s.p[0] == '0' && (s.p[1] == 'x' || s.p[1] == 'X')) {
        base = 16;
        s = str_from(s, 2);
    } else if (s.n >= 2 && s.p[0] == '0') {
        base = 8;
        s = str_from(s, 1);
    }
    bool bad = false;
    for (size_t i = 0; i < s.n; i++) {
        int d = ascii_hex(s.p[i]);
        if (d < 0 || (base != 16 && d > 9))
            return 0;
        if ((unsigned)d >= base)
            bad = true;
        if (v <= UINT32_MAX)
            v = v * base + (unsigned)d;
    }
    if (bad)
        return -1;
    *ret = v;
    return 1;
}

int ip_parse_numeric(struct str text, struct ip *ret)
{
    uint64_t v[4] = { 0 };
    size_t n = 0;
    bool bad = false;
    struct str rest = text, part;
    if (!text.n)
        return 0;
    while (str_split(&rest, '.', &part)) {
        uint64_t x = 0;
        int r = part.n ? number_parse(part, &x) : 0;
        if (r == 0)
            return 0;
        if (r < 0 || n == 4)
            bad = true;
        else
            v[n++] = x;
    }
    if (bad)
        return -1;
    uint64_t out = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (v[i] > 255)
            return -1;
        out |= v[i] << (24 - 8 * i);
    }
    if (v[n - 1] >= (uint64_t)1 << (8 * (5 - n)))
        return -1;
    out |= v[n - 1];
    *ret = (struct ip) { .family = 4,
                         .b = { (uint8_t)(out >> 24), (uint8_t)(out >> 16), (uint8_t)(out >> 8), (uint8_t)out } };
    return 1;
}

static const char *v6_format(const uint8_t b[16], char out[46])
{
    unsigned g[8];
    for (unsigned i = 0; i < 8; i++)
        g[i] = (unsigned)b[2 * i] << 8 | b[2 * i + 1];
    /* RFC 5952 4.2: the longest run of two zero groups or more, the first of equals. */
    unsigned best = 8, best_n = 1;
    for (unsigned i = 0; i < 8; i++) {
        unsigned n = 0;
        while (i + n < 8 && !g[i + n])
            n++;
        if (n > best_n) {
            best = i;
            best_n = n;
        }
    }
    char *p = out;
    size_t room = 46;
    for (unsigned i = 0; i < 8;) {
        int n;
        if (i == best) {
            n = snprintf(p, room, "::");
            i += best_n;
        } else {
            n = snprintf(p, room, "%s%x", i && i != best + best_n ? ":" : "", g[i]);
            i++;
        }
        p += n;
        room -= (size_t)n;
    }
    return out;
}

/* Each question and each request has some written: a printf is ten times as dear. */
static void v4_format(const uint8_t b[4], char *out)
{
    for (unsigned i = 0; i < 4; i++) {
        if (i > 0)
            *out++ = '.';
        if (b[i] >= 100)
            *out++ = (char)('0' + b[i] / 100);
        if (b[i] >= 10)
            *out++ = (char)('0' + b[i] / 10 % 10);
        *out++ = (char)('0' + b[i] % 10);
    }
    *out = '\0';
}

const char *ip_format(const struct ip *ip, char out[46])
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    if (ip->family == 4)
        v4_format(ip->b, out);
    else if (ip->family != 6)
        snprintf(out, 46, "-");
    else if (!memcmp(ip->b, mapped, sizeof mapped)) /* RFC 5952 5 */
        snprintf(out, 46, "::ffff:%u.%u.%u.%u", ip->b[12], ip->b[13], ip->b[14], ip->b[15]);
    else
        v6_format(ip->b, out);
    return out;
}

int cidr_parse(struct str text, struct cidr *ret)
{
    struct cidr c = { 0 };
    ptrdiff_t slash = str_find_char(text, '/');
    if (ip_parse(slash < 0 ? text : str_sub(text, 0, (size_t)slash), &c.net))
        return -1;
    unsigned width = c.net.family == 4 ? 32 : 128;
    uint64_t bits = width;
    if (slash >= 0) {
        struct str n = str_from(text, (size_t)slash + 1);
        if (!str_to_u64(n, width, &bits) || (n.n > 1 && n.p[0] == '0'))
            return -1;
    }
    for (unsigned i = (unsigned)bits; i < width; i++)
        if (c.net.b[i / 8] & (0x80u >> (i % 8)))
            return -1;
    c.bits = (uint8_t)bits;
    *ret = c;
    return 0;
}

bool cidr_contains(const struct cidr *c, const struct ip *ip)
{
    if (!ip->family || c->net.family != ip->family)
        return false;
    if (ip->family == 4) { /* each address that may be dialled goes through a table of these */
        uint32_t net, at;
        memcpy(&net, c->net.b, sizeof net);
        memcpy(&at, ip->b, sizeof at);
        return c->bits == 0 || !((net ^ at) & htonl(UINT32_MAX << (32 - c->bits)));
    }
    unsigned whole = c->bits / 8, rest = c->bits % 8;
    if (memcmp(c->net.b, ip->b, whole))
        return false;
    return !rest || !((c->net.b[whole] ^ ip->b[whole]) & (0xff00u >> rest) & 0xffu);
}

bool ip_equal(const struct ip *a, const struct ip *b)
{
    return a->family && a->family == b->family && !memcmp(a->b, b->b, a->family == 4 ? 4 : 16);
}

struct ip ip_unmapped(const struct ip *ip)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct ip v4 = { .family = 4 };
    if (ip->family != 6 || memcmp(ip->b, mapped, sizeof mapped) != 0)
        return *ip;
    memcpy(v4.b, ip->b + 12, 4);
    return v4;
}

unsigned ip_to_sockaddr(const struct ip *ip, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (ip->family == 4) {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
        memcpy(&in.sin_addr, ip->b, 4);
        memcpy(ret, &in, sizeof in);
        return sizeof in;
    }
    if (ip->family == 6) {
        struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        memcpy(&in.sin6_addr, ip->b, 16);
        memcpy(ret, &in, sizeof in);
        return sizeof in;
    }
    return 0;
}

int ip_from_sockaddr(const struct sockaddr_storage *sa, struct ip *ret, uint16_t *ret_port)
{
    struct ip ip = { 0 };
    if (sa->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        ip.family = 4;
        memcpy(ip.b, &in.sin_addr, 4);
        if (ret_port)
            *ret_port = ntohs(in.sin_port);
    } else if (sa->ss_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, sa, sizeof in);
        ip.family = 6;
        memcpy(ip.b, &in.sin6_addr, 16);
        if (ret_port)
            *ret_port = ntohs(in.sin6_port);
    } else {
        return -1;
    }
    *ret = ip;
    return 0;
}
