/* SPDX-License-Identifier: Apache-2.0
 *
 * ws_handshake: the opening of a WebSocket (RFC 6455 4): is this a request for one, done properly; what goes to the host; is this its
 * answer. Pure. The client's key goes on as it came; for a request that came by extended CONNECT (RFC 8441), which has none, one is
 * made, and its answer is for us alone. */
#ifndef PROXY_WS_HANDSHAKE_H
#define PROXY_WS_HANDSHAKE_H

#include "policy/end.h"
#include "proxy/h1_head.h"
#include "proxy/ws_deflate.h"

/* How a request asks for a WebSocket. */
enum websocket {
    WEBSOCKET_NONE = 0,
    WEBSOCKET_UPGRADE, /* HTTP/1.1: Upgrade and Connection, a key */
    WEBSOCKET_CONNECT, /* extended CONNECT: neither; its method is GET from then on */
};

struct ws_handshake {
    char key[25]; /* NUL-terminated */
    bool own_key;
    struct ws_offer offer;
    struct ws_coding coding; /* as accepted */
};

/* Do the fields of a request with an upgrade ask for a WebSocket, and nothing else? */
bool ws_asked(const struct h1_field *fields, size_t n);
/* Does it do so properly? NULL and *ret, or a static sentence and the refusal. */
const char *ws_request_check(enum websocket how, struct str method, enum h1_body body, const struct h1_field *fields, size_t n,
                             struct ws_handshake *ret, enum end *ret_end);
/* What takes the place of the value of a Sec-WebSocket-Extensions field; nothing: the field is left out. */
void ws_extensions_put(struct str value, struct buf *out);
bool ws_is_extensions(struct str name);
/* Fields of ours at the end of the head: those that the request came without. */
void ws_request_put(enum websocket how, const struct ws_handshake *hs, struct buf *out);
/* The Sec-WebSocket-Accept for a key (4.2.2), NUL-terminated. */
enum { WS_ACCEPT = 28 };
void ws_accept_of(const char *key, char out[WS_ACCEPT + 1]);
/* Is this 101 the answer to that request? NULL, with hs->coding set, or a static sentence. protocol: the one that it chose, or
 * STR_NONE: whether it was among those offered is asked with ws_protocol_offered. */
const char *ws_answer_check(struct ws_handshake *hs, const struct h1_head *h, struct str *ret_protocol);
bool ws_protocol_offered(const struct h1_field *fields, size_t n, struct str protocol);
/* A field of the answer that is for us alone. */
bool ws_is_ours(const struct ws_handshake *hs, struct str name);

#endif
