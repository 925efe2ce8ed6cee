/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/statedir.h"

#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INSTALL_KEY_BYTES = 32 };

/* Is this owner one that init or the configuration gave it? */
static bool owner_fits(uid_t owner, const struct users *u, struct user of, unsigned dflt)
{
    return owner == 0 || owner == geteuid() || owner == user_uid(of) || (u->separate && owner == USERS_FIRST + dflt);
}

/* Gives a file or folder to its user where it is still root's or the numeric default's. */
static int adopt(int state_fd, const char *name, struct user of, gid_t gid, mode_t mode, const struct users *u,
                 unsigned dflt, struct err *err)
{
    struct stat st;
    if (fstatat(state_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return err_set_errno(err, "state_dir: %s", name);
    if (S_ISLNK(st.st_mode))
        return err_set(err, "state_dir: %s: expected a file or folder, got a symbolic link", name);
    if (!owner_fits(st.st_uid, u, of, dflt))
        return err_set(err, "state_dir: %s: expected an owner of uid %u, it belongs to uid %u", name,
                       (unsigned)user_uid(of), (unsigned)st.st_uid);
    if (u->separate && (st.st_uid != of.uid || st.st_gid != gid)) {
        if (fchownat(state_fd, name, of.uid, gid, AT_SYMLINK_NOFOLLOW))
            return err_set_errno(err, "state_dir: %s: cannot give it to uid %u", name, (unsigned)of.uid);
        if (fchmodat(state_fd, name, mode, 0)) /* a change of owner takes the set-group-id bit off */
            return err_set_errno(err, "state_dir: %s: cannot set its mode", name);
    }
    return 0;
}

static int check_ca_key(int state_fd, const struct users *u, struct err *err)
{
    struct stat st;
    if (fstatat(state_fd, "ca/ca.key", &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT
                   ? err_set(err, "state_dir has no CA: run `outgate init DIR` and set state_dir to DIR/state")
                   : err_set_errno(err, "state_dir: ca/ca.key");
    if (!S_ISREG(st.st_mode))
        return err_set(err, "state_dir: ca/ca.key: expected a regular file");
    if (st.st_mode & 0077)
        return err_set(
            err,
            "state_dir: ca/ca.key: others can read or write it (mode %04o): whoever read it can impersonate every "
            "site; make a new CA with `outgate init`, or chmod 400 if nobody did",
            (unsigned)st.st_mode & 07777);
    if (!owner_fits(st.st_uid, u, u->ca, 1))
        return err_set(err, "state_dir: ca/ca.key: expected an owner of uid %u, it belongs to uid %u",
                       (unsigned)user_uid(u->ca), (unsigned)st.st_uid);
    return 0;
}

/* What a folder or secret must not let others do, and whose it may be: a folder that others may write is one in which
 * they can put another key. Names beside the root's own are adopted (adopt), which looks at their owners. */
static const struct private
{
    const char *name;
    mode_t kind, forbidden;
    bool adopted;
    bool later; /* made by who serves first */
}
privates[] = {
    { ".", S_IFDIR, 0022, false, false },
    { "ca", S_IFDIR, 0022, true, false },
    { "keys", S_IFDIR, 0022, false, false },
    { "keys/log", S_IFDIR, 0022, true, false },
    { "keys/install.key", S_IFREG, 0077, false, false },
    { "keys/console.token", S_IFREG, 0077, false, false },
    { "keys/log/log.key", S_IFREG, 0077, true, false },
    { "budgets", S_IFREG, 0022, false, true }, /* no secret, but whoever writes it has bits to give away */
};
enum { PRIVATE_BUDGETS = sizeof privates / sizeof *privates - 1 };

static int judge_private(const struct private *p, const struct stat *st, struct err *err)
{
    bool secret = p->forbidden == 0077;
    if ((st->st_mode & S_IFMT) != p->kind)
        return err_set(err, "state_dir: %s: expected a %s of its own, got something else", p->name,
                       p->kind == S_IFDIR ? "folder" : "regular file");
    if (st->st_mode & p->forbidden)
        return err_set(err, "state_dir: %s: others can %s it (mode %04o): take that from them with chmod %s", p->name,
                       secret ? "read or write" : "write", (unsigned)st->st_mode & 07777,
                       secret ? "400; if others may have read it, make a new one with `outgate init`" : "go-w");
    if (!p->adopted && st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(err, "state_dir: %s: expected an owner of uid %u, it belongs to uid %u", p->name,
                       (unsigned)geteuid(), (unsigned)st->st_uid);
    return 0;
}

static int check_private(int state_fd, const struct private *p, struct err *err)
{
    struct stat st;
    if (fstatat(state_fd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return judge_private(p, &st, err);
    if (errno == ENOENT && p->later)
        return 0;
    return errno == ENOENT ? err_set(err,
                                     "state_dir: %s is missing: put it back as it was, or make a new state with "
                                     "`outgate init` (new CA, new placeholders)",
                                     p->name)
                           : err_set_errno(err, "state_dir: %s", p->name);
}

static int check_privates(int state_fd, struct err *err)
{
    for (size_t i = 0; i < sizeof privates / sizeof *privates; i++)
        if (check_private(state_fd, &privates[i], err))
            return -1;
    return 0;
}

static int open_missing(struct str path, struct err *err)
{
    return errno == ENOENT
               ? err_set(err, "state_dir %.*s does not exist: run `outgate init DIR` and set state_dir to DIR/state",
                         STR_ARG(path))
               : err_set_errno(err, "state_dir %.*s: cannot open", STR_ARG(path));
}

int statedir_open(struct str path, const struct users *u, struct err *err)
{
    char *z = z_of(path);
    int fd = open(z, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(z);
    if (fd < 0)
        return open_missing(path, err);
    gid_t audit_gid = u->has_group ? u->group : u->log.gid;
    if (check_ca_key(fd, u, err) || check_privates(fd, err) || adopt(fd, "ca", u->ca, u->ca.gid, 0700, u, 1, err) ||
        adopt(fd, "ca/ca.key", u->ca, u->ca.gid, 0400, u, 1, err) ||
        adopt(fd, "keys/log", u->log, u->log.gid, 0700, u, 4, err) ||
        adopt(fd, "keys/log/log.key", u->log, u->log.gid, 0400, u, 4, err) ||
        adopt(fd, "audit", u->log, audit_gid, 02750, u, 4, err)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Opened, or made: then its folder is synced too, so that it is there after a power cut, with all that is saved in it. */
static int open_budgets(int state_fd, struct err *err)
{
    const struct private *p = &privates[PRIVATE_BUDGETS];
    struct stat st;
    int fd = openat(state_fd, p->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        fd = openat(state_fd, p->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 && (fsync(fd) || fsync(state_fd))) {
            err_set_errno(err, "state_dir: %s: cannot be synced", p->name);
            close(fd);
            return -1;
        }
    }
    if (fd < 0)
        return err_set_errno(err, "state_dir: %s: cannot open", p->name);
    int bad = fstat(fd, &st) ? err_set_errno(err, "state_dir: %s", p->name) : judge_private(p, &st, err);
    if (!bad) /* it may be another one than at the start */
        return fd;
    close(fd);
    return -1;
}

int statedir_file(int state_fd, enum role_file what, const struct users *u, struct err *err)
{
    static const struct {
        const char *name;
        int flags;
    } files[ROLE_FILE_COUNT] = {
        [ROLE_FILE_CA_KEY] = { "ca/ca.key", O_RDONLY },
        [ROLE_FILE_CA_CERT] = { "ca/ca.pem", O_RDONLY },
        [ROLE_FILE_AUDIT_DIR] = { "audit", O_RDONLY | O_DIRECTORY },
        [ROLE_FILE_ANCHOR_DIR] = { "keys/log", O_RDONLY | O_DIRECTORY },
        [ROLE_FILE_LOG_KEY] = { "keys/log/log.key", O_RDONLY },
        [ROLE_FILE_BUDGETS] = { "budgets", 0 },
    };
    if (!files[what].name)
        return err_set(err, "state_dir: no such file");
    if (what == ROLE_FILE_CA_KEY && check_ca_key(state_fd, u, err))
        return -1;
    if (what == ROLE_FILE_BUDGETS)
        return open_budgets(state_fd, err);
    int fd = openat(state_fd, files[what].name, files[what].flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_set_errno(err, "state_dir: %s: cannot open", files[what].name) : fd;
}

int statedir_read_ca(int state_fd, struct buf *out, struct err *err)
{
    return file_read_at(state_fd, "ca/ca.pem", out, err) ? err_prefix(err, "state_dir") : 0;
}

int statedir_read_install_key(int state_fd, struct buf *out, struct err *err)
{
    if (file_read_at(state_fd, "keys/install.key", out, err))
        return err_prefix(err, "state_dir");
    if (buf_size(out) != INSTALL_KEY_BYTES)
        return err_set(err, "state_dir: keys/install.key: expected %d bytes, got %zu", INSTALL_KEY_BYTES,
                       buf_size(out));
    return 0;
}

int statedir_read_console_token(int state_fd, struct buf *out, struct err *err)
{
    return file_read_at(state_fd, "keys/console.token", out, err) ? err_prefix(err, "state_dir") : 0;
}
