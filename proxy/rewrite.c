/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/rewrite.h"

#include "proxy/h1_scan.h"

/* --- requests --- */

static bool narrowed(const struct exchange *x)
{
    return x->plan.n || x->live;
}

static bool limits_methods(const struct exchange *x)
{
    if (x->verdict.rule && x->verdict.rule->methods.given)
        return true;
    for (size_t i = 0; i < x->plan.nwanted; i++)
        if (x->plan.wanted[i]->methods.given)
            return true;
    return false;
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
        case H1_EXPECT:
            if (r->expect_continue)
                break;
            *ret_end = END_BAD_REQUEST;
            return "an Expect field other than 100-continue";
        case H1_UPGRADE:
            /* h2c is taken off (RFC 9113 obsoletes it); any other protocol would run past every check. */
            if (!r->upgrade || str_eq_nocase(r->fields[i].f.value, STR("h2c")))
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
    return !connection || !nominated(x->req.fields, x->req.nfields, f->f.name);
}

bool rewrite_request_passes(const struct exchange *x, size_t field)
{
    return request_passes(x, field, has_connection(x->req.fields, x->req.nfields));
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

/* One field; END_OK or why it cannot be written. */
static enum end put_request_field(struct exchange *x, size_t i, bool connection, struct buf *out)
{
    const struct h1_field *f = &x->req.fields[i];
    if (!request_passes(x, i, connection))
        return END_OK;
    if (f->id == H1_ACCEPT_ENCODING && x->covered) {
        h1_put_field(out, f->f.name, STR("identity"));
        return END_OK;
    }
    if (!swap_touches(&x->plan, i)) {
        h1_put_field(out, f->f.name, f->f.value);
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
    buf_put(out, STR("\r\n"));
    return out->failed ? END_HEAD_TOO_LARGE : END_OK;
}

/* --- answers --- */

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
    size_t n = 0;
    if (x->scrubbing) {
        /* Replaced values are copied into scratch; room for all of them is made first, so that none moves. */
        size_t bytes = 0;
        for (size_t i = 0; i < h->nfields; i++)
            bytes += 4 * h->fields[i].f.value.n + 4096;
        if (!buf_reserve(scratch, bytes))
            return SIZE_MAX;
    }
    for (size_t i = 0; i < h->nfields && n < max; i++) {
        if (!answer_passes(h, &h->fields[i], connection))
            continue;
        out[n] = h->fields[i].f;
        if (x->scrubbing) {
            size_t before = buf_size(scratch);
            if (scrub_text(x->scrub.set, out[n].value, scratch, &x->scrub.hits))
                out[n].value = str_from(buf_str(scratch), before);
            if (scrub_text(x->scrub.set, out[n].name, scratch, &x->scrub.hits))
                continue; /* a value used as a field name: the field is dropped */
        }
        n++;
    }
    return scratch->failed ? SIZE_MAX : n;
}

bool rewrite_trailer_passes(struct str name)
{
    enum h1_name id = h1_name_of(name);
    return id == H1_OTHER || h1_name_flags(id) & H1_N_TRAILER;
}
