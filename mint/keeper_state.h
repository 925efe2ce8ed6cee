/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper_state: what the keeper_*.c files share; nobody else includes it. A pair is (credential, agent): who watches
 * it, its back-off, its leases. A shelf is (pair, host, port): the cache key; who waits for it, its one flight (single
 * flight over all workers), the leases it may give. Several leases of a shelf differ in the scope that the sidecar
 * narrowed them to. An entry is one lease; its state only moves down: LIVE, then REPLACED or ENDED, then it is dropped.
 * REPLACED and ENDED ones are given to nobody but stay known, so that answers are scrubbed of them until the origin has
 * forgotten them.
 *
 *   keeper.c        workers, messages, admission, policy          keeper_flight.c  asking, refreshing, answers
 *   keeper_cache.c  pairs, shelves, entries, their timers, dropping  keeper_out.c     messages out, events, the list */
#ifndef MINT_KEEPER_STATE_H
#define MINT_KEEPER_STATE_H

#include "base/fair.h"
#include "mint/keeper.h"
#include "mint/lease_wire.h"
#include "mint/revoke_server.h"
#include "mint/sidecar.h"

#include <sys/queue.h>

enum {
    KEEPER_WORKERS = 1024,        /* as many as a configuration may have */
    KEEPER_PAIRS = 65536,         /* what workers may make us remember */
    KEEPER_STRANGERS = 1024,      /* of them, what one worker may name that our snapshot does not know */
    KEEPER_REVOKED = 64,          /* revoked ids that a flight under way may still bring */
    KEEPER_VARIANTS = 8,          /* live leases of one shelf, by scope */
    KEEPER_REPLACED = 32,         /* replaced ones of one shelf that are still scrubbed */
    KEEPER_WAIT_BYTES = 8 << 20,  /* questions waiting, per worker; one agent leaves some of it to others */
    KEEPER_REFRESH_PATH = 1024,   /* a longer path is not kept for asking again */
    KEEPER_DENIED_MS = 10000,     /* a 403 is remembered */
    KEEPER_BACKOFF_MIN_MS = 1000, /* first pause after a failure, doubled up to: */
    KEEPER_BACKOFF_MAX_MS = 60000,
    KEEPER_RETRY_AFTER_MAX_S = 300, /* what a sidecar may ask us to wait */
    KEEPER_MINT_RATE = 20,          /* calls a second for one pair, burst ten times that */
    KEEPER_REJECT_BURST = 8,        /* re-mints of one shelf after a 401: at once, then one in ten seconds */
    KEEPER_REFUSAL_EVENTS = 50,     /* `lease` events of refusals a second, per worker; more are counted */
    KEEPER_LINGER_MS = 600000,      /* how long a shelf remembers that its lease ran out */
    KEEPER_IDLE_MS = 120000,        /* at limits.lease_count: leases idle for longer make room */
    KEEPER_SHORT_TTL_MS = 60000,    /* under this max_ttl the skew comes on top */
};

/* Tokens in thousandths; full at first use. */
struct bucket {
    uint64_t milli, at_ms;
    bool started;
};
bool bucket_take(struct bucket *b, uint64_t now_ms, uint64_t per_second, uint64_t burst);

struct worker_set {
    uint64_t bits[KEEPER_WORKERS / 64];
};

struct kworker {
    struct keeper *k;
    unsigned index, place; /* the supervisor's number; ours in worker_set */
    struct msg_channel *ch;
    struct task close;
    bool closing;
    struct fair_rate asks; /* by agent */
    struct bucket refusals;
    uint64_t refusals_left_out;
    struct fair_stock waiting; /* bytes of questions, by agent */
    unsigned strangers; /* pairs it watches that no snapshot of ours has named, since the last one */
};

/* A question, as admitted; shared by a wait, a flight and the entry it used. */
struct kask {
    unsigned refs;
    enum scheme scheme;
    struct host host;
    uint16_t port;
    struct str credential, agent, method, path, request_id, rejected; /* in bytes[] */
    enum lease_reason reason;
    char bytes[];
};

struct kwait {
    TAILQ_ENTRY(kwait) link;
    struct kworker *w;
    uint64_t id, since_ms, epoch; /* epoch: of the policy it was admitted under */
    struct kask *ask;
    unsigned calls; /* sidecar calls made for it */
    bool logged;    /* its `given` event is taken */
};
TAILQ_HEAD(kwaits, kwait);

enum entry_state { ENTRY_LIVE = 1, ENTRY_REPLACED, ENTRY_ENDED };
struct entry {
    TAILQ_ENTRY(entry) in_shelf, in_pair, in_use; /* in_use: least recently used first, over all */
    struct keeper *k;
    struct shelf *shelf;
    struct lease *lease; /* its id is the sidecar's, or made unique from it */
    struct str id;       /* the sidecar's, in id_bytes */
    char id_bytes[LEASE_ID_MAX];
    struct sidecar *sidecar;
    uint64_t source; /* what minted it: hash of source and max_ttl */
    enum entry_state state;
    bool used;     /* given since it was minted */
    bool rejected; /* an origin answered 401; not given while the flight for a new one is under way */
    struct worker_set known;
    struct kask *last;
    uint64_t used_ms, expires_ms, dead_ms, refresh_ms; /* on the monotonic clock */
    struct timer timer;
};
TAILQ_HEAD(entries, entry);

struct pair {
    struct pair *next; /* chain of the table */
    uint64_t hash;
    struct str credential, agent; /* in bytes[] */
    struct worker_set watchers;
    struct entries entries;
    uint64_t backoff_until_ms, backoff_ms;
    struct bucket mints;
    size_t shelves;
    char bytes[];
};

struct flight {
    struct sidecar_call *call; /* NULL: none under way */
    struct kask *ask;
    struct kwait *leader; /* NULL: a refresh ahead, or its worker went away */
    struct entry *replaces;
    enum lease_reason reason;
    uint64_t since_ms, source;     /* source: as of an entry */
    uint64_t revocations;          /* k->revocations when it began */
    const struct sidecar *sidecar; /* only compared */
};

struct shelf {
    struct shelf *next;
    uint64_t hash;
    struct keeper *k;
    struct pair *pair;
    struct host host;
    uint16_t port;
    struct entries entries;
    struct kwaits waits;
    struct flight flight;
    uint64_t denied_until_ms, ran_out_until_ms;
    struct bucket rejects;
    struct timer linger;
};

struct keeper {
    struct loop *loop;
    struct policy *policy;
    uint64_t epoch;
    struct sink *sink;
    struct sidecar_hub *hub;
    struct sidecar *mint; /* the private minter; NULL: none */
    uid_t mint_uid;
    struct sidecar **sidecars; /* as in the configuration; NULL where a socket path is unusable */
    size_t nsidecars;
    struct kworker *workers[KEEPER_WORKERS];
    struct pair **pairs;
    struct shelf **shelves;
    size_t npairs, nshelves, pair_buckets, shelf_buckets; /* powers of two */
    struct entries by_use;
    size_t nentries;
    uint64_t unique; /* for ids that a sidecar used twice */
    /* A lease may be revoked while the answer that brings it is on its way: the newest revoked ids, each with its
     * number, so that exactly the flights that began before are looked at. */
    struct {
        char id[LEASE_ID_MAX + 1];
        uint64_t number;
    } revoked[KEEPER_REVOKED];
    uint64_t revocations;
    struct revoke_server *revoke;
};

/* --- keeper.c --- */
static inline const struct limits *keeper_limits(const struct keeper *k)
{
    return &policy_config(k->policy)->limits;
}
/* On the snapshot of now: may this question be asked? END_OK and the credential, or the refusal. */
enum end keeper_admit(const struct keeper *k, const struct kask *a, const struct credential **ret);
const struct credential *keeper_credential(const struct keeper *k, struct str name);
struct sidecar *keeper_sidecar(const struct keeper *k, const struct credential *c);
uint64_t keeper_source(const struct credential *c);
void keeper_fill_ask(const struct keeper *k, const struct kask *a, const struct agent *agent, struct ask *ret);
/* Was this id revoked after that many revocations? Also yes when there were too many since to tell. */
bool keeper_revoked(const struct keeper *k, struct str lease_id, uint64_t since);
struct kask *kask_new(const struct lease_wire_get *g);
struct kask *kask_ref(struct kask *a);
void kask_unref(struct kask **a);
void kwait_free(struct shelf *s, struct kwait *w);

/* --- keeper_cache.c --- */
int cache_init(struct keeper *k);
void cache_done(struct keeper *k);
/* NULL: full, or no memory. */
struct pair *cache_pair(struct keeper *k, struct str credential, struct str agent);
/* Until then the length of its last pause counts. */
static inline uint64_t pair_remembers_until(const struct pair *p)
{
    return p->backoff_ms ? p->backoff_until_ms + 2 * KEEPER_BACKOFF_MAX_MS : p->backoff_until_ms;
}
struct pair *cache_find_pair(const struct keeper *k, struct str credential, struct str agent);
/* Frees the pair when nothing keeps it. */
void pair_settle(struct keeper *k, struct pair *p);
struct shelf *cache_shelf(struct keeper *k, const struct kask *a);
/* A live lease of the shelf for this question, or NULL. */
struct entry *cache_find(struct shelf *s, const struct kask *a);
/* Takes the lease (also on failure). NULL: limits.lease_count, or no memory. */
struct entry *cache_add(struct shelf *s, struct lease *take, struct str sidecar_id, struct sidecar *sc,
                        uint64_t source);
void entry_use(struct entry *e, struct kask *ask);
/* Given to nobody any more; watchers are told. */
void entry_replace(struct entry *e);
/* Gone: watchers are told why, the value is wiped here, DELETE goes to the sidecar. */
void entry_drop(struct entry *e, enum lease_gone why);
/* The next attempt to refresh it. */
void entry_retry_refresh(struct entry *e, uint64_t at_ms);
/* Frees the shelf when nothing keeps it. */
void shelf_settle(struct shelf *s);
void cache_each(struct keeper *k, void (*cb)(struct shelf *s, void *ctx), void *ctx);
void cache_forget_worker(struct keeper *k, struct kworker *w);
size_t shelf_count(const struct shelf *s, enum entry_state state);

/* --- keeper_flight.c --- */
/* Puts the question in line (w->waiting has it already) and answers what can be answered. s may be freed. */
void shelf_ask(struct shelf *s, struct kwait *x);
/* Answers what can be answered, and starts the flight for the first that cannot. Does not free s. */
void shelf_pump(struct shelf *s);
/* Fails everyone who waits. retry_after_s 0: none said. */
void shelf_refuse(struct shelf *s, enum end end, uint32_t retry_after_s, const char *why);
/* Drops the flight; who waits for it asks anew at the next shelf_pump. */
void shelf_abandon(struct shelf *s);
/* The time for a refresh has come. */
void shelf_refresh(struct entry *e);

/* --- keeper_out.c --- */
bool worker_in(const struct worker_set *s, unsigned place);
void worker_mark(struct worker_set *s, unsigned place, bool on);
void out_answer(struct kworker *w, uint64_t id, struct lease *l);
void out_refusal(struct kworker *w, uint64_t id, enum end end, uint32_t retry_after_s, const char *why);
void out_live(struct entry *e);
void out_gone(struct entry *e, enum lease_gone why);
int out_live_to(struct kworker *w, struct entry *e);
/* Revoked, but not known here (or not only): every worker is told. Exactly one of the two is given. */
void out_gone_unknown(struct keeper *k, struct str lease_id, struct str credential);
/* A `lease` event. 0: taken. w and ask may be NULL. */
struct lease_note {
    const char *result;
    const struct entry *entry;       /* NULL: no lease */
    const struct kask *ask;          /* NULL: nobody asked */
    struct str lease_id, credential; /* with entry NULL and ask NULL: what a revocation named */
    enum end end;                    /* of a refusal */
    const char *why, *who;
    uint64_t since_ms; /* 0: nothing was waited for */
    uint64_t count;
};
int note_write(struct keeper *k, const struct lease_note *n);
/* A refusal, written unless this worker had too many of them this second. */
void note_refusal(struct keeper *k, struct kworker *w, const struct kask *ask, enum end end, const char *why,
                  uint64_t since_ms);

#endif
