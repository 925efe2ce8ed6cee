/* SPDX-License-Identifier: Apache-2.0
 *
 * A helper is forked from a process with threads: between fork and execve the child makes nothing but system calls, on
 * what the parent prepared. Secrets of this process are not in the child: their pages are wiped or absent there. */
#include "mint/source.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELPER_PATH "/usr/local/bin:/usr/bin:/bin"

struct helper {
    pid_t pid;
    int in, out; /* our ends: its stdin, its stdout */
};

static void close_pair(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Where argv[0] is; without a slash it is looked for in HELPER_PATH. */
static int find_program(const char *name, char *out, size_t size)
{
    if (strchr(name, '/')) {
        int n = snprintf(out, size, "%s", name);
        return n > 0 && (size_t)n < size ? 0 : -1;
    }
    struct str rest = STR(HELPER_PATH), dir;
    while (str_split(&rest, ':', &dir)) {
        int n = snprintf(out, size, "%.*s/%s", STR_ARG(dir), name);
        if (n > 0 && (size_t)n < size && access(out, X_OK) == 0)
            return 0;
    }
    return -1;
}

__attribute__((noreturn)) static void child(const char *program, char *const *argv, char *const *envp, int in, int out,
                                            int null)
{
    static const int reset[] = { SIGPIPE, SIGTERM, SIGINT,  SIGHUP,  SIGCHLD, SIGQUIT,
                                 SIGUSR1, SIGUSR2, SIGTSTP, SIGTTOU, SIGTTIN };
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* with the thread that waits for it, which is as it should be */
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++)
        signal(reset[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0 || close_range(3, ~0u, 0) || chdir("/"))
        _exit(126);
    execve(program, argv, envp);
    _exit(127);
}

static int start(const struct source_exec *x, struct helper *ret, struct err *err)
{
    char program[4096], home[4096];
    int in[2] = { -1, -1 }, out[2] = { -1, -1 };
    if (find_program(x->argv[0], program, sizeof program))
        return err_set(err, "the helper is not there");
    snprintf(home, sizeof home, "HOME=%s", x->home);
    char path[] = "PATH=" HELPER_PATH, lang[] = "LANG=C.UTF-8";
    char *envp[] = { path, home, lang, NULL };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t pid = -1;
    if (null < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || (pid = fork()) < 0) {
        err_set_errno(err, "cannot start the helper");
    } else if (pid == 0) {
        child(program, x->argv, envp, in[0], out[1], null);
    } else {
        setpgid(pid, pid); /* whoever comes first: it must be so before it can be killed as a group */
        *ret = (struct helper) { .pid = pid, .in = in[1], .out = out[0] };
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        in[1] = out[0] = -1;
    }
    close_pair(in);
    close_pair(out);
    if (null >= 0)
        close(null);
    return pid > 0 ? 0 : -1;
}

static void feed(struct helper *h, struct str *question)
{
    ssize_t n = write(h->in, question->p, question->n);
    if (n > 0)
        *question = str_from(*question, (size_t)n);
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || !question->n) { /* it need not read it */
        close(h->in);
        h->in = -1;
    }
}

/* 1: goes on, 0: its stdout ended, -1. */
static int drain(struct helper *h, struct buf *ret, struct err *err)
{
    char *p = buf_reserve(ret, 4096);
    if (!p)
        return err_set(err, "the helper wrote over 64 KiB");
    ssize_t n = read(h->out, p, 4096);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : err_set_errno(err, "the helper's answer");
    buf_wrote(ret, (size_t)n);
    return n > 0;
}

/* Its leader has ended; not reaped, so that its group cannot become another's. */
static bool ended(const struct helper *h)
{
    siginfo_t info = { 0 };
    return waitid(P_PID, (id_t)h->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == h->pid;
}

static int talk(struct helper *h, const struct source_exec *x, struct str question, struct buf *ret, uint64_t until,
                struct err *err)
{
    for (;;) {
        uint64_t now = clock_mono_ms();
        if (now >= until)
            return err_set(err, "the helper did not answer within %d s", SOURCE_EXEC_MS / 1000);
        if (atomic_load(x->stop))
            return err_set(err, "the minter ends");
        struct pollfd fds[2] = { { .fd = h->out, .events = POLLIN }, { .fd = h->in, .events = POLLOUT } };
        int left = until - now > 50 ? 50 : (int)(until - now);
        bool last = ended(h); /* looked at before: what it wrote is there now */
        int n = poll(fds, 2, last ? 0 : left);
        if (n < 0 && errno != EINTR)
            return err_set_errno(err, "the helper's answer");
        if (n == 0 && last)
            return 0; /* something it started holds its stdout open */
        if (h->in >= 0 && fds[1].revents)
            feed(h, &question);
        if (!fds[0].revents)
            continue;
        int r = drain(h, ret, err);
        if (r <= 0)
            return r;
    }
}

static void wait_for_end(const struct helper *h, const struct source_exec *x, uint64_t until)
{
    while (!ended(h) && clock_mono_ms() < until && !atomic_load(x->stop))
        poll(NULL, 0, 1);
}

/* Ends the group, leader included; its exit status, or -1 when it was killed. */
static int reap(const struct helper *h)
{
    int status = 0;
    kill(-h->pid, SIGKILL);
    while (waitpid(h->pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum source_result source_exec_run(const struct source_exec *x, struct str question, struct buf *ret, struct err *err)
{
    struct helper h;
    uint64_t until = clock_mono_ms() + SOURCE_EXEC_MS;
    if (start(x, &h, err))
        return SOURCE_RESULT_UNAVAILABLE;
    int r = talk(&h, x, question, ret, until, err);
    if (h.in >= 0)
        close(h.in);
    close(h.out);
    if (r == 0)
        wait_for_end(&h, x, until);
    int status = reap(&h);
    if (r)
        return SOURCE_RESULT_UNAVAILABLE;
    if (status == SOURCE_EXEC_DENIED)
        return SOURCE_RESULT_REFUSED;
    if (status == 0)
        return SOURCE_RESULT_GIVEN;
    if (status < 0)
        err_set(err, "the helper was killed");
    else
        err_set(err, "the helper ended with status %d", status);
    return SOURCE_RESULT_UNAVAILABLE;
}
