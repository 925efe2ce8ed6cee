/* SPDX-License-Identifier: Apache-2.0
 *
 * A tunnel through the proxy port: may it open, what is the client told, and what its first bytes show. */
#include "proxy/client.h"

#include "base/clock.h"
#include "proxy/client_h2.h"
#include "proxy/first_bytes.h"
#include "proxy/virtual_host.h"

#include <stdio.h>
#include <sys/socket.h>

void client_tunnel_refuse(struct client *c, const struct h1_head *h, enum end end, const char *why, const struct verdict *v, bool target)
{
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    x->req.target = STR_NONE;
    if (c->socks) {
        x->socks = true;
        x->req.version = "socks5";
    }
    if (target) {
        x->host = c->host;
        x->said = c->said;
        x->port = c->port;
        x->bad_target = false;
    }
    if (v)
        x->verdict = *v;
    /* 407: git sends its login on the same socket; anything else on a refused CONNECT ends it. */
    if (end != END_UNKNOWN_AGENT)
        c->close_after = true;
    exchange_refuse(x, end, why);
}

void client_tunnel_accept(struct client *c, bool refused_host, struct str reply)
{
    c->tunnel = true;
    c->refused_host = refused_host;
    c->head_begun = false;
    c->close_after = false;
    c->state = CLIENT_TUNNEL;
    buf_put(&c->out, reply);
    timer_set(c->w->loop, &c->timer, c->view->limits->first_byte_timeout);
}

enum end client_tunnel_judge(struct client *c, const struct agent *agent, struct verdict *ret, bool *ret_inside)
{
    *ret_inside = false;
    if (c->w->draining)
        return END_DRAINING;
    policy_eval_connect(c->view->policy, agent, &c->host, c->port, clock_wall_us(), ret);
    if (ret->kind != VERDICT_DENY)
        return END_OK;
    struct agent_state *a = agent_table_get(c->w->agents, agent->name);
    *ret_inside = ret->code == END_HOST_DENIED && c->port == 443 && !c->view->config->refuse_at_connect && a &&
                  agent_denied_inside(a, host_str(&c->host), c->view->limits, loop_now_ms(c->w->loop));
    return *ret_inside ? END_OK : ret->code;
}

/* Is it us that this Host names: the address that was connected to, or one of listen.names? */
static bool names_us(const struct client *c, const struct host *host, uint16_t port)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    struct ip ip;
    uint16_t at;
    for (size_t i = 0; i < c->view->config->nlisten_names; i++)
        if (str_eq_nocase(c->view->config->listen_names[i], host_str(host)))
            return true;
    if (!c->source.family) /* a Unix socket: clients that must write something write this */
        return str_eq(host_str(host), STR("localhost"));
    return host_is_ip(host) && getsockname(c->stream.fd, (struct sockaddr *)&sa, &n) == 0 && ip_from_sockaddr(&sa, &ip, &at) == 0 && at == port &&
           ip_equal(&ip, &host->ip);
}

void client_tunnel_connect(struct client *c, const struct h1_head *h, const struct agent *agent)
{
    struct err err;
    struct verdict v = { 0 };
    if (authority_parse(h->target, 0, &c->host, &c->port, &err)) {
        client_tunnel_refuse(c, h, END_BAD_REQUEST, err.text, NULL, false);
        return;
    }
    if (h->body != H1_BODY_NONE) {
        client_tunnel_refuse(c, h, END_BAD_REQUEST, "a CONNECT with a body", NULL, true);
        return;
    }
    enum end end = virtual_host_name(c->view, agent->name, &c->host, &c->said);
    if (end != END_OK) {
        client_tunnel_refuse(c, h, end, NULL, NULL, true);
        return;
    }
    if (h->host >= 0) {
        struct host host;
        uint16_t port;
        /* Clients write the Host of a CONNECT with and without the port, which defaults to the target's; Node's http.request writes ours.
         * It decides nothing. */
        bool fits = authority_parse(h->fields[h->host].f.value, c->port, &host, &port, NULL) == 0;
        if (!fits || ((!virtual_host_same(&c->host, &c->said, &host) || port != c->port) && !names_us(c, &host, port))) {
            client_tunnel_refuse(c, h, END_BAD_REQUEST, "the Host field names another host than the CONNECT", NULL, true);
            return;
        }
    }
    bool inside;
    end = client_tunnel_judge(c, agent, &v, &inside);
    if (end != END_OK) {
        client_tunnel_refuse(c, h, end, NULL, &v, true);
        return;
    }
    if (v.kind == VERDICT_TUNNEL) {
        client_relay_open(c, h, !v.rule->tls_none, STR(TUNNEL_OPEN));
        return;
    }
    buf_consume(&c->in, h->bytes);
    client_tunnel_accept(c, inside, STR(TUNNEL_OPEN));
}

/* The rule that would let it through. */
static void put_rule(const struct client *c, char *out, size_t size)
{
    snprintf(out, size, "{name: NAME, hosts: [%s%s%s], ports: [%u], action: tunnel, tls: none}", c->host.ip.family == 6 ? "\"" : "", c->host.name,
             c->host.ip.family == 6 ? "\"" : "", c->port);
}

static void refuse_protocol(struct client *c, const char *name)
{
    char rule[340], hint[512];
    put_rule(c, rule, sizeof rule);
    if (c->refused_host)
        snprintf(hint, sizeof hint, "the tunnel carried %s, which is neither TLS nor HTTP, to a host that no rule allows", name ? name : "something");
    else
        snprintf(hint, sizeof hint, "the tunnel carried %s, which is neither TLS nor HTTP; an operator can let it pass unread by a rule: %s",
                 name ? name : "something", rule);
    client_close(c, "protocol_denied", END_PROTOCOL_DENIED, hint);
}

void client_tunnel_silent(struct client *c)
{
    char rule[340], hint[512];
    put_rule(c, rule, sizeof rule);
    snprintf(hint, sizeof hint, "nothing was said in the tunnel: a protocol in which the server speaks first (MySQL, SMTP, IMAP, FTP) needs a rule: %s", rule);
    if (buf_size(&c->in))
        refuse_protocol(c, NULL);
    else
        client_close(c, "timeout", END_UNSET, c->refused_host ? NULL : hint);
}

bool client_tunnel_begin(struct client *c)
{
    const char *name = NULL;
    switch (first_bytes_look(buf_str(&c->in), &name)) {
    case FIRST_TLS:
        client_flush(c); /* the answer to CONNECT goes before the first byte of TLS */
        if (c->state != CLIENT_DEAD && client_start_tls(c, CLIENT_TLS))
            client_close(c, "client_closed", END_UNSET, "out of memory");
        return true;
    case FIRST_HTTP2: /* known beforehand (RFC 9113 3.3): gRPC without credentials speaks so */
        c->scheme = SCHEME_HTTP;
        if (client_h2_start(c))
            client_close(c, "client_closed", END_UNSET, "out of memory");
        return true;
    case FIRST_HTTP:
        c->scheme = SCHEME_HTTP;
        c->state = CLIENT_HEAD;
        client_set_deadline(c);
        return true;
    case FIRST_OTHER:
        refuse_protocol(c, name);
        return true;
    case FIRST_MORE:
        break;
    }
    return false;
}
