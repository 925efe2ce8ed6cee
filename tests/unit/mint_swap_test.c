/* SPDX-License-Identifier: Apache-2.0
 *
 * One table: a head written with {marks} for placeholders, what must come of it, and, for every refusal, what the same
 * head with one thing put right must give (its control is the row after it). */
#include "mint/base64.h"
#include "mint/swap.h"
#include "tests/unit/mint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fixture f;
static char stale[PLACEHOLDER_MAX + 1], foreign[PLACEHOLDER_MAX + 1];
static const char real_github[] = "ghs_REALREALREALREALREALREALREALREALREAL", real_key[] = "real key with / and +",
                  real_twice[] = "sk-real-0123456789";

static struct str mark(char c)
{
    switch (c) {
    case 'g':
        return placeholder_of(f.table, f.coder, f.github)->text;
    case 'o': /* the other agent's */
        return placeholder_of(f.table, f.other, f.github)->text;
    case 'k':
        return placeholder_of(f.table, f.coder, f.key)->text;
    case 't':
        return placeholder_of(f.table, f.coder, f.twice)->text;
    case 'l':
        return placeholder_of(f.table, f.coder, f.literal)->text;
    case 's':
        return str_c(stale);
    case 'f':
        return str_c(foreign);
    case 'G':
        return str_c(real_github);
    case 'K':
        return str_c(real_key);
    case 'T':
        return str_c(real_twice);
    default:
        fail_msg("mark %c", c);
        return STR_NONE;
    }
}

/* {g} the text; {%g} its first letter percent-encoded; {2g} twice so; {b:x{g}y} base64 of what stands between, {B:…}
 * without padding. No nesting of {b:}. */
static void expand(const char *p, const char *end, struct buf *out)
{
    for (; p < end; p++) {
        if (*p != '{') {
            buf_putc(out, *p);
        } else if (p[2] == '}') {
            buf_put(out, mark(p[1]));
            p += 2;
        } else if (p[1] == '%' || p[1] == '2') {
            struct str m = mark(p[2]);
            buf_putf(out, p[1] == '%' ? "%%%02x" : "%%25%02x", (unsigned char)m.p[0]);
            buf_put(out, str_from(m, 1));
            p += 3;
        } else {
            const char *q = p + 3;
            for (int depth = 1; depth; q++)
                depth += *q == '{' ? 1 : *q == '}' ? -1 : 0;
            struct buf inner;
            buf_init(&inner, 4096);
            expand(p + 3, q - 1, &inner);
            base64_put(out, buf_str(&inner), p[1] == 'b');
            buf_done(&inner);
            p = q - 1;
        }
    }
}

struct row {
    const char *what;
    const char *host, *target, *headers; /* headers: "name: value|name: value" */
    enum end end;
    const char *where, *sent; /* of a refusal; what the headers become */
    const char *method;
    uint16_t port;
    bool http, tolerated, live;
    const char *severity; /* where not "high" */
};

#define UA "user-agent: curl/8|accept: */*"

static const struct row rows[] = {
    { "nothing to swap", "api.test", "/", UA, END_OK, .sent = UA },
    { "bearer", "api.test", "/", "authorization: Bearer {g}", END_OK, .sent = "authorization: Bearer {G}" },
    { "bare", "api.test", "/", "authorization: {g}", END_OK, .sent = "authorization: {G}" },
    { "any case of the name", "api.test", "/", "AUTHORIZATION: token {g}", END_OK, .sent = "AUTHORIZATION: token {G}" },
    { "bounded by comma and semicolon", "api.test", "/", "x-twice: a,{t};b", END_OK, .sent = "x-twice: a,{T};b" },
    { "twice where twice is allowed", "api.test", "/", "x-twice: {t} {t}", END_OK, .sent = "x-twice: {T} {T}" },
    { "three times where twice is allowed", "api.test", "/", "x-twice: {t} {t}|x-twice: {t}",
      END_PLACEHOLDER_WRONG_SLOT, .where = "header x-twice" },
    { "twice where once is allowed", "api.test", "/", "authorization: {g}, {g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "twice, in two fields", "api.test", "/", "authorization: {g}|authorization: {g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "control: once", "api.test", "/", "authorization: {g}|authorization: x", END_OK,
      .sent = "authorization: {G}|authorization: x" },
    { "two credentials", "api.test", "/v1/x", "authorization: Bearer {g}|x-api-key: {k}", END_OK,
      .sent = "authorization: Bearer {G}|x-api-key: {K}" },
    { "wildcard host", "a.b.wild.test", "/", "authorization: {g}", END_OK, .sent = "authorization: {G}" },
    /* slots */
    { "user agent", "api.test", "/", "user-agent: {g}", END_PLACEHOLDER_WRONG_SLOT, .where = "header user-agent" },
    { "cookie", "api.test", "/", "cookie: a={g}", END_PLACEHOLDER_WRONG_SLOT, .where = "header cookie" },
    { "referer", "api.test", "/", "Referer: https://api.test/{g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header referer" },
    { "another credential's header", "api.test", "/v1/x", "x-api-key: {g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header x-api-key" },
    { "within a larger token", "api.test", "/", "authorization: Bearer x{g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "with something behind", "api.test", "/", "authorization: Bearer {g}=", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "in quotes", "api.test", "/", "authorization: Token token=\"{g}\"", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "control: whole", "api.test", "/", "authorization: Token {g}", END_OK, .sent = "authorization: Token {G}" },
    { "percent-encoded in its slot", "api.test", "/", "authorization: Bearer {%g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "control: something else percent-encoded beside it", "api.test", "/?%41", "authorization: Bearer {g} %41", END_OK,
      .sent = "authorization: Bearer {G} %41" },
    { "in its slot and elsewhere", "api.test", "/", "authorization: {g}|x-request-id: {g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header x-request-id" },
    { "header name", "api.test", "/", "{k}: 1", END_PLACEHOLDER_WRONG_SLOT, .where = "header name" },
    { "control: another header name", "api.test", "/v1/x", "x-another-name-as-long-as-that: 1|x-api-key: {k}", END_OK,
      .sent = "x-another-name-as-long-as-that: 1|x-api-key: {K}" },
    { "method", "api.test", "/", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "method", .method = "{g}" },
    /* target */
    { "query", "api.test", "/v1?key={g}&x=1", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    { "path", "api.test", "/bot{g}/x", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    { "query, percent-encoded", "api.test", "/v1?key={%g}", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    { "query, encoded twice", "api.test", "/v1?key={2g}", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    { "query, beside a bad %", "api.test", "/v1?%zz%4&key={%g}", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    { "control: a target without", "api.test", "/v1?key=%67hp_no", UA, END_OK, .sent = UA },
    { "target and slot", "api.test", "/v1?key={g}", "authorization: {g}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "target" },
    /* hosts */
    { "wrong host, in its slot", "evil.test", "/", "authorization: {g}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header authorization" },
    { "wrong host, in the target", "evil.test", "/?{g}", UA, END_PLACEHOLDER_WRONG_HOST, .where = "target" },
    { "wrong host, encoded", "evil.test", "/?{%g}", UA, END_PLACEHOLDER_WRONG_HOST, .where = "target" },
    { "wrong host, in Basic", "evil.test", "/", "authorization: Basic {b:x:{g}}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header authorization" },
    { "the bare name of a wildcard", "wild.test", "/", "authorization: {g}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header authorization" },
    { "wrong host, tolerated", "known.test", "/", "authorization: {g}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header authorization", .tolerated = true, .severity = "info" },
    { "wrong slot is graver on a host of its own only", "evil.test", "/", "authorization: {g}|x-y: {g}",
      END_PLACEHOLDER_WRONG_HOST, .where = "header authorization" },
    { "wrong host is graver than wrong slot", "api.test", "/", "user-agent: {g}|x-y: {l}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header x-y" },
    { "in either order", "api.test", "/", "user-agent: {l}|x-y: {g}", END_PLACEHOLDER_WRONG_HOST,
      .where = "header user-agent" },
    /* whose */
    { "another agent's", "api.test", "/", "authorization: {o}", END_UNKNOWN_PLACEHOLDER,
      .where = "header authorization" },
    { "another agent's, wrong host", "evil.test", "/?{o}", UA, END_UNKNOWN_PLACEHOLDER, .where = "target" },
    { "another agent's beside mine", "api.test", "/", "authorization: {g}|x-y: {o}", END_UNKNOWN_PLACEHOLDER,
      .where = "header x-y" },
    { "ours, not live", "api.test", "/", "authorization: Bearer {s}", END_UNKNOWN_PLACEHOLDER,
      .where = "header authorization" },
    { "ours, not live, in Basic", "api.test", "/", "authorization: Basic {b:x:{s}}", END_UNKNOWN_PLACEHOLDER,
      .where = "header authorization" },
    { "ours, not live, anywhere", "evil.test", "/?{s}", UA, END_UNKNOWN_PLACEHOLDER, .where = "target" },
    { "control: not ours", "evil.test", "/?{f}", "authorization: Bearer {f}", END_OK,
      .sent = "authorization: Bearer {f}" },
    { "not live is graver than the wrong host", "evil.test", "/?{g}", "x-y: {s}", END_UNKNOWN_PLACEHOLDER,
      .where = "header x-y" },
    /* scope */
    { "method out of scope", "api.test", "/v1/x", "x-api-key: {k}", END_PLACEHOLDER_OUT_OF_SCOPE,
      .where = "header x-api-key", .method = "POST", .severity = "" },
    { "path out of scope", "api.test", "/v2/x", "x-api-key: {k}", END_PLACEHOLDER_OUT_OF_SCOPE,
      .where = "header x-api-key", .severity = "" },
    { "control: in scope", "api.test", "/v1/x?q", "x-api-key: {k}", END_OK, .sent = "x-api-key: {K}" },
    { "port out of scope", "api.test", "/", "authorization: {g}", END_PLACEHOLDER_OUT_OF_SCOPE,
      .where = "header authorization", .port = 8443, .severity = "" },
    { "plain http", "api.test", "/", "authorization: {g}", END_PLACEHOLDER_OUT_OF_SCOPE,
      .where = "header authorization", .port = 80, .http = true, .severity = "" },
    { "control: plain http where allowed", "plain.test", "/", "x-twice: {t}", END_OK, .port = 80, .http = true,
      .sent = "x-twice: {T}" },
    { "out of scope is lightest", "api.test", "/v2/x", "x-api-key: {k}|x-y: {k}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header x-y" },
    /* Basic */
    { "git", "git.test", "/", "authorization: Basic {b:x-access-token:{g}}", END_OK,
      .sent = "authorization: Basic {b:x-access-token:{G}}" },
    { "empty user", "git.test", "/", "Authorization: basic {b::{g}}", END_OK, .sent = "Authorization: basic {b::{G}}" },
    { "unpadded stays unpadded", "git.test", "/", "authorization: BASIC {B:a:{g}}", END_OK,
      .sent = "authorization: BASIC {B:a:{G}}" },
    { "unpadded, another length", "git.test", "/", "authorization: Basic {B:ab:{g}}", END_OK,
      .sent = "authorization: Basic {B:ab:{G}}" },
    { "several spaces", "git.test", "/", "authorization: Basic   {b:ab:{g}}", END_OK,
      .sent = "authorization: Basic   {b:ab:{G}}" },
    { "user", "api.test", "/", "authorization: Basic {b:{t}:}", END_OK, .sent = "authorization: Basic {b:{T}:}" },
    { "user and password", "api.test", "/", "authorization: Basic {b:{t}:{t}}", END_OK,
      .sent = "authorization: Basic {b:{T}:{T}}" },
    { "user, where only the password is a slot", "git.test", "/", "authorization: Basic {b:{g}:x}",
      END_PLACEHOLDER_WRONG_SLOT, .where = "header authorization" },
    { "part of the password", "git.test", "/", "authorization: Basic {b:x:y{g}}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "something behind the password", "git.test", "/", "authorization: Basic {b:x:{g}y}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "password with a colon before", "git.test", "/", "authorization: Basic {b:x:y:{g}}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "no colon", "git.test", "/", "authorization: Basic {b:{g}}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "encoded in the password", "git.test", "/", "authorization: Basic {b:x:{%g}}", END_PLACEHOLDER_WRONG_SLOT,
      .where = "header authorization" },
    { "no placeholder within", "git.test", "/", "authorization: Basic {b:user:password of mine}", END_OK,
      .sent = "authorization: Basic {b:user:password of mine}" },
    { "not base64", "git.test", "/", "authorization: Basic !!!not base64 at all!!!", END_OK,
      .sent = "authorization: Basic !!!not base64 at all!!!" },
    { "not canonical: two at the end", "git.test", "/", "authorization: Basic {b:x:{g}}=", END_OK,
      .sent = "authorization: Basic {b:x:{g}}=" },
    { "not in Authorization", "git.test", "/", "x-auth: Basic {b:x:{g}}", END_OK, .sent = "x-auth: Basic {b:x:{g}}" },
    { "the raw text after Basic", "git.test", "/", "authorization: Basic {g}", END_OK,
      .sent = "authorization: Basic {G}" },
    /* literals */
    { "a literal", "lit.test", "/", "authorization: Bearer {l}", END_OK, .sent = "authorization: Bearer {G}" },
    { "a literal, elsewhere", "evil.test", "/?x={l}y", UA, END_PLACEHOLDER_WRONG_HOST, .where = "target" },
    { "a literal, encoded", "lit.test", "/?x={%l}", UA, END_PLACEHOLDER_WRONG_SLOT, .where = "target" },
    /* live values in the agent's own request */
    { "a real value", "evil.test", "/", "x-y: {G}", END_EXFILTRATION, .where = "header x-y", .live = true,
      .severity = "critical" },
    { "control: not live", "evil.test", "/", "x-y: {G}", END_OK, .sent = "x-y: {G}" },
    { "a real value, in its own slot", "api.test", "/", "authorization: Bearer {G}", END_EXFILTRATION,
      .where = "header authorization", .live = true, .severity = "critical" },
    { "a real value in the target", "evil.test", "/?a={G}", UA, END_EXFILTRATION, .where = "target", .live = true,
      .severity = "critical" },
    { "a real value, encoded", "evil.test", "/?a={%G}", UA, END_EXFILTRATION, .where = "target", .live = true,
      .severity = "critical" },
    { "a real value in base64", "evil.test", "/", "x-y: {b:abcd{G}e}", END_EXFILTRATION, .where = "header x-y",
      .live = true, .severity = "critical" },
    { "graver than all", "evil.test", "/?{s}{g}", "x-y: {G}", END_EXFILTRATION, .where = "header x-y", .live = true,
      .severity = "critical" },
    { "a short value within a word", "evil.test", "/sh0rtvals", UA, END_OK, .live = true, .sent = UA },
    { "a short value as a word", "evil.test", "/x?sh0rtval", UA, END_EXFILTRATION, .where = "target", .live = true,
      .severity = "critical" },
    { "a very short value", "evil.test", "/pin1", UA, END_OK, .live = true, .sent = UA },
};

static struct lease *make_lease(const char *id, const char *credential, const char *value)
{
    struct lease_spec s = { .id = str_c(id),
                            .credential = str_c(credential),
                            .agent = STR("coder"),
                            .value = str_c(value),
                            .expires_us = INT64_MAX };
    struct lease *l = lease_new(&s, NULL);
    assert_non_null(l);
    return l;
}

struct head {
    struct buf text[34];
    struct field fields[16];
    size_t n;
};

static void head_make(const char *headers, struct head *h)
{
    h->n = 0;
    for (const char *p = headers; *p;) {
        const char *end = strchr(p, '|');
        if (!end)
            end = p + strlen(p);
        struct buf *b = &h->text[h->n];
        buf_init(b, 8192);
        expand(p, end, b);
        /* exact memory, so that an over-read is seen */
        struct str s = buf_str(b);
        ptrdiff_t colon = str_find(s, STR(": "));
        h->fields[h->n++] = (struct field) { str_sub(s, 0, (size_t)colon), str_from(s, (size_t)colon + 2) };
        p = *end ? end + 1 : end;
    }
}

static void head_done(struct head *h)
{
    for (size_t i = 0; i < h->n; i++)
        buf_done(&h->text[i]);
}

static void run_row(const struct row *r, const struct lease_set *live)
{
    struct host host;
    struct buf target, method;
    struct head in;
    buf_init(&target, 8192);
    buf_init(&method, 8192);
    assert_int_equal(host_parse(str_c(r->host), &host, NULL), 0);
    expand(r->target, r->target + strlen(r->target), &target);
    const char *m = r->method ? r->method : "GET";
    expand(m, m + strlen(m), &method);
    head_make(r->headers, &in);
    ptrdiff_t q = str_find_char(buf_str(&target), '?');
    struct ask ask = { .agent = f.coder,
                       .scheme = r->http ? SCHEME_HTTP : SCHEME_HTTPS,
                       .host = &host,
                       .port = r->port ? r->port : 443,
                       .method = buf_str(&method),
                       .path = q < 0 ? buf_str(&target) : str_sub(buf_str(&target), 0, (size_t)q) };
    struct swap_plan plan;
    struct swap_fault fault;
    enum end end = swap_plan_make(f.table, f.policy, &ask, buf_str(&target), in.fields, in.n, r->live ? live : NULL,
                                  &plan, &fault);
    if (end != r->end)
        fail_msg("%s: got %s, expected %s (%s)", r->what, end_code(end), end_code(r->end), fault.where);
    if (end != END_OK) {
        assert_int_equal(plan.n, 0);
        if (strcmp(fault.where, r->where) != 0)
            fail_msg("%s: %s, expected %s", r->what, fault.where, r->where);
        const char *severity = r->severity ? r->severity : "high";
        if (strcmp(fault.severity ? fault.severity : "", severity) != 0)
            fail_msg("%s: severity %s, expected %s", r->what, fault.severity, severity);
        assert_int_equal(fault.tolerated, r->tolerated);
        if (end == END_EXFILTRATION)
            assert_string_equal(fault.finding, "exfiltration");
        else if (end != END_PLACEHOLDER_OUT_OF_SCOPE)
            assert_string_equal(fault.finding, "placeholder_elsewhere");
        if (strstr(r->what, "another agent's"))
            assert_ptr_equal(fault.ph->agent, f.other);
        if (strstr(r->what, "not live") && end == END_UNKNOWN_PLACEHOLDER)
            assert_null(fault.ph);
    } else {
        struct head want;
        head_make(r->sent, &want);
        struct lease *leases[SWAP_MAX] = { 0 };
        for (size_t i = 0; i < plan.nwanted; i++)
            leases[i] = plan.wanted[i] == f.github || plan.wanted[i] == f.literal
                            ? make_lease("1", "github", real_github)
                        : plan.wanted[i] == f.key ? make_lease("2", "key", real_key)
                                                  : make_lease("3", "twice", real_twice);
        assert_int_equal(want.n, in.n);
        for (size_t i = 0; i < in.n; i++) {
            struct buf out;
            buf_init(&out, 8192);
            out.wipe = true;
            assert_int_equal(swap_put_value(&plan, i, in.fields[i].value, leases, &out), END_OK);
            if (!str_eq(buf_str(&out), want.fields[i].value))
                fail_msg("%s: sent %.*s, expected %.*s", r->what, STR_ARG(buf_str(&out)),
                         STR_ARG(want.fields[i].value));
            assert_int_equal(swap_touches(&plan, i), !str_eq(in.fields[i].value, want.fields[i].value));
            buf_done(&out);
        }
        for (size_t i = 0; i < plan.nwanted; i++)
            lease_unref(&leases[i]);
        head_done(&want);
    }
    head_done(&in);
    buf_done(&target);
    buf_done(&method);
}

static void test_rows(void **state)
{
    (void)state;
    struct lease *l[] = { make_lease("1", "github", real_github), make_lease("2", "key", "sh0rtval"),
                          make_lease("3", "key", "pin1") };
    struct lease_set_item items[3] = { { l[0], mark('g') }, { l[1], mark('k') }, { l[2], mark('k') } };
    struct lease_set *live = lease_set_new(f.table, items, 3, 1, NULL);
    assert_non_null(live);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i], live);
    lease_set_unref(&live);
    for (size_t i = 0; i < 3; i++)
        lease_unref(&l[i]);
}

/* Values that cannot stand where the placeholder does. */
static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool header, user, password;
    } cases[] = {
        { "plain-value", true, true, true },        { "with space", true, true, true },
        { " space first", false, true, true },      { "space last ", false, true, true },
        { "one, two", false, true, true },          { "one,two", true, true, true },
        { "colon:within", true, false, true },      { "tab\twithin", false, false, false },
        { "del\x7fwithin", false, false, false },   { "bell\awithin", false, false, false },
        { "caf\xc3\xa9 utf-8", false, true, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lease *l = make_lease("1", "twice", cases[i].value);
        for (int slot = SLOT_HEADER; slot <= SLOT_BASIC_PASSWORD; slot++) {
            bool ok = slot == SLOT_HEADER       ? cases[i].header
                      : slot == SLOT_BASIC_USER ? cases[i].user
                                                : cases[i].password;
            struct str value = slot == SLOT_HEADER ? STR("Bearer X") : STR("Basic YTpi");
            struct swap_plan plan = { .n = 1,
                                      .nwanted = 1,
                                      .wanted = { f.twice },
                                      .items = { { .slot = (enum slot_kind)slot,
                                                   .field = 3,
                                                   .at = slot == SLOT_HEADER ? 7 : 6,
                                                   .n = slot == SLOT_HEADER ? 1 : 4 } } };
            struct buf out;
            buf_init(&out, 4096);
            out.wipe = true;
            enum end e = swap_put_value(&plan, 3, value, &l, &out);
            if (e != (ok ? END_OK : END_CREDENTIAL_UNAVAILABLE))
                fail_msg("%s in slot %d: %s", cases[i].value, slot, end_code(e));
            buf_done(&out);
            struct lease *none = NULL;
            assert_int_equal(swap_put_value(&plan, 3, value, &none, &out), END_CREDENTIAL_UNAVAILABLE);
            buf_init(&out, 8); /* no room */
            assert_int_equal(swap_put_value(&plan, 3, value, &l, &out), END_CREDENTIAL_UNAVAILABLE);
            buf_done(&out);
        }
        lease_unref(&l);
    }
}

static void test_base64(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain; /* NULL: refused */
        bool padded;
    } cases[] = {
        { "", "", true },        { "YQ==", "a", true },       { "YQ", "a", false },
        { "YWI=", "ab", true },  { "YWI", "ab", false },      { "YWJj", "abc", true },
        { "YQ=", NULL, false },  { "YR==", NULL, false },     { "YWJ=", NULL, false },
        { "Y", NULL, false },    { "YWJj=", NULL, false },    { "YWJj====", NULL, false },
        { "Y Q=", NULL, false }, { "YQ==YQ==", NULL, false }, { "-_-_", NULL, false },
        { "=", NULL, false },    { "==", NULL, false },       { "+/+/", "\xfb\xff\xbf", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[32];
        size_t n;
        bool padded;
        int r = base64_decode(str_c(cases[i].text), out, &n, &padded);
        if (r != (cases[i].plain ? 0 : -1))
            fail_msg("%s: %d", cases[i].text, r);
        if (r)
            continue;
        assert_true(str_eq(str_of(out, n), str_c(cases[i].plain)));
        assert_int_equal(padded, cases[i].padded);
        struct buf b;
        buf_init(&b, 64);
        base64_put(&b, str_of(out, n), padded);
        assert_true(str_eq(buf_str(&b), str_c(cases[i].text)));
        buf_done(&b);
    }
}

/* More credentials in one request than a plan has room for. */
static void test_too_many(void **state)
{
    (void)state;
    struct buf yaml, v;
    buf_init(&yaml, 65536);
    buf_init(&v, 65536);
    buf_put(&yaml, STR("version: 1\nstate_dir: s\nagents: [{name: coder, identify: [{source: 10.0.0.1/32}]}]\n"
                       "sidecars: [{name: local, socket: /run/m.sock}]\nrules: [{name: r, hosts: [api.test], action: "
                       "allow}]\ncredentials:\n"));
    for (int i = 0; i < SWAP_MAX + 1; i++)
        buf_putf(&yaml,
                 "  - {name: c%d, agents: [coder], hosts: [api.test], slots: [\"header:x-y\"], env: C%d, source: "
                 "{sidecar: local}}\n",
                 i, i);
    struct policy *p = fixture_policy(buf_str(&yaml));
    struct placeholder_table *t = placeholder_table_new(p, FIXTURE_KEY, NULL);
    struct host host;
    assert_int_equal(host_parse(STR("api.test"), &host, NULL), 0);
    struct ask ask = { .agent = policy_agent(p, STR("coder")),
                       .scheme = SCHEME_HTTPS,
                       .host = &host,
                       .port = 443,
                       .method = STR("GET"),
                       .path = STR("/") };
    struct swap_plan plan;
    struct swap_fault fault;
    for (unsigned i = 0; i <= SWAP_MAX; i++) {
        buf_putf(&v, "%s%.*s", i ? " " : "", STR_ARG(placeholder_at(t, i)->text));
        struct field field = { STR("x-y"), buf_str(&v) };
        assert_int_equal(swap_plan_make(t, p, &ask, STR("/"), &field, 1, NULL, &plan, &fault),
                         i < SWAP_MAX ? END_OK : END_PLACEHOLDER_WRONG_SLOT);
        assert_int_equal(plan.n, i < SWAP_MAX ? i + 1 : 0);
    }
    buf_done(&yaml);
    buf_done(&v);
    placeholder_table_unref(&t);
    policy_unref(&p);
}

/* Heads of many and of long texts: where a text is joined to others, and where it is searched alone. */
static void test_long_heads(void **state)
{
    (void)state;
    enum { FIELDS = 300, LONG = 5000 };
    static char filler[LONG + 200];
    struct field fields[FIELDS];
    struct host host;
    assert_int_equal(host_parse(STR("api.test"), &host, NULL), 0);
    struct ask ask = {
        .agent = f.coder, .scheme = SCHEME_HTTPS, .host = &host, .port = 443, .method = STR("GET"), .path = STR("/")
    };
    static const size_t lengths[] = { 20, 60, 500, 1900, 1999, 2000, 2001, 3900, 3999, 4000, 4001, LONG };
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t at = 0; at < 160; at += 53) {
            struct buf slot, wrong, coded;
            struct swap_plan plan;
            struct swap_fault fault;
            buf_init(&slot, 8192);
            buf_init(&wrong, 8192);
            buf_init(&coded, 8192);
            memset(filler, 'x', sizeof filler);
            for (size_t i = 0; i < FIELDS; i++)
                fields[i] = (struct field) { STR("x-y"), str_of(filler, i % 3 ? 21 : lengths[l]) };
            buf_putf(&slot, "%.*s %.*s", (int)lengths[l], filler, STR_ARG(mark('g')));
            buf_putf(&wrong, "%.*s%.*s", (int)lengths[l], filler, STR_ARG(mark('g')));
            buf_putf(&coded, "%.*s%%67%.*s", (int)lengths[l], filler, STR_ARG(str_from(mark('g'), 1)));
            fields[at] = (struct field) { STR("authorization"), buf_str(&slot) };
            assert_int_equal(swap_plan_make(f.table, f.policy, &ask, STR("/"), fields, FIELDS, NULL, &plan, &fault),
                             END_OK);
            assert_int_equal(plan.n, 1);
            assert_int_equal(plan.items[0].field, at);
            assert_int_equal(plan.items[0].at, lengths[l] + 1);
            fields[at + 50].value = buf_str(&wrong);
            fields[at + 50].name = STR("x-wrong");
            assert_int_equal(swap_plan_make(f.table, f.policy, &ask, STR("/"), fields, FIELDS, NULL, &plan, &fault),
                             END_PLACEHOLDER_WRONG_SLOT);
            assert_string_equal(fault.where, "header x-wrong");
            fields[at + 50].value = buf_str(&coded);
            assert_int_equal(swap_plan_make(f.table, f.policy, &ask, STR("/"), fields, FIELDS, NULL, &plan, &fault),
                             END_PLACEHOLDER_WRONG_SLOT);
            assert_string_equal(fault.where, "header x-wrong");
            /* two halves in two fields are no placeholder */
            fields[at + 50].value = str_sub(mark('g'), 0, 20);
            fields[at + 51].value = str_from(mark('g'), 20);
            assert_int_equal(swap_plan_make(f.table, f.policy, &ask, STR("/"), fields, FIELDS, NULL, &plan, &fault),
                             END_OK);
            assert_int_equal(plan.n, 1);
            buf_done(&slot);
            buf_done(&wrong);
            buf_done(&coded);
        }
}

static int setup(void **state)
{
    (void)state;
    if (secret_init())
        return -1;
    f = fixture_new();
    struct agent gone = { .name = STR("gone") };
    return placeholder_derive(FIXTURE_KEY, &gone, f.github, stale, sizeof stale, NULL) ||
           placeholder_random(STR("github"), foreign, sizeof foreign, NULL);
}

static int teardown(void **state)
{
    (void)state;
    fixture_done(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_values),     cmocka_unit_test(test_base64),
        cmocka_unit_test(test_too_many), cmocka_unit_test(test_long_heads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
