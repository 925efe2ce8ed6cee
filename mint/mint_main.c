/* SPDX-License-Identifier: Apache-2.0
 *
 * outgate-mint: the reference sidecar (docs/outgate-mint.md). Reads its file, moves the values of environment variables
 * into memory of their own and wipes the environment, serves, and looks each second whether a file source has changed.
 */
#include "base/buf.h"
#include "base/lockdown.h"
#include "base/log.h"
#include "base/sealed.h"
#include "base/secret.h"
#include "mint/mint_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { EXIT_NO = 1, EXIT_USAGE = 2, EXIT_CANNOT = 3 };

extern char **environ;

static const char help[] =
    "usage: outgate-mint -c FILE          serve the minting protocol in the foreground\n"
    "       outgate-mint check -c FILE    report every error of FILE\n"
    "       outgate-mint --help | --version\n"
    "\n"
    "The reference sidecar of outgate: hands out short-lived leases for credentials that it takes from\n"
    "environment variables, files, or helper programs, over HTTP/1.1 on a Unix socket. FILE, as YAML:\n"
    "\n"
    "  version: 1\n"
    "  socket: mint.sock                  # relative paths are relative to FILE\n"
    "  peer_uids: [61103]                 # who may ask; default: the user this runs as\n"
    "  keeper: /run/outgate/keeper.sock   # told when a file changes; default: nobody\n"
    "  credentials:\n"
    "    - name: github\n"
    "      source: {file: github.token}   # or {env: VAR} or {exec: [PROGRAM, ARG…]}\n"
    "      ttl: 15m\n"
    "      agents: [coder]                # default: any\n"
    "\n"
    "Exit status: 0 fine, 1 FILE has errors (check), 2 usage, 3 cannot start or read. See outgate-mint(1).\n";

static int usage(const char *why)
{
    fprintf(stderr, "outgate-mint: %s\nusage: outgate-mint -c FILE, outgate-mint check -c FILE, outgate-mint --help\n",
            why);
    return EXIT_USAGE;
}

static int cannot(const struct err *err)
{
    fprintf(stderr, "outgate-mint: %s\n", err->text);
    return EXIT_CANNOT;
}

static int read_config(const char *path, struct buf *text, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, "%s", path);
    for (;;) {
        char *p = buf_reserve(text, 65536);
        ssize_t n = p ? read(fd, p, 65536) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int r = n < 0 ? err_set_errno(err, "%s", path) : 0;
            if (!p)
                r = err_set(err, "%s: expected at most %d bytes", path, MINT_CONFIG_MAX);
            close(fd);
            return r;
        }
        buf_wrote(text, (size_t)n);
    }
}

/* Prints what is wrong with the file. NULL with *ret_status. */
static struct mint_config *load(const char *path, int bad_status, int *ret_status)
{
    struct err err;
    struct buf text;
    char full[PATH_MAX];
    struct diag diag;
    struct mint_config *c = NULL;
    buf_init(&text, MINT_CONFIG_MAX + 65536);
    diag_init(&diag);
    int r = read_config(path, &text, &err);
    if (r == 0 && !realpath(path, full))
        r = err_set_errno(&err, "%s", path);
    if (r) {
        *ret_status = cannot(&err);
    } else {
        struct str dir = str_sub(str_c(full), 0, (size_t)str_rfind_char(str_c(full), '/'));
        c = mint_config_parse(str_c(path), dir, buf_str(&text), &diag);
        *ret_status = c ? 0 : bad_status;
    }
    for (size_t i = 0; i < diag.n; i++)
        fprintf(stderr, "%.*s\n", STR_ARG(diag.lines[i].text));
    diag_done(&diag);
    buf_done(&text);
    return c;
}

/* Values into memfds; then the environment is gone, also for /proc/PID/environ. */
static int capture_environment(struct mint_config *c, const char *path, char *home, size_t home_size, struct err *err)
{
    const char *h = getenv("HOME");
    int r = 0;
    snprintf(home, home_size, "%s", h && h[0] == '/' ? h : "/");
    for (size_t i = 0; i < c->nsources && !r; i++) {
        struct minter_source *s = &c->sources[i];
        if (s->kind != MINTER_ENV)
            continue;
        const char *value = getenv(s->text.p);
        if (value && *value)
            r = (s->value_fd = sealed_new("value", str_c(value), err)) < 0 ? -1 : 0;
        else
            r = err_set(err, "%s:%u:%u: source.env: the environment variable %.*s is not set", path, c->at[i].line,
                        c->at[i].col, STR_ARG(s->text));
    }
    for (char **e = environ; e && *e; e++)
        secret_wipe(*e, strlen(*e));
    clearenv();
    return r;
}

/* A socket that nobody serves any more is removed; one that somebody serves, or another file, is left alone. */
static int clear_path(const struct sockaddr_un *a, struct err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st))
        return errno == ENOENT ? 0 : err_set_errno(err, "%s", a->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, "%s: expected a socket or nothing, got another file", a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool served =
        fd < 0 || connect(fd, (const struct sockaddr *)(const void *)a, sizeof *a) == 0 || errno != ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (served)
        return err_set(err, "%s: another process serves it", a->sun_path);
    return unlink(a->sun_path) ? err_set_errno(err, "%s", a->sun_path) : 0;
}

/* Who may connect is anybody where others may ask: who is answered is decided by uid, connection by connection. */
static int listen_on(const struct mint_config *c, const struct minter_options *o, struct err *err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, c->socket.p, c->socket.n);
    if (clear_path(&a, err))
        return -1;
    bool others = false;
    for (size_t i = 0; i < o->npeer_uids; i++)
        others |= o->peer_uids[i] != geteuid();
    mode_t old = umask(others ? 0111 : 0177);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a) || listen(fd, 128) ? -1 : 0;
    if (r)
        err_set_errno(err, "%s", a.sun_path);
    umask(old);
    if (r && fd >= 0)
        close(fd);
    return r ? -1 : fd;
}

static int open_file(void *ctx, struct str credential, struct str path)
{
    (void)ctx;
    (void)credential;
    return open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* NUL-terminated; a FIFO must not hold us up */
}

static void serve(const struct mint_config *c, const sigset_t *ends)
{
    const struct timespec second = { .tv_sec = 1 };
    struct mint_watch *w = mint_watch_new(c);
    MUST(w);
    while (sigtimedwait(ends, NULL, &second) < 0)
        mint_watch_look(w);
    mint_watch_free(&w);
}

static int run(struct mint_config *c, const char *path)
{
    struct err err;
    char home[PATH_MAX];
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before there are threads */
    if (secret_init()) {
        err_set(&err, "no memory can be locked: raise the limit on locked memory (ulimit -l)");
        return cannot(&err);
    }
    if (lockdown_identity((uid_t)-1, (gid_t)-1, &err) || capture_environment(c, path, home, sizeof home, &err))
        return cannot(&err);
    struct minter_options o = {
        .sources = c->sources, .nsources = c->nsources, .open_file = open_file, .home = str_c(home)
    };
    o.npeer_uids = c->npeer_uids ? c->npeer_uids : 1;
    o.peer_uids[0] = geteuid();
    if (c->npeer_uids)
        memcpy(o.peer_uids, c->peer_uids, sizeof o.peer_uids);
    o.listen_fd = listen_on(c, &o, &err);
    if (o.listen_fd < 0)
        return cannot(&err);
    struct minter *m = minter_new(&o, &err);
    if (!m)
        return cannot(&err);
    log_info("ready on %.*s, %zu credentials", STR_ARG(c->socket), c->nsources);
    serve(c, &ends);
    minter_free(&m);
    unlink(c->socket.p);
    return 0;
}

int main(int argc, char **argv)
{
    bool check = argc > 1 && strcmp(argv[1], "check") == 0;
    const char *file = NULL;
    log_init("outgate-mint");
    for (int i = check ? 2 : 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            puts("outgate-mint " OUTGATE_VERSION);
            return 0;
        }
        if (strcmp(argv[i], "-c") || i + 1 == argc || file)
            return usage(strcmp(argv[i], "-c") ? "expected -c FILE, got another word" : "expected one -c FILE");
        file = argv[++i];
    }
    if (!file)
        return usage("expected -c FILE");
    int status = 0;
    struct mint_config *c = load(file, check ? EXIT_NO : EXIT_CANNOT, &status);
    if (c && !check)
        status = run(c, file);
    else if (c)
        printf("%s: no errors\n", file);
    mint_config_free(&c);
    return status;
}
