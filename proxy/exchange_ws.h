/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_ws: an exchange whose request asks for a WebSocket, however its client asked (req.websocket). Until the host answers 101 it
 * is an exchange like any other; from then on its two bodies are frames, read strictly in both directions.
 *
 * From the client: text, and what was compressed, is inflated and watched like any body: a placeholder is inert, a live real value cuts.
 * Frames go on as they came, while they come. Only where a credential has the slot `websocket` for this request is each text message put
 * together (up to limits.ws_message_bytes), swapped, and sent as one frame under a fresh mask; input waits while a lease is asked for.
 * A value never enters a compressor: what was swapped goes in stored blocks.
 *
 * From the host: frames go on as they came once they are found right. Where some credential of the agent covers the host, what messages
 * say is inflated and scrubbed, across the borders of fragments, and goes on without compression in frames of our own.
 *
 * What ends it for a reason of ours is told the client in a close frame, where it stands between two frames. */
#ifndef PROXY_EXCHANGE_WS_H
#define PROXY_EXCHANGE_WS_H

#include "mint/swap_text.h"
#include "proxy/exchange.h"
#include "proxy/ws_frame.h"
#include "proxy/ws_leases.h"

/* The request asks for one: is that done properly? NULL, and x->ws is there; or why not, with the refusal. */
const char *exchange_ws_check(struct exchange *x, enum end *ret_end);
/* Nothing calls back any more. */
void exchange_ws_cancel(struct exchange *x);
void exchange_ws_free(struct exchange *x);
/* What the request's head needs of it. */
const struct ws_handshake *exchange_ws_handshake(const struct exchange *x);

/* The host answered 101. False: the exchange is over. */
bool exchange_ws_open(struct exchange *x, const struct h1_head *h);

/* --- from then on (x->switched) --- */
/* Bytes of the client, all of them taken. */
void exchange_ws_from_client(struct exchange *x, struct str data);
/* The client ended its side. */
void exchange_ws_client_end(struct exchange *x);
/* Is there something that must go to the host, or be looked at, before more of the client is taken? */
bool exchange_ws_stalled(const struct exchange *x);
/* The host has room. */
void exchange_ws_origin_room(struct exchange *x);
/* Bytes of the host, all of them taken. False: the exchange is over. */
bool exchange_ws_from_origin(struct exchange *x, struct str data);
/* Is some of that still to be read? Then nothing more of the host is taken. */
bool exchange_ws_unread(const struct exchange *x);
/* Values that became live since are watched for; anyway: also when nothing seems to have changed. */
void exchange_ws_refresh(struct exchange *x, bool anyway);
/* What was gathered for the client was sent: where the kernel took all at once, nobody else will say that there is room again. */
void exchange_ws_flushed(struct exchange *x);
/* The client has room: goes on with what is unread. */
void exchange_ws_client_room(struct exchange *x);
/* The host ended its side, properly. */
void exchange_ws_origin_end(struct exchange *x);
/* How long nothing may move. */
uint64_t exchange_ws_idle_ms(const struct exchange *x);
/* Both ends (or the host) said close: what is left is to close connections. */
bool exchange_ws_closed(const struct exchange *x);
bool exchange_ws_host_closed(const struct exchange *x);
/* It ends otherwise than by the host's end: tells the client where frames allow it. True: it was told, and is let go in peace. */
bool exchange_ws_goodbye(struct exchange *x, enum end end);
/* Under this policy, would its messages still be swapped, where they were? */
bool exchange_ws_review(const struct exchange *x, const struct policy *now);
/* Does a message that it swapped hold the value of this lease? */
bool exchange_ws_uses(const struct exchange *x, const char *lease_id);
/* Credentials that it swapped in messages, for the log. */
const struct credential *exchange_ws_credential(const struct exchange *x, size_t i);

/* --- only for exchange_ws*.c --- */
enum { WS_FRAME_COST = 256 }; /* of a turn (core.h), for a message or a frame that is read, besides what is in it */
struct ws {
    struct exchange *x;
    struct ws_handshake hs;
    unsigned close_code; /* that a fault asks for; 0: by how it ends */

    /* from the client (exchange_ws_client.c) */
    struct ws_in up;
    bool slot;      /* text is put together and swapped */
    bool whole;     /* this message is put together */
    bool taking;    /* on the stack */
    bool stopped;   /* something must be done before more is taken */
    bool ended;     /* nothing comes after the rest */
    bool inflating; /* of coded, what lies past coded_at was not looked at yet */
    struct ws_inflate *inflate;
    uint32_t utf8;
    uint64_t size; /* of the message, inflated */
    uint64_t known_generation;
    struct turn up_turn;
    struct buf coded; /* a piece without its mask */
    size_t coded_at, coded_mask_at;
    struct buf rest; /* came while something had to wait */

    /* a message that is put together (exchange_ws_swap.c) */
    struct ws_deflate *deflate;
    struct body_watch texts; /* it is watched for values only: its placeholders are judged by the swap */
    struct buf message;
    uint64_t held; /* of worker.ws_held */
    struct swap_plan plan;
    struct swap_text_walk walk; /* planning: where it is */
    struct lease *leases[SWAP_MAX];
    struct lease_wait *waits[SWAP_MAX];
    struct lease_slot slots[SWAP_MAX];
    size_t leases_missing;
    bool lease_retried;
    bool planning;    /* whole; its placeholders are looked for */
    bool ready;       /* with its leases */
    bool compressing; /* what is left of message goes to made */
    struct buf made;  /* wiped: the payload of a frame; once it is whole the frame's head was sent */
    unsigned char made_mask[WS_MASK];
    size_t made_at;
    const struct credential *used[SWAP_MAX]; /* in any message */
    struct lease *used_leases[SWAP_MAX]; /* the newest of each */
    size_t nused;
    struct ws_leases older; /* that the host may still take */

    /* from the host (exchange_ws_host.c) */
    struct ws_in down;
    bool reads; /* what messages say is inflated and scrubbed */
    bool begun; /* a frame of this message went to the client */
    struct ws_inflate *down_inflate;
    uint32_t down_utf8;
    uint64_t down_size;
    struct turn down_turn;
    struct buf gather; /* wiped: scrubbed, not yet in a frame */
    struct buf unread; /* wiped */
};
/* False: out of memory. */
bool exchange_ws_client_init(struct exchange *x);
bool exchange_ws_swap_init(struct exchange *x);
bool exchange_ws_host_init(struct exchange *x);
void exchange_ws_client_done(struct exchange *x);
void exchange_ws_swap_done(struct exchange *x);
void exchange_ws_host_done(struct exchange *x);

/* The client sent what ends the connection. The second returns false. */
void exchange_ws_fault(struct exchange *x, const struct ws_fault *fault);
bool exchange_ws_wrong(struct exchange *x, unsigned code, const char *why);
static inline struct ws_fault ws_fault_of(unsigned code, const char *why)
{
    return (struct ws_fault) { .why = why, .code = code };
}
/* False: the exchange is over. */
bool exchange_ws_give_origin(struct exchange *x, struct str data);
/* Has the host room, perhaps once what it has is written? */
bool exchange_ws_has_room(struct exchange *x);
/* A piece of a message that is put together, inflated. False: the exchange is over. */
bool exchange_ws_gather(struct exchange *x, struct str piece);
/* That was all of it: what follows is exchange_ws_push. */
void exchange_ws_gathered(struct exchange *x);
/* Makes and sends what was put together. True: all of it is with the host's side. */
bool exchange_ws_push(struct exchange *x);

#endif
