/* SPDX-License-Identifier: Apache-2.0
 *
 * rig: a real worker, signer and logger in one process and loop, with fakes for the clock, the resolver and dial, and the mint
 * (keeper). What a scenario talks to. */
#ifndef TESTS_SCENARIO_RIG_H
#define TESTS_SCENARIO_RIG_H

#include "base/buf.h"
#include "base/loop.h"

#include <openssl/ssl.h>

struct actor;

struct rig {
    struct loop *loop;
    struct worker *worker;
    struct logger *logger;
    struct sink *sink;
    struct signer *ca, *origin_ca;
    struct policy *policy;
    struct placeholder_table *table;
    struct msg_channel *keeper, *resolver;
    SSL_CTX *client_ctx, *origin_ctx;
    EVP_PKEY *origin_key;
    struct buf ca_pem, origin_ca_pem, keys;
    char dir[64];
    unsigned short port;
    unsigned dials;
    uint64_t lease_number;
    struct mint_rule *mints;
    struct dial_rule *names;
    struct actor *waiting; /* origin connections not yet taken by the script */
    struct watch_entry *watches;
    struct live_lease *lives;
    struct rig_file *files;
    bool narrow;                         /* the kernel keeps little between client and worker */
    struct buf greeting;                 /* what an origin in clear text says as soon as it is connected */
    bool greeting_ends;                  /* ... and then no more */
    bool keeper_silent, resolver_silent; /* take questions, never answer */
};

/* Starts everything on this configuration ({PORT} stands for the listener's port). 0, or -1 with words in out. */
int rig_start(struct rig *r, struct str config, char *why, size_t why_size);
/* Ends the worker (every exchange with it) and lets the log be written; rig_log still works. */
void rig_end_worker(struct rig *r);
void rig_stop(struct rig *r);
/* A side file of the configuration (a login's token): `NAME BYTES`. */
int rig_file(struct rig *r, struct str text);
/* `away`: the channel is closed. `back`: a new one. `silent`: nothing is answered any more. 0, or -1: no such word. */
int rig_keeper(struct rig *r, struct str what);
int rig_resolver(struct rig *r, struct str what);
/* Does the loop rest when there is nothing to do? False: something spins. */
bool rig_calm(struct rig *r);
/* A new snapshot from another configuration. */
int rig_reload(struct rig *r, struct str config, char *why, size_t why_size);
/* `github -> "value" ttl 300 [methods GET,POST] [hosts api.test]` or `github refuse credential_denied`. */
int rig_mint(struct rig *r, struct str text);
/* `api.test 203.0.113.7` or `api.test refuse address_denied`. */
int rig_name(struct rig *r, struct str text);
/* The keeper revokes every lease of a credential. */
void rig_revoke(struct rig *r, struct str what); /* a credential, or a credential and "oldest" */
/* Runs the loop until nothing happens any more (real time, bounded). */
void rig_settle(struct rig *r);
/* All log lines so far, appended to out. */
void rig_log(struct rig *r, struct buf *out);

/* One end of a connection, blocking in the script's eyes. */
struct actor {
    struct actor *next;
    struct watch watch;
    int fd;
    SSL *ssl;
    char host[256];
    struct buf got;    /* everything received */
    size_t taken;      /* how much of it the script consumed */
    bool ended, cut;   /* properly, or not */
    char error[128];
    size_t piece;      /* what is sent goes in pieces of so many bytes, each a write (and a TLS record); 0: as it comes */
    bool together;     /* ... and the worker sees them all at once */
    size_t split;      /* the next bytes go in two pieces, the first of this size; 0: in one */
    bool deaf;         /* reads nothing */
    size_t pour, poured, drained; /* bytes of the pattern still to send, sent, received */
};
/* A connection to the listener; from: the client's own address ("127.0.0.2"), or NULL. */
struct actor *actor_client_from(struct rig *r, const char *from);
static inline struct actor *actor_client(struct rig *r)
{
    return actor_client_from(r, NULL);
}
/* Trusts nothing: refuses our certificate with an alert. */
int actor_distrust(struct rig *r, struct actor *a, const char *sni);
/* Sends n bytes of the pattern whenever there is room. */
void actor_pour(struct actor *a, size_t n);
/* Takes n bytes of the pattern from what came. 0; -1: other bytes came; 1: not all there yet. */
int actor_drink(struct actor *a, size_t n);
void actor_hear(struct actor *a, bool on);
/* TLS as a client towards the worker, trusting our CA; completes within rig_settle. */
int actor_tls(struct rig *r, struct actor *a, const char *sni);
/* As its piece and split say. 0, or -1: not within ten seconds. */
int actor_send(struct rig *r, struct actor *a, struct str bytes);
/* Half-closes. */
void actor_shut(struct rig *r, struct actor *a);
void actor_free(struct actor *a);
/* The oldest origin connection that was dialled and not taken. NULL: none. */
struct actor *rig_take_origin(struct rig *r);

#endif
