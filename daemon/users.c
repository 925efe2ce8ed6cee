/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/users.h"

#include "daemon/files.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

static int user_resolve(struct str name, unsigned offset, const char *key, struct user *ret, struct err *err)
{
    if (!name.p || !name.n) {
        *ret = (struct user) { USERS_FIRST + offset, USERS_FIRST + offset };
        return 0;
    }
    char *z = z_of(name);
    struct passwd *pw = getpwnam(z);
    free(z);
    if (!pw)
        return err_set(err, "users.%s: expected the name of a user of this system, got '%.*s'", key, STR_ARG(name));
    if (pw->pw_uid == 0)
        return err_set(err, "users.%s: expected an unprivileged user, got root", key);
    *ret = (struct user) { pw->pw_uid, pw->pw_gid };
    return 0;
}

/* What one role may not do, another of its uid can do for it: a signal, a file, its share of the log. */
static int users_apart(const struct users *u, struct err *err)
{
    const struct {
        const char *key;
        uid_t uid;
    } all[] = { { "net", u->net.uid },   { "ca", u->ca.uid },   { "key", u->key.uid },
                { "mint", u->mint.uid }, { "log", u->log.uid }, { "console", u->console.uid } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t k = 0; k < i; k++)
            if (all[i].uid == all[k].uid)
                return err_set(err, "users.%s: expected a user of its own, got uid %u, which users.%s has too",
                               all[i].key, (unsigned)all[i].uid, all[k].key);
    return 0;
}

int users_resolve(const struct config *config, struct users *ret, struct err *err)
{
    static const struct user keep = { (uid_t)-1, (gid_t)-1 };
    struct users u = { .net = keep, .ca = keep, .key = keep, .mint = keep, .log = keep, .console = keep };
    struct group *gr = getgrnam("outgate");
    if (gr) {
        u.has_group = true;
        u.group = gr->gr_gid;
    }
    u.separate = geteuid() == 0;
    if (!u.separate) {
        *ret = u;
        return 0;
    }
    static const struct config none;
    const struct config *c = config ? config : &none;
    if (user_resolve(c->users.net, 0, "net", &u.net, err) || user_resolve(c->users.ca, 1, "ca", &u.ca, err) ||
        user_resolve(c->users.key, 2, "key", &u.key, err) || user_resolve(c->users.mint, 3, "mint", &u.mint, err) ||
        user_resolve(c->users.log, 4, "log", &u.log, err) ||
        user_resolve(c->users.console, 5, "console", &u.console, err) || users_apart(&u, err))
        return -1;
    *ret = u;
    return 0;
}

struct user users_of(const struct users *u, enum role_kind kind)
{
    switch (kind) {
    case ROLE_KIND_LOGGER:
        return u->log;
    case ROLE_KIND_CA:
        return u->ca;
    case ROLE_KIND_MINTER:
        return u->mint;
    case ROLE_KIND_KEEPER:
        return u->key;
    case ROLE_KIND_RESOLVER:
    case ROLE_KIND_WORKER:
        return u->net;
    case ROLE_KIND_NONE:
    case ROLE_KIND_SUPERVISOR:
    case ROLE_KIND_COUNT:
        break;
    }
    return (struct user) { (uid_t)-1, (gid_t)-1 };
}

uid_t user_uid(struct user u)
{
    return u.uid == (uid_t)-1 ? geteuid() : u.uid;
}
