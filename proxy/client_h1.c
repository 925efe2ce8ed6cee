/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 from the client: heads become exchanges, answers become bytes. On the proxy port a head is a CONNECT, an absolute-form
 * request, or a question to us; inside a tunnel it is an origin-form request whose every name must be the tunnel's. */
#include "proxy/client.h"

#include "base/clock.h"
#include "proxy/exchange_steps.h"
#include "proxy/record.h"
#include "proxy/rewrite.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { OUT_HIGH = 256 * 1024 };

/* --- who --- */

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

/* --- from head to request --- */

/* Moves the head into memory of its own, which the exchange takes. False: out of memory. */
static bool own_head(struct client *c, const struct h1_head *h, struct request *r)
{
    struct str bytes = str_sub(buf_str(&c->in), 0, h->bytes);
    size_t fields = (h->nfields ? h->nfields : 1) * sizeof(struct h1_field);
    char *mem = malloc(fields + bytes.n);
    if (!mem)
        return false;
    struct h1_field *f = (struct h1_field *)(void *)mem;
    char *copy = mem + fields;
    if (bytes.n)
        memcpy(copy, bytes.p, bytes.n);
    ptrdiff_t delta = bytes.n ? copy - bytes.p : 0;
    for (size_t i = 0; i < h->nfields; i++) {
        f[i] = h->fields[i];
        f[i].f.name.p += delta;
        f[i].f.value.p += delta;
    }
    *r = (struct request) {
        .method = bytes.n ? str_of(h->method.p + delta, h->method.n) : STR_NONE,
        .target = bytes.n ? str_of(h->target.p + delta, h->target.n) : STR_NONE,
        .fields = f,
        .nfields = h->nfields,
        .body = h->body,
        .length = h->length,
        .expect_continue = h->expect_continue,
        .upgrade = h->upgrade,
        .version = h->minor ? "1.1" : "1.0",
        .mem = mem,
    };
    return true;
}

struct exchange *client_exchange(struct client *c, const struct h1_head *h)
{
    struct request r;
    if (!own_head(c, h, &r))
        return NULL;
    h1_body_in_init(&c->body, h, c->view->limits->chunk_ext_bytes, c->view->limits->trailer_bytes);
    c->body_done = h->body == H1_BODY_NONE;
    c->http10 = h->minor == 0;
    c->close_after |= !h->keep_alive;
    c->answer_chunked = c->answer_sized = false;
    c->made_exchange = true;
    c->drained = 0;
    buf_consume(&c->in, h->bytes);
    struct exchange *x = exchange_new(c->w, &client_h1_ops, c, &r);
    if (!x)
        return NULL;
    x->conn_id = c->conn_id;
    x->client_addr = c->addr;
    x->client_http10 = c->http10;
    memcpy(x->agent_name, c->agent_name, sizeof x->agent_name);
    x->agent = client_agent(c);
    x->bad_target = true;
    c->x = x;
    c->state = CLIENT_EXCHANGE;
    timer_clear(&c->timer);
    return x;
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

static void fault(struct exchange *x, enum end end, const char *why)
{
    if (!x->req.fault) {
        x->req.fault = why;
        x->req.fault_end = end;
    }
}

/* The one name: Host must be the target's, by canonical name and port. */
static void check_host_field(struct exchange *x, const struct h1_head *h, struct str host_value)
{
    struct host host;
    uint16_t port;
    if (h->host < 0) {
        if (h->minor)
            fault(x, END_BAD_REQUEST, "an HTTP/1.1 request without Host");
        return;
    }
    if (authority_parse(host_value, x->scheme == SCHEME_HTTPS ? 443 : 80, &host, &port, NULL)) {
        fault(x, END_BAD_REQUEST, "the Host field is not a host name");
        return;
    }
    if (!host_eq(&host, &x->host) || port != x->port)
        fault(x, END_MISDIRECTED, "the Host field names another host or port than the connection");
}

/* --- inside a tunnel --- */

static void tunnel_request(struct client *c, const struct h1_head *h)
{
    struct str host_value = h->host >= 0 ? h->fields[h->host].f.value : STR_NONE;
    size_t host_at = (size_t)(h->host >= 0 ? h->host : 0);
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    if (h->host >= 0)
        host_value = x->req.fields[host_at].f.value;
    x->scheme = c->scheme;
    x->host = c->host;
    x->port = c->port;
    x->bad_target = false;
    struct str t = x->req.target;
    if (t.n && t.p[0] != '/' && !str_eq(t, STR("*"))) {
        /* An absolute form inside a tunnel is either the same name, which some clients send, or misdirected. */
        struct str prefix = c->scheme == SCHEME_HTTPS ? STR("https://") : STR("http://");
        struct host host;
        uint16_t port;
        bool same = t.n > prefix.n && str_eq_nocase(str_sub(t, 0, prefix.n), prefix);
        struct str rest = same ? str_from(t, prefix.n) : STR_NONE;
        size_t end = 0;
        while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?')
            end++;
        same = same && authority_parse(str_sub(rest, 0, end), c->scheme == SCHEME_HTTPS ? 443 : 80, &host, &port, NULL) == 0;
        if (!same)
            fault(x, END_BAD_REQUEST, "the request target is no path");
        else if (!host_eq(&host, &x->host) || port != x->port)
            fault(x, END_MISDIRECTED, "the absolute-form target names another host than the tunnel");
        else if (end == rest.n || rest.p[end] != '/')
            fault(x, END_BAD_REQUEST, "the absolute-form target has no path");
        if (!x->req.fault)
            x->req.target = str_from(rest, end);
    }
    check_host_field(x, h, host_value);
    exchange_start(x);
}

/* --- the proxy port --- */

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

static void connect_request(struct client *c, const struct h1_head *h, const struct agent *agent)
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
    if (h->host >= 0) {
        struct host host;
        uint16_t port;
        /* Clients write the Host of a CONNECT with and without the port, which defaults to the target's; Node's http.request writes ours.
         * It decides nothing. */
        bool fits = authority_parse(h->fields[h->host].f.value, c->port, &host, &port, NULL) == 0;
        if (!fits || ((!host_eq(&host, &c->host) || port != c->port) && !names_us(c, &host, port))) {
            client_tunnel_refuse(c, h, END_BAD_REQUEST, "the Host field names another host than the CONNECT", NULL, true);
            return;
        }
    }
    bool inside;
    enum end end = client_tunnel_judge(c, agent, &v, &inside);
    if (end != END_OK) {
        client_tunnel_refuse(c, h, end, NULL, &v, true);
        return;
    }
    buf_consume(&c->in, h->bytes);
    client_tunnel_accept(c, inside, STR("HTTP/1.1 200 Connection established\r\n\r\n"));
}

/* GET http://host/path HTTP/1.1 on the proxy port. */
static void absolute_request(struct client *c, const struct h1_head *h)
{
    size_t host_at = (size_t)(h->host >= 0 ? h->host : 0);
    bool has_host = h->host >= 0;
    struct exchange *x = client_exchange(c, h);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    struct str t = x->req.target, rest = STR_NONE;
    struct err err;
    if (t.n > 7 && str_eq_nocase(str_sub(t, 0, 7), STR("http://"))) {
        x->scheme = SCHEME_HTTP;
        rest = str_from(t, 7);
    } else if (t.n > 8 && str_eq_nocase(str_sub(t, 0, 8), STR("https://"))) {
        x->scheme = SCHEME_HTTPS;
        rest = str_from(t, 8);
    }
    size_t end = 0;
    while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?' && rest.p[end] != '#')
        end++;
    if (!rest.p) {
        fault(x, END_BAD_REQUEST, "the target is neither CONNECT host:port nor http://host/path");
        x->req.target = STR_NONE;
    } else if (authority_parse(str_sub(rest, 0, end), x->scheme == SCHEME_HTTPS ? 443 : 80, &x->host, &x->port, &err)) {
        fault(x, END_BAD_REQUEST, err.text);
        x->req.target = STR_NONE;
        exchange_why(x, err.text);
    } else {
        x->bad_target = false;
        x->req.target = str_from(rest, end);
        if (!x->req.target.n)
            x->req.target = STR("/");
        else if (x->req.target.p[0] != '/')
            fault(x, END_BAD_REQUEST, "the target has no path");
        check_host_field(x, h, has_host ? x->req.fields[host_at].f.value : STR_NONE);
        if (x->scheme == SCHEME_HTTPS && !c->listener->local && c->listener->kind != LISTENER_TLS && !c->view->config->absolute_https)
            fault(x, END_BAD_REQUEST, "an https:// target carries clear text to this listener: use CONNECT, or set origin.absolute_https");
    }
    exchange_start(x);
}

static void proxy_request(struct client *c, const struct h1_head *h)
{
    bool connect = str_eq(h->method, STR("CONNECT"));
    if (!connect && h->target.n && h->target.p[0] == '/') {
        client_own_page(c, h);
        return;
    }
    const struct agent *agent = NULL;
    c->agent_name[0] = 0;
    enum identify_result who = client_h1_identify(c, h, &agent);
    /* Whoever it was: where it wanted to go is worth a line in the log. */
    bool named = connect && authority_parse(h->target, 0, &c->host, &c->port, NULL) == 0;
    if (who != IDENTIFY_OK) {
        client_tunnel_refuse(c, h, END_UNKNOWN_AGENT, who == IDENTIFY_LOGIN ? "log in" : NULL, NULL, named);
        return;
    }
    if (!client_count(c)) {
        client_tunnel_refuse(c, h, END_RATE_LIMITED, client_too_many(c), NULL, named);
        return;
    }
    if (connect)
        connect_request(c, h, agent);
    else
        absolute_request(c, h);
}

/* --- heads --- */

/* A head that cannot be read still is one exchange, refused, and the end of the connection. */
static void bad_head(struct client *c, enum h1_result r, const struct h1_fault *why)
{
    const struct agent *agent = NULL;
    struct h1_head none = { .minor = 1, .keep_alive = false, .host = -1, .method = STR_NONE };
    c->close_after = true;
    if (!c->tunnel && !c->agent_name[0]) {
        struct h1_head empty = none;
        client_h1_identify(c, &empty, &agent);
    }
    struct exchange *x = client_exchange(c, &none);
    if (!x) {
        client_close(c, "client_closed", END_UNSET, "out of memory");
        return;
    }
    x->req.method = x->req.target = STR_NONE;
    c->body_done = true;
    buf_reset(&c->in);
    if (c->tunnel) {
        x->host = c->host;
        x->port = c->port;
        x->scheme = c->scheme;
        x->bad_target = false;
    }
    if (r == H1_TOO_LARGE)
        exchange_refuse(x, END_HEAD_TOO_LARGE, why->why);
    else
        exchange_refuse(x, END_BAD_REQUEST, why->why);
}

void client_head_begins(struct client *c)
{
    if (c->head_begun)
        return;
    c->head_begun = true;
    timer_set(c->w->loop, &c->timer, c->view->limits->head_timeout);
}

bool client_h1_head(struct client *c)
{
    client_renew_view(c);
    const struct limits *lim = c->view->limits;
    struct h1_limits hl = { lim->head_bytes, lim->header_fields, lim->target_bytes };
    struct h1_head h;
    struct h1_fault why = { 0 };
    enum h1_result r = h1_request_parse(buf_str(&c->in), &hl, c->w->fields, &c->head_from, &h, &why);
    if (r == H1_MORE) {
        client_head_begins(c);
        return false;
    }
    c->head_from = 0;
    if (r != H1_DONE)
        bad_head(c, r, &why);
    else if (c->tunnel)
        tunnel_request(c, &h);
    else
        proxy_request(c, &h);
    return c->state == CLIENT_TUNNEL || c->state == CLIENT_PROXY || (c->state == CLIENT_HEAD && buf_size(&c->in));
}

/* --- bodies --- */

static bool body_trailers(struct client *c, struct str section)
{
    struct h1_limits hl = { c->view->limits->trailer_bytes, 64, 1024 };
    struct h1_fault why = { 0 };
    size_t n = 0, bytes;
    if (h1_trailers_parse(section, &hl, c->w->fields, &n, &bytes, &why) != H1_DONE)
        return false;
    struct field fields[64];
    for (size_t i = 0; i < n && i < 64; i++)
        fields[i] = c->w->fields[i].f;
    c->body_done = true;
    if (c->x)
        exchange_request_end(c->x, fields, n < 64 ? n : 64);
    return true;
}

static void bad_body(struct client *c, const char *why)
{
    c->close_after = true;
    c->body_done = true;
    buf_reset(&c->in);
    struct exchange *x = c->x;
    if (x)
        exchange_request_failed(x, END_BAD_REQUEST, why);
    else
        client_linger(c);
}

/* With an exchange: its body. Without (CLIENT_DRAIN): thrown away. */
void client_h1_body(struct client *c)
{
    struct exchange *x = c->x;
    while (!c->body_done && c->x == x && c->state != CLIENT_DEAD) {
        if (x && !exchange_takes_body(x))
            break;
        size_t used = 0;
        struct str data = STR_NONE;
        struct h1_fault why = { 0 };
        enum h1_body_event e = h1_body_next(&c->body, buf_str(&c->in), &used, &data, &why);
        if (e == H1_BODY_MORE) {
            buf_consume(&c->in, used);
            break;
        }
        if (e == H1_BODY_BAD) {
            bad_body(c, why.why);
            return;
        }
        if (e == H1_BODY_DATA) {
            if (x)
                exchange_request_body(x, data);
            else
                c->drained += data.n;
        } else if (e == H1_BODY_TRAILERS) {
            if (!body_trailers(c, data)) {
                bad_body(c, "a malformed trailer section");
                return;
            }
        } else {
            c->body_done = true;
            if (x)
                exchange_request_end(x, NULL, 0);
        }
        if (c->state == CLIENT_DEAD)
            return;
        buf_consume(&c->in, used);
        if (e == H1_BODY_TRAILERS) { /* the END that follows takes nothing more */
            size_t none;
            if (h1_body_next(&c->body, buf_str(&c->in), &none, &data, &why) == H1_BODY_END)
                buf_consume(&c->in, none);
        }
    }
    if (x && c->x == x)
        exchange_request_flush(x);
    if (c->state != CLIENT_DRAIN)
        return;
    if (c->body_done)
        client_next(c);
    else if (c->drained > c->view->limits->drain_body_bytes)
        client_linger(c);
}

/* --- answers --- */

static void put_status(struct client *c, unsigned status, struct str reason)
{
    buf_put(&c->out, STR("HTTP/1.1 "));
    buf_put_u64(&c->out, status);
    buf_putc(&c->out, ' ');
    buf_put(&c->out, reason);
    buf_put(&c->out, STR("\r\n"));
}

static void put_fields(struct client *c, const struct answer *a)
{
    for (size_t i = 0; i < a->nfields; i++)
        h1_put_field(&c->out, a->fields[i].name, a->fields[i].value);
}

static void answer_interim(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)x;
    put_status(c, a->status, a->reason);
    put_fields(c, a);
    buf_put(&c->out, STR("\r\n"));
}

static void answer_head(struct client *c, struct exchange *x, const struct answer *a)
{
    worker_lend(c->w, &c->out);
    put_status(c, a->status, a->reason);
    put_fields(c, a);
    c->answer_chunked = false;
    if (a->has_length) {
        buf_put(&c->out, STR("Content-Length: "));
        buf_put_u64(&c->out, a->length);
        buf_put(&c->out, STR("\r\n"));
    } else if (!a->no_body) {
        if (c->http10) {
            c->close_after = true; /* the end of the body is the end of the connection */
        } else {
            c->answer_chunked = true;
            buf_put(&c->out, STR("Transfer-Encoding: chunked\r\n"));
        }
    }
    /* An answer that overtakes its request: the rest of the request is not wanted, and cannot be told from the next one for sure. */
    if (a->close || (!x->request_sent && x->req.expect_continue && !x->continued))
        c->close_after = true;
    if (c->close_after || c->w->draining)
        buf_put(&c->out, STR("Connection: close\r\n"));
    else if (c->http10)
        buf_put(&c->out, STR("Connection: keep-alive\r\n"));
    buf_put(&c->out, STR("\r\n"));
}

static void answer_body(struct client *c, struct exchange *x, struct str data)
{
    (void)x;
    worker_lend(c->w, &c->out);
    if (c->answer_chunked)
        h1_put_chunk(&c->out, data);
    else
        buf_put(&c->out, data);
}

static void answer_end(struct client *c, struct exchange *x, const struct field *trailers, size_t n)
{
    (void)x;
    if (c->answer_chunked)
        h1_put_chunk_end(&c->out, trailers, n);
}

static void answer_cut(struct client *c, struct exchange *x)
{
    /* No last chunk, no full length, no close_notify: the client can see that the answer is not whole. */
    client_flush(c);
    (void)x;
    if (c->state == CLIENT_DEAD)
        return;
    if (!c->stream.ssl) { /* in clear text only a reset tells a cut from an end */
        struct linger now = { 1, 0 };
        setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    c->stream.broken = true;
    c->close_after = true;
}

static bool full(struct client *c)
{
    return stream_waiting(&c->stream) || buf_size(&c->out) >= OUT_HIGH;
}

static void more(struct client *c, struct exchange *x)
{
    if (c->x != x || c->state != CLIENT_EXCHANGE)
        return;
    if (!c->body_done && !c->busy) /* its end may be all that is left to find */
        client_process(c);
    else if (!c->body_done)
        client_h1_body(c);
    if (c->state == CLIENT_EXCHANGE && !c->eof)
        client_want_bytes(c);
}

static void done(struct client *c, struct exchange *x)
{
    if (c->x != x)
        return;
    c->x = NULL;
    if (c->state == CLIENT_DEAD)
        return;
    if (c->stream.broken) {
        client_close(c, NULL, END_UNSET, NULL);
        return;
    }
    if (c->body_done || c->close_after) {
        client_next(c);
        return;
    }
    /* The rest of the body is read and thrown away, as far as that is little; a client that has no more can go on. */
    c->state = CLIENT_DRAIN;
    timer_set(c->w->loop, &c->timer, 2000);
    if (buf_size(&c->in))
        loop_defer(c->w->loop, &c->resume);
    client_want_bytes(c);
}

const struct client_ops client_h1_ops = { answer_interim, answer_head, answer_body, answer_end, client_refuse, answer_cut,
                                          client_flush,   full,        more,        done };
