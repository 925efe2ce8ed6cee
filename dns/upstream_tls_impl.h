/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_tls, inside: what its three files share. A connection (upstream_tls_conn.c) holds the questions that are
 * under way on it; a question (upstream_tls_ask.c) holds which servers of its step it was at. Whatever happens to
 * either ends in tls_ask_place: the next server that takes it, or the end of the leg. Nothing here calls the front: a
 * leg's end is a task. */
#ifndef DNS_UPSTREAM_TLS_IMPL_H
#define DNS_UPSTREAM_TLS_IMPL_H

#include "base/fair.h"
#include "base/stream.h"
#include "dns/pipeline.h"
#include "dns/upstream_tls.h"
#include "policy/origin_trust.h"

struct tls_conn;
struct tls_server {
    size_t step;
    struct ip ip;
    uint16_t port;
    struct host name;
    SSL_SESSION *session;  /* for the next connection, which uses it up */
    int64_t session_until; /* when a certificate of the chain that was verified ends, seconds since 1970 */
    unsigned failures;     /* in a row */
    uint64_t retry_ms;     /* not connected to before */
    struct server_fault fault;
    uint64_t first_ms[UPSTREAM_OWNERS]; /* asked first until then, by owner: it answered where another was silent */
    struct fair_rate connects;
};

enum conn_state { CONN_CONNECTING = 1, CONN_HANDSHAKE, CONN_UP };
struct tls_conn {
    struct watch watch;
    struct upstream_tls *t;
    struct tls_server *server; /* NULL: takes no questions any more */
    size_t owner;              /* whose questions it takes: what one asks may make a server close it */
    struct tls_conn *next, **link;
    enum conn_state state;
    struct stream stream;
    struct origin_proof proof;
    struct pipeline pipe;
    unsigned noise;
    struct timer timer; /* until it must be ready; at rest: until it is closed */
    struct task send;   /* what was put */
    struct timer turn;  /* what OpenSSL holds is read */
};

struct tls_ask {
    struct pipeline_ask ask;
    struct upstream_tls *t;
    struct upstream_leg *leg;
    struct tls_conn *conn; /* NULL: between two */
    size_t at;             /* the server, by its place in the list … */
    uint64_t generation;   /* … of that generation */
    unsigned tried;        /* a bit for each place */
    uint64_t messages;     /* how many had come on the connection when it was put there */
    bool again;            /* was asked once more after a loss */
    bool timed_out;
    struct timer timer;
    struct tls_ask *lost; /* the next of those that lost their connection */
};

struct upstream_tls {
    struct loop *loop;
    unsigned patience_ms;
    SSL_CTX *trust;
    struct tls_server servers[DNS_SERVERS_MAX];
    size_t n;
    uint64_t generation;
    struct tls_conn *conns;
    uint64_t strays;
};

/* A line for the operator, at most one a minute for each server. so: what comes of it. */
void tls_server_complain(struct upstream_tls *t, struct tls_server *s, const char *what, const char *so,
                         const char *hint);
/* It is left alone for a while, longer each time in a row. */
void tls_server_failed(struct upstream_tls *t, struct tls_server *s, const char *what, const char *hint);
/* Drops its session. */
void tls_server_forget(struct tls_server *s);

/* Once, before the first context. 0 or -1. */
int tls_conn_init(void);
/* Sessions of this context's connections are kept with their servers. */
void tls_conn_sessions(SSL_CTX *ctx);
/* The server's for this owner, or a new one; NULL: it takes no question now. */
struct tls_conn *tls_conn_to(struct upstream_tls *t, struct tls_server *s, size_t owner);
/* It takes no new question. */
void tls_conn_retire(struct tls_conn *c);
/* To be said when a question was taken off it: where none is left it is closed, soon or at once. Frees nothing now. */
void tls_conn_rest(struct tls_conn *c);
/* Frees it; its questions are asked elsewhere. served: it had answered, so they may be asked there once more. */
void tls_conn_lost(struct tls_conn *c, bool served);
/* Frees one without questions. */
void tls_conn_free(struct tls_conn *c);

/* To the next server of its step that takes it; or its end. */
void tls_ask_place(struct tls_ask *a);
/* An answer came, which repeats the question; or a failure that does not. */
void tls_ask_answered(struct tls_ask *a, struct str packet);
void tls_ask_refused(struct tls_ask *a, struct str packet);

#endif
