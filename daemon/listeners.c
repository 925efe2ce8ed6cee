/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/listeners.h"

#include "base/log.h"
#include "daemon/files.h"
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static int bind_inet(const struct config_listener *l, int type, const char *key, struct err *err)
{
    struct sockaddr_storage sa;
    socklen_t n = (socklen_t)ip_to_sockaddr(&l->ip, l->port, &sa);
    int fd = socket(sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, "%s: %.*s", key, STR_ARG(l->text));
    int one = 1;
    if (type == SOCK_STREAM) /* on UDP it would let another process share the port */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (sa.ss_family == AF_INET6) /* [::] and 0.0.0.0 may both be listed */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&sa, n) || (type == SOCK_STREAM && listen(fd, BACKLOG))) {
        if (errno == EADDRINUSE)
            err_set(err,
                    "%s: %.*s: cannot listen: another process does: stop it (`ss -l%cnp` names it), or choose "
                    "another port",
                    key, STR_ARG(l->text), type == SOCK_STREAM ? 't' : 'u');
        else if (errno == EADDRNOTAVAIL)
            err_set(err, "%s: %.*s: cannot listen: no interface has this address (`ip addr` lists them)", key,
                    STR_ARG(l->text));
        else
            err_set_errno(err, "%s: %.*s: cannot listen", key, STR_ARG(l->text));
        close(fd);
        return -1;
    }
    return fd;
}

/* Who may connect to a unix listener: the one uid that a claim names; everybody when several do (each connection is
 * judged by its peer's uid); else our own user and group. */
static mode_t unix_owner(const struct config *c, uid_t *ret_uid)
{
    bool any = false, many = false;
    *ret_uid = (uid_t)-1;
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++) {
            const struct config_claim *claim = &c->agents[i].claims[k];
            if (claim->kind != CLAIM_UNIX_UID)
                continue;
            many = many || (any && *ret_uid != (uid_t)claim->unix_uid);
            *ret_uid = (uid_t)claim->unix_uid;
            any = true;
        }
    if (many || (any && geteuid() != 0)) {
        *ret_uid = (uid_t)-1;
        return 0666;
    }
    return 0660;
}

static int bind_unix(const struct listeners *ls, const struct config *c, const struct config_listener *l,
                     const char *path, struct err *err)
{
    uid_t uid;
    mode_t mode = unix_owner(c, &uid);
    int fd = unix_listen_at(ls->runtime_fd, path, mode, uid, ls->socket_gid, SOCK_STREAM, err);
    return fd < 0 ? err_prefix(err, "listen.proxy: %.*s", STR_ARG(l->text)) : fd;
}

static struct listener *find(struct listeners *ls, struct str text, bool dns)
{
    for (size_t i = 0; i < ls->n; i++)
        if ((ls->v[i].udp_fd >= 0) == dns && str_eq(str_c(ls->v[i].text), text))
            return &ls->v[i];
    return NULL;
}

static void append(struct listeners *ls, struct listener l)
{
    struct listener *v = reallocarray(ls->v, ls->n + 1, sizeof *v);
    MUST(v);
    ls->v = v;
    ls->v[ls->n++] = l;
}

static int add(struct listeners *ls, const struct config *c, const struct config_listener *l, struct err *err)
{
    char *path = l->kind == LISTENER_UNIX ? z_of(l->path) : NULL;
    int fd = path ? bind_unix(ls, c, l, path, err) : bind_inet(l, SOCK_STREAM, "listen.proxy", err);
    if (fd < 0) {
        free(path);
        return -1;
    }
    append(ls, (struct listener) { z_of(l->text), path, fd, -1, true, false });
    return 0;
}

static int add_dns(struct listeners *ls, const struct config_listener *l, struct err *err)
{
    int fd = bind_inet(l, SOCK_STREAM, "listen.dns", err);
    if (fd < 0)
        return -1;
    int udp_fd = bind_inet(l, SOCK_DGRAM, "listen.dns", err);
    if (udp_fd < 0) {
        close(fd);
        return -1;
    }
    append(ls, (struct listener) { z_of(l->text), NULL, fd, udp_fd, true, false });
    return 0;
}

int listeners_prepare(struct listeners *ls, const struct config *c, struct err *err)
{
    for (size_t i = 0; i < ls->n; i++)
        ls->v[i].is_gone = true;
    int r = 0;
    for (size_t i = 0; i < c->nproxy && r == 0; i++) {
        struct listener *have = find(ls, c->proxy[i].text, false);
        if (have)
            have->is_gone = false;
        else
            r = add(ls, c, &c->proxy[i], err);
    }
    for (size_t i = 0; i < c->ndns && r == 0; i++) {
        struct listener *have = find(ls, c->dns[i].text, true);
        if (have)
            have->is_gone = false;
        else
            r = add_dns(ls, &c->dns[i], err);
    }
    if (r)
        listeners_abort(ls);
    return r;
}

static void drop(struct listeners *ls, size_t i)
{
    struct listener *l = &ls->v[i];
    close(l->fd);
    if (l->udp_fd >= 0)
        close(l->udp_fd);
    if (l->path)
        unlinkat(l->path[0] == '/' ? AT_FDCWD : ls->runtime_fd, l->path, 0);
    free(l->text);
    free(l->path);
    ls->v[i] = ls->v[--ls->n];
}

void listeners_abort(struct listeners *ls)
{
    for (size_t i = ls->n; i-- > 0;)
        if (ls->v[i].is_new)
            drop(ls, i);
        else
            ls->v[i].is_gone = false;
}

void listeners_commit(struct listeners *ls)
{
    for (size_t i = ls->n; i-- > 0;)
        if (ls->v[i].is_gone)
            drop(ls, i);
        else
            ls->v[i].is_new = false;
}

void listeners_own_sockets(struct listeners *ls, const struct config *c)
{
    uid_t uid;
    mode_t mode = unix_owner(c, &uid);
    for (size_t i = 0; i < ls->n; i++) {
        const char *path = ls->v[i].path;
        int dir = path && path[0] == '/' ? AT_FDCWD : ls->runtime_fd;
        if (!path)
            continue;
        if (fchownat(dir, path, uid == (uid_t)-1 ? geteuid() : uid, ls->socket_gid, AT_SYMLINK_NOFOLLOW) ||
            fchmodat(dir, path, mode, 0))
            log_error("listener %s: its owner or mode cannot be set", ls->v[i].text);
    }
}

void listeners_close(struct listeners *ls)
{
    while (ls->n)
        drop(ls, ls->n - 1);
    free(ls->v);
    ls->v = NULL;
}

static bool ip_any(const struct ip *ip)
{
    static const uint8_t zero[16];
    return memcmp(ip->b, zero, ip->family == 4 ? 4 : 16) == 0;
}

/* False: there is no room. */
static bool own_add(struct own_list *o, const struct ip *ip, uint16_t port)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->ports[i] == port && ip_equal(&o->ips[i], ip))
            return true;
    if (o->n == OWN_MAX)
        return false;
    struct ip *ips = reallocarray(o->ips, o->n + 1, sizeof *ips);
    MUST(ips);
    o->ips = ips;
    uint16_t *ports = reallocarray(o->ports, o->n + 1, sizeof *ports);
    MUST(ports);
    o->ports = ports;
    o->ips[o->n] = *ip;
    o->ports[o->n++] = port;
    return true;
}

/* False: not all of them are in the list. */
static bool own_add_interfaces(struct own_list *o, uint8_t family, uint16_t port)
{
    struct ifaddrs *all = NULL;
    bool complete = true;
    if (getifaddrs(&all))
        return false;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        struct sockaddr_storage sa = { 0 };
        memcpy(&sa, i->ifa_addr,
               i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        struct ip ip;
        uint16_t ignored;
        if (ip_from_sockaddr(&sa, &ip, &ignored) == 0 && ip.family == family)
            complete = own_add(o, &ip, port) && complete;
    }
    freeifaddrs(all);
    return complete;
}

static bool own_equal(const struct own_list *a, const struct own_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->ports[i] == b->ports[i] && ip_equal(&a->ips[i], &b->ips[i]);
    return same;
}

bool listeners_own(const struct listeners *ls, struct own_list *own)
{
    struct own_list fresh = { NULL, NULL, 0 };
    bool complete = true;
    for (size_t i = 0; i < ls->n; i++) {
        struct sockaddr_storage sa = { 0 };
        socklen_t n = sizeof sa;
        struct ip ip;
        uint16_t port;
        if (ls->v[i].path || getsockname(ls->v[i].fd, (struct sockaddr *)&sa, &n) || ip_from_sockaddr(&sa, &ip, &port))
            continue;
        complete = own_add(&fresh, &ip, port) && complete;
        if (ip_any(&ip))
            complete = own_add_interfaces(&fresh, ip.family, port) && complete;
    }
    if (!complete) {
        log_error("cannot list all addresses of this machine (at most %d): an agent may reach this proxy through those "
                  "that are missing; "
                  "listen on single addresses instead of 0.0.0.0 or [::]",
                  OWN_MAX);
        struct own_list both = { NULL, NULL, 0 }; /* what was known first, should there be no room for all */
        for (size_t i = 0; i < own->n; i++)
            own_add(&both, &own->ips[i], own->ports[i]);
        for (size_t i = 0; i < fresh.n; i++)
            own_add(&both, &fresh.ips[i], fresh.ports[i]);
        own_list_done(&fresh);
        fresh = both;
    }
    bool changed = !own_equal(&fresh, own);
    own_list_done(own);
    *own = fresh;
    return changed;
}

void listeners_put(const struct listeners *ls, struct buf *out)
{
    for (size_t i = 0; i < ls->n; i++)
        buf_putf(out, "%s%s%s", i ? ", " : "", ls->v[i].udp_fd >= 0 ? "dns " : "", ls->v[i].text);
}
