/* SPDX-License-Identifier: Apache-2.0
 *
 * What the proxy says itself on HTTP/1.1: refusals, shaped so that the client at hand shows the reason to its user, and the pages of
 * the proxy port. Nothing of the origin's words is in them. */
#include "base/json.h"
#include "proxy/client.h"
#include "proxy/exchange_steps.h"

#include <stdio.h>

/* --- the shape of a refusal --- */

enum shape { SHAPE_JSON, SHAPE_TEXT, SHAPE_NPM, SHAPE_XML };
static const struct {
    enum shape shape;
    struct str agent; /* what its User-Agent begins with */
} shapes[] = {
    /* git prints only text/plain ("remote: …"), Go tools and kubectl print the body as it is. */
    { SHAPE_TEXT, STR("git/") },
    { SHAPE_TEXT, STR("git-lfs/") },
    { SHAPE_TEXT, STR("Go-http-client/") },
    { SHAPE_TEXT, STR("go/") },
    { SHAPE_TEXT, STR("kubectl") },
    /* These want "error" as a string. */
    { SHAPE_NPM, STR("npm/") },
    { SHAPE_NPM, STR("pnpm/") },
    { SHAPE_NPM, STR("yarn/") },
    /* AWS: what S3, STS and others of the XML protocols say an error is; without it "Forbidden" is all that is shown. */
    { SHAPE_XML, STR("aws-") },
    { SHAPE_XML, STR("Boto3/") },
    { SHAPE_XML, STR("Botocore/") },
};

static struct str field_of(const struct exchange *x, int id)
{
    for (size_t i = 0; i < x->req.nfields; i++)
        if ((int)x->req.fields[i].id == id)
            return x->req.fields[i].f.value;
    return STR_NONE;
}

static enum shape shape_for(const struct exchange *x)
{
    struct str ua = field_of(x, H1_USER_AGENT);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (str_starts(ua, shapes[i].agent))
            /* The JSON protocols of AWS read "message" of the common shape. */
            return shapes[i].shape == SHAPE_XML && str_find(field_of(x, H1_CONTENT_TYPE), STR("json")) >= 0 ? SHAPE_JSON : shapes[i].shape;
    return SHAPE_JSON;
}

static struct str shape_type(enum shape shape)
{
    return shape == SHAPE_TEXT ? STR("text/plain; charset=utf-8") : shape == SHAPE_XML ? STR("application/xml") : STR("application/json");
}

/* RFC 9209 2.3: the error type nearest to each of our codes. */
static const char *proxy_error(enum end end)
{
    switch ((unsigned)end) {
    case END_ORIGIN_DNS:
        return "dns_error";
    case END_ORIGIN_CONNECT:
        return "connection_refused";
    case END_ORIGIN_TLS:
        return "tls_certificate_error";
    case END_ORIGIN_PROTOCOL:
    case END_ORIGIN_CLOSED:
        return "http_protocol_error";
    case END_ORIGIN_TIMEOUT:
    case END_TIMEOUT:
        return "http_response_timeout";
    case END_ADDRESS_DENIED:
        return "destination_ip_prohibited";
    case END_BAD_REQUEST:
    case END_MISDIRECTED:
    case END_TOO_LARGE:
    case END_HEAD_TOO_LARGE:
        return "http_request_error";
    case END_CREDENTIAL_UNAVAILABLE:
    case END_CREDENTIAL_EXPIRED:
    case END_AUDIT_UNAVAILABLE:
    case END_DRAINING:
    case END_UNSET:
        return "proxy_internal_error";
    default:
        return "http_request_denied";
    }
}

static uint32_t retry_after(const struct exchange *x, enum end end)
{
    if (x->retry_after_s)
        return x->retry_after_s;
    switch ((unsigned)end) {
    case END_RATE_LIMITED:
    case END_DRAINING:
        return 1;
    case END_CREDENTIAL_UNAVAILABLE:
    case END_CREDENTIAL_EXPIRED:
    case END_AUDIT_UNAVAILABLE:
        return 5;
    case END_APPROVAL_REQUIRED:
        return 60;
    default:
        return 0;
    }
}

/* Why, in the refusal's own words. Claude Code takes whatever names x-api-key for "Invalid API key" and shows that instead: to it,
 * that header has no name. */
static struct str why_for(const struct exchange *x)
{
    struct str why = str_c(x->why);
    if (str_starts(field_of(x, H1_USER_AGENT), STR("claude-")) && str_find(why, STR("x-api-key")) >= 0)
        return STR("in a header");
    return why;
}

/* "no rule lets this agent reach this host (evil.test)": the sentence, then what it is about. */
static void put_message(const struct exchange *x, enum end end, struct buf *out)
{
    buf_put(out, str_c(end_sentence(end)));
    bool target = !x->bad_target;
    struct str why = why_for(x);
    if (target || why.n) {
        buf_put(out, STR(" ("));
        if (target) {
            buf_put(out, str_sub(host_str(&x->host), 0, 100));
            if (x->port != 443)
                buf_putf(out, ":%u", (unsigned)x->port);
        }
        if (target && why.n)
            buf_put(out, STR(": "));
        buf_put(out, why);
        buf_putc(out, ')');
    }
}

static void put_hint(const struct exchange *x, enum end end, struct buf *out)
{
    buf_put(out, str_c(end_hint(end)));
    if (x->verdict.near && (end == END_PORT_DENIED || end == END_METHOD_DENIED || end == END_PATH_DENIED))
        buf_putf(out, "; the nearest rule is %.*s", STR_ARG(x->verdict.near->name));
}

static void put_xml_str(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c >= 0x7f || strchr("<>&\"'", c))
            buf_putf(out, c < 0x20 ? "?" : "&#%u;", (unsigned)c);
        else
            buf_putc(out, (char)c);
    }
}

static void put_xml(const struct exchange *x, enum end end, struct str message, struct str hint, struct buf *out)
{
    buf_putf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>", end_code(end));
    put_xml_str(out, message);
    buf_put(out, STR(". "));
    put_xml_str(out, hint);
    buf_putf(out, "</Message></Error><RequestId>%s</RequestId></ErrorResponse>\n", x->request_id);
}

static void put_npm(const struct exchange *x, enum end end, struct str message, struct str hint, struct buf *out)
{
    struct buf text;
    buf_init(&text, 4096);
    buf_putf(&text, "%s: %.*s. %.*s (request %s)", end_code(end), STR_ARG(message), STR_ARG(hint), x->request_id);
    buf_put(out, STR("{\"error\":"));
    json_put_str(out, buf_str(&text));
    buf_putf(out, ",\"code\":\"%s\",\"request_id\":\"%s\",\"message\":", end_code(end), x->request_id);
    json_put_str(out, buf_str(&text));
    buf_put(out, STR("}\n"));
    buf_done(&text);
}

static void put_json(const struct exchange *x, enum end end, struct str message, struct str hint, struct buf *out)
{
    buf_putf(out, "{\"error\":{\"code\":\"%s\",\"message\":", end_code(end));
    json_put_str(out, message);
    buf_put(out, STR(",\"hint\":"));
    json_put_str(out, hint);
    buf_putf(out, ",\"request_id\":\"%s\",\"agent\":", x->request_id);
    json_put_str_or_null(out, x->agent_name[0] ? str_c(x->agent_name) : STR_NONE);
    buf_put(out, STR(",\"host\":"));
    json_put_str_or_null(out, x->bad_target ? STR_NONE : host_str(&x->host));
    buf_put(out, STR(",\"rule\":"));
    json_put_str_or_null(out, x->verdict.rule ? x->verdict.rule->name : STR_NONE);
    buf_put(out, STR("},\"message\":"));
    json_put_str(out, message);
    buf_put(out, STR("}\n"));
}

static void put_body(const struct exchange *x, enum end end, enum shape shape, struct str message, struct buf *out)
{
    struct buf text;
    buf_init(&text, 1024);
    put_hint(x, end, &text);
    struct str hint = buf_str(&text);
    switch (shape) {
    case SHAPE_TEXT:
        buf_putf(out, "outgate: %s: %.*s\n%.*s\nrequest %s\n", end_code(end), STR_ARG(message), STR_ARG(hint), x->request_id);
        break;
    case SHAPE_NPM:
        put_npm(x, end, message, hint, out);
        break;
    case SHAPE_XML:
        put_xml(x, end, message, hint, out);
        break;
    case SHAPE_JSON:
        put_json(x, end, message, hint, out);
        break;
    }
    buf_done(&text);
}

/* A whole answer of ours. extra: header lines with their CRLF. */
static void put_answer(struct client *c, unsigned status, struct str reason, struct str type, struct str extra, struct str body,
                       bool head_only)
{
    buf_putf(&c->out, "HTTP/1.1 %u ", status);
    for (size_t i = 0; i < reason.n && i < 120; i++) /* ASCII, printable */
        buf_putc(&c->out, reason.p[i] >= 0x20 && reason.p[i] < 0x7f ? reason.p[i] : '?');
    buf_put(&c->out, STR("\r\nContent-Type: "));
    buf_put(&c->out, type);
    buf_putf(&c->out, "\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n", body.n);
    buf_put(&c->out, extra);
    if (c->close_after || c->w->draining)
        buf_put(&c->out, STR("Connection: close\r\n"));
    else if (c->http10)
        buf_put(&c->out, STR("Connection: keep-alive\r\n"));
    buf_put(&c->out, STR("\r\n"));
    if (!head_only)
        buf_put(&c->out, body);
}

void client_refuse(struct client *c, struct exchange *x, enum end end)
{
    if (c->socks) {
        client_socks_refuse(c);
        return;
    }
    struct buf message, body, extra;
    buf_init(&message, 1024);
    buf_init(&body, 8192);
    buf_init(&extra, 2048);
    bool on_proxy = !c->tunnel;
    /* Where a login cannot help, asking for one would only mislead. */
    bool login = end == END_UNKNOWN_AGENT && on_proxy && !strcmp(x->why, "log in");
    unsigned status = end == END_UNKNOWN_AGENT && !login ? 403 : end_status(end);
    if (login)
        x->why[0] = 0;
    x->status = status;
    put_message(x, end, &message);
    enum shape shape = shape_for(x);
    put_body(x, end, shape, buf_str(&message), &body);
    buf_putf(&extra, "Proxy-Status: outgate; error=%s; details=\"%s\"\r\n", proxy_error(end), end_code(end));
    if (login)
        buf_put(&extra, STR("Proxy-Authenticate: Basic realm=\"outgate\"\r\n"));
    uint32_t seconds = retry_after(x, end);
    if (seconds)
        buf_putf(&extra, "Retry-After: %u\r\n", (unsigned)seconds);
    /* What follows on the connection must be certain: a body that the client may or may not send after this is not. */
    if ((x->req.expect_continue && !x->continued && !c->body_done) || end == END_BAD_REQUEST || end == END_HEAD_TOO_LARGE ||
        end == END_MISDIRECTED || end == END_DRAINING)
        c->close_after = true;
    put_answer(c, status, buf_str(&message), shape_type(shape), buf_str(&extra), buf_str(&body), str_eq(x->req.method, STR("HEAD")));
    buf_done(&message);
    buf_done(&body);
    buf_done(&extra);
}

/* --- the pages of the proxy port --- */

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
    struct str type = STR("text/plain; charset=utf-8"), reason = STR("OK"), extra = STR("");
    const struct agent *agent;
    client_h1_identify(c, h, &agent);
    c->http10 = h->minor == 0;
    c->close_after |= !h->keep_alive || h->body != H1_BODY_NONE;
    if (!get && !head) {
        status = 405;
        reason = STR("Method Not Allowed");
        extra = STR("Allow: GET, HEAD\r\n");
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
    put_answer(c, status, reason, type, extra, buf_str(&body), head);
    buf_done(&body);
    client_next(c);
}
