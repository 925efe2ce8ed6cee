/* SPDX-License-Identifier: Apache-2.0
 *
 * control_client: asking a running server (control_msg.h). Finds it by the configuration or the default RUNTIME. */
#ifndef DAEMON_CONTROL_CLIENT_H
#define DAEMON_CONTROL_CLIENT_H

#include "daemon/cli.h"
#include "daemon/control_msg.h"

#include <jansson.h>

/* Asks once. 0 and the answer's object (json_decref it); -1: nobody answers there. */
int control_ask(const char *runtime, struct control_request *q, json_t **ret, struct err *err);
/* The same, and the connection stays open: *ret_fd, for as long as what was asked for is wanted. */
int control_ask_held(const char *runtime, struct control_request *q, json_t **ret, int *ret_fd, struct err *err);
/* To stdout. 0 or the exit status. */
int control_print_json(const json_t *root);
/* The whole way of a command: RUNTIME from cli, the console token from the terminal when it is wanted, errors printed (a
 * refusal as JSON on stdout too, where --json asks for it).
 * CLI_OK with *ret an answer that says ok, or the exit status. q->command is set by the caller. */
int control_command(const struct cli *cli, struct control_request *q, json_t **ret);

#endif
