/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/checkpoint.h"
#include "audit/verify.h"
#include "base/json.h"
#include "daemon/cli.h"
#include "daemon/files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile bool stop;

static void on_signal(int signum)
{
    (void)signum;
    stop = true;
}

static void print_json(const struct verify_result *v)
{
    struct buf why;
    buf_init(&why, 8192);
    json_put_str_or_null(&why, v->ok ? STR_NONE : str_c(v->bad_where));
    printf("{\"ok\":%s,\"lines\":%llu,\"checkpoints\":%llu,\"segments\":%llu,\"bad_seq\":%llu,\"why\":%.*s}\n",
           v->ok ? "true" : "false", (unsigned long long)v->lines, (unsigned long long)v->checkpoints,
           (unsigned long long)v->segments, (unsigned long long)v->bad_seq, STR_ARG(buf_str(&why)));
    buf_done(&why);
}

int cli_audit_verify(const struct cli *cli)
{
    struct gather g;
    struct err err;
    struct verify_result v = { 0 };
    int r = cli_config(cli, &g);
    if (r) {
        gather_done(&g);
        return r;
    }
    char *dir = z_printf("%.*s/audit", STR_ARG(g.config->state_dir));
    char *anchor = z_printf("%.*s/keys/log/" AUDIT_ANCHOR_NAME, STR_ARG(g.config->state_dir));
    char *pub = z_printf("%.*s/trust/log.pub", STR_ARG(g.config->state_dir));
    if (audit_verify(dir, anchor, pub, &v, &err))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    else if (cli->json)
        print_json(&v);
    else if (v.ok)
        printf("%s: %llu lines in %llu segments, %llu checkpoints: the chain is whole\n", dir,
               (unsigned long long)v.lines, (unsigned long long)v.segments, (unsigned long long)v.checkpoints);
    if (r == 0 && !v.ok)
        r = cli_fail(CLI_NO, "the log is not whole: seq %llu: %s", (unsigned long long)v.bad_seq, v.bad_where);
    free(dir);
    free(anchor);
    free(pub);
    gather_done(&g);
    return r;
}

int cli_audit_tail(const struct cli *cli)
{
    struct gather g;
    struct err err;
    int r = cli_config(cli, &g);
    if (r == 0) {
        char *dir = z_printf("%.*s/audit", STR_ARG(g.config->state_dir));
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        if (audit_tail(dir, cli->last, cli->follow, cli->json, stdout, &stop, &err))
            r = cli_fail(CLI_UNREADABLE, "%s", err.text);
        free(dir);
    }
    gather_done(&g);
    return r;
}
