/* SPDX-License-Identifier: Apache-2.0
 *
 * Reload: check, prepare everywhere, commit. A wrong file or a port in use changes nothing. What compiled here compiles
 * in every role, from the same bytes with the same code: a role that says otherwise, or nothing within two seconds, is
 * killed and starts anew on the new snapshot, so that none can veto a revocation. It is over, and answered, when the workers
 * have taken the commit as well: then no socket of a listener that was removed is open any more, and its port may be listened
 * on again. Asked again while one runs: one more follows, however often. */
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/env_files.h"
#include "daemon/statedir.h"
#include "daemon/trust.h"

#include <stdio.h>
#include <stdlib.h>

enum { WAITING_MAX = 64, OLD_MINTER_MS = 5000 };

struct reload {
    struct supervisor *s;
    struct generation *next;
    struct child *minter; /* new one, or NULL */
    bool new_minter;
    char who[64], who_next[64]; /* who_next: who asked while one ran */
    struct timer deadline;
    struct control_conn *waiting[WAITING_MAX]; /* asked for the one that runs */
    size_t nwaiting;
    struct control_conn *later[WAITING_MAX]; /* asked while it ran */
    size_t nlater;
    uint64_t sync; /* asked of the workers at the commit */
    bool again, taking; /* taking: committed, and the workers have not all said that they have it */
    struct task restart;
};

static void reload_begin(struct reload *r);

static void on_restart(struct task *t)
{
    reload_begin((struct reload *)((char *)t - offsetof(struct reload, restart)));
}

static void finish(struct reload *r, bool good, const struct diag *diag)
{
    struct supervisor *s = r->s;
    timer_clear(&r->deadline);
    for (size_t i = 0; i < r->nwaiting; i++)
        if (r->waiting[i])
            control_reload_done(r->waiting[i], good, diag);
    memcpy(r->waiting, r->later, sizeof r->waiting);
    r->nwaiting = r->nlater;
    r->nlater = 0;
    r->next = NULL;
    r->minter = NULL;
    r->new_minter = r->taking = false;
    notify_systemd(s, "READY=1");
    if (r->again && s->state == SUP_RUNNING) {
        r->again = false;
        memcpy(r->who, r->who_next, sizeof r->who);
        r->restart.cb = on_restart;
        loop_defer(s->loop, &r->restart);
    }
}

static void refuse(struct reload *r, const struct diag *diag)
{
    struct supervisor *s = r->s;
    char first[512] = "";
    for (size_t i = 0; i < diag->n; i++) {
        if (!diag->lines[i].error)
            continue;
        if (!first[0])
            str_escape(diag->lines[i].text, first, sizeof first);
        log_error("reload: %.*s", STR_ARG(diag->lines[i].text));
    }
    log_error("reload refused: the configuration in use stays %s", s->current->hash);
    event_config(s, r->who, false, s->current->hash, NULL, first);
    finish(r, false, diag);
}

static void refuse_text(struct reload *r, const char *text)
{
    struct diag diag;
    diag_init(&diag);
    diag_add(&diag, true, "%s", text);
    refuse(r, &diag);
    diag_done(&diag);
}

/* What cannot change while roles run. */
static void check_fixed(const struct config *old, const struct config *new, struct diag *diag)
{
    const struct {
        const char *key;
        struct str a, b;
    } fixed[] = {
        { "state_dir", old->state_dir, new->state_dir }, { "runtime_dir", old->runtime_dir, new->runtime_dir },
        { "users.net", old->users.net, new->users.net }, { "users.ca", old->users.ca, new->users.ca },
        { "users.key", old->users.key, new->users.key }, { "users.mint", old->users.mint, new->users.mint },
        { "users.log", old->users.log, new->users.log },
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!str_eq(fixed[i].a, fixed[i].b))
            diag_add(diag, true,
                     "%.*s:1:1: %s: expected the value that the server was started with; restart it to change this",
                     STR_ARG(new->file), fixed[i].key);
}

/* A retired worker too: what it still carries must end when a host is denied meanwhile. */
static bool takes_part(const struct child *c)
{
    return c->kind == ROLE_KIND_WORKER ||
           ((c->kind == ROLE_KIND_KEEPER || c->kind == ROLE_KIND_RESOLVER) && !c->retired);
}

static void send_prepare(struct child *c, void *ctx)
{
    struct reload *r = ctx;
    if (!takes_part(c))
        return;
    c->answered = c->pid <= 0 || !c->channel; /* one that is down starts on whatever is committed */
    int fds[GENERATION_FDS];
    size_t n = generation_fds(r->next, c->kind, fds);
    if (!c->answered)
        child_send(c, &(struct role_msg) { .type = ROLE_PREPARE, .number = r->next->number, .fds = fds, .nfds = n });
}

/* Different sources: another minter, on a socket of its own that listens from now on. It is started at the commit. */
static int begin_minter(struct reload *r, struct err *err)
{
    struct supervisor *s = r->s;
    bool none = true;
    r->new_minter = !mint_sources_equal(s->current->gathered.config, r->next->gathered.config);
    if (r->new_minter)
        r->minter = mint_child_new(s, r->next, &none, err);
    return r->minter || none ? 0 : -1;
}

static void send_abort(struct child *c, void *ctx)
{
    const struct reload *r = ctx;
    if (takes_part(c) && c->channel)
        child_send(c, &(struct role_msg) { .type = ROLE_ABORT, .number = r->next->number });
}

/* Undoes what a reload began. */
static void abandon(struct reload *r)
{
    children_each(r->s, send_abort, r);
    if (!r->s->listeners_paused)
        listeners_abort(&r->s->listeners);
    child_retire(r->minter);
    r->minter = NULL;
    generation_free(&r->next);
}

static void send_commit(struct child *c, void *ctx)
{
    const struct reload *r = ctx;
    if (!takes_part(c) || c->pid <= 0)
        return;
    if (c->snapshot == r->next->number)
        child_send(c, &(struct role_msg) { .type = ROLE_COMMIT, .number = r->next->number });
    else { /* did not answer, or began on the old one meanwhile */
        c->renewed = true;
        child_kill(c);
    }
}

static void commit_listeners(struct supervisor *s)
{
    if (s->listeners_paused)
        return;
    struct listeners *ls = &s->listeners;
    for (size_t i = 0; i < ls->n; i++) {
        const struct listener *l = &ls->v[i];
        bool dns = l->udp_fd >= 0;
        for (unsigned k = 0; k < (dns ? 1 : s->nworkers); k++) {
            struct child *c = dns ? s->resolver : s->workers[k];
            if (l->is_gone)
                child_send(c, &(struct role_msg) { .type = ROLE_LISTENER_DROP, .text = str_c(l->text) });
            else if (l->is_new)
                wiring_send_listener(l, c);
        }
    }
    listeners_commit(ls);
    listeners_own_sockets(ls, s->current->gathered.config);
    listeners_own(ls, &s->own);
    wiring_send_own(s);
}

static void commit_minter(struct reload *r)
{
    struct supervisor *s = r->s;
    if (!r->new_minter)
        return;
    struct child *old = s->minter;
    s->minter = r->minter;
    if (s->minter)
        child_start(s->minter);
    if (!old)
        return;
    /* The keeper may be in the middle of a call to it. */
    child_retire(old);
    if (old->pid > 0)
        child_stop_later(old, OLD_MINTER_MS);
}

static void commit_workers(struct supervisor *s)
{
    unsigned want = supervisor_workers_wanted(s->current->gathered.config);
    while (s->nworkers > want) {
        struct child *c = s->workers[--s->nworkers];
        bool up = c->state == CHILD_READY;
        child_retire(c);
        if (up) {
            child_send(c, &(struct role_msg) { .type = ROLE_DRAIN });
            child_stop_later(c, s->current->gathered.config->limits.drain);
        } else {
            child_kill(c);
        }
    }
    while (s->nworkers < want) {
        struct child *c = child_new(s, ROLE_KIND_WORKER, s->nworkers);
        s->workers[s->nworkers++] = c;
        child_start(c);
    }
}

static void renew_silent(struct child *c, void *ctx)
{
    const struct reload *r = ctx;
    bool silent = c->sync_asked >= r->sync && c->sync_done < r->sync; /* of this reload: not of what was asked since */
    if (c->kind != ROLE_KIND_WORKER || c->pid <= 0 || !silent || c->state != CHILD_READY)
        return;
    log_error("reload: worker %u did not take the new snapshot within %d ms and is started anew", c->index, PREPARE_MS);
    c->renewed = true;
    child_kill(c);
}

/* One that does not answer in time would go on by the old rules, on sockets that are listened on no more. */
static void on_taken(void *ctx, bool all)
{
    struct reload *r = ctx;
    if (!all)
        children_each(r->s, renew_silent, r);
    finish(r, true, NULL);
}

static void commit(struct reload *r)
{
    struct supervisor *s = r->s;
    struct err err;
    struct generation *old = s->current;
    children_each(s, send_commit, r);
    s->current = r->next;
    commit_listeners(s);
    commit_minter(r);
    mint_sources_look(s);
    sidecar_access_look(s);
    wiring_send_tune(s->logger);
    wiring_send_tune(s->ca);
    commit_workers(s);
    if (trust_write(s->state_fd, buf_str(&s->ca_pem), buf_str(&s->current->gathered.system_roots), &err) ||
        env_files_write(s->state_fd, s->current->gathered.config, &err))
        log_error("%s", err.text);
    log_info("reloaded: snapshot %s (was %s)", s->current->hash, old->hash);
    event_config(s, r->who, true, old->hash, s->current->hash, NULL);
    generation_free(&old);
    timer_clear(&r->deadline);
    r->next = NULL;
    r->taking = true;
    r->sync = workers_sync(s, PREPARE_MS, on_taken, r);
}

static void on_deadline(struct timer *t)
{
    struct reload *r = (struct reload *)((char *)t - offsetof(struct reload, deadline));
    if (r->s->state != SUP_RUNNING)
        return;
    log_error("reload: a role did not answer within %d ms and is started anew", PREPARE_MS);
    commit(r);
}

static void reload_begin(struct reload *r)
{
    struct supervisor *s = r->s;
    struct err err;
    struct diag diag;
    notify_systemd(s, "RELOADING=1");
    diag_init(&diag);
    r->next = generation_load(s, &diag);
    if (r->next) {
        check_fixed(s->current->gathered.config, r->next->gathered.config, &diag);
        if (mint_sources_check(s, r->next->gathered.config, &err))
            diag_add(&diag, true, "%s", err.text);
    }
    if (!r->next || diag.errors) {
        generation_free(&r->next);
        refuse(r, &diag);
        diag_done(&diag);
        return;
    }
    for (size_t i = 0; i < diag.n; i++)
        log_info("warning: %.*s", STR_ARG(diag.lines[i].text));
    diag_done(&diag);
    if (s->listeners_paused ? false : listeners_prepare(&s->listeners, r->next->gathered.config, &err) != 0) {
        generation_free(&r->next);
        refuse_text(r, err.text);
        return;
    }
    const char *socket = NULL;
    int bad = begin_minter(r, &err);
    if (!bad) {
        const struct child *minter = r->new_minter ? r->minter : s->minter;
        socket = minter ? minter->socket_name : NULL;
        bad = generation_seal(s, r->next, socket, &err);
    }
    if (bad) {
        abandon(r);
        refuse_text(r, err.text);
        return;
    }
    children_each(s, send_prepare, r);
    r->deadline.cb = on_deadline;
    timer_set(s->loop, &r->deadline, PREPARE_MS);
    reload_look(s);
}

static void count_waiting(struct child *c, void *ctx)
{
    unsigned *n = ctx;
    if (takes_part(c) && c->pid > 0 && !c->answered)
        ++*n;
}

void reload_look(struct supervisor *s)
{
    struct reload *r = s->reload;
    if (!r || !r->next || s->state != SUP_RUNNING)
        return;
    unsigned n = 0;
    children_each(s, count_waiting, &n);
    if (!n)
        commit(r);
}

void reload_on_prepared(struct child *c, const struct role_msg *m)
{
    struct reload *r = c->sup->reload;
    if (!r || !r->next || m->number != r->next->number || c->answered)
        return;
    c->answered = true;
    if (m->flag) {
        c->snapshot = m->number;
    } else { /* what compiled here, from the same bytes: it is out of memory, or broken, and has no say */
        char why[400];
        log_error("reload: %s cannot use the snapshot and is started anew on it: %s", role_kind_name(c->kind),
                  str_escape(m->text, why, sizeof why));
    }
    reload_look(c->sup);
}

void reload_ask(struct supervisor *s, struct control_conn *conn, const char *who)
{
    if (!s->reload) {
        s->reload = calloc(1, sizeof *s->reload);
        MUST(s->reload);
        s->reload->s = s;
    }
    struct reload *r = s->reload;
    if (s->state != SUP_RUNNING) {
        struct diag diag;
        diag_init(&diag);
        diag_add(&diag, true, "%s", s->state == SUP_STARTING ? "the server is starting" : "the server is ending");
        if (conn)
            control_reload_done(conn, false, &diag);
        diag_done(&diag);
        return;
    }
    bool running = r->next || r->taking || r->restart.loop;
    struct control_conn **list = running ? r->later : r->waiting;
    size_t *n = running ? &r->nlater : &r->nwaiting;
    snprintf(running ? r->who_next : r->who, sizeof r->who, "%s", who);
    if (conn && *n < WAITING_MAX)
        list[(*n)++] = conn;
    else if (conn)
        control_reload_done(conn, false, NULL);
    if (running)
        r->again = true;
    else
        reload_begin(r);
}

void reload_forget(struct supervisor *s, const struct control_conn *conn)
{
    struct reload *r = s->reload;
    for (size_t i = 0; r && i < WAITING_MAX; i++) {
        if (i < r->nwaiting && r->waiting[i] == conn)
            r->waiting[i] = NULL;
        if (i < r->nlater && r->later[i] == conn)
            r->later[i] = NULL;
    }
}
