/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/rewrite.h"

#include "proxy/exchange_ws.h"

#include "proxy/h1_scan.h"

/* --- requests --- */

static bool narrowed(const struct exchange *x)
{
    return x->plan.n || x->live;
}

/* Would another method (path) than the one that was judged perhaps have been refused? */
static bool limits_methods(const struct exchange *x)
{
    bool by = x->verdict.by_method;
    for (size_t i = 0; i < x->plan.nwanted; i++)
        by |= x->plan.wanted[i]->methods.given;
    return by;
}
static bool limits_paths(const struct exchange *x)
{
    bool by = x->verdict.by_path;
    for (size_t i = 0; i < x->plan.nwanted; i++)
        by |= x->plan.wanted[i]->npaths > 0;
    return by;
}

const char *rewrite_request_check(const struct exchange *x, enum end *ret_end)
{
    const struct request *r = &x->req;
    for (size_t i = 0; i < r->nfields; i++) {
        switch ((unsigned)r->fields[i].id) {
        case H1_METHOD_OVERRIDE:
            if (!limits_methods(x))
                break;
            *ret_end = END_METHOD_DENIED;
            return "a method override header, where a rule or credential limits methods";
        case H1_PATH_OVERRIDE:
            if (!limits_paths(x))
                break;
            *ret_end = END_PATH_DENIED;
            return "a header that names another path, where a rule or credential limits paths";
        case H1_UPGRADE:
            /* h2c is taken off (RFC 9113 obsoletes it); any other protocol would run past every check. */
            if (!r->upgrade || r->websocket || str_eq_nocase(r->fields[i].f.value, STR("h2c")))
                break;
            *ret_end = END_UPGRADE_DENIED;
            return "an upgrade to another protocol";
        default:
            break;
        }
    }
    return NULL;
}

/* Is the field nominated by a Connection field of the request? */
static bool nominated(const struct h1_field *fields, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++) {
        if (fields[i].id != H1_CONNECTION)
            continue;
        struct str list = fields[i].f.value, token;
        while (str_split(&list, ',', &token))
            if (str_eq_nocase(str_trim(token), name))
                return true;
    }
    return false;
}

static bool has_connection(const struct h1_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].id == H1_CONNECTION)
            return true;
    return false;
}

static bool request_passes(const struct exchange *x, size_t i, bool connection)
{
    const struct h1_field *f = &x->req.fields[i];
    if (h1_name_flags(f->id) & (H1_N_HOP | H1_N_FRAMING) || f->id == H1_PROXY_OTHER)
        return false;
    if ((f->id == H1_RANGE || f->id == H1_IF_RANGE) && narrowed(x))
        return false;
    if (f->id == H1_EXPECT && !x->req.expect_continue) /* without a body, or in HTTP/1.0, it means nothing (RFC 9110 10.1.1) */
        return false;
    return !connection || !nominated(x->req.fields, x->req.nfields, f->f.name);
}

static void put_host(const struct exchange *x, struct buf *out, struct str name)
{
    buf_put(out, name);
    buf_put(out, STR(": "));
    authority_put(out, &x->host, x->port, x->scheme == SCHEME_HTTPS ? 443 : 80);
    buf_put(out, STR("\r\n"));
}

static void put_framing(const struct exchange *x, struct buf *out, struct str name)
{
    if (x->req.body == H1_BODY_LENGTH) {
        buf_put(out, name.n ? name : STR("Content-Length"));
        buf_put(out, STR(": "));
        buf_put_u64(out, x->req.length);
        buf_put(out, STR("\r\n"));
    } else if (x->req.body != H1_BODY_NONE) {
        h1_put_field(out, name.n ? name : STR("Transfer-Encoding"), STR("chunked"));
    }
}

/* What becomes of a field that is neither the host nor framing. */
enum fate { FATE_DROP = 0, FATE_PASS, FATE_IDENTITY, FATE_SWAP };

static enum fate field_fate(const struct exchange *x, size_t i, bool connection)
{
    if (!request_passes(x, i, connection))
        return FATE_DROP;
    if ((x->req.fields[i].id == H1_ACCEPT_ENCODING || x->req.fields[i].id == H1_GRPC_ACCEPT_ENCODING) && x->covered)
        return FATE_IDENTITY;
    return swap_touches(&x->plan, i) ? FATE_SWAP : FATE_PASS;
}

/* Of a WebSocket's handshake: what belongs to one connection is written anew, extensions that we cannot read are left out. True: that was
 * it. */
static bool put_handshake_field(const struct h1_field *f, struct buf *out)
{
    if (f->id == H1_UPGRADE || (f->id == H1_CONNECTION && h1_list_has(f->f.value, STR("upgrade")))) {
        h1_put_field(out, f->f.name, f->id == H1_UPGRADE ? STR("websocket") : STR("Upgrade"));
        return true;
    }
    if (!ws_is_extensions(f->f.name))
        return false;
    struct buf list;
    buf_init(&list, 512 * 1024);
    ws_extensions_put(f->f.value, &list);
    if (buf_size(&list))
        h1_put_field(out, f->f.name, buf_str(&list));
    out->failed |= list.failed;
    buf_done(&list);
    return true;
}

/* One field; END_OK or why it cannot be written. */
static enum end put_request_field(struct exchange *x, size_t i, bool connection, struct buf *out)
{
    const struct h1_field *f = &x->req.fields[i];
    if (x->req.websocket && (f->id == H1_UPGRADE || f->id == H1_CONNECTION || f->id == H1_OTHER) &&
        put_handshake_field(f, out))
        return END_OK;
    enum fate fate = field_fate(x, i, connection);
    if (fate == FATE_DROP)
        return END_OK;
    if (fate != FATE_SWAP) {
        h1_put_field(out, f->f.name, fate == FATE_IDENTITY ? STR("identity") : f->f.value);
        return END_OK;
    }
    buf_put(out, f->f.name);
    buf_put(out, STR(": "));
    enum end end = swap_put_value(&x->plan, i, f->f.value, x->leases, out);
    buf_put(out, STR("\r\n"));
    return end;
}

enum end rewrite_request_h1(struct exchange *x, struct buf *out)
{
    const struct request *r = &x->req;
    bool host = false, framing = r->body == H1_BODY_NONE, encoding = false;
    bool connection = has_connection(r->fields, r->nfields);
    buf_put(out, r->method);
    buf_putc(out, ' ');
    buf_put(out, r->target);
    buf_put(out, STR(" HTTP/1.1\r\n"));
    for (size_t i = 0; i < r->nfields; i++)
        host |= r->fields[i].id == H1_HOST;
    if (!host) /* HTTP/1.0 */
        put_host(x, out, STR("Host"));
    for (size_t i = 0; i < r->nfields; i++) {
        enum h1_name id = r->fields[i].id;
        encoding |= id == H1_ACCEPT_ENCODING;
        if (id == H1_HOST) {
            put_host(x, out, r->fields[i].f.name);
        } else if (id == H1_CONTENT_LENGTH || id == H1_TRANSFER_ENCODING) {
            if (!framing)
                put_framing(x, out, r->fields[i].f.name);
            else if (id == H1_CONTENT_LENGTH && r->body == H1_BODY_NONE)
                h1_put_field(out, r->fields[i].f.name, STR("0"));
            framing = true;
        } else {
            enum end end = put_request_field(x, i, connection, out);
            if (end != END_OK)
                return end;
        }
    }
    if (!framing)
        put_framing(x, out, STR_NONE);
    if (x->covered && !encoding)
        buf_put(out, STR("Accept-Encoding: identity\r\n"));
    if (x->ws)
        ws_request_put(r->websocket, exchange_ws_handshake(x), out);
    buf_put(out, STR("\r\n"));
    return out->failed ? END_HEAD_TOO_LARGE : END_OK;
}

/* --- requests in HTTP/2 --- */

/* Fields as they are written; their bytes lie one after the other in out, which moves while it grows. */
struct h2_out {
    struct buf *out;
    struct rewrite_field *fields;
    size_t n;
    bool bad; /* a name or value that cannot stand in a head */
};

static void h2_name(struct h2_out *h, struct str name)
{
    h->fields[h->n] = (struct rewrite_field) { .f.name.n = name.n };
    for (size_t i = 0; i < name.n; i++)
        h->bad |= !ascii_tchar(name.p[i]);
    buf_put_lower(h->out, name);
    h->bad |= !name.n;
}

/* What was put since the name is its value. */
static void h2_value_end(struct h2_out *h, size_t from, bool secret)
{
    struct str value = str_from(buf_str(h->out), from);
    h->bad |= !h1_value_ok(value);
    h->fields[h->n].f.value.n = value.n;
    h->fields[h->n++].secret = secret;
}

static void h2_put(struct h2_out *h, struct str name, struct str value, bool secret)
{
    h2_name(h, name);
    size_t from = buf_size(h->out);
    buf_put(h->out, value);
    h2_value_end(h, from, secret);
}

static void h2_pseudo(struct h2_out *h, struct str name, struct str value)
{
    h->fields[h->n] = (struct rewrite_field) { .f.name.n = name.n };
    buf_put(h->out, name);
    size_t from = buf_size(h->out);
    buf_put(h->out, value);
    h2_value_end(h, from, false);
}

static void h2_put_u64(struct h2_out *h, struct str name, uint64_t value)
{
    h2_name(h, name);
    size_t from = buf_size(h->out);
    buf_put_u64(h->out, value);
    h2_value_end(h, from, false);
}

static void h2_pseudo_fields(const struct exchange *x, struct h2_out *h)
{
    struct buf authority;
    buf_init(&authority, 1024);
    authority_put(&authority, &x->host, x->port, x->scheme == SCHEME_HTTPS ? 443 : 80);
    h2_pseudo(h, STR(":method"), x->req.method);
    h2_pseudo(h, STR(":scheme"), x->scheme == SCHEME_HTTPS ? STR("https") : STR("http"));
    h2_pseudo(h, STR(":authority"), buf_str(&authority));
    h2_pseudo(h, STR(":path"), x->req.target);
    h->bad |= authority.failed;
    buf_done(&authority);
}

/* Credentials of the agent's own are no less secret for not being ours. */
static bool is_secret(enum h1_name id)
{
    return h1_name_flags(id) & H1_N_AUTH || id == H1_PROXY_OTHER;
}

static enum end h2_field(struct exchange *x, size_t i, bool connection, struct h2_out *h)
{
    const struct h1_field *f = &x->req.fields[i];
    enum fate fate = field_fate(x, i, connection);
    if (fate == FATE_DROP)
        return END_OK;
    if (fate != FATE_SWAP) {
        h2_put(h, f->f.name, fate == FATE_IDENTITY ? STR("identity") : f->f.value, is_secret(f->id));
        return END_OK;
    }
    h2_name(h, f->f.name);
    size_t from = buf_size(h->out);
    enum end end = swap_put_value(&x->plan, i, f->f.value, x->leases, h->out);
    h2_value_end(h, from, true);
    return end;
}

/* Each has its place where the request had it, as in HTTP/1.1. */
static enum end h2_fields(struct exchange *x, struct h2_out *h)
{
    const struct request *r = &x->req;
    bool length = false, te = false, encoding = false, connection = has_connection(r->fields, r->nfields);
    for (size_t i = 0; i < r->nfields; i++) {
        enum h1_name id = r->fields[i].id;
        encoding |= id == H1_ACCEPT_ENCODING;
        if (id == H1_CONTENT_LENGTH) {
            if (!length && r->body != H1_BODY_CHUNKED)
                h2_put_u64(h, r->fields[i].f.name, r->body == H1_BODY_LENGTH ? r->length : 0);
            length = true;
        } else if (id == H1_TE) {
            if (!te && h1_list_has(r->fields[i].f.value, STR("trailers")))
                h2_put(h, STR("te"), STR("trailers"), false);
            te |= h1_list_has(r->fields[i].f.value, STR("trailers"));
        } else {
            enum end end = h2_field(x, i, connection, h);
            if (end != END_OK)
                return end;
        }
    }
    if (!length && r->body == H1_BODY_LENGTH)
        h2_put_u64(h, STR("content-length"), r->length);
    if (x->covered && !encoding)
        h2_put(h, STR("accept-encoding"), STR("identity"), false);
    return END_OK;
}

enum end rewrite_request_h2(struct exchange *x, struct rewrite_field *fields, size_t *ret_n, struct buf *out)
{
    struct h2_out h = { .out = out, .fields = fields };
    h2_pseudo_fields(x, &h);
    enum end end = h2_fields(x, &h);
    if (end != END_OK)
        return end;
    if (out->failed || h.bad)
        return END_HEAD_TOO_LARGE;
    const char *p = buf_str(out).p;
    for (size_t i = 0; i < h.n; i++) {
        fields[i].f.name.p = p;
        fields[i].f.value.p = p + fields[i].f.name.n;
        p += fields[i].f.name.n + fields[i].f.value.n;
    }
    *ret_n = h.n;
    return END_OK;
}

/* --- answers --- */

/* Replaced values lie in scratch, which moves while it grows: where each of them is becomes an address only at the end. */
static struct { /* one thread, used within one call */
    size_t field, at, n;
} moved[H1_FIELDS_MAX];

bool rewrite_name_is_value(struct exchange *x, struct str name, struct buf *scratch)
{
    return scrub_text(x->scrub.set, name, scratch, &x->scrub.hits);
}

void rewrite_scrub_value(struct exchange *x, struct field *f, size_t index, size_t *replaced, struct buf *scratch)
{
    size_t at = buf_size(scratch);
    if (!scrub_text(x->scrub.set, f->value, scratch, &x->scrub.hits))
        return;
    moved[*replaced].field = index;
    moved[*replaced].at = at;
    moved[*replaced].n = buf_size(scratch) - at;
    ++*replaced;
}

void rewrite_scrub_done(struct field *fields, size_t replaced, const struct buf *scratch)
{
    for (size_t i = 0; i < replaced; i++)
        fields[moved[i].field].value = str_sub(buf_str(scratch), moved[i].at, moved[i].n);
}

static bool answer_passes(const struct h1_head *h, const struct h1_field *f, bool connection)
{
    if (h1_name_flags(f->id) & (H1_N_HOP | H1_N_FRAMING) || f->id == H1_PROXY_OTHER)
        return false;
    switch ((unsigned)f->id) {
    case H1_ALT_SVC: /* they would lead clients around us */
    case H1_NEL:
    case H1_REPORT_TO:
    case H1_REPORTING_ENDPOINTS:
        return false;
    default:
        return !connection || !nominated(h->fields, h->nfields, f->f.name);
    }
}

size_t rewrite_answer_fields(struct exchange *x, const struct h1_head *h, struct field *out, size_t max, struct buf *scratch)
{
    bool connection = has_connection(h->fields, h->nfields);
    size_t n = 0, replaced = 0;
    for (size_t i = 0; i < h->nfields && n < max; i++) {
        if (!answer_passes(h, &h->fields[i], connection))
            continue;
        out[n] = h->fields[i].f;
        if (x->scrubbing) {
            if (rewrite_name_is_value(x, out[n].name, scratch))
                continue;
            rewrite_scrub_value(x, &out[n], n, &replaced, scratch);
        }
        n++;
    }
    rewrite_scrub_done(out, replaced, scratch);
    return scratch->failed ? SIZE_MAX : n;
}

bool rewrite_trailer_passes(struct str name)
{
    enum h1_name id = h1_name_of(name);
    return id == H1_OTHER || h1_name_flags(id) & H1_N_TRAILER;
}
