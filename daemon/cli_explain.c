/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate explain`: the same functions that a worker calls, in its order, fed from the command line. Headers are
 * looked at for placeholders as the swap would. What lies behind the verdict (addresses, the origin, a lease) it cannot
 * know. `DNS NAME` in the place of a method and a URL asks what the DNS port would answer, to A and to AAAA; `DNS TYPE NAME`
 * and `DNS dns:NAME?type=TYPE` (RFC 4501) name one type. */
#include "base/clock.h"
#include "base/field.h"
#include "daemon/cli.h"
#include "daemon/cli_explain_name.h"
#include "daemon/files.h"
#include "mint/swap.h"
#include "policy/address_known.h"
#include "policy/dns_type.h"
#include "proxy/rewrite.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct question {
    struct ask ask;
    struct host host;
    struct str target; /* path and query */
    struct field fields[CLI_HEADERS_MAX];
    size_t nfields;
};

static int parse_url(struct str url, struct question *q, struct err *err)
{
    uint16_t port = 443;
    q->ask.scheme = SCHEME_HTTPS;
    if (str_eq(q->ask.method, STR("CONNECT")) && str_find(url, STR("://")) < 0) { /* as it is on the wire */
        q->ask.scheme = SCHEME_NONE;
        q->ask.host = &q->host;
        q->ask.path = STR("");
        return authority_parse(url, port, &q->host, &q->ask.port, err);
    }
    if (str_starts(url, STR("https://"))) {
        url = str_from(url, 8);
    } else if (str_starts(url, STR("http://"))) {
        url = str_from(url, 7);
        q->ask.scheme = SCHEME_HTTP;
        port = 80;
    } else {
        return err_set(err, "expected a URL that begins with https:// or http://");
    }
    ptrdiff_t slash = str_find_char(url, '/'), mark = str_find_char(url, '?');
    size_t end = slash >= 0 ? (size_t)slash : url.n;
    if (mark >= 0 && (size_t)mark < end)
        return err_set(err, "expected a path before the '?'");
    if (authority_parse(str_sub(url, 0, end), port, &q->host, &q->ask.port, err))
        return -1;
    q->target = end < url.n ? str_from(url, end) : STR("/");
    ptrdiff_t query = str_find_char(q->target, '?');
    q->ask.path = query >= 0 ? str_sub(q->target, 0, (size_t)query) : q->target;
    q->ask.host = &q->host;
    return policy_path_check(q->target, err);
}

static int parse_headers(const struct cli *cli, struct question *q)
{
    for (size_t i = 0; i < cli->nheaders; i++) {
        struct str h = str_c(cli->headers[i]);
        ptrdiff_t colon = str_find_char(h, ':');
        if (colon < 1)
            return cli_fail(CLI_USAGE, "explain: -H: expected \"Name: value\", got '%s'", cli->headers[i]);
        q->fields[q->nfields++] =
            (struct field) { str_sub(h, 0, (size_t)colon), str_trim(str_from(h, (size_t)colon + 1)) };
    }
    return 0;
}

struct swap_answer {
    bool known; /* the install key could be read */
    enum end end;
    struct swap_plan plan;
    struct swap_fault fault;
};

static void plan_swap(const struct gather *g, const struct question *q, struct swap_answer *ret)
{
    struct buf key;
    struct err err;
    buf_init(&key, 4096);
    key.wipe = true;
    char *path = z_printf("%.*s/keys/install.key", STR_ARG(g->config->state_dir));
    struct placeholder_table *t =
        file_read(path, &key, &err) == 0 ? placeholder_table_new(g->policy, buf_str(&key), &err) : NULL;
    free(path);
    ret->known = t != NULL;
    if (t)
        ret->end =
            swap_plan_make(t, g->policy, &q->ask, q->target, q->fields, q->nfields, NULL, &ret->plan, &ret->fault);
    if (t)
        for (size_t i = 0; i < ret->plan.n; i++) /* names live in the policy, the rest goes with the table */
            ret->plan.items[i].ph = NULL;
    placeholder_table_unref(&t);
    buf_done(&key);
}

static bool names_upgrade(struct str list)
{
    struct str option;
    while (str_split(&list, ',', &option))
        if (str_eq_nocase(str_trim(option), STR("upgrade")))
            return true;
    return false;
}

/* What the rewriting refuses, given what would be swapped. END_OK, or the refusal and why. */
static enum end check_fields(const struct question *q, const struct verdict *v, const struct swap_plan *plan,
                             const char **ret_why)
{
    static struct exchange x;
    static struct h1_field fields[CLI_HEADERS_MAX];
    bool option = false, field = false;
    for (size_t i = 0; i < q->nfields; i++) {
        fields[i] = (struct h1_field) { .f = q->fields[i], .id = h1_name_of(q->fields[i].name) };
        option |= fields[i].id == H1_CONNECTION && names_upgrade(q->fields[i].value);
        field |= fields[i].id == H1_UPGRADE;
    }
    x.verdict = *v;
    x.plan = plan ? *plan : (struct swap_plan) { 0 };
    x.req = (struct request) { .method = q->ask.method, .fields = fields, .nfields = q->nfields };
    x.req.upgrade = option && field;
    enum end end = END_OK;
    *ret_why = rewrite_request_check(&x, &end);
    return end;
}

struct outcome {
    bool passes;
    bool by_rule; /* the verdict of the rules stands */
    enum end code;
    const char *why;
};

/* In the worker's order: the method, the rules, the fields, the placeholders, the fields again. */
static struct outcome judge(const struct question *q, const struct verdict *v, const struct swap_answer *swap)
{
    struct str m = q->ask.method;
    struct outcome o = { .code = v->code, .by_rule = true, .why = "" };
    if (v->kind == VERDICT_TUNNEL || q->ask.scheme == SCHEME_NONE) { /* decided at CONNECT */
        o.passes = v->kind != VERDICT_DENY;
        return o;
    }
    if (str_eq_nocase(m, STR("TRACE")) || str_eq_nocase(m, STR("TRACK")) || str_eq_nocase(m, STR("CONNECT")))
        return (struct outcome) { .code = END_BAD_REQUEST, .why = "the method is never forwarded" };
    if (v->kind == VERDICT_DENY || v->kind == VERDICT_ASK)
        return o;
    enum end end = check_fields(q, v, NULL, &o.why);
    if (end == END_OK && swap->known && swap->end != END_OK) {
        end = swap->end;
        o.why = swap->fault.where;
    }
    if (end == END_OK && swap->plan.n)
        end = check_fields(q, v, &swap->plan, &o.why);
    if (end != END_OK)
        return (struct outcome) { .code = end, .why = o.why };
    o.passes = true;
    return o;
}

/* Of a request that passes: would a dial to an address that the file has be refused? */
static bool address_refused(const struct gather *g, const struct question *q, const struct verdict *v, char why[ADDRESS_FAULT_TEXT])
{
    const struct config_host_entry *fixed = address_known_entry(g->config, &q->host);
    const struct rule *rule = v->rule && (v->rule->action == RULE_ALLOW || v->kind == VERDICT_TUNNEL) ? v->rule : NULL;
    struct address_fault fault;
    bool yes;
    if (q->ask.scheme == SCHEME_NONE && v->kind == VERDICT_ALLOW) /* which rule decides is seen only later */
        yes = address_known_refused_by_all(g->policy, q->ask.agent, &q->host, fixed, q->ask.port, q->ask.now_us, &rule, &fault);
    else
        yes = address_known_refused(g->policy, rule, &q->host, fixed, q->ask.port, &fault);
    if (yes)
        address_fault_put(&fault, rule, why);
    return yes;
}

/* An address that the DNS port gives out is whatever name it was given for. */
static bool is_virtual(const struct gather *g, const struct question *q)
{
    return host_is_ip(&q->host) && address_pool_contains(&g->config->synthetic_pool, &q->host.ip);
}

static const char *verdict_name(const struct verdict *v)
{
    static const char *const names[] = {
        [VERDICT_DENY] = "deny",       [VERDICT_ALLOW] = "allow",   [VERDICT_ASK] = "ask",
        [VERDICT_OBSERVE] = "observe", [VERDICT_TUNNEL] = "tunnel",
    };
    return names[v->kind];
}

static const char *verdict_of(const struct verdict *v, const struct outcome *o)
{
    return o->by_rule ? verdict_name(v) : "deny";
}

static void print_json(const struct gather *g, const struct verdict *v, struct str steps,
                       const struct swap_answer *swap, const struct outcome *o, const struct name_part *name)
{
    json_t *lines = json_array(), *credentials = json_array();
    struct str rest = steps, line;
    while (str_split(&rest, '\n', &line))
        if (line.n)
            json_array_append_new(lines, json_stringn(line.p, line.n));
    for (size_t i = 0; i < swap->plan.nwanted; i++)
        json_array_append_new(credentials, json_stringn(swap->plan.wanted[i]->name.p, swap->plan.wanted[i]->name.n));
    json_t *root = json_pack("{s:s, s:s, s:b, s:o, s:o, s:s}", "verdict", verdict_of(v, o), "code", end_code(o->code),
                             "passes", o->passes, "steps", lines, "credentials", credentials, "config", g->path);
    json_object_set_new(root, "rule", v->rule ? json_stringn(v->rule->name.p, v->rule->name.n) : json_null());
    json_object_set_new(root, "why", json_string(o->why));
    json_object_set_new(root, "hint", json_string(o->code == END_OK ? "" : end_hint(o->code)));
    if (name)
        name_part_json(g, name, root);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    printf("%s\n", text ? text : "{}");
    free(text);
}

static void print_text(const struct gather *g, const struct verdict *v, struct str steps, const struct question *q,
                       const struct swap_answer *swap, const struct outcome *o, const struct name_part *name)
{
    printf("%.*s", STR_ARG(steps));
    if (steps.n && steps.p[steps.n - 1] != '\n')
        putchar('\n');
    for (size_t i = 0; i < swap->plan.nwanted; i++)
        printf("credential %.*s is swapped in\n", STR_ARG(swap->plan.wanted[i]->name));
    if (name)
        name_part_print(g, name);
    if (!o->by_rule)
        printf("%s: %s%s%s%s\n", end_code(o->code), end_sentence(o->code), o->why[0] ? " (" : "", o->why,
               o->why[0] ? ")" : "");
    else if (swap->known && !swap->plan.n && q->nfields && v->kind != VERDICT_TUNNEL)
        printf("no placeholder in what was given: nothing is swapped\n");
    if (!swap->known)
        printf("(the install key cannot be read here: placeholders were not looked for)\n");
    if (o->code != END_OK)
        printf("%s: %s\n", end_code(o->code), end_hint(o->code));
    printf("verdict: %s\n", verdict_of(v, o));
}

static int answer(const struct cli *cli, struct gather *g, struct question *q)
{
    struct verdict v;
    struct swap_answer swap = { 0 };
    struct buf steps;
    buf_init(&steps, 1024 * 1024);
    if (q->ask.scheme == SCHEME_NONE)
        policy_eval_connect(g->policy, q->ask.agent, q->ask.host, q->ask.port, q->ask.now_us, &v);
    else if (q->ask.scheme != SCHEME_HTTPS || !policy_tunnels(g->policy, &q->ask, &v))
        policy_eval(g->policy, &q->ask, &v);
    policy_explain(g->policy, &q->ask, &steps);
    if (q->ask.scheme != SCHEME_NONE && v.kind != VERDICT_TUNNEL)
        plan_swap(g, q, &swap);
    else
        swap.known = true;
    struct outcome o = judge(q, &v, &swap);
    struct name_part part, *name = host_is_ip(&q->host) ? NULL : &part; /* nobody is asked for an address */
    struct err err;
    bool made = !name || name_part_make(g, q->ask.agent, o.passes ? v.rule : NULL, host_str(&q->host), 0, &part, &err) == 0;
    part.request = true;
    char address[ADDRESS_FAULT_TEXT];
    if (is_virtual(g, q)) {
        v = (struct verdict) { 0 };
        o = (struct outcome) { .code = END_ADDRESS_UNKNOWN, .why = "a running server knows whether this agent was given it, and for which name" };
    } else if (o.passes && address_refused(g, q, &v, address)) {
        o = (struct outcome) { .code = END_ADDRESS_DENIED, .why = address };
    }
    if (made && name && o.passes && name_part_end(name) != END_OK)
        o = (struct outcome) { .code = name_part_end(name), .why = name_part_end(name) == END_EXFILTRATION_NAME ? "the name" : "a name that nobody out there owns" };
    if (made && cli->json)
        print_json(g, &v, buf_str(&steps), &swap, &o, name);
    else if (made)
        print_text(g, &v, buf_str(&steps), q, &swap, &o, name);
    if (name)
        name_part_done(name);
    buf_done(&steps);
    if (!made)
        return cli_fail(CLI_UNREADABLE, "explain: %s", err.text);
    return o.passes ? CLI_OK : CLI_NO;
}

/* --- a question --- */

/* `NAME`, `TYPE NAME` or `dns:NAME?type=TYPE` (RFC 4501, without a server and a class). *ret_type 0: none was named. */
static int parse_name(const struct cli *cli, char name[HOST_MAX + 1], uint16_t *ret_type, struct err *err)
{
    struct host host;
    struct str text = str_c(cli->args[cli->nargs - 1]);
    *ret_type = 0;
    if (cli->nargs == 3 && !dns_type_parse(str_c(cli->args[1]), ret_type))
        return err_set(err, "expected DNS [TYPE] NAME, with a type as in dns_types, got type \"%.40s\"", cli->args[1]);
    if (str_starts(text, STR("dns:"))) {
        text = str_from(text, 4);
        ptrdiff_t mark = str_find_char(text, '?');
        struct str query = mark < 0 ? STR_NONE : str_from(text, (size_t)mark + 1);
        text = mark < 0 ? text : str_sub(text, 0, (size_t)mark);
        if (mark >= 0 && (*ret_type || !str_starts(query, STR("type=")) || !dns_type_parse(str_from(query, 5), ret_type)))
            return err_set(err, "expected dns:NAME or dns:NAME?type=TYPE, with a type as in dns_types");
    }
    if (host_parse(text, &host, err))
        return -1;
    if (host_is_ip(&host))
        return err_set(err, "expected a name, got an address: nobody is asked for one");
    memcpy(name, host.name, sizeof host.name);
    return 0;
}

static int answer_name(const struct cli *cli, const struct gather *g, const struct agent *agent)
{
    struct name_part part;
    struct address_fault fault;
    const struct rule *rule;
    struct err err;
    char name[HOST_MAX + 1], address[ADDRESS_FAULT_TEXT];
    uint16_t type;
    if (parse_name(cli, name, &type, &err))
        return cli_fail(CLI_NO, "bad_request: %s", err.text);
    int r = CLI_OK;
    bool made = name_part_make(g, agent, NULL, str_c(name), type, &part, &err) == 0;
    bool closed = made && part.v[0].x.ruling.fixed && part.v[0].x.ruling.fate >= NAME_NO_DATA &&
                  address_known_refused_by_all(g->policy, agent, &part.v[0].x.ruling.host, part.v[0].x.ruling.fixed, 0, clock_wall_us(), &rule, &fault);
    if (closed)
        address_fault_put(&fault, rule, address);
    if (!made) {
        r = cli_fail(CLI_UNREADABLE, "explain: %s", err.text);
    } else if (cli->json) {
        json_t *root = json_pack("{s:s}", "config", g->path);
        name_part_json(g, &part, root);
        json_object_set_new(root, "dial", json_pack("{s:s, s:s}", "code", end_code(closed ? END_ADDRESS_DENIED : END_OK), "why", closed ? address : ""));
        char *text = json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        printf("%s\n", text ? text : "{}");
        free(text);
    } else {
        name_part_print(g, &part);
        if (closed)
            printf("dial: %s: %s (%s)\n", end_code(END_ADDRESS_DENIED), end_sentence(END_ADDRESS_DENIED), address);
    }
    if (r == CLI_OK && !name_part_answers(&part))
        r = CLI_NO;
    name_part_done(&part);
    return r;
}

int cli_explain(const struct cli *cli)
{
    struct gather g;
    struct err err;
    struct question q = { .ask = { .method = str_c(cli->args[0]), .now_us = clock_wall_us() } };
    if (cli->nargs > 2 && !str_eq(q.ask.method, STR("DNS")))
        return cli_fail(CLI_USAGE, "explain: too many arguments: expected METHOD URL, or DNS [TYPE] NAME");
    int r = parse_headers(cli, &q);
    if (r)
        return r;
    r = cli_policy(cli, &g);
    if (r == 0)
        r = cli_agent(cli, &g, &q.ask.agent);
    if (r == 0 && str_eq(q.ask.method, STR("DNS"))) {
        r = answer_name(cli, &g, q.ask.agent);
        gather_done(&g);
        return r;
    }
    if (r == 0 && parse_url(str_c(cli->args[1]), &q, &err))
        r = cli_fail(CLI_NO, "bad_request: %s", err.text);
    if (r == 0)
        r = answer(cli, &g, &q);
    gather_done(&g);
    return r;
}
