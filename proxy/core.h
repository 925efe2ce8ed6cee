/* SPDX-License-Identifier: Apache-2.0
 *
 * core: what the files of the data path share about one worker: its loop, its current view, its channels and tables.
 * Nothing outside proxy/ includes it. */
#ifndef PROXY_CORE_H
#define PROXY_CORE_H

#include "base/fair.h"
#include "base/turns.h"
#include "ca/leaf_cache.h"
#include "dns/dial_client.h"
#include "mint/lease_client.h"
#include "proxy/client_tls.h"
#include "proxy/h1_head.h"
#include "proxy/origin_tls.h"
#include "proxy/origin_versions.h"
#include "proxy/run_login.h"
#include "proxy/stranger.h"
#include "proxy/view.h"

struct client;
struct exchange;
struct origin;
struct pool;
struct agent_table;
struct listener;

/* Things that ended while their own callback may still be on the stack: freed by a task of its own. */
struct corpse {
    struct corpse *next;
    void (*bury)(struct corpse *c);
};

enum { WORKER_TURN = 256 * 1024 /* under a millisecond of inflating */ };
enum { WORKER_SPARES = 16, WORKER_EXCHANGES = 32, WORKER_BLOCK = 64 * 1024, WORKER_REST_MS = 100 };

struct worker {
    struct loop *loop;
    unsigned index;
    struct sink *sink;
    struct view *view;
    uint64_t views; /* numbers given so far */
    struct leaf_cache *leaves;
    struct lease_client *leases;
    struct dial_client *dials;
    struct client_tls *tls;
    struct session_cache *sessions;
    struct pool *pool;
    struct origin_versions versions;
    struct agent_table *agents;
    struct run_logins run_logins;
    struct listener *listeners;
    int fd_most;                /* no client beyond this descriptor: the rest is for origins and roles */
    uint64_t fd_shared;         /* how many of those below it are the agents' to share */
    struct stranger_set strangers; /* clients of whom nobody knows yet who they are */
    uint64_t crowded_ms;        /* when that was said last */
    struct client *clients;     /* all, linked */
    struct exchange *exchanges; /* all that run, linked */
    struct exchange *unsynced;  /* wait for the log under sync: always */
    struct exchange *leaders, *woken; /* dial_share: dial for others too; waited for one that is done */
    struct task wake;
    struct watch synced;
    struct corpse *dead;
    struct task burial;
    struct timer rest;  /* set while some connection still has its TLS buffers */
    struct timer sweep; /* every second: revocations, counted refusals, listeners that paused */
    uint64_t known_ms;  /* of the last exchange_keep_known */
    bool draining;
    uint64_t tunnels_end_ms; /* in a drain: when those that are still open end, so that they have their close */
    struct h1_field fields[H1_FIELDS_MAX]; /* scratch of the head parser */
    struct buf scratch;                    /* scratch of the scrubber and of small answers; wiped */
    char *spares[WORKER_SPARES];           /* empty blocks of WORKER_BLOCK bytes, for buffers between messages */
    unsigned nspares;
    void *exchanges_free[WORKER_EXCHANGES]; /* memory of exchanges that are over, for those to come */
    unsigned nexchanges_free;
    struct fair_stock h2_held;             /* bytes of request bodies, by client_h2.c, and whose they are */
    struct fair_stock h2_answers;          /* bytes of answers, by client_h2*.c and origin_h2*.c, and whose they are */
    uint64_t replay_bytes;                 /* of request bodies kept by all exchanges (exchange.replay) */
    struct fair_stock ws_held;             /* bytes of WebSocket messages that are put together or wait for their host */
    struct turns ws_turns;                 /* inflating and compressing, WORKER_TURN bytes of the former a round */
    uint64_t most_open;                    /* clients, exchanges and idle origins, since memory was given back last */
    uint64_t give_back_ms;                 /* when it is done again; 0: it is not */
    struct worker_stats stats;
};

/* Some connection had traffic: in WORKER_REST_MS it is looked whether it rests. */
static inline void worker_active(struct worker *w)
{
    if (!w->rest.loop)
        timer_set(w->loop, &w->rest, WORKER_REST_MS);
}

/* c->bury runs once no callback of this round is on the stack. */
void worker_bury(struct worker *w, struct corpse *c, void (*bury)(struct corpse *c));

/* Do clients and origins together have all the descriptors that are for them? Then what is idle makes room. */
bool worker_crowded(const struct worker *w);

/* Gives an empty buffer a block to begin with, so that a busy connection does not ask the allocator at every message.
 * Holding one is harmless: worker_take_back, or buf_done, when it is empty again. */
void worker_lend(struct worker *w, struct buf *b);
/* Takes the memory of an empty buffer back; an idle connection holds none. Bytes of a wiped buffer are gone already. */
void worker_take_back(struct worker *w, struct buf *b);

#endif
