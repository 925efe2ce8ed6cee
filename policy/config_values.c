/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers for the kinds of values that several sections share. */
#include "policy/config_read.h"

#include "policy/host_pattern.h"
#include "policy/path_pattern.h"

#include <stdio.h>

enum { TEXT_MAX = 4096, LIST_MAX = 100000 };

bool is_scalar(const struct ynode *v)
{
    return v->kind == YNODE_SCALAR && !ynode_is_null(v);
}

static bool keep(struct config_reader *r, struct str text, struct str *out)
{
    *out = arena_str(&r->c->arena, text);
    return out->p || config_no_memory(r);
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* Digits and a unit of the table, at most max; no sign, fraction or space. */
static bool parse_scaled(struct str text, const struct unit *units, uint64_t *ret)
{
    size_t digits = 0;
    while (digits < text.n && ascii_digit(text.p[digits]))
        digits++;
    uint64_t v = 0;
    if (!str_to_u64(str_sub(text, 0, digits), UINT64_MAX, &v))
        return false;
    for (const struct unit *u = units; u->name; u++)
        if (str_eq(str_from(text, digits), str_c(u->name)))
            return !__builtin_mul_overflow(v, u->factor, ret);
    return false;
}

bool parse_duration(struct str text, uint64_t *ret_ms)
{
    static const struct unit units[] = { { "ms", 1 },      { "s", 1000 },     { "m", 60000 },
                                         { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 } };
    if (str_eq(text, STR("0"))) {
        *ret_ms = 0;
        return true;
    }
    return parse_scaled(text, units, ret_ms);
}

bool parse_size(struct str text, uint64_t *ret_bytes)
{
    static const struct unit units[] = { { "", 1 },
                                         { "B", 1 },
                                         { "KiB", (uint64_t)1 << 10 },
                                         { "MiB", (uint64_t)1 << 20 },
                                         { "GiB", (uint64_t)1 << 30 },
                                         { "TiB", (uint64_t)1 << 40 },
                                         { NULL, 0 } };
    return parse_scaled(text, units, ret_bytes);
}

bool read_bool(struct config_reader *r, const struct ynode *v, void *out)
{
    bool yes = is_scalar(v) && v->plain && str_eq(v->text, STR("true"));
    if (!yes && !(is_scalar(v) && v->plain && str_eq(v->text, STR("false"))))
        return config_expected(r, v, "true or false");
    memcpy(out, &yes, sizeof yes);
    return true;
}

bool read_text(struct config_reader *r, const struct ynode *v, void *out)
{
    if (!is_scalar(v) || v->text.n > TEXT_MAX)
        return config_expected(r, v, "a text of at most %d bytes", TEXT_MAX);
    for (size_t i = 0; i < v->text.n; i++)
        if ((unsigned char)v->text.p[i] < 0x20 || v->text.p[i] == 0x7f)
            return config_expected(r, v, "a text without control characters");
    return keep(r, v->text, out);
}

bool read_name(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = is_scalar(v) && v->text.n && v->text.n <= CONFIG_NAME_MAX;
    for (size_t i = 0; ok && i < v->text.n; i++) {
        char c = v->text.p[i];
        ok = ascii_alpha(c) || ascii_digit(c) || (c != 0 && strchr("._-", c) && (i || c == '_'));
    }
    if (!ok)
        return config_expected(r, v, "a name of at most 64 letters, digits, \".\", \"_\" and \"-\"");
    return keep(r, v->text, out);
}

static bool not_empty(struct config_reader *r, const struct ynode *v, const char *what)
{
    if (v->kind == YNODE_LIST && v->n)
        return true;
    const char *more = r->key->flags & KEY_REQUIRED ? "" : " (leave the key out for its default)";
    return config_expected(r, v, "a list of %s%s", what, more);
}

bool read_names(struct config_reader *r, const struct ynode *v, void *out)
{
    struct name_list *list = out;
    list->given = true;
    if (!not_empty(r, v, "names") || !config_read_list(r, v, out, sizeof *list->v, LIST_MAX, read_name))
        return false;
    list->at = arena_alloc(&r->c->arena, list->n * sizeof *list->at);
    if (!list->at)
        return config_no_memory(r);
    size_t i = 0;
    for (const struct ynode *n = v->first; n; n = n->next)
        list->at[i++] = (struct config_at) { n->line, n->col };
    return true;
}

bool read_path(struct config_reader *r, const struct ynode *v, void *out)
{
    if (!is_scalar(v) || !v->text.n || v->text.n > 4000)
        return config_expected(r, v, "a path");
    for (size_t i = 0; i < v->text.n; i++) {
        char c = v->text.p[i], next = i + 1 < v->text.n ? v->text.p[i + 1] : 0;
        if ((unsigned char)c < 0x20 || c == 0x7f)
            return config_expected(r, v, "a path without control characters");
        if (c == '$' && (next == '{' || next == '_' || ascii_alpha(next)))
            return config_expected(r, v, "a path as it is (variables are not expanded)");
    }
    if (v->text.p[0] == '~')
        return config_expected(r, v, "a path as it is (\"~\" is not expanded)");
    struct str rel = v->text, *to = out;
    if (rel.p[0] == '/')
        return keep(r, rel, to);
    while (str_starts(rel, STR("./")))
        rel = str_from(rel, 2);
    *to = arena_printf(&r->c->arena, "%.*s/%.*s", STR_ARG(r->c->dir), STR_ARG(rel));
    return to->p || config_no_memory(r);
}

bool read_variable(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = is_scalar(v) && v->text.n && v->text.n <= 128 && !ascii_digit(v->text.p[0]);
    for (size_t i = 0; ok && i < v->text.n; i++)
        ok = ascii_alpha(v->text.p[i]) || ascii_digit(v->text.p[i]) || v->text.p[i] == '_';
    if (!ok)
        return config_expected(r, v, "the name of an environment variable");
    return keep(r, v->text, out);
}

bool read_timeout(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t ms = 0;
    if (!is_scalar(v) || !parse_duration(v->text, &ms) || !ms || ms > (uint64_t)7 * 86400000)
        return config_expected(r, v, "a duration from 1ms to 7d, as 500ms, 8s, 15m");
    memcpy(out, &ms, sizeof ms);
    return true;
}

bool read_bytes(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t n = 0;
    if (!is_scalar(v) || !parse_size(v->text, &n) || n < 65536 || n > (uint64_t)1 << 50)
        return config_expected(r, v, "a size of at least 64KiB, as 64KiB, 256MiB, 20GiB");
    memcpy(out, &n, sizeof n);
    return true;
}

bool read_uid(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t n = 0;
    if (!is_scalar(v) || !str_to_u64(v->text, UINT32_MAX - 1, &n))
        return config_expected(r, v, "a numeric user id");
    memcpy(out, &n, sizeof n);
    return true;
}

static bool read_host_pattern(struct config_reader *r, const struct ynode *v, void *out)
{
    struct host_pattern p = { 0 };
    bool converted = false;
    struct err err;
    if (!is_scalar(v))
        return config_expected(r, v, "a host pattern");
    if (host_pattern_parse(v->text, &p, &converted, &err))
        return config_error(r, v->line, v->col, "%s", err.text);
    if (converted)
        config_warning(r, v->line, v->col, "expected an A-label, got a U-label: it is read as \"%s\"", p.host.name);
    p.at = (struct config_at) { v->line, v->col };
    memcpy(out, &p, sizeof p);
    return true;
}

bool read_host_patterns(struct config_reader *r, const struct ynode *v, void *out)
{
    return not_empty(r, v, "host patterns") &&
           config_read_list(r, v, out, sizeof(struct host_pattern), LIST_MAX, read_host_pattern);
}

static bool read_path_pattern(struct config_reader *r, const struct ynode *v, void *out)
{
    struct err err;
    if (!is_scalar(v))
        return config_expected(r, v, "a path pattern");
    if (path_pattern_parse(v->text, &r->c->arena, out, &err))
        return config_error(r, v->line, v->col, "%s", err.text);
    return true;
}

bool read_paths(struct config_reader *r, const struct ynode *v, void *out)
{
    return not_empty(r, v, "path patterns") &&
           config_read_list(r, v, out, sizeof(struct path_pattern), LIST_MAX, read_path_pattern);
}

static bool read_port(struct config_reader *r, const struct ynode *v, void *out)
{
    uint64_t n = 0;
    if (!is_scalar(v) || !str_to_u64(v->text, 65535, &n) || !n || v->text.p[0] == '0')
        return config_expected(r, v, "a port from 1 to 65535");
    uint16_t port = (uint16_t)n;
    memcpy(out, &port, sizeof port);
    return true;
}

bool read_ports(struct config_reader *r, const struct ynode *v, void *out)
{
    return not_empty(r, v, "ports") && config_read_list(r, v, out, sizeof(uint16_t), 65535, read_port);
}

static bool read_method(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = is_scalar(v) && v->text.n && v->text.n <= 32;
    for (size_t i = 0; ok && i < v->text.n; i++)
        ok = ascii_tchar(v->text.p[i]) && v->text.p[i] != '*' && !(v->text.p[i] >= 'a' && v->text.p[i] <= 'z');
    if (!ok)
        return config_expected(r, v, "a method in upper case, as GET (methods are case-sensitive)");
    return keep(r, v->text, out);
}

bool read_methods(struct config_reader *r, const struct ynode *v, void *out)
{
    struct name_list *list = out;
    list->given = true;
    return not_empty(r, v, "methods") && config_read_list(r, v, out, sizeof *list->v, 64, read_method);
}

static bool read_cidr(struct config_reader *r, const struct ynode *v, void *out)
{
    if (!is_scalar(v) || cidr_parse(v->text, out))
        return config_expected(r, v, "an address or prefix without host bits, as 10.0.0.0/8 or fd00::/8");
    return true;
}

bool read_cidrs(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_list(r, v, out, sizeof(struct cidr), LIST_MAX, read_cidr);
}

bool parse_address(struct str text, uint16_t dflt, struct ip *ret_ip, uint16_t *ret_port)
{
    struct host h;
    uint16_t port = dflt;
    struct ip bare;
    if (dflt && !ip_parse(text, &bare)) { /* a bare IPv6 address */
        *ret_ip = bare;
        *ret_port = dflt;
        return true;
    }
    if (authority_parse(text, dflt, &h, &port, NULL) || !host_is_ip(&h))
        return false;
    ptrdiff_t end = text.p[0] == '[' ? str_find_char(text, ']') : str_find_char(text, ':');
    struct str literal = text.p[0] == '[' ? str_sub(text, 1, (size_t)(end - 1))
                         : end < 0        ? text
                                          : str_sub(text, 0, (size_t)end);
    if (ip_parse(literal, &bare)) /* 127.1 and the like are not for configurations */
        return false;
    *ret_ip = h.ip;
    *ret_port = port;
    return true;
}

bool read_later(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    if (v->kind != YNODE_SCALAR && !v->n)
        return true;
    return config_expected(r, v, "no value yet, because the feature \"%s\" (%s) is not in this build", r->path,
                           r->key->doc);
}
