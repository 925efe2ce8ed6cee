/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/lockdown.h"
#include "base/log.h"
#include "daemon/env_files.h"
#include "daemon/files.h"
#include "daemon/runtime.h"
#include "daemon/statedir.h"
#include "daemon/trust.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TICK_MS = 1000,
    OWN_EVERY_MS = 10000,
    TICKETS_EVERY_MS = 24 * 3600 * 1000,
    BANNER_EVERY_MS = 3600 * 1000,
};

unsigned supervisor_workers_wanted(const struct config *c)
{
    if (c->workers)
        return c->workers > WORKERS_MAX ? WORKERS_MAX : c->workers;
    cpu_set_t set; /* what taskset or a cgroup leaves us, not what the machine has */
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : (unsigned)n;
}

static void rotate_tickets(struct supervisor *s)
{
    memmove(s->tickets + 1, s->tickets, sizeof s->tickets - sizeof *s->tickets);
    rand_bytes(&s->tickets[0], sizeof s->tickets[0]);
    if (s->ntickets < TICKET_KEYS_MAX)
        s->ntickets++;
    s->tickets_ms = clock_mono_ms();
    for (unsigned i = 0; i < s->nworkers; i++)
        wiring_send_tickets(s, s->workers[i]);
}

static void refresh_own(struct supervisor *s)
{
    s->own_ms = clock_mono_ms();
    if (listeners_own(&s->listeners, &s->own))
        wiring_send_own(s);
}

static void observe_banner(struct supervisor *s)
{
    s->banner_ms = clock_mono_ms();
    if (s->current->gathered.config->observe)
        log_info("mode is observe: what rules would refuse is let through (guard, swap rules and budgets hold)");
}

static void on_tick(struct timer *t)
{
    struct supervisor *s = (struct supervisor *)((char *)t - offsetof(struct supervisor, tick));
    uint64_t now = clock_mono_ms();
    if (s->state == SUP_RUNNING) {
        mint_sources_look(s);
        sidecar_access_look(s);
        if (now - s->own_ms >= OWN_EVERY_MS)
            refresh_own(s);
        if (now - s->tickets_ms >= TICKETS_EVERY_MS)
            rotate_tickets(s);
        if (now - s->banner_ms >= BANNER_EVERY_MS)
            observe_banner(s);
    }
    timer_set(s->loop, t, TICK_MS);
}

static void on_signals(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct supervisor *s = (struct supervisor *)((char *)w - offsetof(struct supervisor, signals));
    struct signalfd_siginfo info;
    while (read(w->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            children_reap(s);
        else if (info.ssi_signo == SIGHUP)
            reload_ask(s, NULL, "signal HUP");
        else
            supervisor_drain(s, info.ssi_signo == SIGINT ? "signal INT" : "signal TERM", false);
    }
}

static void say_ready(struct supervisor *s)
{
    struct buf names;
    buf_init(&names, 4096);
    listeners_put(&s->listeners, &names);
    log_info("ready: %.*s; %u worker%s, snapshot %s", STR_ARG(buf_str(&names)), s->nworkers,
             s->nworkers == 1 ? "" : "s", s->current->hash);
    buf_done(&names);
}

void supervisor_ready_check(struct supervisor *s)
{
    if (s->state != SUP_STARTING || s->logger->state != CHILD_READY)
        return;
    if (!s->ca->pid) { /* the logger is there: now the others, peers before those that need them */
        child_start(s->ca);
        if (s->minter && s->state == SUP_STARTING)
            child_start(s->minter);
        if (s->state == SUP_STARTING)
            child_start(s->keeper);
        if (s->state == SUP_STARTING)
            child_start(s->resolver);
        for (unsigned i = 0; i < s->nworkers && s->state == SUP_STARTING; i++)
            child_start(s->workers[i]);
        return;
    }
    if (!children_ready(s))
        return;
    s->state = SUP_RUNNING;
    event_lifecycle(s, "started", "supervisor", OUTGATE_VERSION);
    event_config(s, "start", true, NULL, s->current->hash, s->current->gathered.path);
    observe_banner(s);
    say_ready(s);
    notify_systemd(s, "READY=1");
}

/* --- the end --- */

static void kill_one(struct child *c, void *ctx)
{
    const struct supervisor *s = ctx;
    if (c != s->logger) {
        c->state = CHILD_ENDING;
        child_kill(c);
    }
}

static void on_stop_timer(struct timer *t)
{
    struct supervisor *s = (struct supervisor *)((char *)t - offsetof(struct supervisor, stop_timer));
    if (s->state == SUP_DRAINING)
        log_info("not everything ended within limits.drain: the rest is cut");
    children_each(s, kill_one, s);
    supervisor_stop_step(s);
}

static void drain_one(struct child *c, void *ctx)
{
    (void)ctx;
    if (c->kind != ROLE_KIND_WORKER)
        return;
    bool up = c->state == CHILD_READY;
    c->state = CHILD_ENDING;
    timer_clear(&c->timer);
    if (up)
        child_send(c, &(struct role_msg) { .type = ROLE_DRAIN });
    else
        child_kill(c);
}

void supervisor_drain(struct supervisor *s, const char *who, bool now)
{
    if (s->state >= SUP_DRAINING) { /* the second time: now */
        if (s->state == SUP_DRAINING)
            log_info("%s again: ending now", who);
        children_each(s, kill_one, s);
        supervisor_stop_step(s);
        return;
    }
    log_info("%s: %s", who, now ? "ending" : "draining");
    notify_systemd(s, "STOPPING=1");
    event_lifecycle(s, "draining", who, NULL);
    s->state = SUP_DRAINING;
    listeners_close(&s->listeners);
    children_each(s, now ? kill_one : drain_one, s);
    s->stop_timer.cb = on_stop_timer;
    timer_set(s->loop, &s->stop_timer, s->current->gathered.config->limits.drain);
    supervisor_stop_step(s);
}

void supervisor_fail(struct supervisor *s, const char *format, ...)
{
    if (s->state >= SUP_ENDING)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    log_error("cannot start: %s", text);
    s->exit_status = 3;
    s->state = SUP_ENDING;
    children_each(s, kill_one, s);
    supervisor_stop_step(s);
}

struct alive {
    const struct supervisor *s;
    unsigned workers, others;
};

static void count_alive(struct child *c, void *ctx)
{
    struct alive *a = ctx;
    if (c->pid > 0 && c->kind == ROLE_KIND_WORKER)
        a->workers++;
    else if (c->pid > 0 && c != a->s->logger)
        a->others++;
}

static void stop_one(struct child *c, void *ctx)
{
    const struct supervisor *s = ctx;
    if (c != s->logger && c->kind != ROLE_KIND_WORKER)
        child_stop(c, ROLE_END_MS);
}

/* The writers are gone: our own last words, then the logger writes what it has and ends. Where it is down, or dies in
 * the middle, another reads the rings: they are all that is left of what was taken. */
static void begin_flush(struct supervisor *s)
{
    if (s->state != SUP_FLUSHING)
        event_lifecycle(s, "stopped", "supervisor", NULL);
    s->state = SUP_FLUSHING;
    s->flush_failed = false;
    s->flushes++;
    if (s->logger && s->logger->pid <= 0 && s->sink) {
        timer_clear(&s->logger->timer);
        child_start(s->logger);
    }
    if (s->logger && s->logger->pid > 0) {
        if (s->sink)
            child_send(s->logger,
                       &(struct role_msg) { .type = ROLE_RING_DIED, .kind = ROLE_KIND_SUPERVISOR, .generation = 1 });
        child_stop(s->logger, LOGGER_FLUSH_MS);
    } else {
        s->state = SUP_DONE;
        loop_stop(s->loop);
    }
}

void supervisor_stop_step(struct supervisor *s)
{
    struct alive a = { s, 0, 0 };
    children_each(s, count_alive, &a);
    if (s->state == SUP_DRAINING && a.workers == 0) {
        timer_clear(&s->stop_timer);
        s->state = SUP_ENDING;
        children_each(s, stop_one, s);
    }
    if (s->state == SUP_ENDING && a.workers + a.others == 0) {
        begin_flush(s);
    } else if (s->state == SUP_FLUSHING && s->logger && s->logger->pid == 0 && s->flush_failed &&
               s->flushes < LOGGER_FLUSHES) {
        begin_flush(s);
    } else if (s->state == SUP_FLUSHING && (!s->logger || s->logger->pid == 0)) {
        s->state = SUP_DONE;
        loop_stop(s->loop);
    }
}

/* --- the start --- */

/* Descriptors 0 to 2 must not become something else's. */
static void std_fds_open(void)
{
    for (int fd; (fd = open("/dev/null", O_RDWR)) >= 0;)
        if (fd > 2) {
            close(fd);
            return;
        }
}

static int signals_open(struct supervisor *s, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an ignored one, inherited, would reap behind our back */
    s->signals =
        (struct watch) { .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .events = EPOLLIN, .cb = on_signals };
    return s->signals.fd < 0 || watch_add(s->loop, &s->signals) ? err_set_errno(err, "signals") : 0;
}

static int state_open(struct supervisor *s, const struct config *c, struct err *err)
{
    s->state_fd = statedir_open(c->state_dir, &s->users, err);
    if (s->state_fd < 0)
        return -1;
    buf_init(&s->install_key, 4096);
    buf_init(&s->ca_pem, 65536);
    s->install_key.wipe = true;
    if (statedir_read_install_key(s->state_fd, &s->install_key, err) || statedir_read_ca(s->state_fd, &s->ca_pem, err))
        return -1;
    if (trust_write(s->state_fd, buf_str(&s->ca_pem), buf_str(&s->current->gathered.system_roots), err))
        return -1;
    return env_files_write(s->state_fd, c, err);
}

static int runtime_take(struct supervisor *s, const struct config *c, struct err *err)
{
    bool busy;
    s->runtime = runtime_path(c, err);
    if (!s->runtime)
        return -1;
    s->runtime_fd = runtime_open(s->runtime, &s->lock_fd, &busy, err);
    return s->runtime_fd < 0 ? -1 : 0;
}

static int children_make(struct supervisor *s, const struct config *c, struct err *err)
{
    bool none;
    s->logger = child_new(s, ROLE_KIND_LOGGER, 0);
    s->ca = child_new(s, ROLE_KIND_CA, 0);
    s->keeper = child_new(s, ROLE_KIND_KEEPER, 0);
    s->resolver = child_new(s, ROLE_KIND_RESOLVER, 0);
    s->minter = mint_child_new(s, s->current, &none, err);
    if (!s->minter && !none)
        return -1;
    s->keeper->listen_fd = unix_listen_at(s->runtime_fd, "keeper.sock", 0660, keeper_socket_owner(c),
                                          s->listeners.socket_gid, SOCK_STREAM, err);
    if (s->keeper->listen_fd < 0)
        return -1;
    s->nworkers = supervisor_workers_wanted(c);
    for (unsigned i = 0; i < s->nworkers; i++)
        s->workers[i] = child_new(s, ROLE_KIND_WORKER, i);
    return generation_seal(s, s->current, s->minter ? s->minter->socket_name : NULL, err);
}

static int prepare(struct supervisor *s, struct err *err)
{
    struct diag diag;
    diag_init(&diag);
    s->current = generation_load(s, &diag);
    diag_print(&diag, 2, false);
    diag_done(&diag);
    if (!s->current)
        return err_set(err, "the configuration has errors");
    const struct config *c = s->current->gathered.config;
    const char *notify = getenv("NOTIFY_SOCKET");
    s->notify_socket = notify ? z_of(str_c(notify)) : NULL;
    if (users_resolve(c, &s->users, err) || runtime_take(s, c, err) || state_open(s, c, err) || env_capture(s, c, err))
        return -1;
    s->listeners.runtime_fd = s->runtime_fd;
    s->listeners.socket_gid = s->users.separate && s->users.has_group ? s->users.group : (gid_t)-1;
    if (listeners_prepare(&s->listeners, c, err))
        return -1;
    listeners_commit(&s->listeners);
    listeners_own(&s->listeners, &s->own);
    if (children_make(s, c, err) || control_open(s, err))
        return -1;
    sidecar_access_look(s);
    mint_sources_look(s); /* what the files are like before anything is made from them */
    rotate_tickets(s);
    return 0;
}

static void cleanup(struct supervisor *s)
{
    listeners_close(&s->listeners);
    control_close(s);
    if (s->runtime_fd >= 0) {
        unlinkat(s->runtime_fd, "keeper.sock", 0);
        if (s->minter && s->minter->socket_name)
            unlinkat(s->runtime_fd, s->minter->socket_name, 0);
    }
}

int supervisor_run(const char *config_file)
{
    static struct supervisor s;
    struct err err = { "" };
    s = (struct supervisor) {
        .config_file = z_of(str_c(config_file)),
        .runtime_fd = -1,
        .lock_fd = -1,
        .state_fd = -1,
        .wake_fd = -1,
        .ring_fd = -1,
        .done_fd = -1,
        .exit_status = 0,
        .started_ms = clock_mono_ms(),
    };
    log_init("outgate");
    std_fds_open();
    umask(0022);
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    lockdown_raise_nofile();
    prctl(PR_SET_DUMPABLE, 0); /* env values and the install key pass through here */
    s.loop = loop_new();
    if (!s.loop || signals_open(&s, &err) || prepare(&s, &err)) {
        log_error("cannot start: %s", s.loop ? err.text : "out of descriptors");
        cleanup(&s);
        return 3;
    }
    if (!s.users.separate)
        log_info("started by an ordinary user: every role runs as uid %u, so that an agent of the same uid can reach "
                 "what the "
                 "roles hold, and drain and lease want the console token at a terminal; start as root for a boundary",
                 (unsigned)geteuid());
    s.tick.cb = on_tick;
    timer_set(s.loop, &s.tick, TICK_MS);
    child_start(s.logger);
    if (s.state != SUP_DONE)
        loop_run(s.loop);
    cleanup(&s);
    return s.exit_status;
}
