/* SPDX-License-Identifier: Apache-2.0
 *
 * The control socket's server. A connection brings one line, gets one line, and ends; what needs a role's answer waits
 * for it with a deadline. Only the login of a run keeps its connection: it lives as long. Who asks is known from the
 * kernel (SO_PEERCRED), logged, and judged before anything is done.
 */
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "daemon/control_msg.h"
#include "daemon/runtime.h"
#include "daemon/statedir.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNS_MAX = 32 + RUN_LOGINS_MAX, REQUEST_MS = 10000, ANSWER_MS = 30000 };

struct control_conn {
    struct control_conn *next;
    struct control *control;
    struct watch watch;
    struct timer timer;
    struct buf in, out;
    struct ucred peer;
    char who[64];
    uint64_t id;       /* of the question to roles */
    unsigned waiting;  /* answers still to come */
    json_t *answer;    /* being built */
    struct buf pieces; /* of a lease list */
    bool answered;
    uint64_t login;      /* of a run, which ends with this connection; 0: none */
    char login_agent[CONFIG_NAME_MAX + 1];
};

struct control {
    struct supervisor *s;
    struct watch watch;
    struct control_conn *conns;
    unsigned n;
};

static void conn_free(struct control_conn *c)
{
    struct control *ctl = c->control;
    for (struct control_conn **p = &ctl->conns; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    ctl->n--;
    reload_forget(ctl->s, c);
    workers_sync_forget(ctl->s, c);
    if (c->login) {
        run_login_drop(ctl->s, c->login);
        event_lifecycle(ctl->s, "run_ended", c->who, c->login_agent);
    }
    watch_del(&c->watch);
    timer_clear(&c->timer);
    close(c->watch.fd);
    buf_done(&c->in);
    buf_done(&c->out);
    buf_done(&c->pieces);
    json_decref(c->answer);
    free(c);
}

static void conn_write(struct control_conn *c)
{
    while (buf_size(&c->out)) {
        struct str s = buf_str(&c->out);
        ssize_t n = send(c->watch.fd, s.p, s.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            watch_set(&c->watch, EPOLLOUT);
            return;
        }
        if (n <= 0)
            break;
        buf_consume(&c->out, (size_t)n);
    }
    if (c->login && !buf_size(&c->out)) { /* from now on only its end is waited for */
        timer_clear(&c->timer);
        watch_set(&c->watch, EPOLLIN);
        return;
    }
    conn_free(c);
}

static void on_conn_deadline(struct timer *t)
{
    conn_free((struct control_conn *)((char *)t - offsetof(struct control_conn, timer)));
}

/* Takes the answer over; the connection may be gone when it returns. */
static void answer(struct control_conn *c, json_t *root)
{
    struct supervisor *s = c->control->s;
    json_object_set_new(root, "v", json_integer(1));
    json_object_set_new(root, "config", json_string(s->current->gathered.path));
    json_object_set_new(root, "snapshot", json_string(s->current->hash));
    char *text = json_dumps(root, JSON_COMPACT);
    if (root == c->answer)
        c->answer = NULL;
    json_decref(root);
    if (text) {
        buf_put(&c->out, str_c(text));
        buf_putc(&c->out, '\n');
    }
    if (text && c->login)
        explicit_bzero(text, strlen(text));
    free(text);
    c->answered = true;
    c->timer.cb = on_conn_deadline;
    timer_set(s->loop, &c->timer, ANSWER_MS);
    conn_write(c);
}

static void refuse(struct control_conn *c, const char *code, const char *message)
{
    answer(c, json_pack("{s:b, s:s, s:s}", "ok", 0, "code", code, "message", message));
}

void control_reload_done(struct control_conn *c, bool good, const struct diag *diag)
{
    if (good) {
        answer(c, json_pack("{s:b}", "ok", 1));
        return;
    }
    json_t *errors = json_array();
    for (size_t i = 0; diag && i < diag->n; i++)
        if (diag->lines[i].error)
            json_array_append_new(errors, json_stringn_nocheck(diag->lines[i].text.p, diag->lines[i].text.n));
    answer(c, json_pack("{s:b, s:s, s:s, s:o}", "ok", 0, "code", "config_errors", "message",
                        "the configuration was refused; the one in use stays", "errors", errors));
}

/* --- status --- */

static const char *const state_names[] = {
    [CHILD_DOWN] = "down",
    [CHILD_STARTING] = "starting",
    [CHILD_READY] = "ready",
    [CHILD_ENDING] = "ending",
};

static void add_role(struct child *c, void *ctx)
{
    json_t *roles = ctx;
    json_array_append_new(roles, json_pack("{s:s, s:i, s:i, s:i, s:s, s:i}", "name", role_kind_name(c->kind), "pid",
                                           (int)c->pid, "uid", (int)user_uid(users_of(&c->sup->users, c->kind)),
                                           "index", (int)c->index, "state", state_names[c->state], "restarts",
                                           (int)(c->generation - c->first_generation)));
}

static void ask_stats(struct child *child, void *ctx)
{
    struct control_conn *c = ctx;
    if ((child->kind != ROLE_KIND_WORKER && child->kind != ROLE_KIND_LOGGER) || child->state != CHILD_READY)
        return;
    c->waiting++;
    child_send(child, &(struct role_msg) { .type = ROLE_STATS, .id = c->id });
}

static void on_stats_deadline(struct timer *t)
{
    struct control_conn *c = (struct control_conn *)((char *)t - offsetof(struct control_conn, timer));
    json_t *root = c->answer;
    c->answer = NULL;
    json_object_set_new(root, "complete", json_boolean(c->waiting == 0));
    answer(c, root);
}

static void do_status(struct control_conn *c)
{
    struct supervisor *s = c->control->s;
    json_t *roles = json_array(), *sockets = json_array();
    children_each(s, add_role, roles);
    for (size_t i = 0; i < s->listeners.n; i++)
        json_array_append_new(sockets, json_string(s->listeners.v[i].text));
    c->answer = json_pack("{s:b, s:s, s:{s:i, s:i}, s:s, s:o, s:o, s:I, s:s, s:[], s:{}}", "ok", 1, "version",
                          OUTGATE_VERSION, "supervisor", "pid", (int)getpid(), "uid", (int)geteuid(), "state",
                          s->state == SUP_STARTING  ? "starting"
                          : s->state == SUP_RUNNING ? "running"
                                                    : "draining",
                          "roles", roles, "listeners", sockets, "uptime_s",
                          (json_int_t)((clock_mono_ms() - s->started_ms) / 1000), "mode",
                          s->current->gathered.config->observe ? "observe" : "enforce", "workers", "audit");
    c->id = ++s->next_id;
    c->waiting = 0;
    children_each(s, ask_stats, c);
    c->timer.cb = on_stats_deadline;
    timer_set(s->loop, &c->timer, c->waiting ? STATS_MS : 0);
}

static struct control_conn *conn_of(struct supervisor *s, uint64_t id)
{
    for (struct control_conn *c = s->control ? s->control->conns : NULL; c; c = c->next)
        if (c->id == id && c->id && !c->answered)
            return c;
    return NULL;
}

void control_on_stats(struct child *child, const struct role_msg *m)
{
    struct control_conn *c = conn_of(child->sup, m->id);
    if (!c || !c->answer || !c->waiting)
        return;
    json_t *v = json_loadb(m->text.p, m->text.n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(v) && child->kind == ROLE_KIND_LOGGER) {
        json_object_set(c->answer, "audit", v);
    } else if (json_is_object(v)) {
        json_object_set_new(v, "index", json_integer(child->index));
        json_array_append(json_object_get(c->answer, "workers"), v);
    }
    json_decref(v);
    if (--c->waiting == 0)
        timer_set(child->sup->loop, &c->timer, 0);
}

/* --- leases --- */

static void on_keeper_deadline(struct timer *t)
{
    struct control_conn *c = (struct control_conn *)((char *)t - offsetof(struct control_conn, timer));
    refuse(c, "unavailable", "the keeper does not answer");
}

static void ask_keeper(struct control_conn *c, const struct control_request *q)
{
    struct supervisor *s = c->control->s;
    if (s->keeper->state != CHILD_READY) {
        refuse(c, "unavailable", "the keeper is down just now");
        return;
    }
    c->id = ++s->next_id;
    c->timer.cb = on_keeper_deadline;
    timer_set(s->loop, &c->timer, REQUEST_MS);
    if (q->command == CONTROL_LEASE_LIST)
        child_send(s->keeper, &(struct role_msg) { .type = ROLE_LEASES, .id = c->id });
    else
        child_send(s->keeper, &(struct role_msg) { .type = ROLE_REVOKE,
                                                   .id = c->id,
                                                   .text = str_c(q->lease_id),
                                                   .more = str_c(q->credential),
                                                   .who = str_c(c->who) });
}

void control_on_leases(struct supervisor *s, const struct role_msg *m)
{
    struct control_conn *c = conn_of(s, m->id);
    if (!c)
        return;
    buf_put(&c->pieces, m->text);
    if (m->flag)
        return;
    json_t *leases = c->pieces.failed ? NULL : json_loadb(buf_str(&c->pieces).p, buf_size(&c->pieces), 0, NULL);
    if (json_is_array(leases))
        answer(c, json_pack("{s:b, s:o}", "ok", 1, "leases", leases));
    else {
        json_decref(leases);
        refuse(c, "unavailable", "the keeper's list cannot be read");
    }
}

void control_on_revoked(struct supervisor *s, const struct role_msg *m)
{
    struct control_conn *c = conn_of(s, m->id);
    if (c)
        answer(c, json_pack("{s:b, s:I}", "ok", 1, "revoked", (json_int_t)m->number));
}

/* --- the login of a run --- */

static void on_login_known(void *ctx, bool all)
{
    struct control_conn *c = ctx;
    if (!all)
        log_error("login: a worker does not answer yet");
    answer(c, c->answer);
}

static void make_login(struct control_conn *c, const struct control_request *q)
{
    struct supervisor *s = c->control->s;
    struct err err;
    struct str user;
    char token[RUN_TOKEN_SIZE];
    c->login = run_login_add(s, q->agent, &user, token, &err);
    if (!c->login) {
        refuse(c, "unavailable", err.text);
        return;
    }
    snprintf(c->login_agent, sizeof c->login_agent, "%.*s", CONFIG_NAME_MAX, q->agent);
    event_lifecycle(s, "run_begun", c->who, c->login_agent);
    c->out.wipe = true;
    c->answer = json_pack("{s:b, s:s%, s:s}", "ok", 1, "user", user.p, user.n, "token", token);
    explicit_bzero(token, sizeof token);
    timer_clear(&c->timer);
    workers_sync(s, PREPARE_MS, on_login_known, c);
}

/* --- requests --- */

static bool is_agent_uid(const struct config *c, uid_t uid)
{
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++)
            if (c->agents[i].claims[k].kind == CLAIM_UNIX_UID && c->agents[i].claims[k].unix_uid == uid)
                return true;
    return false;
}

static bool token_fits(struct supervisor *s, const char *token)
{
    struct buf want;
    buf_init(&want, 4096);
    want.wipe = true;
    bool fits = statedir_read_console_token(s->state_fd, &want, NULL) == 0;
    struct str w = buf_str(&want);
    if (w.n && w.p[w.n - 1] == '\n')
        w.n--;
    fits = fits && w.n >= 16 && secret_equal(w, str_c(token));
    buf_done(&want);
    return fits;
}

/* NULL: it may; else the code of the refusal. */
static const char *judge(struct control_conn *c, const struct control_request *q)
{
    struct supervisor *s = c->control->s;
    struct control_peer peer = {
        .uid = c->peer.uid,
        .server_uid = geteuid(),
        .separate = s->users.separate,
        .agent_uid = is_agent_uid(s->current->gathered.config, c->peer.uid),
    };
    if (q->config[0] && strcmp(q->config, s->current->gathered.path) != 0)
        return "other_config";
    enum control_access access = control_access(&peer, q->command);
    if (access == CONTROL_TOKEN)
        return !q->token[0] ? "token_required" : token_fits(s, q->token) ? NULL : "token_wrong";
    return access == CONTROL_ALLOWED ? NULL : "forbidden";
}

static const char *refusal_words(const char *code)
{
    return strcmp(code, "other_config") == 0     ? "this server runs another configuration"
           : strcmp(code, "token_required") == 0 ? "agents and operators share a uid here: the console token is wanted"
           : strcmp(code, "token_wrong") == 0    ? "the console token does not fit"
                                                 : "this uid is an agent's: it may not control the server";
}

static void dispatch(struct control_conn *c, const struct control_request *q)
{
    struct supervisor *s = c->control->s;
    const char *code = judge(c, q);
    if (code) {
        log_error("control: %s from %s is refused: %s", control_command_name(q->command), c->who, code);
        event_lifecycle(s, "control_refused", c->who, code);
        refuse(c, code, refusal_words(code));
        return;
    }
    if (q->command != CONTROL_STATUS) /* asked every second by monitors */
        log_info("control: %s from %s", control_command_name(q->command), c->who);
    switch (q->command) {
    case CONTROL_STATUS:
        do_status(c);
        return;
    case CONTROL_RELOAD:
        timer_set(s->loop, &c->timer, ANSWER_MS);
        reload_ask(s, c, c->who);
        return;
    case CONTROL_DRAIN: {
        char who[sizeof c->who];
        snprintf(who, sizeof who, "%s", c->who);
        answer(c, json_pack("{s:b}", "ok", 1));
        supervisor_drain(s, who, false);
        return;
    }
    case CONTROL_LEASE_LIST:
    case CONTROL_LEASE_REVOKE:
        ask_keeper(c, q);
        return;
    case CONTROL_LOGIN:
        make_login(c, q);
        return;
    case CONTROL_NONE:
    case CONTROL_COMMAND_COUNT:
        break;
    }
    refuse(c, "usage", "unknown command");
}

static void on_request(struct control_conn *c, struct str line)
{
    struct control_request q;
    struct err err;
    watch_set(&c->watch, 0);
    if (control_request_parse(line, &q, &err))
        refuse(c, "usage", err.text);
    else
        dispatch(c, &q);
    secret_wipe(&q, sizeof q);
}

static void conn_read(struct control_conn *c)
{
    char *p = buf_reserve(&c->in, 4096);
    ssize_t n = p ? recv(c->watch.fd, p, 4096, MSG_DONTWAIT) : -1;
    if (n < 0 && p && errno == EAGAIN)
        return;
    if (n <= 0 || c->answered) {
        conn_free(c);
        return;
    }
    buf_wrote(&c->in, (size_t)n);
    ptrdiff_t end = str_find_char(buf_str(&c->in), '\n');
    if (end >= 0)
        on_request(c, str_sub(buf_str(&c->in), 0, (size_t)end));
}

static void on_conn(struct watch *w, uint32_t revents)
{
    struct control_conn *c = (struct control_conn *)((char *)w - offsetof(struct control_conn, watch));
    if (revents & EPOLLOUT && c->answered)
        conn_write(c);
    else if (revents & EPOLLIN && w->events & EPOLLIN)
        conn_read(c);
    else if (revents & (EPOLLHUP | EPOLLERR))
        conn_free(c); /* whoever asked is gone */
}

static void on_accept(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct control *ctl = (struct control *)((char *)w - offsetof(struct control, watch));
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct control_conn *c = ctl->n < CONNS_MAX ? calloc(1, sizeof *c) : NULL;
    socklen_t n = sizeof c->peer;
    if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &n)) {
        free(c);
        close(fd);
        return;
    }
    c->control = ctl;
    c->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_conn };
    c->timer.cb = on_conn_deadline;
    buf_init(&c->in, CONTROL_LINE_MAX + 4096);
    buf_init(&c->out, CONTROL_ANSWER_MAX);
    buf_init(&c->pieces, CONTROL_ANSWER_MAX);
    c->in.wipe = true;
    snprintf(c->who, sizeof c->who, "uid %u pid %d", (unsigned)c->peer.uid, (int)c->peer.pid);
    if (watch_add(ctl->s->loop, &c->watch)) {
        close(fd);
        free(c);
        return;
    }
    timer_set(ctl->s->loop, &c->timer, REQUEST_MS);
    c->next = ctl->conns;
    ctl->conns = c;
    ctl->n++;
}

int control_open(struct supervisor *s, struct err *err)
{
    int fd = unix_listen_at(s->runtime_fd, "control.sock", 0660, (uid_t)-1, s->listeners.socket_gid, SOCK_STREAM, err);
    if (fd < 0)
        return -1;
    s->control = calloc(1, sizeof *s->control);
    MUST(s->control);
    s->control->s = s;
    s->control->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_accept };
    return watch_add(s->loop, &s->control->watch) ? err_set_errno(err, "control socket") : 0;
}

void control_close(struct supervisor *s)
{
    if (!s->control)
        return;
    while (s->control->conns)
        conn_free(s->control->conns);
    watch_del(&s->control->watch);
    close(s->control->watch.fd);
    unlinkat(s->runtime_fd, "control.sock", 0);
    free(s->control);
    s->control = NULL;
}
