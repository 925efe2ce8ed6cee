/* SPDX-License-Identifier: Apache-2.0
 *
 * Who a connection comes from: by its address, its listener, its uid or its login; and whose connections count it. */
#include "proxy/client.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

/* "Basic …" of Proxy-Authorization -> user and token inside mem. */
static bool read_login(const struct h1_head *h, char *mem, size_t size, struct str *user, struct str *token)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (h->fields[i].id != H1_PROXY_AUTHORIZATION)
            continue;
        struct str v = h->fields[i].f.value;
        if (v.n < 7 || !str_eq_nocase(str_sub(v, 0, 6), STR("basic ")))
            return false;
        v = str_trim(str_from(v, 6));
        if (v.n % 4 || v.n / 4 * 3 >= size)
            return false;
        int n = EVP_DecodeBlock((unsigned char *)mem, (const unsigned char *)v.p, (int)v.n);
        if (n < 0)
            return false;
        for (size_t k = v.n; k && v.p[k - 1] == '=' && n; k--)
            n--;
        struct str text = str_of(mem, (size_t)n);
        ptrdiff_t colon = str_find_char(text, ':');
        if (colon < 0)
            return false;
        *user = str_sub(text, 0, (size_t)colon);
        *token = str_from(text, (size_t)colon + 1);
        return true;
    }
    return false;
}

/* By what is known of the connection, under its view. */
static enum identify_result identify(struct client *c, const struct agent **ret)
{
    struct claims claims = {
        .source = c->source,
        .listener = str_of(c->listener->text, c->listener->text_n),
        .has_unix_uid = c->has_uid,
        .unix_uid = c->uid,
        .has_login = c->login.given,
        .user = str_of(c->login.user, c->login.user_n),
        .token_digest = c->login.digest,
    };
    const struct run_login *run = c->login.given ? run_logins_find(&c->w->run_logins, c->login.digest) : NULL;
    if (run)
        claims.run_agent = str_c(run->agent);
    enum identify_result r = policy_identify(c->view->policy, &claims, ret);
    c->run_login = r == IDENTIFY_OK && run ? run->id : 0;
    return r;
}

static void keep_login(struct client *c, const struct client_login *login)
{
    client_forget_login(c);
    if (!login)
        return;
    c->login.given = true;
    c->login.user = malloc(login->user.n + 1);
    if (!c->login.user) /* as one that fits nobody: the digest stays zero */
        return;
    if (login->user.n)
        memcpy(c->login.user, login->user.p, login->user.n);
    c->login.user_n = login->user.n;
    run_login_digest(login->token, c->login.digest);
}

void client_forget_login(struct client *c)
{
    free(c->login.user);
    memset(&c->login, 0, sizeof c->login);
}

enum identify_result client_identify(struct client *c, const struct client_login *login, const struct agent **ret)
{
    keep_login(c, login);
    enum identify_result r = identify(c, ret);
    if (r == IDENTIFY_OK)
        snprintf(c->agent_name, sizeof c->agent_name, "%.*s", STR_ARG((*ret)->name));
    return r;
}

enum identify_result client_h1_identify(struct client *c, const struct h1_head *h, const struct agent **ret)
{
    char mem[1024];
    struct client_login login = { STR(""), STR("") };
    unsigned given = 0;
    for (size_t i = 0; i < h->nfields; i++)
        given += h->fields[i].id == H1_PROXY_AUTHORIZATION;
    /* Two of them cannot be said to agree: as one that fits nobody. */
    if (given > 1 || (given && !read_login(h, mem, sizeof mem, &login.user, &login.token)))
        login = (struct client_login) { STR(""), STR("") };
    enum identify_result r = client_identify(c, given ? &login : NULL, ret);
    explicit_bzero(mem, sizeof mem);
    return r;
}

const struct agent *client_agent(struct client *c)
{
    if (c->run_login && !run_logins_has(&c->w->run_logins, c->run_login))
        return NULL;
    return c->agent_name[0] ? policy_agent(c->view->policy, str_c(c->agent_name)) : NULL;
}

bool client_count(struct client *c)
{
    struct agent_state *a = agent_table_get(c->w->agents, str_c(c->agent_name));
    if (!a || a == c->agent_state)
        return a != NULL;
    if (a->connections >= c->view->limits->connections_per_agent || !agent_hold(c->w->agents, a, c->w->fd_shared))
        return false;
    client_uncount(c);
    a->connections++;
    c->agent_state = a;
    stranger_del(&c->w->strangers, &c->stranger);
    return true;
}

const char *client_too_many(const struct client *c)
{
    const struct agent_state *a = agent_table_get(c->w->agents, str_c(c->agent_name));
    return a && a->connections < c->view->limits->connections_per_agent
               ? "the agent has its share of the descriptors that are left"
               : "the agent has limits.connections_per_agent connections open";
}

/* Renews the view: the next request on an open connection is judged by the newest snapshot. */
void client_renew_view(struct client *c)
{
    if (c->view == c->w->view)
        return;
    view_unref(&c->view);
    c->view = view_ref(c->w->view);
    /* What made it this agent may be gone: a token that was replaced, a source that is another's. */
    const struct agent *agent = NULL;
    if (c->agent_name[0] && (identify(c, &agent) != IDENTIFY_OK || !str_eq(agent->name, str_c(c->agent_name))))
        c->agent_name[0] = 0;
}

void client_review(struct worker *w)
{
    for (struct exchange *x = w->exchanges, *next; x; x = next) {
        next = x->next;
        if (!x->tunnel && !x->switched)
            continue;
        client_renew_view(x->client);
        if (!client_agent(x->client))
            exchange_stop(x, END_REVOKED, "the client is no longer the agent that opened it");
    }
}
