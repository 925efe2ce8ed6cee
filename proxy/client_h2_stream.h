/* SPDX-License-Identifier: Apache-2.0
 *
 * client_h2_stream: what the files client_h2*.c share: the connection's part of HTTP/2, its streams, and what each costs. See
 * client_h2.h for what always holds. */
#ifndef PROXY_CLIENT_H2_STREAM_H
#define PROXY_CLIENT_H2_STREAM_H

#include "base/bucket.h"
#include "proxy/client_h2.h"
#include "proxy/h2_head.h"

#include <nghttp2/nghttp2.h>

enum { H2_STREAM_HIGH = 64 * 1024, /* of an answer, unsent, before its origin waits */
       H2_OUT_HIGH = 128 * 1024,   /* made at once, for one write */
       H2_RESETS_KEPT = 128 };     /* a second header block of an older one (trailers on their way) costs the client its connection. More than the streams
                                      that one connection has by default, all of which may be reset at once; a higher limits.h2_streams has that cost */

/* What the connection waits for, each with the time when that has been too long; 0: it does not wait for it. */
enum h2_wait { WAIT_IDLE, WAIT_HEAD, WAIT_WRITE, WAIT_STALL, WAITS };

struct client_h2 {
    nghttp2_session *session;
    struct client_stream *streams;
    size_t nstreams;
    struct client_stream *dirty; /* got body since they were flushed */
    struct client_stream *room;  /* an exchange waits for room in them, and there is some */
    bool busy, want_output;
    bool goodbye; /* GOAWAY was sent, or is about to be */
    bool head_open;
    uint64_t due_ms[WAITS];
    const char *fault; /* why the connection was ended, for the log; NULL: it was not, or by the client */
    struct bucket control, resets;
    int32_t highest;                 /* stream that the client opened */
    int32_t resets_sent[H2_RESETS_KEPT]; /* streams that we reset: frames for them may be on their way. A ring */
    unsigned next_reset;
    uint64_t carried; /* bytes of bodies that no control frame was allowed for yet */
};

struct client_stream {
    struct client_stream *next, **link;
    struct client_stream *next_dirty, *next_room;
    bool in_dirty, in_room;
    struct client *c;
    struct exchange *x; /* NULL: it is over; what is in `out` is still sent */
    int32_t id;
    struct h2_head head; /* the block that comes, or the trailers that wait */
    struct buf in;       /* held: the exchange does not take it yet */
    uint64_t owner;      /* whose share of worker.h2_held that is, and of worker.h2_answers what is in out */
    bool in_end, end_given;
    struct buf out;
    struct field *trailers; /* one block with their bytes */
    size_t ntrailers;
    bool out_end;
    bool answered;  /* its final head was submitted */
    bool closed;    /* nothing more may be submitted for it */
    bool cut;       /* ends with RST_STREAM behind what is in out */
    bool deferred;  /* nghttp2 waits for body */
    bool starved;   /* full() said so */
    bool was_reset; /* by RST_STREAM, from either side */
    bool reset_here;
    uint32_t reset_after;    /* sent behind our answer; 0: none is */
    uint64_t moved_ms;       /* since when what is in out waits, or the rest of its body is thrown away */
    bool drains;             /* answered whole before its body was: the rest is read and thrown away, as far as that is little. Some clients
                              * take RST_STREAM(NO_ERROR), which RFC 9113 8.1 permits here, for a failure, and show no answer */
    uint64_t drained;
};

/* NULL: the session knows none, or it is over. */
struct client_stream *h2_stream_at(nghttp2_session *session, int32_t id);
struct client_stream *h2_stream_new(struct client *c, int32_t id);
void h2_stream_free(struct client_stream *s);
/* Puts it into out, unless the agent has its share of such. False: it does not fit. */
bool h2_keep_answer(struct client_stream *s, struct str data);
/* n bytes of out are gone. */
void h2_answer_gone(struct client_stream *s, size_t n);
/* It got body since its exchange was flushed. */
void h2_mark_dirty(struct client_stream *s);
/* Its exchange waited for room, and there is some. */
void h2_mark_room(struct client_stream *s);
/* RST_STREAM, unless it has had one. */
void h2_reset(struct client_stream *s, uint32_t code);
void h2_give_window(struct client_stream *s, size_t n);

/* GOAWAY, and the end once it is sent. why: static, for the log. */
void h2_end_connection(struct client *c, uint32_t code, const char *why);
/* A DATA frame with so many bytes, either way. */
void h2_carried(struct client *c, size_t n);
/* A frame that carries nothing; a stream that ends by RST_STREAM. More of them than are allowed end the connection. */
void h2_count_control(struct client *c);
void h2_count_reset(struct client *c);

/* client_h2_request.c */
/* The head is complete: an exchange for it. end: no body follows. */
void h2_request(struct client_stream *s, bool end);
/* The session found it malformed and resets it. */
void h2_malformed(struct client_stream *s);
/* What is held of the body goes on, as far as the exchange takes it. */
void h2_push_body(struct client_stream *s);
/* Keeps bytes that the exchange does not take yet. */
void h2_hold(struct client_stream *s, struct str data);
/* Forgets them. */
void h2_drop_held(struct client_stream *s);

/* client_h2_answer.c */
extern const struct client_ops client_h2_ops;
int h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source, void *user);

/* client_h2_frames.c */
/* The session with its callbacks. 0, or -1: out of memory. */
int h2_session_new(struct client *c);

#endif
