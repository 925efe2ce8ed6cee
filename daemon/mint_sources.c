/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources written in outgate.yaml: their values pass through here only as descriptors. An env source's value goes from
 * the environment block straight into a sealed memfd, then the block is wiped; a file source is opened when the minter
 * asks, never read; its time of change is looked at each second, and the leases made from an old content are revoked.
 */
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sealed.h"
#include "base/secret.h"
#include "daemon/files.h"
#include "daemon/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct watched_file {
    char *credential, *path;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
    bool there;
    bool revoke_due;         /* it changed, and no keeper has said yet that its leases are revoked */
    uint64_t revoke_id;      /* of the REVOKE that was sent … */
    uint32_t revoke_sent_to; /* … to this incarnation of the keeper */
};

extern char **environ;

int env_value_fd(const struct supervisor *s, struct str name)
{
    for (size_t i = 0; i < s->nenv; i++)
        if (str_eq(str_c(s->env[i].name), name))
            return s->env[i].fd;
    return -1;
}

static int capture_one(struct supervisor *s, const struct credential *c, struct err *err)
{
    if (env_value_fd(s, c->source_text) >= 0)
        return 0;
    char *name = z_of(c->source_text);
    const char *value = getenv(name);
    int fd = value && *value ? sealed_new("source", str_c(value), err)
                             : err_set(err, "credentials: %.*s: source: the environment variable %s is not set",
                                       STR_ARG(c->name), name);
    if (fd < 0) {
        free(name);
        return -1;
    }
    struct env_value *v = reallocarray(s->env, s->nenv + 1, sizeof *v);
    MUST(v);
    s->env = v;
    s->env[s->nenv++] = (struct env_value) { name, fd };
    return 0;
}

int env_capture(struct supervisor *s, const struct config *c, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < c->ncredentials && r == 0; i++)
        if (c->credentials[i].source == SOURCE_ENV)
            r = capture_one(s, &c->credentials[i], err);
    /* The block that /proc/PID/environ shows, whether or not it went well. Nothing after this reads the environment. */
    for (char **e = environ; e && *e; e++)
        secret_wipe(*e, strlen(*e));
    clearenv();
    return r;
}

int mint_sources_check(const struct supervisor *s, const struct config *c, struct err *err)
{
    for (size_t i = 0; i < c->ncredentials; i++)
        if (c->credentials[i].source == SOURCE_ENV && env_value_fd(s, c->credentials[i].source_text) < 0)
            return err_set(
                err,
                "credentials: %.*s: source: the environment variable %.*s was not read at the start (the environment "
                "is wiped then): restart the server, or use a file",
                STR_ARG(c->credentials[i].name), STR_ARG(c->credentials[i].source_text));
    return 0;
}

static bool needs_minter(const struct credential *c)
{
    return c->source == SOURCE_ENV || c->source == SOURCE_FILE || c->source == SOURCE_EXEC;
}

bool mint_sources_any(const struct config *c)
{
    for (size_t i = 0; i < c->ncredentials; i++)
        if (needs_minter(&c->credentials[i]))
            return true;
    return false;
}

static bool source_equal(const struct credential *a, const struct credential *b)
{
    if (a->source != b->source || a->max_ttl_ms != b->max_ttl_ms || !str_eq(a->name, b->name) ||
        !str_eq(a->source_text, b->source_text) || a->nexec != b->nexec)
        return false;
    for (size_t i = 0; i < a->nexec; i++)
        if (!str_eq(a->exec[i], b->exec[i]))
            return false;
    return true;
}

static const struct credential *next_source(const struct config *c, size_t *i)
{
    while (*i < c->ncredentials && !needs_minter(&c->credentials[*i]))
        ++*i;
    return *i < c->ncredentials ? &c->credentials[(*i)++] : NULL;
}

bool mint_sources_equal(const struct config *a, const struct config *b)
{
    size_t i = 0, k = 0;
    for (;;) {
        const struct credential *x = next_source(a, &i), *y = next_source(b, &k);
        if (!x || !y)
            return x == y;
        if (!source_equal(x, y))
            return false;
    }
}

static int send_source(struct child *minter, const struct credential *c, struct err *err)
{
    struct supervisor *s = minter->sup;
    int fd = -1;
    if (c->source == SOURCE_ENV) {
        /* A descriptor with an offset of its own: each minter reads from the start. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", env_value_fd(s, c->source_text));
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return err_set_errno(err, "credentials: %.*s: source", STR_ARG(c->name));
    }
    struct mint_source src = {
        .credential = c->name,
        .kind = c->source == SOURCE_ENV    ? MINTER_ENV
                : c->source == SOURCE_FILE ? MINTER_FILE
                                           : MINTER_EXEC,
        .text = c->source_text,
        .argv = c->exec,
        .argc = c->nexec,
        .ttl_ms = c->max_ttl_ms,
        .peer_uid = user_uid(s->users.key),
    };
    struct msg_writer w;
    msg_writer_init(&w);
    mint_source_put(&src, &w);
    child_send(minter, &(struct role_msg) {
                           .type = ROLE_SOURCE, .text = buf_str(&w.buf), .fds = &fd, .nfds = fd >= 0 ? 1 : 0 });
    buf_done(&w.buf);
    if (fd >= 0)
        close(fd);
    return 0;
}

int mint_sources_send(struct child *minter, const struct config *c, struct err *err)
{
    for (size_t i = 0; i < c->ncredentials; i++)
        if (needs_minter(&c->credentials[i]) && send_source(minter, &c->credentials[i], err))
            return -1;
    return 0;
}

/* The minter of a reload that is not committed asks too: any configuration that names the credential as a file will do,
 * the running one first. */
static int open_source(struct supervisor *s, const struct role_msg *m)
{
    const struct config *c = s->current ? s->current->gathered.config : NULL;
    for (size_t i = 0; c && i < c->ncredentials; i++) {
        const struct credential *cred = &c->credentials[i];
        if (cred->source != SOURCE_FILE || !str_eq(cred->name, m->text))
            continue;
        char *path = z_of(cred->source_text);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        struct stat st;
        if (fd < 0)
            log_error("credential %.*s: its source %s cannot be opened: %m", STR_ARG(cred->name), path);
        else if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
            log_error("credential %.*s: its source %s is not a regular file", STR_ARG(cred->name), path);
            close(fd);
            fd = -1;
        }
        free(path);
        return fd;
    }
    return -1;
}

void mint_source_open(struct child *minter, const struct role_msg *m)
{
    int fd = open_source(minter->sup, m);
    child_send(minter,
               &(struct role_msg) {
                   .type = ROLE_FILE_OPENED, .id = m->id, .flag = fd >= 0, .fds = &fd, .nfds = fd >= 0 ? 1 : 0 });
    if (fd >= 0)
        close(fd);
}

static void watched_free(struct supervisor *s)
{
    for (size_t i = 0; i < s->nwatched; i++) {
        free(s->watched[i].credential);
        free(s->watched[i].path);
    }
    free(s->watched);
    s->watched = NULL;
    s->nwatched = 0;
}

static void look_at(const char *path, struct watched_file *w)
{
    struct stat st;
    w->there = stat(path, &st) == 0;
    if (w->there) {
        w->dev = st.st_dev;
        w->ino = st.st_ino;
        w->size = st.st_size;
        w->mtime = st.st_mtim;
    }
}

static bool same_file(const struct watched_file *a, const struct watched_file *b)
{
    return a->there == b->there &&
           (!a->there || (a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
                          a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec));
}

/* The list follows the configuration; what was known of a file stays known. */
static void watched_sync(struct supervisor *s)
{
    const struct config *c = s->current->gathered.config;
    struct watched_file *v = calloc(c->ncredentials + 1, sizeof *v);
    MUST(v);
    size_t n = 0;
    for (size_t i = 0; i < c->ncredentials; i++) {
        const struct credential *cred = &c->credentials[i];
        if (cred->source != SOURCE_FILE)
            continue;
        struct watched_file *w = &v[n++];
        w->credential = z_of(cred->name);
        w->path = z_of(cred->source_text);
        look_at(w->path, w);
        for (size_t k = 0; k < s->nwatched; k++)
            if (strcmp(s->watched[k].path, w->path) == 0 && strcmp(s->watched[k].credential, w->credential) == 0) {
                struct watched_file *old = &s->watched[k];
                w->there = old->there;
                w->dev = old->dev;
                w->ino = old->ino;
                w->size = old->size;
                w->mtime = old->mtime;
                w->revoke_due = old->revoke_due;
                w->revoke_id = old->revoke_id;
                w->revoke_sent_to = old->revoke_sent_to;
            }
    }
    watched_free(s);
    s->watched = v;
    s->nwatched = n;
}

/* Once to every incarnation of the keeper until one answers: the workers hold leases of one that died, and its
 * successor passes the revocation on to them. */
static void revoke_send(struct supervisor *s, struct watched_file *w)
{
    if (!w->revoke_due || s->keeper->state != CHILD_READY || w->revoke_sent_to == s->keeper->generation)
        return;
    w->revoke_sent_to = s->keeper->generation;
    w->revoke_id = ++s->next_id;
    child_send(s->keeper, &(struct role_msg) { .type = ROLE_REVOKE,
                                               .id = w->revoke_id,
                                               .more = str_c(w->credential),
                                               .who = STR("source file changed") });
}

void mint_sources_look(struct supervisor *s)
{
    watched_sync(s);
    for (size_t i = 0; i < s->nwatched; i++) {
        struct watched_file *w = &s->watched[i], now = *w;
        look_at(w->path, &now);
        if (!same_file(w, &now)) {
            *w = now;
            w->revoke_due = true;
            w->revoke_sent_to = 0;
            log_info("credential %s: its source file changed: its leases are revoked", w->credential);
        }
        revoke_send(s, w);
    }
}

void mint_sources_revoked(struct supervisor *s, uint64_t id)
{
    for (size_t i = 0; i < s->nwatched; i++)
        if (s->watched[i].revoke_due && s->watched[i].revoke_id == id)
            s->watched[i].revoke_due = false;
}

struct child *mint_child_new(struct supervisor *s, const struct generation *g, bool *ret_none, struct err *err)
{
    *ret_none = !mint_sources_any(g->gathered.config);
    if (*ret_none)
        return NULL;
    char *name = z_printf("mint.%llu.sock", (unsigned long long)g->number);
    /* The keeper alone connects; the minter checks who did. */
    int fd = unix_listen_at(s->runtime_fd, name, 0600, s->users.separate ? s->users.key.uid : (uid_t)-1, (gid_t)-1,
                            SOCK_STREAM, err);
    if (fd < 0) {
        free(name);
        return NULL;
    }
    struct child *c = child_new(s, ROLE_KIND_MINTER, 0);
    c->listen_fd = fd;
    c->socket_name = name;
    return c;
}
