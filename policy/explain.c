/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate explain`: the same functions that decide, asked one by one, with the line of the file that made each step.
 */
#include "base/buf.h"
#include "policy/policy_impl.h"

static void put_at(struct buf *out, const struct policy *p, struct config_at at)
{
    buf_putf(out, " (%.*s:%u:%u)\n", STR_ARG(p->config->file), at.line, at.col);
}

/* Outside bytes, printable. */
static void put_text(struct buf *out, struct str s)
{
    char shown[600];
    buf_putf(out, "%s", str_escape(s, shown, sizeof shown));
}

static const char *scheme_name(enum scheme s)
{
    return s == SCHEME_HTTPS ? "https" : s == SCHEME_HTTP ? "http" : "scheme not known yet,";
}

static const char *fit_words(enum fit fit, bool expired, bool tunnel)
{
    if (tunnel && fit == FIT_PORT)
        return "no: other ports, or a rule before it depends on the request";
    switch (fit) {
    case FIT_NO:
        return expired ? "no: it has expired" : "no: it is for other agents";
    case FIT_PORT:
        return "no: other ports or schemes";
    case FIT_METHOD:
        return "no: other methods";
    case FIT_PATH:
        return "no: other paths";
    case FIT_YES:
        break;
    }
    return "yes";
}

static const char *action_name(enum rule_action a)
{
    switch (a) {
    case RULE_ALLOW:
        return "allow";
    case RULE_ASK:
        return "ask";
    case RULE_TUNNEL:
        return "tunnel";
    case RULE_DENY:
        break;
    }
    return "deny";
}

static void put_request(const struct policy *p, const struct ask *ask, struct buf *out)
{
    buf_putf(out, "agent %.*s", STR_ARG(ask->agent->name));
    put_at(out, p, ask->agent->at);
    buf_putf(out, "request ");
    put_text(out, ask->method);
    buf_putf(out, " %s ", scheme_name(ask->scheme));
    authority_put(out, ask->host, ask->port, 0);
    buf_putf(out, " ");
    put_text(out, ask->path);
    buf_putf(out, "\n");
}

/* tunnel: the rule that takes the connection at CONNECT; NULL: none does. */
static void put_rules(const struct policy *p, const struct ask *ask, const struct rule *tunnel, struct buf *out)
{
    struct id_walk walk;
    uint32_t id;
    size_t seen = 0;
    id_walk_start(&walk, p->rule_index, ask->host);
    while (id_walk_next(&walk, &id)) {
        const struct rule *rule = &p->config->rules[id];
        enum fit fit = rule_fit(p, rule, ask);
        bool expired = rule->expires_us && ask->now_us >= rule->expires_us;
        seen++;
        const char *words = rule == tunnel ? "yes: the bytes of a CONNECT go through unread" : fit_words(fit, expired, rule->action == RULE_TUNNEL);
        buf_putf(out, "rule %.*s [%s]: %s", STR_ARG(rule->name), action_name(rule->action), words);
        put_at(out, p, rule->at);
        if (fit == FIT_YES || rule == tunnel)
            break;
    }
    if (!seen)
        buf_putf(out, "rules: none of %zu names this host\n", p->config->nrules);
}

static void put_verdict(const struct policy *p, const struct ask *ask, const struct verdict *at_connect, struct buf *out)
{
    static const char *const names[] = {
        [VERDICT_DENY] = "deny",       [VERDICT_ALLOW] = "allow",   [VERDICT_ASK] = "ask",
        [VERDICT_OBSERVE] = "observe", [VERDICT_TUNNEL] = "tunnel",
    };
    struct verdict v;
    if (at_connect)
        v = *at_connect;
    else
        policy_eval(p, ask, &v);
    buf_putf(out, "verdict %s", names[v.kind]);
    if (v.code != END_OK)
        buf_putf(out, " %s: %s", end_code(v.code), end_sentence(v.code));
    if (v.rule) {
        buf_putf(out, ", by rule %.*s", STR_ARG(v.rule->name));
        put_at(out, p, v.rule->at);
    } else if (v.near) {
        buf_putf(out, ", nearest is rule %.*s", STR_ARG(v.near->name));
        put_at(out, p, v.near->at);
    } else {
        buf_putf(out, "\n");
    }
    if (v.code != END_OK)
        buf_putf(out, "hint %s\n", end_hint(v.code));
}

static void put_credentials(const struct policy *p, const struct ask *ask, struct buf *out)
{
    const struct credential *found[64];
    size_t n = policy_credentials(p, ask->agent, ask->host, found, sizeof found / sizeof *found);
    for (size_t i = 0; i < n && i < sizeof found / sizeof *found; i++) {
        enum end scope = policy_credential_scope(p, found[i], ask);
        buf_putf(out, "credential %.*s: %s", STR_ARG(found[i]->name),
                 scope == END_OK ? "swapped where its placeholder stands in one of its slots" : end_code(scope));
        put_at(out, p, found[i]->at);
    }
    if (!n)
        buf_putf(out, "credentials: none for this agent and host\n");
}

int policy_explain(const struct policy *p, const struct ask *ask, struct buf *out)
{
    if (!ask->agent || !ask->host)
        return -1;
    put_request(p, ask, out);
    struct verdict v = { 0 };
    bool tunnel = ask->scheme != SCHEME_HTTP && policy_tunnels(p, ask, &v); /* http comes in absolute form, without a CONNECT */
    bool connect = str_eq(ask->method, STR("CONNECT")) && !ask->path.n;
    if (connect && !tunnel)
        policy_eval_connect(p, ask->agent, ask->host, ask->port, ask->now_us, &v);
    if (connect && !tunnel && v.kind == VERDICT_ALLOW)
        buf_putf(out, "connect: intercepted; rules decide about each request in it, with its method and path\n");
    else
        put_rules(p, ask, tunnel ? v.rule : NULL, out);
    put_verdict(p, ask, tunnel || connect ? &v : NULL, out);
    if (tunnel)
        buf_putf(out, "credentials: a tunnel is not read, so none is swapped in it\n");
    else
        put_credentials(p, ask, out);
    return out->failed ? -1 : 0;
}
