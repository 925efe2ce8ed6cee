/* SPDX-License-Identifier: Apache-2.0
 *
 * SOCKS5 on the proxy port: greeting, login where it is needed, request; then the tunnel is the same as that of a CONNECT. A client
 * that is known without a login is not asked for one. */
#include "proxy/client.h"
#include "proxy/exchange.h"
#include "proxy/socks5.h"
#include "proxy/virtual_host.h"

/* Version, reply, reserved, IPv4, and the address and port that we are bound to: none of the client's business. */
static void put_reply(struct client *c, enum socks5_reply reply)
{
    const char bytes[10] = { SOCKS5_VERSION, (char)reply, 0, 1 };
    buf_put(&c->out, str_of(bytes, sizeof bytes));
}

static void put_pair(struct client *c, unsigned version, unsigned value)
{
    const char bytes[2] = { (char)version, (char)value };
    buf_put(&c->out, str_of(bytes, sizeof bytes));
}

void client_socks_accept(struct client *c)
{
    put_reply(c, SOCKS5_SUCCEEDED);
}

static const struct h1_head no_head = { .minor = 1, .host = -1, .method = STR_NONE };

/* The end of it, as an exchange that is refused and logged; the client is told by client_socks_refuse, through the exchange. */
static bool refuse(struct client *c, enum end end, const char *why, const struct verdict *v, bool target)
{
    c->close_after = true;
    c->body_done = true;
    client_tunnel_refuse(c, &no_head, end, why, v, target);
    return false;
}

void client_socks_refuse(struct client *c)
{
    if (c->socks == SOCKS_GREETING)
        put_pair(c, SOCKS5_VERSION, SOCKS5_NO_METHOD);
    else if (c->socks == SOCKS_LOGIN)
        put_pair(c, 1, 1);
    else
        put_reply(c, c->socks_reply ? (enum socks5_reply)c->socks_reply : SOCKS5_NOT_ALLOWED);
}

static bool step_greeting(struct client *c, struct err *err)
{
    struct socks5_greeting g;
    const struct agent *agent = NULL;
    size_t n = 0;
    enum socks5_result r = socks5_greeting(buf_str(&c->in), &g, &n, err);
    if (r == SOCKS5_MORE)
        return false;
    if (r == SOCKS5_BAD)
        return refuse(c, END_BAD_REQUEST, err->text, NULL, false);
    buf_consume(&c->in, n);
    enum identify_result who = client_identify(c, NULL, &agent);
    if (g.no_login && who != IDENTIFY_LOGIN) { /* whoever no login can make an agent is refused with what it asks for */
        put_pair(c, SOCKS5_VERSION, SOCKS5_NO_LOGIN);
        c->socks = SOCKS_REQUEST;
        return true;
    }
    if (g.login) {
        put_pair(c, SOCKS5_VERSION, SOCKS5_LOGIN);
        c->socks = SOCKS_LOGIN;
        return true;
    }
    return refuse(c, END_UNKNOWN_AGENT, who == IDENTIFY_LOGIN ? "the client offers SOCKS5 no login" : "the client offers SOCKS5 no method that is known here",
                  NULL, false);
}

static bool step_login(struct client *c, struct err *err)
{
    struct socks5_login l;
    const struct agent *agent = NULL;
    size_t n = 0;
    enum socks5_result r = socks5_login(buf_str(&c->in), &l, &n, err);
    if (r == SOCKS5_MORE)
        return false;
    if (r == SOCKS5_BAD)
        return refuse(c, END_BAD_REQUEST, err->text, NULL, false);
    c->agent_name[0] = 0;
    enum identify_result who = client_identify(c, &(struct client_login) { l.user, l.password }, &agent);
    buf_consume(&c->in, n);
    if (who != IDENTIFY_OK)
        return refuse(c, END_UNKNOWN_AGENT, "the SOCKS5 login fits no agent", NULL, false);
    put_pair(c, 1, 0);
    c->socks = SOCKS_REQUEST;
    return true;
}

static bool step_request(struct client *c, struct err *err)
{
    struct socks5_request q;
    enum socks5_reply reply;
    size_t n = 0;
    enum socks5_result r = socks5_request(buf_str(&c->in), &q, &n, &reply, err);
    if (r == SOCKS5_MORE)
        return false;
    if (r == SOCKS5_BAD) {
        c->socks_reply = (uint8_t)reply;
        return refuse(c, END_BAD_REQUEST, err->text, NULL, false);
    }
    buf_consume(&c->in, n);
    c->host = q.host;
    c->port = q.port;
    const struct agent *agent = client_agent(c);
    if (!agent)
        return refuse(c, END_UNKNOWN_AGENT, NULL, NULL, true);
    if (!client_count(c))
        return refuse(c, END_RATE_LIMITED, client_too_many(c), NULL, true);
    enum end end = virtual_host_name(c->view, agent->name, &c->host, &c->said);
    if (end != END_OK)
        return refuse(c, end, NULL, NULL, true);
    struct verdict v = { 0 };
    bool inside;
    end = client_tunnel_judge(c, agent, &v, &inside);
    if (end != END_OK)
        return refuse(c, end, NULL, &v, true);
    if (v.kind == VERDICT_TUNNEL) {
        if (!v.rule->tls_none)
            put_reply(c, SOCKS5_SUCCEEDED);
        client_relay_open(c, &no_head, !v.rule->tls_none, STR(""));
        return true;
    }
    put_reply(c, SOCKS5_SUCCEEDED);
    c->socks = SOCKS_NONE; /* what comes in the tunnel is answered in its own words */
    client_tunnel_accept(c, inside, STR(""));
    return true;
}

bool client_socks(struct client *c)
{
    struct err err;
    if (!c->socks) {
        client_renew_view(c);
        c->socks = SOCKS_GREETING;
        client_head_begins(c);
    }
    switch (c->socks) {
    case SOCKS_GREETING:
        return step_greeting(c, &err);
    case SOCKS_LOGIN:
        return step_login(c, &err);
    case SOCKS_REQUEST:
        return step_request(c, &err);
    case SOCKS_NONE:
        break;
    }
    return false;
}
