/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/runtime.h"

#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

char *runtime_path(const struct config *config, struct err *err)
{
    if (config && config->runtime_dir.p && config->runtime_dir.n)
        return z_of(config->runtime_dir);
    if (geteuid() == 0)
        return z_of(STR("/run/outgate"));
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    if (!xdg || xdg[0] != '/') {
        err_set(err,
                "there is no folder for the sockets, as XDG_RUNTIME_DIR is not set: write `runtime_dir: run` into the "
                "configuration (a folder next to it), or log in with a session");
        return NULL;
    }
    return z_printf("%s/outgate", xdg);
}

int runtime_open(const char *path, int *ret_lock, bool *ret_busy, struct err *err)
{
    *ret_busy = false;
    if (mkdir(path, 0755) && errno != EEXIST)
        return err_set_errno(err, "runtime_dir %s: cannot make it", path);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (dir < 0)
        return err_set_errno(err, "runtime_dir %s: cannot open", path);
    if (fstat(dir, &st) || (st.st_uid != geteuid() && st.st_uid != 0)) {
        close(dir);
        return err_set(err, "runtime_dir %s: expected a folder of uid %u, it belongs to uid %u", path,
                       (unsigned)geteuid(), (unsigned)st.st_uid);
    }
    /* Whoever can write there can put a socket of their own in our place. */
    if (st.st_mode & 0022 && !(st.st_mode & S_ISVTX) && fchmod(dir, 0755)) {
        close(dir);
        return err_set_errno(err, "runtime_dir %s: others can write in it and it cannot be changed", path);
    }
    int lock = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) {
        err_set_errno(err, "runtime_dir %s: cannot open its lock", path);
        close(dir);
        return -1;
    }
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        *ret_busy = errno == EWOULDBLOCK;
        if (*ret_busy)
            err_set(err, "runtime_dir %s is in use by another server: stop it, or set another runtime_dir", path);
        else
            err_set_errno(err, "runtime_dir %s: cannot lock", path);
        close(lock);
        close(dir);
        return -1;
    }
    *ret_lock = lock;
    return dir;
}

/* The address of NAME under dir_fd that fits sun_path: through /proc where the folder is a descriptor. */
static int unix_address(int dir_fd, const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un) { .sun_family = AF_UNIX };
    int n = dir_fd == AT_FDCWD || name[0] == '/'
                ? snprintf(ret->sun_path, sizeof ret->sun_path, "%s", name)
                : snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", dir_fd, name);
    if (n > 0 && (size_t)n < sizeof ret->sun_path)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

/* A path too long for sun_path is reached through its folder. Returns the folder's descriptor to close, or -1 for none.
 */
static int shorten(int *dir_fd, const char **name)
{
    const char *slash = strrchr(*name, '/');
    if ((*name)[0] != '/' || !slash || strlen(*name) < sizeof((struct sockaddr_un *)0)->sun_path)
        return -1;
    char *dir = z_of(str_of(*name, (size_t)(slash - *name)));
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (fd >= 0) {
        *dir_fd = fd;
        *name = slash + 1;
    }
    return fd;
}

static int remove_stale(int dir_fd, const char *name, int type, struct err *err)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : err_set_errno(err, "socket %s: cannot look at it", name);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, "socket %s: something else is there; remove it or choose another path", name);
    int fd = unix_connect_at(dir_fd, name, type);
    if (fd >= 0 || errno == EAGAIN) {
        if (fd >= 0)
            close(fd);
        return err_set(err, "socket %s: another process serves it", name);
    }
    if (unlinkat(dir_fd, name, 0))
        return err_set_errno(err, "socket %s: a stale one cannot be removed", name);
    return 0;
}

static int listen_named(int dir_fd, const char *name, mode_t mode, uid_t uid, gid_t gid, int type, struct err *err)
{
    struct sockaddr_un sun;
    if (unix_address(dir_fd, name, &sun))
        return err_set_errno(err, "socket %s", name);
    if (remove_stale(dir_fd, name, type, err))
        return -1;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, "socket %s", name);
    mode_t old = umask(0177);
    int r = bind(fd, (struct sockaddr *)&sun, sizeof sun);
    umask(old);
    /* Nobody can connect before listen(), so owner and mode are right from the first connection on. */
    if (r == 0 && (uid != (uid_t)-1 || gid != (gid_t)-1))
        r = fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW);
    if (r == 0)
        r = fchmodat(dir_fd, name, mode, 0);
    if (r == 0)
        r = listen(fd, 4096);
    if (r) {
        err_set_errno(err, "socket %s: cannot listen", name);
        close(fd);
        return -1;
    }
    return fd;
}

int unix_listen_at(int dir_fd, const char *name, mode_t mode, uid_t uid, gid_t gid, int type, struct err *err)
{
    int folder = shorten(&dir_fd, &name);
    int fd = listen_named(dir_fd, name, mode, uid, gid, type, err);
    if (folder >= 0)
        close(folder);
    return fd;
}

int unix_connect_at(int dir_fd, const char *name, int type)
{
    int folder = shorten(&dir_fd, &name);
    struct sockaddr_un sun;
    int fd = unix_address(dir_fd, name, &sun) ? -1 : socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sun, sizeof sun)) {
        int saved = errno;
        close(fd);
        errno = saved;
        fd = -1;
    }
    if (folder >= 0) {
        int saved = errno;
        close(folder);
        errno = saved;
    }
    return fd;
}
