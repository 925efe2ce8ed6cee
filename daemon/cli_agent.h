/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_agent: what `env`, `run` and `explain` need to know of one agent. */
#ifndef DAEMON_CLI_AGENT_H
#define DAEMON_CLI_AGENT_H

#include "daemon/cli.h"
#include "daemon/env_vars.h"

struct agent_view {
    struct gather g;
    const struct agent *agent;
    struct buf install_key;
    struct env_vars vars;
};
/* Without the variables. 0 or the exit status, printed. agent_view_done in either case. */
int agent_view_make(const struct cli *cli, struct agent_view *ret);
/* The variables; login as in env_vars_make. 0 or the exit status, printed. */
int agent_view_vars(struct agent_view *v, struct str login);
void agent_view_done(struct agent_view *v);

#endif
