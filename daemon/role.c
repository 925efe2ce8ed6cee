/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/role.h"

#include "base/clock.h"
#include "base/lockdown.h"
#include "base/log.h"
#include "base/sealed.h"
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct role_ops *const all_ops[] = { &role_ops_logger, &role_ops_ca,       &role_ops_minter,
                                                  &role_ops_keeper, &role_ops_resolver, &role_ops_worker };

struct role_snapshot *role_snapshot_new(enum role_kind kind, int fd, int names_fd, struct err *err)
{
    struct role_snapshot *s = calloc(1, sizeof *s);
    MUST(s);
    int r = sealed_map(fd, SNAPSHOT_MAX, &s->bytes, err);
    close(fd);
    struct diag diag;
    diag_init(&diag);
    if (r == 0)
        r = snapshot_unpack(s->bytes, &s->view, err);
    if (r == 0) {
        s->number = s->view.number;
        struct config *c = config_parse(s->view.file, s->view.dir, s->view.text, &diag);
        s->policy = c ? policy_new(c, s->view.files, s->view.nfiles, &diag) : NULL;
        if (!s->policy)
            r = err_set(err, "%.*s", STR_ARG(diag.n ? diag.lines[0].text : STR("the configuration does not compile")));
    }
    diag_done(&diag);
    if (r == 0 && names_fd >= 0) {
        s->names = virtual_table_map(names_fd, &policy_config(s->policy)->synthetic_pool, kind == ROLE_KIND_RESOLVER, err);
        r = s->names ? 0 : -1;
    }
    if (names_fd >= 0)
        close(names_fd);
    if (r)
        role_snapshot_free(&s);
    return s;
}

void role_snapshot_free(struct role_snapshot **sp)
{
    struct role_snapshot *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    if (s->policy)
        policy_unref(&s->policy);
    virtual_table_unref(&s->names);
    snapshot_done(&s->view);
    sealed_unmap(s->bytes);
    free(s);
}

void role_send(struct role *r, const struct role_msg *m)
{
    if (role_msg_send(r->channel, m) && msg_channel_open(r->channel))
        log_error("the supervisor does not take our messages");
}

static void on_prepare(struct role *r, struct role_msg *m)
{
    struct err err = { "" };
    int fd = m->fds[0], names_fd = m->nfds > 1 ? m->fds[1] : -1;
    m->fds[0] = -1;
    if (m->nfds > 1)
        m->fds[1] = -1;
    role_snapshot_free(&r->prepared);
    r->prepared = role_snapshot_new(r->ops->kind, fd, names_fd, &err);
    bool good = r->prepared && r->prepared->number == m->number;
    role_send(r,
              &(struct role_msg) { .type = ROLE_PREPARED, .flag = good, .number = m->number, .text = str_c(err.text) });
}

static int on_commit(struct role *r, uint64_t number)
{
    if (!r->prepared || r->prepared->number != number)
        return -1; /* it must not go on with rules that the others have left: end, be started anew */
    struct role_snapshot *old = r->snapshot;
    r->snapshot = r->prepared;
    r->prepared = NULL;
    r->ops->on_commit(r);
    role_snapshot_free(&old);
    return 0;
}

static void on_stats(struct role *r, uint64_t id)
{
    struct buf out;
    buf_init(&out, 65536);
    buf_putc(&out, '{');
    if (r->ops->stats)
        r->ops->stats(r, &out);
    buf_putc(&out, '}');
    role_send(r, &(struct role_msg) { .type = ROLE_STATS_ARE, .id = id, .text = buf_str(&out) });
    buf_done(&out);
}

/* While the loop runs. */
static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    struct role *r = ctx;
    struct role_msg rm;
    if (role_msg_parse(m, true, &rm))
        return -1;
    if (rm.type == ROLE_STATS) {
        on_stats(r, rm.id);
        return 0;
    }
    if (rm.type == ROLE_STOP) {
        r->ops->on_stop(r);
        loop_stop(r->loop);
        return 0;
    }
    if (r->ops->on_commit && rm.type == ROLE_PREPARE) {
        on_prepare(r, &rm);
        return 0;
    }
    if (r->ops->on_commit && rm.type == ROLE_COMMIT)
        return on_commit(r, rm.number);
    if (r->ops->on_commit && rm.type == ROLE_ABORT) {
        role_snapshot_free(&r->prepared);
        return 0;
    }
    if (rm.type == ROLE_SYNC && r->ops->kind != ROLE_KIND_LOGGER) {
        role_send(r, &(struct role_msg) { .type = ROLE_READY, .id = rm.id });
        return 0;
    }
    return r->ops->on_message(r, &rm);
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct role *r = ctx;
    r->ops->on_stop(r);
    loop_stop(r->loop);
}

static const struct msg_ops channel_ops = { .on_message = on_message, .on_closed = on_closed };

/* Roles leave the terminal's and systemd's signals to the supervisor. */
static void signals_init(void)
{
    static const int ignored[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGPIPE,
                                   SIGUSR1, SIGUSR2, SIGTSTP, SIGTTOU, SIGTTIN };
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void titles_set(struct role *r)
{
    const char *name = role_kind_name(r->ops->kind);
    char comm[16];
    if (r->ops->kind == ROLE_KIND_WORKER) {
        snprintf(r->title, sizeof r->title, "outgate: %s %u", name, r->index);
        snprintf(comm, sizeof comm, "og-%s-%u", name, r->index);
    } else {
        snprintf(r->title, sizeof r->title, "outgate: %s", name);
        snprintf(comm, sizeof comm, "og-%s", name);
    }
    prctl(PR_SET_NAME, comm);
    log_init(r->title);
}

static int confine(struct role *r, struct err *err)
{
    if (r->ops->filter_first)
        return 0;
    return lockdown_filter(r->ops->allow, err);
}

static int role_open(struct role *r, struct err *err)
{
    if (secret_init())
        return err_set(err, "no memory can be locked: raise the limit on locked memory (ulimit -l)");
    lockdown_raise_nofile();
    lockdown_prime();
    if (lockdown_identity((uid_t)r->in.uid, (gid_t)r->in.gid, err))
        return -1;
    /* After the change of uid, which clears it. */
    if (!r->ops->outlives_parent)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    r->loop = loop_new();
    if (!r->loop)
        return err_set_errno(err, "cannot make the loop");
    if (r->in.ring[0] >= 0) {
        r->sink = sink_open(r->in.ring[0], r->in.ring[1], r->in.ring[2], err);
        if (!r->sink)
            return err_prefix(err, "event ring");
        r->in.ring[0] = r->in.ring[1] = r->in.ring[2] = -1;
    }
    if (r->in.snapshot_fd >= 0) {
        r->snapshot = role_snapshot_new(r->ops->kind, r->in.snapshot_fd, r->in.names_fd, err);
        r->in.snapshot_fd = r->in.names_fd = -1;
        if (!r->snapshot)
            return -1;
    }
    if (r->ops->filter_first && lockdown_filter(r->ops->allow, err))
        return -1;
    return r->ops->open(r, err);
}

static const struct role_ops *ops_of(const char *name)
{
    enum role_kind kind = role_kind_from_name(name);
    for (size_t i = 0; i < sizeof all_ops / sizeof *all_ops; i++)
        if (all_ops[i]->kind == kind)
            return all_ops[i];
    return NULL;
}

int role_main(const char *name)
{
    int type = 0;
    socklen_t n = sizeof type;
    struct role r = { .ops = ops_of(name) };
    if (!r.ops || getsockopt(ROLE_FD, SOL_SOCKET, SO_TYPE, &type, &n) || type != SOCK_SEQPACKET) {
        fprintf(stderr, "outgate: --role is how the supervisor starts its own processes, not a command\n");
        return 2;
    }
    fcntl(ROLE_FD, F_SETFD, FD_CLOEXEC);
    signals_init();
    uint64_t seed[2];
    rand_bytes(seed, sizeof seed);
    str_hash_seed(seed[0], seed[1]);
    /* jansson would open /dev/urandom at its first object, which may be after the lock-down. */
    json_object_seed((size_t)seed[0] | 1);
    struct err err = { "" };
    int bad = role_input_read(&r, &err);
    titles_set(&r);
    if (!bad)
        bad = role_open(&r, &err);
    if (!bad)
        r.channel = msg_channel_new(r.loop, ROLE_FD, &channel_ops, &r);
    if (!bad && !r.channel)
        bad = err_set(&err, "cannot watch the supervisor's channel");
    if (!bad)
        bad = confine(&r, &err);
    role_input_done(&r.in);
    if (bad) {
        role_msg_send_blocking(ROLE_FD, &(struct role_msg) { .type = ROLE_FAILED, .text = str_c(err.text) });
        return 1;
    }
    if (r.ops->kind == ROLE_KIND_WORKER)
        msg_channel_wipe(r.channel, true);
    loop_run(r.loop);
    /* Nothing is torn down: the kernel does that, and what is secret lies in pages that go with us. */
    _exit(0);
}
