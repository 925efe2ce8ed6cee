/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"
#include "daemon/files.h"
#include "daemon/statedir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char first_config[] =
    "# Outgate. `outgate check -c outgate.yaml` reports mistakes; relative paths are relative to this file.\n"
    "version: 1\n"
    "state_dir: state\n"
    "%s"
    "listen:\n"
    "  proxy: [127.0.0.1:3128]\n"
    "agents:\n"
    "  - name: coder\n"
    "    identify:\n"
    "      - source: 127.0.0.1/32        # whoever connects from here is this agent\n"
    "\n"
    "# Top to bottom, the first rule that matches decides; what no rule allows is refused.\n"
    "rules:\n"
    "  - name: example\n"
    "    hosts: [example.com, \"*.example.com\"]\n"
    "    methods: [GET, HEAD]\n"
    "    action: allow\n"
    "#  - name: github\n"
    "#    agents: [coder]\n"
    "#    hosts: [api.github.com, github.com]\n"
    "#    action: allow\n"
    "\n"
    "# The agent holds a placeholder; the real value takes its place on the way to these hosts only.\n"
    "#credentials:\n"
    "#  - name: github\n"
    "#    agents: [coder]\n"
    "#    hosts: [api.github.com, github.com]\n"
    "#    slots: [\"header:authorization\", \"basic:password\"]\n"
    "#    env: GITHUB_TOKEN\n"
    "#    source: {env: GITHUB_TOKEN}     # read by `outgate serve`; or {file: PATH}, {exec: [CMD]}, {sidecar: NAME}\n";

/* An ordinary user without a session has no folder for the sockets: they go next to the file. */
static char *first_text(void)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    bool session = geteuid() == 0 || (xdg && xdg[0] == '/');
    return z_printf(first_config, session ? "" : "runtime_dir: run\n");
}

static int make_folders(const char *dir, struct err *err)
{
    char *path = z_of(str_c(dir));
    int r = 0;
    for (char *p = path + 1; r == 0; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char c = *p;
        *p = '\0';
        if (mkdir(path, 0755) && errno != EEXIST)
            r = err_set_errno(err, "%s: cannot make it", path);
        *p = c;
        if (!c)
            break;
    }
    free(path);
    return r;
}

int cli_init(const struct cli *cli)
{
    const char *dir = cli->args[0];
    struct err err;
    struct users users;
    bool exists = false;
    umask(0022);
    if (!dir[0])
        return cli_fail(CLI_USAGE, "init: DIR is empty");
    if (make_folders(dir, &err) || users_resolve(NULL, &users, &err) || statedir_init(dir, &users, &exists, &err))
        return cli_fail(CLI_UNREADABLE, "%s", err.text);
    char *config = z_printf("%s/outgate.yaml", dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool kept = access(config, F_OK) == 0;
    int r = fd < 0 ? err_set_errno(&err, "%s", dir) : 0;
    if (r == 0 && !kept) {
        char *text = first_text();
        r = file_create_at(fd, "outgate.yaml", str_c(text), 0644, (uid_t)-1, (gid_t)-1, &err);
        free(text);
    }
    if (fd >= 0)
        close(fd);
    if (r == 0)
        printf("%s %s, and %sa CA of its own in %s/state. Next:\n"
               "  outgate check -c %s\n"
               "  outgate serve -c %s\n"
               "  outgate run -c %s --agent coder -- curl -sS https://example.com/\n",
               kept ? "Kept" : "Made", config, kept ? "made " : "", dir, config, config, config);
    free(config);
    return r ? cli_fail(CLI_UNREADABLE, "%s", err.text) : CLI_OK;
}
