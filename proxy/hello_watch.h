/* SPDX-License-Identifier: Apache-2.0
 *
 * hello_watch: what TLS says in clear text behind the ClientHello of a tunnel, as long as it says anything: does the
 * server ask for a second ClientHello (HelloRetryRequest, RFC 8446 4.1.4), and where does that begin? It could name
 * another host than the first. Until the server has answered, its client has nothing to say but warnings, early data
 * and the empty ChangeCipherSpec (RFC 8446 D.4), so a ClientHello that is sent before it was asked for is not let
 * through. Pure; any pieces; nothing is held here, nothing changed. */
#ifndef PROXY_HELLO_WATCH_H
#define PROXY_HELLO_WATCH_H

#include "base/str.h"

enum { HELLO_WATCH_ANSWER = 4 + 2 + 32 /* a ServerHello as far as its random */ };

struct hello_watch {
    enum {
        HELLO_ASKED = 0 /* the server has not answered */,
        HELLO_RETRIED /* it asked for another */,
        HELLO_HELD /* which begins here */,
        HELLO_OVER
    } state;
    struct hello_records {
        unsigned char head[5];
        unsigned head_n;
        size_t left; /* of the record whose head that is */
    } client, server;
    unsigned char answer[HELLO_WATCH_ANSWER];
    unsigned answer_n;
};

/* first: bytes of the ClientHello, with which the client's begin. */
void hello_watch_init(struct hello_watch *w, size_t first);
/* The server's next bytes. NULL, or why they may not go on (static). */
const char *hello_watch_server(struct hello_watch *w, struct str bytes);
/* The client's next bytes: how many of them may go on. All of them, unless *ret_why is set (static; NULL otherwise), or
 * the state is now HELLO_HELD: a second ClientHello begins behind them. Whoever has read that calls hello_watch_over.
 */
size_t hello_watch_client(struct hello_watch *w, struct str bytes, const char **ret_why);
void hello_watch_over(struct hello_watch *w);

#endif
