/* SPDX-License-Identifier: Apache-2.0
 *
 * What is handed over is written before `go` is posted and read after it was waited for; the error goes back the same
 * way through the eventfd. So no field is touched by both at once. */
#include "base/saver.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STACK_BYTES = 128 * 1024 };

struct saver {
    struct loop *loop;
    struct watch ended;
    void (*cb)(void *ctx, int error);
    void *ctx;
    bool busy; /* the loop's: a save was handed over and its end is not known */
    pthread_t thread;
    sem_t go;
    /* handed over */
    bool stop;
    int fd;
    uint64_t offset;
    struct str bytes;
    int error; /* handed back */
};

static int write_all(const struct saver *s)
{
    size_t n = 0;
    while (n < s->bytes.n) {
        ssize_t wrote = pwrite(s->fd, s->bytes.p + n, s->bytes.n - n, (off_t)(s->offset + n));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? errno : EIO;
        n += (size_t)wrote;
    }
    return fdatasync(s->fd) ? errno : 0;
}

static void *run(void *ctx)
{
    struct saver *s = ctx;
    const uint64_t one = 1;
    for (;;) {
        while (sem_wait(&s->go) < 0)
            MUST(errno == EINTR);
        if (s->stop)
            return NULL;
        s->error = write_all(s);
        MUST(write(s->ended.fd, &one, sizeof one) == sizeof one);
    }
}

/* False: none has ended. */
static bool take_end(struct saver *s)
{
    uint64_t n;
    if (read(s->ended.fd, &n, sizeof n) != sizeof n)
        return false;
    s->busy = false;
    return true;
}

static void on_ended(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct saver *s = (struct saver *)((char *)w - offsetof(struct saver, ended));
    if (take_end(s))
        s->cb(s->ctx, s->error);
}

/* No signal of the process is handled there. */
static int start_thread(struct saver *s)
{
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_attr_init(&attr))
        return -1;
    int r = pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!r)
        r = pthread_create(&s->thread, &attr, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

struct saver *saver_new(struct loop *l, void (*cb)(void *ctx, int error), void *ctx, struct err *err)
{
    struct saver *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(err, "saver: out of memory");
        return NULL;
    }
    s->loop = l;
    s->cb = cb;
    s->ctx = ctx;
    s->ended = (struct watch) { .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .cb = on_ended };
    if (s->ended.fd < 0 || sem_init(&s->go, 0, 0) || watch_add(l, &s->ended) || start_thread(s)) {
        err_set(err, "saver: no descriptor or thread for it");
        watch_del(&s->ended);
        if (s->ended.fd >= 0)
            close(s->ended.fd);
        free(s);
        return NULL;
    }
    return s;
}

void saver_start(struct saver *s, int fd, uint64_t offset, struct str bytes)
{
    MUST(!s->busy);
    s->busy = true;
    s->fd = fd;
    s->offset = offset;
    s->bytes = bytes;
    MUST(sem_post(&s->go) == 0);
}

bool saver_busy(const struct saver *s)
{
    return s->busy;
}

int saver_wait(struct saver *s, unsigned max_ms)
{
    uint64_t now = clock_mono_ms(), until = now + max_ms;
    while (s->busy && !take_end(s)) {
        now = clock_mono_ms();
        if (now >= until)
            return ETIMEDOUT;
        struct pollfd p = { .fd = s->ended.fd, .events = POLLIN };
        (void)poll(&p, 1, (int)(until - now));
    }
    return s->error;
}

bool saver_free(struct saver **sp)
{
    struct saver *s = *sp;
    *sp = NULL;
    if (!s)
        return true;
    watch_del(&s->ended);
    if (s->busy) {
        pthread_detach(s->thread);
        return false;
    }
    s->stop = true;
    MUST(sem_post(&s->go) == 0 && pthread_join(s->thread, NULL) == 0);
    close(s->ended.fd);
    sem_destroy(&s->go);
    free(s);
    return true;
}
