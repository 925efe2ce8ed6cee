/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the file about the server itself: listen, resolver, origin, users, workers, audit, limits. */
#include "policy/config_read.h"

/* One of the words, or a message that lists them. The index, or -1. */
static int read_word(struct config_reader *r, const struct ynode *v, const char *a, const char *b)
{
    if (is_scalar(v) && str_eq(v->text, str_c(a)))
        return 0;
    if (is_scalar(v) && str_eq(v->text, str_c(b)))
        return 1;
    config_expected(r, v, "\"%s\" or \"%s\"", a, b);
    return -1;
}

bool read_version(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    if (!is_scalar(v) || !str_eq(v->text, STR("1")))
        return config_expected(r, v, "1");
    return true;
}

bool read_mode(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = out;
    int word = read_word(r, v, "enforce", "observe");
    c->observe = word == 1;
    return word >= 0;
}

bool read_users(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    return config_read_section(r, v, SECTION_USERS, r->c);
}

bool read_workers(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t n = 0;
    if (is_scalar(v) && str_eq(v->text, STR("auto")))
        n = 0;
    else if (!is_scalar(v) || !str_to_u64(v->text, 1024, &n) || !n)
        return config_expected(r, v, "\"auto\" or a number from 1 to 1024");
    unsigned workers = (unsigned)n;
    memcpy(out, &workers, sizeof workers);
    return true;
}

bool read_refuse_at(struct config_reader *r, const struct ynode *v, void *out)
{
    int word = read_word(r, v, "tunnel", "connect");
    bool at_connect = word == 1;
    memcpy(out, &at_connect, sizeof at_connect);
    return word >= 0;
}

/* --- listen --- */

bool read_listen(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_LISTEN, out);
}

bool read_console(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    if (is_scalar(v) && str_eq(v->text, STR("off")))
        return true;
    return config_expected(r, v, "\"off\", because the feature \"%s\" (%s) is not in this build", r->path, r->key->doc);
}

static bool read_listen_name(struct config_reader *r, const struct ynode *v, void *out)
{
    struct host h;
    bool converted = false;
    struct err err;
    struct str name;
    if (!is_scalar(v))
        return config_expected(r, v, "a name");
    if (host_parse_config(v->text, &h, &converted, &err))
        return config_error(r, v->line, v->col, "%s", err.text);
    if (converted)
        config_warning(r, v->line, v->col, "expected an A-label, got a U-label: it is read as \"%s\"", h.name);
    name = arena_str(&r->c->arena, host_str(&h));
    if (!name.p)
        return config_no_memory(r);
    memcpy(out, &name, sizeof name);
    return true;
}

bool read_listen_names(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_list(r, v, out, sizeof(struct str), 1000, read_listen_name);
}

static bool read_unix_listener(struct config_reader *r, const struct ynode *v, struct config_listener *l)
{
    struct ynode path = *v; /* the same place, without the prefix */
    path.text = str_from(v->text, sizeof "unix:" - 1);
    l->kind = LISTENER_UNIX;
    if (!path.text.n || path.text.n > 90) /* sun_path holds 107 bytes with the folder */
        return config_expected(r, v, "unix:PATH of at most 90 bytes");
    struct str checked;
    if (!read_path(r, &path, &checked))
        return false;
    while (str_starts(path.text, STR("./")))
        path.text = str_from(path.text, 2);
    l->path = arena_str(&r->c->arena, path.text);
    return l->path.p || config_no_memory(r);
}

static bool read_listener(struct config_reader *r, const struct ynode *v, void *out)
{
    static const char forms[] = "ADDR:PORT, [V6]:PORT, unix:PATH or tls:ADDR:PORT";
    struct config_listener l = { .kind = LISTENER_TCP, .at = { v->line, v->col } };
    if (!is_scalar(v))
        return config_expected(r, v, "%s", forms);
    if (str_starts(v->text, STR("vsock:")))
        return config_expected(r, v, "%s, because the feature \"vsock:\" (listening on vsock) is not in this build",
                               forms);
    l.text = arena_str(&r->c->arena, v->text);
    if (!l.text.p)
        return config_no_memory(r);
    if (str_starts(v->text, STR("unix:"))) {
        if (!read_unix_listener(r, v, &l))
            return false;
    } else {
        struct str address = v->text;
        if (str_starts(address, STR("tls:"))) {
            l.kind = LISTENER_TLS;
            address = str_from(address, 4);
        }
        if (!parse_address(address, 0, &l.ip, &l.port))
            return config_expected(r, v, "%s", forms);
    }
    memcpy(out, &l, sizeof l);
    return true;
}

static bool same_listener(const struct config_listener *a, const struct config_listener *b)
{
    if ((a->kind == LISTENER_UNIX) != (b->kind == LISTENER_UNIX))
        return false;
    return a->kind == LISTENER_UNIX ? str_eq(a->path, b->path) : ip_equal(&a->ip, &b->ip) && a->port == b->port;
}

bool read_listen_proxy(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = r->c;
    if (v->kind == YNODE_LIST && !v->n)
        return config_expected(r, v, "at least one listener");
    if (!config_read_list(r, v, out, sizeof(struct config_listener), 256, read_listener))
        return false;
    for (size_t i = 1; i < c->nproxy; i++)
        for (size_t k = 0; k < i; k++)
            if (same_listener(&c->proxy[i], &c->proxy[k]))
                return config_error(r, c->proxy[i].at.line, c->proxy[i].at.col,
                                    "expected each listener once, got \"%.*s\" again (first on line %u)",
                                    STR_ARG(c->proxy[i].text), c->proxy[k].at.line);
    return true;
}

static bool read_dns_listener(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_listener l = { .kind = LISTENER_TCP, .at = { v->line, v->col } };
    if (!is_scalar(v) || !parse_address(v->text, 53, &l.ip, &l.port))
        return config_expected(r, v, "ADDR[:PORT] or [V6]:PORT");
    l.text = arena_str(&r->c->arena, v->text);
    if (!l.text.p)
        return config_no_memory(r);
    memcpy(out, &l, sizeof l);
    return true;
}

bool read_listen_dns(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = r->c;
    if (!config_read_list(r, v, out, sizeof(struct config_listener), 64, read_dns_listener))
        return false;
    for (size_t i = 1; i < c->ndns; i++)
        for (size_t k = 0; k < i; k++)
            if (same_listener(&c->dns[i], &c->dns[k]))
                return config_error(r, c->dns[i].at.line, c->dns[i].at.col,
                                    "expected each listener once, got \"%.*s\" again (first on line %u)",
                                    STR_ARG(c->dns[i].text), c->dns[k].at.line);
    return true;
}

/* --- resolver --- */

bool read_resolver(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_RESOLVER, out);
}

/* What stands behind tls://: ADDR[:PORT]#NAME. */
static bool read_upstream_tls(struct config_reader *r, const struct ynode *v, struct str text, struct config_upstream *u)
{
    static const char form[] = "tls://ADDR[:PORT]#NAME, NAME being the host name that its certificate is for";
    ptrdiff_t mark = str_find_char(text, '#');
    struct err err;
    bool converted = false;
    u->kind = UPSTREAM_TLS;
    if (mark < 0 || str_from(text, (size_t)mark + 1).n == 0 ||
        !parse_address(str_sub(text, 0, (size_t)mark), 853, &u->ip, &u->port))
        return config_expected(r, v, "%s", form);
    if (host_parse_config(str_from(text, (size_t)mark + 1), &u->name, &converted, &err))
        return config_error(r, v->line, v->col, "expected %s, got \"%.*s\": %s", form, STR_ARG(v->text), err.text);
    if (converted)
        config_warning(r, v->line, v->col, "expected an A-label, got a U-label: it is read as \"%s\"", u->name.name);
    return true;
}

static bool read_upstream(struct config_reader *r, const struct ynode *v, void *out)
{
    static const char forms[] = "\"system\", ADDR[:PORT], tcp://ADDR[:PORT] or tls://ADDR[:PORT]#NAME";
    struct config_upstream u = { .kind = UPSTREAM_UDP, .at = { v->line, v->col } };
    if (!is_scalar(v))
        return config_expected(r, v, "%s", forms);
    struct str text = v->text;
    if (str_eq(text, STR("system"))) {
        u.kind = UPSTREAM_SYSTEM;
    } else if (str_starts(text, STR("tls://"))) {
        if (!read_upstream_tls(r, v, str_from(text, 6), &u))
            return false;
    } else {
        if (str_starts(text, STR("tcp://"))) {
            u.kind = UPSTREAM_TCP;
            text = str_from(text, 6);
        }
        if (!parse_address(text, 53, &u.ip, &u.port))
            return config_expected(r, v, "%s", forms);
    }
    memcpy(out, &u, sizeof u);
    return true;
}

bool read_upstreams(struct config_reader *r, const struct ynode *v, void *out)
{
    if (v->kind == YNODE_LIST && !v->n)
        return config_expected(r, v, "at least one upstream");
    return config_read_list(r, v, out, sizeof(struct config_upstream), 16, read_upstream);
}

static bool read_ip(struct config_reader *r, const struct ynode *v, void *out)
{
    if (!is_scalar(v) || ip_parse(v->text, out))
        return config_expected(r, v, "an IP address");
    return true;
}

static bool read_host_entry(struct config_reader *r, const struct ynode *v, struct config_host_entry *e)
{
    struct err err;
    bool converted = false;
    if (host_parse_config(v->key, &e->host, &converted, &err))
        return config_error(r, v->key_line, v->key_col, "%s", err.text);
    if (host_is_ip(&e->host))
        return config_error(r, v->key_line, v->key_col, "expected a name, got an address");
    if (converted)
        config_warning(r, v->key_line, v->key_col, "expected an A-label, got a U-label: it is read as \"%s\"",
                       e->host.name);
    if (v->kind != YNODE_LIST || !v->n)
        return config_expected(r, v, "a list of addresses");
    return config_read_list(r, v, &e->ips, sizeof *e->ips, 64, read_ip);
}

bool read_resolver_hosts(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = r->c;
    (void)out;
    bool ok = true;
    if (v->kind != YNODE_MAP)
        return config_expected(r, v, "a map of names to lists of addresses");
    if (v->n > 10000)
        return config_error(r, v->line, v->col, "expected at most 10000 names, got %zu", v->n);
    c->hosts = arena_alloc(&c->arena, (v->n + 1) * sizeof *c->hosts);
    if (!c->hosts)
        return config_no_memory(r);
    for (const struct ynode *n = v->first; n; n = n->next) {
        struct config_host_entry *e = &c->hosts[c->nhosts];
        *e = (struct config_host_entry) { 0 };
        if (!read_host_entry(r, n, e)) {
            ok = false;
            continue;
        }
        for (size_t i = 0; i < c->nhosts; i++)
            if (host_eq(&c->hosts[i].host, &e->host))
                ok =
                    config_error(r, n->key_line, n->key_col, "expected each name once, got \"%s\" again", e->host.name);
        c->nhosts++;
    }
    return ok;
}

bool read_dns_answer(struct config_reader *r, const struct ynode *v, void *out)
{
    int word = read_word(r, v, "synthetic", "forward");
    bool forward = word == 1;
    memcpy(out, &forward, sizeof forward);
    return word >= 0;
}

bool read_synthetic(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_SYNTHETIC, out);
}

static bool read_ip_of(struct config_reader *r, const struct ynode *v, uint8_t family, void *out)
{
    static const struct ip any;
    struct ip ip;
    if (!is_scalar(v) || ip_parse(v->text, &ip) || ip.family != family || memcmp(ip.b, any.b, sizeof any.b) == 0)
        return config_expected(r, v, family == 4 ? "an IPv4 address, as 10.77.0.1" : "an IPv6 address, as fd77::1");
    memcpy(out, &ip, sizeof ip);
    return true;
}

bool read_ipv4(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_ip_of(r, v, 4, out);
}

bool read_ipv6(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_ip_of(r, v, 6, out);
}

/* --- origin --- */

bool read_origin(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_ORIGIN, out);
}

static bool read_ca_file(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_ca_file f = { .at = { v->line, v->col } };
    if (is_scalar(v) && str_eq(v->text, STR("system"))) {
        f.system = true;
        f.path = STR("system");
    } else if (!read_path(r, v, &f.path)) {
        return false;
    }
    memcpy(out, &f, sizeof f);
    return true;
}

bool read_ca_files(struct config_reader *r, const struct ynode *v, void *out)
{
    if (v->kind == YNODE_LIST && !v->n)
        return config_expected(r, v, "\"system\" or at least one file (without roots no server can be verified)");
    return config_read_list(r, v, out, sizeof(struct config_ca_file), 64, read_ca_file);
}

bool read_parent(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    r->c->parent_proxy.given = true;
    r->c->parent_proxy.at = (struct config_at) { v->line, v->col };
    return config_read_section(r, v, SECTION_PARENT, r->c);
}

bool read_parent_address(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = out;
    struct err err;
    if (!is_scalar(v))
        return config_expected(r, v, "HOST:PORT");
    if (authority_parse(v->text, 0, &c->parent_proxy.host, &c->parent_proxy.port, &err))
        return config_error(r, v->line, v->col, "%s", err.text);
    return true;
}

bool read_parent_resolve(struct config_reader *r, const struct ynode *v, void *out)
{
    int word = read_word(r, v, "self", "parent");
    bool parent = word == 1;
    memcpy(out, &parent, sizeof parent);
    return word >= 0;
}

/* --- audit --- */

bool read_audit(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = r->c;
    (void)out;
    if (!config_read_section(r, v, SECTION_AUDIT, c))
        return false;
    if (c->audit.max_bytes / 2 < c->audit.segment_bytes)
        return config_error(r, v->line, v->col, "expected max_bytes of at least two segments, got less");
    return true;
}

bool read_keep(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t ms = 0;
    if (!is_scalar(v) || !parse_duration(v->text, &ms) || ms > (uint64_t)36500 * 86400000)
        return config_expected(r, v, "a duration, as 90d");
    memcpy(out, &ms, sizeof ms);
    return true;
}

bool read_sync(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config *c = out;
    uint64_t ms = 0;
    if (is_scalar(v) && str_eq(v->text, STR("always"))) {
        c->audit.sync_always = true;
        return true;
    }
    if (!is_scalar(v) || !parse_duration(v->text, &ms) || !ms || ms > 60000)
        return config_expected(r, v, "\"always\" or a duration from 1ms to 1m");
    c->audit.sync_ms = ms;
    return true;
}

bool read_queries(struct config_reader *r, const struct ynode *v, void *out)
{
    int word = read_word(r, v, "redact", "keep");
    bool kept = word == 1;
    memcpy(out, &kept, sizeof kept);
    return word >= 0;
}

/* --- limits --- */

static void read_limit(struct config_reader *r, const struct ynode *v, const struct limit_desc *d,
                       struct limits *limits)
{
    static const char *const as[] = { [LIMIT_COUNT] = "a number", [LIMIT_BYTES] = "a size", [LIMIT_MS] = "a duration" };
    static const char *const unit[] = { [LIMIT_COUNT] = "", [LIMIT_BYTES] = " bytes", [LIMIT_MS] = " ms" };
    uint64_t n = 0;
    bool ok = is_scalar(v);
    if (ok && d->kind == LIMIT_COUNT)
        ok = str_to_u64(v->text, UINT64_MAX, &n);
    else if (ok && d->kind == LIMIT_BYTES)
        ok = parse_size(v->text, &n);
    else if (ok)
        ok = parse_duration(v->text, &n);
    if (!ok || n < d->min || n > d->max)
        config_expected(r, v, "%s from %llu to %llu%s", as[d->kind], (unsigned long long)d->min,
                        (unsigned long long)d->max, unit[d->kind]);
    else
        memcpy((char *)limits + d->offset, &n, sizeof n);
}

bool read_limits(struct config_reader *r, const struct ynode *v, void *out)
{
    size_t errors = r->diag->errors;
    if (v->kind != YNODE_MAP)
        return config_expected(r, v, "a map");
    for (const struct ynode *n = v->first; n; n = n->next) {
        const struct limit_desc *d = limit_table;
        while (d->name && !str_eq(n->key, str_c(d->name)))
            d++;
        if (!d->name) {
            char shown[64];
            config_error(r, n->key_line, n->key_col,
                         "expected the name of a limit (docs/CONFIG.md lists them), got \"%s\"",
                         str_escape(n->key, shown, sizeof shown));
            continue;
        }
        size_t cut = strlen(r->path);
        snprintf(r->path + cut, sizeof r->path - cut, ".%s", d->name);
        if (!ynode_is_null(n))
            read_limit(r, n, d, out);
        r->path[cut] = 0;
    }
    return r->diag->errors == errors;
}
