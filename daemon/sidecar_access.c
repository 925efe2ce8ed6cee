/* SPDX-License-Identifier: Apache-2.0
 *
 * A sidecar's socket usually belongs to whoever runs the sidecar, with a mode that lets nobody else in; the keeper has
 * a uid of its own. Started as root, we add one entry for that uid to the socket's access list (acl(5)), and to nothing
 * else: owner, group and what others may do stay. A sidecar that starts later, or anew, is seen within a second. Where
 * that cannot be done (no access lists on that file system, an access list of someone's making, a folder the keeper may
 * not pass) we say what to do, once. */
#include "daemon/supervisor.h"

#include "base/log.h"
#include "daemon/files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL_NAME "system.posix_acl_access"

/* The kernel's form of an access list (linux/posix_acl_xattr.h): little-endian. */
enum {
    ACL_VERSION = 2,
    ACL_USER_OBJ = 0x01,
    ACL_USER = 0x02,
    ACL_GROUP_OBJ = 0x04,
    ACL_MASK = 0x10,
    ACL_OTHER = 0x20,
    ACL_RW = 6
};
struct acl_entry {
    uint16_t tag, perm;
    uint32_t id;
};
struct acl {
    uint32_t version;
    struct acl_entry v[5];
};
static_assert(sizeof(struct acl) == 44, "the kernel's layout");

static int acl_add(const char *path, mode_t mode, uid_t uid)
{
    const uint16_t user = (uint16_t)(mode >> 6 & 7), group = (uint16_t)(mode >> 3 & 7), other = (uint16_t)(mode & 7);
    struct acl acl = {
        .version = ACL_VERSION,
        .v = {
            { ACL_USER_OBJ, user, UINT32_MAX },
            { ACL_USER, ACL_RW, uid },
            { ACL_GROUP_OBJ, group, UINT32_MAX },
            { ACL_MASK, (uint16_t)(group | ACL_RW), UINT32_MAX },
            { ACL_OTHER, other, UINT32_MAX },
        },
    };
    return setxattr(path, ACL_NAME, &acl, sizeof acl, 0);
}

/* 1: it may connect already; 0: now it may; -1: it may not. */
static int give_access(const struct user *key, const char *socket)
{
    int fd = open(socket, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    char path[64], old[1024];
    int r = -1;
    if (fd < 0)
        return errno == ENOENT ? 1 : -1; /* not there yet: nothing to do */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) || !S_ISSOCK(st.st_mode))
        r = -1;
    else if (st.st_uid == key->uid ? st.st_mode & 0200 : st.st_gid == key->gid ? st.st_mode & 0020 : st.st_mode & 0002)
        r = 1;
    else if (getxattr(path, ACL_NAME, old, sizeof old) >= 0)
        r = 1; /* somebody, perhaps we, made one: it is right or it is theirs */
    else
        r = acl_add(path, st.st_mode, key->uid);
    close(fd);
    return r;
}

/* The owner of a sidecar's socket may revoke; whoever else has to goes through the group. */
uid_t keeper_socket_owner(const struct config *c)
{
    for (size_t i = 0; i < c->nsidecars && geteuid() == 0; i++) {
        const struct config_sidecar *sc = &c->sidecars[i];
        if (sc->peer_uid_given)
            return (uid_t)sc->peer_uid;
        char *path = z_of(sc->socket);
        struct stat st;
        int r = stat(path, &st);
        free(path);
        if (r == 0)
            return st.st_uid;
    }
    return (uid_t)-1;
}

/* keeper.sock follows that owner: a sidecar may start after us, or come with a reload. */
static void keeper_socket_look(const struct supervisor *s)
{
    uid_t want = keeper_socket_owner(s->current->gathered.config);
    struct stat st;
    if (want == (uid_t)-1 || fstatat(s->runtime_fd, "keeper.sock", &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode) ||
        st.st_uid == want)
        return;
    if (fchownat(s->runtime_fd, "keeper.sock", want, (gid_t)-1, AT_SYMLINK_NOFOLLOW))
        log_error("keeper.sock cannot be given to uid %u, whose sidecar may revoke: %s", (unsigned)want,
                  strerror(errno));
    else
        log_info("keeper.sock was given to uid %u, whose sidecar may revoke", (unsigned)want);
}

void sidecar_access_look(struct supervisor *s)
{
    const struct config *c = s->current->gathered.config;
    keeper_socket_look(s);
    for (size_t i = 0; i < c->nsidecars && s->users.separate; i++) {
        char *path = z_of(c->sidecars[i].socket);
        int r = give_access(&s->users.key, path);
        if (r == 0)
            log_info("sidecar %.*s: uid %u (the keeper) was let into %s", STR_ARG(c->sidecars[i].name),
                     (unsigned)s->users.key.uid, path);
        else if (r < 0 && !s->sidecar_complained)
            log_error("sidecar %.*s: uid %u (the keeper) cannot be let into %s: give it group %u and mode 0660",
                      STR_ARG(c->sidecars[i].name), (unsigned)s->users.key.uid, path, (unsigned)s->users.key.gid);
        s->sidecar_complained = s->sidecar_complained || r < 0;
        free(path);
    }
}
