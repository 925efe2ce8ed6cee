/* SPDX-License-Identifier: Apache-2.0
 *
 * first_bytes: what a tunnel is going to carry, by the first bytes of its client. Pure. TLS and HTTP are told from everything else; what
 * is neither has a name where it is a protocol that agents are known to try, so that a refusal can say more than "not HTTP". A protocol
 * in which the server speaks first (SMTP, FTP, IMAP, MySQL) shows nothing here. */
#ifndef PROXY_FIRST_BYTES_H
#define PROXY_FIRST_BYTES_H

#include "base/str.h"

enum first_bytes {
    FIRST_MORE = 0, /* these could still become two things; only of printable ones, and at most FIRST_BYTES_MOST of them */
    FIRST_TLS,      /* a TLS record with a handshake in it */
    FIRST_HTTP,     /* a token, as methods are */
    FIRST_HTTP2,    /* the preface of HTTP/2 without TLS (RFC 9113 3.4) */
    FIRST_OTHER,
};
enum { FIRST_BYTES_MOST = 24 };

/* bytes: at least one. *ret_name is set with FIRST_OTHER: a name ("SSH", "PostgreSQL"; static), or NULL for what nobody here knows. */
enum first_bytes first_bytes_look(struct str bytes, const char **ret_name);

#endif
