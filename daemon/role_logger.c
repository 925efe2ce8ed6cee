/* SPDX-License-Identifier: Apache-2.0
 *
 * The logger's process. It outlives the supervisor for as long as it takes to write what was taken: when the channel
 * ends without a STOP, the other roles are being killed by the kernel; it waits for that, closes their rings, and
 * flushes. The eventfd that writers touch is the first logger's, kept by the supervisor; a later one watches it and
 * passes the touch on. */
#include "audit/logger.h"
#include "daemon/role.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RINGS_MAX = 4096, ORPHAN_MS = 250 };

struct ring {
    enum role_kind kind;
    uint32_t index, generation;
};
struct logger_role {
    struct logger *logger;
    struct logger_options options;
    struct watch wake;
    struct ring rings[RINGS_MAX];
    size_t nrings;
};

static void on_wake(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct logger_role *lr = (struct logger_role *)((char *)w - offsetof(struct logger_role, wake));
    uint64_t v;
    if (read(w->fd, &v, sizeof v) == (ssize_t)sizeof v) {
        v = 1;
        ssize_t n = write(logger_wake_fd(lr->logger), &v, sizeof v);
        (void)n; /* full means that it is awake */
    }
}

static void options_set(struct logger_options *o, const struct tune *t)
{
    o->segment_bytes = t->segment_bytes;
    o->keep_ms = t->keep_ms;
    o->max_bytes = t->max_bytes;
    o->sync_ms = t->sync_ms;
    o->sync_always = t->sync_always;
}

/* Not before: until its last line is written, the supervisor keeps the ring for the next logger. */
static void on_ring_closed(void *ctx, const char *name, unsigned index, unsigned generation)
{
    for (unsigned k = 0; k < ROLE_KIND_COUNT; k++)
        if (!strcmp(role_kind_name((enum role_kind)k), name))
            role_send(ctx, &(struct role_msg) { .type = ROLE_RING_CLOSED,
                                                .kind = (enum role_kind)k,
                                                .index = index,
                                                .generation = generation });
}

static int logger_open(struct role *r, struct err *err)
{
    struct logger_role *lr = calloc(1, sizeof *lr);
    MUST(lr);
    r->self = lr;
    lr->options = (struct logger_options) {
        .dir_fd = r->in.files[ROLE_FILE_AUDIT_DIR],
        .anchor_fd = r->in.files[ROLE_FILE_ANCHOR_DIR],
        .key_fd = r->in.files[ROLE_FILE_LOG_KEY],
    };
    options_set(&lr->options, &r->in.tune);
    lr->logger = logger_new(r->loop, &lr->options, err);
    if (!lr->logger)
        return err_prefix(err, "audit log");
    logger_on_ring_closed(lr->logger, on_ring_closed, r);
    /* It has descriptors of its own now; role_input_done closes these. */
    lr->options.dir_fd = lr->options.anchor_fd = lr->options.key_fd = -1;
    lr->wake = (struct watch) { .fd = r->in.files[ROLE_FILE_WAKE], .events = EPOLLIN, .cb = on_wake };
    if (lr->wake.fd >= 0 && watch_add(r->loop, &lr->wake))
        return err_set_errno(err, "cannot watch the writers' eventfd");
    r->in.files[ROLE_FILE_WAKE] = -1;
    return 0;
}

static int ring_add(struct role *r, struct role_msg *m)
{
    struct logger_role *lr = r->self;
    struct err err;
    if (lr->nrings == RINGS_MAX)
        return -1;
    if (logger_add_ring(lr->logger, role_kind_name(m->kind), m->index, m->generation, m->fds[0], m->fds[1], &err)) {
        log_error("the ring of %s %u is refused: %s", role_kind_name(m->kind), m->index, err.text);
        return 0;
    }
    m->fds[0] = m->fds[1] = -1;
    lr->rings[lr->nrings++] = (struct ring) { m->kind, m->index, m->generation };
    return 0;
}

static void ring_died(struct role *r, const struct ring *dead)
{
    struct logger_role *lr = r->self;
    logger_ring_died(lr->logger, role_kind_name(dead->kind), dead->index, dead->generation);
    for (size_t i = 0; i < lr->nrings; i++)
        if (lr->rings[i].kind == dead->kind && lr->rings[i].index == dead->index &&
            lr->rings[i].generation == dead->generation) {
            lr->rings[i] = lr->rings[--lr->nrings];
            break;
        }
}

static int logger_on_message(struct role *r, struct role_msg *m)
{
    struct logger_role *lr = r->self;
    if (m->type == ROLE_RING_ADD)
        return ring_add(r, m);
    if (m->type == ROLE_RING_DIED) {
        struct ring dead = { m->kind, m->index, m->generation };
        ring_died(r, &dead);
        return 0;
    }
    if (m->type == ROLE_TUNE) {
        struct tune t;
        if (tune_parse(m->text, &t))
            return -1;
        options_set(&lr->options, &t);
        logger_configure(lr->logger, &lr->options);
        return 0;
    }
    if (m->type == ROLE_SYNC) {
        int fd = logger_wake_fd(lr->logger);
        role_send(r, &(struct role_msg) { .type = ROLE_READY, .id = m->id, .fds = &fd, .nfds = lr->wake.fd < 0 });
        return 0;
    }
    return -1;
}

static void logger_on_stop(struct role *r)
{
    struct logger_role *lr = r->self;
    if (!msg_channel_open(r->channel)) {
        uint64_t end = loop_now_ms(r->loop) + ORPHAN_MS;
        for (uint64_t now; (now = loop_now_ms(r->loop)) < end;)
            loop_run_once(r->loop, end - now);
        while (lr->nrings) {
            struct ring dead = lr->rings[0];
            ring_died(r, &dead);
        }
    }
    logger_flush(lr->logger);
}

static void logger_put_stats(struct role *r, struct buf *out)
{
    struct logger_role *lr = r->self;
    struct logger_stats s;
    logger_stats(lr->logger, &s);
    char why[512];
    buf_putf(out, "\"lines\":%llu,\"bytes\":%llu,\"seq\":%llu,\"blocked\":%s", (unsigned long long)s.lines,
             (unsigned long long)s.bytes, (unsigned long long)s.seq, s.blocked ? "true" : "false");
    if (s.blocked) {
        /* str_escape writes \xNN, which JSON lacks: those become spaces; what is left has no quote or control byte. */
        str_escape(str_of(s.blocked_why, strnlen(s.blocked_why, sizeof s.blocked_why)), why, sizeof why);
        for (char *p = why; *p; p++)
            if (*p == '\\')
                *p = ' ';
        buf_putf(out, ",\"blocked_why\":\"%s\"", why);
    }
}

const struct role_ops role_ops_logger = {
    .kind = ROLE_KIND_LOGGER,
    .allow = LOCKDOWN_FILE_WRITE,
    .outlives_parent = true,
    .open = logger_open,
    .on_message = logger_on_message,
    .on_stop = logger_on_stop,
    .stats = logger_put_stats,
};
