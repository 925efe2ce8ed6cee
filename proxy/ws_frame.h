/* SPDX-License-Identifier: Apache-2.0
 *
 * ws_frame: WebSocket frames of one direction (RFC 6455 5, 7.4, 8.1), read strictly and in any pieces, and written. Pure: bytes in,
 * events out; it keeps nothing of a payload but that of a control frame. It refuses what the two ends of a connection could read
 * differently: a mask where none belongs or none where one does, reserved bits and opcodes that nobody negotiated, lengths that are
 * not minimal or over 2^63-1, control frames that are long or in fragments, a continuation of nothing, a new message within another,
 * a close whose code or reason may not be said. What follows a close frame is nothing any more (RFC 6455 1.4) and is dropped. */
#ifndef PROXY_WS_FRAME_H
#define PROXY_WS_FRAME_H

#include "base/buf.h"
#include "base/str.h"

enum ws_opcode { WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };
enum { WS_HEAD_MAX = 14, WS_CONTROL_MAX = 125, WS_MASK = 4 };
/* Status codes of RFC 6455 7.4.1 that we say ourselves. */
enum {
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_NOT_CONSISTENT = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
};

enum ws_event {
    WS_MORE = 0,  /* all that was given is used: more bytes are needed */
    WS_HEAD,      /* the head of a data frame: opcode, fin, rsv1, length, and its bytes (head_bytes) */
    WS_DATA,      /* a piece of its payload, as it came (masked from offset mask_at on) */
    WS_FRAME_END, /* its payload is complete; with fin the message too */
    WS_CONTROL,   /* a whole control frame: opcode, and its payload, unmasked (control) */
    WS_BAD = -1,
};

struct ws_in {
    /* from whoever begins it */
    bool from_client; /* masked, as RFC 6455 5.1 asks of clients; a server's frames are not */
    bool coded;       /* permessage-deflate was negotiated: RSV1 may stand on the first frame of a message */
    uint64_t frame_max;
    /* of the current frame */
    unsigned char head[WS_HEAD_MAX], head_n, mask[WS_MASK];
    unsigned char opcode;
    bool fin, rsv1;
    uint64_t length, left;
    size_t mask_at; /* of the piece just given: its offset in the mask, 0 to 3 */
    /* of the message, from its first frame to the end of its last */
    bool in_message, text, message_rsv1;
    /* of a control frame */
    unsigned char control[WS_CONTROL_MAX];
    size_t control_n;
    unsigned char state;
    bool closed; /* a close frame came: nothing more is read */
};

struct ws_fault {
    const char *why; /* static sentence */
    unsigned code;   /* with which the connection is to be closed */
};

void ws_in_init(struct ws_in *w, bool from_client, bool coded, uint64_t frame_max);
/* One step: looks at bytes, says how many were used, and what they were. Again with the rest until MORE or BAD. *ret_data: with WS_DATA
 * the piece (borrowed from bytes). */
enum ws_event ws_next(struct ws_in *w, struct str bytes, size_t *ret_used, struct str *ret_data, struct ws_fault *fault);
/* Does the direction stand between two frames? */
bool ws_between_frames(const struct ws_in *w);
/* Was WS_HEAD told and not yet all of the payload? */
bool ws_in_payload(const struct ws_in *w);
/* The head of the current data frame as it came. */
static inline struct str ws_head_bytes(const struct ws_in *w)
{
    return str_of(w->head, w->head_n);
}

/* dst[i] = src[i] ^ mask[(at + i) & 3]; dst may be src. */
void ws_mask(char *dst, const char *src, size_t n, const unsigned char mask[WS_MASK], size_t at);

/* UTF-8 in pieces (RFC 3629: shortest forms, no surrogates, up to U+10FFFF). *state is 0 at first and between characters. */
bool ws_utf8(uint32_t *state, struct str text);

/* Writing. mask NULL: a server's frame. */
void ws_put_head(struct buf *out, unsigned opcode, bool fin, bool rsv1, uint64_t length, const unsigned char *mask);
/* A whole frame; masked: as a client, under a fresh mask. */
void ws_put_frame(struct buf *out, unsigned opcode, bool fin, bool rsv1, struct str payload, bool masked);
/* A close frame; the reason is cut to what fits, and must be ASCII. */
void ws_put_close(struct buf *out, unsigned code, struct str reason, bool masked);
/* May this code be sent in a close frame (RFC 6455 7.4, and those registered since)? */
bool ws_close_code_ok(unsigned code);

#endif
