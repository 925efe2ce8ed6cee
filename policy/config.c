/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to struct config: the document, the walk by the keyword table, and where messages go. What each value
 * looks like is in config_values.c and in config_parse_*.c, one file per part of the file. */
#include "policy/config_read.h"

#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIAG_LINES_MAX = 500, DIAG_BYTES_MAX = 1024 * 1024, CONFIG_ARENA_MAX = 512 * 1024 * 1024 };

void diag_init(struct diag *d)
{
    *d = (struct diag) { 0 };
    arena_init(&d->arena, DIAG_BYTES_MAX);
}

void diag_done(struct diag *d)
{
    arena_done(&d->arena);
    free(d->lines);
    *d = (struct diag) { 0 };
}

__attribute__((format(printf, 4, 0))) static void diag_put(struct diag *d, bool error, struct config_at at,
                                                           const char *format, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) /* one line, whatever the file's name holds */
            *p = '?';
    if (error)
        d->errors++; /* also when there is no room for the words */
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 16;
        struct diag_line *lines = cap > 2 * DIAG_LINES_MAX ? NULL : realloc(d->lines, cap * sizeof *lines);
        if (!lines)
            return;
        d->lines = lines;
        d->cap = cap;
    }
    struct str copy = d->n < DIAG_LINES_MAX ? arena_str(&d->arena, str_c(text)) : STR_NONE;
    if (copy.p)
        d->lines[d->n++] = (struct diag_line) { .error = error, .at = at, .text = copy };
}

void diag_add(struct diag *d, bool error, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    diag_put(d, error, (struct config_at) { 0, 0 }, format, ap);
    va_end(ap);
}

void diag_add_at(struct diag *d, bool error, struct config_at at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    diag_put(d, error, at, format, ap);
    va_end(ap);
}

static bool stands_before(struct config_at a, struct config_at b)
{
    return a.line != b.line ? a.line < b.line : a.col < b.col;
}

/* By insertion: there are DIAG_LINES_MAX at most, nearly in order. */
void diag_sort(struct diag *d)
{
    for (size_t i = 1; i < d->n; i++) {
        struct diag_line line = d->lines[i];
        size_t k = i;
        for (; k > 0 && stands_before(line.at, d->lines[k - 1].at); k--)
            d->lines[k] = d->lines[k - 1];
        d->lines[k] = line;
    }
}

bool config_error(struct config_reader *r, unsigned line, unsigned col, const char *format, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    diag_add_at(r->diag, true, (struct config_at) { line, col }, "%.*s:%u:%u: %s: %s", STR_ARG(r->c->file), line, col,
                r->path[0] ? r->path : "file", text);
    return false;
}

void config_warning(struct config_reader *r, unsigned line, unsigned col, const char *format, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    diag_add_at(r->diag, false, (struct config_at) { line, col }, "%.*s:%u:%u: %s: %s", STR_ARG(r->c->file), line, col,
                r->path[0] ? r->path : "file", text);
}

static const char *describe(const struct config_reader *r, const struct ynode *v, char *out, size_t size)
{
    char shown[72];
    if (v->kind == YNODE_MAP)
        snprintf(out, size, "%s map", v->n ? "a" : "an empty");
    else if (v->kind == YNODE_LIST)
        snprintf(out, size, "%s list", v->n ? "a" : "an empty");
    else if (ynode_is_null(v))
        snprintf(out, size, "nothing");
    else if (r->hide)
        snprintf(out, size, "a text (not shown: it may be secret)");
    else
        snprintf(out, size, "\"%s\"", str_escape(v->text, shown, sizeof shown));
    return out;
}

bool config_expected(struct config_reader *r, const struct ynode *v, const char *format, ...)
{
    char text[500], got[100];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return config_error(r, v->line, v->col, "expected %s, got %s", text, describe(r, v, got, sizeof got));
}

bool config_no_memory(struct config_reader *r)
{
    return config_error(r, 1, 1, "expected enough memory, got none");
}

static const struct config_key *key_find(enum config_section section, struct str name)
{
    for (const struct config_key *k = config_key_table; k->name; k++)
        if (k->section == section && str_eq(name, str_c(k->name)))
            return k;
    return NULL;
}

/* Edit distance at most 2, for "did you mean": names are short. */
static unsigned distance(struct str a, struct str b)
{
    enum { MAX = 24 };
    unsigned row[MAX + 1];
    if (a.n > MAX || b.n > MAX)
        return MAX;
    for (unsigned j = 0; j <= b.n; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a.n; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            unsigned best = diagonal + (a.p[i - 1] != b.p[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b.n];
}

static void unknown_key(struct config_reader *r, const struct ynode *v, enum config_section section)
{
    const char *near = NULL;
    unsigned best = 3;
    size_t n = 0;
    char known[300];
    for (const struct config_key *k = config_key_table; k->name; k++) {
        if (k->section != section)
            continue;
        unsigned d = distance(v->key, str_c(k->name));
        if (d < best) {
            best = d;
            near = k->name;
        }
        int wrote = snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", k->name);
        if (wrote > 0 && (size_t)wrote < sizeof known - n)
            n += (size_t)wrote;
        else
            known[n] = 0;
    }
    if (section == SECTION_SOURCE)
        config_error(
            r, v->key_line, v->key_col,
            "expected one of %s, because the feature \"inline minters\" is not in this build, got an unknown key",
            known);
    else if (near)
        config_error(r, v->key_line, v->key_col, "expected a known key (did you mean \"%s\"?), got an unknown one",
                     near);
    else
        config_error(r, v->key_line, v->key_col, "expected one of %s, got an unknown key", known);
}

/* Appends ".name" to the path of messages; returns what to cut it back to. */
static size_t path_push(struct config_reader *r, struct str name)
{
    size_t n = strlen(r->path);
    char shown[64];
    snprintf(r->path + n, sizeof r->path - n, "%s%s", n ? "." : "", str_escape(name, shown, sizeof shown));
    return n;
}

static void read_key(struct config_reader *r, const struct ynode *v, const struct config_key *k, void *obj)
{
    bool hide = r->hide;
    r->hide = hide || k->flags & KEY_PRIVATE;
    r->key = k;
    if (!ynode_is_null(v))
        k->read(r, v, (char *)obj + k->offset);
    else if (k->flags & KEY_REQUIRED)
        config_expected(r, v, "a value");
    r->hide = hide;
}

bool config_read_section(struct config_reader *r, const struct ynode *v, enum config_section section, void *obj)
{
    size_t errors = r->diag->errors;
    bool null = ynode_is_null(v);
    if (!null && v->kind != YNODE_MAP)
        return config_expected(r, v, "a map");
    for (const struct ynode *n = null ? NULL : v->first; n; n = n->next) {
        const struct config_key *k = key_find(section, n->key);
        size_t cut = path_push(r, n->key);
        if (k)
            read_key(r, n, k, obj);
        else
            unknown_key(r, n, section);
        r->path[cut] = 0;
    }
    for (const struct config_key *k = config_key_table; k->name; k++) {
        if (k->section != section || !(k->flags & KEY_REQUIRED) || (!null && ynode_get(v, str_c(k->name))))
            continue;
        size_t cut = path_push(r, str_c(k->name));
        config_error(r, v->line, v->col, "expected this key, got nothing");
        r->path[cut] = 0;
    }
    return r->diag->errors == errors;
}

struct any_list {
    void *v;
    size_t n;
};

bool config_read_list(struct config_reader *r, const struct ynode *v, void *out, size_t item_size, size_t max,
                      bool (*item)(struct config_reader *r, const struct ynode *v, void *out))
{
    struct any_list list = { 0 };
    bool ok = true;
    if (v->kind != YNODE_LIST)
        return config_expected(r, v, "a list");
    if (v->n > max)
        return config_error(r, v->line, v->col, "expected at most %zu items, got %zu", max, v->n);
    if (v->n && !(list.v = arena_alloc(&r->c->arena, v->n * item_size)))
        return config_no_memory(r);
    for (const struct ynode *n = v->first; n; n = n->next) {
        if (item(r, n, (char *)list.v + list.n * item_size))
            list.n++;
        else
            ok = false;
    }
    memcpy(out, &list, sizeof list);
    return ok;
}

static bool defaults(struct config_reader *r)
{
    struct config *c = r->c;
    c->ask_hold_ms = 8000;
    c->audit.segment_bytes = (uint64_t)256 << 20;
    c->audit.max_bytes = (uint64_t)20 << 30;
    c->audit.keep_ms = (uint64_t)90 * 86400 * 1000;
    c->audit.sync_ms = 1000;
    c->exfiltration.zone_bits = c->exfiltration.zone_refill = 1024;
    c->exfiltration.agent_bits = 8192;
    c->exfiltration.agent_zones = 64;
    c->exfiltration.any_bits = 65536;
    limits_default(&c->limits);
    c->state_dir = arena_printf(&c->arena, "%.*s/state", STR_ARG(c->dir));
    c->proxy = arena_alloc(&c->arena, sizeof *c->proxy);
    c->upstreams = arena_alloc(&c->arena, sizeof *c->upstreams);
    c->ca_files = arena_alloc(&c->arena, sizeof *c->ca_files);
    if (!c->state_dir.p || !c->proxy || !c->upstreams || !c->ca_files)
        return config_no_memory(r);
    c->proxy[c->nproxy++] = (struct config_listener) {
        .kind = LISTENER_TCP, .text = STR("127.0.0.1:3128"), .ip = { 4, { 127, 0, 0, 1 } }, .port = 3128
    };
    c->upstreams[c->nupstreams++] = (struct config_upstream) { .kind = UPSTREAM_SYSTEM };
    c->ca_files[c->nca_files++] = (struct config_ca_file) { .system = true, .path = STR("system") };
    return true;
}

static int str_order(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static bool collect_side_files(struct config_reader *r)
{
    struct config *c = r->c;
    size_t max = c->nca_files + 1, n = 0;
    for (size_t i = 0; i < c->nagents; i++)
        max += c->agents[i].nclaims;
    struct str *v = arena_alloc(&c->arena, max * sizeof *v);
    if (!v)
        return config_no_memory(r);
    for (size_t i = 0; i < c->nca_files; i++)
        v[n++] = c->ca_files[i].path;
    if (c->parent_proxy.login_file.p)
        v[n++] = c->parent_proxy.login_file;
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++)
            if (c->agents[i].claims[k].token_file.p)
                v[n++] = c->agents[i].claims[k].token_file;
    if (n)
        qsort(v, n, sizeof *v, str_order);
    for (size_t i = 0; i < n; i++)
        if (!c->nside_files || !str_eq(v[c->nside_files - 1], v[i]))
            v[c->nside_files++] = v[i];
    c->side_files = v;
    return true;
}

static void read_document(struct config_reader *r, struct str text)
{
    struct ydoc_fault fault;
    struct ydoc *doc = ydoc_parse(text, CONFIG_MAX, &fault);
    if (!doc) {
        snprintf(r->path, sizeof r->path, "%s", fault.key[0] ? fault.key : "yaml");
        config_error(r, fault.line, fault.col, "%s", fault.err.text);
        return;
    }
    const struct ynode *root = ydoc_root(doc);
    if (!root || ynode_is_null(root))
        config_error(r, 1, 1, "expected a map that starts with \"version: 1\", got an empty file");
    else
        config_read_section(r, root, SECTION_TOP, r->c);
    ydoc_free(doc);
}

struct config *config_parse(struct str file, struct str dir, struct str text, struct diag *diag)
{
    struct config *c = calloc(1, sizeof *c);
    if (!c) {
        diag_add(diag, true, "%.*s:1:1: file: expected enough memory, got none", STR_ARG(file));
        return NULL;
    }
    arena_init(&c->arena, CONFIG_ARENA_MAX);
    struct config_reader r = { .c = c, .diag = diag };
    size_t errors = diag->errors;
    c->file = arena_str(&c->arena, file);
    c->dir = arena_str(&c->arena, dir);
    SHA256((const unsigned char *)(text.p ? text.p : ""), text.n, c->sha256);
    if (!c->file.p || !c->dir.p)
        config_no_memory(&r);
    else if (defaults(&r))
        read_document(&r, text);
    if (diag->errors == errors)
        collect_side_files(&r);
    if (diag->errors == errors)
        return c;
    config_free(c);
    return NULL;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    arena_done(&c->arena);
    free(c);
}

void config_side_files(const struct config *c, void (*cb)(void *ctx, struct str path), void *ctx)
{
    for (size_t i = 0; i < c->nside_files; i++)
        cb(ctx, c->side_files[i]);
}

static bool is_wild(const struct ip *ip)
{
    for (size_t i = 0; i < (ip->family == 4 ? 4 : 16); i++)
        if (ip->b[i])
            return false;
    return true;
}

static bool is_loopback(const struct ip *ip)
{
    static const struct ip v6 = { .family = 6, .b = { [15] = 1 } };
    return ip->family == 4 ? ip->b[0] == 127 : ip_equal(ip, &v6);
}

bool config_listener_hears(const struct config_listener *l, const struct ip *ip, uint16_t port)
{
    return l->kind != LISTENER_UNIX && l->port == port &&
           (ip_equal(&l->ip, ip) || (is_wild(&l->ip) && l->ip.family == ip->family && (is_loopback(ip) || is_wild(ip))));
}

struct str config_listener_path(const struct config_listener *l, struct str runtime_dir, struct arena *a)
{
    if (str_starts(l->path, STR("/")))
        return arena_str(a, l->path);
    return arena_printf(a, "%.*s/%.*s", STR_ARG(runtime_dir), STR_ARG(l->path));
}
