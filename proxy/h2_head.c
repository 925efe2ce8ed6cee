/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/h2_head.h"

#include "proxy/h1_scan.h"
#include "proxy/h2_field.h"

#include <stdlib.h>

enum { FIELD_OVERHEAD = 32, METHOD_MAX = 64, FIRST_SIZES = 16 };

void h2_head_init(struct h2_head *h)
{
    *h = (struct h2_head) { 0 };
    buf_init(&h->bytes, SIZE_MAX / 2); /* bounded by the limits each field is counted against */
}

void h2_head_done(struct h2_head *h)
{
    buf_done(&h->bytes);
    free(h->sizes);
    h2_head_init(h);
}

static bool has_room(struct h2_head *h)
{
    if (h->n < h->cap)
        return true;
    size_t cap = h->cap ? h->cap * 2 : FIRST_SIZES;
    struct h2_size *more = realloc(h->sizes, cap * sizeof *more);
    if (!more)
        return false;
    h->sizes = more;
    h->cap = cap;
    return true;
}

void h2_head_add(struct h2_head *h, struct str name, struct str value, const struct h1_limits *lim)
{
    if (h->too_large)
        return;
    size_t n = name.n + value.n + FIELD_OVERHEAD; /* both are from frames of bounded size: no overflow */
    if (n > lim->head_bytes - h->list || h->n == lim->fields || !has_room(h) || buf_put(&h->bytes, name) || buf_put(&h->bytes, value)) {
        h->too_large = true;
        return;
    }
    h->list += n;
    h->sizes[h->n++] = (struct h2_size) { (uint32_t)name.n, (uint32_t)value.n };
}

/* --- one field --- */

static bool all_in(struct str s, unsigned class)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(h1_class[(unsigned char)s.p[i]] & class))
            return false;
    return s.n > 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* What no field may be, in a request or in trailers; NULL: it may. */
static const char *request_field_fault(struct str name, struct str value, enum h1_name id)
{
    const char *why = h2_field_fault(name, value);
    if (why)
        return why;
    if (!h1_request_name_ok(name))
        return "a field name that is no lower-case token, or that some servers read as another";
    if (value.n && (is_space(value.p[0]) || is_space(value.p[value.n - 1])))
        return "a field value that begins or ends with white space";
    switch ((unsigned)id) {
    case H1_CONNECTION:
    case H1_KEEP_ALIVE:
    case H1_PROXY_CONNECTION:
    case H1_TRANSFER_ENCODING:
    case H1_UPGRADE:
        return "a field that is about an HTTP/1.1 connection (RFC 9113 8.2.2)";
    case H1_TE:
        return str_eq_nocase(value, STR("trailers")) ? NULL : "a TE other than trailers (RFC 9113 8.2.2)";
    default:
        return NULL;
    }
}

/* --- a request --- */

struct pseudo {
    struct str method, scheme, authority, path, protocol;
};

static const char *pseudo_take(struct pseudo *p, struct str name, struct str value)
{
    static const struct {
        struct str name;
        size_t at;
    } known[] = {
        { STR(":method"), offsetof(struct pseudo, method) },       { STR(":scheme"), offsetof(struct pseudo, scheme) },
        { STR(":authority"), offsetof(struct pseudo, authority) }, { STR(":path"), offsetof(struct pseudo, path) },
        { STR(":protocol"), offsetof(struct pseudo, protocol) },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!str_eq(name, known[i].name))
            continue;
        struct str *at = (struct str *)(void *)((char *)p + known[i].at);
        if (at->p)
            return "a pseudo-field twice";
        if (!h1_value_ok(value))
            return "a control character in a pseudo-field";
        *at = value.p ? value : STR("");
        return NULL;
    }
    return "a pseudo-field that no request has";
}

static const char *pseudo_fault(const struct pseudo *p)
{
    bool connect = str_eq(p->method, STR("CONNECT"));
    if (!p->method.p || p->method.n > METHOD_MAX || !all_in(p->method, H1_C_TOKEN))
        return "no :method, or one that is no token of at most 64 bytes";
    if (connect && !p->protocol.p)
        return p->scheme.p || p->path.p || !p->authority.n ? "a CONNECT with :scheme or :path, or without :authority" : NULL;
    if (p->protocol.p && (!connect || !all_in(p->protocol, H1_C_TOKEN)))
        return "a :protocol with another method than CONNECT, or one that is no token";
    if (!p->scheme.p || !p->path.p)
        return "no :scheme or no :path";
    if (!all_in(p->path, H1_C_TARGET) || (p->path.p[0] != '/' && !(str_eq(p->path, STR("*")) && str_eq(p->method, STR("OPTIONS")))))
        return "a :path that is no path";
    return NULL;
}

/* The fields themselves, behind the pseudo-fields. */
struct notes {
    unsigned lengths, hosts, expects;
    bool continues;
    uint64_t length;
    size_t cookies;
};

static const char *note(struct notes *n, struct str value, enum h1_name id)
{
    switch ((unsigned)id) {
    case H1_CONTENT_LENGTH:
        n->lengths++;
        return h1_length_parse(value, &n->length) ? NULL : "Content-Length is not one number under 2^63";
    case H1_HOST:
        n->hosts++;
        return NULL;
    case H1_EXPECT:
        n->expects++;
        n->continues = str_eq_nocase(value, STR("100-continue"));
        return NULL;
    case H1_COOKIE:
        n->cookies++;
        return NULL;
    default:
        return NULL;
    }
}

static const char *notes_fault(const struct notes *n)
{
    if (n->lengths > 1)
        return "more than one Content-Length";
    if (n->hosts > 1)
        return "more than one Host";
    if (n->expects > 1 || (n->expects && !n->continues))
        return "an Expect other than 100-continue";
    return NULL;
}

static struct str copy_to(char **at, struct str s)
{
    struct str c = str_of(*at, s.n);
    if (s.n)
        memcpy(*at, s.p, s.n);
    *at += s.n;
    return c;
}

/* All the cookies as one, where the first of them stood. */
static struct str join_cookies(char **at, const struct h2_head *h, size_t first, const char *bytes)
{
    char *start = *at;
    const char *p = bytes;
    for (size_t i = first; i < h->n; i++) {
        struct str name = str_of(p, h->sizes[i].name_n), value = str_of(p + name.n, h->sizes[i].value_n);
        p += name.n + value.n;
        if (h1_name_of(name) != H1_COOKIE)
            continue;
        if (*at != start)
            copy_to(at, STR("; "));
        copy_to(at, value);
    }
    return str_of(start, (size_t)(*at - start));
}

int h2_head_request(const struct h2_head *h, bool end, const struct h1_limits *lim, struct h2_request *ret)
{
    *ret = (struct h2_request) { .r = { .method = STR_NONE, .target = STR_NONE, .version = "2" } };
    /* Fields, then the bytes, then as much again for cookies that are joined ("; " is shorter than "cookie"). */
    size_t table = (h->n ? h->n : 1) * sizeof(struct h1_field), size = buf_size(&h->bytes);
    char *mem = malloc(table + size);
    if (!mem)
        return -1;
    struct h1_field *f = (struct h1_field *)(void *)mem;
    char *at = mem + table;
    const char *p = buf_str(&h->bytes).p;
    struct pseudo ps = { { 0 }, { 0 }, { 0 }, { 0 }, { 0 } };
    struct notes n = { 0 };
    const char *fault = NULL;
    size_t k = 0;
    bool regular = false;
    for (size_t i = 0; i < h->n; i++) {
        struct str name = str_of(p, h->sizes[i].name_n), value = str_of(p + name.n, h->sizes[i].value_n);
        const char *start = p, *why;
        p += name.n + value.n;
        if (name.n && name.p[0] == ':') {
            why = regular ? "a pseudo-field behind a field" : pseudo_take(&ps, name, copy_to(&at, value));
            fault = fault ? fault : why;
            continue;
        }
        regular = true;
        enum h1_name id = h1_name_of(name);
        why = request_field_fault(name, value, id);
        why = why ? why : note(&n, value, id);
        fault = fault ? fault : why;
        if (why)
            continue;
        if (id == H1_HOST) {
            ret->host = copy_to(&at, value);
            continue;
        }
        if (id == H1_COOKIE && n.cookies > 1)
            continue;
        f[k].f.name = copy_to(&at, name);
        f[k].f.value = id == H1_COOKIE ? join_cookies(&at, h, i, start) : copy_to(&at, value);
        f[k++].id = id;
    }
    fault = fault ? fault : pseudo_fault(&ps);
    fault = fault ? fault : notes_fault(&n);
    if (!fault && end && n.length)
        fault = "a Content-Length, and no body";
    bool too_long = ps.path.n > lim->target_bytes;
    ret->r.method = ps.method;
    ret->r.target = too_long ? STR_NONE : ps.path;
    ret->r.fields = f;
    ret->r.nfields = k;
    ret->r.body = end ? H1_BODY_NONE : n.lengths ? H1_BODY_LENGTH : H1_BODY_CHUNKED;
    ret->r.length = ret->r.body == H1_BODY_LENGTH ? n.length : 0;
    ret->r.expect_continue = n.expects && n.continues && !end && ret->r.body != H1_BODY_NONE;
    ret->r.fault = too_long ? "a request target over limits.target_bytes" : NULL;
    ret->r.fault_end = too_long ? END_BAD_REQUEST : END_UNSET;
    ret->r.mem = mem;
    ret->scheme = ps.scheme;
    ret->authority = ps.authority;
    ret->protocol = ps.protocol;
    ret->fault = fault;
    return 0;
}

/* --- trailers --- */

const char *h2_head_trailers(const struct h2_head *h, struct field *fields, size_t max, size_t *ret_n)
{
    const char *p = buf_str(&h->bytes).p;
    *ret_n = 0;
    if (h->too_large)
        return "a trailer section over limits.trailer_bytes";
    for (size_t i = 0; i < h->n; i++) {
        struct str name = str_of(p, h->sizes[i].name_n), value = str_of(p + name.n, h->sizes[i].value_n);
        p += name.n + value.n;
        enum h1_name id = h1_name_of(name);
        const char *fault = name.n && name.p[0] == ':' ? "a pseudo-field in a trailer section" : request_field_fault(name, value, id);
        if (fault)
            return fault;
        if (!(h1_name_flags(id) & H1_N_TRAILER))
            continue;
        if (*ret_n == max)
            return "more trailer fields than may be";
        fields[(*ret_n)++] = (struct field) { name, value };
    }
    return NULL;
}
