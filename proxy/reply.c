/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/reply.h"

#include "base/json.h"
#include "proxy/exchange.h"
#include "proxy/grpc_frames.h"

#include <stdio.h>

enum { REASON_MAX = 120, GRPC_PERMISSION_DENIED = 7, GRPC_UNAVAILABLE = 14 };

/* --- the shape of a refusal --- */

enum shape { SHAPE_JSON, SHAPE_TEXT, SHAPE_NPM, SHAPE_XML, SHAPE_GRPC };
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
    if (str_eq(str_c(x->req.version), STR("2")) && !x->req.websocket && grpc_type(field_of(x, H1_CONTENT_TYPE)))
        return SHAPE_GRPC;
    struct str ua = field_of(x, H1_USER_AGENT);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (str_starts(ua, shapes[i].agent))
            /* The JSON protocols of AWS read "message" of the common shape. */
            return shapes[i].shape == SHAPE_XML && str_find(field_of(x, H1_CONTENT_TYPE), STR("json")) >= 0 ? SHAPE_JSON : shapes[i].shape;
    return SHAPE_JSON;
}

static struct str shape_type(enum shape shape)
{
    if (shape == SHAPE_GRPC)
        return STR("application/grpc");
    return shape == SHAPE_TEXT ? STR("text/plain; charset=utf-8") : shape == SHAPE_XML ? STR("application/xml") : STR("application/json");
}

/* RFC 9209 2.3: the error type nearest to each of our codes. */
static const char *proxy_error(enum end end)
{
    switch ((unsigned)end) {
    case END_ORIGIN_DNS:
    case END_ORIGIN_DNS_SERVERS:
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
    case END_ADDRESS_UNKNOWN:
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
    case SHAPE_GRPC: /* all of it is in the fields */
        break;
    }
    buf_done(&text);
}

/* --- the whole --- */

/* A field whose value is what was put into r->text from `at` on; it gets its address when the text is whole. */
static void add(struct reply *r, struct str name, size_t at)
{
    r->fields[r->nfields++] = (struct field) { name, str_of(NULL, buf_size(&r->text) - at) };
}

/* Percent-encoded, as gRPC over HTTP/2 says of Status-Message. */
static void put_percent(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c > 0x7e || c == '%')
            buf_putf(out, "%%%02X", (unsigned)c);
        else
            buf_putc(out, (char)c);
    }
}

static void add_grpc(const struct exchange *x, enum end end, struct str message, struct reply *r)
{
    size_t at = buf_size(&r->text);
    buf_putf(&r->text, "%d", end_status(end) >= 500 ? GRPC_UNAVAILABLE : GRPC_PERMISSION_DENIED);
    add(r, STR("grpc-status"), at);
    struct buf text;
    buf_init(&text, 4096);
    buf_putf(&text, "outgate: %s: %.*s. ", end_code(end), STR_ARG(message));
    put_hint(x, end, &text);
    buf_putf(&text, " (request %s)", x->request_id);
    at = buf_size(&r->text);
    put_percent(&r->text, buf_str(&text));
    add(r, STR("grpc-message"), at);
    buf_done(&text);
}

void reply_make(struct exchange *x, enum end end, bool on_proxy, struct reply *ret)
{
    struct buf message;
    buf_init(&message, 1024);
    *ret = (struct reply) { 0 };
    buf_init(&ret->reason, 256);
    buf_init(&ret->body, 8192);
    buf_init(&ret->text, 8192);
    /* Where a login cannot help, asking for one would only mislead. */
    bool login = end == END_UNKNOWN_AGENT && on_proxy && !strcmp(x->why, "log in");
    if (login)
        x->why[0] = 0;
    put_message(x, end, &message);
    struct str said = buf_str(&message);
    enum shape shape = shape_for(x);
    ret->status = shape == SHAPE_GRPC ? 200 : end == END_UNKNOWN_AGENT && !login ? 403 : end_status(end);
    x->status = ret->status;
    for (size_t i = 0; i < said.n && i < REASON_MAX; i++)
        buf_putc(&ret->reason, said.p[i] >= 0x20 && said.p[i] < 0x7f ? said.p[i] : '?');
    size_t at = 0;
    buf_put(&ret->text, shape_type(shape));
    add(ret, STR("Content-Type"), at);
    at = buf_size(&ret->text);
    buf_put(&ret->text, STR("no-store"));
    add(ret, STR("Cache-Control"), at);
    at = buf_size(&ret->text);
    buf_putf(&ret->text, "outgate; error=%s; details=\"%s\"", proxy_error(end), end_code(end));
    add(ret, STR("Proxy-Status"), at);
    if (login) {
        at = buf_size(&ret->text);
        buf_put(&ret->text, STR("Basic realm=\"outgate\""));
        add(ret, STR("Proxy-Authenticate"), at);
    }
    uint32_t seconds = retry_after(x, end);
    if (seconds && shape != SHAPE_GRPC) {
        at = buf_size(&ret->text);
        buf_putf(&ret->text, "%u", (unsigned)seconds);
        add(ret, STR("Retry-After"), at);
    }
    if (shape == SHAPE_GRPC)
        add_grpc(x, end, said, ret);
    else
        put_body(x, end, shape, said, &ret->body);
    const char *text = buf_str(&ret->text).p;
    for (size_t i = 0; i < ret->nfields; text += ret->fields[i++].value.n)
        ret->fields[i].value.p = text;
    buf_done(&message);
}

void reply_done(struct reply *r)
{
    buf_done(&r->reason);
    buf_done(&r->body);
    buf_done(&r->text);
}
