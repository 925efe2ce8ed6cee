/* SPDX-License-Identifier: Apache-2.0
 *
 * socks5: the three messages that a SOCKS5 client sends before its tunnel opens (RFC 1928; user and password: RFC 1929), read
 * from the front of what has come. Pure: bytes in, a value out; nothing is kept between calls. */
#ifndef PROXY_SOCKS5_H
#define PROXY_SOCKS5_H

#include "policy/host.h"

enum { SOCKS5_VERSION = 5, SOCKS5_MESSAGE_MAX = 513 }; /* the longest: a login with two texts of 255 bytes */

enum socks5_result { SOCKS5_MORE = 0, SOCKS5_BAD, SOCKS5_READY };

/* Fields of the wire. */
enum socks5_method { SOCKS5_NO_LOGIN = 0, SOCKS5_LOGIN = 2, SOCKS5_NO_METHOD = 0xff };
enum socks5_reply {
    SOCKS5_SUCCEEDED = 0,
    SOCKS5_FAILURE = 1,
    SOCKS5_NOT_ALLOWED = 2, /* "connection not allowed by ruleset" */
    SOCKS5_UNREACHABLE = 4,
    SOCKS5_REFUSED = 5,
    SOCKS5_NO_COMMAND = 7,
    SOCKS5_NO_ADDRESS_TYPE = 8,
};

struct socks5_greeting {
    bool no_login, login; /* the methods on offer that we know */
};
struct socks5_login {
    struct str user, password; /* borrowed; either may be empty or hold any byte */
};
struct socks5_request {
    struct host host; /* canonical, as everywhere; numeric names are addresses */
    uint16_t port;
};

/* Each reads one message. SOCKS5_READY: *ret and *ret_n, its length. SOCKS5_BAD: the reason in *ret_why (static or in err). A
 * message cannot be longer than SOCKS5_MESSAGE_MAX, so SOCKS5_MORE ends. */
enum socks5_result socks5_greeting(struct str in, struct socks5_greeting *ret, size_t *ret_n, struct err *err);
enum socks5_result socks5_login(struct str in, struct socks5_login *ret, size_t *ret_n, struct err *err);
/* Only CONNECT is a command here. SOCKS5_BAD: *ret_reply is what to answer. */
enum socks5_result socks5_request(struct str in, struct socks5_request *ret, size_t *ret_n, enum socks5_reply *ret_reply, struct err *err);

#endif
