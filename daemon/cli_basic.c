/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"
#include "daemon/supervisor.h"

#include "audit/event.h"
#include "base/clock.h"
#include "base/limits.h"
#include "mint/placeholder.h"

#include <stdio.h>
#include <string.h>

int cli_version(const struct cli *cli)
{
    (void)cli;
    printf("outgate %s\n", OUTGATE_VERSION);
    return CLI_OK;
}

/* The policy itself knows no clock; a server would leave these rules out. */
static void warn_expired(const struct gather *g, struct diag *diag)
{
    int64_t now_us = clock_wall_us();
    for (size_t i = 0; i < g->config->nrules; i++) {
        const struct rule *rule = &g->config->rules[i];
        if (rule->expires_us && rule->expires_us <= now_us)
            diag_add(diag, false, "%s:%u:%u: rules: expected a rule that can match, got \"%.*s\", which has expired",
                     g->file, rule->at.line, rule->at.col, STR_ARG(rule->name));
    }
}

int cli_check(const struct cli *cli)
{
    struct gather g;
    struct diag diag;
    diag_init(&diag);
    int r = gather_policy(&g, cli->config, &diag);
    if (!r)
        warn_expired(&g, &diag);
    bool unreadable = r && !g.was_read;
    fflush(stdout);
    diag_print(&diag, 2, false);
    size_t warnings = diag.n - diag.errors;
    if (r || diag.errors)
        fprintf(stderr, "%s: %zu error%s\n", cli->config, diag.errors, diag.errors == 1 ? "" : "s");
    else
        printf("%s: no errors, %zu warning%s\n", cli->config, warnings, warnings == 1 ? "" : "s");
    bool bad = r || diag.errors;
    diag_done(&diag);
    gather_done(&g);
    return unreadable ? CLI_UNREADABLE : bad ? CLI_NO : CLI_OK;
}

int cli_serve(const struct cli *cli)
{
    return supervisor_run(cli->config);
}

int cli_placeholder(const struct cli *cli)
{
    char text[512];
    struct err err;
    if (!placeholder_shape_known(str_c(cli->like))) {
        struct buf shapes;
        buf_init(&shapes, 65536);
        placeholder_shapes_put(&shapes);
        cli_fail(0, "placeholder: --like: expected one of these, got '%s'", cli->like);
        fwrite(buf_str(&shapes).p, 1, buf_size(&shapes), stderr);
        buf_done(&shapes);
        return CLI_USAGE;
    }
    if (placeholder_random(str_c(cli->like), text, sizeof text, &err))
        return cli_fail(CLI_UNREADABLE, "placeholder: %s", err.text);
    printf("%s\n", text);
    return CLI_OK;
}
