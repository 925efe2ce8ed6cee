/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/env_listener.h"

#include "daemon/files.h"
#include "daemon/runtime.h"

#include <stdlib.h>

static const struct agent *claimed_by(const struct config *c, const struct config_listener *l)
{
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++) {
            const struct config_claim *claim = &c->agents[i].claims[k];
            if (claim->kind == CLAIM_LISTENER && str_eq(claim->listener, l->text))
                return &c->agents[i];
        }
    return NULL;
}

static bool has_claim(const struct agent *a, enum claim_kind kind)
{
    for (size_t i = 0; i < a->nclaims; i++)
        if (a->claims[i].kind == kind)
            return true;
    return false;
}

/* Can what comes to l be this agent? Whoever comes to a claimed listener is its agent or nobody; elsewhere there must
 * be something to know the agent by. */
static bool admits(const struct config *c, const struct config_listener *l, const struct agent *a)
{
    const struct agent *owner = claimed_by(c, l);
    if (owner)
        return owner == a;
    return has_claim(a, CLAIM_LOGIN) || has_claim(a, l->kind == LISTENER_UNIX ? CLAIM_UNIX_UID : CLAIM_SOURCE);
}

static const struct config_listener *find(const struct config *c, const struct agent *a, bool is_unix, bool claimed)
{
    for (size_t i = 0; i < c->nproxy; i++) {
        const struct config_listener *l = &c->proxy[i];
        if ((l->kind == LISTENER_UNIX) == is_unix && (claimed_by(c, l) != NULL) == claimed && admits(c, l, a))
            return l;
    }
    return NULL;
}

static const struct config_listener *first(const struct config *c, const struct agent *a, bool is_unix)
{
    const struct config_listener *l = find(c, a, is_unix, true);
    return l ? l : find(c, a, is_unix, false);
}

static int no_way(const struct config *c, const struct agent *a, struct err *err)
{
    const struct config_listener *l = first(c, a, true);
    if (!l)
        return err_set(err,
                       "agents: %.*s: expected a listener where this agent can be known, got none: list one in "
                       "listen.proxy, or set advertise.proxy",
                       STR_ARG(a->name));
    char *runtime = l->path.n && l->path.p[0] == '/' ? NULL : runtime_path(c, NULL);
    err_set(err,
            "agents: %.*s: it comes in by %.*s, which no proxy URL can name: beside the agent, run `socat "
            "TCP-LISTEN:3128,bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:%s%s%.*s`, and set advertise.proxy: "
            "127.0.0.1:3128",
            STR_ARG(a->name), STR_ARG(l->text), runtime ? runtime : "", runtime ? "/" : "", STR_ARG(l->path));
    free(runtime);
    return -1;
}

const struct config_listener *env_listener_of(const struct config *c, const struct agent *a, struct err *err)
{
    const struct config_listener *l = first(c, a, false);
    if (!l)
        no_way(c, a, err);
    return l;
}
