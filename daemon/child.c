/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of one role's process: DOWN -> STARTING -> READY -> (ENDING) -> DOWN. A process counts as gone only when it
 * was waited for; a channel that closes first gets its process killed. Restarts back off from 50 ms to 5 s; a worker
 * that dies five times in a minute is left down and tried every 30 s. A kill -9 that is not ours counts for neither:
 * a worker that fails by itself dies of another signal. */
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void name_put(const struct child *c, char out[32])
{
    if (c->kind == ROLE_KIND_WORKER)
        snprintf(out, 32, "%s %u", role_kind_name(c->kind), c->index);
    else
        snprintf(out, 32, "%s", role_kind_name(c->kind));
}

/* The last incarnation of a retired child of this place that something may still remember. */
static uint32_t last_generation(const struct supervisor *s, enum role_kind kind, uint32_t index)
{
    uint32_t last = 0;
    for (const struct child *c = s->retired; c; c = c->next_retired)
        if (c->kind == kind && c->index == index && c->generation > last)
            last = c->generation;
    for (const struct dead_ring *d = s->dead_rings; d; d = d->next)
        if (d->kind == kind && d->index == index && d->generation > last)
            last = d->generation;
    return last;
}

struct child *child_new(struct supervisor *s, enum role_kind kind, uint32_t index)
{
    struct child *c = calloc(1, sizeof *c);
    MUST(c);
    *c = (struct child) {
        .sup = s,
        .kind = kind,
        .index = index,
        .generation = last_generation(s, kind, index),
        .ring_fd = -1,
        .done_fd = -1,
        .listen_fd = -1,
        .backoff_ms = BACKOFF_FIRST_MS,
    };
    c->first_generation = c->generation + 1;
    return c;
}

static void on_freed(struct task *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, freed));
    timer_clear(&c->timer);
    msg_channel_free(&c->channel);
    if (c->listen_fd >= 0)
        close(c->listen_fd);
    if (c->socket_name) {
        unlinkat(c->sup->runtime_fd, c->socket_name, 0);
        free(c->socket_name);
    }
    free(c);
}

static void forget(struct child *c)
{
    struct supervisor *s = c->sup;
    for (struct child **p = &s->retired; *p; p = &(*p)->next_retired)
        if (*p == c) {
            *p = c->next_retired;
            break;
        }
    c->freed.cb = on_freed;
    loop_defer(s->loop, &c->freed);
}

void child_kill(struct child *c)
{
    c->killed = true;
    if (c->pid > 0)
        kill(c->pid, SIGKILL);
}

void child_send(struct child *c, const struct role_msg *m)
{
    if (!c || !c->channel)
        return;
    if (role_msg_send(c->channel, m))
        child_kill(c);
}

void child_sync(struct child *c, uint64_t id)
{
    c->sync_asked = id;
    child_send(c, &(struct role_msg) { .type = ROLE_SYNC, .id = id });
}

static void on_end_deadline(struct timer *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, timer));
    char name[32];
    name_put(c, name);
    log_error("%s does not end: killed", name);
    child_kill(c);
}

void child_stop(struct child *c, uint64_t deadline_ms)
{
    if (!c || c->pid <= 0)
        return;
    c->state = CHILD_ENDING;
    child_send(c, &(struct role_msg) { .type = ROLE_STOP });
    c->timer.cb = on_end_deadline;
    timer_set(c->sup->loop, &c->timer, deadline_ms);
}

static void on_stop_later(struct timer *t)
{
    child_stop((struct child *)((char *)t - offsetof(struct child, timer)), ROLE_END_MS);
}

void child_stop_later(struct child *c, uint64_t after_ms)
{
    c->timer.cb = on_stop_later;
    timer_set(c->sup->loop, &c->timer, after_ms);
}

void child_retire(struct child *c)
{
    if (!c)
        return;
    struct supervisor *s = c->sup;
    c->retired = true;
    if (c->pid <= 0) {
        forget(c);
        return;
    }
    c->next_retired = s->retired;
    s->retired = c;
}

static void on_restart(struct timer *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, timer));
    struct supervisor *s = c->sup;
    if (s->state > SUP_RUNNING && (c != s->logger || s->state > SUP_ENDING))
        return;
    if (c->crash_loop && s->listeners_paused) {
        struct err err;
        if (listeners_prepare(&s->listeners, s->current->gathered.config, &err)) {
            log_error("%s", err.text);
            timer_set(s->loop, t, CRASH_LOOP_RETRY_MS);
            return;
        }
        listeners_commit(&s->listeners);
        s->listeners_paused = false;
        wiring_send_listeners(s->resolver);
    }
    child_start(c);
}

static void on_start_deadline(struct timer *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, timer));
    snprintf(c->why, sizeof c->why, "not ready within %d s", START_MS / 1000);
    child_kill(c);
}

static void on_ready(struct child *c, struct role_msg *m)
{
    struct supervisor *s = c->sup;
    c->sync_done = m->id;
    workers_sync_look(s);
    if (c->state != CHILD_STARTING)
        return;
    c->state = CHILD_READY;
    timer_clear(&c->timer);
    if (c->kind == ROLE_KIND_LOGGER && s->wake_fd < 0) {
        struct err err;
        if (!m->nfds) {
            supervisor_fail(s, "the logger did not hand over its eventfd");
            return;
        }
        s->wake_fd = m->fds[0];
        m->fds[0] = -1;
        if (wiring_own_sink(s, &err)) {
            supervisor_fail(s, "%s", err.text);
            return;
        }
    }
    if (c->generation > c->first_generation) {
        char name[32];
        name_put(c, name);
        log_info("%s is back (pid %d)", name, (int)c->pid);
        event_lifecycle(s, "role_restarted", name, NULL);
    }
    reload_look(s);
    supervisor_ready_check(s);
}

static int take_message(struct child *c, struct msg *raw)
{
    struct role_msg m;
    if (role_msg_parse(raw, false, &m))
        return -1;
    if (m.type == ROLE_READY)
        on_ready(c, &m);
    else if (m.type == ROLE_FAILED)
        snprintf(c->why, sizeof c->why, "%.*s", STR_ARG(m.text));
    else if (m.type == ROLE_PREPARED)
        reload_on_prepared(c, &m);
    else if (m.type == ROLE_STATS_ARE)
        control_on_stats(c, &m);
    else if (m.type == ROLE_LEASES_ARE && c->kind == ROLE_KIND_KEEPER)
        control_on_leases(c->sup, &m);
    else if (m.type == ROLE_REVOKED && c->kind == ROLE_KIND_KEEPER) {
        mint_sources_revoked(c->sup, m.id);
        control_on_revoked(c->sup, &m);
    } else if (m.type == ROLE_RING_CLOSED && c->kind == ROLE_KIND_LOGGER)
        wiring_ring_closed(c->sup, &m);
    else if (m.type == ROLE_MINT_OPEN && c->kind == ROLE_KIND_MINTER)
        mint_source_open(c, &m);
    else
        return -1;
    return 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *raw)
{
    (void)ch;
    struct child *c = ctx;
    if (take_message(c, raw) == 0)
        return 0;
    c->killed = true; /* it broke the rules; its channel closes */
    return -1;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct child *c = ctx;
    bool ours = c->killed; /* most likely it ended by itself or was killed, and only must be waited for */
    child_kill(c);
    c->killed = ours;
}

static const struct msg_ops channel_ops = { .on_message = on_message, .on_closed = on_closed };

/* When memory is short: workers first, what the others cannot do without last. */
static void oom_score_set(const struct child *c)
{
    static const char *const scores[ROLE_KIND_COUNT] = {
        [ROLE_KIND_LOGGER] = "-800", [ROLE_KIND_CA] = "-600", [ROLE_KIND_KEEPER] = "-600", [ROLE_KIND_WORKER] = "200"
    };
    char path[64];
    if (!scores[c->kind] || geteuid() != 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)c->pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, scores[c->kind], strlen(scores[c->kind]));
    (void)n; /* a container may forbid it */
    close(fd);
}

static void restart_later(struct child *c)
{
    struct supervisor *s = c->sup;
    c->timer.cb = on_restart;
    timer_set(s->loop, &c->timer, c->crash_loop ? CRASH_LOOP_RETRY_MS : c->backoff_ms);
    c->backoff_ms = c->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : c->backoff_ms * 2;
}

void child_start(struct child *c)
{
    struct supervisor *s = c->sup;
    struct err err;
    int fd = -1;
    c->generation++;
    c->killed = c->renewed = false;
    c->sync_asked = c->sync_done = 0;
    c->why[0] = '\0';
    c->answered = false;
    pid_t pid = spawn_role(c->kind, c->index, c->kind == ROLE_KIND_KEEPER ? s->runtime_fd : -1, &fd, &err);
    if (pid > 0) {
        c->pid = pid;
        c->started_ms = clock_mono_ms();
        c->state = CHILD_STARTING;
        oom_score_set(c);
        c->channel = msg_channel_new(s->loop, fd, &channel_ops, c);
        if (!c->channel) {
            close(fd);
            err_set(&err, "out of memory");
        }
        c->timer.cb = on_start_deadline;
        timer_set(s->loop, &c->timer, START_MS);
    }
    if (pid > 0 && c->channel && wiring_start(c, &err) == 0)
        return;
    snprintf(c->why, sizeof c->why, "%s", err.text);
    if (pid > 0) {
        child_kill(c);
        return;
    }
    char name[32];
    name_put(c, name);
    if (s->state == SUP_STARTING)
        supervisor_fail(s, "%s: %s", name, err.text);
    else
        restart_later(c);
}

static void all_workers_down(struct supervisor *s)
{
    for (unsigned i = 0; i < s->nworkers; i++)
        if (!s->workers[i]->crash_loop)
            return;
    if (s->listeners_paused)
        return;
    s->listeners_paused = true;
    wiring_drop_listeners(s->resolver);
    listeners_close(&s->listeners);
    log_error("every worker is in a crash loop: the listeners are closed");
    event_lifecycle(s, "listeners_closed", "supervisor", "every worker is in a crash loop");
}

/* Somebody's kill -9 (or the kernel's, short of memory): not a fault that the next incarnation would repeat. */
static bool killed_from_outside(const struct child *c, int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !c->killed && c->state == CHILD_READY;
}

static void count_death(struct child *c, uint64_t now, const char *name)
{
    struct supervisor *s = c->sup;
    if (now - c->started_ms >= BACKOFF_CALM_MS)
        c->backoff_ms = BACKOFF_FIRST_MS;
    memmove(c->deaths + 1, c->deaths, sizeof c->deaths - sizeof *c->deaths);
    c->deaths[0] = now;
    uint64_t oldest = c->deaths[CRASH_LOOP_DEATHS - 1];
    bool loop = c->kind == ROLE_KIND_WORKER && oldest && now - oldest < CRASH_LOOP_MS;
    if (loop && !c->crash_loop) {
        log_error("%s: crash loop (%d deaths within %d s): tried again every %d s", name, CRASH_LOOP_DEATHS,
                  CRASH_LOOP_MS / 1000, CRASH_LOOP_RETRY_MS / 1000);
        event_lifecycle(s, "crash_loop", name, NULL);
    }
    c->crash_loop = loop;
    if (loop)
        all_workers_down(s);
}

/* What the wait status says, in words. */
static void how_put(const struct child *c, int status, char *out, size_t size)
{
    if (c->why[0])
        snprintf(out, size, "%s", c->why);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        snprintf(out, size, "killed by its own seccomp filter (signal %d)", WTERMSIG(status));
    else if (WIFSIGNALED(status))
        snprintf(out, size, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
}

/* Its death may be heard of before its last words, which wait in the channel: why it could not start. */
static void last_words(struct child *c)
{
    int fds[MSG_FDS_MAX];
    struct msg raw = { .fds = fds };
    struct buf body;
    buf_init(&body, MSG_BODY_MAX + 4096);
    while (!c->why[0] && c->channel && msg_recv_blocking(msg_channel_fd(c->channel), &body, &raw) == 0) {
        struct role_msg m;
        if (raw.type == ROLE_FAILED && role_msg_parse(&raw, false, &m) == 0)
            snprintf(c->why, sizeof c->why, "%.*s", STR_ARG(m.text));
        for (size_t i = 0; i < raw.nfds; i++)
            close(fds[i]);
        raw.nfds = 0;
    }
    buf_done(&body);
}

static void child_ended(struct child *c, int status)
{
    struct supervisor *s = c->sup;
    char name[32], how[sizeof c->why];
    name_put(c, name);
    last_words(c);
    how_put(c, status, how, sizeof how);
    bool expected = c->state == CHILD_ENDING || c->retired;
    bool was_starting = c->state == CHILD_STARTING, outside = killed_from_outside(c, status);
    c->pid = 0;
    c->state = CHILD_DOWN;
    timer_clear(&c->timer);
    msg_channel_free(&c->channel);
    wiring_ring_died(c);
    workers_sync_look(s);
    if (!expected) {
        log_error("%s: %s", name, how);
        event_lifecycle(s, "role_died", name, how);
    }
    if (c->retired) {
        forget(c);
    } else if (s->state == SUP_STARTING && was_starting) {
        supervisor_fail(s, "%s: %s", name, how);
        return;
    } else if (s->state == SUP_RUNNING || s->state == SUP_STARTING) {
        if (outside || c->renewed) {
            c->backoff_ms = BACKOFF_FIRST_MS;
            c->crash_loop = false;
        } else {
            count_death(c, clock_mono_ms(), name);
        }
        restart_later(c);
        reload_look(s);
    } else if (c == s->logger && s->sink && s->state < SUP_FLUSHING) {
        restart_later(c); /* those that drain still write, and what they wrote must not go with their rings */
    } else if (c == s->logger && s->state == SUP_FLUSHING) {
        s->flush_failed = !WIFEXITED(status) || WEXITSTATUS(status);
    }
    if (s->state > SUP_RUNNING)
        supervisor_stop_step(s);
}

struct by_pid {
    pid_t pid;
    struct child *found;
};

static void match_pid(struct child *c, void *ctx)
{
    struct by_pid *p = ctx;
    if (c->pid == p->pid)
        p->found = c;
}

void children_reap(struct supervisor *s)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        struct by_pid p = { pid, NULL };
        children_each(s, match_pid, &p);
        if (p.found)
            child_ended(p.found, status);
    }
}

void children_each(struct supervisor *s, void (*cb)(struct child *c, void *ctx), void *ctx)
{
    struct child *single[] = { s->logger, s->ca, s->minter, s->keeper, s->resolver };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (single[i])
            cb(single[i], ctx);
    for (unsigned i = 0; i < s->nworkers; i++)
        cb(s->workers[i], ctx);
    for (struct child *c = s->retired; c; c = c->next_retired)
        cb(c, ctx);
}

bool children_ready(const struct supervisor *s)
{
    const struct child *single[] = { s->logger, s->ca, s->keeper, s->resolver };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (!single[i] || single[i]->state != CHILD_READY)
            return false;
    if (s->minter && s->minter->state != CHILD_READY)
        return false;
    for (unsigned i = 0; i < s->nworkers; i++)
        if (s->workers[i]->state != CHILD_READY)
            return false;
    return s->nworkers > 0;
}
