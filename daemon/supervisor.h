/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor: the parent of all roles. It reads the configuration and opens what the others need, binds the listening
 * sockets, starts the roles in order (the logger first: nothing happens unlogged), connects them with each other,
 * restarts what dies, and ends them in order (workers, the rest, the logger last). It never reads a byte from the
 * network; what the roles and the control socket say is judged by strict tables. This header is shared by the
 * supervisor's own files only; `serve` sees supervisor_run. */
#ifndef DAEMON_SUPERVISOR_H
#define DAEMON_SUPERVISOR_H

#include "audit/sink.h"
#include "base/loop.h"
#include "daemon/gather.h"
#include "daemon/listeners.h"
#include "daemon/role_msg.h"
#include "daemon/role_values.h"
#include "daemon/users.h"

enum {
    WORKERS_MAX = 1024,
    BACKOFF_FIRST_MS = 50,
    BACKOFF_MAX_MS = 5000,
    BACKOFF_CALM_MS = 30000,     /* lived this long: begin again with the first */
    CRASH_LOOP_DEATHS = 5,       /* of one worker … */
    CRASH_LOOP_MS = 60000,       /* … within this time: leave it down … */
    CRASH_LOOP_RETRY_MS = 30000, /* … and try again so often */
    START_MS = 15000,            /* from the start of a role to its READY */
    PREPARE_MS = 2000,           /* PRODUCT: Reload */
    STATS_MS = 500,
    LOGGER_FLUSH_MS = 10000,
    LOGGER_FLUSHES = 3, /* at the end, when it dies before everything is written */
    ROLE_END_MS = 2000,
};

enum child_state { CHILD_DOWN = 0, CHILD_STARTING, CHILD_READY, CHILD_ENDING };

struct supervisor;
struct child {
    struct supervisor *sup;
    enum role_kind kind;
    uint32_t index, generation; /* which one; which incarnation, counted on where a retired one stopped */
    uint32_t first_generation;
    enum child_state state;
    pid_t pid; /* 0: none */
    struct msg_channel *channel;
    int ring_fd, done_fd, listen_fd; /* -1: none. The listening socket outlives an incarnation */
    uint64_t snapshot;               /* number it runs on or has prepared */
    bool answered;                   /* PREPARE was answered */
    uint64_t sync_asked, sync_done;  /* the last SYNC of this incarnation, and the last that it answered */
    uint64_t started_ms, backoff_ms;
    uint64_t deaths[CRASH_LOOP_DEATHS]; /* when, newest first */
    bool killed;                        /* by us */
    bool renewed;                       /* by us, at a reload that it did not answer in time: no crash */
    bool crash_loop;
    bool retired;       /* not started again; freed when it ended */
    struct timer timer; /* restart, or the deadline of the start */
    struct task freed;
    char *socket_name; /* minter: its socket in RUNTIME */
    char why[480];     /* what FAILED said */
    struct child *next_retired;
};

/* One configuration as gathered, with what roles get of it. */
struct generation {
    struct gather gathered;
    uint64_t number;
    char hash[20];
    struct tune tune;
    int fd_worker, fd_resolver, fd_other; /* sealed snapshots: with the install key, with placeholders, with neither */
    int fd_names, fd_names_read; /* addresses of resolver.synthetic.pool, for the resolver and the workers; -1: no pool */
};

/* A dead writer's ring that the logger has not finished. */
struct dead_ring {
    struct dead_ring *next;
    enum role_kind kind;
    uint32_t index, generation;
    int ring_fd, done_fd;
};

struct env_value {
    char *name;
    int fd; /* sealed memfd */
};
struct watched_file; /* mint_sources.c */
struct control;      /* control.c */
struct reload;       /* reload.c */
struct workers_sync; /* workers_sync.c */

enum sup_state { SUP_STARTING = 0, SUP_RUNNING, SUP_DRAINING, SUP_ENDING, SUP_FLUSHING, SUP_DONE };

struct supervisor {
    struct loop *loop;
    enum sup_state state;
    int exit_status;
    char *config_file;
    struct users users;
    char *runtime;
    int runtime_fd, lock_fd, state_fd;
    struct generation *current;
    uint64_t last_number;
    struct env_value *env;
    size_t nenv;
    char *notify_socket;
    struct buf install_key, ca_pem;

    struct child *logger, *ca, *keeper, *resolver, *minter;
    struct child *workers[WORKERS_MAX];
    unsigned nworkers;
    struct child *retired; /* ending, not in any place above */

    int wake_fd; /* the eventfd that every writer touches; -1 until the first logger is ready */
    int ring_fd, done_fd;
    struct sink *sink;
    struct dead_ring *dead_rings;

    struct listeners listeners;
    bool listeners_paused; /* every worker is in a crash loop */
    struct own_list own;
    struct ticket_key tickets[TICKET_KEYS_MAX];
    size_t ntickets;
    uint64_t tickets_ms, own_ms, banner_ms, started_ms;
    uint64_t next_id;

    struct watch signals;
    struct timer tick, stop_timer;
    unsigned flushes;  /* begun at the end */
    bool flush_failed; /* the logger died in it */
    struct watched_file *watched;
    size_t nwatched;
    bool sidecar_complained;
    struct control *control;
    struct reload *reload;
    struct workers_sync *syncs;
    struct run_logins logins;
};

/* supervisor.c */
/* Runs until told to end. Returns the exit status of `serve`. */
int supervisor_run(const char *config_file);
void supervisor_ready_check(struct supervisor *s);
/* Begins to end: drain (now == false), or at once. Again: at once. */
void supervisor_drain(struct supervisor *s, const char *who, bool now);
/* A role ended while we end: the next step. */
void supervisor_stop_step(struct supervisor *s);
/* Something that the start cannot do without failed. */
void supervisor_fail(struct supervisor *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned supervisor_workers_wanted(const struct config *c);

/* generation.c */
struct generation *generation_load(struct supervisor *s, struct diag *diag);
/* Seals the snapshots; mint_socket: the private minter's, or NULL. */
int generation_seal(struct supervisor *s, struct generation *g, const char *mint_socket, struct err *err);
/* The sealed snapshot for roles of that kind, and what goes with it: one or two descriptors, still the generation's. */
enum { GENERATION_FDS = 2 };
size_t generation_fds(const struct generation *g, enum role_kind kind, int ret[GENERATION_FDS]);
void generation_free(struct generation **g);

/* child.c */
struct child *child_new(struct supervisor *s, enum role_kind kind, uint32_t index);
void child_start(struct child *c);
void child_kill(struct child *c);
/* STOP; killed when it has not ended by then. */
void child_stop(struct child *c, uint64_t deadline_ms);
/* STOP after a while, for one that others may still be using. */
void child_stop_later(struct child *c, uint64_t after_ms);
/* Never started again; freed once it ended (at once when it is down). */
void child_retire(struct child *c);
void children_reap(struct supervisor *s);
/* Calls cb for every child there is. */
void children_each(struct supervisor *s, void (*cb)(struct child *c, void *ctx), void *ctx);
bool children_ready(const struct supervisor *s);
/* Sends, and kills the child when its channel takes no more. */
void child_send(struct child *c, const struct role_msg *m);

/* Asks it to say READY once it did everything sent before. */
void child_sync(struct child *c, uint64_t id);

/* workers_sync.c */
/* Calls done once, later: when every worker did what it was sent before this call (all true), or at the deadline. Returns the
 * id of the SYNC: a worker was asked when its sync_asked is that or more, and answered when its sync_done is. */
uint64_t workers_sync(struct supervisor *s, uint64_t deadline_ms, void (*done)(void *ctx, bool all), void *ctx);
/* Whoever would have been called with ctx is gone. */
void workers_sync_forget(struct supervisor *s, const void *ctx);
/* A worker answered or died. */
void workers_sync_look(struct supervisor *s);

/* run_login.c */
/* A login for one `outgate run` of this agent, which the workers are told of: its id and its token (hex, NUL-terminated).
 * 0: the agent has no login claim or there are too many, with the reason. */
enum { RUN_TOKEN_SIZE = 65 };
uint64_t run_login_add(struct supervisor *s, const char *agent, struct str *ret_user, char token[RUN_TOKEN_SIZE], struct err *err);
/* The run is over. */
void run_login_drop(struct supervisor *s, uint64_t id);

/* wiring.c */
/* Everything a new incarnation is told: what it is made of, GO, its channels, SYNC. 0, or -1 with the reason. */
int wiring_start(struct child *c, struct err *err);
/* The listeners that this role serves; one, if it does. */
void wiring_send_listeners(struct child *c);
/* It serves none of them any more: while they are closed (every worker is down), and to be bound again, nobody may have them. */
void wiring_drop_listeners(struct child *c);
void wiring_send_listener(const struct listener *l, struct child *c);
void wiring_send_own(struct supervisor *s);
void wiring_send_tickets(struct supervisor *s, struct child *worker);
void wiring_send_logins(struct child *worker);
void wiring_send_tune(struct child *c);
/* The writer of this child's ring is certainly gone. */
void wiring_ring_died(struct child *c);
void wiring_ring_closed(struct supervisor *s, const struct role_msg *m);
/* Our own ring, once the logger gave its eventfd. */
int wiring_own_sink(struct supervisor *s, struct err *err);

/* mint_sources.c */
/* Moves the values of every env source into memfds and wipes the environment block. -1: one is not set. */
int env_capture(struct supervisor *s, const struct config *c, struct err *err);
int env_value_fd(const struct supervisor *s, struct str name);
bool mint_sources_any(const struct config *c);
/* Do both configurations have the same sources? */
bool mint_sources_equal(const struct config *a, const struct config *b);
/* Is every env source's value among the captured? */
int mint_sources_check(const struct supervisor *s, const struct config *c, struct err *err);
int mint_sources_send(struct child *minter, const struct config *c, struct err *err);
void mint_source_open(struct child *minter, const struct role_msg *m);
/* Looks at the files of file sources; revokes the leases of those that changed. */
void mint_sources_look(struct supervisor *s);
/* The keeper did what this REVOKE asked. */
void mint_sources_revoked(struct supervisor *s, uint64_t id);
/* A child for the minter of generation g, with its socket. NULL with the reason, or *ret_none: no source needs one. */
struct child *mint_child_new(struct supervisor *s, const struct generation *g, bool *ret_none, struct err *err);

/* sidecar_access.c */
uid_t keeper_socket_owner(const struct config *c);
/* Lets the keeper's uid connect to the sockets of the configured sidecars, and the first one's owner to keeper.sock. */
void sidecar_access_look(struct supervisor *s);

/* sup_events.c */
void event_lifecycle(struct supervisor *s, const char *what, const char *who, const char *message);
/* before NULL: the first one */
void event_config(struct supervisor *s, const char *who, bool good, const char *before, const char *after,
                  const char *message);
void notify_systemd(const struct supervisor *s, const char *state);

/* reload.c */
struct control_conn;
/* Asks for a reload; conn (or NULL: the signal) is answered when it is decided. */
void reload_ask(struct supervisor *s, struct control_conn *conn, const char *who);
void reload_on_prepared(struct child *c, const struct role_msg *m);
/* A role became ready or died: a running reload may now be complete. */
void reload_look(struct supervisor *s);
/* The connection is gone: nobody waits there. */
void reload_forget(struct supervisor *s, const struct control_conn *conn);

/* control.c */
int control_open(struct supervisor *s, struct err *err);
void control_close(struct supervisor *s);
/* Answers of roles to what the control socket asked. */
void control_on_stats(struct child *c, const struct role_msg *m);
void control_on_leases(struct supervisor *s, const struct role_msg *m);
void control_on_revoked(struct supervisor *s, const struct role_msg *m);
/* Ends a waiting reload request. lines: of a failed one. */
void control_reload_done(struct control_conn *conn, bool good, const struct diag *diag);

#endif
