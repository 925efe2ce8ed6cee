/* SPDX-License-Identifier: Apache-2.0
 *
 * lockdown: how a role gives up what it does not need, once, before it reads a byte from anyone. A role runs
 * non-dumpable, without new privileges, without core files, under its own uid (where started as root) and under a
 * seccomp filter that lists what its row of docs/ARCHITECTURE.md needs; anything else kills the process. */
#ifndef BASE_LOCKDOWN_H
#define BASE_LOCKDOWN_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* What a role may do beyond the common base (memory, time, its open descriptors, epoll, signals of its own). */
enum lockdown_allow {
    LOCKDOWN_ACCEPT = 1 << 0,       /* accept4 on listening sockets it was given */
    LOCKDOWN_DIAL_INET = 1 << 1,    /* socket(AF_INET, AF_INET6), connect, bind, UDP */
    LOCKDOWN_DIAL_UNIX = 1 << 2,    /* socket(AF_UNIX), connect */
    LOCKDOWN_FILE_WRITE = 1 << 3,   /* openat, fdatasync, fallocate, rename, unlink: the logger's directory */
    LOCKDOWN_FILE_READ = 1 << 4,    /* openat for reading */
    LOCKDOWN_EXEC = 1 << 5,         /* fork, execve, wait: the minter's helpers */
    LOCKDOWN_THREADS = 1 << 6,      /* clone of threads: libmicrohttpd in the minter */
    LOCKDOWN_DATAGRAMS = 1 << 7,    /* many datagrams with one call, on sockets it has: the DNS port */
    LOCKDOWN_FILE_UPDATE = 1 << 8,  /* pread, pwrite and fdatasync on files it has: what the resolver keeps */
};

/* Resource limits, non-dumpable, no_new_privs, then gid and uid (skipped where uid is (uid_t)-1: an ordinary user keeps
 * its one uid). Supplementary groups are dropped. */
int lockdown_identity(uid_t uid, gid_t gid, struct err *err);
/* Installs the seccomp filter, for every thread there is; `allow` is a set of enum lockdown_allow. Call lockdown_prime first. */
int lockdown_filter(unsigned allow, struct err *err);
/* Opens lazily opened things early: time zone, OpenSSL providers and config, random. */
void lockdown_prime(void);
/* RLIMIT_NOFILE to the hard limit; returns what it is now. */
unsigned long lockdown_raise_nofile(void);

#endif
