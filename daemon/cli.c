/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
    int (*run)(const struct cli *cli);
    const char *words, *options, *needed;
    int fewest, most;
    const char *follows, *doc; /* doc NULL: not in --help */
};
static const struct command commands[] = {
#define COMMAND(function, words, options, needed, fewest, most, follows, doc)                                          \
    { function, words, options, needed, fewest, most, follows, doc },
#include "daemon/cli.def"
#undef COMMAND
};
enum { COMMANDS = sizeof commands / sizeof *commands };

struct option_desc {
    char letter; /* in the table of commands */
    const char *name;
    char short_name;   /* 0: none */
    const char *value; /* NULL: takes none */
    const char *doc;
};
static const struct option_desc cli_options[] = {
    { 'c', "config", 'c', "FILE", "the configuration" },
    { 'a', "agent", 'a', "NAME", "the agent" },
    { 'f', "format", 0, "FORMAT", "what to print" },
    { 'j', "json", 0, NULL, "print JSON" },
    { 'H', "header", 'H', "HEADER", "a request header, \"Name: value\"; may be given again" },
    { 'l', "like", 0, "TYPE", "the kind of credential" },
    { 'C', "credential", 0, "NAME", "the credential" },
    { 'S', "sandbox", 0, NULL, "run it in a network namespace of its own (not in this build)" },
    { 'F', "follow", 'f', NULL, "go on as events come" },
    { 'n', "lines", 'n', "N", "how many lines (10)" },
    { 's', "store", 0, "STORES", "only these: system, nss, java, with commas" },
};
enum { OPTIONS = sizeof cli_options / sizeof *cli_options };

int cli_fail(int status, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("outgate: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    return status;
}

static const struct option_desc *option_by_letter(char letter)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (cli_options[i].letter == letter)
            return &cli_options[i];
    return NULL;
}

static void print_usage(FILE *out, const struct command *cmd)
{
    fprintf(out, "usage: outgate %s", cmd->words);
    for (const char *p = cmd->options; *p; p++) {
        const struct option_desc *o = option_by_letter(*p);
        bool needed = strchr(cmd->needed, *p) != NULL;
        fprintf(out, needed ? " " : " [");
        if (o->short_name)
            fprintf(out, "-%c", o->short_name);
        else
            fprintf(out, "--%s", o->name);
        fprintf(out, o->value ? " %s" : "%s", o->value ? o->value : "");
        if (!needed)
            fputc(']', out);
    }
    fprintf(out, "%s%s\n", cmd->follows[0] ? " " : "", cmd->follows);
}

static int help_command(const struct command *cmd)
{
    print_usage(stdout, cmd);
    if (cmd->doc)
        printf("  %s\n", cmd->doc);
    for (const char *p = cmd->options; *p; p++) {
        const struct option_desc *o = option_by_letter(*p);
        char shape[40];
        if (o->short_name)
            snprintf(shape, sizeof shape, "-%c, --%s %s", o->short_name, o->name, o->value ? o->value : "");
        else
            snprintf(shape, sizeof shape, "    --%s %s", o->name, o->value ? o->value : "");
        printf("  %-24s %s\n", shape, o->doc);
    }
    return CLI_OK;
}

static int help_all(FILE *out)
{
    fprintf(out,
            "usage: outgate COMMAND …\n\nAn egress proxy that swaps an agent's placeholders for real credentials.\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].doc)
            fprintf(out, "  %-14s %s\n", commands[i].words, commands[i].doc);
    fprintf(out,
            "\n`outgate COMMAND --help` says more. Exit codes: 0 fine, 1 the answer is no, 2 usage, 3 cannot start or\n"
            "read (configuration, CA, permissions), 4 cannot reach the server.\n");
    return out == stdout ? CLI_OK : CLI_USAGE;
}

/* One or two words name a command. Returns how many words, 0 for none. */
static int command_find(int argc, char **argv, const struct command **ret)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        const char *space = strchr(commands[i].words, ' ');
        size_t n = space ? (size_t)(space - commands[i].words) : strlen(commands[i].words);
        if (strlen(argv[0]) != n || strncmp(argv[0], commands[i].words, n) != 0)
            continue;
        if (space && (argc < 2 || strcmp(argv[1], space + 1) != 0))
            continue;
        *ret = &commands[i];
        return space ? 2 : 1;
    }
    return 0;
}

/* `outgate ca`, `outgate ca --help`, `outgate ca frob`: the commands of that group. */
static int help_group(const char *word, int argc, char **argv)
{
    bool any = false, asked = argc > 1 && strcmp(argv[1], "--help") == 0;
    FILE *out = asked ? stdout : stderr;
    size_t n = strlen(word);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i].words, word, n) == 0 && commands[i].words[n] == ' ' && commands[i].doc) {
            if (!any && argc > 1 && !asked)
                cli_fail(0, "unknown command '%s %s'", word, argv[1]);
            any = true;
            print_usage(out, &commands[i]);
        }
    if (!any)
        return cli_fail(CLI_USAGE, "unknown command '%s'; `outgate --help` lists them", word);
    return asked ? CLI_OK : CLI_USAGE;
}

static int option_set(struct cli *cli, const struct option_desc *o, const char *value)
{
    char *end;
    switch (o->letter) {
    case 'c':
        cli->config = value;
        break;
    case 'a':
        cli->agent = value;
        break;
    case 'f':
        cli->format = value;
        break;
    case 'l':
        cli->like = value;
        break;
    case 'C':
        cli->credential = value;
        break;
    case 's':
        cli->store = value;
        break;
    case 'j':
        cli->json = true;
        break;
    case 'S':
        cli->sandbox = true;
        break;
    case 'F':
        cli->follow = true;
        break;
    case 'n':
        errno = 0;
        cli->last = strtoul(value, &end, 10);
        if (errno || *end || end == value || value[0] == '-')
            return cli_fail(CLI_USAGE, "-n: expected a number, got '%s'", value);
        break;
    default:
        if (cli->nheaders == CLI_HEADERS_MAX)
            return cli_fail(CLI_USAGE, "more than %d headers", CLI_HEADERS_MAX);
        cli->headers[cli->nheaders++] = value;
    }
    return 0;
}

/* Which option a word is; *ret_value: what follows '=' or the short letter in the same word. */
static const struct option_desc *option_match(const struct command *cmd, const char *word, const char **ret_value)
{
    for (const char *p = cmd->options; *p; p++) {
        const struct option_desc *o = option_by_letter(*p);
        size_t n = strlen(o->name);
        *ret_value = NULL;
        if (word[1] == '-' && strncmp(word + 2, o->name, n) == 0 && (word[2 + n] == '\0' || word[2 + n] == '=')) {
            if (word[2 + n] == '=')
                *ret_value = word + 3 + n;
            return o;
        }
        if (o->short_name && word[1] == o->short_name) {
            if (word[2])
                *ret_value = word + 2;
            return o;
        }
    }
    return NULL;
}

/* 0, or the exit status (1 above them all: help was printed). */
enum { HELPED = 100 };
static int options_parse(const struct command *cmd, int argc, char **argv, struct cli *cli)
{
    bool seen[128] = { false };
    int i = 0, kept = 0;
    for (; i < argc; i++) {
        const char *word = argv[i], *value;
        if (strcmp(word, "--") == 0) {
            i++;
            break;
        }
        if (word[0] != '-' || word[1] == '\0') {
            if (strstr(cmd->follows, "CMD")) /* the rest is not ours */
                break;
            argv[kept++] = argv[i];
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            help_command(cmd);
            return HELPED;
        }
        const struct option_desc *o = option_match(cmd, word, &value);
        if (!o || (value && !o->value)) {
            print_usage(stderr, cmd);
            return cli_fail(CLI_USAGE, "%s: unknown option '%s'", cmd->words, word);
        }
        if (o->value && !value && ++i < argc)
            value = argv[i];
        if (o->value && !value)
            return cli_fail(CLI_USAGE, "%s: %s needs a value", cmd->words, word);
        if (seen[(unsigned char)o->letter] && o->letter != 'H')
            return cli_fail(CLI_USAGE, "%s: %s is given twice", cmd->words, word);
        seen[(unsigned char)o->letter] = true;
        int r = option_set(cli, o, value);
        if (r)
            return r;
    }
    while (i < argc)
        argv[kept++] = argv[i++];
    cli->args = argv;
    cli->nargs = kept;
    argv[kept] = NULL; /* argv has room: it ends with a NULL of its own */
    for (const char *p = cmd->needed; *p; p++)
        if (!seen[(unsigned char)*p]) {
            print_usage(stderr, cmd);
            return cli_fail(CLI_USAGE, "%s: --%s is needed", cmd->words, option_by_letter(*p)->name);
        }
    if (kept < cmd->fewest || kept > cmd->most) {
        print_usage(stderr, cmd);
        return cli_fail(CLI_USAGE, "%s: %s arguments", cmd->words, kept < cmd->fewest ? "too few" : "too many");
    }
    return 0;
}

int cli_main(int argc, char **argv)
{
    const struct command *cmd = NULL;
    struct cli cli = { .last = 10 };
    log_init("outgate");
    if (argc < 2)
        return help_all(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help_all(stdout);
    if (strcmp(argv[1], "--version") == 0)
        return cli_version(&cli);
    int words = command_find(argc - 1, argv + 1, &cmd);
    if (!words)
        return help_group(argv[1], argc - 1, argv + 1);
    int r = options_parse(cmd, argc - 1 - words, argv + 1 + words, &cli);
    if (r)
        return r == HELPED ? CLI_OK : r;
    r = cmd->run(&cli);
    if (fflush(stdout) || ferror(stdout))
        return cli_fail(CLI_UNREADABLE, "cannot write to stdout: %s", strerror(errno));
    return r;
}

static int report(const struct diag *diag)
{
    diag_print(diag, 2, true);
    return diag->errors ? CLI_UNREADABLE : CLI_OK;
}

int cli_config(const struct cli *cli, struct gather *g)
{
    struct diag diag;
    diag_init(&diag);
    int r = gather_config(g, cli->config, &diag) ? report(&diag) : 0;
    diag_done(&diag);
    return r;
}

int cli_policy(const struct cli *cli, struct gather *g)
{
    struct diag diag;
    diag_init(&diag);
    int r = gather_policy(g, cli->config, &diag) ? report(&diag) : 0;
    diag_done(&diag);
    return r;
}

static int no_such_agent(const struct cli *cli, const struct gather *g)
{
    const struct config *c = g->config;
    struct buf names;
    buf_init(&names, 256); /* more than that is not worth reading */
    for (size_t i = 0; i < c->nagents; i++)
        if (buf_putf(&names, "%s%.*s", i ? ", " : "", STR_ARG(c->agents[i].name)))
            break;
    int r = cli_fail(CLI_NO, "%s has no agent '%s', but these: %.*s", g->file, cli->agent, STR_ARG(buf_str(&names)));
    buf_done(&names);
    return r;
}

int cli_agent(const struct cli *cli, const struct gather *g, const struct agent **ret)
{
    const struct config *c = g->config;
    if (!cli->agent && c->nagents == 1) {
        *ret = &c->agents[0];
        return 0;
    }
    if (!cli->agent)
        return cli_fail(CLI_USAGE, "the configuration has %zu agents: say which with --agent", c->nagents);
    *ret = policy_agent(g->policy, str_c(cli->agent));
    return *ret ? 0 : no_such_agent(cli, g);
}
