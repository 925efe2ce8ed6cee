/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/host.h"

#include "base/buf.h"

#include <idn2.h>
#include <stdio.h>

enum { LABEL_MAX = 63 };

/* What an LDH byte becomes in canonical form; 0: not allowed. '_' is let through (host.h). */
static const char host_byte[256] = {
    ['-'] = '-', ['_'] = '_', ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5',
    ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd',
    ['e'] = 'e', ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l',
    ['m'] = 'm', ['n'] = 'n', ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't',
    ['u'] = 'u', ['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z', ['A'] = 'a', ['B'] = 'b',
    ['C'] = 'c', ['D'] = 'd', ['E'] = 'e', ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j',
    ['K'] = 'k', ['L'] = 'l', ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r',
    ['S'] = 's', ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y', ['Z'] = 'z',
};

static int refuse(struct err *err, struct str text, const char *why)
{
    char shown[80];
    return err_set(err, "expected a host name or address, got \"%s\": %s", str_escape(text, shown, sizeof shown), why);
}

static void host_set_ip(struct host *h, const struct ip *ip)
{
    char text[46];
    h->ip = *ip;
    h->n = (uint8_t)snprintf(h->name, sizeof h->name, "%s", ip_format(ip, text));
}

/* WHATWG "ends in a number": such a name is an address or nothing, because some resolvers and clients read it as one.
 */
static bool label_is_number(struct str label)
{
    bool digits = true, hex = label.n >= 2 && label.p[0] == '0' && label.p[1] == 'x';
    for (size_t i = 0; i < label.n; i++) {
        if (!ascii_digit(label.p[i]))
            digits = false;
        if (i >= 2 && ascii_hex(label.p[i]) < 0)
            hex = false;
    }
    return digits || hex;
}

static const char *bad_byte(char c)
{
    if (c == '%')
        return "a percent sign does not belong in a name";
    if (c == ':' || c == '[' || c == ']')
        return "not a valid address";
    if ((unsigned char)c >= 0x80)
        return "a name outside ASCII must be written as an A-label (xn--)";
    return "only letters, digits, hyphens, underscores and dots belong in a name";
}

static const char *bad_address(struct str text)
{
    if (memchr(text.p, '%', text.n))
        return "zone ids are not accepted";
    if (str_find_char(text, ':') == str_rfind_char(text, ':') || str_find_char(text, '/') >= 0)
        return "a scheme, port or path does not belong in a name";
    return "not a valid address";
}

int host_parse(struct str text, struct host *ret, struct err *err)
{
    struct host h = { 0 };
    struct str full = text;
    if (!text.n)
        return refuse(err, full, "it is empty");
    if (memchr(text.p, ':', text.n)) {
        struct ip ip;
        if (ip_parse(text, &ip))
            return refuse(err, full, bad_address(text));
        host_set_ip(&h, &ip);
        *ret = h;
        return 0;
    }
    if (text.p[text.n - 1] == '.')
        text.n--;
    if (text.n > HOST_MAX)
        return refuse(err, full, "it is longer than 253 bytes");
    size_t label = 0; /* where the current label starts */
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '.') {
            if (i == label)
                return refuse(err, full, "it has an empty label");
            h.name[i] = '.';
            label = i + 1;
            continue;
        }
        char c = host_byte[(unsigned char)text.p[i]];
        if (!c)
            return refuse(err, full, bad_byte(text.p[i]));
        if (i == label && c == '-') /* at the end of a label it is let through: real hosts have it */
            return refuse(err, full, "a label starts with a hyphen");
        if (i - label >= LABEL_MAX)
            return refuse(err, full, "a label is longer than 63 bytes");
        h.name[i] = c;
    }
    if (label == text.n)
        return refuse(err, full, "it has an empty label");
    h.n = (uint8_t)text.n;
    if (ascii_digit(h.name[label]) && label_is_number(str_from(host_str(&h), label))) {
        struct ip ip;
        if (ip_parse_numeric(host_str(&h), &ip) != 1)
            return refuse(err, full, "it ends in a number but is no address");
        memset(h.name, 0, sizeof h.name);
        host_set_ip(&h, &ip);
    }
    *ret = h;
    return 0;
}

int host_parse_config(struct str text, struct host *ret, bool *ret_converted, struct err *err)
{
    bool ascii = true;
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] >= 0x80)
            ascii = false;
    if (ascii) {
        if (host_parse(text, ret, err))
            return -1;
        *ret_converted = false;
        return 0;
    }
    char z[4 * HOST_MAX + 1];
    if (text.n >= sizeof z || memchr(text.p, 0, text.n))
        return refuse(err, text, "it is too long");
    memcpy(z, text.p, text.n);
    z[text.n] = 0;
    uint8_t *ace = NULL;
    int rc = idn2_lookup_u8((const uint8_t *)z, &ace, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
    if (rc != IDN2_OK)
        return refuse(err, text, idn2_strerror(rc));
    rc = host_parse(str_c((const char *)ace), ret, err);
    idn2_free(ace);
    if (!rc)
        *ret_converted = true;
    return rc;
}

static int port_parse(struct str text, uint16_t *ret, struct err *err)
{
    uint64_t v = 0;
    char shown[32];
    if (!str_to_u64(text, 65535, &v) || !v || text.p[0] == '0')
        return err_set(err, "expected a port from 1 to 65535, got \"%s\"", str_escape(text, shown, sizeof shown));
    *ret = (uint16_t)v;
    return 0;
}

int authority_parse(struct str text, uint16_t dflt, struct host *ret_host, uint16_t *ret_port, struct err *err)
{
    struct str name = text, port = STR_NONE;
    struct host h;
    char shown[80];
    if (text.n && memchr(text.p, '@', text.n))
        return err_set(err, "expected HOST or HOST:PORT without user information");
    if (text.n && text.p[0] == '[') {
        ptrdiff_t close = str_find_char(text, ']');
        struct ip ip = { 0 };
        if (close < 0 || ip_parse(str_sub(text, 1, (size_t)close - 1), &ip) || ip.family != 6)
            return err_set(err, "expected an IPv6 address in brackets, got \"%s\"",
                           str_escape(text, shown, sizeof shown));
        name = str_sub(text, 1, (size_t)close - 1);
        struct str rest = str_from(text, (size_t)close + 1);
        if (rest.n) {
            if (rest.p[0] != ':')
                return err_set(err, "expected \":PORT\" after \"]\", got \"%s\"",
                               str_escape(rest, shown, sizeof shown));
            port = str_from(rest, 1);
        }
    } else {
        ptrdiff_t colon = str_find_char(text, ':');
        if (colon >= 0) {
            name = str_sub(text, 0, (size_t)colon);
            port = str_from(text, (size_t)colon + 1);
            if (str_find_char(port, ':') >= 0)
                return err_set(err, "expected HOST:PORT (an IPv6 address in brackets), got \"%s\"",
                               str_escape(text, shown, sizeof shown));
        }
    }
    if (host_parse(name, &h, err))
        return -1;
    uint16_t n = dflt;
    if (port.p ? port_parse(port, &n, err) : !dflt)
        return port.p ? -1 : err_set(err, "expected HOST:PORT, got \"%s\"", str_escape(text, shown, sizeof shown));
    *ret_host = h;
    *ret_port = n;
    return 0;
}

int authority_put(struct buf *out, const struct host *h, uint16_t port, uint16_t omit)
{
    bool v6 = h->ip.family == 6;
    if (v6)
        buf_putc(out, '[');
    buf_put(out, host_str(h));
    if (v6)
        buf_putc(out, ']');
    if (port != omit) {
        buf_putc(out, ':');
        buf_put_u64(out, port);
    }
    return out->failed ? -1 : 0;
}
