/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placeholder_list.h"
#include "daemon/role.h"
#include "dns/resolver.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <unistd.h>

static int resolver_role_open(struct role *r, struct err *err)
{
    struct canary *canary = placeholder_list_canary(r->snapshot->view.placeholders, err);
    int fd = r->in.files[ROLE_FILE_BUDGETS];
    if (!canary)
        return err_prefix(err, "resolver: placeholders");
    r->in.files[ROLE_FILE_BUDGETS] = -1;
    r->self = resolver_new(r->loop, r->snapshot->policy, r->snapshot->view.resolv_conf, canary, fd, r->sink, err);
    canary_unref(&canary);
    if (!r->self || resolver_set_trust(r->self, r->snapshot->view.system_roots, r->snapshot->view.own_ca, err) ||
        resolver_set_names(r->self, r->snapshot->names, err))
        return err_prefix(err, "resolver");
    return 0;
}

static int resolver_on_message(struct role *r, struct role_msg *m)
{
    struct err err;
    if (m->type == ROLE_CHANNEL && m->kind == ROLE_KIND_WORKER) {
        int fd = m->fds[0];
        m->fds[0] = -1;
        if (resolver_add_worker(r->self, m->index, fd, &err)) {
            log_error("worker %u: %s", m->index, err.text);
            close(fd);
        }
        return 0;
    }
    if (m->type == ROLE_LISTENER && m->nfds == 2) {
        int tcp_fd = m->fds[0], udp_fd = m->fds[1];
        m->fds[0] = m->fds[1] = -1;
        if (resolver_add_listener(r->self, m->text, tcp_fd, udp_fd, &err)) {
            log_error("listener %.*s: %s", STR_ARG(m->text), err.text);
            return -1; /* a DNS port that nobody serves is no use: be started anew */
        }
        return 0;
    }
    if (m->type == ROLE_LISTENER_DROP) {
        resolver_drop_listener(r->self, m->text);
        return 0;
    }
    if (m->type == ROLE_OWN) {
        struct own_list own;
        if (own_list_parse(m->text, &own))
            return -1;
        resolver_set_own(r->self, &(struct own_addresses) { own.ips, own.ports, own.n });
        own_list_done(&own);
        return 0;
    }
    return -1;
}

static void resolver_on_commit(struct role *r)
{
    struct err err;
    struct canary *canary = placeholder_list_canary(r->snapshot->view.placeholders, &err);
    if (!canary) /* an old policy must not stay in force: die and be restarted on the new one */
        log_fatal("placeholders: %s", err.text);
    resolver_set_policy(r->self, r->snapshot->policy, r->snapshot->view.resolv_conf, canary);
    canary_unref(&canary);
    if (resolver_set_trust(r->self, r->snapshot->view.system_roots, r->snapshot->view.own_ca, &err) ||
        resolver_set_names(r->self, r->snapshot->names, &err))
        log_fatal("resolver: %s", err.text);
}

static void resolver_on_stop(struct role *r)
{
    struct resolver *resolver = r->self;
    resolver_free(&resolver);
    r->self = NULL;
}

const struct role_ops role_ops_resolver = {
    .kind = ROLE_KIND_RESOLVER,
    .allow = LOCKDOWN_DIAL_INET | LOCKDOWN_ACCEPT | LOCKDOWN_DATAGRAMS | LOCKDOWN_FILE_UPDATE,
    .open = resolver_role_open,
    .on_message = resolver_on_message,
    .on_commit = resolver_on_commit,
    .on_stop = resolver_on_stop,
};
