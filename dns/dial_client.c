/* SPDX-License-Identifier: Apache-2.0
 *
 * A request is kept as the bytes of its message, so that it can be sent again to a resolver that was restarted. An
 * answer finds its request by id; an answer nobody waits for any more is dropped, and the message layer closes its
 * descriptor. */
#include "dns/dial_client.h"

#include "base/log.h"
#include "dns/detector.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    SLOTS = 1024,
    SLACK_MS = 2000, /* the resolver keeps the deadline; ours is for a resolver that does not answer at all */
    WHY_MAX = 256,
    TIMEOUT_MAX_MS = 600000,
};

struct dial_wait {
    struct dial_client *client;
    struct dial_wait *chain;
    uint64_t id;
    enum { WAIT_SENT = 1, WAIT_UNSENT, WAIT_ANSWERED } state; /* UNSENT: there is no channel */
    unsigned sends;
    struct timer deadline;
    struct task done;
    struct msg_writer request;
    enum end end;
    int fd;
    uint32_t resolve_ms, connect_ms;
    const char *finding;
    struct {
        uint16_t n;
        char bytes[WHY_MAX];
    } addr, why, dns_id;
    void (*cb)(void *ctx, const struct dial_result *res);
    void *ctx;
};

struct dial_client {
    struct loop *loop;
    struct msg_channel *channel;
    struct task closed;
    uint64_t last_id;
    struct dial_wait *waits[SLOTS];
};

static void unlink_wait(struct dial_wait *w)
{
    struct dial_wait **at = &w->client->waits[w->id % SLOTS];
    while (*at != w)
        at = &(*at)->chain;
    *at = w->chain;
}

static void free_wait(struct dial_wait *w)
{
    unlink_wait(w);
    timer_clear(&w->deadline);
    task_cancel(&w->done);
    buf_done(&w->request.buf);
    if (w->fd >= 0)
        close(w->fd);
    free(w);
}

#define COPY(to, from)                                                                                                 \
    do {                                                                                                               \
        (to).n = (uint16_t)((from).n < sizeof(to).bytes ? (from).n : sizeof(to).bytes);                                \
        if ((to).n > 0)                                                                                                \
            memcpy((to).bytes, (from).p, (to).n);                                                                      \
    } while (0)

static void answered(struct dial_wait *w, enum end end, struct str why)
{
    if (w->state == WAIT_ANSWERED)
        return;
    w->state = WAIT_ANSWERED;
    w->end = end;
    COPY(w->why, why);
    timer_clear(&w->deadline);
    loop_defer(w->client->loop, &w->done);
}

static void on_done(struct task *t)
{
    struct dial_wait *w = (struct dial_wait *)((char *)t - offsetof(struct dial_wait, done));
    struct dial_result r = {
        .end = w->end,
        .fd = w->fd,
        .addr = str_of(w->addr.bytes, w->addr.n),
        .why = str_of(w->why.bytes, w->why.n),
        .dns_id = str_of(w->dns_id.bytes, w->dns_id.n),
        .finding = w->finding,
        .resolve_ms = w->resolve_ms,
        .connect_ms = w->connect_ms,
    };
    unlink_wait(w); /* from here on the caller's pointer is spent; the client may be freed by the callback */
    w->client = NULL;
    w->fd = -1;
    w->cb(w->ctx, &r);
    buf_done(&w->request.buf);
    free(w);
}

static void on_deadline(struct timer *t)
{
    struct dial_wait *w = (struct dial_wait *)((char *)t - offsetof(struct dial_wait, deadline));
    if (w->state == WAIT_SENT && w->client->channel)
        (void)msg_send(w->client->channel, DIAL_CANCEL, w->id, STR_NONE, NULL, 0);
    answered(w, END_ORIGIN_TIMEOUT, STR("the resolver does not answer"));
}

/* The resolver is ours, but what it says is read as strictly as anything. lost: the connected socket found no room. */
static int on_dialled(struct dial_client *c, struct msg *m, bool lost)
{
    if (m->type != DIALLED)
        return -1;
    struct msg_reader r = msg_reader(m->body);
    uint16_t end = msg_get_u16(&r);
    struct str addr = msg_get_str(&r, WHY_MAX), why = msg_get_str(&r, WHY_MAX), dns_id = msg_get_str(&r, 32);
    struct str class = msg_get_str(&r, 32);
    const char *finding = class.n ? detector_class(class) : NULL;
    uint32_t resolve_ms = msg_get_u32(&r), connect_ms = msg_get_u32(&r);
    if (!msg_reader_end(&r) || (class.n && !finding) || end == END_UNSET || end >= END_COUNT ||
        m->nfds != (end == END_OK && !lost ? 1 : 0))
        return -1;
    struct dial_wait *w = c->waits[m->id % SLOTS];
    while (w && w->id != m->id)
        w = w->chain;
    if (!w || w->state != WAIT_SENT)
        return 0;
    if (lost) {
        end = END_ORIGIN_CONNECT;
        why = STR("no descriptor is free for the connection");
    } else if (end == END_OK) {
        w->fd = m->fds[0];
        m->fds[0] = -1;
    }
    COPY(w->addr, addr);
    COPY(w->dns_id, dns_id);
    w->finding = finding;
    w->resolve_ms = resolve_ms;
    w->connect_ms = connect_ms;
    answered(w, (enum end)end, why);
    return 0;
}

static int on_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    return on_dialled(ctx, m, false);
}

/* This dial fails, and no more: the channel is as good as before. */
static int on_lost_fds(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ch;
    return on_dialled(ctx, m, true);
}

/* What was under way waits for the next channel, once. */
static void on_closed_later(struct task *t)
{
    struct dial_client *c = (struct dial_client *)((char *)t - offsetof(struct dial_client, closed));
    msg_channel_free(&c->channel);
    for (size_t i = 0; i < SLOTS; i++)
        for (struct dial_wait *w = c->waits[i]; w; w = w->chain) {
            if (w->state != WAIT_SENT)
                continue;
            if (w->sends > 1)
                answered(w, END_ORIGIN_CONNECT, STR("the resolver went away twice"));
            else
                w->state = WAIT_UNSENT;
        }
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ch;
    struct dial_client *c = ctx;
    loop_defer(c->loop, &c->closed);
}

static void send_wait(struct dial_wait *w)
{
    struct dial_client *c = w->client;
    w->state = WAIT_SENT;
    w->sends++;
    if (msg_send(c->channel, DIAL, w->id, buf_str(&w->request.buf), NULL, 0) == 0)
        return;
    if (msg_channel_open(c->channel))
        answered(w, END_RATE_LIMITED, STR("too many dials are waiting for the resolver"));
    /* else on_closed is on its way and deals with it */
}

struct dial_client *dial_client_new(struct loop *l, struct err *err)
{
    struct dial_client *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(err, "out of memory");
        return NULL;
    }
    c->loop = l;
    c->closed.cb = on_closed_later;
    return c;
}

void dial_client_free(struct dial_client **cp)
{
    struct dial_client *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        while (c->waits[i])
            free_wait(c->waits[i]);
    task_cancel(&c->closed);
    msg_channel_free(&c->channel);
    free(c);
}

int dial_client_connect(struct dial_client *c, int fd, struct err *err)
{
    static const struct msg_ops ops = { on_message, on_closed };
    struct msg_channel *channel = msg_channel_new(c->loop, fd, &ops, c);
    if (!channel)
        return err_set_errno(err, "cannot use the channel to the resolver");
    msg_channel_on_lost_fds(channel, on_lost_fds);
    if (c->channel) {
        task_cancel(&c->closed);
        on_closed_later(&c->closed);
    }
    c->channel = channel;
    for (size_t i = 0; i < SLOTS; i++)
        for (struct dial_wait *w = c->waits[i]; w; w = w->chain)
            if (w->state == WAIT_UNSENT)
                send_wait(w);
    return 0;
}

struct dial_wait *dial_start(struct dial_client *c, const struct dial_request *r,
                             void (*cb)(void *ctx, const struct dial_result *res), void *ctx)
{
    struct dial_wait *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    msg_writer_init(&w->request);
    msg_put_str(&w->request, r->agent);
    msg_put_str(&w->request, r->rule);
    msg_put_str(&w->request, host_str(r->host));
    msg_put_u16(&w->request, r->port);
    msg_put_u32(&w->request, r->timeout_ms);
    msg_put_u8(&w->request, r->via_parent ? 1 : 0);
    msg_put_str(&w->request, r->client);
    msg_put_str(&w->request, r->conn_id);
    msg_put_str(&w->request, r->request_id);
    if (w->request.buf.failed) {
        buf_done(&w->request.buf);
        free(w);
        return NULL;
    }
    w->client = c;
    w->id = ++c->last_id;
    w->fd = -1;
    w->cb = cb;
    w->ctx = ctx;
    w->done.cb = on_done;
    w->deadline.cb = on_deadline;
    w->chain = c->waits[w->id % SLOTS];
    c->waits[w->id % SLOTS] = w;
    uint64_t timeout_ms = r->timeout_ms && r->timeout_ms < TIMEOUT_MAX_MS ? r->timeout_ms : TIMEOUT_MAX_MS;
    timer_set(c->loop, &w->deadline, timeout_ms + SLACK_MS);
    if (c->channel && msg_channel_open(c->channel))
        send_wait(w);
    else
        w->state = WAIT_UNSENT;
    return w;
}

void dial_cancel(struct dial_wait **wp)
{
    struct dial_wait *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    if (w->state == WAIT_SENT && w->client->channel)
        (void)msg_send(w->client->channel, DIAL_CANCEL, w->id, STR_NONE, NULL, 0);
    free_wait(w);
}
