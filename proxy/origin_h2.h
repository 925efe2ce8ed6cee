/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_h2: HTTP/2 towards an origin (RFC 9113): one connection carries many exchanges, each a stream of its own. origin_h2.c is the
 * connection: bytes in and out, what a hostile origin may cost, how it ends; origin_h2_session.c writes down what nghttp2 says;
 * origin_h2_stream.c is one stream: its request, its answer. nghttp2 runs the protocol; what an origin says is judged here once more before an exchange sees it.
 *
 * Who may call whom. nghttp2's callbacks only write down what happened, in the stream and in the connection's queue; they call no
 * exchange, and never nghttp2_session_mem_recv or _mem_send. At most one frame is fed at a time, and after it the exchanges are told what was
 * written down. So an exchange that is told may do whatever it likes: end, let go of its stream, start another on this connection, end
 * others. Whatever tells one asks afterwards whether stream, exchange and connection are still there. Streams and connection are freed
 * by burial only, when nothing of this is on the stack. */
#ifndef PROXY_ORIGIN_H2_H
#define PROXY_ORIGIN_H2_H

#include "base/bucket.h"
#include "proxy/h2_head.h"
#include "proxy/origin.h"

#include <nghttp2/nghttp2.h>

/* A body that waits for its window is held here; past so much its client waits. */
enum { ORIGIN_H2_OUT_HIGH = 128 * 1024, ORIGIN_H2_WINDOW = 256 * 1024 };

/* What the origin said of a stream so far. */
enum h2_heard { HEARD_NOTHING = 0, HEARD_INTERIM, HEARD_HEAD, HEARD_ALL };
/* How it ended for nghttp2. */
enum h2_closing { STREAM_OPEN = 0, STREAM_CLOSED, STREAM_UNPROCESSED };

struct origin_stream {
    struct corpse corpse;
    struct origin *o;
    struct exchange *x;                    /* NULL: it let go */
    struct origin_stream *next, **link;    /* of the connection's */
    struct origin_stream *ready_next, **ready_link; /* has something to tell; link NULL: it has not */
    int32_t id;                            /* 0: its head was not given to nghttp2 yet */

    /* the request */
    struct buf out;      /* wiped: body that nghttp2 has not asked for */
    struct str lent;     /* body behind that, for the length of a call */
    bool ended;          /* no more will come */
    bool deferred;       /* nghttp2 was told to ask again when there is some */
    bool waits, moved;   /* some was left; of what was left some went */
    struct h2_head trailers;

    /* the answer */
    enum h2_heard heard;
    bool head_waits;     /* it was not told yet */
    struct h2_head head, tail;
    struct str piece;    /* body in the frame that is being read */
    struct buf in;       /* body that the client had no room for: at most a window */
    uint64_t owner;      /* whose share of worker.h2_answers that is */
    enum h2_closing closing;
    bool peer_reset, reset; /* RST_STREAM: by the origin; by us, sent or on its way */
    uint32_t code;
    const char *fault;   /* static: what was wrong with the answer */
    bool telling;
    bool unflushed;      /* the client was given some of it */
    bool first;          /* on its connection */
    uint64_t frames_before, sent_ms; /* what the connection had read when the request went, and when that was */
};

struct origin_h2 {
    nghttp2_session *session;
    struct origin_stream *streams;
    size_t nstreams;
    struct origin_stream *ready, **ready_end;
    size_t frame_left;   /* of the frame that is being read */
    uint64_t frames;     /* read */
    struct bucket control; /* frames that carry nothing */
    uint64_t carried;    /* bytes of bodies that were not turned into an allowance yet */
    bool running;        /* an event is being worked on: what is to be written is written at its end */
    bool no_more;        /* takes no more streams: it went away, refused one, answers nothing, or ran out of numbers */
    uint64_t blocked_ms; /* since when the kernel takes nothing; 0: it does */
    bool unwritable;
    bool lost;           /* it ended; what it said before is still being told */
    const char *fault;   /* static: what broke it */
};

extern const struct origin_ops origin_h2_ops;

/* The origin chose h2: makes the session. o->x becomes its first stream. 0, or -1: out of memory. */
int origin_h2_begin(struct origin *o);
/* May it take one more? */
bool origin_h2_room(const struct origin *o);
/* Gives x a stream of it. 0, or -1: out of memory. */
int origin_h2_attach(struct origin *o, struct exchange *x);
void origin_h2_event(struct origin *o, uint32_t ev);
/* Idle: reads what it may have said. False: it is no use any more (and closed). */
bool origin_h2_quiet(struct origin *o);
/* The connection is over: its exchanges are told, each once, but for those whose whole answer is here. */
void origin_h2_lost(struct origin *o, enum end end, const char *why);
void origin_h2_free(struct origin *o);

/* --- between its files --- */
/* The nghttp2 session of o->h2, with its callbacks and options; covered: its memory is wiped. 0, or -1: out of memory. */
int origin_h2_session(struct origin *o, bool covered);
/* Writes what is to be written, at the end of the event that is being worked on if there is one. */
void origin_h2_write(struct origin *o);
/* Once this event is worked on, together with what others write by then: many requests, one system call. */
void origin_h2_write_soon(struct origin *o);
void origin_h2_queue(struct origin_stream *s);
void origin_h2_unqueue(struct origin_stream *s);
/* The stream is done with; its exchange is not told. */
void origin_h2_drop(struct origin_stream *s);
/* n bytes of what was kept in `in` are gone. */
void origin_stream_gone(struct origin_stream *s, size_t n);
/* Tells the exchange what was written down. */
void origin_stream_tell(struct origin_stream *s);
/* The connection broke: how the stream ends. */
void origin_stream_lost(struct origin_stream *s, enum end end, const char *why);
ssize_t origin_stream_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length, uint32_t *flags, nghttp2_data_source *source,
                           void *ctx);

#endif
