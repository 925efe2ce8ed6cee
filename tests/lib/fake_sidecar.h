/* SPDX-License-Identifier: Apache-2.0
 *
 * A minting sidecar that plays a script, on a Unix socket in the loop of the test: every POST /v1/lease takes the next
 * step, the last step stays. In a step's body {rid} is the request's id, {n} the number of the call, {host} its host,
 * {in:S} the time in S seconds (RFC 3339; S may be negative). Keeps what it was asked. */
#ifndef TESTS_LIB_FAKE_SIDECAR_H
#define TESTS_LIB_FAKE_SIDECAR_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/loop.h"
#include "mint/sidecar_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_LEASE                                                                                                     \
    "{\"request_id\":\"{rid}\",\"lease_id\":\"L{n}\",\"expires_at\":\"{in:600}\",\"value\":\"REAL-value-of-lease-{n}"  \
    "\"}"

struct fake_step {
    unsigned status;     /* 0: 200 */
    const char *headers; /* whole lines with CRLF, or NULL */
    const char *body;    /* NULL: FAKE_LEASE */
    size_t pad;          /* this many spaces after the body */
    bool hang;           /* never answers */
    bool hold;           /* answers at fake_release */
    bool cut;            /* closes in the middle of the body */
};

struct fake_sidecar;
struct fake_conn {
    LIST_ENTRY(fake_conn) link;
    struct fake_sidecar *s;
    struct watch watch;
    struct buf in, held, out;
};
struct fake_sidecar {
    struct loop *loop;
    struct watch watch;
    char path[108];
    LIST_HEAD(, fake_conn) conns;
    const struct fake_step *steps;
    size_t nsteps, at;
    unsigned calls, deletes, connections;
    struct buf last; /* body of the last POST */
    char reason[16], path_asked[256], last_id[LEASE_ID_MAX + 1], deleted[LEASE_ID_MAX + 1];
};

static inline void fake_conn_free(struct fake_conn *c)
{
    watch_del(&c->watch);
    close(c->watch.fd);
    buf_done(&c->in);
    buf_done(&c->held);
    buf_done(&c->out);
    LIST_REMOVE(c, link);
    free(c);
}

/* Client and server are one thread: what the socket does not take waits. */
static inline void fake_flush(struct fake_conn *c)
{
    while (buf_size(&c->out)) {
        struct str bytes = buf_str(&c->out);
        ssize_t n = send(c->watch.fd, bytes.p, bytes.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            break;
        buf_consume(&c->out, (size_t)n);
    }
    watch_set(&c->watch, buf_size(&c->out) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static inline void fake_send(struct fake_conn *c, struct str bytes)
{
    buf_put(&c->out, bytes);
    fake_flush(c);
}

static inline void fake_expand(struct buf *out, struct str t, const struct sidecar_ask *a, unsigned n)
{
    while (t.n) {
        struct str left = str_from(t, 1);
        if (str_starts(t, STR("{rid}"))) {
            buf_put(out, a->request_id);
            left = str_from(t, 5);
        } else if (str_starts(t, STR("{n}"))) {
            buf_putf(out, "%u", n);
            left = str_from(t, 3);
        } else if (str_starts(t, STR("{host}"))) {
            buf_put(out, a->host);
            left = str_from(t, 6);
        } else if (str_starts(t, STR("{in:"))) {
            char at[28];
            long long s = strtoll(t.p + 4, NULL, 10);
            buf_put(out, str_c(clock_format_us(clock_wall_us() + s * 1000000, at)));
            left = str_from(t, (size_t)str_find_char(t, '}') + 1);
        } else {
            buf_putc(out, t.p[0]);
        }
        t = left;
    }
}

static inline void fake_answer(struct fake_conn *c, const struct fake_step *step, const struct sidecar_ask *a)
{
    struct fake_sidecar *s = c->s;
    struct buf body, out;
    buf_init(&body, 4 << 20);
    buf_init(&out, 5 << 20);
    unsigned status = step->status ? step->status : 200;
    fake_expand(&body, str_c(step->body ? step->body : FAKE_LEASE), a, s->calls);
    for (size_t i = 0; i < step->pad; i++)
        buf_putc(&body, ' ');
    buf_putf(&out, "HTTP/1.1 %u Whatever\r\nContent-Length: %zu\r\n%s\r\n", status, buf_size(&body),
             step->headers ? step->headers : "");
    buf_put(&out, step->cut ? str_sub(buf_str(&body), 0, buf_size(&body) / 2) : buf_str(&body));
    if (step->hold)
        buf_put(&c->held, buf_str(&out));
    else if (!step->hang)
        fake_send(c, buf_str(&out));
    buf_done(&body);
    buf_done(&out);
}

/* One whole request from c->in; false: not there yet. */
static inline bool fake_request(struct fake_conn *c)
{
    struct fake_sidecar *s = c->s;
    struct str in = buf_str(&c->in);
    ptrdiff_t end = str_find(in, STR("\r\n\r\n"));
    if (end < 0)
        return false;
    struct str head = str_sub(in, 0, (size_t)end);
    ptrdiff_t cl = str_find(head, STR("Content-Length: "));
    size_t n = cl < 0 ? 0 : strtoul(head.p + cl + 16, NULL, 10);
    if (in.n < (size_t)end + 4 + n)
        return false;
    if (str_starts(head, STR("DELETE /v1/lease/"))) {
        struct str id = str_from(head, 17);
        snprintf(s->deleted, sizeof s->deleted, "%.*s", (int)str_find_char(id, ' '), id.p);
        s->deletes++;
        fake_send(c, STR("HTTP/1.1 204 No Content\r\n\r\n"));
        buf_consume(&c->in, (size_t)end + 4 + n);
        return true;
    }
    struct sidecar_question q = { 0 };
    const char *why = "";
    buf_reset(&s->last);
    buf_put(&s->last, str_sub(in, (size_t)end + 4, n));
    if (!str_starts(head, STR("POST /v1/lease HTTP/1.1\r\n")) || sidecar_json_read_ask(buf_str(&s->last), &q, &why)) {
        fprintf(stderr, "the fake sidecar was asked nonsense: %s\n", why);
        abort();
    }
    s->calls++;
    static const char *const names[] = { "first", "refresh", "rejected" };
    snprintf(s->reason, sizeof s->reason, "%s", names[q.ask.reason]);
    snprintf(s->path_asked, sizeof s->path_asked, "%.*s", STR_ARG(q.ask.path));
    snprintf(s->last_id, sizeof s->last_id, "%.*s", STR_ARG(q.ask.request_id));
    const struct fake_step *step = &s->steps[s->at];
    if (s->at + 1 < s->nsteps)
        s->at++;
    buf_consume(&c->in, (size_t)end + 4 + n);
    fake_answer(c, step, &q.ask);
    sidecar_question_done(&q);
    if (step->cut) {
        fake_conn_free(c);
        return false;
    }
    return true;
}

static inline void fake_on_conn(struct watch *w, uint32_t revents)
{
    struct fake_conn *c = (struct fake_conn *)((char *)w - offsetof(struct fake_conn, watch));
    if (revents & EPOLLOUT)
        fake_flush(c);
    if (!(revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    char *p = buf_reserve(&c->in, 65536);
    ssize_t n = p ? recv(w->fd, p, 65536, MSG_DONTWAIT) : 0;
    if (n <= 0) {
        fake_conn_free(c);
        return;
    }
    buf_wrote(&c->in, (size_t)n);
    struct fake_sidecar *s = c->s;
    struct fake_conn *alive;
    do {
        bool more = fake_request(c);
        LIST_FOREACH(alive, &s->conns, link)
        if (alive == c)
            break;
        if (!more)
            return;
    } while (alive);
}

static inline void fake_on_listen(struct watch *w, uint32_t revents)
{
    struct fake_sidecar *s = (struct fake_sidecar *)((char *)w - offsetof(struct fake_sidecar, watch));
    (void)revents;
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct fake_conn *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    *c = (struct fake_conn) { .s = s, .watch = { .fd = fd, .events = EPOLLIN, .cb = fake_on_conn } };
    buf_init(&c->in, 1 << 20);
    buf_init(&c->held, 1 << 20);
    buf_init(&c->out, 8 << 20);
    LIST_INSERT_HEAD(&s->conns, c, link);
    s->connections++;
    if (watch_add(s->loop, &c->watch))
        abort();
}

static inline void fake_sidecar_script(struct fake_sidecar *s, const struct fake_step *steps, size_t n)
{
    static const struct fake_step fine = { 0 };
    s->steps = n ? steps : &fine;
    s->nsteps = n ? n : 1;
    s->at = 0;
    s->calls = s->deletes = 0;
    s->deleted[0] = 0;
}

static inline void fake_sidecar_start(struct fake_sidecar *s, struct loop *l, const char *path)
{
    *s = (struct fake_sidecar) { .loop = l };
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(s->path, sizeof s->path, "%s", path);
    memcpy(a.sun_path, s->path, sizeof a.sun_path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a) || listen(fd, 128))
        abort();
    s->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = fake_on_listen };
    if (watch_add(l, &s->watch))
        abort();
    buf_init(&s->last, 1 << 20);
    fake_sidecar_script(s, NULL, 0);
}

/* Sends what was held back. */
static inline void fake_release(struct fake_sidecar *s)
{
    struct fake_conn *c;
    LIST_FOREACH(c, &s->conns, link)
    {
        fake_send(c, buf_str(&c->held));
        buf_reset(&c->held);
    }
}

static inline void fake_sidecar_stop(struct fake_sidecar *s)
{
    if (!s->watch.loop)
        return;
    while (!LIST_EMPTY(&s->conns))
        fake_conn_free(LIST_FIRST(&s->conns));
    watch_del(&s->watch);
    close(s->watch.fd);
    unlink(s->path);
    buf_done(&s->last);
    s->watch.loop = NULL;
}

#endif
