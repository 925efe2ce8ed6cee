/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/checkpoint.h"
#include "audit/verify.h"
#include "base/json.h"
#include "daemon/cli.h"
#include "daemon/files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* state_dir out of a file with errors, which are said: an event about a refused reload is read while the file is not mended yet.
 * NULL: it is not known where that is. */
static char *state_of_broken(const struct gather *g)
{
    char *state = gather_guess(g, "state_dir");
    if (state)
        return state;
    /* Its default, if there is a log. */
    state = z_printf("%s/state", g->dir);
    char *log = z_printf("%s/audit", state);
    if (access(log, F_OK)) {
        free(state);
        state = NULL;
    }
    free(log);
    return state;
}

/* The folder of the state, and nothing else of the configuration: the log is read whatever else is wrong. */
static int find_state(const struct cli *cli, char **ret)
{
    struct gather g;
    struct diag diag;
    int r = CLI_OK;
    diag_init(&diag);
    if (gather_config(&g, cli->config, &diag) == 0) {
        *ret = z_of(g.config->state_dir);
    } else {
        diag_print(&diag, 2, true);
        *ret = g.was_read ? state_of_broken(&g) : NULL;
        if (*ret)
            cli_fail(0, "%s has errors; the log in %s/audit is read all the same", cli->config, *ret);
        else if (g.was_read)
            r = cli_fail(CLI_UNREADABLE,
                         "the log was not read, as the file has errors and does not say where it is: write `state_dir: FOLDER` at the beginning "
                         "of a line of %s",
                         cli->config);
        else
            r = CLI_UNREADABLE;
    }
    diag_done(&diag);
    gather_done(&g);
    return r;
}

int cli_audit_verify(const struct cli *cli)
{
    char *state = NULL;
    struct err err;
    struct verify_result v = { 0 };
    int r = find_state(cli, &state);
    if (r)
        return r;
    char *dir = z_printf("%s/audit", state), *anchor = z_printf("%s/keys/log/" AUDIT_ANCHOR_NAME, state);
    char *pub = z_printf("%s/trust/log.pub", state);
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
    free(state);
    return r;
}

int cli_audit_tail(const struct cli *cli)
{
    char *state = NULL;
    struct err err;
    int r = find_state(cli, &state);
    if (r)
        return r;
    char *dir = z_printf("%s/audit", state);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (audit_tail(dir, cli->last, cli->follow, cli->json, stdout, &stop, &err))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    free(dir);
    free(state);
    return r;
}
