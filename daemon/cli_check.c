/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate check`: what is wrong with a configuration, and what it needs of this machine and hour that is not there. */
#include "daemon/cli.h"

#include "base/clock.h"
#include "daemon/files.h"
#include "dns/resolv_conf.h"
#include "mint/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The policy itself knows no clock; a server would leave these rules out. */
static void warn_expired(const struct gather *g, struct diag *diag)
{
    int64_t now_us = clock_wall_us();
    for (size_t i = 0; i < g->config->nrules; i++) {
        const struct rule *rule = &g->config->rules[i];
        if (rule->expires_us && rule->expires_us <= now_us)
            diag_add_at(diag, false, rule->at, "%s:%u:%u: rules: expected a rule that can match, got \"%.*s\", which has expired",
                        g->file, rule->at.line, rule->at.col, STR_ARG(rule->name));
    }
}

/* What the file itself names, the policy has looked at. */
static void warn_own_server(const struct gather *g, struct diag *diag)
{
    const struct config *c = g->config;
    struct resolv_conf system;
    resolv_conf_parse(buf_str(&g->resolv_conf), &system);
    for (size_t i = 0; i < c->nupstreams; i++)
        for (size_t k = 0; c->upstreams[i].kind == UPSTREAM_SYSTEM && k < system.n; k++)
            for (size_t m = 0; m < c->ndns; m++)
                if (config_listener_hears(&c->dns[m], &system.servers[k].ip, system.servers[k].port))
                    diag_add_at(diag, false, c->upstreams[i].at,
                             "%s:%u:%u: resolver.upstreams: expected a name server of somebody else, got system, and /etc/resolv.conf has our own "
                             "listen.dns \"%.*s\": a question would come back to us, and be refused or asked again",
                             g->file, c->upstreams[i].at.line, c->upstreams[i].at.col, STR_ARG(c->dns[m].text));
}

static void warn_source(const struct gather *g, struct diag *diag, const struct credential *c, const char *key,
                        const char *expected, const char *name, const char *fault, const char *todo)
{
    diag_add_at(diag, false, c->source_at, "%s:%u:%u: source.%s: expected %s, got \"%s\", %s: credential \"%.*s\" has no value (%s)",
             g->file, c->source_at.line, c->source_at.col, key, expected, name, fault, STR_ARG(c->name), todo);
}

/* NULL, or what a minter could not read it for. Its bytes are not looked at. */
static const char *file_fault(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT   ? "which does not exist"
               : errno == EACCES ? "which this user may not read"
                                 : strerror(errno);
    const char *fault = fstat(fd, &st)         ? strerror(errno)
                        : !S_ISREG(st.st_mode) ? "which is not a regular file"
                        : !st.st_size          ? "which is empty"
                                               : NULL;
    close(fd);
    return fault ? fault : st.st_size > LEASE_VALUE_MAX ? "which is too long for a credential" : NULL;
}

/* What is not there now may be there when the server starts, and a file also later: nothing of this is an error. */
static void warn_sources(const struct gather *g, struct diag *diag)
{
    for (size_t i = 0; i < g->config->ncredentials; i++) {
        const struct credential *c = &g->config->credentials[i];
        if (c->source != SOURCE_FILE && c->source != SOURCE_ENV)
            continue;
        char *name = z_of(c->source_text);
        if (c->source == SOURCE_FILE) {
            const char *fault = file_fault(name);
            if (fault)
                warn_source(g, diag, c, "file", "a readable file with the value", name, fault,
                            "write the value there, or correct the path");
        } else {
            const char *value = getenv(name);
            if (!value || !*value)
                warn_source(g, diag, c, "env", "a variable with the value", name,
                            value ? "which is empty here" : "which is not set here",
                            "set it where `outgate serve` is started, which refuses to start without it");
        }
        free(name);
    }
}

int cli_check(const struct cli *cli)
{
    struct gather g;
    struct diag diag;
    diag_init(&diag);
    int r = gather_policy(&g, cli->config, &diag);
    if (!r) {
        warn_expired(&g, &diag);
        warn_sources(&g, &diag);
        warn_own_server(&g, &diag);
    }
    diag_sort(&diag);
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
