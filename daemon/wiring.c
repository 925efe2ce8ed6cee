/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is told what, and who is connected with whom. A worker has one channel to the ca, the keeper and the resolver
 * each; whenever one end starts anew, both get a new pair. Every writer of events has a ring of its own per
 * incarnation; the supervisor keeps the descriptors until the logger has finished with the ring, so that a logger's
 * death loses nothing. */
#include "daemon/supervisor.h"

#include "base/log.h"
#include "daemon/statedir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RING_MIN = 65536, RING_MAX = 256 * 1024 * 1024 };

static bool has_ring(enum role_kind kind)
{
    return kind == ROLE_KIND_WORKER || kind == ROLE_KIND_KEEPER || kind == ROLE_KIND_RESOLVER;
}

static bool reads_snapshot(enum role_kind kind)
{
    return has_ring(kind);
}

static size_t ring_bytes(const struct supervisor *s)
{
    uint64_t want = s->current->gathered.config->limits.event_ring_bytes;
    size_t n = RING_MIN;
    while (n < want && n < RING_MAX)
        n *= 2;
    return n;
}

static void logger_add(struct supervisor *s, enum role_kind kind, uint32_t index, uint32_t generation, int ring,
                       int done)
{
    int fds[2] = { ring, done };
    child_send(
        s->logger,
        &(struct role_msg) {
            .type = ROLE_RING_ADD, .kind = kind, .index = index, .generation = generation, .fds = fds, .nfds = 2 });
}

static int ring_make(const struct supervisor *s, int *ret_ring, int *ret_done, struct err *err)
{
    int ring = sink_ring_new(ring_bytes(s), err);
    if (ring < 0)
        return -1;
    int done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (done < 0) {
        err_set_errno(err, "eventfd");
        close(ring);
        return -1;
    }
    *ret_ring = ring;
    *ret_done = done;
    return 0;
}

static int send_ring(struct child *c, struct err *err)
{
    struct supervisor *s = c->sup;
    if (ring_make(s, &c->ring_fd, &c->done_fd, err))
        return -1;
    logger_add(s, c->kind, c->index, c->generation, c->ring_fd, c->done_fd);
    int fds[3] = { c->ring_fd, s->wake_fd, c->done_fd };
    child_send(c, &(struct role_msg) { .type = ROLE_RING, .fds = fds, .nfds = 3 });
    return 0;
}

static int send_file(struct child *c, enum role_file what, struct err *err)
{
    int fd = statedir_file(c->sup->state_fd, what, &c->sup->users, err);
    if (fd < 0)
        return -1;
    child_send(c, &(struct role_msg) { .type = ROLE_FILE, .flag = (uint8_t)what, .fds = &fd, .nfds = 1 });
    close(fd);
    return 0;
}

static void send_writer(struct child *c, struct msg_writer *w, enum role_msg_type type)
{
    child_send(c, &(struct role_msg) { .type = type, .text = buf_str(&w->buf) });
    buf_done(&w->buf);
}

void wiring_send_tune(struct child *c)
{
    struct msg_writer w;
    msg_writer_init(&w);
    tune_put(&c->sup->current->tune, &w);
    send_writer(c, &w, ROLE_TUNE);
}

void wiring_send_tickets(struct supervisor *s, struct child *worker)
{
    struct msg_writer w;
    msg_writer_init(&w);
    tickets_put(s->tickets, s->ntickets, &w);
    send_writer(worker, &w, ROLE_TICKETS);
}

void wiring_send_logins(struct child *worker)
{
    struct msg_writer w;
    msg_writer_init(&w);
    run_logins_put(&worker->sup->logins, &w);
    send_writer(worker, &w, ROLE_LOGINS);
}

void wiring_send_own(struct supervisor *s)
{
    struct msg_writer w;
    msg_writer_init(&w);
    own_list_put(&s->own, &w);
    send_writer(s->resolver, &w, ROLE_OWN);
}

void wiring_send_listener(const struct listener *l, struct child *c)
{
    bool dns = l->udp_fd >= 0;
    int fds[2] = { l->fd, l->udp_fd };
    if (dns == (c->kind == ROLE_KIND_RESOLVER))
        child_send(c, &(struct role_msg) {
                          .type = ROLE_LISTENER, .text = str_c(l->text), .fds = fds, .nfds = dns ? 2 : 1 });
}

void wiring_send_listeners(struct child *c)
{
    const struct listeners *ls = &c->sup->listeners;
    for (size_t i = 0; i < ls->n; i++)
        if (!ls->v[i].is_new && !ls->v[i].is_gone)
            wiring_send_listener(&ls->v[i], c);
}

void wiring_drop_listeners(struct child *c)
{
    const struct listeners *ls = &c->sup->listeners;
    for (size_t i = 0; i < ls->n; i++)
        if ((ls->v[i].udp_fd >= 0) == (c->kind == ROLE_KIND_RESOLVER))
            child_send(c, &(struct role_msg) { .type = ROLE_LISTENER_DROP, .text = str_c(ls->v[i].text) });
}

/* A new channel between a worker and one of its peers. Each end is told of the other; ours are closed. */
static void pair(struct child *worker, struct child *peer)
{
    int fds[2];
    if (!worker || !peer || !worker->channel || !peer->channel)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds)) {
        log_error("no channel between worker %u and %s: out of descriptors", worker->index, role_kind_name(peer->kind));
        return;
    }
    child_send(worker, &(struct role_msg) {
                           .type = ROLE_CHANNEL, .kind = peer->kind, .index = peer->index, .fds = &fds[0], .nfds = 1 });
    child_send(peer,
               &(struct role_msg) {
                   .type = ROLE_CHANNEL, .kind = ROLE_KIND_WORKER, .index = worker->index, .fds = &fds[1], .nfds = 1 });
    close(fds[0]);
    close(fds[1]);
}

/* What the role is made of, by kind. */
static int send_parts(struct child *c, struct err *err)
{
    struct supervisor *s = c->sup;
    if (has_ring(c->kind) && send_ring(c, err))
        return -1;
    if (reads_snapshot(c->kind)) {
        int fds[GENERATION_FDS];
        size_t n = generation_fds(s->current, c->kind, fds);
        c->snapshot = s->current->number;
        child_send(c, &(struct role_msg) { .type = ROLE_SNAPSHOT, .number = c->snapshot, .fds = fds, .nfds = n });
    }
    if (c->kind == ROLE_KIND_RESOLVER && send_file(c, ROLE_FILE_BUDGETS, err))
        return -1;
    if (c->listen_fd >= 0)
        child_send(c, &(struct role_msg) { .type = ROLE_LISTEN, .fds = &c->listen_fd, .nfds = 1 });
    if (c->kind == ROLE_KIND_LOGGER || c->kind == ROLE_KIND_CA)
        wiring_send_tune(c);
    if (c->kind == ROLE_KIND_CA)
        return send_file(c, ROLE_FILE_CA_KEY, err) || send_file(c, ROLE_FILE_CA_CERT, err) ? -1 : 0;
    if (c->kind == ROLE_KIND_LOGGER) {
        if (s->wake_fd >= 0)
            child_send(c,
                       &(struct role_msg) { .type = ROLE_FILE, .flag = ROLE_FILE_WAKE, .fds = &s->wake_fd, .nfds = 1 });
        return send_file(c, ROLE_FILE_AUDIT_DIR, err) || send_file(c, ROLE_FILE_ANCHOR_DIR, err) ||
                       send_file(c, ROLE_FILE_LOG_KEY, err)
                   ? -1
                   : 0;
    }
    return 0;
}

static void send_died(struct supervisor *s, const struct dead_ring *d)
{
    child_send(
        s->logger,
        &(struct role_msg) { .type = ROLE_RING_DIED, .kind = d->kind, .index = d->index, .generation = d->generation });
}

struct ring_order {
    struct supervisor *s;
    uint32_t generation; /* rings of this one are sent now … */
    uint32_t next;       /* … and then those of this one */
};

static void add_ring(struct ring_order *o, enum role_kind kind, uint32_t index, uint32_t generation, int ring, int done)
{
    if (generation == o->generation)
        logger_add(o->s, kind, index, generation, ring, done);
    else if (generation > o->generation && generation < o->next)
        o->next = generation;
}

static void add_live_ring(struct child *c, void *ctx)
{
    if (c->ring_fd >= 0)
        add_ring(ctx, c->kind, c->index, c->generation, c->ring_fd, c->done_fd);
}

/* A new logger reads every ring there is, those of dead writers too; a writer's older ones first, so that it can tell
 * whose each open is, and all of them before it hears who died. */
static void send_rings(struct supervisor *s)
{
    if (s->ring_fd >= 0)
        logger_add(s, ROLE_KIND_SUPERVISOR, 0, 1, s->ring_fd, s->done_fd);
    struct ring_order o = { .s = s, .next = 1 };
    while (o.next != UINT32_MAX) {
        o.generation = o.next;
        o.next = UINT32_MAX;
        children_each(s, add_live_ring, &o);
        for (const struct dead_ring *d = s->dead_rings; d; d = d->next)
            add_ring(&o, d->kind, d->index, d->generation, d->ring_fd, d->done_fd);
    }
    for (const struct dead_ring *d = s->dead_rings; d; d = d->next)
        send_died(s, d);
}

static void connect_role(struct child *c)
{
    struct supervisor *s = c->sup;
    if (c->kind == ROLE_KIND_LOGGER)
        send_rings(s);
    if (c->kind == ROLE_KIND_RESOLVER) {
        wiring_send_own(s);
        wiring_send_listeners(c);
    }
    if (c->kind == ROLE_KIND_CA || c->kind == ROLE_KIND_KEEPER || c->kind == ROLE_KIND_RESOLVER)
        for (unsigned i = 0; i < s->nworkers; i++)
            pair(s->workers[i], c);
    if (c->kind == ROLE_KIND_WORKER) {
        pair(c, s->ca);
        pair(c, s->keeper);
        pair(c, s->resolver);
        wiring_send_tickets(s, c);
        wiring_send_logins(c);
        wiring_send_listeners(c);
    }
}

int wiring_start(struct child *c, struct err *err)
{
    struct supervisor *s = c->sup;
    struct user user = users_of(&s->users, c->kind);
    child_send(c, &(struct role_msg) { .type = ROLE_START,
                                       .kind = c->kind,
                                       .index = c->index,
                                       .generation = c->generation,
                                       .number = (uint32_t)user.uid,
                                       .other = (uint32_t)user.gid });
    if (send_parts(c, err) || (c->kind == ROLE_KIND_MINTER && mint_sources_send(c, s->current->gathered.config, err)))
        return -1;
    child_send(c, &(struct role_msg) { .type = ROLE_GO });
    connect_role(c);
    child_sync(c, ++s->next_id);
    return 0;
}

void wiring_ring_died(struct child *c)
{
    struct supervisor *s = c->sup;
    if (c->ring_fd < 0)
        return;
    struct dead_ring *d = calloc(1, sizeof *d);
    MUST(d);
    *d = (struct dead_ring) { s->dead_rings, c->kind, c->index, c->generation, c->ring_fd, c->done_fd };
    s->dead_rings = d;
    c->ring_fd = c->done_fd = -1;
    send_died(s, d);
}

void wiring_ring_closed(struct supervisor *s, const struct role_msg *m)
{
    for (struct dead_ring **p = &s->dead_rings; *p; p = &(*p)->next) {
        struct dead_ring *d = *p;
        if (d->kind != m->kind || d->index != m->index || d->generation != m->generation)
            continue;
        *p = d->next;
        close(d->ring_fd);
        close(d->done_fd);
        free(d);
        return;
    }
}

int wiring_own_sink(struct supervisor *s, struct err *err)
{
    if (ring_make(s, &s->ring_fd, &s->done_fd, err))
        return -1;
    logger_add(s, ROLE_KIND_SUPERVISOR, 0, 1, s->ring_fd, s->done_fd);
    int ring = fcntl(s->ring_fd, F_DUPFD_CLOEXEC, 0), wake = fcntl(s->wake_fd, F_DUPFD_CLOEXEC, 0),
        done = fcntl(s->done_fd, F_DUPFD_CLOEXEC, 0);
    if (ring < 0 || wake < 0 || done < 0)
        return err_set_errno(err, "no descriptors for the event ring");
    s->sink = sink_open(ring, wake, done, err);
    return s->sink ? 0 : -1;
}
