/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of the proxy port itself: /healthz, /ca.pem, /proxy.pac. */
#include "proxy/client.h"

static void put_pac(const struct client *c, const struct h1_head *h, struct buf *out)
{
    /* The address that the client itself used for us is the one that works for it, unless the agent's is written down. */
    struct str at = h->host >= 0 ? h->fields[h->host].f.value : STR_NONE;
    bool tls = c->listener->kind == LISTENER_TLS;
    uint16_t port = 0, dflt = tls ? 443 : 80;
    struct host host;
    for (size_t i = 0; i < c->view->config->nagents; i++) {
        const struct agent *a = &c->view->config->agents[i];
        if (!a->advertise_proxy.n || !str_eq(a->name, str_c(c->agent_name)))
            continue;
        at = a->advertise_proxy;
        tls = str_starts(at, STR("https://"));
        if (tls || str_starts(at, STR("http://")))
            at = str_from(at, tls ? 8 : 7);
        while (str_ends(at, STR("/")))
            at.n--;
        dflt = 3128;
    }
    bool known = at.p && authority_parse(at, dflt, &host, &port, NULL) == 0;
    buf_put(out, STR("function FindProxyForURL(url, host) {\n  if (host == \"localhost\" || host == \"127.0.0.1\" || host == \"::1\") return \"DIRECT\";\n"
                     "  return \""));
    buf_put(out, tls ? STR("HTTPS ") : STR("PROXY "));
    if (known)
        authority_put(out, &host, port, 0);
    else
        buf_put(out, STR("127.0.0.1:3128"));
    buf_put(out, STR("\";\n}\n"));
}

void client_own_page(struct client *c, const struct h1_head *h)
{
    bool get = str_eq(h->method, STR("GET")), head = str_eq(h->method, STR("HEAD"));
    ptrdiff_t q = str_find_char(h->target, '?');
    struct str path = q < 0 ? h->target : str_sub(h->target, 0, (size_t)q);
    struct buf body;
    buf_init(&body, 64 * 1024);
    unsigned status = 200;
    struct str type = STR("text/plain; charset=utf-8"), reason = STR("OK");
    const struct agent *agent;
    client_h1_identify(c, h, &agent);
    c->http10 = h->minor == 0;
    c->close_after |= !h->keep_alive || h->body != H1_BODY_NONE;
    if (!get && !head) {
        status = 405;
        reason = STR("Method Not Allowed");
        buf_put(&body, STR("GET or HEAD\n"));
    } else if (str_eq(path, STR("/healthz"))) {
        bool ok = !c->w->draining && sink_ready(c->w->sink, loop_now_ms(c->w->loop), c->view->limits->event_lag);
        status = ok ? 200 : 503;
        reason = ok ? STR("OK") : STR("Service Unavailable");
        buf_put(&body, ok ? STR("ok\n") : c->w->draining ? STR("draining\n") : STR("audit_unavailable\n"));
    } else if (str_eq(path, STR("/ca.pem"))) {
        type = STR("application/x-pem-file");
        buf_put(&body, c->view->own_ca);
    } else if (str_eq(path, STR("/proxy.pac"))) {
        type = STR("application/x-ns-proxy-autoconfig");
        put_pac(c, h, &body);
    } else {
        status = 404;
        reason = STR("Not Found");
        buf_put(&body, STR("This is Outgate, a forward proxy: use it with HTTPS_PROXY and HTTP_PROXY. It serves /healthz, /ca.pem and "
                           "/proxy.pac itself.\n"));
    }
    buf_consume(&c->in, h->bytes);
    if (h->body != H1_BODY_NONE)
        buf_reset(&c->in);
    c->made_exchange = true; /* a question to us: no conn event at the end of it */
    struct field fields[] = { { STR("Content-Type"), type }, { STR("Cache-Control"), STR("no-store") }, { STR("Allow"), STR("GET, HEAD") } };
    client_h1_answer(c, status, reason, fields, status == 405 ? 3 : 2, buf_str(&body), head);
    buf_done(&body);
    client_next(c);
}
