/* SPDX-License-Identifier: Apache-2.0
 *
 * Debian's update-ca-certificates makes a bundle and a folder of links out of the certificates that it ships and those
 * in LOCAL, and tells its hooks (Java's, for one) what came and what went. It does not notice that a file of LOCAL
 * went; it does when the file's name is deselected in its configuration, so for that one run it gets a copy of it that
 * says so. */
#include "daemon/ca_store.h"

#include "base/sealed.h"
#include "daemon/files.h"
#include "daemon/tool_run.h"
#include "daemon/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCAL "/usr/local/share/ca-certificates"
#define LINKS "/etc/ssl/certs"
#define CONF  "/etc/ca-certificates.conf"
#define TOOL  "update-ca-certificates"

struct place {
    const struct ca_cert *cert;
    char *tool, *file, *link; /* file: in LOCAL; link: what the tool makes of it */
};

static bool in_bundle(const struct place *p)
{
    struct buf roots;
    buf_init(&roots, TRUST_ROOTS_MAX);
    bool there = trust_system_roots(&roots, NULL) == 0 && ca_store_has(buf_str(&roots), p->cert->pem);
    buf_done(&roots);
    return there;
}

/* 1: there and ours, 0: not there, -1: something else, or unreadable. */
static int file_state(const struct place *p, struct err *err)
{
    struct buf old;
    struct stat st;
    if (lstat(p->file, &st) && errno == ENOENT)
        return 0;
    buf_init(&old, 65536);
    int r = file_read(p->file, &old, err) ? -1 : 1;
    if (r == 1 && !str_eq(buf_str(&old), p->cert->pem))
        r = err_set(err,
                    "%s: expected our certificate, got something else, which is left alone: look at it, and remove it",
                    p->file);
    buf_done(&old);
    return r;
}

/* argv without the tool's path. */
static int run_tool(const struct place *p, const char *option, const char *value, struct err *err)
{
    const char *argv[] = { p->tool, option, value, NULL };
    struct buf said;
    buf_init(&said, 65536);
    int status = tool_run(argv, STR(""), &said, err);
    if (status > 0)
        status = err_set(err, "%s ended with %d: %.*s", p->tool, status, STR_ARG(tool_last_line(buf_str(&said))));
    buf_done(&said);
    return status;
}

static int refresh_without(const struct place *p, struct err *err)
{
    struct buf conf;
    buf_init(&conf, 1024 * 1024);
    if (access(CONF, F_OK) == 0 && file_read(CONF, &conf, err)) {
        buf_done(&conf);
        return -1;
    }
    if (buf_size(&conf))
        buf_putc(&conf, '\n');
    buf_putf(&conf, "!%s.crt\n", p->cert->label);
    int fd = sealed_new("ca-certificates.conf", buf_str(&conf), err);
    buf_done(&conf);
    if (fd < 0)
        return -1;
    char *path = z_printf("/proc/%d/fd/%d", (int)getpid(), fd);
    int r = run_tool(p, "--certsconf", path, err);
    free(path);
    close(fd);
    return r;
}

static bool may_write(struct err *err)
{
    if (access(LOCAL, W_OK) == 0 && access(LINKS, W_OK) == 0)
        return true;
    err_set(err, LOCAL ": expected to be allowed to write there, got: %s%s", strerror(errno),
            geteuid() ? "; only root may: run it as root, or name the other stores with --store" : "");
    return false;
}

/* The file first, then what is made of it; none of it when that fails. */
static int put(const struct place *p, bool there, struct err *err)
{
    if (!there && ca_store_create(LOCAL, str_from(str_c(p->file), sizeof LOCAL).p, p->cert->pem, 0644, err))
        return -1;
    int r = run_tool(p, NULL, NULL, err);
    if (r == 0 && !in_bundle(p))
        r = err_set(err, TOOL " ended well, but " TRUST_SYSTEM_ROOTS " lacks the certificate");
    if (r)
        unlink(p->file);
    return r;
}

static int take_out(const struct place *p, bool there, struct err *err)
{
    if (there && unlink(p->file))
        return err_set_errno(err, "%s: cannot remove it", p->file);
    return refresh_without(p, err);
}

static enum ca_store_end install(const struct place *p, struct err *err)
{
    int there = file_state(p, err);
    if (there < 0)
        return CA_STORE_FAILED;
    if (there && in_bundle(p)) {
        ca_store_say("system", "already there: %s", p->file);
        return CA_STORE_OK;
    }
    if (!may_write(err) || put(p, there, err))
        return CA_STORE_FAILED;
    ca_store_say("system", "installed: %s", p->file);
    return CA_STORE_OK;
}

static enum ca_store_end uninstall(const struct place *p, struct err *err)
{
    struct stat st;
    int there = file_state(p, err);
    if (there < 0)
        return CA_STORE_FAILED;
    if (!there && lstat(p->link, &st)) {
        ca_store_say("system", "not there%s",
                     in_bundle(p) ? "; the certificate is trusted all the same, by a file of another name" : "");
        return CA_STORE_OK;
    }
    if (!may_write(err) || take_out(p, there, err))
        return CA_STORE_FAILED;
    ca_store_say("system", "removed: %s", p->file);
    return CA_STORE_OK;
}

enum ca_store_end ca_store_system(const struct ca_cert *cert, bool want, struct err *err)
{
    struct place p = { .cert = cert, .tool = tool_find(TOOL) };
    if (!p.tool || access(LOCAL, F_OK)) {
        err_set(err, p.tool ? LOCAL " does not exist: install the package ca-certificates"
                            : TOOL " is not here: install the package ca-certificates");
        free(p.tool);
        return CA_STORE_ABSENT;
    }
    p.file = z_printf(LOCAL "/%s.crt", cert->label);
    p.link = z_printf(LINKS "/%s.pem", cert->label);
    enum ca_store_end end = want ? install(&p, err) : uninstall(&p, err);
    free(p.tool);
    free(p.file);
    free(p.link);
    return end;
}
