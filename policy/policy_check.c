/* SPDX-License-Identifier: Apache-2.0
 *
 * What parsing one value at a time could not see. Errors are mistakes that would widen what passes or make a part of
 * the file mean nothing; warnings are rules that can never decide and hosts shared with strangers. */
#include "policy/path_pattern.h"
#include "policy/policy_impl.h"
#include "policy/shared_suffix.h"

#include <libpsl.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLACEHOLDER_MIN = 20, PLACEHOLDER_DISTINCT = 10, LITERALS_MAX = 2048, SHADOW_WORK_MAX = 4000000 };

/* --- names --- */

enum { KNOWN_SHOWN = 240 };

/* Those there are, as many as fit; what is too long ends in "...". */
struct known {
    char text[KNOWN_SHOWN];
    size_t n;
};

static void known_add(struct known *k, struct str name)
{
    static const char more[] = ", ...";
    if (k->n + 2 + name.n + sizeof more <= sizeof k->text)
        k->n += (size_t)snprintf(k->text + k->n, sizeof k->text - k->n, "%s%.*s", k->n ? ", " : "", STR_ARG(name));
    else if (strcmp(k->text + k->n, more) != 0)
        memcpy(k->text + k->n, more, sizeof more);
}

static void check_agent_names(const struct policy *p, struct diag *diag, const struct name_list *names)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < names->n; i++) {
        struct known known = { .n = 0 };
        if (policy_agent(p, names->v[i]))
            continue;
        for (size_t k = 0; k < c->nagents; k++)
            known_add(&known, c->agents[k].name);
        policy_error(p, diag, names->at[i], "agents: expected the name of an agent (%s%s), got \"%.*s\"",
                     known.n ? "one of " : "there is none", known.text, STR_ARG(names->v[i]));
    }
}

struct named {
    struct str name;
    struct config_at at;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int c = str_cmp(x->name, y->name);
    return c ? c : x->at.line != y->at.line ? (x->at.line < y->at.line ? -1 : 1) : (x->at.col < y->at.col ? -1 : 1);
}

static void check_unique(const struct policy *p, struct diag *diag, const char *what, struct named *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof *v, by_name);
    for (size_t i = 1; i < n; i++)
        if (str_eq(v[i].name, v[i - 1].name))
            policy_error(p, diag, v[i].at, "name: expected each %s once, got \"%.*s\" again (first on line %u)", what,
                         STR_ARG(v[i].name), v[i - 1].at.line);
}

static void check_names(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    size_t max = c->nagents + c->nrules + c->ncredentials + c->nsidecars + 1;
    struct named *v = calloc(max, sizeof *v);
    if (!v) {
        policy_error(p, diag, (struct config_at) { 1, 1 }, "file: expected enough memory, got none");
        return;
    }
    for (size_t i = 0; i < c->nagents; i++)
        v[i] = (struct named) { c->agents[i].name, c->agents[i].at };
    check_unique(p, diag, "agent", v, c->nagents);
    for (size_t i = 0; i < c->nrules; i++)
        v[i] = (struct named) { c->rules[i].name, c->rules[i].at };
    check_unique(p, diag, "rule", v, c->nrules);
    for (size_t i = 0; i < c->ncredentials; i++)
        v[i] = (struct named) { c->credentials[i].name, c->credentials[i].at };
    check_unique(p, diag, "credential", v, c->ncredentials);
    for (size_t i = 0; i < c->nsidecars; i++)
        v[i] = (struct named) { c->sidecars[i].name, c->sidecars[i].at };
    check_unique(p, diag, "sidecar", v, c->nsidecars);
    free(v);
}

/* --- side files --- */

static void check_side_files(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < c->nca_files; i++) {
        const struct config_ca_file *f = &c->ca_files[i];
        if (f->system)
            continue; /* whoever verifies has the system roots at hand, and refuses to start without */
        struct str bytes = policy_side_file(p, f->path);
        if (!bytes.p)
            policy_error(p, diag, f->at, "origin.ca_file: expected a readable file, got none at \"%.*s\"",
                         STR_ARG(f->path));
        else if (str_find(bytes, STR("-----BEGIN CERTIFICATE-----")) < 0 &&
                 str_find(bytes, STR("-----BEGIN TRUSTED CERTIFICATE-----")) < 0)
            policy_error(p, diag, f->at, "origin.ca_file: expected certificates in PEM, got none in \"%.*s\"",
                         STR_ARG(f->path));
    }
    struct str login = c->parent_proxy.login_file;
    if (!login.p)
        return;
    struct str bytes = policy_side_file(p, login);
    if (str_ends(bytes, STR("\n")))
        bytes.n--;
    bool ok = bytes.p && str_find_char(bytes, ':') > 0;
    for (size_t i = 0; i < bytes.n; i++)
        ok = ok && (unsigned char)bytes.p[i] >= 0x20 && bytes.p[i] != 0x7f;
    if (!ok)
        policy_error(p, diag, c->parent_proxy.at,
                     "origin.parent_proxy.login_file: expected one line USER:PASSWORD in \"%.*s\", got something else",
                     STR_ARG(login));
}

/* --- suffixes --- */

/* Under such a suffix anyone can have a name: a TLD, a registry's suffix, a host of many tenants (github.io, …), and
 * what has one of those below it. A lone label counts as one. */
static bool suffix_is_shared(const struct host_pattern *h)
{
    if (h->kind != PATTERN_SUFFIX)
        return false;
    return shared_suffix_reaches(host_str(&h->host)) || psl_is_public_suffix(psl_builtin(), h->host.name);
}

static void check_suffixes(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < c->ncredentials; i++)
        for (size_t k = 0; k < c->credentials[i].nhosts; k++) {
            const struct host_pattern *h = &c->credentials[i].hosts[k];
            if (!c->credentials[i].i_know && suffix_is_shared(h))
                policy_error(p, diag, h->at,
                             "hosts: expected hosts of one owner, got \"*.%s\", under which anyone can have a name "
                             "(i_know: true "
                             "lifts this)",
                             h->host.name);
        }
    for (size_t i = 0; i < c->nrules; i++)
        for (size_t k = 0; c->rules[i].action != RULE_DENY && k < c->rules[i].nhosts; k++) {
            const struct host_pattern *h = &c->rules[i].hosts[k];
            if (suffix_is_shared(h) && str_find_char(host_str(&h->host), '.') >= 0)
                policy_warning(
                    p, diag, h->at,
                    "hosts: expected hosts of one owner, got \"*.%s\", under which anyone can have a name: data can "
                    "leave to strangers",
                    h->host.name);
        }
}

/* --- credentials --- */

static const char *placeholder_fault(struct str s)
{
    bool seen[256] = { false };
    unsigned distinct = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        if (!ascii_alpha((char)ch) && !ascii_digit((char)ch) && !(ch && strchr("-._~", ch)))
            return "only letters, digits, \"-\", \".\", \"_\" and \"~\" (what no client re-encodes)";
        distinct += !seen[ch];
        seen[ch] = true;
    }
    if (s.n < PLACEHOLDER_MIN)
        return "at least 20 characters";
    if (s.n > 1024)
        return "at most 1024 characters";
    return distinct < PLACEHOLDER_DISTINCT ? "at least 10 distinct characters" : NULL;
}

/* One inside another would be found inside it: the wrong value would go out, with the rest behind it. */
static void check_placeholder_pairs(const struct policy *p, struct diag *diag, const struct credential **v, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct str a = v[k]->placeholder, b = v[i]->placeholder;
            if (str_find(a, b) >= 0 || str_find(b, a) >= 0)
                policy_error(
                    p, diag, v[i]->at,
                    "placeholder: expected placeholders that do not contain each other, got one that overlaps that of "
                    "\"%.*s\" on line %u",
                    STR_ARG(v[k]->name), v[k]->at.line);
        }
}

static void check_placeholders(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    const struct credential *literals[LITERALS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < c->ncredentials; i++) {
        const struct credential *cr = &c->credentials[i];
        if (!cr->placeholder.p)
            continue;
        const char *fault = placeholder_fault(cr->placeholder);
        if (fault)
            policy_error(p, diag, cr->at, "placeholder: expected %s, got something else", fault);
        if (cr->agents.n != 1)
            policy_error(p, diag, cr->at, "placeholder: expected exactly one agent with a literal placeholder, got %zu",
                         cr->agents.n);
        if (n == LITERALS_MAX) {
            policy_error(p, diag, cr->at, "placeholder: expected at most %d literal placeholders, got more",
                         LITERALS_MAX);
            return;
        }
        literals[n++] = cr;
    }
    check_placeholder_pairs(p, diag, literals, n);
}

static bool any_rule_reaches(const struct policy *p, const struct credential *c)
{
    for (size_t i = 0; i < p->config->nrules; i++) {
        const struct rule *rule = &p->config->rules[i];
        for (size_t k = 0; rule->action != RULE_DENY && rule->action != RULE_TUNNEL && k < rule->nhosts; k++)
            for (size_t m = 0; m < c->nhosts; m++)
                if (host_pattern_covers(&rule->hosts[k], &c->hosts[m]) ||
                    host_pattern_covers(&c->hosts[m], &rule->hosts[k]))
                    return true;
    }
    return false;
}

static void unknown_sidecar(const struct policy *p, struct diag *diag, const struct credential *cr)
{
    struct known known = { .n = 0 };
    for (size_t k = 0; k < p->config->nsidecars; k++)
        known_add(&known, p->config->sidecars[k].name);
    policy_error(p, diag, cr->source_at, "source.sidecar: expected the name of a sidecar (%s%s), got \"%.*s\"",
                 known.n ? "one of " : "there is none", known.text, STR_ARG(cr->source_text));
}

static void check_credentials(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    bool small = c->nrules * c->ncredentials <= SHADOW_WORK_MAX;
    for (size_t i = 0; i < c->ncredentials; i++) {
        const struct credential *cr = &c->credentials[i];
        bool known = cr->source != SOURCE_SIDECAR;
        check_agent_names(p, diag, &cr->agents);
        for (size_t k = 0; k < c->nsidecars && !known; k++)
            known = str_eq(c->sidecars[k].name, cr->source_text);
        if (!known)
            unknown_sidecar(p, diag, cr);
        if (small && !any_rule_reaches(p, cr))
            policy_warning(p, diag, cr->at,
                           "hosts: expected a rule that allows one of these hosts, got none: credential \"%.*s\" "
                           "can never be used",
                           STR_ARG(cr->name));
    }
    check_placeholders(p, diag);
}

/* --- rules that can never decide --- */

static bool names_cover(const struct name_list *a, const struct name_list *b)
{
    if (!a->given)
        return true;
    if (!b->given)
        return false;
    for (size_t i = 0; i < b->n; i++) {
        bool found = false;
        for (size_t k = 0; k < a->n && !found; k++)
            found = str_eq(a->v[k], b->v[i]);
        if (!found)
            return false;
    }
    return true;
}

static bool hosts_cover(const struct rule *a, const struct rule *b)
{
    for (size_t i = 0; i < b->nhosts; i++) {
        bool found = false;
        for (size_t k = 0; k < a->nhosts && !found; k++)
            found = host_pattern_covers(&a->hosts[k], &b->hosts[i]);
        if (!found)
            return false;
    }
    return true;
}

static bool paths_cover(const struct rule *a, const struct rule *b)
{
    if (!a->npaths)
        return true;
    for (size_t i = 0; i < b->npaths; i++) {
        bool found = false;
        for (size_t k = 0; k < a->npaths && !found; k++)
            found = path_pattern_covers(&a->paths[k], &b->paths[i]);
        if (!found)
            return false;
    }
    return b->npaths;
}

/* a covers b's scheme on this port. */
static bool endpoint_covers(const struct rule *a, const struct rule *b, uint16_t port)
{
    if (a->nports)
        return ports_fit(a->ports, a->nports, port);
    return a->action == RULE_DENY || ((!b->https || port == 443) && (!b->http || port == 80));
}

static bool endpoints_cover(const struct rule *a, const struct rule *b)
{
    if ((b->https && !a->https) || (b->http && !a->http))
        return false;
    if (!b->nports) {
        if (!a->nports)
            return a->action == RULE_DENY || b->action != RULE_DENY;
        return b->action != RULE_DENY && (!b->https || ports_fit(a->ports, a->nports, 443)) &&
               (!b->http || ports_fit(a->ports, a->nports, 80));
    }
    for (size_t i = 0; i < b->nports; i++)
        if (!endpoint_covers(a, b, b->ports[i]))
            return false;
    return true;
}

static bool rule_covers(const struct rule *a, const struct rule *b)
{
    bool lasts = !a->expires_us || (b->expires_us && b->expires_us <= a->expires_us);
    return lasts && hosts_cover(a, b) && names_cover(&a->agents, &b->agents) && endpoints_cover(a, b) &&
           names_cover(&a->methods, &b->methods) && paths_cover(a, b);
}

/* What covers a rule covers its first host, so only rules that the index gives for that host are looked at (all of them
 * for a wildcard). Bounded: a huge file is checked as far as the work goes. */
static void check_shadows(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    size_t work = 0;
    for (uint32_t i = 0; i < c->nrules && work < SHADOW_WORK_MAX; i++) {
        const struct rule *rule = &c->rules[i];
        struct id_walk walk;
        uint32_t id = 0;
        bool exact = rule->hosts[0].kind == PATTERN_EXACT;
        if (exact)
            id_walk_start(&walk, p->rule_index, &rule->hosts[0].host);
        for (uint32_t k = 0;; k++) {
            if (exact ? !id_walk_next(&walk, &id) : (id = k, false))
                break;
            if (id >= i || ++work >= SHADOW_WORK_MAX)
                break;
            if (!rule_covers(&c->rules[id], rule))
                continue;
            policy_warning(
                p, diag, rule->at,
                "rules: expected a rule that can match, got \"%.*s\", which never decides because \"%.*s\" on line %u "
                "covers it",
                STR_ARG(rule->name), STR_ARG(c->rules[id].name), c->rules[id].at.line);
            break;
        }
    }
}

/* --- tunnels --- */

/* A host that both patterns match, and what it stands for. False: there is none. */
static bool witness(const struct host_pattern *a, const struct host_pattern *b, struct host *ret)
{
    char name[300];
    const struct host_pattern *narrow = host_pattern_covers(a, b) ? b : host_pattern_covers(b, a) ? a : NULL;
    if (!narrow)
        return false;
    if (narrow->kind == PATTERN_EXACT) {
        *ret = narrow->host;
        return true;
    }
    snprintf(name, sizeof name, "any-other.%s", narrow->kind == PATTERN_SUFFIX ? narrow->host.name : "invalid");
    return host_parse(str_c(name), ret, NULL) == 0;
}

/* Nothing is swapped in a tunnel: a credential for a host that its agent reaches through one is a mistake in either. */
static bool check_tunnelled(const struct policy *p, struct diag *diag, const struct rule *rule, const struct credential *c, const struct host_pattern *h,
                            const struct host_pattern *of_rule, size_t *work)
{
    struct host host;
    if (!witness(h, of_rule, &host))
        return false;
    for (size_t i = 0; i < c->agents.n; i++)
        for (size_t k = 0; k < c->nports && ++*work < SHADOW_WORK_MAX; k++) {
            const struct agent *a = policy_agent(p, c->agents.v[i]);
            struct verdict v = { 0 };
            if (a)
                policy_eval_connect(p, a, &host, c->ports[k], 0, &v);
            if (v.kind != VERDICT_TUNNEL || v.rule != rule)
                continue;
            if (h->kind == PATTERN_EXACT)
                policy_error(p, diag, h->at,
                             "hosts: expected no host that is tunnelled, because nothing is swapped in a tunnel, got \"%s\", which rule \"%.*s\" on "
                             "line %u tunnels for agent \"%.*s\" (put a rule with action: allow before it, or take the host out of one of them)",
                             host.name, STR_ARG(rule->name), rule->at.line, STR_ARG(a->name));
            else
                policy_warning(p, diag, h->at,
                               "hosts: expected no hosts that are tunnelled, because nothing is swapped in a tunnel, got some that rule \"%.*s\" on "
                               "line %u tunnels for agent \"%.*s\"",
                               STR_ARG(rule->name), rule->at.line, STR_ARG(a->name));
            return true;
        }
    return false;
}

static void check_tunnel_credentials(const struct policy *p, struct diag *diag, const struct rule *rule, size_t *work)
{
    const struct config *c = p->config;
    for (size_t i = 0; i < c->ncredentials; i++) {
        bool said = false;
        for (size_t k = 0; k < c->credentials[i].nhosts && !said; k++)
            for (size_t m = 0; m < rule->nhosts && !said && ++*work < SHADOW_WORK_MAX; m++)
                said = check_tunnelled(p, diag, rule, &c->credentials[i], &c->credentials[i].hosts[k], &rule->hosts[m], work);
    }
}

/* A rule before it that depends on method or path keeps a tunnel from ever being one. */
static void check_tunnel_reached(const struct policy *p, struct diag *diag, const struct rule *rule, size_t *work)
{
    const struct rule *before = NULL;
    for (size_t i = 0; i < rule->nhosts; i++)
        for (size_t k = 0; k < p->config->nagents && ++*work < SHADOW_WORK_MAX; k++) {
            const struct agent *a = &p->config->agents[k];
            struct host host;
            struct verdict v = { 0 };
            if (!agent_in(p, p->rule_agents[rule->index], a) || !witness(&rule->hosts[i], &rule->hosts[i], &host))
                continue;
            policy_eval_connect(p, a, &host, rule->nports ? rule->ports[0] : 443, 0, &v);
            if (v.kind == VERDICT_TUNNEL && v.rule == rule)
                return;
            before = before || !v.rule || v.rule->index >= rule->index ? before : v.rule;
        }
    if (before && (before->methods.given || before->npaths))
        policy_warning(p, diag, rule->at,
                       "rules: expected a tunnel rule that can be decided at CONNECT, got \"%.*s\", which tunnels nothing because \"%.*s\" on line %u "
                       "before it depends on method or path: its connections are intercepted",
                       STR_ARG(rule->name), STR_ARG(before->name), before->at.line);
}

/* Ports of protocols in which the server speaks first, in clear text: a client waits for it, and no ClientHello ever comes. */
static const struct {
    uint16_t port;
    const char *name;
} server_first[] = {
    { 21, "FTP" },   { 22, "SSH" },         { 23, "telnet" },  { 25, "SMTP" },         { 110, "POP3" },  { 119, "NNTP" },
    { 143, "IMAP" }, { 587, "submission" }, { 3306, "MySQL" }, { 4190, "ManageSieve" }, { 5900, "VNC" },
};

static void check_tunnel_ports(const struct policy *p, struct diag *diag, const struct rule *rule)
{
    for (size_t i = 0; !rule->tls_none && i < rule->nports; i++)
        for (size_t k = 0; k < sizeof server_first / sizeof *server_first; k++)
            if (rule->ports[i] == server_first[k].port)
                policy_warning(p, diag, rule->at,
                               "ports: expected ports on which the client begins with TLS, got %u (%s), on which the server speaks first: its connections "
                               "are refused (write tls: none to let them through)",
                               rule->ports[i], server_first[k].name);
}

static void check_tunnels(const struct policy *p, struct diag *diag)
{
    size_t work = 0;
    for (size_t i = 0; i < p->config->nrules && work < SHADOW_WORK_MAX; i++) {
        const struct rule *rule = &p->config->rules[i];
        if (rule->action != RULE_TUNNEL)
            continue;
        check_tunnel_ports(p, diag, rule);
        check_tunnel_credentials(p, diag, rule, &work);
        check_tunnel_reached(p, diag, rule, &work);
    }
}

/* What the DNS port needs besides its sockets. */
static void check_dns(const struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    if (c->ndns && !c->dns_forward && !c->synthetic_v4.family && !c->synthetic_v6.family && !address_pool_given(&c->synthetic_pool))
        policy_error(p, diag, c->dns[0].at,
                     "listen.dns: expected resolver.synthetic with v4, v6 or pool for what it answers (or resolver.answer: forward), got none");
    for (size_t i = 0; i < c->ndns; i++)
        for (size_t k = 0; k < c->nproxy; k++)
            if (c->proxy[k].kind != LISTENER_UNIX && ip_equal(&c->dns[i].ip, &c->proxy[k].ip) && c->dns[i].port == c->proxy[k].port)
                policy_error(p, diag, c->dns[i].at, "listen.dns: expected a port of its own, got that of the listener \"%.*s\" on line %u",
                             STR_ARG(c->proxy[k].text), c->proxy[k].at.line);
}

void policy_check(struct policy *p, struct diag *diag)
{
    check_names(p, diag);
    check_side_files(p, diag);
    check_suffixes(p, diag);
    check_credentials(p, diag);
    for (size_t i = 0; i < p->config->nrules; i++)
        check_agent_names(p, diag, &p->config->rules[i].agents);
    check_shadows(p, diag);
    check_tunnels(p, diag);
    check_dns(p, diag);
    policy_check_pool(p, diag);
    policy_check_names(p, diag);
    policy_check_addresses(p, diag);
    policy_check_idle(p, diag);
}
