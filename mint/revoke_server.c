/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/revoke_server.h"

#include "base/buf.h"
#include "mint/sidecar_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

struct revoke_conn {
    LIST_ENTRY(revoke_conn) link;
    struct revoke_server *s;
    struct watch watch;
    struct timer deadline;
    struct buf in, out;
    uid_t uid;
    bool answered;
};

struct revoke_server {
    struct loop *loop;
    struct watch watch;
    const struct revoke_ops *ops;
    void *ctx;
    LIST_HEAD(, revoke_conn) conns;
    size_t nconns;
};

/* --- the request (RFC 9112, as much of it as one fixed request needs) --- */

static bool line_take(struct str *in, struct str *ret)
{
    ptrdiff_t at = str_find(*in, STR("\r\n"));
    if (at < 0)
        return false;
    *ret = str_sub(*in, 0, (size_t)at);
    *in = str_from(*in, (size_t)at + 2);
    return true;
}

/* 0: fine, else the status. */
static unsigned field_read(struct str line, bool *ret_has_length, uint64_t *ret_length)
{
    ptrdiff_t colon = str_find_char(line, ':');
    if (colon <= 0)
        return 400;
    struct str name = str_sub(line, 0, (size_t)colon), value = str_trim(str_from(line, (size_t)colon + 1));
    for (size_t i = 0; i < name.n; i++)
        if (!ascii_tchar(name.p[i]))
            return 400;
    for (size_t i = 0; i < value.n; i++)
        if ((unsigned char)value.p[i] < 0x20 && value.p[i] != '\t')
            return 400;
    if (str_eq_nocase(name, STR("transfer-encoding")))
        return 411;
    if (!str_eq_nocase(name, STR("content-length")))
        return 0;
    uint64_t n;
    if (*ret_has_length || !str_to_u64(value, UINT32_MAX, &n))
        return 400;
    *ret_has_length = true;
    *ret_length = n;
    return n > REVOKE_BODY_MAX ? 413 : 0;
}

static unsigned request_line(struct str line)
{
    struct str method, target;
    if (!str_split(&line, ' ', &method) || !str_split(&line, ' ', &target) ||
        (!str_eq(line, STR("HTTP/1.1")) && !str_eq(line, STR("HTTP/1.0"))))
        return 400;
    if (!str_eq(target, STR("/v1/revoke")))
        return 404;
    return str_eq(method, STR("POST")) ? 0 : 405;
}

unsigned revoke_request_parse(struct str in, struct str *ret_body)
{
    struct str all = in, line;
    ptrdiff_t end = str_find(in, STR("\r\n\r\n"));
    if (end < 0)
        return in.n > REVOKE_HEAD_MAX ? 431 : 0;
    if (end > REVOKE_HEAD_MAX)
        return 431;
    bool has_length = false;
    uint64_t length = 0;
    unsigned status = line_take(&in, &line) ? request_line(line) : 400;
    while (!status && line_take(&in, &line) && line.n)
        status = field_read(line, &has_length, &length);
    if (status)
        return status;
    if (!has_length)
        return 411;
    struct str body = str_from(all, (size_t)end + 4);
    if (body.n > length)
        return 400;
    if (body.n < length)
        return 0;
    *ret_body = body;
    return 200;
}

/* --- connections --- */

static void conn_free(struct revoke_conn *c)
{
    watch_del(&c->watch);
    timer_clear(&c->deadline);
    close(c->watch.fd);
    buf_done(&c->in);
    buf_done(&c->out);
    LIST_REMOVE(c, link);
    c->s->nconns--;
    free(c);
}

static const char *status_text(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 431:
        return "Request Header Fields Too Large";
    default:
        return "Bad Request";
    }
}

static void conn_answer(struct revoke_conn *c, unsigned status, size_t revoked)
{
    char body[64];
    int n = status == 200 ? snprintf(body, sizeof body, "{\"revoked\":%zu}\n", revoked)
                          : snprintf(body, sizeof body, "{\"error\":\"%s\"}\n", status_text(status));
    buf_putf(&c->out,
             "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s",
             status, status_text(status), n, status == 405 ? "Allow: POST\r\n" : "", body);
    c->answered = true;
}

static void conn_judge(struct revoke_conn *c)
{
    struct str body, id, credential;
    void *json = NULL;
    unsigned status = revoke_request_parse(buf_str(&c->in), &body);
    if (!status)
        return;
    if (!c->s->ops->may(c->s->ctx, c->uid))
        status = 403;
    if (status == 200 && sidecar_json_read_revoke(body, &id, &credential, &json))
        status = 400;
    size_t n = status == 200 ? c->s->ops->revoke(c->s->ctx, id, credential, c->uid) : 0;
    sidecar_json_free(&json);
    conn_answer(c, status, n);
}

/* Reads until the request is whole; false: the connection is gone. */
static bool conn_read(struct revoke_conn *c)
{
    while (!c->answered) {
        char *p = buf_reserve(&c->in, 1024);
        if (!p) {
            conn_answer(c, 413, 0);
            return true;
        }
        ssize_t n = recv(c->watch.fd, p, 1024, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0) {
            conn_free(c);
            return false;
        }
        buf_wrote(&c->in, (size_t)n);
        conn_judge(c);
    }
    return true;
}

static void conn_write(struct revoke_conn *c)
{
    struct str out = buf_str(&c->out);
    ssize_t n = send(c->watch.fd, out.p, out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        watch_set(&c->watch, EPOLLOUT);
        return;
    }
    if (n > 0)
        buf_consume(&c->out, (size_t)n);
    if (n <= 0 || !buf_size(&c->out)) {
        shutdown(c->watch.fd, SHUT_WR);
        conn_free(c);
        return;
    }
    watch_set(&c->watch, EPOLLOUT);
}

static void on_conn(struct watch *w, uint32_t revents)
{
    struct revoke_conn *c = (struct revoke_conn *)((char *)w - offsetof(struct revoke_conn, watch));
    (void)revents;
    if (!c->answered && !conn_read(c))
        return;
    if (c->answered)
        conn_write(c);
}

static void on_deadline(struct timer *t)
{
    conn_free((struct revoke_conn *)((char *)t - offsetof(struct revoke_conn, deadline)));
}

static void conn_new(struct revoke_server *s, int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    struct revoke_conn *c = s->nconns < REVOKE_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
    if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n)) {
        free(c);
        close(fd);
        return;
    }
    *c = (struct revoke_conn) { .s = s,
                                .uid = peer.uid,
                                .watch = { .fd = fd, .events = EPOLLIN, .cb = on_conn },
                                .deadline = { .cb = on_deadline } };
    buf_init(&c->in, REVOKE_HEAD_MAX + REVOKE_BODY_MAX + 1024 + 4);
    buf_init(&c->out, 1024);
    if (watch_add(s->loop, &c->watch)) {
        free(c);
        close(fd);
        return;
    }
    LIST_INSERT_HEAD(&s->conns, c, link);
    s->nconns++;
    timer_set(s->loop, &c->deadline, REVOKE_TIMEOUT_MS);
}

static void on_listen(struct watch *w, uint32_t revents)
{
    struct revoke_server *s = (struct revoke_server *)((char *)w - offsetof(struct revoke_server, watch));
    (void)revents;
    for (int i = 0; i < REVOKE_CONNECTIONS; i++) {
        int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        conn_new(s, fd);
    }
}

struct revoke_server *revoke_server_new(struct loop *l, int fd, const struct revoke_ops *ops, void *ctx,
                                        struct err *err)
{
    struct revoke_server *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        err_set(err, "no memory");
        return NULL;
    }
    *s = (struct revoke_server) {
        .loop = l, .ops = ops, .ctx = ctx, .watch = { .fd = fd, .events = EPOLLIN, .cb = on_listen }
    };
    /* The loop is level-triggered and on_listen accepts until there is none: the socket must not block. */
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || watch_add(l, &s->watch)) {
        err_set_errno(err, "keeper.sock");
        close(fd);
        free(s);
        return NULL;
    }
    return s;
}

void revoke_server_free(struct revoke_server **sp)
{
    struct revoke_server *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    while (!LIST_EMPTY(&s->conns))
        conn_free(LIST_FIRST(&s->conns));
    watch_del(&s->watch);
    close(s->watch.fd);
    free(s);
}
