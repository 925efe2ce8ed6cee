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
};

/* Starts everything on this configuration ({PORT} stands for the listener's port). 0, or -1 with words in out. */
int rig_start(struct rig *r, struct str config, char *why, size_t why_size);
void rig_stop(struct rig *r);
/* A new snapshot from another configuration. */
int rig_reload(struct rig *r, struct str config, char *why, size_t why_size);
/* `github -> "value" ttl 300` or `github refuse credential_denied`. */
int rig_mint(struct rig *r, struct str text);
/* `api.test 203.0.113.7` or `api.test refuse address_denied`. */
int rig_name(struct rig *r, struct str text);
/* The keeper revokes every lease of a credential. */
void rig_revoke(struct rig *r, struct str credential);
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
};
struct actor *actor_client(struct rig *r);
/* TLS as a client towards the worker, trusting our CA; completes within rig_settle. */
int actor_tls(struct rig *r, struct actor *a, const char *sni);
int actor_send(struct rig *r, struct actor *a, struct str bytes);
/* Half-closes. */
void actor_shut(struct actor *a);
void actor_free(struct actor *a);
/* The oldest origin connection that was dialled and not taken. NULL: none. */
struct actor *rig_take_origin(struct rig *r);

#endif
