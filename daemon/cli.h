/* SPDX-License-Identifier: Apache-2.0
 *
 * cli: the command line. One table of commands (cli.def) and one of options give the parser, --help and the usage
 * lines. Exit codes are the contract of every command. */
#ifndef DAEMON_CLI_H
#define DAEMON_CLI_H

#include "daemon/gather.h"

enum {
    CLI_OK = 0,
    CLI_NO = 1,          /* the answer is no; check: the configuration has errors */
    CLI_USAGE = 2,       /* the command line is wrong */
    CLI_UNREADABLE = 3,  /* cannot start or read: configuration, CA, permissions */
    CLI_UNREACHABLE = 4, /* no server answers */
};
enum { CLI_HEADERS_MAX = 64 };

struct cli {
    const char *config, *agent, *format, *like, *credential, *store;
    const char *headers[CLI_HEADERS_MAX];
    size_t nheaders;
    bool json, sandbox, follow;
    size_t last; /* audit tail -n */
    char **args; /* what is left, NULL-terminated */
    int nargs;
};

int cli_main(int argc, char **argv);
/* "outgate: …" on stderr; returns status. */
int cli_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads the configuration for a command that wants something out of it, printing what is wrong. 0 or the exit status.
 * gather_done in either case. */
int cli_config(const struct cli *cli, struct gather *g);
int cli_policy(const struct cli *cli, struct gather *g);
/* The agent named by --agent; the only one when none is named. 0 or the exit status. */
int cli_agent(const struct cli *cli, const struct gather *g, const struct agent **ret);

#define COMMAND(function, words, options, needed, fewest, most, follows, doc) int function(const struct cli *cli);
#include "daemon/cli.def"
#undef COMMAND

#endif
