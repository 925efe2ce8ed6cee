/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials and sidecars: what placeholders become, where that may go, and who says the value. */
#include "policy/config_read.h"

enum { CREDENTIALS_MAX = 10000, SLOTS_MAX = 16, OCCURRENCES_MAX = 16, SIDECARS_MAX = 256, EXEC_MAX = 64 };

/* A slot in one of these would change what the message is, not who sends it. */
static bool header_is_framing(struct str name)
{
    static const char *const names[] = {
        "host",        "content-length", "transfer-encoding", "connection", "keep-alive",
        "te",          "trailer",        "upgrade",           "expect",     "http2-settings",
        "date",        "range",          "accept-encoding",   "if-range",   "content-encoding",
        "max-forwards"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_eq(name, str_c(names[i])))
            return true;
    return str_starts(name, STR("proxy-"));
}

static bool read_header_slot(struct config_reader *r, const struct ynode *v, struct slot *slot)
{
    char lower[64];
    struct str name = str_from(v->text, sizeof "header:" - 1);
    bool ok = name.n && name.n <= sizeof lower;
    for (size_t i = 0; ok && i < name.n; i++) {
        lower[i] = ascii_lower(name.p[i]);
        ok = ascii_tchar(lower[i]);
    }
    if (!ok)
        return config_expected(r, v, "header:NAME with the name of a header field");
    if (header_is_framing(str_of(lower, name.n)))
        return config_expected(r, v, "a header field that is not part of the framing");
    slot->kind = SLOT_HEADER;
    slot->name = arena_str(&r->c->arena, str_of(lower, name.n));
    return slot->name.p || config_no_memory(r);
}

static bool read_slot(struct config_reader *r, const struct ynode *v, void *out)
{
    static const char *const later[] = { "query:", "path", "cookie:", "form:", "json:", "multipart:", "sigv4", "hmac", "jwt", "client_cert" };
    struct slot slot = { 0 };
    if (!is_scalar(v))
        return config_expected(r, v, "header:NAME, basic:user, basic:password or websocket");
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (str_starts(v->text, str_c(later[i])))
            return config_expected(
                r, v,
                "header:NAME, basic:user, basic:password or websocket, because the feature \"slot %s\" is not in this "
                "build",
                later[i]);
    if (str_eq(v->text, STR("basic:user")))
        slot.kind = SLOT_BASIC_USER;
    else if (str_eq(v->text, STR("basic:password")))
        slot.kind = SLOT_BASIC_PASSWORD;
    else if (str_eq(v->text, STR("websocket")))
        slot.kind = SLOT_WEBSOCKET;
    else if (!str_starts(v->text, STR("header:")))
        return config_expected(r, v, "header:NAME, basic:user, basic:password or websocket");
    else if (!read_header_slot(r, v, &slot))
        return false;
    memcpy(out, &slot, sizeof slot);
    return true;
}

bool read_slots(struct config_reader *r, const struct ynode *v, void *out)
{
    struct {
        struct slot *v;
        size_t n;
    } list = { 0 };
    if (v->kind != YNODE_LIST || !v->n)
        return config_expected(r, v, "a list of header:NAME, basic:user, basic:password, websocket");
    if (!config_read_list(r, v, &list, sizeof(struct slot), SLOTS_MAX, read_slot))
        return false;
    for (size_t i = 1; i < list.n; i++)
        for (size_t k = 0; k < i; k++)
            if (list.v[i].kind == list.v[k].kind && str_eq(list.v[i].name, list.v[k].name))
                return config_expected(r, v, "each slot once");
    memcpy(out, &list, sizeof list);
    return true;
}

bool read_occurrences(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t n = 0;
    if (!is_scalar(v) || !str_to_u64(v->text, OCCURRENCES_MAX, &n) || !n)
        return config_expected(r, v, "a number from 1 to %d", OCCURRENCES_MAX);
    unsigned max = (unsigned)n;
    memcpy(out, &max, sizeof max);
    return true;
}

/* --- source --- */

static void set_source(struct credential *c, enum source_kind kind, const struct ynode *v)
{
    c->source = kind;
    c->source_at = (struct config_at) { v->line, v->col };
}

bool read_source_sidecar(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential *c = out;
    set_source(c, SOURCE_SIDECAR, v);
    return read_name(r, v, &c->source_text);
}

bool read_source_env(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential *c = out;
    set_source(c, SOURCE_ENV, v);
    return read_variable(r, v, &c->source_text);
}

bool read_source_file(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential *c = out;
    set_source(c, SOURCE_FILE, v);
    return read_path(r, v, &c->source_text);
}

bool read_source_exec(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential *c = out;
    set_source(c, SOURCE_EXEC, v);
    if (v->kind != YNODE_LIST || !v->n)
        return config_expected(r, v, "a list: the command and its arguments");
    if (!config_read_list(r, v, &c->exec, sizeof *c->exec, EXEC_MAX, read_text))
        return false;
    if (!c->exec[0].n)
        return config_expected(r, v->first, "a command");
    /* A command with a slash is a path like any other; one without is looked up by whoever runs it. */
    return str_find_char(c->exec[0], '/') < 0 || read_path(r, v->first, &c->exec[0]);
}

static const char one_source[] = "a map with exactly one of sidecar, env, file, exec";

/* Which came, in the order of the file. */
static bool many_sources(struct config_reader *r, const struct ynode *v)
{
    char names[160], key[40];
    size_t n = 0;
    for (const struct ynode *k = v->first; k && n < sizeof names; k = k->next)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", k == v->first ? "" : k->next ? ", " : " and ",
                              str_escape(k->key, key, sizeof key));
    return config_error(r, v->line, v->col, "expected %s, got %s", one_source, names);
}

bool read_source(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential *c = out;
    if (v->kind == YNODE_MAP && v->n > 1)
        return many_sources(r, v);
    if (v->kind == YNODE_MAP && v->n == 1 && ynode_is_null(v->first))
        return config_error(r, v->line, v->col, "expected %s, got one without a value", one_source);
    if (v->kind != YNODE_MAP || v->n != 1)
        return config_expected(r, v, "%s", one_source);
    return config_read_section(r, v, SECTION_SOURCE, c);
}

/* --- one credential --- */

static bool fill_ports(struct config_reader *r, struct credential *c)
{
    if (c->nports) {
        c->ports_given = true;
        return true;
    }
    c->ports = arena_alloc(&r->c->arena, 2 * sizeof *c->ports);
    if (!c->ports)
        return config_no_memory(r);
    c->ports[c->nports++] = 443;
    if (c->allow_plain_http)
        c->ports[c->nports++] = 80;
    return true;
}

static bool check_hosts(struct config_reader *r, const struct credential *c)
{
    bool ok = true;
    snprintf(r->path, sizeof r->path, "hosts");
    for (size_t i = 0; i < c->nhosts; i++)
        if (c->hosts[i].kind == PATTERN_ANY)
            ok = config_error(
                r, c->hosts[i].at.line, c->hosts[i].at.col,
                "expected an exact name or a \"*.\" suffix, got \"*\" (a credential must not go anywhere)");
    r->path[0] = 0;
    return ok;
}

static bool read_credential(struct config_reader *r, const struct ynode *v, void *out)
{
    struct credential c = { .at = { v->line, v->col }, .max_occurrences = 1, .max_ttl_ms = 15 * 60 * 1000 };
    r->path[0] = 0;
    if (v->kind != YNODE_MAP) {
        snprintf(r->path, sizeof r->path, "credentials");
        r->hide = true;
        config_expected(r, v, "a map with name, agents, hosts, slots and source");
        r->hide = false;
        return false;
    }
    bool ok = config_read_section(r, v, SECTION_CREDENTIAL, &c);
    ok = check_hosts(r, &c) && fill_ports(r, &c) && ok;
    memcpy(out, &c, sizeof c);
    return ok;
}

bool read_credentials(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = config_read_list(r, v, out, sizeof(struct credential), CREDENTIALS_MAX, read_credential);
    for (size_t i = 0; ok && i < r->c->ncredentials; i++)
        r->c->credentials[i].index = (unsigned)i;
    return ok;
}

/* --- sidecars --- */

bool read_peer_uid(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_sidecar *s = out;
    s->peer_uid_given = true;
    return read_uid(r, v, &s->peer_uid);
}

static bool read_sidecar(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_sidecar s = { .timeout_ms = 5000, .at = { v->line, v->col } };
    r->path[0] = 0;
    if (v->kind != YNODE_MAP) {
        snprintf(r->path, sizeof r->path, "sidecars");
        return config_expected(r, v, "a map with name and socket");
    }
    bool ok = config_read_section(r, v, SECTION_SIDECAR, &s);
    memcpy(out, &s, sizeof s);
    return ok;
}

bool read_sidecars(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_list(r, v, out, sizeof(struct config_sidecar), SIDECARS_MAX, read_sidecar);
}
