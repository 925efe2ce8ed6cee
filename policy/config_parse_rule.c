/* SPDX-License-Identifier: Apache-2.0
 *
 * rules: what may go where. A deny rule that names no scheme or port denies all of them: an operator who writes "deny
 * this host" must not leave its port 80 to a later, wider rule. */
#include "policy/config_read.h"

#include "base/clock.h"
#include "policy/dns_type.h"

enum { RULES_MAX = 100000, RULE_NAME_MAX = 128 };

bool read_rule_name(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = is_scalar(v) && v->text.n && v->text.n <= RULE_NAME_MAX && v->text.p[0] != ' ';
    for (size_t i = 0; ok && i < v->text.n; i++)
        ok = v->text.p[i] >= 0x20 && v->text.p[i] < 0x7f && v->text.p[i] != '"' && v->text.p[i] != '\\';
    struct str name = ok ? arena_str(&r->c->arena, v->text) : STR_NONE;
    if (!ok)
        return config_expected(r, v, "a name of at most 128 printable ASCII characters without quotes");
    if (!name.p)
        return config_no_memory(r);
    memcpy(out, &name, sizeof name);
    return true;
}

static bool read_scheme(struct config_reader *r, const struct ynode *v, void *out)
{
    bool http = is_scalar(v) && str_eq(v->text, STR("http"));
    if (!http && !(is_scalar(v) && str_eq(v->text, STR("https"))))
        return config_expected(r, v, "https or http");
    memcpy(out, &http, sizeof http);
    return true;
}

bool read_schemes(struct config_reader *r, const struct ynode *v, void *out)
{
    struct rule *rule = out;
    struct {
        bool *v;
        size_t n;
    } list = { 0 };
    if (v->kind != YNODE_LIST || !v->n)
        return config_expected(r, v, "a list of https and http");
    if (!config_read_list(r, v, &list, sizeof(bool), 2, read_scheme))
        return false;
    for (size_t i = 0; i < list.n; i++) {
        if (list.v[i])
            rule->http = true;
        else
            rule->https = true;
    }
    return true;
}

bool read_action(struct config_reader *r, const struct ynode *v, void *out)
{
    enum rule_action action = RULE_DENY;
    if (is_scalar(v) && str_eq(v->text, STR("allow")))
        action = RULE_ALLOW;
    else if (is_scalar(v) && str_eq(v->text, STR("ask")))
        action = RULE_ASK;
    else if (is_scalar(v) && str_eq(v->text, STR("tunnel")))
        action = RULE_TUNNEL;
    else if (!is_scalar(v) || !str_eq(v->text, STR("deny")))
        return config_expected(r, v, "allow, deny, ask or tunnel");
    memcpy(out, &action, sizeof action);
    return true;
}

static bool read_dns_type(struct config_reader *r, const struct ynode *v, void *out)
{
    uint16_t type = 0;
    if (!is_scalar(v) || !dns_type_parse(v->text, &type) || !dns_type_listable(type))
        return config_expected(r, v, "%s", dns_type_listables);
    memcpy(out, &type, sizeof type);
    return true;
}

bool read_dns_types(struct config_reader *r, const struct ynode *v, void *out)
{
    if (v->kind == YNODE_LIST && !v->n)
        return config_expected(r, v, "at least one record type");
    return config_read_list(r, v, out, sizeof(uint16_t), 16, read_dns_type);
}

bool read_rule_tls(struct config_reader *r, const struct ynode *v, void *out)
{
    bool none = is_scalar(v) && str_eq(v->text, STR("none"));
    if (!none && !(is_scalar(v) && str_eq(v->text, STR("required"))))
        return config_expected(r, v, "required or none");
    memcpy(out, &none, sizeof none);
    return true;
}

bool read_rule_ech(struct config_reader *r, const struct ynode *v, void *out)
{
    bool pass = is_scalar(v) && str_eq(v->text, STR("pass"));
    if (!pass && !(is_scalar(v) && str_eq(v->text, STR("refuse"))))
        return config_expected(r, v, "refuse or pass");
    memcpy(out, &pass, sizeof pass);
    return true;
}

bool read_timeouts(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_TIMEOUTS, out);
}

bool read_expires(struct config_reader *r, const struct ynode *v, void *out)
{
    int64_t us = 0;
    if (!is_scalar(v) || clock_parse_rfc3339(v->text.p, v->text.n, &us) || us <= 0)
        return config_expected(r, v, "an RFC 3339 time, as 2026-01-31T18:00:00Z");
    memcpy(out, &us, sizeof us);
    return true;
}

void rule_defaults(struct rule *rule)
{
    if (rule->https || rule->http)
        return;
    rule->https = true;
    rule->http = rule->action == RULE_DENY;
}

/* A key that says something about requests, of which a tunnel shows none. */
static bool no_request_key(struct config_reader *r, const struct ynode *v, const char *key)
{
    const struct ynode *n = ynode_get(v, str_c(key));
    if (!n || ynode_is_null(n))
        return true;
    snprintf(r->path, sizeof r->path, "%s", key);
    config_expected(r, n, "no %s with action: tunnel, which shows no requests (leave the key out, or write action: allow)", key);
    r->path[0] = 0;
    return false;
}

/* What the keys of a rule say together. */
static bool rule_agrees(struct config_reader *r, const struct ynode *v, const struct rule *rule)
{
    bool ok = true;
    const struct ynode *tls = ynode_get(v, STR("tls")), *schemes = ynode_get(v, STR("schemes")), *ech = ynode_get(v, STR("ech"));
    if (rule->action == RULE_TUNNEL) {
        ok &= no_request_key(r, v, "methods");
        ok &= no_request_key(r, v, "paths");
        if (rule->http && schemes) {
            snprintf(r->path, sizeof r->path, "schemes");
            config_expected(r, schemes, "no http with action: tunnel (what is no TLS is tunnelled with tls: none, on the ports listed)");
            ok = false;
        }
    } else if (rule->tls_none && tls) {
        snprintf(r->path, sizeof r->path, "tls");
        config_expected(r, tls, "required, because tls: none belongs to action: tunnel");
        ok = false;
    }
    if (rule->ech_passes && ech && (rule->action != RULE_TUNNEL || rule->tls_none)) {
        snprintf(r->path, sizeof r->path, "ech");
        config_expected(r, ech, "refuse, because ech: pass belongs to action: tunnel with tls: required");
        ok = false;
    }
    r->path[0] = 0;
    return ok;
}

static bool read_rule(struct config_reader *r, const struct ynode *v, void *out)
{
    struct rule rule = { .at = { v->line, v->col } };
    r->path[0] = 0;
    if (v->kind != YNODE_MAP) {
        snprintf(r->path, sizeof r->path, "rules");
        return config_expected(r, v, "a map with name, hosts and action");
    }
    bool ok = config_read_section(r, v, SECTION_RULE, &rule) && rule_agrees(r, v, &rule);
    rule_defaults(&rule);
    memcpy(out, &rule, sizeof rule);
    return ok;
}

bool read_rules(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = config_read_list(r, v, out, sizeof(struct rule), RULES_MAX, read_rule);
    for (size_t i = 0; ok && i < r->c->nrules; i++)
        r->c->rules[i].index = (unsigned)i;
    return ok;
}
