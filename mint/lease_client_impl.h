/* SPDX-License-Identifier: Apache-2.0
 *
 * lease_client, inside: what lease_client.c (channel, registry, sweep), lease_get.c (cache and flights) and
 * lease_live.c (subscriptions and sets) share. Nobody else includes it.
 *
 *   known   a lease that came from the keeper, once, however often it was sent: one object, so that a revocation finds
 * it while an exchange still holds it. Used by cache entries and subscriptions (users). entry   the cache: (credential,
 * agent, host, port) -> known, least recently used go first flight  one LEASE_GET on its way, and everyone who waits
 * for it sub     one watched (agent, credential) and its live leases view    (agent, host): the subs that its answers
 * are scrubbed of, and the set made of them
 *
 * Everything is capped; hash chains are short because the caps are. A cap that is hit refuses the new, never forgets
 * what must be scrubbed. */
#ifndef MINT_LEASE_CLIENT_IMPL_H
#define MINT_LEASE_CLIENT_IMPL_H

#include "base/fair.h"
#include "mint/lease_client.h"
#include "mint/lease_wire.h"

enum {
    LC_BUCKETS = 2048,      /* of every table; a power of two */
    LC_ENTRIES_MAX = 16384, /* cached leases of one worker */
    LC_FLIGHTS_MAX = 8192,  /* questions to the keeper at a time */
    LC_WAITS_MAX = 65536,   /* exchanges waiting */
    LC_SUBS_MAX = 16384,
    LC_VIEWS_MAX = 4096,
    LC_IDLE_MS = 55000, /* with the sweep's interval: at most 60 s */
    LC_SWEEP_MS = 5000,
    LC_AWAY_MS = 1000,       /* how long lease_live says -1 after a deadline, before it tries again */
    LC_RECHECK_MS = 3600000, /* a wall clock may jump: no timer on it sleeps longer */
};

/* Chained hash table with a fixed number of buckets. */
struct hnode {
    struct hnode *next, **link;
    uint64_t hash;
};
struct htab {
    struct hnode *v[LC_BUCKETS];
    size_t n;
};
static inline void htab_add(struct htab *t, struct hnode *h, uint64_t hash)
{
    struct hnode **at = &t->v[hash % LC_BUCKETS];
    h->hash = hash;
    h->next = *at;
    h->link = at;
    if (*at)
        (*at)->link = &h->next;
    *at = h;
    t->n++;
}
static inline void htab_del(struct htab *t, struct hnode *h)
{
    *h->link = h->next;
    if (h->next)
        h->next->link = h->link;
    h->link = NULL;
    t->n--;
}
#define LC_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
/* Walks one chain: for nodes with this hash. The body may delete the node it looks at. */
#define HTAB_CHAIN(t, node, want)                                                                                      \
    for (struct hnode *node = (t)->v[(want) % LC_BUCKETS], *node##_next; node && ((node##_next = node->next), true);   \
         node = node##_next)                                                                                           \
        if (node->hash == (want))

struct known {
    struct hnode node; /* by lease id */
    struct lease *lease;
    unsigned users;
    bool gone; /* not to be handed out again */
};

struct lease_key {
    struct str credential, agent;
    struct host host;
    uint16_t port;
    char *names; /* owned: both names */
};

struct entry {
    struct hnode node;
    struct entry *newer, *older;
    struct lease_key key;
    struct known *known;
    uint64_t used_ms;
    struct timer expiry;
    struct lease_client *client;
};

enum wait_kind { WAIT_LEASE = 1, WAIT_LIVE };
struct lease_wait {
    struct lease_wait *next, **link; /* in the list of what it waits for, later in the client's done list */
    struct lease_client *client;
    enum wait_kind kind;
    struct task task;
    void *ctx;
    void (*live_cb)(void *ctx);
    void (*lease_cb)(void *ctx, const struct lease_answer *a);
    /* WAIT_LEASE: */
    bool lead;   /* the flight asks with this one's words */
    bool second; /* has made its second call */
    enum scheme scheme;
    char *words;
    struct str method, path, request_id, rejected; /* in words; rejected: empty: no lease was */
    enum end end;
    struct lease *lease;
    uint32_t retry_after_s;
    char why[LEASE_WIRE_WHY_MAX];
    size_t why_n;
};

struct flight {
    struct hnode by_key, by_id;
    uint64_t id;
    struct lease_key key;
    bool alone; /* a second call: nobody joins */
    unsigned sent;
    struct lease_wait *waits;
    struct timer deadline;
    struct lease_client *client;
    char *words; /* what it asks with; a copy of the leader's, who may leave */
    struct str method, path, request_id, rejected;
    enum scheme scheme;
};

enum sub_state { SUB_WANTED = 1, SUB_ASKED, SUB_LIVE, SUB_AWAY };
struct sub {
    struct hnode node, by_id;
    uint64_t id; /* of the LEASE_WATCH; in by_id while SUB_ASKED */
    struct str agent, credential;
    char *names; /* owned */
    char *placeholder;
    size_t placeholder_n;
    enum sub_state state;
    uint64_t away_ms; /* since when SUB_AWAY */
    bool incomplete;  /* a live lease could not be kept: nothing of it may be answered */
    struct known **v;
    size_t n, cap;
    uint64_t changed; /* the client's generation then */
    unsigned users;   /* views */
    struct lease_wait *waits;
    struct timer deadline, expiry;
    struct lease_client *client;
};

struct view {
    struct hnode node;
    struct str agent;
    char *names; /* owned */
    struct host host;
    struct sub **subs;
    size_t nsubs;
    struct lease_set *set; /* NULL: none is live */
    uint64_t built;        /* generation; 0: never */
    uint64_t used_ms;
};

struct revoked {
    struct revoked *next;
    struct lease *lease;
};

struct lease_client {
    struct loop *loop;
    struct msg_channel *ch;
    struct policy *policy;
    struct placeholder_table *table;
    uint64_t generation, next_id;
    struct htab known, entries, flights, flights_by_id, subs, subs_by_id, views;
    struct entry *newest, *oldest;
    struct fair_stock asked; /* flights, by agent */
    struct lease_wait *done;
    size_t nwaits;
    struct timer sweep;
    struct revoked *revoked, **revoked_end;
    struct task revoked_task;
    void (*on_revoked)(void *ctx, const struct lease *lease);
    void *on_revoked_ctx;
};

/* lease_client.c */
uint64_t lc_names_hash(struct str a, struct str b);
/* Milliseconds of the monotonic clock from now to a time of the wall clock, at least 1, at most LC_RECHECK_MS. */
uint64_t lc_until_ms(int64_t wall_us);
uint64_t lc_timeout_ms(const struct lease_client *c);
void lc_sweep_start(struct lease_client *c);
/* Takes the reference; one more user. NULL when out of memory (the reference is released). */
struct known *lc_known(struct lease_client *c, struct lease *take);
void lc_known_done(struct lease_client *c, struct known **k);
struct lease_wait *lc_wait_new(struct lease_client *c, enum wait_kind kind, void *ctx);
void lc_wait_link(struct lease_wait **list, struct lease_wait *w);
void lc_wait_unlink(struct lease_wait *w);
/* Unlinks it and calls its callback on a later stack. */
void lc_wait_finish(struct lease_wait *w);
int lc_send(struct lease_client *c, uint16_t type, uint64_t id, struct msg_writer *w);

/* lease_get.c */
int lc_on_answer(struct lease_client *c, uint64_t id, struct str body);
void lc_flights_connected(struct lease_client *c);
void lc_entries_sweep(struct lease_client *c, uint64_t now_ms);
/* Those for which credential and agent no longer go together. */
void lc_entries_policy(struct lease_client *c);
/* Another keeper does not know what the last one gave out, so could not revoke it: it is asked anew. */
void lc_entries_drop(struct lease_client *c);
void lc_get_done(struct lease_client *c);

/* lease_live.c */
int lc_on_live(struct lease_client *c, struct str body);
int lc_on_watched(struct lease_client *c, uint64_t id, struct str body);
/* A lease that came as an answer is live too, whether or not the keeper's push was first. */
int lc_live_add(struct lease_client *c, struct lease *l);
void lc_subs_connected(struct lease_client *c);
void lc_subs_disconnected(struct lease_client *c);
void lc_live_sweep(struct lease_client *c, uint64_t now_ms);
void lc_live_policy(struct lease_client *c);
void lc_live_done(struct lease_client *c);

#endif
