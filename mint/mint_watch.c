/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/mint_watch.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

struct look {
    bool there;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
};
struct mint_watch {
    const struct mint_config *c;
    struct look *looks; /* per source */
    bool *owed;         /* changed, and the keeper does not know yet */
};

static struct look look_at(const struct minter_source *s)
{
    struct stat st;
    if (s->kind != MINTER_FILE || stat(s->text.p, &st)) /* NUL-terminated by the arena */
        return (struct look) { 0 };
    return (struct look) { true, st.st_dev, st.st_ino, st.st_size, st.st_mtim };
}

static bool same(const struct look *a, const struct look *b)
{
    return a->there == b->there && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

struct mint_watch *mint_watch_new(const struct mint_config *c)
{
    struct mint_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->c = c;
    w->looks = calloc(c->nsources + 1, sizeof *w->looks);
    w->owed = calloc(c->nsources + 1, sizeof *w->owed);
    if (!w->looks || !w->owed) {
        mint_watch_free(&w);
        return NULL;
    }
    for (size_t i = 0; i < c->nsources; i++)
        w->looks[i] = look_at(&c->sources[i]);
    return w;
}

void mint_watch_free(struct mint_watch **wp)
{
    struct mint_watch *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    free(w->looks);
    free(w->owed);
    free(w);
}

/* Asks and reads the status line. */
static bool told(struct str path, struct str request)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct timeval limit = { .tv_sec = 2 };
    char got[16] = "";
    size_t n = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    memcpy(a.sun_path, path.p, path.n);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool fine = connect(fd, (const struct sockaddr *)(const void *)&a, sizeof a) == 0 &&
                send(fd, request.p, request.n, MSG_NOSIGNAL) == (ssize_t)request.n;
    while (fine && n < 12) {
        ssize_t k = recv(fd, got + n, 12 - n, 0);
        fine = k > 0;
        n += fine ? (size_t)k : 0;
    }
    close(fd);
    return fine && str_eq(str_of(got, 12), STR("HTTP/1.1 200"));
}

static bool tell(const struct mint_watch *w, const struct minter_source *s)
{
    struct buf body, request;
    buf_init(&body, 8192);
    buf_init(&request, 16384);
    buf_putf(&body, "{\"credential\":");
    json_put_str(&body, s->credential);
    buf_putc(&body, '}');
    buf_putf(&request,
             "POST /v1/revoke HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n",
             buf_size(&body));
    buf_put(&request, buf_str(&body));
    bool fine = !body.failed && !request.failed && told(w->c->keeper, buf_str(&request));
    buf_done(&body);
    buf_done(&request);
    return fine;
}

size_t mint_watch_look(struct mint_watch *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->c->nsources; i++) {
        const struct minter_source *s = &w->c->sources[i];
        struct look now = look_at(s);
        bool changed = !same(&now, &w->looks[i]);
        w->looks[i] = now;
        if (changed)
            log_info("credential %.*s: its file has changed", STR_ARG(s->credential));
        if (!w->c->keeper.n || !(changed || w->owed[i]))
            continue;
        bool fine = tell(w, s);
        if (!fine && !w->owed[i])
            log_error("credential %.*s: the keeper could not be told: it keeps its lease until it ends",
                      STR_ARG(s->credential));
        w->owed[i] = !fine;
        n += fine;
    }
    return n;
}
