/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter is an allow-list made with libseccomp: a common base that every role needs once it runs (memory, time, its open
 * descriptors, epoll, signals to itself), and per allowance a short list more. Whatever is not listed kills the process.
 * Arguments are looked at where a call would otherwise be a way around: socket() by family, clone() for threads only,
 * openat() read-only where only reading is allowed, mmap/mprotect never executable. */
#include "base/lockdown.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <locale.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

unsigned long lockdown_raise_nofile(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return 0;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    getrlimit(RLIMIT_NOFILE, &r);
    return r.rlim_cur;
}

int lockdown_identity(uid_t uid, gid_t gid, struct err *err)
{
    struct rlimit none = { 0, 0 };
    if (setrlimit(RLIMIT_CORE, &none))
        return err_set_errno(err, "cannot forbid core files");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return err_set_errno(err, "cannot give up new privileges");
    if (uid != (uid_t)-1) {
        if (setgroups(0, NULL))
            return err_set_errno(err, "cannot drop supplementary groups");
        if (setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
            return err_set_errno(err, "cannot become uid %u gid %u", (unsigned)uid, (unsigned)gid);
        if (setuid(0) == 0)
            return err_set(err, "uid %u can become root again", (unsigned)uid);
    }
    /* After the uid changed: the kernel sets it anew on such a change. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return err_set_errno(err, "cannot forbid dumps");
    return 0;
}

void lockdown_prime(void)
{
    setlocale(LC_ALL, "C");
    setenv("TZ", "UTC", 1);
    tzset();
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_ADD_ALL_CIPHERS |
                            OPENSSL_INIT_ADD_ALL_DIGESTS,
                        NULL);
    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, NULL);
    unsigned char seed[32];
    RAND_bytes(seed, sizeof seed);
    EVP_MD_free(EVP_MD_fetch(NULL, "SHA256", NULL));
    rand_bytes(seed, sizeof seed);
}

/* libseccomp's SCMP_A0 leaves a field out, which clang warns of. */
#define ARG(n, op, ...) ((struct scmp_arg_cmp) { n, op, __VA_ARGS__ })
#define CALL(name)      SCMP_SYS(name)

static const int base_calls[] = {
    CALL(read), CALL(readv), CALL(write), CALL(writev), CALL(close), CALL(recvmsg), CALL(recvfrom),
    CALL(shutdown), CALL(getsockopt), CALL(setsockopt), CALL(getsockname), CALL(getpeername),
    CALL(epoll_wait), CALL(epoll_pwait), CALL(epoll_ctl), CALL(epoll_create1), CALL(poll), CALL(ppoll), CALL(futex),
    CALL(munmap), CALL(mremap), CALL(brk), CALL(madvise), CALL(mlock), CALL(munlock), CALL(getrandom), CALL(clock_gettime),
    CALL(clock_getres), CALL(gettimeofday), CALL(time), CALL(nanosleep), CALL(clock_nanosleep), CALL(exit), CALL(exit_group),
    CALL(rt_sigreturn), CALL(rt_sigprocmask), CALL(rt_sigaction), CALL(sigaltstack), CALL(fstat), CALL(newfstatat),
    CALL(lseek), CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(getgid), CALL(getegid),
    CALL(dup), CALL(ftruncate), CALL(memfd_secret), CALL(restart_syscall), CALL(sched_yield), CALL(sched_getaffinity),
    CALL(rseq), CALL(membarrier), CALL(getrusage), CALL(eventfd2), CALL(set_robust_list),
};
static const int send_calls[] = { CALL(sendto), CALL(sendmsg) };
static const int accept_calls[] = { CALL(accept4), CALL(accept) };
static const int datagram_calls[] = { CALL(recvmmsg), CALL(sendmmsg) };
static const int file_update_calls[] = { CALL(pread64), CALL(pwrite64), CALL(fdatasync) };
static const int dial_calls[] = { CALL(connect), CALL(bind) };
static const int file_write_calls[] = {
    CALL(openat), CALL(fdatasync), CALL(fsync), CALL(sync_file_range), CALL(fallocate), CALL(rename), CALL(renameat),
    CALL(renameat2), CALL(unlink), CALL(unlinkat), CALL(pwrite64), CALL(pwritev), CALL(pread64), CALL(getdents64),
    CALL(fstatfs), CALL(fchmod), CALL(statx),
};
static const int exec_calls[] = {
    CALL(execve), CALL(fork), CALL(vfork), CALL(clone), CALL(clone3), CALL(wait4), CALL(waitid), CALL(pipe), CALL(pipe2),
    CALL(dup2), CALL(dup3), CALL(kill), CALL(setpgid), CALL(setsid), CALL(close_range), CALL(openat), CALL(access),
    CALL(faccessat), CALL(faccessat2), CALL(stat), CALL(lstat), CALL(statx), CALL(readlink), CALL(readlinkat), CALL(getcwd),
    CALL(chdir), CALL(arch_prctl), CALL(set_tid_address), CALL(pread64), CALL(getdents64), CALL(getppid), CALL(uname),
    CALL(getpgrp), CALL(getpgid), CALL(sysinfo), CALL(ioctl), CALL(umask), CALL(prctl), CALL(socket), CALL(socketpair),
    CALL(connect), CALL(select), CALL(pselect6), CALL(mprotect), CALL(mmap), CALL(unlink), CALL(unlinkat), CALL(getgroups),
    CALL(fadvise64), CALL(getxattr), CALL(lgetxattr), CALL(statfs), CALL(fchdir), CALL(mkdir), CALL(rename), CALL(bind),
    CALL(getresuid), CALL(getresgid), CALL(rt_sigtimedwait), CALL(rt_sigsuspend), CALL(alarm), CALL(setitimer), CALL(listen),
    CALL(flock), CALL(pwrite64), CALL(fsync), CALL(fdatasync), CALL(sched_setaffinity), CALL(timer_create), CALL(timerfd_create),
    CALL(timerfd_settime), CALL(openat2), CALL(fchmod), CALL(chmod), CALL(utimensat), CALL(epoll_pwait2), CALL(sendmmsg),
};
static const int thread_calls[] = { CALL(clone3), CALL(prctl), CALL(set_tid_address), CALL(sched_setscheduler),
                                    CALL(sched_getparam), CALL(sched_getscheduler) };

static int add_list(scmp_filter_ctx ctx, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
        if (r && r != -EDOM && r != -EEXIST) /* EDOM: this kernel's architecture has no such call */
            return r;
    }
    return 0;
}
#define ADD_LIST(ctx, list) add_list(ctx, list, sizeof(list) / sizeof *(list))

static int add_socket_family(scmp_filter_ctx ctx, int family)
{
    return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                            ARG(0, SCMP_CMP_EQ, (scmp_datum_t)family, 0));
}

static int add_memory(scmp_filter_ctx ctx)
{
    int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, ARG(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (!r)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, ARG(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

/* A listening socket that was shut down can be connected anew by sending with MSG_FASTOPEN: for who may not dial that flag is
 * a connect. */
static int add_send(scmp_filter_ctx ctx, bool dials)
{
    if (dials)
        return ADD_LIST(ctx, send_calls);
    int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 1, ARG(3, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    if (!r)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), 1, ARG(2, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    return r;
}

/* Calls that reach other processes of the same uid (workers and the resolver share one): signals go to ourselves, limits are
 * our own, and fcntl does not make a descriptor send signals (F_SETOWN, F_SETSIG). Helpers of a role that may exec send theirs
 * to each other. */
static int add_own(scmp_filter_ctx ctx, bool execs)
{
    static const int calls[] = { CALL(tgkill), CALL(prlimit64), CALL(fcntl) };
    static const int commands[] = { F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_ADD_SEALS, F_GET_SEALS };
    if (execs)
        return ADD_LIST(ctx, calls);
    int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, ARG(0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
    if (!r)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, ARG(0, SCMP_CMP_EQ, 0, 0));
    for (size_t i = 0; i < sizeof commands / sizeof *commands && !r; i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, ARG(1, SCMP_CMP_EQ, (scmp_datum_t)commands[i], 0));
    return r;
}

static int fill(scmp_filter_ctx ctx, unsigned allow)
{
    int r = ADD_LIST(ctx, base_calls);
    if (!r)
        r = add_own(ctx, allow & LOCKDOWN_EXEC);
    if (!r)
        r = add_send(ctx, allow & (LOCKDOWN_DIAL_INET | LOCKDOWN_EXEC));
    if (!r && !(allow & LOCKDOWN_EXEC))
        r = add_memory(ctx);
    if (!r && allow & LOCKDOWN_ACCEPT)
        r = ADD_LIST(ctx, accept_calls);
    if (!r && allow & (LOCKDOWN_DIAL_INET | LOCKDOWN_DIAL_UNIX))
        r = ADD_LIST(ctx, dial_calls);
    if (!r && allow & LOCKDOWN_FILE_UPDATE)
        r = ADD_LIST(ctx, file_update_calls);
    if (!r && allow & LOCKDOWN_DATAGRAMS)
        r = ADD_LIST(ctx, datagram_calls);
    if (!r && allow & LOCKDOWN_DIAL_INET)
        r = add_socket_family(ctx, AF_INET);
    if (!r && allow & LOCKDOWN_DIAL_INET)
        r = add_socket_family(ctx, AF_INET6);
    if (!r && allow & LOCKDOWN_DIAL_UNIX)
        r = add_socket_family(ctx, AF_UNIX);
    if (!r && allow & LOCKDOWN_FILE_WRITE)
        r = ADD_LIST(ctx, file_write_calls);
    if (!r && allow & LOCKDOWN_FILE_READ && !(allow & (LOCKDOWN_FILE_WRITE | LOCKDOWN_EXEC)))
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1, ARG(2, SCMP_CMP_MASKED_EQ, O_ACCMODE, O_RDONLY));
    if (!r && allow & LOCKDOWN_THREADS)
        r = ADD_LIST(ctx, thread_calls);
    if (!r && allow & LOCKDOWN_THREADS && !(allow & LOCKDOWN_EXEC))
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             ARG(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM));
    if (!r && allow & LOCKDOWN_EXEC)
        r = ADD_LIST(ctx, exec_calls);
    return r;
}

/* The sanitizer's runtime opens /proc and maps what it likes: there the filter is only built. The release build's filter is
 * what the tests of the roles look at. */
#ifdef OUTGATE_SANITIZE
static const bool filter_loads = false;
#else
static const bool filter_loads = true;
#endif

int lockdown_filter(unsigned allow, struct err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!ctx)
        return err_set(err, "seccomp: no memory for the filter");
    /* A binary tree over the call numbers: 2.4 us a request were measured with a flat list. */
    seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    /* Also for threads that are there already: the resolver's saver. */
    int r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!r)
        r = fill(ctx, allow);
    if (!r && filter_loads)
        r = seccomp_load(ctx);
    seccomp_release(ctx);
    if (r)
        return err_set(err, "seccomp: the kernel refused the filter (%d): a kernel with CONFIG_SECCOMP_FILTER is needed", -r);
    return 0;
}
