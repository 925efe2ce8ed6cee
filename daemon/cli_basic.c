/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"
#include "daemon/supervisor.h"

#include "mint/placeholder.h"

#include <stdio.h>
#include <string.h>

int cli_version(const struct cli *cli)
{
    (void)cli;
    printf("outgate %s\n", OUTGATE_VERSION);
    return CLI_OK;
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
