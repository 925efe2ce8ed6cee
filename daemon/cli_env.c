/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"
#include "daemon/cli_agent.h"
#include "daemon/env_files.h"
#include "daemon/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int agent_view_make(const struct cli *cli, struct agent_view *ret)
{
    struct err err = { "" };
    *ret = (struct agent_view) { 0 };
    buf_init(&ret->install_key, 4096);
    ret->install_key.wipe = true;
    int r = cli_policy(cli, &ret->g);
    if (r == 0)
        r = cli_agent(cli, &ret->g, &ret->agent);
    if (r)
        return r;
    char *path = z_printf("%.*s/keys/install.key", STR_ARG(ret->g.config->state_dir));
    if (file_read(path, &ret->install_key, &err))
        r = cli_fail(CLI_UNREADABLE,
                     "%s: run `outgate init DIR` and set state_dir to DIR/state, or ask as the user who did", err.text);
    free(path);
    return r;
}

int agent_view_vars(struct agent_view *v, struct str login)
{
    struct err err;
    if (env_vars_make(&v->g, v->agent, buf_str(&v->install_key), login, &v->vars, &err))
        return cli_fail(CLI_UNREADABLE, "%s", err.text);
    return 0;
}

void agent_view_done(struct agent_view *v)
{
    env_vars_done(&v->vars);
    buf_done(&v->install_key);
    gather_done(&v->g);
}

int cli_env(const struct cli *cli)
{
    const char *format = cli->format ? cli->format : "sh";
    struct agent_view v;
    struct err err;
    struct buf out;
    enum env_file file;
    if (strcmp(format, "sh") != 0 && strcmp(format, "docker") != 0 && strcmp(format, "json") != 0 &&
        !env_file_parse(str_c(format), &file))
        return cli_fail(CLI_USAGE, "env: --format: expected sh, docker, json, wgetrc or apt, got '%s'", format);
    buf_init(&out, 1024 * 1024);
    int r = agent_view_make(cli, &v);
    if (r == 0)
        r = agent_view_vars(&v, STR_NONE);
    if (r == 0 && env_vars_put(&v.vars, str_c(format), &out, &err))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (r == 0)
        fwrite(buf_str(&out).p, 1, buf_size(&out), stdout);
    buf_done(&out);
    agent_view_done(&v);
    return r;
}
