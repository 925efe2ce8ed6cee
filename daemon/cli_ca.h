/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ca: what the commands about the CA share. */
#ifndef DAEMON_CLI_CA_H
#define DAEMON_CLI_CA_H

#include "base/buf.h"
#include "daemon/cli.h"

/* The certificate of the configuration's CA, from trust/, which everyone may read. absent: what to do where there is no
 * such file; NULL: make a CA. 0 or the exit status, printed. */
int cli_ca_read(const struct cli *cli, const char *absent, struct buf *out);

#endif
