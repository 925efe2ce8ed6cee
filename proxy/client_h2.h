/* SPDX-License-Identifier: Apache-2.0
 *
 * client_h2: HTTP/2 from the client, inside a tunnel (RFC 9113): every stream is an exchange of its own, judged by itself, with its
 * own answer, events and end. The frames, HPACK and the state of streams are nghttp2's; what a request may be is h2_head's; this file
 * ties both to exchanges, bounds what one connection may cost, and writes.
 *
 * Bounds: limits.h2_streams at a time; a request's body is held for an exchange that does not take it yet, at most a stream's window
 * (64 KiB) each and limits.h2_held_bytes in all; past H2_STREAM_HIGH bytes of an answer
 * that wait for a stream's window its origin waits, too. Window is given
 * back stream by stream as the exchange takes the bytes, and for the connection at once, so that a stalled stream stalls only itself.
 * Frames that carry nothing and streams that end by RST_STREAM, whoever sent it, have budgets (base/bucket.h).
 *
 * Re-entrancy: nghttp2's functions that read or write are called by client_h2_input and client_h2_output alone, never inside one
 * another; `busy` is set meanwhile, and what an exchange wants written then is written when the outermost of them goes on. Streams are
 * freed only by nghttp2's callbacks and by client_h2_free, exchanges may end in any of them. */
#ifndef PROXY_CLIENT_H2_H
#define PROXY_CLIENT_H2_H

#include "proxy/client.h"

/* The connection speaks HTTP/2 from here on: state CLIENT_H2, our SETTINGS are on their way. c->scheme is known. 0, or -1: out of
 * memory. */
int client_h2_start(struct client *c);
/* What is in c->in, then whatever there is to write. */
void client_h2_input(struct client *c);
/* Writes what may be written now. */
void client_h2_output(struct client *c);
/* No new requests; the connection ends after those that run. */
void client_h2_drain(struct client *c);
/* (Re)sets the connection's timer. moved: the client took something since. */
void client_h2_deadline(struct client *c, bool moved);
/* That timer went off. */
void client_h2_timeout(struct client *c);
/* Ends every exchange. */
void client_h2_end(struct client *c, enum end end, const char *why);
void client_h2_free(struct client_h2 **h);

#endif
