/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/supervisor.h"

#include "base/log.h"
#include "base/sealed.h"
#include "daemon/placeholder_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct generation *generation_load(struct supervisor *s, struct diag *diag)
{
    struct generation *g = calloc(1, sizeof *g);
    MUST(g);
    g->fd_worker = g->fd_resolver = g->fd_other = -1;
    if (gather_policy(&g->gathered, s->config_file, diag)) {
        generation_free(&g);
        return NULL;
    }
    g->number = ++s->last_number;
    snprintf(g->hash, sizeof g->hash, "%.*s", STR_ARG(policy_hash(g->gathered.policy)));
    tune_from_config(g->gathered.config, &g->tune);
    return g;
}

static int seal(const struct snapshot *view, const char *name, struct err *err)
{
    struct buf out;
    buf_init(&out, SNAPSHOT_MAX);
    out.wipe = true;
    int fd = snapshot_pack(view, &out)
                 ? err_set(err, "the configuration and its files are larger than %d bytes", SNAPSHOT_MAX)
                 : sealed_new(name, buf_str(&out), err);
    buf_done(&out);
    return fd;
}

int generation_seal(struct supervisor *s, struct generation *g, const char *mint_socket, struct err *err)
{
    struct snapshot view;
    gather_view(&g->gathered, &view);
    view.number = g->number;
    view.own_ca = buf_str(&s->ca_pem);
    view.mint_socket = str_c(mint_socket);
    view.mint_uid = user_uid(s->users.mint);
    g->fd_other = seal(&view, "snapshot", err);
    if (g->fd_other < 0)
        return -1;
    struct buf list;
    buf_init(&list, SNAPSHOT_MAX);
    struct canary *readable = NULL; /* by the resolver and the workers: here it is an error of the configuration, there it would be the end */
    if (placeholder_list_put(g->gathered.policy, buf_str(&s->install_key), &list, err) == 0)
        readable = placeholder_list_canary(buf_str(&list), err);
    if (readable) {
        view.placeholders = buf_str(&list);
        g->fd_resolver = seal(&view, "snapshot", err);
    }
    canary_unref(&readable);
    buf_done(&list);
    view.placeholders = STR_NONE;
    if (g->fd_resolver < 0)
        return -1;
    view.install_key = buf_str(&s->install_key);
    g->fd_worker = seal(&view, "snapshot", err);
    return g->fd_worker < 0 ? -1 : 0;
}

int *generation_fd(struct generation *g, enum role_kind kind)
{
    return kind == ROLE_KIND_WORKER ? &g->fd_worker : kind == ROLE_KIND_RESOLVER ? &g->fd_resolver : &g->fd_other;
}

void generation_free(struct generation **gp)
{
    struct generation *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    if (g->fd_worker >= 0)
        close(g->fd_worker);
    if (g->fd_resolver >= 0)
        close(g->fd_resolver);
    if (g->fd_other >= 0)
        close(g->fd_other);
    gather_done(&g->gathered);
    free(g);
}
