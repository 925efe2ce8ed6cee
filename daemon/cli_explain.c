/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate explain`: the same functions that a worker calls, fed from the command line. Headers are looked at for
 * placeholders as the swap would. */
#include "base/clock.h"
#include "base/field.h"
#include "daemon/cli.h"
#include "daemon/files.h"
#include "mint/swap.h"

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

static const char *verdict_name(const struct verdict *v)
{
    static const char *const names[] = {
        [VERDICT_DENY] = "deny", [VERDICT_ALLOW] = "allow", [VERDICT_ASK] = "ask", [VERDICT_OBSERVE] = "observe"
    };
    return names[v->kind];
}

static void print_json(const struct gather *g, const struct verdict *v, struct str steps,
                       const struct swap_answer *swap, bool fine)
{
    json_t *lines = json_array(), *credentials = json_array();
    struct str rest = steps, line;
    while (str_split(&rest, '\n', &line))
        if (line.n)
            json_array_append_new(lines, json_stringn(line.p, line.n));
    for (size_t i = 0; i < swap->plan.nwanted; i++)
        json_array_append_new(credentials, json_stringn(swap->plan.wanted[i]->name.p, swap->plan.wanted[i]->name.n));
    enum end code = v->code != END_OK ? v->code : swap->known ? swap->end : END_OK;
    json_t *root = json_pack("{s:s, s:s, s:b, s:o, s:o, s:s}", "verdict",
                             swap->known && swap->end != END_OK ? "deny" : verdict_name(v), "code", end_code(code),
                             "passes", fine, "steps", lines, "credentials", credentials, "config", g->path);
    json_object_set_new(root, "rule", v->rule ? json_stringn(v->rule->name.p, v->rule->name.n) : json_null());
    json_object_set_new(root, "hint", json_string(code == END_OK ? "" : end_hint(code)));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    printf("%s\n", text ? text : "{}");
    free(text);
}

static void print_text(const struct verdict *v, struct str steps, const struct question *q,
                       const struct swap_answer *swap)
{
    printf("%.*s", STR_ARG(steps));
    if (steps.n && steps.p[steps.n - 1] != '\n')
        putchar('\n');
    for (size_t i = 0; i < swap->plan.nwanted; i++)
        printf("credential %.*s is swapped in\n", STR_ARG(swap->plan.wanted[i]->name));
    if (swap->known && swap->end != END_OK)
        printf("%s: %s%s%s%s\n", end_code(swap->end), end_sentence(swap->end), swap->fault.where[0] ? " (" : "",
               swap->fault.where, swap->fault.where[0] ? ")" : "");
    else if (swap->known && !swap->plan.n && q->nfields)
        printf("no placeholder in what was given: nothing is swapped\n");
    if (!swap->known)
        printf("(the install key cannot be read here: placeholders were not looked for)\n");
    if (v->code != END_OK)
        printf("%s: %s\n", end_code(v->code), end_hint(v->code));
    printf("verdict: %s\n", swap->known && swap->end != END_OK ? "deny" : verdict_name(v));
}

static int answer(const struct cli *cli, struct gather *g, struct question *q)
{
    struct verdict v;
    struct swap_answer swap = { 0 };
    struct buf steps;
    buf_init(&steps, 1024 * 1024);
    policy_eval(g->policy, &q->ask, &v);
    policy_explain(g->policy, &q->ask, &steps);
    plan_swap(g, q, &swap);
    bool fine = (v.kind == VERDICT_ALLOW || v.kind == VERDICT_OBSERVE) && (!swap.known || swap.end == END_OK);
    if (cli->json)
        print_json(g, &v, buf_str(&steps), &swap, fine);
    else
        print_text(&v, buf_str(&steps), q, &swap);
    buf_done(&steps);
    return fine ? CLI_OK : CLI_NO;
}

int cli_explain(const struct cli *cli)
{
    struct gather g;
    struct err err;
    struct question q = { .ask = { .method = str_c(cli->args[0]), .now_us = clock_wall_us() } };
    int r = parse_headers(cli, &q);
    if (r)
        return r;
    r = cli_policy(cli, &g);
    if (r == 0)
        r = cli_agent(cli, &g, &q.ask.agent);
    if (r == 0 && parse_url(str_c(cli->args[1]), &q, &err))
        r = cli_fail(CLI_NO, "bad_request: %s", err.text);
    if (r == 0)
        r = answer(cli, &g, &q);
    gather_done(&g);
    return r;
}
