/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/supervisor.h"

#include "base/log.h"
#include "base/sealed.h"
#include "daemon/placeholder_list.h"
#include "dns/virtual_table.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct generation *generation_load(struct supervisor *s, struct diag *diag)
{
    struct generation *g = calloc(1, sizeof *g);
    MUST(g);
    g->fd_worker = g->fd_resolver = g->fd_other = g->fd_names = g->fd_names_read = -1;
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

/* As the key of placeholders, of the install key alone: the same name has the same address after the next start. */
static void names_key(const struct supervisor *s, unsigned char ret[VIRTUAL_KEY])
{
    static const char label[] = "outgate virtual names 1";
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    struct str key = buf_str(&s->install_key);
    MUST(HMAC(EVP_sha256(), key.p, (int)key.n, (const unsigned char *)label, sizeof label - 1, out, &n) && n >= VIRTUAL_KEY);
    memcpy(ret, out, VIRTUAL_KEY);
    explicit_bzero(out, sizeof out);
}

/* The same table as long as it is the same pool: what clients were answered goes on to be true. */
static int names_open(struct supervisor *s, struct generation *g, struct err *err)
{
    const struct config *c = g->gathered.config;
    const struct generation *now = s->current != g ? s->current : NULL;
    const struct config *old = now ? now->gathered.config : NULL;
    if (!address_pool_given(&c->synthetic_pool))
        return 0;
    if (old && now->fd_names >= 0 && address_pool_equal(&old->synthetic_pool, &c->synthetic_pool) &&
        old->limits.virtual_bytes == c->limits.virtual_bytes) {
        g->fd_names = fcntl(now->fd_names, F_DUPFD_CLOEXEC, 0);
        if (g->fd_names < 0)
            return err_set_errno(err, "virtual names");
    } else {
        unsigned char key[VIRTUAL_KEY];
        names_key(s, key);
        g->fd_names = virtual_table_new(&c->synthetic_pool, c->limits.virtual_bytes, key, err);
        explicit_bzero(key, sizeof key);
        if (g->fd_names < 0)
            return -1;
    }
    g->fd_names_read = virtual_table_reader(g->fd_names, err);
    return g->fd_names_read < 0 ? -1 : 0;
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
    return g->fd_worker < 0 ? -1 : names_open(s, g, err);
}

size_t generation_fds(const struct generation *g, enum role_kind kind, int ret[GENERATION_FDS])
{
    bool resolver = kind == ROLE_KIND_RESOLVER, worker = kind == ROLE_KIND_WORKER;
    ret[0] = worker ? g->fd_worker : resolver ? g->fd_resolver : g->fd_other;
    ret[1] = worker ? g->fd_names_read : resolver ? g->fd_names : -1;
    return ret[1] < 0 ? 1 : 2;
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
    if (g->fd_names >= 0)
        close(g->fd_names);
    if (g->fd_names_read >= 0)
        close(g->fd_names_read);
    gather_done(&g->gathered);
    free(g);
}
