/* SPDX-License-Identifier: Apache-2.0
 *
 * Logins for `outgate run`: one random token for each, good for as long as whoever asked holds the control connection
 * open. They live in memory only: here and, as digests, in the workers. */
#include "daemon/supervisor.h"

#include "base/clock.h"

#include <stdio.h>

enum { TOKEN_BYTES = (RUN_TOKEN_SIZE - 1) / 2 };

static const struct config_claim *login_of(const struct config *c, const char *agent)
{
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; str_eq(c->agents[i].name, str_c(agent)) && k < c->agents[i].nclaims; k++)
            if (c->agents[i].claims[k].kind == CLAIM_LOGIN)
                return &c->agents[i].claims[k];
    return NULL;
}

static void tell_workers(struct supervisor *s)
{
    for (unsigned i = 0; i < s->nworkers; i++)
        if (s->workers[i]->channel)
            wiring_send_logins(s->workers[i]);
}

uint64_t run_login_add(struct supervisor *s, const char *agent, struct str *ret_user, char token[RUN_TOKEN_SIZE],
                       struct err *err)
{
    const struct config_claim *claim = login_of(s->current->gathered.config, agent);
    unsigned char bytes[TOKEN_BYTES];
    if (!claim) {
        err_set(err, "agent: expected one that has a login in identify, got \"%.80s\"", agent);
        return 0;
    }
    if (s->logins.n == RUN_LOGINS_MAX) {
        err_set(err, "%d commands of `outgate run` go on already: end one first", RUN_LOGINS_MAX);
        return 0;
    }
    rand_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    struct run_login *l = &s->logins.v[s->logins.n++];
    *l = (struct run_login) { .id = ++s->next_id };
    memcpy(l->agent, agent, strlen(agent));
    run_login_digest(str_c(token), l->digest);
    *ret_user = claim->user;
    tell_workers(s);
    return l->id;
}

void run_login_drop(struct supervisor *s, uint64_t id)
{
    struct run_logins *l = &s->logins;
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].id == id) {
            l->v[i] = l->v[--l->n];
            tell_workers(s);
            return;
        }
}
