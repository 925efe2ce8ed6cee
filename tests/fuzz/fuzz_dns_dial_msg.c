/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends of the worker<->resolver channel against a hostile peer. The input is a row of packets: u8 type, u8 id, u16
 * length (little-endian), body. An odd first byte plays a worker against the resolver, an even one a resolver against
 * the dial client.
 *
 * What must hold: no packet reaches the DNS server and nobody connects, for the policy allows no name that is looked up
 * but those under ok.test, and nothing at all is allowed for addresses. The server counts what does not end in ok.test.
 */
#include "audit/ring.h"
#include "audit/sink.h"
#include "base/msg.h"
#include "dns/dial_client.h"
#include "dns/resolver.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    struct loop *loop;
    struct resolver *resolver;
    struct ring_reader events;
    int server; /* what the resolver takes for a DNS server; it never answers */
} world;

static struct policy *make_policy(unsigned port)
{
    char yaml[1024];
    struct diag d;
    diag_init(&d);
    int n = snprintf(yaml, sizeof yaml,
                     "version: 1\nstate_dir: s\n"
                     "resolver: {upstreams: [\"127.0.0.1:%u\"], hosts: {fixed.ok.test: [10.9.9.9]}}\n"
                     "limits: {dial_rate: 100000}\n"
                     "agents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
                     "rules:\n  - {name: web, hosts: [\"*.ok.test\", 127.0.0.1], ports: [443], action: allow}\n",
                     port);
    struct config *c = config_parse(STR("f"), STR("/"), str_of(yaml, (size_t)n), &d);
    struct policy *p = c ? policy_new(c, NULL, 0, &d) : NULL;
    diag_done(&d);
    if (!p)
        abort();
    return p;
}

static void world_make(void)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    struct err err;
    world.server = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(world.server, (struct sockaddr *)&sa, n) < 0 || getsockname(world.server, (struct sockaddr *)&sa, &n) < 0)
        abort();
    world.loop = loop_new();
    struct policy *p = make_policy(ntohs(sa.sin_port));
    int ring = sink_ring_new(1 << 18, &err);
    if (ring < 0 || ring_reader_init(&world.events, ring, &err) < 0)
        abort();
    struct sink *s = sink_open(ring, eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK), &err);
    world.resolver = s ? resolver_new(world.loop, p, STR_NONE, NULL, -1, s, &err) : NULL;
    if (!world.resolver)
        abort();
}

/* The names that reached the server. */
static void check_server(void)
{
    unsigned char q[600];
    for (ssize_t n; (n = recv(world.server, q, sizeof q, 0)) > 0;) {
        size_t end = (size_t)n - 4;
        if (n < 25)
            abort();
        for (size_t i = 12; i < (size_t)n; i++)
            q[i] = (unsigned char)(q[i] | 0x20);
        /* … 2 o k 4 t e s t 0, after |= 0x20 */
        if (memcmp(q + end - 9, "\x22ok\x24test\x20", 9) != 0)
            abort();
    }
}

static void drain(void)
{
    unsigned char bytes[EVENT_MAX];
    size_t n;
    for (int i = 0; i < 6; i++)
        loop_run_once(world.loop, 0);
    while (ring_reader_next(&world.events, bytes, &n) == RING_RECORD)
        ring_reader_commit(&world.events);
    check_server();
}

static void on_dial(void *ctx, const struct dial_result *r)
{
    (void)ctx;
    if ((r->end == END_OK) != (r->fd >= 0))
        abort();
    if (r->fd >= 0)
        close(r->fd);
}

/* What the resolver says to a hostile worker: never a connection. */
static int on_dialled(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ctx;
    (void)ch;
    struct msg_reader r = msg_reader(m->body);
    if (m->type != DIALLED || msg_get_u16(&r) == END_OK || m->nfds > 0)
        abort();
    return 0;
}
static int on_request(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ctx;
    (void)ch;
    return m->type == DIAL || m->type == DIAL_CANCEL ? 0 : -1;
}
static void on_gone(void *ctx, struct msg_channel *ch)
{
    (void)ctx;
    (void)ch;
}

static void play(struct msg_channel *ch, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 4 <= size && msg_channel_open(ch);) {
        size_t n = (size_t)(data[at + 2] | data[at + 3] << 8);
        n = n > size - at - 4 ? size - at - 4 : n;
        const int fd = 2; /* a descriptor where the top bit of the type says so */
        msg_send(ch, data[at] & 0x7f, data[at + 1], str_of(data + at + 4, n), &fd, data[at] >> 7);
        at += 4 + n;
        drain();
    }
}

static struct dial_client *make_client(int fd)
{
    struct err err;
    struct host host;
    struct dial_client *c = dial_client_new(world.loop, &err);
    if (!c || dial_client_connect(c, fd, &err) < 0 || host_parse(STR("a.ok.test"), &host, &err) != 0)
        abort();
    struct dial_request r = { .agent = STR("coder"), .host = &host, .port = 443, .timeout_ms = 1000 };
    for (int i = 0; i < 3; i++)
        if (!dial_start(c, &r, on_dial, NULL))
            abort();
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct msg_ops as_worker = { on_dialled, on_gone }, as_resolver = { on_request, on_gone };
    int pair[2];
    struct err err;
    struct dial_client *client = NULL;
    if (!world.loop)
        world_make();
    if (size < 1 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    bool worker = data[0] & 1;
    struct msg_channel *ch = msg_channel_new(world.loop, pair[0], worker ? &as_worker : &as_resolver, NULL);
    if (!ch)
        abort();
    if (!worker)
        client = make_client(pair[1]);
    else if (resolver_add_worker(world.resolver, 0, pair[1], &err) < 0)
        abort();
    drain();
    play(ch, data + 1, size - 1);
    dial_client_free(&client);
    msg_channel_free(&ch);
    drain();
    return 0;
}
