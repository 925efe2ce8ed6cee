/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/socks5.h"

enum { LOGIN_VERSION = 1, COMMAND_CONNECT = 1, TYPE_IPV4 = 1, TYPE_NAME = 3, TYPE_IPV6 = 4 };

static uint8_t at(struct str s, size_t i)
{
    return (uint8_t)s.p[i];
}

enum socks5_result socks5_greeting(struct str in, struct socks5_greeting *ret, size_t *ret_n, struct err *err)
{
    *ret = (struct socks5_greeting) { false, false };
    if (in.n >= 1 && at(in, 0) != SOCKS5_VERSION) {
        err_set(err, "a SOCKS greeting of version %u, expected 5", at(in, 0));
        return SOCKS5_BAD;
    }
    if (in.n < 2)
        return SOCKS5_MORE;
    size_t n = at(in, 1);
    if (!n) {
        err_set(err, "a SOCKS5 greeting without methods");
        return SOCKS5_BAD;
    }
    if (in.n < 2 + n)
        return SOCKS5_MORE;
    for (size_t i = 0; i < n; i++) {
        ret->no_login |= at(in, 2 + i) == SOCKS5_NO_LOGIN;
        ret->login |= at(in, 2 + i) == SOCKS5_LOGIN;
    }
    *ret_n = 2 + n;
    return SOCKS5_READY;
}

enum socks5_result socks5_login(struct str in, struct socks5_login *ret, size_t *ret_n, struct err *err)
{
    if (in.n >= 1 && at(in, 0) != LOGIN_VERSION) {
        err_set(err, "a SOCKS5 login of version %u, expected 1", at(in, 0));
        return SOCKS5_BAD;
    }
    if (in.n < 2)
        return SOCKS5_MORE;
    size_t user = at(in, 1);
    if (in.n < 2 + user + 1)
        return SOCKS5_MORE;
    size_t password = at(in, 2 + user);
    if (in.n < 2 + user + 1 + password)
        return SOCKS5_MORE;
    ret->user = str_sub(in, 2, user);
    ret->password = str_sub(in, 3 + user, password);
    *ret_n = 2 + user + 1 + password;
    return SOCKS5_READY;
}

/* Bytes of the address (its length byte included), or 0: more must come to tell. -1: no such type. */
static int address_bytes(struct str in)
{
    switch (at(in, 3)) {
    case TYPE_IPV4:
        return 4;
    case TYPE_IPV6:
        return 16;
    case TYPE_NAME:
        return in.n < 5 ? 0 : 1 + at(in, 4);
    default:
        return -1;
    }
}

static int read_host(struct str in, size_t n, struct host *ret, struct err *err)
{
    if (at(in, 3) == TYPE_NAME)
        return host_parse(str_sub(in, 5, n - 1), ret, err);
    struct ip ip = { .family = at(in, 3) == TYPE_IPV4 ? 4 : 6 };
    char text[46];
    memcpy(ip.b, in.p + 4, n);
    return host_parse(str_c(ip_format(&ip, text)), ret, err);
}

enum socks5_result socks5_request(struct str in, struct socks5_request *ret, size_t *ret_n, enum socks5_reply *ret_reply, struct err *err)
{
    *ret_reply = SOCKS5_FAILURE;
    if (in.n >= 1 && at(in, 0) != SOCKS5_VERSION) {
        err_set(err, "a SOCKS request of version %u, expected 5", at(in, 0));
        return SOCKS5_BAD;
    }
    if (in.n >= 2 && at(in, 1) != COMMAND_CONNECT) {
        *ret_reply = SOCKS5_NO_COMMAND;
        err_set(err, "the SOCKS5 command %u, expected 1 (CONNECT)", at(in, 1));
        return SOCKS5_BAD;
    }
    if (in.n >= 3 && at(in, 2) != 0) {
        err_set(err, "a reserved byte of a SOCKS5 request is not 0");
        return SOCKS5_BAD;
    }
    if (in.n < 4)
        return SOCKS5_MORE;
    int n = address_bytes(in);
    if (n < 0) {
        *ret_reply = SOCKS5_NO_ADDRESS_TYPE;
        err_set(err, "the SOCKS5 address type %u, expected 1 (IPv4), 3 (name) or 4 (IPv6)", at(in, 3));
        return SOCKS5_BAD;
    }
    size_t end = 4 + (size_t)n + 2;
    if (!n || in.n < end)
        return SOCKS5_MORE;
    ret->port = (uint16_t)(at(in, end - 2) << 8 | at(in, end - 1));
    if (!ret->port) {
        err_set(err, "port 0");
        return SOCKS5_BAD;
    }
    if (read_host(in, (size_t)n, &ret->host, err))
        return SOCKS5_BAD;
    *ret_n = end;
    return SOCKS5_READY;
}
