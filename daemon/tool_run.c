/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tool_run.h"

#include "base/clock.h"
#include "base/sealed.h"
#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define ROOTS_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static bool is_program(const char *path)
{
    return path[0] == '/' && access(path, X_OK) == 0;
}

char *tool_find(const char *name)
{
    static const char more[] = "/usr/local/sbin:/usr/sbin:/sbin";
    const char *path = geteuid() == 0 ? ROOTS_PATH : getenv("PATH");
    struct str lists[] = { path ? str_c(path) : STR("/usr/local/bin:/usr/bin:/bin"), str_c(more) };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct str dir; str_split(&lists[i], ':', &dir);) {
            char *file = z_printf("%.*s/%s", STR_ARG(dir), name);
            if (is_program(file))
                return file;
            free(file);
        }
    return NULL;
}

static int one_is_roots(const char *path, struct err *err)
{
    struct stat st;
    if (lstat(path, &st))
        return err_set_errno(err, "%s", path);
    if (st.st_uid != 0)
        return err_set(err, "%s belongs to uid %u: run this as that user", path, (unsigned)st.st_uid);
    if (S_ISLNK(st.st_mode))
        return err_set(err, "%s: expected a file or a folder, got a link", path);
    if (st.st_mode & (S_IWGRP | S_IWOTH) && !(S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX))
        return err_set(
            err, "%s can be written by others than root (mode %04o): run this as its user, or take that from them",
            path, st.st_mode & 07777);
    return 0;
}

int tool_is_roots(const char *path, struct err *err)
{
    if (path[0] != '/')
        return err_set(err, "%s: expected a path from the root", path);
    char *part = z_of(str_c(path));
    int r = one_is_roots("/", err);
    for (char *p = part + 1; r == 0; p++) {
        char c = *p;
        if (c != '/' && c)
            continue;
        *p = '\0';
        r = one_is_roots(part, err);
        *p = c;
        if (!c)
            break;
    }
    free(part);
    return r;
}

/* NAME=PATH: a folder of root's? */
static bool names_roots(const char *variable)
{
    char *real = realpath(strchr(variable, '=') + 1, NULL);
    bool good = real && tool_is_roots(real, NULL) == 0;
    free(real);
    return good;
}

static bool starts_with_one(const char *variable, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_starts(str_c(variable), str_c(names[i])))
            return true;
    return false;
}

/* Does the program get this variable? A user's gets all but what would make it speak another language or a Java machine
 * print a greeting; root's gets little, and of that nothing that leads it into another user's folder. */
static bool is_passed_on(const char *variable)
{
    static const char *const dropped[] = {
        "LC_ALL=", "LANG=", "LANGUAGE=", "JAVA_TOOL_OPTIONS=", "_JAVA_OPTIONS=", "JDK_JAVA_OPTIONS="
    };
    static const char *const roots[] = { "HOME=", "JAVA_HOME=", "TMPDIR=" };
    if (geteuid() == 0)
        return starts_with_one(variable, roots, sizeof roots / sizeof *roots) && names_roots(variable);
    return !starts_with_one(variable, dropped, sizeof dropped / sizeof *dropped);
}

static char **environment(void)
{
    static char c_locale[] = "LC_ALL=C", path[] = "PATH=" ROOTS_PATH;
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 3, sizeof *env);
    if (!env)
        abort();
    for (size_t i = 0; i < n; i++)
        if (is_passed_on(environ[i]))
            env[kept++] = environ[i];
    env[kept++] = c_locale;
    if (geteuid() == 0)
        env[kept] = path;
    return env;
}

static void become(const char *const *argv, int in, int out, char *const *env)
{
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(127);
    execve(argv[0], (char *const *)(uintptr_t)argv, env);
    dprintf(2, "cannot be run: %s\n", strerror(errno));
    _exit(127);
}

/* Until it can be read, or the time is over: false. */
static bool readable_until(int fd, uint64_t end)
{
    for (;;) {
        uint64_t now = clock_mono_ms();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int n = now < end ? poll(&p, 1, (int)(end - now)) : 0;
        if (n > 0 || (n == 0 && now >= end))
            return n > 0;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Until nobody holds the other end any more. false: the time is over. */
static bool read_all(int fd, uint64_t end, struct buf *out)
{
    char piece[4096];
    while (readable_until(fd, end)) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true;
        size_t room = buf_room(out);
        buf_put(out, str_of(piece, (size_t)n < room ? (size_t)n : room));
    }
    return false;
}

/* What it says, then its end; it leads a group of its own, which is killed when the time is over. */
static int attend(pid_t pid, int from, const char *name, unsigned ms, struct buf *out, struct err *err)
{
    uint64_t end = clock_mono_ms() + ms;
    int status, pidfd = pidfd_open(pid, 0);
    bool ended = pidfd >= 0 && read_all(from, end, out) && readable_until(pidfd, end);
    if (!ended) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
    }
    if (pidfd >= 0)
        close(pidfd);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set_errno(err, "%s: cannot wait for it", name);
    if (!ended)
        return err_set(err, "%s: expected it to end within %u s, it was killed: see what it waits for, and try again",
                       name, (ms + 999) / 1000);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int tool_run_within(const char *const *argv, struct str input, unsigned ms, struct buf *out, struct err *err)
{
    int pipes[2];
    int in = sealed_new("input", input, err);
    if (in < 0)
        return -1;
    lseek(in, 0, SEEK_SET);
    if (pipe2(pipes, O_CLOEXEC)) {
        close(in);
        return err_set_errno(err, "%s: no pipe", argv[0]);
    }
    char **env = environment();
    pid_t pid = fork();
    if (pid == 0)
        become(argv, in, pipes[1], env);
    free(env);
    close(in);
    close(pipes[1]);
    int r = pid < 0 ? err_set_errno(err, "%s: cannot start it", argv[0]) : attend(pid, pipes[0], argv[0], ms, out, err);
    close(pipes[0]);
    return r;
}

int tool_run(const char *const *argv, struct str input, struct buf *out, struct err *err)
{
    return tool_run_within(argv, input, TOOL_SECONDS * 1000, out, err);
}

struct str tool_last_line(struct str said)
{
    struct str line, last = STR("it says nothing");
    while (str_split(&said, '\n', &line))
        if (str_trim(line).n)
            last = str_trim(line);
    return str_sub(last, 0, 200);
}
