/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline: many questions on one stream at once (RFC 7766 6.2.1.1): frames of u16 length and message both ways, an id
 * for each question that no other one under way has, answers in any order, found by id and question bit for bit. Pure
 * but for the ids, which are drawn: it moves no bytes and waits for nothing. A question that is given up is answered
 * all the same, later; so many answers to nobody are let pass, and one more breaks the stream. A failure may come
 * without the question: some servers do not repeat what they refuse to read.
 *
 * Memory: what came, at most PIPELINE_IN_MAX (a whole message and a read), and what is to be sent, at most
 * PIPELINE_OUT_MAX. Both are given back when they are empty. */
#ifndef DNS_PIPELINE_H
#define DNS_PIPELINE_H

#include "base/buf.h"
#include "dns/wire.h"

enum {
    PIPELINE_READ = 16384, /* bytes to make room for before a read */
    PIPELINE_IN_MAX = 2 + WIRE_MESSAGE_MAX + PIPELINE_READ,
    PIPELINE_OUT_MAX = 65536,
    PIPELINE_SLOTS = 64, /* power of two */
};

/* In the asker's memory. */
struct pipeline_ask {
    struct pipeline_ask *next, **link; /* the pipeline's; link NULL: in none */
    struct wire_query *wire;           /* its id is drawn by pipeline_put */
};

struct pipeline {
    struct buf in, out;
    struct pipeline_ask *slots[PIPELINE_SLOTS]; /* by id */
    size_t waiting, owed;                       /* questions under way; given up and not answered yet */
    uint64_t messages;                          /* that came, whole */
};

void pipeline_init(struct pipeline *p);
/* No question may be under way. */
void pipeline_done(struct pipeline *p);
/* Puts the question, padded, behind what is to be sent. 0, or -1: no room (nothing changed). */
int pipeline_put(struct pipeline *p, struct pipeline_ask *ask);
/* Gives the question up; its answer may come yet. */
void pipeline_remove(struct pipeline *p, struct pipeline_ask *ask);
/* Takes any question out, when the stream is lost; NULL: there is none. */
struct pipeline_ask *pipeline_lost(struct pipeline *p);

enum pipeline_got {
    PIPELINE_NONE,    /* no whole message is there */
    PIPELINE_ANSWER,  /* to *ret_ask, which is in no pipeline any more */
    PIPELINE_REFUSED, /* a failure under the id of *ret_ask, without its question; it is in no pipeline any more */
    PIPELINE_LATE,    /* to a question that was given up */
    PIPELINE_BROKEN,  /* no message of DNS, or an answer to nothing that was asked: no more can be read */
};
/* What the bytes of `in` hold next. *ret_packet is borrowed until the next call. */
enum pipeline_got pipeline_next(struct pipeline *p, struct pipeline_ask **ret_ask, struct str *ret_packet);

#endif
