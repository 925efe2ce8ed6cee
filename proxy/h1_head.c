/* SPDX-License-Identifier: Apache-2.0
 *
 * Start lines and what the fields together say about framing (RFC 9112 3, 4, 6). A head that is there whole is read in
 * one pass. One that comes in pieces is parsed when its first piece comes and when its start line is complete (so that
 * nonsense is refused at once), then only searched for its end, then parsed: every byte is looked at a fixed number of
 * times however small the pieces.
 *
 * Where we are lenient, because real peers need it and no framing hangs on it: obs-text in values and in the reason
 * phrase; a status line that ends right after the code; any code from 100 to 999; CONNECT without Host in HTTP/1.1 (the
 * target says it all); `Content-Length: 0` with a 204; Connection: Transfer-Encoding in an answer. Deliberately refused
 * though RFC 9112 would let a recipient repair it: equal Content-Length values, in a list or repeated; a
 * Transfer-Encoding that ends in chunked but is not only that; Content-Length next to Transfer-Encoding; obs-fold in an
 * answer. */
#include "proxy/h1_scan.h"

enum {
    H1_METHOD_MAX = 64, /* as long as the audit log keeps */
    H1_LENGTH_DIGITS = 19,
};

struct walk {
    struct str bytes;
    const char *p, *end;
    struct h1_fault *fault;
    bool line; /* the start line was passed */
};

static size_t walk_at(const struct walk *w)
{
    return (size_t)(w->p - w->bytes.p);
}

static enum h1_result walk_bad(const struct walk *w, const char *why)
{
    return h1_fail(w->fault, H1_BAD, why, walk_at(w));
}

/* What the fields said, before it is judged. */
struct notes {
    unsigned hosts, lengths, codings, expects;
    bool chunked;   /* the one Transfer-Encoding is exactly that */
    bool continues; /* the one Expect is 100-continue */
    bool close, keep, upgrade_option, upgrade_field;
    uint64_t length;
};

/* --- start lines --- */

/* The text must come next; H1_MORE while what is there fits but is not all. */
static enum h1_result expect_text(struct walk *w, struct str text, const char *why)
{
    size_t have = (size_t)(w->end - w->p), n = have < text.n ? have : text.n;
    for (size_t i = 0; i < n; i++)
        if (w->p[i] != text.p[i]) {
            w->p += i;
            return walk_bad(w, why);
        }
    if (n < text.n)
        return H1_MORE;
    w->p += n;
    return H1_DONE;
}

static enum h1_result version_parse(struct walk *w, uint8_t *ret_minor)
{
    enum h1_result r = expect_text(w, STR("HTTP/1."), "the version is not HTTP/1.1 or HTTP/1.0");
    if (r != H1_DONE)
        return r;
    if (w->p == w->end)
        return H1_MORE;
    if (*w->p != '0' && *w->p != '1')
        return walk_bad(w, "the version is not HTTP/1.1 or HTTP/1.0");
    *ret_minor = (uint8_t)(*w->p++ - '0');
    return H1_DONE;
}

static bool target_form_ok(struct str method, struct str t)
{
    if (str_eq(method, STR("CONNECT"))) { /* authority-form; the authority itself is policy/host's to read */
        for (size_t i = 0; i < t.n; i++)
            if (t.p[i] == '/' || t.p[i] == '?' || t.p[i] == '@' || t.p[i] == '\\')
                return false;
        return str_rfind_char(t, ':') > 0;
    }
    if (t.p[0] == '/')
        return true;
    if (t.p[0] == '*')
        return t.n == 1 && str_eq(method, STR("OPTIONS"));
    ptrdiff_t colon = str_find_char(t, ':');
    if (colon <= 0 || !ascii_alpha(t.p[0]) || !str_starts(str_from(t, (size_t)colon), STR("://")))
        return false;
    for (size_t i = 0; i < (size_t)colon; i++)
        if (!ascii_alpha(t.p[i]) && !ascii_digit(t.p[i]) && t.p[i] != '+' && t.p[i] != '-' && t.p[i] != '.')
            return false;
    return t.n > (size_t)colon + 3;
}

static enum h1_result target_parse(struct walk *w, const struct h1_limits *lim, struct h1_head *h)
{
    const char *start = w->p;
    while (w->p < w->end && h1_class[(unsigned char)*w->p] & H1_C_TARGET)
        w->p++;
    h->target = str_of(start, (size_t)(w->p - start));
    if (h->target.n > lim->target_bytes)
        return h1_fail(w->fault, H1_TOO_LARGE, "a request target over limits.target_bytes", walk_at(w));
    if (w->p == w->end)
        return H1_MORE;
    if (*w->p == '\r' || *w->p == '\n')
        return walk_bad(w, "the request line has no version");
    if (*w->p != ' ')
        return walk_bad(w, *w->p == '#' ? "a fragment in the request target"
                                        : "a byte that may not stand in a request target");
    if (!h->target.n)
        return walk_bad(w, "more than one space after the method");
    if (!target_form_ok(h->method, h->target)) {
        w->p = start;
        return walk_bad(w, "the request target is no path, absolute URI or authority that fits the method");
    }
    w->p++;
    return H1_DONE;
}

static enum h1_result request_line(struct walk *w, const struct h1_limits *lim, struct h1_head *h)
{
    if (w->p < w->end && *w->p == '\r') { /* RFC 9112 2.2: one empty line before the request line */
        enum h1_result r = expect_text(w, STR("\r\n"), "a CR is not followed by LF");
        if (r != H1_DONE)
            return r;
    }
    const char *start = w->p;
    while (w->p < w->end && h1_class[(unsigned char)*w->p] & H1_C_TOKEN)
        w->p++;
    h->method = str_of(start, (size_t)(w->p - start));
    if (h->method.n > H1_METHOD_MAX)
        return walk_bad(w, "a method over 64 bytes");
    if (w->p == w->end)
        return H1_MORE;
    if (*w->p != ' ' || !h->method.n)
        return walk_bad(w, "the request line does not begin with a method and one space");
    w->p++;
    enum h1_result r = target_parse(w, lim, h);
    if (r != H1_DONE || (r = version_parse(w, &h->minor)) != H1_DONE)
        return r;
    return expect_text(w, STR("\r\n"), "bytes after the version");
}

static enum h1_result status_line(struct walk *w, struct h1_head *h)
{
    enum h1_result r = version_parse(w, &h->minor);
    if (r != H1_DONE || (r = expect_text(w, STR(" "), "the version is not followed by one space")) != H1_DONE)
        return r;
    for (int i = 0; i < 3; i++, w->p++) {
        if (w->p == w->end)
            return H1_MORE;
        if (!ascii_digit(*w->p))
            return walk_bad(w, "the status is not three digits");
        h->status = h->status * 10 + (unsigned)(*w->p - '0');
    }
    if (h->status < 100)
        return walk_bad(w, "the status is under 100");
    if (w->p == w->end)
        return H1_MORE;
    if (*w->p != ' ' && *w->p != '\r')
        return walk_bad(w, "the status is not three digits");
    const char *start = w->p + (*w->p == ' ');
    w->p = h1_control_find(start, w->end);
    if (w->p < w->end && *w->p != '\r')
        return walk_bad(w, "a control character in the reason phrase, or LF without CR");
    h->reason = str_of(start, (size_t)(w->p - start));
    return expect_text(w, STR("\r\n"), "a CR is not followed by LF");
}

/* --- fields together --- */

static bool connection_note(struct str value, bool request, struct notes *n)
{
    struct str e;
    while (str_split(&value, ',', &e)) {
        e = str_trim(e);
        if (str_eq_nocase(e, STR("close")))
            n->close = true;
        else if (str_eq_nocase(e, STR("keep-alive")))
            n->keep = true;
        else if (str_eq_nocase(e, STR("upgrade")))
            n->upgrade_option = true;
        else if (request && (h1_name_flags(h1_name_of(e)) & H1_N_PINNED))
            return false;
        for (size_t i = 0; request && i < e.n; i++)
            if (!(h1_class[(unsigned char)e.p[i]] & H1_C_TOKEN))
                return false;
    }
    return true;
}

bool h1_length_parse(struct str value, uint64_t *ret)
{
    return value.n <= H1_LENGTH_DIGITS && str_to_u64(value, INT64_MAX, ret);
}

static bool length_note(struct str value, struct notes *n)
{
    n->lengths++;
    return h1_length_parse(value, &n->length);
}

/* NULL, or why the field is wrong. */
static const char *field_note(const struct h1_field *f, bool request, struct notes *n)
{
    if (f->id == H1_CONTENT_LENGTH)
        return length_note(f->f.value, n) ? NULL : "Content-Length is not one number under 2^63";
    if (f->id == H1_TRANSFER_ENCODING) {
        n->codings++;
        n->chunked = str_eq_nocase(f->f.value, STR("chunked"));
    } else if (f->id == H1_CONNECTION) {
        return connection_note(f->f.value, request, n) ? NULL : "Connection holds something that is no option";
    } else if (f->id == H1_HOST) {
        n->hosts++;
    } else if (f->id == H1_UPGRADE) {
        n->upgrade_field = true;
    } else if (f->id == H1_EXPECT) {
        n->expects++;
        n->continues = str_eq_nocase(f->f.value, STR("100-continue"));
    }
    return NULL;
}

/* RFC 9112 6.1, 6.3: what both directions refuse. NULL or why. */
static const char *framing_fault(const struct notes *n, uint8_t minor)
{
    if (n->lengths > 1)
        return "more than one Content-Length";
    if (n->lengths && n->codings)
        return "Content-Length and Transfer-Encoding";
    if (n->codings > 1)
        return "more than one Transfer-Encoding";
    if (n->codings && !n->chunked)
        return "a Transfer-Encoding other than chunked";
    if (n->codings && !minor)
        return "Transfer-Encoding in HTTP/1.0";
    return NULL;
}

static void framing_set(const struct notes *n, struct h1_head *h, enum h1_body neither)
{
    h->body = n->codings ? H1_BODY_CHUNKED : n->lengths ? H1_BODY_LENGTH : neither;
    h->length = h->body == H1_BODY_LENGTH ? n->length : 0;
    h->keep_alive = !n->close && (h->minor || n->keep) && h->body != H1_BODY_UNTIL_CLOSE;
    h->upgrade = h->minor && n->upgrade_option && n->upgrade_field; /* RFC 9110 7.8: ignored in HTTP/1.0 */
}

static const char *request_judge(const struct notes *n, struct h1_head *h)
{
    const char *why = framing_fault(n, h->minor);
    if (why)
        return why;
    bool connect = str_eq(h->method, STR("CONNECT"));
    if (n->hosts > 1)
        return "more than one Host";
    if (!n->hosts && h->minor && !connect)
        return "no Host in an HTTP/1.1 request";
    if (connect && (n->codings || n->length))
        return "a body on CONNECT";
    if (n->expects > 1 || (n->expects && !n->continues))
        return "an Expect other than 100-continue";
    framing_set(n, h, H1_BODY_NONE);
    h->expect_continue =
        n->expects && h->minor && (h->body == H1_BODY_CHUNKED || (h->body == H1_BODY_LENGTH && h->length));
    return NULL;
}

static const char *response_judge(const struct notes *n, struct str method, struct h1_head *h)
{
    const char *why = framing_fault(n, h->minor);
    if (why)
        return why;
    bool empty = h->status < 200 || h->status == 204;
    if (empty && (n->codings || n->length || (n->lengths && h->status != 204)))
        return "a length or coding with an answer that has no body";
    bool connected = str_eq(method, STR("CONNECT")) && h->status >= 200 && h->status < 300;
    bool none = empty || connected || h->status == 304 || str_eq(method, STR("HEAD"));
    framing_set(n, h, H1_BODY_UNTIL_CLOSE);
    if (none) { /* a length or coding here is about a body that does not follow (RFC 9110 8.6, RFC 9112 6.3) */
        h->body = H1_BODY_NONE;
        h->length = 0;
        h->keep_alive = !n->close && (h->minor || n->keep);
    }
    return NULL;
}

static enum h1_result fields_judge(struct walk *w, const struct h1_limits *lim, bool request, struct h1_head *h,
                                   struct notes *n)
{
    struct h1_fields_in in = {
        .bytes = w->bytes, .at = walk_at(w), .max = lim->fields, .fields = h->fields, .request = request
    };
    enum h1_result r = h1_fields_parse(&in, w->fault);
    if (r != H1_DONE)
        return r;
    h->nfields = in.n;
    h->bytes = in.at;
    h->host = -1;
    for (size_t i = 0; i < in.n; i++) {
        if (h->fields[i].id == H1_OTHER)
            continue;
        const char *why = field_note(&h->fields[i], request, n);
        if (why)
            return h1_fail(w->fault, H1_BAD, why, (size_t)(h->fields[i].f.name.p - w->bytes.p));
        if (h->fields[i].id == H1_HOST)
            h->host = (int)i;
    }
    return H1_DONE;
}

/* --- whole heads --- */

static enum h1_result head_parse(struct walk *w, const struct h1_limits *lim, const struct str *request_method,
                                 struct h1_head *h)
{
    bool request = !request_method;
    enum h1_result r = request ? request_line(w, lim, h) : status_line(w, h);
    if (r != H1_DONE)
        return r;
    w->line = true;
    struct notes n = { 0 };
    if ((r = fields_judge(w, lim, request, h, &n)) != H1_DONE)
        return r;
    const char *why = request ? request_judge(&n, h) : response_judge(&n, *request_method, h);
    return why ? h1_fail(w->fault, H1_BAD, why, 0) : H1_DONE;
}

/* *from is twice the number of bytes looked through, plus one once the start line was passed; 0 means a new head. */
static enum h1_result head_resume(struct str given, const struct str *request_method, const struct h1_limits *lim,
                                  struct h1_field *fields, size_t *from, struct h1_head *ret, struct h1_fault *fault)
{
    struct str bytes = given.n ? str_sub(given, 0, lim->head_bytes) : STR("");
    size_t scanned = *from >> 1;
    bool line = *from & 1, try = true;
    if (scanned && scanned <= bytes.n) {
        size_t end;
        bool ended;
        enum h1_result r = h1_end_find(bytes, scanned, &end, &ended, fault);
        if (r < 0)
            return r;
        try = end || (ended && !line);
    }
    if (try) {
        struct h1_head h = { .fields = fields };
        struct walk w = { .bytes = bytes, .p = bytes.p, .end = bytes.p + bytes.n, .fault = fault };
        enum h1_result r = head_parse(&w, lim, request_method, &h);
        if (r == H1_DONE)
            *ret = h;
        if (r != H1_MORE) {
            *from = 0;
            return r;
        }
        line = w.line;
    }
    if (given.n >= lim->head_bytes)
        return h1_fail(fault, H1_TOO_LARGE, "a head over limits.head_bytes", lim->head_bytes);
    *from = bytes.n << 1 | line;
    return H1_MORE;
}

enum h1_result h1_request_parse(struct str bytes, const struct h1_limits *lim, struct h1_field *fields, size_t *from,
                                struct h1_head *ret, struct h1_fault *fault)
{
    return head_resume(bytes, NULL, lim, fields, from, ret, fault);
}

enum h1_result h1_response_parse(struct str bytes, struct str request_method, const struct h1_limits *lim,
                                 struct h1_field *fields, size_t *from, struct h1_head *ret, struct h1_fault *fault)
{
    return head_resume(bytes, &request_method, lim, fields, from, ret, fault);
}
