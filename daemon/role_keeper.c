/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's process. Its working folder is RUNTIME (the supervisor started it there), so that the private minter's
 * socket is reached by its bare name also where RUNTIME lies under a folder that only root may pass. */
#include "daemon/role.h"
#include "mint/keeper.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <unistd.h>

enum { LEASES_MAX = 64 * 1024 * 1024, LEASES_PIECE = 64 * 1024 };

static int keeper_open(struct role *r, struct err *err)
{
    const struct snapshot *s = &r->snapshot->view;
    struct keeper *k = keeper_new(r->loop, r->snapshot->policy, s->mint_socket, (uid_t)s->mint_uid, r->sink, err);
    r->self = k;
    if (!k)
        return err_prefix(err, "keeper");
    if (r->in.listen_fd >= 0) {
        int fd = r->in.listen_fd;
        r->in.listen_fd = -1;
        if (keeper_listen(k, fd, err))
            return err_prefix(err, "keeper.sock");
    }
    return 0;
}

static void leases_send(struct role *r, uint64_t id)
{
    struct buf out;
    buf_init(&out, LEASES_MAX);
    keeper_list(r->self, &out);
    struct str rest = buf_str(&out);
    do {
        struct str piece = str_sub(rest, 0, LEASES_PIECE);
        rest = str_from(rest, piece.n);
        role_send(r, &(struct role_msg) { .type = ROLE_LEASES_ARE, .id = id, .flag = rest.n > 0, .text = piece });
    } while (rest.n);
    buf_done(&out);
}

static void revoke_leases(struct role *r, const struct role_msg *m)
{
    char who[128];
    str_escape(m->who, who, sizeof who);
    struct str id = m->text.n ? m->text : STR_NONE, credential = m->more.n ? m->more : STR_NONE;
    size_t n = keeper_revoke(r->self, id, credential, who);
    role_send(r, &(struct role_msg) { .type = ROLE_REVOKED, .id = m->id, .number = n });
}

static int keeper_on_message(struct role *r, struct role_msg *m)
{
    struct err err;
    if (m->type == ROLE_CHANNEL && m->kind == ROLE_KIND_WORKER) {
        int fd = m->fds[0];
        m->fds[0] = -1;
        if (keeper_add_worker(r->self, m->index, fd, &err)) {
            log_error("worker %u: %s", m->index, err.text);
            close(fd);
        }
        return 0;
    }
    if (m->type == ROLE_LEASES) {
        leases_send(r, m->id);
        return 0;
    }
    if (m->type == ROLE_REVOKE) {
        revoke_leases(r, m);
        return 0;
    }
    return -1;
}

static void keeper_on_commit(struct role *r)
{
    keeper_set_policy(r->self, r->snapshot->policy, r->snapshot->view.mint_socket);
}

static void keeper_on_stop(struct role *r)
{
    struct keeper *k = r->self;
    keeper_free(&k);
    r->self = NULL;
}

const struct role_ops role_ops_keeper = {
    .kind = ROLE_KIND_KEEPER,
    .allow = LOCKDOWN_DIAL_UNIX | LOCKDOWN_ACCEPT,
    .open = keeper_open,
    .on_message = keeper_on_message,
    .on_commit = keeper_on_commit,
    .on_stop = keeper_on_stop,
};
