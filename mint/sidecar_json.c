/* SPDX-License-Identifier: Apache-2.0
 *
 * What is wiped: every block that jansson frees (tokens, strings, grown buffers: it never uses realloc) goes through
 * wiping_free. What is not: registers and stack slots of its lexer while it runs, which hold a few bytes at a time. */
#include "mint/sidecar_json.h"

#include "base/clock.h"
#include "base/json.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

enum { NESTING_MAX = 16 };

static void wiping_free(void *p)
{
    if (!p)
        return;
    secret_wipe(p, malloc_usable_size(p));
    free(p);
}

/* Before main, so that nothing was allocated under other functions. malloc itself stays, so a block from before would
 * do. */
__attribute__((constructor)) static void set_allocator(void)
{
    json_set_alloc_funcs(malloc, wiping_free);
}

/* --- writing --- */

bool sidecar_json_utf8(struct str s)
{
    /* RFC 3629 4: length by the first byte, its smallest value, no surrogates, nothing past U+10FFFF. */
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i++];
        if (c < 0x80)
            continue;
        unsigned more = c >= 0xf0 && c <= 0xf4 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
        if (!more || s.n - i < more)
            return false;
        uint32_t v = more == 3 ? c & 7u : more == 2 ? c & 15u : c & 31u;
        for (unsigned k = 0; k < more; k++) {
            unsigned char d = (unsigned char)s.p[i++];
            if ((d & 0xc0) != 0x80)
                return false;
            v = v << 6 | (d & 63u);
        }
        if ((more == 2 && (v < 0x800 || (v >= 0xd800 && v < 0xe000))) || (more == 3 && (v < 0x10000 || v > 0x10ffff)))
            return false;
    }
    return true;
}

static void put_member(struct buf *out, const char *key, struct str value)
{
    buf_putf(out, ",\"%s\":", key);
    json_put_str(out, value);
}

static void put_path(struct buf *out, struct str path)
{
    buf_putf(out, ",\"path\":\"");
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c <= 0x20 || c >= 0x7f)
            buf_putf(out, "%%%02X", (unsigned)c);
        else {
            if (c == '"' || c == '\\')
                buf_putc(out, '\\');
            buf_putc(out, (char)c);
        }
    }
    buf_putc(out, '"');
}

static const char *const reason_names[] = { "first", "refresh", "rejected" };

int sidecar_json_put_ask(struct buf *out, const struct sidecar_ask *a)
{
    if (!sidecar_json_utf8(a->credential) || !sidecar_json_utf8(a->agent) || !sidecar_json_utf8(a->host) ||
        !sidecar_json_utf8(a->request_id) || !sidecar_json_utf8(a->method))
        return -1;
    buf_putf(out, "{\"version\":1");
    put_member(out, "credential", a->credential);
    put_member(out, "agent", a->agent);
    put_member(out, "host", a->host);
    buf_putf(out, ",\"port\":%u", (unsigned)a->port);
    put_member(out, "method", a->method);
    put_path(out, a->path);
    put_member(out, "request_id", a->request_id);
    put_member(out, "reason", str_c(reason_names[a->reason]));
    buf_putf(out, ",\"min_ttl_s\":%u}", (unsigned)a->min_ttl_s);
    return out->failed ? -1 : 0;
}

static void put_list(struct buf *out, bool *first, const char *key, const struct name_list *l)
{
    if (!l->given)
        return;
    buf_putf(out, "%s\"%s\":[", *first ? "" : ",", key);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            buf_putc(out, ',');
        json_put_str(out, l->v[i]);
    }
    buf_putc(out, ']');
    *first = false;
}

int sidecar_json_put_grant(struct buf *out, struct str request_id, const struct sidecar_grant *g)
{
    char at[28];
    bool first = true;
    if (!sidecar_json_utf8(g->value))
        return -1;
    buf_putf(out, "{\"request_id\":");
    json_put_str(out, request_id);
    put_member(out, "lease_id", g->lease_id);
    put_member(out, "expires_at", str_c(clock_format_us(g->expires_us, at)));
    if (g->refresh_us)
        put_member(out, "refresh_after", str_c(clock_format_us(g->refresh_us, at)));
    put_member(out, "value", g->value);
    if (g->hosts.given || g->methods.given || g->paths.given) {
        buf_putf(out, ",\"scope\":{");
        put_list(out, &first, "hosts", &g->hosts);
        put_list(out, &first, "methods", &g->methods);
        put_list(out, &first, "paths", &g->paths);
        buf_putc(out, '}');
    }
    buf_putc(out, '}');
    return out->failed ? -1 : 0;
}

/* --- reading --- */

/* jansson parses by recursion: what nests deeper than any message of ours is refused before it. */
static bool nests_too_deep(struct str body)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < body.n; i++) {
        char c = body.p[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{') && ++depth > NESTING_MAX)
            return true;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return false;
}

static json_t *load_object(struct str body, const char **ret_why)
{
    json_error_t error;
    if (nests_too_deep(body)) {
        *ret_why = "the body nests too deep";
        return NULL;
    }
    json_t *j = json_loadb(body.p ? body.p : "", body.n, JSON_REJECT_DUPLICATES, &error);
    enum json_error_code code = j ? json_error_unknown : json_error_code(&error);
    secret_wipe(&error, sizeof error); /* it quotes what it did not like */
    if (!j) {
        *ret_why = code == json_error_duplicate_key ? "a key stands twice" : "the body is not JSON";
        return NULL;
    }
    if (!json_is_object(j)) {
        *ret_why = "expected one JSON object";
        json_decref(j);
        return NULL;
    }
    return j;
}

/* 1: there, 0: absent, -1: not a string. */
static int get_string(const json_t *j, const char *key, struct str *ret)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return 0;
    if (!json_is_string(v))
        return -1;
    *ret = str_of(json_string_value(v), json_string_length(v));
    return 1;
}

static int get_integer(const json_t *j, const char *key, json_int_t min, json_int_t max, json_int_t *ret)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return -1;
    *ret = json_integer_value(v);
    return 1;
}

static const char *read_ask(const json_t *j, struct sidecar_ask *a)
{
    json_int_t version = 0, port = 0, ttl = SIDECAR_MIN_TTL_S;
    struct str reason = STR("first");
    if (get_integer(j, "version", 1, 1, &version) != 1)
        return "version: expected 1";
    if (get_string(j, "credential", &a->credential) != 1 || !a->credential.n || a->credential.n > LEASE_NAME_MAX)
        return "credential: expected a name";
    if (get_string(j, "agent", &a->agent) != 1 || !a->agent.n || a->agent.n > LEASE_NAME_MAX)
        return "agent: expected a name";
    if (get_string(j, "host", &a->host) != 1 || !a->host.n || a->host.n > HOST_MAX)
        return "host: expected a host";
    if (get_integer(j, "port", 1, 65535, &port) != 1)
        return "port: expected 1 to 65535";
    if (get_string(j, "method", &a->method) < 0 || get_string(j, "path", &a->path) < 0)
        return "method, path: expected strings";
    if (get_string(j, "request_id", &a->request_id) != 1 || !a->request_id.n || a->request_id.n > LEASE_ID_MAX)
        return "request_id: expected 1 to 128 characters";
    if (get_string(j, "reason", &reason) < 0 || get_integer(j, "min_ttl_s", 0, 86400, &ttl) < 0)
        return "reason, min_ttl_s: expected first, refresh or rejected, and seconds";
    for (size_t i = 0; i < sizeof reason_names / sizeof *reason_names; i++)
        if (str_eq(reason, str_c(reason_names[i]))) {
            a->reason = (enum lease_reason)i;
            a->port = (uint16_t)port;
            a->min_ttl_s = (uint32_t)ttl;
            return NULL;
        }
    return "reason: expected first, refresh or rejected";
}

int sidecar_json_read_ask(struct str body, struct sidecar_question *ret, const char **ret_why)
{
    struct sidecar_question q = { 0 };
    json_t *j = load_object(body, ret_why);
    if (!j)
        return -1;
    const char *why = read_ask(j, &q.ask);
    if (why) {
        json_decref(j);
        *ret_why = why;
        return -1;
    }
    q.json = j;
    *ret = q;
    return 0;
}

void sidecar_json_free(void **json)
{
    json_decref(*json); /* NULL is fine */
    *json = NULL;
}

void sidecar_question_done(struct sidecar_question *q)
{
    sidecar_json_free(&q->json);
    *q = (struct sidecar_question) { 0 };
}

const char *sidecar_value_fault(struct str value, bool allow_short)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return "the value has a line feed, a NUL or another control character";
    }
    if (!allow_short && value.n < SIDECAR_VALUE_SHORT)
        return "the value is shorter than 16 bytes (allow_short lifts this)";
    return lease_value_ok(value) ? NULL : "the value is too short or too long to be used";
}

static const char *read_list(const json_t *scope, const char *key, struct str *room, size_t *used,
                             struct name_list *ret)
{
    const json_t *v = json_object_get(scope, key);
    if (!v)
        return NULL;
    if (!json_is_array(v) || json_array_size(v) > LEASE_SCOPE_ENTRIES)
        return "scope: expected lists of at most 256 strings";
    *ret = (struct name_list) { .v = room + *used, .given = true };
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *s = json_array_get(v, i);
        if (!json_is_string(s) || !json_string_length(s))
            return "scope: expected lists of at most 256 strings";
        ret->v[ret->n++] = str_of(json_string_value(s), json_string_length(s));
    }
    *used += ret->n;
    return NULL;
}

static const char *read_scope(const json_t *j, struct sidecar_grant *g)
{
    const json_t *scope = json_object_get(j, "scope");
    if (!scope)
        return NULL;
    if (!json_is_object(scope))
        return "scope: expected an object";
    size_t known = 0, used = 0;
    static const char *const keys[] = { "hosts", "methods", "paths" };
    for (size_t i = 0; i < 3; i++)
        known += json_object_get(scope, keys[i]) != NULL;
    if (known != json_object_size(scope))
        return "scope: only hosts, methods and paths are understood";
    g->lists = calloc((size_t)3 * LEASE_SCOPE_ENTRIES, sizeof *g->lists);
    if (!g->lists)
        return "no memory";
    const char *why = read_list(scope, "hosts", g->lists, &used, &g->hosts);
    if (!why)
        why = read_list(scope, "methods", g->lists, &used, &g->methods);
    if (!why)
        why = read_list(scope, "paths", g->lists, &used, &g->paths);
    return why;
}

static const char *read_grant(const json_t *j, struct str request_id, bool allow_short, struct sidecar_grant *g)
{
    struct str echo = STR_NONE, time = STR_NONE;
    if (get_string(j, "request_id", &echo) != 1 || !str_eq(echo, request_id))
        return "request_id: the answer is to another request";
    if (get_string(j, "lease_id", &g->lease_id) != 1 || !lease_id_ok(g->lease_id))
        return "lease_id: expected 1 to 128 of [A-Za-z0-9._-]";
    if (json_object_get(j, "fields"))
        return "fields: only signing slots use them, and this build has none; expected value";
    if (get_string(j, "value", &g->value) != 1)
        return "value: expected a string";
    const char *why = sidecar_value_fault(g->value, allow_short);
    if (why)
        return why;
    if (get_string(j, "expires_at", &time) != 1 || clock_parse_rfc3339(time.p, time.n, &g->expires_us))
        return "expires_at: expected an RFC 3339 time";
    int r = get_string(j, "refresh_after", &time);
    if (r < 0 || (r && clock_parse_rfc3339(time.p, time.n, &g->refresh_us)))
        return "refresh_after: expected an RFC 3339 time";
    return read_scope(j, g);
}

int sidecar_json_read_grant(struct str body, struct str request_id, bool allow_short, struct sidecar_grant *ret,
                            const char **ret_why)
{
    struct sidecar_grant g = { 0 };
    if (body.n > SIDECAR_BODY_MAX) {
        *ret_why = "the answer is over 64 KiB";
        return -1;
    }
    json_t *j = load_object(body, ret_why);
    if (!j)
        return -1;
    g.json = j;
    const char *why = read_grant(j, request_id, allow_short, &g);
    if (why) {
        sidecar_grant_done(&g);
        *ret_why = why;
        return -1;
    }
    *ret = g;
    return 0;
}

void sidecar_grant_done(struct sidecar_grant *g)
{
    sidecar_json_free(&g->json);
    free(g->lists);
    *g = (struct sidecar_grant) { 0 };
}

int sidecar_json_read_revoke(struct str body, struct str *ret_lease_id, struct str *ret_credential, void **ret_json)
{
    const char *why;
    struct str id = STR_NONE, credential = STR_NONE;
    json_t *j = load_object(body, &why);
    if (!j)
        return -1;
    int has_id = get_string(j, "lease_id", &id), has_credential = get_string(j, "credential", &credential);
    bool fits = json_object_size(j) == 1 && has_id + has_credential == 1 && has_id >= 0 && has_credential >= 0 &&
                (has_id ? lease_id_ok(id) : credential.n && credential.n <= LEASE_NAME_MAX);
    if (!fits) {
        json_decref(j);
        return -1;
    }
    *ret_lease_id = id;
    *ret_credential = credential;
    *ret_json = j;
    return 0;
}
