/* SPDX-License-Identifier: Apache-2.0
 *
 * The field lines of heads and trailers, and what is asked of a field: lists, Connection options, writing. One line is
 * name ":" OWS value OWS CRLF (RFC 9112 5) and nothing else: no white space before the colon, no folding, no control
 * character but HTAB in the value. Bytes >= 0x80 in a value are kept (RFC 9110 5.5 obs-text): real servers and clients
 * send UTF-8. */
#include "proxy/h1_scan.h"

static bool is_ows(char c)
{
    return c == ' ' || c == '\t';
}

/* Words for a name that does not end in a colon; `c` is the byte that ended it. */
static enum h1_result bad_name(const char *start, const char *p, size_t at, struct h1_fault *fault)
{
    if (is_ows(*p))
        return h1_fail(fault, H1_BAD,
                       p == start ? "a line begins with white space (obs-fold or a bad first line)"
                                  : "a header name is followed by white space",
                       at);
    if (*p == ':')
        return h1_fail(fault, H1_BAD, "a header name is empty", at);
    if (*p == '\r' || *p == '\n')
        return h1_fail(fault, H1_BAD, p == start ? "a line ends without CRLF" : "a header line has no colon", at);
    return h1_fail(fault, H1_BAD, "a byte that may not stand in a header name", at);
}

/* An alias is a name that a server which maps marks to one character would take for one that matters. */
static bool is_alias(struct str name, enum h1_name id, bool request)
{
    if (id != H1_OTHER && id != H1_PROXY_OTHER)
        return false;
    unsigned flags = h1_name_flags(h1_name_alias(name));
    return request ? flags & H1_N_ALIAS : (flags & H1_N_ALIAS) && (flags & H1_N_FRAMING);
}

/* One line; *p is its first byte and becomes the first of the next. */
static inline enum h1_result field_line(const char *base, const char **pp, const char *end, bool request,
                                        struct h1_field *f, struct h1_fault *fault)
{
    const char *start = *pp, *p = start;
    unsigned seen = 0;
    p = h1_token_end(p, end, &seen);
    if (p == end)
        return H1_MORE;
    if (*p != ':' || p == start)
        return bad_name(start, p, (size_t)(p - base), fault);
    struct str name = str_of(start, (size_t)(p - start));
    const char *v = p + 1;
    while (v < end && is_ows(*v))
        v++;
    p = h1_control_find(v, end);
    if (end - p < 2) {
        if (p < end && *p != '\r')
            return h1_fail(fault, H1_BAD,
                           *p == '\n' ? "a line ends in LF without CR" : "a control character in a header value",
                           (size_t)(p - base));
        return H1_MORE;
    }
    if (*p != '\r')
        return h1_fail(fault, H1_BAD,
                       *p == '\n' ? "a line ends in LF without CR" : "a control character in a header value",
                       (size_t)(p - base));
    if (p[1] != '\n')
        return h1_fail(fault, H1_BAD, "a CR is not followed by LF", (size_t)(p - base));
    *pp = p + 2;
    while (p > v && is_ows(p[-1]))
        p--;
    f->f.name = name;
    f->f.value = str_of(v, (size_t)(p - v));
    f->id = h1_name_of(name);
    if (__builtin_expect((seen & H1_C_MARK) && is_alias(name, f->id, request), 0))
        return h1_fail(fault, H1_BAD, "a header name that some servers read as a framing or credential header",
                       (size_t)(start - base));
    return H1_DONE;
}

enum h1_result h1_fields_parse(struct h1_fields_in *in, struct h1_fault *fault)
{
    const char *base = in->bytes.p ? in->bytes.p : ""; /* NULL + 0 is undefined */
    const char *end = base + in->bytes.n, *p = base + in->at;
    for (;;) {
        if (p == end) {
            if (!in->end_is_empty)
                return H1_MORE;
            break;
        }
        if (*p == '\r') {
            if (end - p < 2)
                return H1_MORE;
            if (p[1] != '\n')
                return h1_fail(fault, H1_BAD, "a CR is not followed by LF", (size_t)(p - base));
            p += 2;
            break;
        }
        if (in->n == in->max)
            return h1_fail(fault, H1_TOO_LARGE, "more header fields than limits.header_fields", (size_t)(p - base));
        enum h1_result r = field_line(base, &p, end, in->request, &in->fields[in->n], fault);
        if (r != H1_DONE)
            return r;
        in->n++;
    }
    in->at = (size_t)(p - base);
    return H1_DONE;
}

enum h1_result h1_trailers_parse(struct str bytes, const struct h1_limits *lim, struct h1_field *fields,
                                 size_t *ret_nfields, size_t *ret_bytes, struct h1_fault *fault)
{
    bool over = bytes.n > lim->head_bytes;
    struct h1_fields_in in = {
        .bytes = over ? str_sub(bytes, 0, lim->head_bytes) : bytes,
        .max = lim->fields,
        .fields = fields,
        .request = true, /* a trailer of an answer gains nothing from an alias either */
        .end_is_empty = !over,
    };
    enum h1_result r = h1_fields_parse(&in, fault);
    if (r == H1_MORE && over)
        return h1_fail(fault, H1_TOO_LARGE, "a trailer section over limits.trailer_bytes", lim->head_bytes);
    if (r != H1_DONE)
        return r;
    size_t n = 0;
    for (size_t i = 0; i < in.n; i++)
        if (h1_name_flags(fields[i].id) & H1_N_TRAILER)
            fields[n++] = fields[i];
    *ret_nfields = n;
    *ret_bytes = in.at;
    return H1_DONE;
}

bool h1_list_has(struct str value, struct str token)
{
    struct str element;
    while (str_split(&value, ',', &element))
        if (str_eq_nocase(str_trim(element), token))
            return true;
    return false;
}

bool h1_connection_names(const struct h1_head *h, struct str name)
{
    for (size_t i = 0; i < h->nfields; i++)
        if (h->fields[i].id == H1_CONNECTION && h1_list_has(h->fields[i].f.value, name))
            return true;
    return false;
}

bool h1_value_ok(struct str value)
{
    return !value.n || h1_control_find(value.p, value.p + value.n) == value.p + value.n;
}

static bool is_token(struct str s)
{
    unsigned seen = 0;
    return s.n > 0 && h1_token_end(s.p, s.p + s.n, &seen) == s.p + s.n;
}

bool h1_request_name_ok(struct str name)
{
    return is_token(name) && !is_alias(name, h1_name_of(name), true);
}

/* The last gate before the wire: what cannot be a field is never written, whoever made it; the buffer fails instead. */
void h1_put_field(struct buf *out, struct str name, struct str value)
{
    if (!is_token(name) || !h1_value_ok(value)) {
        out->failed = true;
        return;
    }
    char *p = buf_reserve(out, name.n + value.n + 4);
    if (!p)
        return;
    memcpy(p, name.p, name.n);
    p += name.n;
    *p++ = ':';
    *p++ = ' ';
    if (value.n)
        memcpy(p, value.p, value.n);
    p += value.n;
    *p++ = '\r';
    *p = '\n';
    buf_wrote(out, name.n + value.n + 4);
}

void h1_put_request_line(struct buf *out, struct str method, struct str target)
{
    bool ok = is_token(method) && target.n > 0;
    for (size_t i = 0; i < target.n; i++)
        ok &= (h1_class[(unsigned char)target.p[i]] & H1_C_TARGET) != 0;
    if (!ok) {
        out->failed = true;
        return;
    }
    buf_put(out, method);
    buf_putc(out, ' ');
    buf_put(out, target);
    buf_put(out, STR(" HTTP/1.1\r\n"));
}

void h1_put_status_line(struct buf *out, unsigned status, struct str reason)
{
    if (status < 100 || status > 999 || !h1_value_ok(reason)) {
        out->failed = true;
        return;
    }
    buf_put(out, STR("HTTP/1.1 "));
    buf_put_u64(out, status);
    buf_putc(out, ' ');
    buf_put(out, reason);
    buf_put(out, STR("\r\n"));
}
