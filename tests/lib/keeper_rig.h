/* SPDX-License-Identifier: Apache-2.0
 *
 * A keeper with everything around it in one loop: a scripted sidecar, workers at the other ends of socket pairs, a ring
 * whose events are read back. Time is the fake clock's. Everything that a worker received is kept in order. */
#ifndef TESTS_LIB_KEEPER_RIG_H
#define TESTS_LIB_KEEPER_RIG_H

#include "audit/record.h"
#include "audit/ring.h"
#include "mint/keeper.h"
#include "mint/lease_wire.h"
#include "tests/fakes/clock_fake.h"
#include "tests/lib/fake_sidecar.h"
#include "tests/unit/mint_fixture.h"

#include <poll.h>
#include <sys/eventfd.h>

enum { RIG_WORKERS = 3, RIG_SEEN = 256, RIG_EVENTS = 256 };

struct rig_seen {
    uint16_t type;
    uint64_t id;
    enum end end;
    char lease[LEASE_ID_MAX + 1], value[128], why[128];
    uint32_t retry_after_s;
    int64_t expires_us;
    enum lease_gone gone;
    unsigned order; /* over all workers: when it was read, worker 0 last */
};
struct rig_worker {
    int fd;
    uint64_t next_id;
    struct rig_seen seen[RIG_SEEN];
    size_t n;
    bool closed;
};
struct rig_event {
    char result[16], agent[32], credential[32], lease[LEASE_ID_MAX + 1], code[40], why[160], who[64], request_id[40],
        host[64];
    int64_t expires_us;
};
struct rig {
    struct loop *loop;
    struct policy *policy;
    struct fake_sidecar sidecar;
    struct keeper *keeper;
    struct sink *sink;
    struct ring_reader reader;
    struct ring ring; /* another map, for playing a logger that refuses */
    struct rig_worker workers[RIG_WORKERS];
    struct rig_event events[RIG_EVENTS];
    size_t nevents;
    unsigned order;
    char socket[108], dir[64];
    bool leaked; /* a value was seen in an event */
};

static inline const char *rig_yaml(struct buf *out, const char *socket, const char *top, const char *sidecar,
                                   const char *credential)
{
    buf_reset(out);
    buf_putf(
        out,
        "version: 1\nstate_dir: state\n%s\n"
        "agents:\n"
        "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
        "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
        "sidecars:\n  - {name: local, socket: %s%s%s}\n"
        "rules:\n  - {name: api, hosts: [api.test, git.test, \"*.wild.test\"], ports: [443, 8443], action: allow}\n"
        "credentials:\n"
        "  - {name: github, agents: [coder, other], hosts: [api.test, git.test, deny.test, \"*.wild.test\"], ports: "
        "[443, 8443], slots: [\"header:authorization\"],\n"
        "     source: {sidecar: local}%s}\n"
        "  - {name: second, agents: [coder], hosts: [api.test], slots: [\"header:x-key\"], methods: [GET], paths: "
        "[\"/v1/**\"],\n"
        "     source: {sidecar: local}}\n",
        top, socket, strstr(sidecar, "timeout:") ? "" : ", timeout: 500ms", sidecar, credential);
    return buf_z(out);
}

static inline struct policy *rig_policy(struct rig *r, const char *top, const char *sidecar, const char *credential)
{
    struct buf b;
    buf_init(&b, 65536);
    rig_yaml(&b, r->socket, top, sidecar, credential);
    struct policy *p = fixture_policy(buf_str(&b));
    buf_done(&b);
    return p;
}

static inline void rig_worker_connect(struct rig *r, unsigned i)
{
    int sv[2];
    struct err err;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) || keeper_add_worker(r->keeper, i, sv[0], &err))
        abort();
    if (r->workers[i].fd > 0)
        close(r->workers[i].fd);
    r->workers[i] = (struct rig_worker) { .fd = sv[1], .next_id = 100 };
}

static inline void rig_start(struct rig *r, const char *top, const char *sidecar, const char *credential)
{
    struct err err;
    *r = (struct rig) { 0 };
    snprintf(r->dir, sizeof r->dir, "/tmp/outgate-keeper-XXXXXX");
    if (secret_init() || !mkdtemp(r->dir))
        abort();
    snprintf(r->socket, sizeof r->socket, "%s/mint.sock", r->dir);
    r->loop = loop_new();
    fake_sidecar_start(&r->sidecar, r->loop, r->socket);
    r->policy = rig_policy(r, top, sidecar, credential);
    int fd = sink_ring_new(RING_MIN_BYTES * 4, &err);
    if (fd < 0 || ring_reader_init(&r->reader, fd, &err) || ring_map(fd, &r->ring, &err))
        abort();
    r->sink = sink_open(fd, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &err);
    r->keeper = keeper_new(r->loop, r->policy, STR_NONE, 0, r->sink, &err);
    if (!r->sink || !r->keeper)
        abort();
    for (unsigned i = 0; i < RIG_WORKERS; i++)
        rig_worker_connect(r, i);
}

static inline void rig_stop(struct rig *r)
{
    for (unsigned i = 0; i < RIG_WORKERS; i++)
        close(r->workers[i].fd);
    fake_sidecar_stop(&r->sidecar);
    keeper_free(&r->keeper);
    sink_free(&r->sink);
    ring_reader_done(&r->reader);
    ring_unmap(&r->ring);
    policy_unref(&r->policy);
    loop_free(r->loop);
    rmdir(r->dir);
}

static inline void rig_copy(char *out, size_t size, struct str s)
{
    snprintf(out, size, "%.*s", STR_ARG(s));
}

static inline void rig_read_events(struct rig *r)
{
    unsigned char bytes[EVENT_MAX];
    size_t n;
    while (ring_reader_next(&r->reader, bytes, &n) == RING_RECORD) {
        struct record rec;
        if (!record_decode(bytes, n, &rec) || rec.type != EVENT_LEASE || r->nevents == RIG_EVENTS)
            abort();
        r->leaked |= str_find(str_of(bytes, n), STR("REAL-value")) >= 0;
        struct rig_event *e = &r->events[r->nevents++];
        rig_copy(e->result, sizeof e->result, record_str(&rec, FIELD_RESULT));
        rig_copy(e->agent, sizeof e->agent, record_str(&rec, FIELD_AGENT));
        rig_copy(e->credential, sizeof e->credential, record_str(&rec, FIELD_CREDENTIAL));
        rig_copy(e->lease, sizeof e->lease, record_str(&rec, FIELD_LEASE_ID));
        rig_copy(e->code, sizeof e->code, record_str(&rec, FIELD_CODE));
        rig_copy(e->why, sizeof e->why, record_str(&rec, FIELD_MESSAGE));
        rig_copy(e->who, sizeof e->who, record_str(&rec, FIELD_WHO));
        rig_copy(e->host, sizeof e->host, record_str(&rec, FIELD_HOST));
        rig_copy(e->request_id, sizeof e->request_id, record_str(&rec, FIELD_REQUEST_ID));
        struct str at = record_str(&rec, FIELD_EXPIRES_AT);
        if (at.n && clock_parse_rfc3339(at.p, at.n, &e->expires_us))
            abort();
    }
    ring_reader_commit(&r->reader);
}

static inline void rig_see_lease(struct rig_seen *s, const struct lease *l)
{
    snprintf(s->lease, sizeof s->lease, "%s", l->id);
    rig_copy(s->value, sizeof s->value, secret_reveal(l->value));
    s->expires_us = l->expires_us;
}

static inline void rig_see(struct rig *r, struct rig_worker *w, const struct msg *m)
{
    if (w->n == RIG_SEEN)
        abort();
    struct rig_seen *s = &w->seen[w->n++];
    *s = (struct rig_seen) { .type = m->type, .id = m->id, .order = r->order++ };
    struct lease_wire_answer a;
    struct lease_wire_gone g;
    struct lease *l = NULL;
    if (m->type == LEASE_ANSWER) {
        if (lease_wire_read_answer(m->body, &a))
            abort();
        s->end = a.end;
        s->retry_after_s = a.retry_after_s;
        rig_copy(s->why, sizeof s->why, a.why);
        l = a.lease;
    } else if (m->type == LEASE_LIVE) {
        l = lease_wire_read_lease(m->body);
        if (!l)
            abort();
    } else if (m->type == LEASE_GONE) {
        if (lease_wire_read_gone(m->body, &g))
            abort();
        rig_copy(s->lease, sizeof s->lease, g.lease_id);
        s->gone = g.why;
    }
    if (l)
        rig_see_lease(s, l);
    lease_unref(&l);
}

static inline void rig_read_workers(struct rig *r)
{
    for (unsigned i = RIG_WORKERS; i-- > 0;) {
        struct rig_worker *w = &r->workers[i];
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        while (!w->closed && poll(&p, 1, 0) > 0) {
            int fds[MSG_FDS_MAX];
            struct buf body;
            struct msg m = { .fds = fds };
            buf_init(&body, 2 * MSG_BODY_MAX);
            if (msg_recv_blocking(w->fd, &body, &m))
                w->closed = true;
            else
                rig_see(r, w, &m);
            buf_done(&body);
        }
    }
}

/* Lets everything happen that is due, without waiting for anything. */
static inline void rig_settle(struct rig *r)
{
    for (int i = 0; i < 30; i++) {
        loop_run_once(r->loop, 1);
        rig_read_events(r);
        rig_read_workers(r);
    }
}

/* Moves time in steps, so that the logger is seen to make progress. */
static inline void rig_pass(struct rig *r, uint64_t ms)
{
    while (ms) {
        uint64_t step = ms > 20000 ? 20000 : ms;
        clock_fake_advance_ms(step);
        ms -= step;
        for (int i = 0; i < 4; i++) {
            loop_run_once(r->loop, 0);
            rig_read_events(r);
        }
    }
    rig_settle(r);
}

struct rig_ask {
    const char *credential, *agent, *host, *method, *path;
    uint16_t port;
    enum scheme scheme;
    const char *rejected; /* the id of a lease that an origin rejected */
};

static inline uint64_t rig_get(struct rig *r, unsigned worker, const struct rig_ask *a)
{
    struct rig_worker *w = &r->workers[worker];
    struct msg_writer m;
    char rid[32];
    snprintf(rid, sizeof rid, "rid-%u-%llu", worker, (unsigned long long)w->next_id);
    struct lease_wire_get g = { .credential = str_c(a->credential ? a->credential : "github"),
                                .agent = str_c(a->agent ? a->agent : "coder"),
                                .port = a->port ? a->port : 443,
                                .method = str_c(a->method ? a->method : "GET"),
                                .path = str_c(a->path ? a->path : "/"),
                                .scheme = a->scheme ? a->scheme : SCHEME_HTTPS,
                                .request_id = str_c(rid),
                                .reason = a->rejected ? LEASE_REJECTED : LEASE_FIRST,
                                .rejected = str_c(a->rejected ? a->rejected : "") };
    if (host_parse(str_c(a->host ? a->host : "api.test"), &g.host, NULL))
        abort();
    lease_wire_writer_init(&m);
    lease_wire_put_get(&m, &g);
    if (msg_send_blocking(w->fd, LEASE_GET, w->next_id, buf_str(&m.buf), NULL, 0))
        abort();
    buf_done(&m.buf);
    return w->next_id++;
}

static inline uint64_t rig_watch(struct rig *r, unsigned worker, const char *agent, const char *credential,
                                 uint16_t type)
{
    struct rig_worker *w = &r->workers[worker];
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_watch(&m, &(struct lease_wire_watch) { .agent = str_c(agent), .credential = str_c(credential) });
    if (msg_send_blocking(w->fd, type, w->next_id, buf_str(&m.buf), NULL, 0))
        abort();
    buf_done(&m.buf);
    return w->next_id++;
}

/* The message of this type and id that the worker got, or NULL. */
static inline const struct rig_seen *rig_find(const struct rig *r, unsigned worker, uint16_t type, uint64_t id)
{
    const struct rig_worker *w = &r->workers[worker];
    for (size_t i = 0; i < w->n; i++)
        if (w->seen[i].type == type && w->seen[i].id == id)
            return &w->seen[i];
    return NULL;
}

/* Asks and waits for the answer, at most three seconds of real time. */
static inline struct rig_seen rig_ask(struct rig *r, unsigned worker, const struct rig_ask *a)
{
    uint64_t id = rig_get(r, worker, a), until = clock_fake_real_ms() + 3000;
    const struct rig_seen *s;
    while (!(s = rig_find(r, worker, LEASE_ANSWER, id)) && clock_fake_real_ms() < until) {
        loop_run_once(r->loop, 5);
        rig_read_events(r);
        rig_read_workers(r);
    }
    if (!s) {
        fprintf(stderr, "no answer\n");
        abort();
    }
    struct rig_seen copy = *s;
    rig_settle(r);
    return copy;
}

static inline size_t rig_count_events(const struct rig *r, const char *result)
{
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++)
        n += strcmp(r->events[i].result, result) == 0;
    return n;
}

static inline const struct rig_event *rig_last_event(const struct rig *r)
{
    static const struct rig_event none;
    return r->nevents ? &r->events[r->nevents - 1] : &none;
}

static inline size_t rig_count_seen(const struct rig *r, unsigned worker, uint16_t type)
{
    size_t n = 0;
    for (size_t i = 0; i < r->workers[worker].n; i++)
        n += r->workers[worker].seen[i].type == type;
    return n;
}

static inline void rig_forget(struct rig *r)
{
    for (unsigned i = 0; i < RIG_WORKERS; i++)
        r->workers[i].n = 0;
    r->nevents = 0;
}

#endif
