/* SPDX-License-Identifier: Apache-2.0
 *
 * origin: one connection to an origin: dialled by the resolver, TLS verified, then the codec that the origin chose: HTTP/1.1, one exchange
 * after another, or HTTP/2 (origin_h2.h), many at a time. Only origin*.c and pool.c know this struct. */
#ifndef PROXY_ORIGIN_H
#define PROXY_ORIGIN_H

#include "base/stream.h"
#include "proxy/exchange.h"

enum origin_state {
    ORIGIN_NEW = 0,
    ORIGIN_PARENT, /* our CONNECT through the parent proxy is being answered */
    ORIGIN_TLS,
    ORIGIN_BUSY,
    ORIGIN_IDLE,
    ORIGIN_DEAD,
};

struct origin {
    struct corpse corpse;
    struct worker *w;
    struct exchange *x; /* the one it carries, or NULL; with HTTP/2 the one that it was dialled for, until it is ready */
    struct origin_h2 *h2; /* NULL: HTTP/1.1, or not known yet */
    struct view *view;
    struct stream stream;
    struct watch watch;
    struct task resume; /* bytes are left that the socket will not announce */
    struct task write;  /* HTTP/2: what the exchanges of this event wrote goes together */
    uint64_t active_ms; /* of the last event or write */
    bool rested;        /* its TLS buffers were given back since */
    enum origin_state state;
    struct host host;
    uint16_t port;
    enum scheme scheme;
    bool raw; /* a tunnel: no TLS of ours, no codec */
    bool offered_h2;
    char addr[64];
    char tls_version[12], tls_cipher[48], tls_issuer[128];

    /* this exchange */
    bool chunked;       /* our body goes chunked */
    bool sent_all;
    bool switched;      /* to a WebSocket: bytes both ways, and each side ends for itself */
    bool shut;          /* ... ours has */
    bool in_body;       /* the answer's final head was read */
    bool got_byte;      /* of an answer */
    bool keep_alive;
    bool reading;       /* guards against re-entry */
    bool raw_ended;     /* of a tunnel: it said its last byte */
    bool raw_lost;      /* of a tunnel: it takes no more bytes */
    bool interrupted;   /* the client was full, or a 401 waits for another value: bytes wait in `in` */
    size_t head_from;
    struct h1_body_in body;
    struct buf in;      /* read, not parsed */
    struct buf out;     /* wiped: made, not written */

    /* the pool */
    unsigned served;
    uint64_t idle_round; /* of the loop, in which it became idle */
    struct origin *key_next, *newer, *older; /* of the key's bucket; of the LRU */
    bool listed; /* in the bucket: found by whoever wants one of this key */
    bool pooled; /* in the LRU: idle */
    struct agent_state *holder; /* HTTP/2: whose descriptors count it while it carries exchanges */
    struct timer idle;
    uint64_t key_hash;
    size_t key_n;
    char key[];
};

extern const struct origin_ops origin_h1_ops, origin_raw_ops;

/* A tunnel's (origin_raw.c): an event of its socket; it may be read; all that waited was written. */
void origin_raw_event(struct origin *o, uint32_t ev);
void origin_raw_readable(struct origin *o);
void origin_raw_flushed(struct origin *o);

/* Is HTTP/2 wanted for it? The one place that decides what is offered (ALPN) and which connections are taken from the pool. */
bool origin_wants_h2(const struct exchange *x);

/* TLS and parent are done: hand it to the exchange. */
void origin_ready(struct origin *o);
/* Starts carrying o->x (fresh or from the pool). */
void origin_h1_begin(struct origin *o);
void origin_h1_readable(struct origin *o);
/* Nothing of a request is on it: has the origin said nothing and left it open? Session tickets and key updates are no word. IO_AGAIN:
 * so it is; IO_OK: a byte came, which answers nothing; else it is closed. */
enum io origin_h1_quiet(struct origin *o);
/* Closes and frees it; tells nobody. */
void origin_close(struct origin *o);
/* The connection failed under an exchange, or idle. */
void origin_failed(struct origin *o, enum end end, const char *why);
/* Writes what is in out. False: it failed (the exchange was told). */
bool origin_write(struct origin *o);

#endif
