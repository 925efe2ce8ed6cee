/* SPDX-License-Identifier: Apache-2.0
 *
 * Each deed is done by a child under the filters that allow it (it lives), under those that do not (the kernel kills
 * it), and without any (the control: it can be done here at all). */
#include "base/lockdown.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static pid_t tester; /* getppid() is itself no call of every filter */
static int listener = -1, other = -1, unix_listener = -1;
static struct sockaddr_in other_at;
static struct sockaddr_un unix_at = { .sun_family = AF_UNIX };

static int listen_on(struct sockaddr_in *ret)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 256) || getsockname(fd, (struct sockaddr *)&a, &n))
        abort();
    if (ret)
        *ret = a;
    return fd;
}

/* --- deeds: 0 when they worked --- */

static int do_nothing(void)
{
    char text[8];
    int p[2];
    (void)getpid();
    char *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return 1;
    p[0] = other, p[1] = (int)sizeof text;
    return getsockopt(p[0], SOL_SOCKET, SO_TYPE, text, (socklen_t *)&p[1]) ? 1 : munmap(mem, 4096);
}

static int do_accept(void)
{
    int fd = accept4(other, NULL, NULL, SOCK_CLOEXEC);
    return fd >= 0 || errno == EAGAIN ? 0 : 1;
}

static int do_datagrams_in(void)
{
    struct mmsghdr none = { 0 };
    return recvmmsg(other, &none, 1, MSG_DONTWAIT, NULL) < 0 && errno != ENOSYS ? 0 : 1;
}

static int do_datagrams_out(void)
{
    struct mmsghdr none = { 0 };
    return sendmmsg(other, &none, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != ENOSYS ? 0 : 1;
}

static int do_dial_inet(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&other_at, sizeof other_at);
}

static int do_dial_inet6(void)
{
    return socket(AF_INET6, SOCK_DGRAM, 0) < 0 && errno != EAFNOSUPPORT;
}

static int do_dial_unix(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&unix_at, sizeof unix_at);
}

static int do_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0) < 0;
}

/* What shutdown makes of a listening socket can be connected by a send. */
static int do_fastopen(void)
{
    shutdown(listener, SHUT_RDWR);
    ssize_t n = sendto(listener, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&other_at, sizeof other_at);
    return n == 1 || errno == EINPROGRESS ? 0 : 1;
}

static int do_fastopen_msg(void)
{
    struct iovec iov = { (char[]) { "x" }, 1 };
    struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &other_at, .msg_namelen = sizeof other_at };
    shutdown(listener, SHUT_RDWR);
    return sendmsg(listener, &h, MSG_FASTOPEN | MSG_NOSIGNAL) == 1 || errno == EINPROGRESS ? 0 : 1;
}

static int do_send(void)
{
    int s[2];
    s[0] = dup(other);
    /* No connection: refused by the socket, not by the filter. */
    return s[0] < 0 || send(s[0], "x", 1, MSG_NOSIGNAL) >= 0 ? 1 : 0;
}

static int do_read_file(void)
{
    return open("/proc/self/status", O_RDONLY | O_CLOEXEC) < 0;
}

static int do_write_file(void)
{
    return open("/dev/null", O_WRONLY | O_CLOEXEC) < 0;
}

static int do_unlink(void)
{
    return unlink("/nonexistent/file") == 0 || errno != ENOENT;
}

static int do_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int status;
    return pid < 0 || waitpid(pid, &status, 0) != pid;
}

static int do_exec(void)
{
    char *argv[] = { (char[]) { "true" }, NULL };
    execve("/bin/true", argv, (char *[]) { NULL });
    return 1;
}

static void *thread(void *arg)
{
    return arg;
}
static int do_thread(void)
{
    pthread_t t;
    return pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL);
}

static int do_exec_memory(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

static int do_make_executable(void)
{
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED || mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static int do_ptrace(void)
{
    return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static int do_peek(void)
{
    char a[4] = "abc", b[4];
    struct iovec l = { b, 4 }, r = { a, 4 };
    return process_vm_readv(getpid(), &l, 1, &r, 1, 0) != 4 && errno != EPERM;
}

static int do_kill(void)
{
    return kill(getppid(), 0);
}

static int do_chmod(void)
{
    return chmod("/nonexistent/file", 0600) == 0 || errno != ENOENT;
}

static int do_unshare(void)
{
    (void)syscall(SYS_unshare, 0);
    return 0;
}

static int do_io_uring(void)
{
    (void)syscall(SYS_io_uring_setup, 1, NULL);
    return 0;
}

static int do_dumpable(void)
{
    return prctl(PR_GET_DUMPABLE) < 0;
}

/* What would reach another process of our uid. */
static int do_signal_other(void)
{
    return (int)syscall(SYS_tgkill, tester, tester, 0);
}

static int do_signal_self(void)
{
    return raise(SIGCHLD); /* ignored unless it is waited for */
}

static int do_limit_other(void)
{
    struct rlimit r;
    return prlimit(tester, RLIMIT_NOFILE, NULL, &r);
}

static int do_limit_self(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_NOFILE, &r);
}

static int do_signal_by_fd(void)
{
    return fcntl(other, F_SETOWN, tester);
}

static int do_signal_by_fd_ex(void)
{
    struct f_owner_ex owner = { F_OWNER_PID, tester };
    return fcntl(other, F_SETOWN_EX, &owner);
}

static int do_choose_signal(void)
{
    return fcntl(other, F_SETSIG, 0);
}

static int do_fcntl(void)
{
    int flags = fcntl(other, F_GETFL), fd = fcntl(other, F_DUPFD_CLOEXEC, 3);
    return flags < 0 || fd < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

enum { ALL = LOCKDOWN_DATAGRAMS * 2 - 1, NEVER = 0, ALWAYS = ALL + 1 };
static const struct {
    const char *name;
    int (*deed)(void);
    unsigned by; /* any of these allows it */
} deeds[] = {
    { "nothing", do_nothing, ALWAYS },
    { "send", do_send, ALWAYS },
    { "accept", do_accept, LOCKDOWN_ACCEPT },
    { "datagrams in", do_datagrams_in, LOCKDOWN_DATAGRAMS },
    { "datagrams out", do_datagrams_out, LOCKDOWN_DATAGRAMS | LOCKDOWN_EXEC },
    { "dial inet", do_dial_inet, LOCKDOWN_DIAL_INET | LOCKDOWN_EXEC },
    { "dial inet6", do_dial_inet6, LOCKDOWN_DIAL_INET | LOCKDOWN_EXEC },
    { "dial unix", do_dial_unix, LOCKDOWN_DIAL_UNIX | LOCKDOWN_EXEC },
    { "netlink", do_netlink, LOCKDOWN_EXEC },
    { "connect by a send", do_fastopen, LOCKDOWN_DIAL_INET | LOCKDOWN_EXEC },
    { "connect by a message", do_fastopen_msg, LOCKDOWN_DIAL_INET | LOCKDOWN_EXEC },
    { "read a file", do_read_file, LOCKDOWN_FILE_READ | LOCKDOWN_FILE_WRITE | LOCKDOWN_EXEC },
    { "write a file", do_write_file, LOCKDOWN_FILE_WRITE | LOCKDOWN_EXEC },
    { "unlink", do_unlink, LOCKDOWN_FILE_WRITE | LOCKDOWN_EXEC },
    { "fork", do_fork, LOCKDOWN_EXEC },
    { "exec", do_exec, LOCKDOWN_EXEC },
    { "thread", do_thread, LOCKDOWN_THREADS | LOCKDOWN_EXEC },
    { "executable memory", do_exec_memory, LOCKDOWN_EXEC },
    { "make executable", do_make_executable, LOCKDOWN_EXEC },
    { "ptrace", do_ptrace, NEVER },
    { "peek", do_peek, NEVER },
    { "kill", do_kill, LOCKDOWN_EXEC },
    { "chmod", do_chmod, LOCKDOWN_EXEC },
    { "unshare", do_unshare, NEVER },
    { "io_uring", do_io_uring, NEVER },
    { "signal another", do_signal_other, LOCKDOWN_EXEC },
    { "signal oneself", do_signal_self, ALWAYS },
    { "another's limits", do_limit_other, LOCKDOWN_EXEC },
    { "own limits", do_limit_self, ALWAYS },
    { "signals by descriptor", do_signal_by_fd, LOCKDOWN_EXEC },
    { "signals by descriptor, extended", do_signal_by_fd_ex, LOCKDOWN_EXEC },
    { "choice of signal", do_choose_signal, LOCKDOWN_EXEC },
    { "fcntl", do_fcntl, ALWAYS },
    { "prctl", do_dumpable, LOCKDOWN_EXEC | LOCKDOWN_THREADS },
};

/* Its end: 0 fine, 1 it did not work, -SIGNAL. */
static int child(int (*deed)(void), bool filter, unsigned allow)
{
    fflush(NULL);
    tester = getpid();
    listener = listen_on(NULL); /* one deed spoils it for all who share it */
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        alarm(10);
        if (filter) {
            lockdown_prime();
            if (lockdown_filter(allow, &err))
                _exit(2);
        }
        _exit(deed() ? 1 : 0);
    }
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(listener);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static bool skip_sanitized(void)
{
#ifdef OUTGATE_SANITIZE
    print_message("skipped: the sanitizer's runtime needs more than any role may do, so its build loads no filter\n");
    return true;
#else
    return false;
#endif
}

static void without_a_filter_all_of_it_works(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        int r = child(deeds[i].deed, false, 0);
        if (r)
            fail_msg("%s: %d", deeds[i].name, r);
    }
}

static void a_filter_allows_what_it_says_and_kills_for_the_rest(void **state)
{
    (void)state;
    if (skip_sanitized())
        return;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        for (unsigned allow = 0; allow <= ALL; allow = allow ? allow * 2 : 1) {
            bool may = deeds[i].by == ALWAYS || (deeds[i].by & allow);
            int r = child(deeds[i].deed, true, allow);
            if (r != (may ? 0 : -SIGSYS))
                fail_msg("%s under %#x: %d", deeds[i].name, allow, r);
        }
}

/* What the worker has: it takes connections and uses sockets that it was given. */
static void allowances_add_up(void **state)
{
    (void)state;
    if (skip_sanitized())
        return;
    assert_int_equal(child(do_accept, true, LOCKDOWN_ACCEPT | LOCKDOWN_DIAL_UNIX), 0);
    assert_int_equal(child(do_dial_unix, true, LOCKDOWN_ACCEPT | LOCKDOWN_DIAL_UNIX), 0);
    assert_int_equal(child(do_dial_inet, true, LOCKDOWN_ACCEPT | LOCKDOWN_DIAL_UNIX), -SIGSYS);
    assert_int_equal(child(do_read_file, true, LOCKDOWN_ACCEPT | LOCKDOWN_THREADS), -SIGSYS);
}

static int do_identity(void)
{
    struct err err;
    struct stat st;
    if (lockdown_identity((uid_t)-1, (gid_t)-1, &err))
        return 1;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE) != 0)
        return 1;
    return stat("/", &st);
}

static int do_become_nobody(void)
{
    struct err err;
    if (geteuid() != 0)
        return 0;
    if (lockdown_identity(65534, 65534, &err))
        return 1;
    uid_t r, e, s;
    return getresuid(&r, &e, &s) || r != 65534 || e != 65534 || s != 65534 || getgroups(0, NULL) != 0 ||
           setuid(0) == 0 || prctl(PR_GET_DUMPABLE) != 0;
}

static void identity_is_given_up(void **state)
{
    (void)state;
    assert_int_equal(child(do_identity, false, 0), 0);
    if (geteuid() != 0)
        print_message("becoming another user: skipped, not root\n");
    assert_int_equal(child(do_become_nobody, false, 0), 0);
}

int main(void)
{
    other = listen_on(&other_at);
    snprintf(unix_at.sun_path, sizeof unix_at.sun_path, "/tmp/lockdown-%d", (int)getpid());
    unix_listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (unix_listener < 0 || bind(unix_listener, (struct sockaddr *)&unix_at, sizeof unix_at) ||
        listen(unix_listener, 256))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_filter_all_of_it_works),
        cmocka_unit_test(a_filter_allows_what_it_says_and_kills_for_the_rest),
        cmocka_unit_test(allowances_add_up),
        cmocka_unit_test(identity_is_given_up),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(unix_at.sun_path);
    return r;
}
