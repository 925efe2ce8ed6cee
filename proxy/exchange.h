/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange: one request and its answer, from the parsed head to the `close` event. It knows neither its client's nor its
 * origin's protocol: a client codec makes it and is told through struct client_ops what to send back; an origin codec carries
 * it and is driven through struct origin_ops. Its life is one table of steps that only moves down; only the steps of an attempt
 * (lease, dial, stream) may be taken again: once for a pooled connection that was stale or whose origin did not look at the request,
 * once for an origin that has another version of HTTP, once for a lease whose scope excluded the request and once for a value that the
 * origin answered with 401.
 *
 *   HEAD -> POLICY -> LIVE -> LEASE -> DIAL -> RECORD -> STREAM -> DONE
 *
 * Each step reads only what is to its left: the request head as received (never modified, it is what gets logged), the target,
 * the verdict, the swap plan, the leases, the origin. Bodies pass two filter points: what the client sends is watched for
 * placeholders and real values, what comes back is scrubbed. */
#ifndef PROXY_EXCHANGE_H
#define PROXY_EXCHANGE_H

#include "mint/scrub.h"
#include "mint/swap.h"
#include "proxy/body_watch.h"
#include "proxy/core.h"
#include "proxy/dial_share.h"
#include "proxy/grpc_frames.h"
#include "proxy/h1_body.h"
#include "proxy/ws_handshake.h"

/* A request as its codec read it. Strings and fields borrow from memory that the exchange takes over. */
struct request {
    struct str method;
    struct str target; /* origin form: path and query; "*" for OPTIONS */
    struct h1_field *fields;
    size_t nfields;
    enum h1_body body; /* NONE, LENGTH or CHUNKED (any length not known beforehand) */
    uint64_t length;
    bool expect_continue;
    bool upgrade;      /* asks for another protocol */
    enum websocket websocket; /* ... which is this one: until the host answered 101 it has no body, from then on its body is frames */
    const char *version; /* "1.0", "1.1", "socks5", for the log */
    const char *fault; /* static: the codec found the request unacceptable; NULL: it is fine */
    enum end fault_end;
    char *mem; /* malloc'ed memory behind all of it, or NULL */
};

/* An answer's head on its way to the client, after the exchange took off what must not pass. Borrowed for the call. */
struct answer {
    unsigned status;
    struct str reason;
    const struct field *fields; /* end-to-end, scrubbed, without framing */
    size_t nfields;
    bool no_body;     /* HEAD, 204, 304: no body whatever the length says */
    bool has_length;
    uint64_t length;
    bool switched;    /* 101: what was asked for begins behind this head, both ways and without framing of ours, to the end of either side */
};

struct client_ops {
    /* Interim answers may come several times, the final one once. */
    void (*interim)(struct client *c, struct exchange *x, const struct answer *a);
    void (*head)(struct client *c, struct exchange *x, const struct answer *a);
    void (*body)(struct client *c, struct exchange *x, struct str data);
    void (*end)(struct client *c, struct exchange *x, const struct field *trailers, size_t n);
    /* Our own answer instead: a refusal. Only before a head. */
    void (*refuse)(struct client *c, struct exchange *x, enum end end);
    /* The answer cannot be completed: cut it so that the client sees it was cut. */
    void (*cut)(struct client *c, struct exchange *x);
    /* Send what was gathered. */
    void (*flush)(struct client *c, struct exchange *x);
    /* Is there enough unsent of this answer that the origin should wait? */
    bool (*full)(struct client *c, const struct exchange *x);
    /* The exchange takes (more) body of the request. */
    void (*more)(struct client *c, struct exchange *x);
    /* The exchange is over; forget it. The request's body may still be unread. */
    void (*done)(struct client *c, struct exchange *x);
};

/* Called while x->origin is set; a connection may carry several exchanges at a time. */
struct origin_ops {
    void (*send_head)(struct exchange *x);
    void (*send_body)(struct exchange *x, struct str data);
    void (*send_end)(struct exchange *x, const struct field *trailers, size_t n);
    void (*flush)(struct exchange *x);
    /* Is there enough unsent of this request that the client should wait? */
    bool (*full)(const struct exchange *x);
    /* The client has room again: go on reading. */
    void (*more)(struct exchange *x);
    /* Had the connection carried an exchange before? Then it may be one that the origin has closed meanwhile. Or may the origin refuse
     * the request unread? */
    bool (*reused)(const struct exchange *x);
    /* The exchange lets go (x->origin becomes NULL): keep says that both messages were complete and the connection may serve another. */
    void (*release)(struct exchange *x, bool keep);
};

/* Which of an exchange's leases an answer is for. */
struct lease_slot {
    struct exchange *x;
    size_t index;
};

/* A 401 after a swap (exchange_remint.c): the keeper is asked for another value; some value is another; nothing more is to come. */
enum remint { REMINT_NONE = 0, REMINT_ASKED, REMINT_CHANGED, REMINT_DONE };

/* A CONNECT whose bytes go through unread (exchange_tunnel.c): a ClientHello with the right name was seen, or one that may hide another behind
 * it, or nothing is asked of them. */
enum tunnel { TUNNEL_NO = 0, TUNNEL_TLS, TUNNEL_HIDDEN, TUNNEL_ANY };

enum step { STEP_HEAD = 0, STEP_POLICY, STEP_LIVE, STEP_LEASE, STEP_DIAL, STEP_RECORD, STEP_STREAM, STEP_DONE };

/* What a connection that failed says of the request: it may have been acted on; it was sent into one that was perhaps closed already;
 * the origin said that it did not look at it (GOAWAY, REFUSED_STREAM: RFC 9113 8.7); nothing was sent, since the origin has not the
 * version of HTTP that was offered, and another is now known. */
enum loss { LOSS_FINAL = 0, LOSS_STALE, LOSS_UNPROCESSED, LOSS_VERSION };

struct exchange {
    struct corpse corpse;
    struct exchange *next, **link;           /* of worker.exchanges */
    struct exchange *next_unsynced;
    struct worker *w;
    struct view *view;
    enum step step;

    const struct client_ops *cops;
    struct client *client;
    struct client_stream *client_stream; /* which of its client's, where the codec has several at a time */

    /* head, target, who */
    struct request req;
    const struct agent *agent; /* of view's policy; NULL: unknown */
    bool socks;                /* asked by SOCKS5, and refused */
    enum tunnel tunnel;
    char sni[256];             /* of a tunnel: the server name, escaped; "": none */
    char agent_name[CONFIG_NAME_MAX + 1]; /* survives a change of view, for the log */
    enum scheme scheme;
    struct host host;
    struct ip said; /* the virtual address by which the client named it; family 0: it did not */
    uint16_t port;
    bool bad_target; /* host and port were not read */
    char request_id[27];
    const char *conn_id;
    const char *client_addr;
    bool client_http10;

    /* verdict */
    struct verdict verdict;
    struct swap_plan plan;
    bool covered;    /* some credential of the agent covers the host: answers are read */
    bool live_known; /* LIVE has `live` and asks for `known` */

    /* leases */
    struct lease_set *live;  /* what must not come back from this host */
    struct lease_set *known; /* what the agent itself must not send, to any host; replaced by newer ones only in a tunnel and a WebSocket */
    struct lease *leases[SWAP_MAX];
    struct lease_wait *waits[SWAP_MAX], *live_wait;
    struct lease_slot slots[SWAP_MAX]; /* of the waits */
    size_t leases_missing;
    bool planned, lease_retried;
    enum remint remint;

    /* origin */
    const struct origin_ops *oops;
    struct origin *origin;
    struct origin_stream *origin_stream; /* which of its origin's, where the codec has several at a time */
    struct dial_wait *dial;
    struct dial_share share; /* whom it waits for in its place, or who waits for it */
    struct agent_state *holder; /* whose descriptors count its origin's; NULL: it has not got so far, or its origin's connection keeps that */
    bool http11_only;           /* the origin asked for that */
    bool origin_retried, version_retried, no_pool, attempt_again;
    char origin_addr[64], dns_id[32];

    /* stream */
    bool recorded;      /* `open` was written */
    bool unsynced;      /* in worker.unsynced */
    uint64_t record_at; /* its position, for sync: always */
    bool request_sent;  /* the whole request went to the origin's codec */
    bool head_sent;     /* the final head went to the client */
    bool answer_done;
    bool answer_ended;  /* of a tunnel: the host said its last byte */
    unsigned interims;
    bool continued;     /* one of them was 100: the client sends its body */
    bool sized;         /* the length was said: so much is left of it */
    uint64_t left;
    struct buf replay; /* body sent so far, while it may still have to be sent again */
    bool replayable, streamed; /* streamed: an attempt has sent something of it */
    struct body_watch watch;
    struct body_watch back; /* of a tunnel: the other way */
    struct scrub scrub;
    bool scrubbing;
    bool is_grpc;       /* the answer's body is gRPC's: */
    struct grpc_frames grpc;
    uint64_t grpc_taken, grpc_given; /* bytes of this message: from the host, to the client or held */
    bool coded;         /* the answer's body is in a content coding */
    struct ws *ws;      /* the request asks for a WebSocket */
    bool switched;      /* ... and has it: the bodies are frames */
    uint64_t scrub_generation;
    uint64_t known_ms;  /* of a tunnel: when `known` was asked for */

    /* the record */
    struct timer deadline;
    uint64_t t_start, t_attempt, t_lease, t_wait, t_request_end;
    uint32_t ms_resolve, ms_lease, ms_connect, ms_tls, ms_first_byte;
    uint64_t bytes_in, bytes_out;
    unsigned status;
    enum end end;
    char why[160];      /* what exactly, for message and event; our words */
    uint32_t retry_after_s;
    unsigned nfindings;
    const char *findings[8];
    unsigned char *record; /* encoded fields shared by open and close */
    size_t record_n;
    char tls_version[12], tls_cipher[48], tls_issuer[128];
};

/* Takes req.mem. The codec sets what it knows (agent, scheme, host, port, conn_id, client_addr) and calls exchange_start.
 * NULL: out of memory (req.mem is freed). */
struct exchange *exchange_new(struct worker *w, const struct client_ops *cops, struct client *c, const struct request *req);
/* Runs the steps. May end the exchange (cops->done) before it returns. */
void exchange_start(struct exchange *x);
/* Ends it at once with a refusal (CONNECT and malformed requests); why may be NULL. */
void exchange_refuse(struct exchange *x, enum end end, const char *why);

/* --- from the client codec --- */
/* May body bytes be given now? */
bool exchange_takes_body(const struct exchange *x);
void exchange_request_body(struct exchange *x, struct str data);
void exchange_request_end(struct exchange *x, const struct field *trailers, size_t n);
/* After a batch of body: let it go. */
void exchange_request_flush(struct exchange *x);
/* The request cannot be completed: the client is gone (CLIENT_CLOSED), sent nonsense (BAD_REQUEST) or stalled (TIMEOUT). */
void exchange_request_failed(struct exchange *x, enum end end, const char *why);
/* The client took some of what it was sent. */
void exchange_client_room(struct exchange *x);

/* --- from the origin codec --- */
/* Before the head of an answer is taken: is it to wait, because it is a 401 that another value may spare the client? The codec keeps it
 * and reads it again when ops->more is called. */
bool exchange_remint(struct exchange *x, unsigned status);
/* A head: interim or final. in_hand: body bytes already there after the head. Returns how many of them were used with the head (a
 * whole short body), or -1: the exchange is over. */
ptrdiff_t exchange_answer_head(struct exchange *x, const struct h1_head *h, struct str in_hand);
/* False: the exchange is over. */
bool exchange_answer_body(struct exchange *x, struct str data);
void exchange_answer_end(struct exchange *x, const struct field *trailers, size_t n, bool reusable);
void exchange_answer_flush(struct exchange *x);
/* The same of a tunnel. False: the exchange is over. */
bool exchange_tunnel_answer(struct exchange *x, struct str data);
/* The host says no more; the client may go on. */
void exchange_tunnel_answer_end(struct exchange *x);
/* Nor does it take any more. */
void exchange_tunnel_over(struct exchange *x);
bool exchange_client_full(const struct exchange *x);
/* The origin took some of what it was sent. */
void exchange_origin_room(struct exchange *x);
/* The connection, or its part of one, failed. */
void exchange_origin_failed(struct exchange *x, enum end end, const char *why, enum loss loss);
/* The origin connection is ready to carry it (dialled, TLS verified). */
void exchange_origin_ready(struct exchange *x);

/* Ends it from outside (revoked, drained, timed out): a refusal when nothing was sent yet, else a cut. */
void exchange_stop(struct exchange *x, enum end end, const char *why);
/* The log has written so far: exchanges that waited go on. */
void exchange_synced(struct worker *w);
/* What lasts is judged by what is live, also while nothing moves: a set that nobody asks for is forgotten (mint/lease_client.h). Every
 * EXCHANGE_KNOWN_MS. */
enum { EXCHANGE_KNOWN_MS = 10000 };
void exchange_keep_known(struct worker *w);
/* A drain of so many ms begins: tunnels do not outlast it. */
void exchange_tunnels_drain(struct worker *w, uint64_t ms);
/* A new view: whatever it would refuse now is stopped. */
void exchange_review(struct worker *w);

#endif
