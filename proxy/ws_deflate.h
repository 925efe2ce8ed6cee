/* SPDX-License-Identifier: Apache-2.0
 *
 * ws_deflate: permessage-deflate (RFC 7692), the one extension of WebSocket that we can read. What a client offers is cut down to the
 * offers of it whose every parameter we know; what a server accepts must be one of those. Messages are inflated in steps of bounded
 * output, so that a bomb is found while it goes off and costs no memory. Windows and states of a compressor are wiped when they are freed.
 */
#ifndef PROXY_WS_DEFLATE_H
#define PROXY_WS_DEFLATE_H

#include "base/buf.h"
#include "base/str.h"

struct ws_offer {
    bool any;           /* at least one offer that we understand was made */
    bool client_window; /* ... one of them with client_max_window_bits */
};
/* Adds what we understand of one Sec-WebSocket-Extensions field of a request to out (a list, which may be empty), and notes it. */
void ws_offer_put(struct str value, struct ws_offer *o, struct buf *out);

struct ws_coding {
    bool on;
    bool client_alone, server_alone;   /* each message for itself: no context takeover */
    unsigned client_bits, server_bits; /* windows, 8 to 15 */
};
/* A Sec-WebSocket-Extensions field of the answer. NULL, or why it is not one that we offered and can read. */
const char *ws_coding_parse(struct str value, const struct ws_offer *o, struct ws_coding *ret);

/* --- one direction --- */
struct ws_inflate;
struct ws_inflate *ws_inflate_new(bool alone);
void ws_inflate_free(struct ws_inflate **i);
enum ws_inflated {
    WS_INFLATED_MORE = 0, /* all input is used */
    WS_INFLATED_FULL,     /* out is full: call again with what is left of the input */
    WS_INFLATED_BAD = -1,
};
/* Takes from *in, gives at most room bytes to out. */
enum ws_inflated ws_inflate_step(struct ws_inflate *i, struct str *in, char *out, size_t room, size_t *ret_n);
/* The message ended: what ws_inflate_step is given once more before (RFC 7692 7.2.2). */
#define WS_INFLATE_TAIL STR("\x00\x00\xff\xff")
/* ... and after it. False: it did not end where a message may. */
bool ws_inflate_end(struct ws_inflate *i);

struct ws_deflate;
/* bits: the widest window the peer has. */
struct ws_deflate *ws_deflate_new(bool alone, unsigned bits);
void ws_deflate_free(struct ws_deflate **d);
/* Appends the next piece of a message, compressed; the last one may be empty only when it is the whole message. 0 or -1 (out is full,
 * memory). */
int ws_deflate_put(struct ws_deflate *d, struct str piece, bool last, struct buf *out);
/* Appends one message in stored blocks, and forgets what came before: nothing of it can be told from the length of this message or a
 * later one. For what holds a real value. */
int ws_deflate_put_stored(struct ws_deflate *d, struct str message, struct buf *out);

#endif
