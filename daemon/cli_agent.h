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
/* 0 or the exit status, printed. agent_view_done in either case. */
int agent_view_make(const struct cli *cli, struct agent_view *ret);
void agent_view_done(struct agent_view *v);

#endif
