/* SPDX-License-Identifier: Apache-2.0
 *
 * rules: what may go where. A deny rule that names no scheme or port denies all of them: an operator who writes "deny
 * this host" must not leave its port 80 to a later, wider rule. */
#include "policy/config_read.h"

#include "base/clock.h"

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
        return config_expected(r, v, "allow, deny or ask, because the feature \"action: tunnel\" is not in this build");
    else if (!is_scalar(v) || !str_eq(v->text, STR("deny")))
        return config_expected(r, v, "allow, deny or ask");
    memcpy(out, &action, sizeof action);
    return true;
}

/* The key only says something about tunnels; its default is harmless without them. */
bool read_rule_tls(struct config_reader *r, const struct ynode *v, void *out)
{
    (void)out;
    if (is_scalar(v) && str_eq(v->text, STR("required")))
        return true;
    return config_expected(r, v, "\"required\", because the feature \"action: tunnel\" is not in this build");
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

static bool read_rule(struct config_reader *r, const struct ynode *v, void *out)
{
    struct rule rule = { .at = { v->line, v->col } };
    r->path[0] = 0;
    if (v->kind != YNODE_MAP) {
        snprintf(r->path, sizeof r->path, "rules");
        return config_expected(r, v, "a map with name, hosts and action");
    }
    bool ok = config_read_section(r, v, SECTION_RULE, &rule);
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
