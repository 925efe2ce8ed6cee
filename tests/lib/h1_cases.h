/* SPDX-License-Identifier: Apache-2.0
 *
 * h1_cases: reads the case files of tests/http1 (the format is described at the top of requests.txt) for the HTTP/1.1
 * tests, and what they all ask: are two heads equal, does a head come through serialising unchanged. Test code: aborts
 * on what is wrong. */
#ifndef TESTS_LIB_H1_CASES_H
#define TESTS_LIB_H1_CASES_H

#include "proxy/h1_body.h"

#include <stdio.h>
#include <stdlib.h>

enum { CASE_WORDS = 16, CASE_FIXES = 8, CASE_BYTES = 300000 };

struct h1_case {
    struct str name;
    unsigned line;
    struct buf in;                /* bytes to parse */
    struct str outcome;           /* ok, bad, large, more */
    struct str words[CASE_WORDS]; /* after ok: key=value */
    size_t nwords;
    struct str why; /* after bad: in the fault's sentence */
    struct buf fix_from[CASE_FIXES], fix_to[CASE_FIXES];
    size_t nfixes;
    struct str method, kind; /* to:, kind: */
    struct h1_limits limits;
    size_t ext, trailer;
    struct str closed;
};

static inline __attribute__((noreturn)) void case_die(const struct h1_case *c, const char *what)
{
    fprintf(stderr, "case %.*s (line %u): %s\n", STR_ARG(c->name), c->line, what);
    abort();
}

/* \r \n \t \0 \\ \s (space) \xNN, \{N*text} (text N times), \- (nothing). */
static inline void case_unescape(const struct h1_case *c, struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\\') {
            buf_putc(out, s.p[i]);
            continue;
        }
        if (++i == s.n)
            case_die(c, "a lone backslash");
        static const char from[] = "rnt0\\s", to[] = "\r\n\t\0\\ ";
        const char *q = memchr(from, s.p[i], sizeof from - 1);
        if (q) {
            buf_putc(out, to[q - from]);
        } else if (s.p[i] == '-') {
            continue; /* stands for nothing */
        } else if (s.p[i] == 'x' && i + 2 < s.n) {
            buf_putc(out, (char)(ascii_hex(s.p[i + 1]) << 4 | ascii_hex(s.p[i + 2])));
            i += 2;
        } else if (s.p[i] == '{') {
            struct str rest = str_from(s, i + 1), count;
            ptrdiff_t close = str_find_char(rest, '}');
            if (close < 0)
                case_die(c, "\\{ without }");
            struct str inner = str_sub(rest, 0, (size_t)close);
            uint64_t n;
            if (!str_split(&inner, '*', &count) || !str_to_u64(count, CASE_BYTES, &n))
                case_die(c, "\\{N*text}");
            for (uint64_t k = 0; k < n; k++)
                case_unescape(c, inner, out);
            i += (size_t)close + 1;
        } else {
            case_die(c, "an unknown escape");
        }
    }
    if (out->failed)
        case_die(c, "too many bytes");
}

static inline uint64_t case_number(const struct h1_case *c, struct str s)
{
    uint64_t n;
    if (!str_to_u64(s, UINT64_MAX, &n))
        case_die(c, "a number is expected");
    return n;
}

static inline bool case_key(struct str line, struct str key, struct str *ret)
{
    if (!str_starts(line, key))
        return false;
    *ret = str_trim(str_from(line, key.n));
    return true;
}

static inline void case_line(struct h1_case *c, struct str line)
{
    struct str v;
    if (str_starts(line, STR(">> ")) || str_eq(line, STR(">>"))) {
        case_unescape(c, str_from(line, 3), &c->in);
    } else if (str_starts(line, STR("> ")) || str_eq(line, STR(">"))) {
        case_unescape(c, str_from(line, 2), &c->in);
        buf_put(&c->in, STR("\r\n"));
    } else if (case_key(line, STR("fix: "), &v)) {
        ptrdiff_t at = str_find(v, STR(" => "));
        if (at < 0 || c->nfixes == CASE_FIXES)
            case_die(c, "fix: FROM => TO");
        buf_init(&c->fix_from[c->nfixes], CASE_BYTES);
        buf_init(&c->fix_to[c->nfixes], CASE_BYTES);
        case_unescape(c, str_sub(v, 0, (size_t)at), &c->fix_from[c->nfixes]);
        case_unescape(c, str_from(v, (size_t)at + 4), &c->fix_to[c->nfixes]);
        c->nfixes++;
    } else if (case_key(line, STR("to: "), &v)) {
        c->method = v;
    } else if (case_key(line, STR("kind: "), &v)) {
        c->kind = v;
    } else if (case_key(line, STR("head_bytes: "), &v)) {
        c->limits.head_bytes = case_number(c, v);
    } else if (case_key(line, STR("header_fields: "), &v)) {
        c->limits.fields = case_number(c, v);
    } else if (case_key(line, STR("target_bytes: "), &v)) {
        c->limits.target_bytes = case_number(c, v);
    } else if (case_key(line, STR("ext: "), &v)) {
        c->ext = case_number(c, v);
    } else if (case_key(line, STR("trailer: "), &v)) {
        c->trailer = case_number(c, v);
    } else if (case_key(line, STR("closed: "), &v)) {
        c->closed = v;
    } else {
        struct str word;
        str_split(&line, ' ', &c->outcome);
        c->why = line;
        while (str_split(&line, ' ', &word)) {
            if (c->nwords == CASE_WORDS)
                case_die(c, "too many words");
            c->words[c->nwords++] = word;
        }
    }
}

static inline void case_begin(struct h1_case *c, struct str name, unsigned line)
{
    *c = (struct h1_case) { .name = name,
                            .line = line,
                            .method = STR("GET"),
                            .limits = { .head_bytes = 65536, .fields = 128, .target_bytes = 32768 },
                            .ext = 4096,
                            .trailer = 16384 };
    buf_init(&c->in, CASE_BYTES);
}

static inline void case_end(struct h1_case *c)
{
    buf_done(&c->in);
    for (size_t i = 0; i < c->nfixes; i++) {
        buf_done(&c->fix_from[i]);
        buf_done(&c->fix_to[i]);
    }
}

/* Calls cb for every case; returns how many there were. Tests run in the root of the tree. */
static inline size_t h1_cases(const char *path, void (*cb)(struct h1_case *c, void *ctx), void *ctx)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s is missing: run in the root of the tree\n", path);
        abort();
    }
    struct buf text;
    buf_init(&text, 4 << 20);
    char *p;
    while ((p = buf_reserve(&text, 65536))) {
        size_t n = fread(p, 1, 65536, f);
        buf_wrote(&text, n);
        if (!n)
            break;
    }
    fclose(f);
    struct str rest = buf_str(&text), line;
    struct h1_case c;
    bool open = false;
    size_t count = 0;
    for (unsigned at = 1; str_split(&rest, '\n', &line); at++) {
        bool begins = str_starts(line, STR("= "));
        if (open && (begins || !rest.p)) {
            if (!c.outcome.n)
                case_die(&c, "no outcome");
            cb(&c, ctx);
            case_end(&c);
            open = false;
            count++;
        }
        if (begins) {
            case_begin(&c, str_from(line, 2), at);
            open = true;
        } else if (line.n && line.p[0] != '#' && open) {
            case_line(&c, line);
        }
    }
    buf_done(&text);
    return count;
}

/* The case's bytes with its fixes applied, each once. False when a fix's FROM does not occur. */
static inline bool h1_case_fixed(const struct h1_case *c, struct buf *out)
{
    buf_put(out, buf_str(&c->in));
    for (size_t i = 0; i < c->nfixes; i++) {
        struct str now = buf_str(out), from = buf_str(&c->fix_from[i]);
        ptrdiff_t at = str_find(now, from);
        if (at < 0)
            return false;
        struct buf next;
        buf_init(&next, CASE_BYTES);
        buf_put(&next, str_sub(now, 0, (size_t)at));
        buf_put(&next, buf_str(&c->fix_to[i]));
        buf_put(&next, str_from(now, (size_t)at + from.n));
        buf_done(out);
        *out = next;
    }
    return true;
}

static inline enum h1_result h1_any_parse(bool request, struct str bytes, struct str method,
                                          const struct h1_limits *lim, struct h1_field *fields, size_t *from,
                                          struct h1_head *ret, struct h1_fault *fault)
{
    return request ? h1_request_parse(bytes, lim, fields, from, ret, fault)
                   : h1_response_parse(bytes, method, lim, fields, from, ret, fault);
}

/* Everything but the number of bytes (and, with `any_version`, the version: we always write HTTP/1.1). */
static inline bool h1_head_equal(const struct h1_head *a, const struct h1_head *b, bool any_version)
{
    if (!str_eq(a->method, b->method) || !str_eq(a->target, b->target) || a->status != b->status ||
        !str_eq(a->reason, b->reason) || a->nfields != b->nfields || a->body != b->body || a->length != b->length ||
        a->host != b->host)
        return false;
    if (!any_version && (a->minor != b->minor || a->keep_alive != b->keep_alive || a->upgrade != b->upgrade ||
                         a->expect_continue != b->expect_continue))
        return false;
    for (size_t i = 0; i < a->nfields; i++)
        if (a->fields[i].id != b->fields[i].id || !str_eq(a->fields[i].f.name, b->fields[i].f.name) ||
            !str_eq(a->fields[i].f.value, b->fields[i].f.value))
            return false;
    return true;
}

static inline void h1_head_put(bool request, const struct h1_head *h, struct buf *out)
{
    if (request)
        h1_put_request_line(out, h->method, h->target);
    else
        h1_put_status_line(out, h->status, h->reason);
    for (size_t i = 0; i < h->nfields; i++)
        h1_put_field(out, h->fields[i].f.name, h->fields[i].f.value);
    if (request && !h->minor && h->host < 0 && !str_eq(h->method, STR("CONNECT")))
        h1_put_field(out, STR("Host"), STR("a.test")); /* HTTP/1.1 wants one */
    buf_put(out, STR("\r\n"));
}

/* Parse, write, parse again: the same head? `out` keeps the bytes written. NULL, or what differs. */
static inline const char *h1_round_trip(bool request, const struct h1_head *h, struct str method, struct buf *out)
{
    static struct h1_field fields[H1_FIELDS_MAX];
    static const struct h1_limits wide = { .head_bytes = 1 << 20, .fields = H1_FIELDS_MAX, .target_bytes = 1 << 20 };
    struct h1_head again;
    struct h1_fault fault;
    size_t from = 0;
    h1_head_put(request, h, out);
    if (out->failed)
        return "a head that was accepted cannot be written";
    if (h1_any_parse(request, buf_str(out), method, &wide, fields, &from, &again, &fault) != H1_DONE)
        return "a head that was accepted and written is refused";
    if (again.bytes != buf_size(out))
        return "bytes are left after the head that was written";
    if (request && h->host < 0 && again.host >= 0) { /* the Host that h1_head_put added */
        again.nfields--;
        again.host = -1;
    }
    return h1_head_equal(h, &again, !h->minor) ? NULL : "the head that was written reads differently";
}

#endif
