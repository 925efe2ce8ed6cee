/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/spawn.h"

#include "daemon/role.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* In the child, between fork and exec: async-signal-safe calls only. */
static void become(char *const *argv, char *const *envp, int channel, int null_fd, int cwd_fd)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(null_fd, 0) < 0 || dup2(2, 1) < 0)
        _exit(126);
    if (channel == ROLE_FD)
        fcntl(channel, F_SETFD, 0);
    else if (dup2(channel, ROLE_FD) < 0)
        _exit(126);
    if (cwd_fd >= 0 ? fchdir(cwd_fd) : chdir("/"))
        _exit(126);
    close_range(ROLE_FD + 1, ~0U, 0);
    execve("/proc/self/exe", argv, envp);
    _exit(127);
}

pid_t spawn_role(enum role_kind kind, uint32_t index, int cwd_fd, int *ret_channel, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_set_errno(err, "cannot make a channel");
    char title[48], name[16];
    snprintf(name, sizeof name, "%s", role_kind_name(kind));
    if (kind == ROLE_KIND_WORKER)
        snprintf(title, sizeof title, "outgate: %s %u", name, index);
    else
        snprintf(title, sizeof title, "outgate: %s", name);
    char option[] = "--role";
    char *argv[] = { title, option, name, NULL };
    char lang[] = "LC_ALL=C", path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
         tz[] = "TZ=UTC";
    char *envp[] = { lang, path, tz, NULL };
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid = null_fd < 0 ? -1 : fork();
    if (pid == 0)
        become(argv, envp, pair[1], null_fd, cwd_fd);
    if (pid < 0) {
        err_set_errno(err, "cannot start a process");
        close(pair[0]);
    } else {
        *ret_channel = pair[0];
    }
    if (null_fd >= 0)
        close(null_fd);
    close(pair[1]);
    return pid;
}
