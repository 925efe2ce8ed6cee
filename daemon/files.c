/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/files.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int file_read_fd(int fd, const char *what, struct buf *out, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_set_errno(err, "%s: cannot look at it", what);
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: expected a regular file", what);
    if (st.st_size < 0 || (uint64_t)st.st_size > buf_room(out))
        return err_set(err, "%s: expected at most %zu bytes, got %lld", what, buf_room(out), (long long)st.st_size);
    for (;;) {
        /* One byte more than it said, so that a file that grows meanwhile is noticed and not cut. */
        size_t room = buf_room(out) < 65536 ? buf_room(out) : 65536;
        char over;
        char *p = room ? buf_reserve(out, room) : &over;
        if (!p)
            return err_set(err, "%s: out of memory", what);
        ssize_t n = read(fd, p, room ? room : 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(err, "%s: cannot read", what);
        if (n == 0)
            return 0;
        if (!room)
            return err_set(err, "%s: it grew past the limit while it was read", what);
        buf_wrote(out, (size_t)n);
    }
}

int file_read_at(int dir_fd, const char *name, struct buf *out, struct err *err)
{
    /* O_NONBLOCK: a FIFO put there must not hold us; it is refused as no regular file. */
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(err, "%s: cannot open", name);
    int r = file_read_fd(fd, name, out, err);
    close(fd);
    return r;
}

int file_read(const char *path, struct buf *out, struct err *err)
{
    return file_read_at(AT_FDCWD, path, out, err);
}

static int write_all(int fd, struct str bytes)
{
    for (size_t done = 0; done < bytes.n;) {
        ssize_t n = write(fd, bytes.p + done, bytes.n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static int write_new(int dir_fd, const char *name, struct str bytes, mode_t mode, uid_t uid, gid_t gid, struct err *err)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set_errno(err, "%s: cannot create", name);
    int r = write_all(fd, bytes);
    if (r == 0 && (uid != (uid_t)-1 || gid != (gid_t)-1))
        r = fchown(fd, uid, gid);
    if (r == 0)
        r = fchmod(fd, mode);
    if (r == 0)
        r = fsync(fd);
    if (r)
        err_set_errno(err, "%s: cannot write", name);
    close(fd);
    if (r)
        unlinkat(dir_fd, name, 0);
    return r;
}

static int sync_dir(int dir_fd, const char *name, struct err *err)
{
    return fsync(dir_fd) ? err_set_errno(err, "%s: cannot sync its folder", name) : 0;
}

int file_create_at(int dir_fd, const char *name, struct str bytes, mode_t mode, uid_t uid, gid_t gid, struct err *err)
{
    if (write_new(dir_fd, name, bytes, mode, uid, gid, err))
        return -1;
    return sync_dir(dir_fd, name, err);
}

int file_replace_at(int dir_fd, const char *name, struct str bytes, mode_t mode, uid_t uid, gid_t gid, struct err *err)
{
    unsigned chance;
    rand_bytes(&chance, sizeof chance);
    char *tmp = z_printf(".%s.%08x", name, chance);
    int r = write_new(dir_fd, tmp, bytes, mode, uid, gid, err);
    if (r == 0 && renameat(dir_fd, tmp, dir_fd, name)) {
        r = err_set_errno(err, "%s: cannot put the new file in place", name);
        unlinkat(dir_fd, tmp, 0);
    }
    free(tmp);
    return r ? r : sync_dir(dir_fd, name, err);
}

char *z_of(struct str s)
{
    char *z = malloc(s.n + 1);
    MUST(z);
    if (s.n)
        memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    return z;
}

char *z_printf(const char *format, ...)
{
    char *z = NULL;
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&z, format, ap);
    va_end(ap);
    MUST(n >= 0 && z);
    return z;
}
