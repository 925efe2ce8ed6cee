/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gather.h"

#include "daemon/files.h"
#include "daemon/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE_FILE_MAX = 16 * 1024 * 1024, SIDE_FILES_BYTES_MAX = SNAPSHOT_MAX / 2, RESOLV_CONF_MAX = 65536 };

static int read_text(struct gather *g, const char *file, struct diag *diag)
{
    struct err err;
    buf_init(&g->text, CONFIG_MAX);
    buf_init(&g->system_roots, TRUST_ROOTS_MAX);
    buf_init(&g->resolv_conf, RESOLV_CONF_MAX);
    g->file = z_of(str_c(file));
    g->path = realpath(file, NULL);
    if (!g->path) {
        diag_add(diag, true, "%s: cannot open: %s", file, strerror(errno));
        return -1;
    }
    /* Relative paths are relative to the file as named, not to where a link leads. */
    char *copy = z_of(str_c(file)), *slash = strrchr(copy, '/');
    if (slash)
        slash[slash == copy ? 1 : 0] = '\0';
    g->dir = realpath(slash ? copy : ".", NULL);
    free(copy);
    if (!g->dir || file_read(file, &g->text, &err)) {
        diag_add(diag, true, "%s", g->dir ? err.text : strerror(errno));
        return -1;
    }
    g->was_read = true;
    return 0;
}

int gather_config(struct gather *g, const char *file, struct diag *diag)
{
    *g = (struct gather) { 0 };
    if (read_text(g, file, diag))
        return -1;
    g->config = config_parse(str_c(g->file), str_c(g->dir), buf_str(&g->text), diag);
    diag_sort(diag);
    return g->config ? 0 : -1;
}

/* Where the configuration names that file, for the message. */
static struct config_at named_at(const struct config *c, struct str path, const char **ret_key)
{
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++)
            if (c->agents[i].claims[k].kind == CLAIM_LOGIN && str_eq(c->agents[i].claims[k].token_file, path)) {
                *ret_key = "identify.login.token_file";
                return c->agents[i].claims[k].at;
            }
    for (size_t i = 0; i < c->nca_files; i++)
        if (c->ca_files[i].system ? str_eq(path, STR("system")) : str_eq(c->ca_files[i].path, path)) {
            *ret_key = "origin.ca_file";
            return c->ca_files[i].at;
        }
    *ret_key = "origin.parent_proxy.login_file";
    return c->parent_proxy.at;
}

struct collect {
    struct gather *g;
    struct diag *diag;
    size_t bytes;
    int failed;
};

static void add_side_file(void *ctx, struct str path)
{
    struct collect *c = ctx;
    struct gather *g = c->g;
    const char *key;
    struct config_at at = named_at(g->config, path, &key);
    bool system = str_eq(path, STR("system"));
    struct buf bytes;
    struct err err = { "" }, unread;
    buf_init(&bytes, SIDE_FILE_MAX);
    int r = 0;
    char *z = z_of(path);
    if (system && buf_size(&g->system_roots) == 0)
        r = err_set(&err,
                    "expected the system's roots in %s, got none: install ca-certificates, or list files in "
                    "origin.ca_file",
                    TRUST_SYSTEM_ROOTS);
    if (!system && file_read(z, &bytes, &unread)) {
        struct str why = str_c(unread.text);
        if (str_starts(why, path)) /* "PATH: why" */
            why = str_from(why, path.n + sizeof ": " - 1);
        r = err_set(&err, "expected a file that can be read, got \"%s\" (%.*s)", z, STR_ARG(why));
    }
    free(z);
    c->bytes += buf_size(&bytes);
    if (r == 0 && (c->bytes > SIDE_FILES_BYTES_MAX || g->nfiles >= SNAPSHOT_FILES_MAX))
        r = err_set(&err, "the files that the configuration names are too many or too large together");
    if (r) {
        diag_add_at(c->diag, true, at, "%s:%u:%u: %s: %s", g->file, at.line, at.col, key, err.text);
        c->failed = -1;
        buf_done(&bytes);
        return;
    }
    if (g->nfiles == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 16;
        g->files = reallocarray(g->files, g->cap, sizeof *g->files);
        if (!g->files)
            abort();
    }
    /* The buffer's memory becomes the table's. */
    g->files[g->nfiles++] =
        (struct side_file) { str_c(z_of(path)), system ? buf_str(&g->system_roots) : buf_str(&bytes) };
}

static int compile(struct gather *g, const char *file, struct diag *diag)
{
    if (gather_config(g, file, diag))
        return -1;
    struct err err;
    if (trust_system_roots(&g->system_roots, &err)) {
        diag_add(diag, true, "%s: origin.ca_file: %s", g->file, err.text);
        return -1;
    }
    /* Absent is fine: there may be only explicit upstreams. */
    buf_reset(&g->resolv_conf);
    if (access("/etc/resolv.conf", F_OK) == 0 && file_read("/etc/resolv.conf", &g->resolv_conf, &err)) {
        diag_add(diag, true, "%s: resolver.upstreams: %s", g->file, err.text);
        return -1;
    }
    struct collect c = { g, diag, 0, 0 };
    config_side_files(g->config, add_side_file, &c);
    if (c.failed)
        return -1;
    struct config *take = (struct config *)(uintptr_t)g->config;
    g->config = NULL;
    g->policy = policy_new(take, g->files, g->nfiles, diag);
    if (!g->policy)
        return -1;
    g->config = policy_config(g->policy);
    return 0;
}

int gather_policy(struct gather *g, const char *file, struct diag *diag)
{
    int r = compile(g, file, diag);
    diag_sort(diag);
    return r;
}

char *gather_guess(const struct gather *g, const char *key)
{
    struct str rest = buf_str(&g->text), line, name = str_c(key);
    while (str_split(&rest, '\n', &line)) {
        if (!str_starts(line, name) || !str_starts(str_from(line, name.n), STR(":")))
            continue;
        ptrdiff_t comment = str_find(line, STR(" #"));
        line = str_trim(str_sub(line, name.n + 1, comment < 0 ? SIZE_MAX : (size_t)comment - name.n - 1));
        if (line.n >= 2 && (line.p[0] == '"' || line.p[0] == '\'') && line.p[line.n - 1] == line.p[0])
            line = str_sub(line, 1, line.n - 2);
        if (!line.n || str_eq(line, STR("null")) || str_eq(line, STR("~")))
            return NULL;
        return line.p[0] == '/' ? z_of(line) : z_printf("%s/%.*s", g->dir, STR_ARG(line));
    }
    return NULL;
}

void gather_done(struct gather *g)
{
    if (g->policy)
        policy_unref(&g->policy);
    else if (g->config)
        config_free((struct config *)(uintptr_t)g->config);
    for (size_t i = 0; i < g->nfiles; i++) {
        if (!str_eq(g->files[i].path, STR("system")) && g->files[i].bytes.p) {
            explicit_bzero((void *)(uintptr_t)g->files[i].bytes.p, g->files[i].bytes.n); /* token files */
            free((void *)(uintptr_t)g->files[i].bytes.p);
        }
        free((void *)(uintptr_t)g->files[i].path.p);
    }
    free(g->files);
    buf_done(&g->text);
    buf_done(&g->system_roots);
    buf_done(&g->resolv_conf);
    free(g->file);
    free(g->dir);
    free(g->path);
    *g = (struct gather) { 0 };
}

void gather_view(const struct gather *g, struct snapshot *ret)
{
    *ret = (struct snapshot) {
        .file = str_c(g->file),
        .dir = str_c(g->dir),
        .text = buf_str(&g->text),
        .system_roots = buf_str(&g->system_roots),
        .resolv_conf = buf_str(&g->resolv_conf),
        .files = g->files,
        .nfiles = g->nfiles,
    };
}

void diag_print(const struct diag *diag, int fd, bool errors_only)
{
    for (size_t i = 0; i < diag->n; i++)
        if (diag->lines[i].error || !errors_only)
            dprintf(fd, "%s%.*s\n", diag->lines[i].error ? "" : "warning: ", STR_ARG(diag->lines[i].text));
}
