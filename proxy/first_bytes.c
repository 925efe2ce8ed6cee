/* SPDX-License-Identifier: Apache-2.0
 *
 * One table, looked through in order. Clients send their first message in one piece, so binary bytes are judged at once by what is there;
 * printable ones wait while they may be both a method and another protocol's greeting. */
#include "proxy/first_bytes.h"

enum { PATTERN_MOST = FIRST_BYTES_MOST, ENOUGH = 4 /* bytes of a binary message that came in part */ };

/* fixed: 'x' this byte, '.' any, 'h' a hexadecimal digit, 'd' a digit. */
static const struct pattern {
    const char *name;
    unsigned char n;
    char bytes[PATTERN_MOST + 1];
    char fixed[PATTERN_MOST + 1];
} patterns[] = {
    { "HTTP/2 without TLS", 24, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "xxxxxxxxxxxxxxxxxxxxxxxx" }, /* first: it has a meaning of its own */
    { "SSH", 4, "SSH-", "xxxx" },
    { "git", 8, "0000git-", "xhhhxxxx" },
    { "Redis", 2, "*1", "xd" },
    { "AMQP", 5, "AMQP\0", "xxxxx" },
    { "SMTP", 5, "EHLO ", "xxxxx" },
    { "SMTP", 5, "HELO ", "xxxxx" },
    { "IRC", 5, "NICK ", "xxxxx" },
    { "IRC", 7, "CAP LS ", "xxxxxxx" },
    { "rsync", 8, "@RSYNCD:", "xxxxxxxx" },
    { "BitTorrent", 20, "\x13" "BitTorrent protocol", "xxxxxxxxxxxxxxxxxxxx" },
    { "PostgreSQL", 8, "\0\0\0\x08\x04\xd2\x16\x2f", "xxxxxxxx" }, /* SSLRequest */
    { "PostgreSQL", 8, "\0\0\0\x08\x04\xd2\x16\x30", "xxxxxxxx" }, /* GSSENCRequest */
    { "PostgreSQL", 8, "\0\0\0\x10\x04\xd2\x16\x2e", "xxxxxxxx" }, /* CancelRequest */
    { "PostgreSQL", 8, "\0\0\0\0\0\x03\0\0", "xx..xxx." },        /* StartupMessage 3.x */
    { "MongoDB", 16, "\0\0\0\0\0\0\0\0\0\0\0\0\xdd\x07\0\0", "..xx....xxxxxxxx" }, /* OP_MSG */
    { "MongoDB", 16, "\0\0\0\0\0\0\0\0\0\0\0\0\xd4\x07\0\0", "..xx....xxxxxxxx" }, /* OP_QUERY */
    { "SQL Server", 8, "\x12\x01\0\0\0\0\0\0", "xx..xx.x" },       /* TDS PRELOGIN */
    { "Oracle", 10, "\0\0\0\0\x01\0\0\0\x01\x3f", "..xxxxxx.." },  /* TNS CONNECT */
    { "Cassandra", 9, "\x04\0\0\0\x05\0\0\0\0", "xxxxxxxxx" },     /* OPTIONS */
    { "Cassandra", 9, "\x05\0\0\0\x05\0\0\0\0", "xxxxxxxxx" },
    { "Kafka", 8, "\0\0\0\0\0\x12\0\0", "xx..xxx." },              /* ApiVersions */
    { "MQTT", 8, "\x10\0\0\x04MQTT", "x.xxxxxx" },
    { "MQTT", 9, "\x10\0\0\0\x04MQTT", "x..xxxxxx" },
    { "RDP", 6, "\x03\0\0\0\0\xe0", "xx...x" },                    /* TPKT, X.224 connection request */
    { "SMB", 8, "\0\0\0\0\xffSMB", "x...xxxx" },
    { "SMB", 8, "\0\0\0\0\xfeSMB", "x...xxxx" },
    { "LDAP", 6, "\x30\0\x02\x01\0\x60", "x.xx.x" },               /* bind */
    { "LDAP", 6, "\x30\0\x02\x01\0\x77", "x.xx.x" },               /* extended: StartTLS */
    { "DNS over TCP", 8, "\0\0\0\0\x01\0\0\x01", "x...x.xx" },     /* a question with recursion */
    { "OpenVPN", 3, "\0\0\x38", "x.x" },
    { "SOCKS", 3, "\x05\x01\0", "xxx" },
    { "SOCKS", 2, "\x04\x01", "xx" },
    { "X11", 4, "l\0\x0b\0", "xxxx" },
    { "TLS in an SSLv2 hello", 4, "\x80\0\x01\x03", "x.xx" },
};

/* Do the first n bytes, or as many as there are, fit? */
static bool fits(const struct pattern *p, struct str bytes, unsigned *ret_fixed)
{
    size_t n = bytes.n < p->n ? bytes.n : p->n;
    *ret_fixed = 0;
    for (size_t i = 0; i < n; i++) {
        char ch = bytes.p[i], kind = p->fixed[i];
        if (kind == 'x' ? ch != p->bytes[i] : kind == 'd' ? !ascii_digit(ch) : kind == 'h' ? ascii_hex(ch) < 0 : false)
            return false;
        *ret_fixed += kind != '.';
    }
    return true;
}

enum first_bytes first_bytes_look(struct str bytes, const char **ret_name)
{
    bool printable = ascii_tchar(bytes.p[0]), open = false;
    const char *part = NULL;
    if (bytes.p[0] == 0x16)
        return FIRST_TLS;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const struct pattern *p = &patterns[i];
        unsigned fixed;
        if (!fits(p, bytes, &fixed))
            continue;
        if (bytes.n >= p->n) {
            if (i == 0)
                return FIRST_HTTP2;
            *ret_name = p->name;
            return FIRST_OTHER;
        }
        open |= p->fixed[0] != '.';
        if (!part && fixed >= ENOUGH)
            part = p->name;
    }
    if (printable)
        return open ? FIRST_MORE : FIRST_HTTP;
    *ret_name = part;
    return FIRST_OTHER;
}
