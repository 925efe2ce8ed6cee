/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tool_run.h"

#include "base/sealed.h"
#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool is_program(const char *path)
{
    return path[0] == '/' && access(path, X_OK) == 0;
}

char *tool_find(const char *name)
{
    static const char more[] = "/usr/local/sbin:/usr/sbin:/sbin";
    const char *path = getenv("PATH");
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

/* Ours, but for what would make the program speak another language or a Java machine print a greeting. */
static char **environment(void)
{
    static const char *const dropped[] = {
        "LC_ALL=", "LANG=", "LANGUAGE=", "JAVA_TOOL_OPTIONS=", "_JAVA_OPTIONS=", "JDK_JAVA_OPTIONS="
    };
    static char c_locale[] = "LC_ALL=C";
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 2, sizeof *env);
    if (!env)
        abort();
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++)
            drop |= str_starts(str_c(environ[i]), str_c(dropped[k]));
        if (!drop)
            env[kept++] = environ[i];
    }
    env[kept] = c_locale;
    return env;
}

static void become(const char *const *argv, int in, int out, char *const *env)
{
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(127);
    execve(argv[0], (char *const *)(uintptr_t)argv, env);
    _exit(127);
}

static void read_all(int fd, struct buf *out)
{
    char piece[4096];
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        size_t room = buf_room(out);
        buf_put(out, str_of(piece, (size_t)n < room ? (size_t)n : room));
    }
}

int tool_run(const char *const *argv, struct str input, struct buf *out, struct err *err)
{
    int pipes[2], status;
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
    if (pid < 0) {
        close(pipes[0]);
        return err_set_errno(err, "%s: cannot start it", argv[0]);
    }
    read_all(pipes[0], out);
    close(pipes[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set_errno(err, "%s: cannot wait for it", argv[0]);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct str tool_last_line(struct str said)
{
    struct str line, last = STR("it says nothing");
    while (str_split(&said, '\n', &line))
        if (str_trim(line).n)
            last = str_trim(line);
    return str_sub(last, 0, 200);
}
