/* SPDX-License-Identifier: Apache-2.0
 *
 * The private minter's process. Its HTTP threads ask for a source's file anew each time; only the supervisor can open
 * it, so the question goes through the loop's thread, and the asking thread waits for the answer, with a deadline. */
#include "daemon/role.h"
#include "mint/minter.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_WAIT_S = 3 };

struct open_wait {
    struct open_wait *next;
    uint64_t id;
    struct str credential;
    bool asked, answered;
    int fd;
    pthread_cond_t done;
};
struct minter_role {
    struct role *role;
    struct minter *minter;
    struct minter_source *sources;
    pthread_mutex_t lock;
    struct open_wait *waits; /* under lock */
    uint64_t next_id;
    struct watch wake; /* an eventfd: some wait is new */
};

static void on_wake(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct minter_role *mr = (struct minter_role *)((char *)w - offsetof(struct minter_role, wake));
    uint64_t v;
    ssize_t n = read(w->fd, &v, sizeof v);
    (void)n;
    pthread_mutex_lock(&mr->lock);
    for (struct open_wait *o = mr->waits; o; o = o->next)
        if (!o->asked) {
            o->asked = true;
            role_send(mr->role, &(struct role_msg) { .type = ROLE_MINT_OPEN, .id = o->id, .text = o->credential });
        }
    pthread_mutex_unlock(&mr->lock);
}

/* On a thread of the minter. */
static int open_file(void *ctx, struct str credential, struct str path)
{
    (void)path; /* the supervisor takes it from the configuration */
    struct minter_role *mr = ctx;
    struct open_wait o = { .credential = credential, .fd = -1 };
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&o.done, &attr);
    pthread_condattr_destroy(&attr);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += OPEN_WAIT_S;

    pthread_mutex_lock(&mr->lock);
    o.id = ++mr->next_id;
    o.next = mr->waits;
    mr->waits = &o;
    uint64_t one = 1;
    ssize_t n = write(mr->wake.fd, &one, sizeof one);
    (void)n;
    int r = 0;
    while (!o.answered && r == 0)
        r = pthread_cond_timedwait(&o.done, &mr->lock, &until);
    for (struct open_wait **p = &mr->waits; *p; p = &(*p)->next)
        if (*p == &o) {
            *p = o.next;
            break;
        }
    pthread_mutex_unlock(&mr->lock);
    pthread_cond_destroy(&o.done);
    return o.fd;
}

static void sources_fill(struct minter_role *mr, struct role_input *in, struct minter_options *o)
{
    mr->sources = calloc(in->nsources + 1, sizeof *mr->sources);
    MUST(mr->sources);
    for (size_t i = 0; i < in->nsources; i++) {
        struct mint_source *s = &in->sources[i].source;
        mr->sources[i] = (struct minter_source) {
            .credential = s->credential,
            .kind = s->kind,
            .text = s->text,
            .argv = s->argv,
            .argc = s->argc,
            .ttl_ms = s->ttl_ms,
            .value_fd = in->sources[i].value_fd,
        };
        o->peer_uids[0] = (uid_t)s->peer_uid;
    }
    o->npeer_uids = 1;
    o->sources = mr->sources;
    o->nsources = in->nsources;
}

static int minter_role_open(struct role *r, struct err *err)
{
    struct minter_role *mr = calloc(1, sizeof *mr);
    MUST(mr);
    r->self = mr;
    mr->role = r;
    pthread_mutex_init(&mr->lock, NULL);
    mr->wake = (struct watch) { .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .cb = on_wake };
    if (mr->wake.fd < 0 || watch_add(r->loop, &mr->wake))
        return err_set_errno(err, "minter: eventfd");
    struct minter_options o = { .listen_fd = r->in.listen_fd, .open_file = open_file, .ctx = mr };
    sources_fill(mr, &r->in, &o);
    mr->minter = minter_new(&o, err);
    if (!mr->minter)
        return err_prefix(err, "minter");
    /* The minter keeps borrowing the sources: what came in stays for the life of the process. */
    r->in.sources = NULL;
    r->in.nsources = 0;
    r->in.listen_fd = -1;
    return 0;
}

static int minter_on_message(struct role *r, struct role_msg *m)
{
    struct minter_role *mr = r->self;
    if (m->type != ROLE_FILE_OPENED)
        return -1;
    pthread_mutex_lock(&mr->lock);
    for (struct open_wait *o = mr->waits; o; o = o->next)
        if (o->id == m->id && !o->answered) {
            if (m->flag && m->nfds) {
                o->fd = m->fds[0];
                m->fds[0] = -1;
            }
            o->answered = true;
            pthread_cond_signal(&o->done);
        }
    pthread_mutex_unlock(&mr->lock);
    return 0;
}

static void minter_on_stop(struct role *r)
{
    (void)r; /* its threads may be in the middle of an answer: the process just ends */
}

const struct role_ops role_ops_minter = {
    .kind = ROLE_KIND_MINTER,
    .allow = LOCKDOWN_FILE_READ | LOCKDOWN_EXEC | LOCKDOWN_THREADS | LOCKDOWN_ACCEPT,
    .filter_first = true,
    .open = minter_role_open,
    .on_message = minter_on_message,
    .on_stop = minter_on_stop,
};
