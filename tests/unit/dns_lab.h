/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_lab: a resolver, a worker's dial client, the sink between them and the log, scripted DNS servers, and a listener
 * to dial, all in one loop. The policy is the real parser and the real policy on a text. */
#ifndef TESTS_UNIT_DNS_LAB_H
#define TESTS_UNIT_DNS_LAB_H

#include "audit/record.h"
#include "audit/ring.h"
#include "audit/sink.h"
#include "base/clock.h"
#include "base/loop.h"
#include "dns/dial_client.h"
#include "dns/resolver.h"
#include "dns_server.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>

#include <cmocka.h>

static inline struct policy *lab_policy(const char *yaml)
{
    struct diag d;
    diag_init(&d);
    struct config *c = config_parse(STR("test.yaml"), STR("/test"), str_c(yaml), &d);
    struct policy *p = c ? policy_new(c, NULL, 0, &d) : NULL;
    for (size_t i = 0; !p && i < d.n; i++)
        fprintf(stderr, "%.*s\n", STR_ARG(d.lines[i].text));
    diag_done(&d);
    assert_non_null(p);
    return p;
}

struct lab {
    struct loop *loop;
    struct policy *policy;
    struct sink *sink;
    struct ring_reader events;
    struct resolver *resolver;
    struct dial_client *client;
    struct dns_server_fake servers[2];
    struct watch listener; /* bound to the wildcard: every loopback address; what connects is closed */
    size_t accepted;
    uint16_t port;
    int fds_before;
};

static inline int lab_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static inline int lab_listen(int family, const char *ip, uint16_t port, int backlog, uint16_t *ret_port)
{
    struct ip a;
    struct sockaddr_storage sa = { 0 };
    socklen_t n;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(ip_parse(str_c(ip), &a), 0);
    n = ip_to_sockaddr(&a, port, &sa);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, n), 0);
    assert_int_equal(listen(fd, backlog), 0);
    n = sizeof sa;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    assert_int_equal(ip_from_sockaddr(&sa, &a, ret_port), 0);
    return fd;
}

static inline void lab_on_accept(struct watch *w, uint32_t revents)
{
    (void)revents;
    struct lab *lab = (struct lab *)((char *)w - offsetof(struct lab, listener));
    for (int fd; (fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; lab->accepted++)
        close(fd);
}

static const char *lab_scheme = "";          /* or "tcp://" */
static const char *lab_answer = "synthetic"; /* or "forward" */
static const char *lab_pool = "";            /* or ", pool: …" */

/* The head of every test's configuration; `more` holds resolver.hosts …, and rules. %u: the DNS servers' ports. */
static inline void lab_yaml(struct lab *lab, char out[8192], const char *top, const char *rules)
{
    char upstreams[128];
    if (lab->servers[1].loop)
        snprintf(upstreams, sizeof upstreams, "%s127.0.0.1:%u, 127.0.0.1:%u", lab_scheme, lab->servers[0].port,
                 lab->servers[1].port);
    else
        snprintf(upstreams, sizeof upstreams, "%s127.0.0.1:%u", lab_scheme, lab->servers[0].port);
    int n = snprintf(
        out, 8192,
        "version: 1\nstate_dir: state\nexfiltration: {exempt: [\"*\"]}\n%s\n"
        "resolver: {answer: %s, upstreams: [%s], synthetic: {v4: 10.77.0.1%s}, hosts: {fixed.test: [127.0.0.2], bad-fixed.test: [127.0.0.2, "
        "10.9.9.9]}}\n"
        "agents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}, {source: 127.0.0.1/32}]}\n"
        "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
        "rules:\n%s",
        top, lab_answer, upstreams, lab_pool, rules);
    assert_true(n > 0 && n < 8192);
}

static inline void lab_connect(struct lab *lab, size_t ring_bytes)
{
    struct err err = { "" };
    int ring = sink_ring_new(ring_bytes, &err), pair[2];
    assert_true(ring >= 0);
    assert_int_equal(ring_reader_init(&lab->events, ring, &err), 0);
    lab->sink = sink_open(ring, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &err);
    assert_non_null(lab->sink);
    lab->resolver = resolver_new(lab->loop, lab->policy, STR_NONE, NULL, -1, lab->sink, &err);
    assert_non_null(lab->resolver);
    lab->client = dial_client_new(lab->loop, &err);
    assert_non_null(lab->client);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(resolver_add_worker(lab->resolver, 0, pair[0], &err), 0);
    assert_int_equal(dial_client_connect(lab->client, pair[1], &err), 0);
}

/* Replaces %PORT% by the listener's port. */
static inline void lab_expand(const struct lab *lab, const char *from, char out[4096])
{
    size_t n = 0;
    for (const char *at; *from && n < 4096; from = at ? at + 6 : from + strlen(from)) {
        at = strstr(from, "%PORT%");
        n += (size_t)snprintf(out + n, 4096 - n, "%.*s", at ? (int)(at - from) : (int)strlen(from), from);
        if (at && n < 4096)
            n += (size_t)snprintf(out + n, 4096 - n, "%u", lab->port);
    }
    assert_true(n < 4096);
}

/* `top` and `rules` may hold %PORT% for the listener's port. second: a second scripted server. */
static inline void lab_start_with(struct lab *lab, const struct reply *script, size_t rows, const struct reply *second,
                                  size_t second_rows, const char *top, const char *rules)
{
    char yaml[8192], text[4096] = "", head[4096] = "";
    memset(lab, 0, sizeof *lab);
    lab->fds_before = lab_fds();
    lab->loop = loop_new();
    assert_non_null(lab->loop);
    lab->listener.fd = lab_listen(AF_INET, "0.0.0.0", 0, 128, &lab->port);
    lab->listener.events = EPOLLIN;
    lab->listener.cb = lab_on_accept;
    assert_int_equal(watch_add(lab->loop, &lab->listener), 0);
    server_start(&lab->servers[0], lab->loop, "127.0.0.1", 0, script, rows);
    if (second)
        server_start(&lab->servers[1], lab->loop, "127.0.0.1", 0, second, second_rows);
    lab_expand(lab, rules, text);
    lab_expand(lab, top, head);
    lab_yaml(lab, yaml, head, text);
    lab->policy = lab_policy(yaml);
    lab_connect(lab, 1 << 18);
}

static inline void lab_stop(struct lab *lab)
{
    dial_client_free(&lab->client);
    resolver_free(&lab->resolver);
    sink_free(&lab->sink);
    ring_reader_done(&lab->events);
    policy_unref(&lab->policy);
    for (size_t i = 0; i < 2; i++)
        if (lab->servers[i].loop)
            server_stop(&lab->servers[i]);
    watch_del(&lab->listener);
    close(lab->listener.fd);
    loop_free(lab->loop);
}

struct lab_result {
    int calls;
    enum end end;
    int fd;
    char addr[80], why[260], dns_id[40];
    const char *finding;
    uint32_t resolve_ms, connect_ms;
};

static inline void lab_on_dial(void *ctx, const struct dial_result *r)
{
    struct lab_result *res = ctx;
    res->calls++;
    res->end = r->end;
    res->fd = r->fd;
    snprintf(res->addr, sizeof res->addr, "%.*s", STR_ARG(r->addr));
    snprintf(res->why, sizeof res->why, "%.*s", STR_ARG(r->why));
    snprintf(res->dns_id, sizeof res->dns_id, "%.*s", STR_ARG(r->dns_id));
    res->finding = r->finding;
    res->resolve_ms = r->resolve_ms;
    res->connect_ms = r->connect_ms;
}

struct lab_dial {
    const char *host, *rule, *agent;
    uint16_t port; /* 0: the listener's */
    uint32_t timeout_ms;
    bool via_parent;
};

static inline struct dial_wait *lab_begin(struct lab *lab, const struct lab_dial *d, struct lab_result *res)
{
    struct host host;
    assert_int_equal(host_parse(str_c(d->host), &host, NULL), 0);
    struct dial_request r = {
        .agent = str_c(d->agent ? d->agent : "coder"),
        .rule = str_c(d->rule ? d->rule : ""),
        .host = &host,
        .port = d->port ? d->port : lab->port,
        .timeout_ms = d->timeout_ms ? d->timeout_ms : 8000,
        .via_parent = d->via_parent,
        .client = STR("10.77.0.2"),
        .conn_id = STR("c1"),
        .request_id = STR("r1"),
    };
    *res = (struct lab_result) { .fd = -1 };
    struct dial_wait *w = dial_start(lab->client, &r, lab_on_dial, res);
    assert_non_null(w);
    assert_int_equal(res->calls, 0); /* never on the caller's stack */
    return w;
}

static inline void lab_run(struct lab *lab, struct lab_result *res, uint64_t max_ms)
{
    uint64_t until = clock_mono_ms() + max_ms;
    while (res->calls == 0 && clock_mono_ms() < until)
        loop_run_once(lab->loop, 20);
}

/* Lets what is under way happen for a while. */
static inline void lab_idle(struct lab *lab, uint64_t ms)
{
    for (uint64_t until = clock_mono_ms() + ms; clock_mono_ms() < until;)
        loop_run_once(lab->loop, 5);
}

/* The dial's result; the descriptor is closed. */
static inline struct lab_result lab_dial(struct lab *lab, const struct lab_dial *d)
{
    struct lab_result res;
    lab_begin(lab, d, &res);
    lab_run(lab, &res, 15000);
    assert_int_equal(res.calls, 1);
    assert_int_equal(res.end == END_OK, res.fd >= 0);
    if (res.fd >= 0)
        close(res.fd);
    return res;
}

struct lab_event {
    char qname[260], qtype[20], verdict[20], code[40], rcode[20], dns_id[40], message[400], agent[140], rule[140];
    uint64_t count; /* 0: not an aggregate */
    bool ok;
};

static inline void lab_field(const struct record *r, enum event_field f, char *out, size_t size)
{
    snprintf(out, size, "%.*s", STR_ARG(record_str(r, f)));
}

/* The next event; ok is false when there is none. */
static inline struct lab_event lab_event(struct lab *lab)
{
    struct lab_event e = { 0 };
    unsigned char bytes[EVENT_MAX];
    size_t n;
    struct record r;
    if (ring_reader_next(&lab->events, bytes, &n) != RING_RECORD)
        return e;
    ring_reader_commit(&lab->events);
    assert_true(record_decode(bytes, n, &r));
    assert_int_equal(r.type, EVENT_DNS);
    e.ok = true;
    lab_field(&r, FIELD_QNAME, e.qname, sizeof e.qname);
    lab_field(&r, FIELD_QTYPE, e.qtype, sizeof e.qtype);
    lab_field(&r, FIELD_VERDICT, e.verdict, sizeof e.verdict);
    lab_field(&r, FIELD_CODE, e.code, sizeof e.code);
    lab_field(&r, FIELD_RCODE, e.rcode, sizeof e.rcode);
    lab_field(&r, FIELD_DNS_ID, e.dns_id, sizeof e.dns_id);
    lab_field(&r, FIELD_MESSAGE, e.message, sizeof e.message);
    lab_field(&r, FIELD_AGENT, e.agent, sizeof e.agent);
    lab_field(&r, FIELD_RULE, e.rule, sizeof e.rule);
    if (record_has(&r, FIELD_COUNT)) {
        assert_int_equal(r.v[FIELD_COUNT].n, 8);
        memcpy(&e.count, r.v[FIELD_COUNT].p, 8);
    }
    return e;
}

#endif
