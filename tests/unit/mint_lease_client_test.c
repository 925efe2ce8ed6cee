/* SPDX-License-Identifier: Apache-2.0
 *
 * The client and a keeper that does what the test says, in one loop, under a clock that the test moves. */
#include "base/clock.h"
#include "mint/lease_client.h"
#include "mint/lease_wire.h"
#include "tests/unit/mint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the clock and chance of this test (in place of base/clock.c) ---- */

static uint64_t now_us = 1000000000;
static const int64_t wall_base_us = INT64_C(1800000000000000);

uint64_t clock_mono_ms(void)
{
    return now_us / 1000;
}
uint64_t clock_mono_us(void)
{
    return now_us;
}
int64_t clock_wall_us(void)
{
    return wall_base_us + (int64_t)now_us;
}
void rand_bytes(void *out, size_t n)
{
    if (getrandom(out, n, 0) != (ssize_t)n)
        abort();
}

/* ---- both ends ---- */

enum { LOG_MAX = 64 };
struct said {
    uint16_t type;
    uint64_t id;
    char text[1024]; /* the fields, as one line */
};

static struct fixture f;
static struct loop *loop;
static struct lease_client *client;
static struct msg_channel *keeper;
static struct said said[LOG_MAX];
static size_t nsaid, closed;

static int keeper_message(void *ctx, struct msg_channel *ch, struct msg *m)
{
    (void)ctx;
    (void)ch;
    assert_true(nsaid < LOG_MAX);
    struct said *s = &said[nsaid++];
    *s = (struct said) { .type = m->type, .id = m->id };
    struct lease_wire_get g;
    struct lease_wire_watch w;
    if (m->type == LEASE_GET) {
        assert_int_equal(lease_wire_read_get(m->body, &g), 0);
        snprintf(s->text, sizeof s->text, "get %.*s %.*s %s:%u %.*s %.*s %s %.*s %d%s%.*s", STR_ARG(g.credential),
                 STR_ARG(g.agent), g.host.name, g.port, STR_ARG(g.method), STR_ARG(g.path),
                 g.scheme == SCHEME_HTTPS ? "https" : "http", STR_ARG(g.request_id), (int)g.reason,
                 g.rejected.n ? " " : "", STR_ARG(g.rejected));
    } else {
        assert_true(m->type == LEASE_WATCH || m->type == LEASE_UNWATCH);
        assert_int_equal(lease_wire_read_watch(m->body, &w), 0);
        snprintf(s->text, sizeof s->text, "%s %.*s %.*s", m->type == LEASE_WATCH ? "watch" : "unwatch",
                 STR_ARG(w.agent), STR_ARG(w.credential));
    }
    return 0;
}

static void keeper_closed(void *ctx, struct msg_channel *ch)
{
    (void)ctx;
    (void)ch;
    closed++;
}

static const struct msg_ops keeper_ops = { keeper_message, keeper_closed };

static void spin(void)
{
    for (int i = 0; i < 8; i++)
        loop_run_once(loop, 0);
}

static void advance(uint64_t ms)
{
    /* in steps, as time passes: what a timer sets again is due in turn */
    for (uint64_t step; ms; ms -= step) {
        step = ms < 1000 ? ms : 1000;
        now_us += step * 1000;
        spin();
    }
}

static void connect_keeper(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    keeper = msg_channel_new(loop, fds[0], &keeper_ops, NULL);
    assert_non_null(keeper);
    assert_int_equal(lease_client_connect(client, fds[1], NULL), 0);
    spin();
}

static void drop_keeper(void)
{
    msg_channel_free(&keeper);
    spin();
}

static void say(uint16_t type, uint64_t id, struct msg_writer *w)
{
    assert_int_equal(msg_send(keeper, type, id, buf_str(&w->buf), NULL, 0), 0);
    buf_done(&w->buf);
    spin();
}

struct offer {
    const char *id, *credential, *agent, *value, *path; /* path: NULL: not narrowed */
    int64_t ttl_s;
};

static struct lease *offer_lease(const struct offer *o)
{
    struct str paths[1] = { str_c(o->path) };
    struct lease_spec s = { .id = str_c(o->id),
                            .credential = str_c(o->credential ? o->credential : "github"),
                            .agent = str_c(o->agent ? o->agent : "coder"),
                            .value = str_c(o->value),
                            .expires_us = clock_wall_us() + (o->ttl_s ? o->ttl_s : 600) * 1000000 };
    if (o->path)
        s.paths = (struct name_list) { .v = paths, .n = 1, .given = true };
    struct lease *l = lease_new(&s, NULL);
    assert_non_null(l);
    return l;
}

static void answer(uint64_t id, struct offer o)
{
    struct msg_writer w;
    struct lease *l = offer_lease(&o);
    lease_wire_writer_init(&w);
    lease_wire_put_answer(&w, &(struct lease_wire_answer) { .end = END_OK, .lease = l });
    lease_unref(&l);
    say(LEASE_ANSWER, id, &w);
}

static void refuse(uint64_t id, enum end end)
{
    struct msg_writer w;
    lease_wire_writer_init(&w);
    lease_wire_put_answer(&w, &(struct lease_wire_answer) { .end = end, .retry_after_s = 7, .why = STR("because") });
    say(LEASE_ANSWER, id, &w);
}

static void live(struct offer o)
{
    struct msg_writer w;
    struct lease *l = offer_lease(&o);
    lease_wire_writer_init(&w);
    lease_wire_put_lease(&w, l);
    lease_unref(&l);
    say(LEASE_LIVE, 0, &w);
}

static void watched(uint64_t id)
{
    struct msg_writer w;
    lease_wire_writer_init(&w);
    say(LEASE_WATCHED, id, &w);
}

static void gone(const char *id, enum lease_gone why)
{
    struct msg_writer w;
    lease_wire_writer_init(&w);
    lease_wire_put_gone(&w, &(struct lease_wire_gone) { str_c(id), STR("coder"), STR("github"), why });
    say(LEASE_GONE, 0, &w);
}

/* ---- who asks ---- */

struct asker {
    int calls;
    enum end end;
    uint32_t retry_after_s;
    char why[64];
    struct lease *lease;
    struct lease_wait *wait;
};

static bool in_call;

static void on_answer(void *ctx, const struct lease_answer *a)
{
    struct asker *x = ctx;
    assert_false(in_call); /* never on the caller's stack */
    x->calls++;
    x->wait = NULL;
    x->end = a->end;
    x->retry_after_s = a->retry_after_s;
    snprintf(x->why, sizeof x->why, "%.*s", STR_ARG(a->why));
    x->lease = lease_ref(a->lease);
}

static void on_live(void *ctx)
{
    struct asker *x = ctx;
    assert_false(in_call);
    x->calls++;
    x->wait = NULL;
}

struct question {
    const char *host, *path;
    uint16_t port;
    const struct agent *agent;    /* NULL: coder */
    const struct lease *rejected; /* by an origin */
};

/* A lease at once (the caller's reference), or NULL. */
static struct lease *get(struct asker *x, struct question q)
{
    struct host host;
    assert_int_equal(host_parse(str_c(q.host ? q.host : "api.test"), &host, NULL), 0);
    struct ask ask = { .agent = q.agent ? q.agent : f.coder,
                       .scheme = SCHEME_HTTPS,
                       .host = &host,
                       .port = q.port ? q.port : 443,
                       .method = STR("GET"),
                       .path = str_c(q.path ? q.path : "/"),
                       .now_us = clock_wall_us() };
    in_call = true;
    struct lease *l = lease_get(client, f.github, &ask, STR("req-1"), q.rejected, on_answer, x, &x->wait);
    in_call = false;
    assert_true(!l == !!x->wait);
    spin();
    return l;
}

static int ask_live(struct asker *x, const struct agent *a, const char *name, struct lease_set **ret)
{
    struct host host;
    assert_int_equal(host_parse(str_c(name), &host, NULL), 0);
    *ret = NULL;
    in_call = true;
    int r = lease_live(client, a, &host, ret, on_live, x, &x->wait);
    in_call = false;
    spin();
    return r;
}

static void asker_done(struct asker *x)
{
    lease_cancel(&x->wait);
    lease_unref(&x->lease);
    *x = (struct asker) { 0 };
}

static void must_have_said(size_t n, const char *last)
{
    if (nsaid != n || (n && strcmp(said[n - 1].text, last) != 0))
        fail_msg("%zu said, the last: %s; expected %zu, the last: %s", nsaid, nsaid ? said[nsaid - 1].text : "", n,
                 last);
}

static void must_get_at_once(const char *id, struct question q)
{
    struct asker x = { 0 };
    struct lease *l = get(&x, q);
    assert_non_null(l);
    assert_string_equal(l->id, id);
    lease_unref(&l);
}

#define GET_ROOT "get github coder api.test:443 GET / https req-1 0"

/* ---- leases ---- */

static void test_get(void **state)
{
    (void)state;
    struct asker x = { 0 };
    assert_null(get(&x, (struct question) { 0 }));
    must_have_said(1, GET_ROOT);
    assert_int_equal(x.calls, 0);
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.end, END_OK);
    assert_string_equal(x.lease->id, "L1");
    assert_true(str_eq(secret_reveal(x.lease->value), STR("value-of-the-first")));
    assert_int_equal(lease_client_count(client), 1);
    must_get_at_once("L1", (struct question) { 0 });
    must_get_at_once("L1", (struct question) { .path = "/other" });
    must_have_said(1, GET_ROOT);
    asker_done(&x);
    /* host and port are part of the key */
    assert_null(get(&x, (struct question) { .host = "git.test" }));
    must_have_said(2, "get github coder git.test:443 GET / https req-1 0");
    asker_done(&x);
    assert_null(get(&x, (struct question) { .port = 8443 }));
    must_have_said(3, "get github coder api.test:8443 GET / https req-1 0");
    asker_done(&x);
    /* who left is not called; what was asked for is cached all the same */
    answer(said[1].id, (struct offer) { .id = "L2", .value = "value-of-the-second" });
    must_get_at_once("L2", (struct question) { .host = "git.test" });
}

static void test_single_flight(void **state)
{
    (void)state;
    struct asker a = { 0 }, b = { 0 }, c = { 0 };
    get(&a, (struct question) { 0 });
    get(&b, (struct question) { 0 });
    get(&c, (struct question) { 0 });
    must_have_said(1, GET_ROOT);
    lease_cancel(&a.wait); /* the one who asked first leaves */
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_int_equal(a.calls, 0);
    assert_int_equal(b.calls, 1);
    assert_int_equal(c.calls, 1);
    assert_ptr_equal(b.lease, c.lease);
    asker_done(&b);
    asker_done(&c);
}

/* Cancelled when its answer is on the way to it. */
static void test_cancel_late(void **state)
{
    (void)state;
    struct asker a = { 0 };
    get(&a, (struct question) { 0 });
    struct msg_writer w;
    struct lease *l = offer_lease(&(struct offer) { .id = "L1", .value = "value-of-the-first" });
    lease_wire_writer_init(&w);
    lease_wire_put_answer(&w, &(struct lease_wire_answer) { .end = END_OK, .lease = l });
    lease_unref(&l);
    assert_int_equal(msg_send(keeper, LEASE_ANSWER, said[0].id, buf_str(&w.buf), NULL, 0), 0);
    buf_done(&w.buf);
    lease_cancel(&a.wait);
    assert_null(a.wait);
    lease_cancel(&a.wait);
    spin();
    assert_int_equal(a.calls, 0);
}

static void test_refused(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    refuse(said[0].id, END_CREDENTIAL_DENIED);
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.end, END_CREDENTIAL_DENIED);
    assert_int_equal(x.retry_after_s, 7);
    assert_string_equal(x.why, "because");
    assert_null(x.lease);
    asker_done(&x);
    assert_null(get(&x, (struct question) { 0 })); /* a refusal is the keeper's to remember */
    must_have_said(2, GET_ROOT);
    asker_done(&x);
}

static void test_scope(void **state)
{
    (void)state;
    struct asker a = { 0 }, b = { 0 }, c = { 0 };
    get(&a, (struct question) { .path = "/a/1" });
    get(&b, (struct question) { .path = "/b/1" });
    get(&c, (struct question) { .path = "/c/1" });
    must_have_said(1, "get github coder api.test:443 GET /a/1 https req-1 0");
    answer(said[0].id, (struct offer) { .id = "LA", .value = "value-for-a-only", .path = "/a/**" });
    assert_int_equal(a.end, END_OK);
    assert_int_equal(b.calls + c.calls, 0);
    assert_int_equal(nsaid, 3); /* each asks for itself, once */
    size_t of_b = strstr(said[1].text, "/b/1") ? 1 : 2;
    answer(said[of_b].id, (struct offer) { .id = "LB", .value = "value-for-b-only", .path = "/b/**" });
    assert_int_equal(b.end, END_OK);
    assert_string_equal(b.lease->id, "LB");
    answer(said[3 - of_b].id, (struct offer) { .id = "LA", .value = "value-for-a-only", .path = "/a/**" });
    assert_int_equal(c.calls, 1);
    assert_int_equal(c.end, END_PLACEHOLDER_OUT_OF_SCOPE);
    assert_int_equal(nsaid, 3);
    /* what is cached is used where it covers, and asked anew where it does not */
    must_get_at_once("LA", (struct question) { .path = "/a/2" });
    asker_done(&a);
    assert_null(get(&a, (struct question) { .path = "/z" }));
    assert_int_equal(nsaid, 4);
    asker_done(&a);
    asker_done(&b);
    asker_done(&c);
}

static void test_scope_refused(void **state)
{
    (void)state;
    struct asker a = { 0 }, b = { 0 }, c = { 0 };
    get(&a, (struct question) { .path = "/a/1" });
    get(&b, (struct question) { .path = "/b/1" });
    get(&c, (struct question) { .path = "/a/1" });
    refuse(said[0].id, END_PLACEHOLDER_OUT_OF_SCOPE);
    assert_int_equal(a.end, END_PLACEHOLDER_OUT_OF_SCOPE);
    assert_int_equal(c.end, END_PLACEHOLDER_OUT_OF_SCOPE);
    assert_int_equal(b.calls, 0);
    must_have_said(2, "get github coder api.test:443 GET /b/1 https req-1 0");
    refuse(said[1].id, END_PLACEHOLDER_OUT_OF_SCOPE);
    assert_int_equal(b.end, END_PLACEHOLDER_OUT_OF_SCOPE);
    must_have_said(2, "get github coder api.test:443 GET /b/1 https req-1 0");
}

static void test_rejected(void **state)
{
    (void)state;
    struct asker a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 }, e = { 0 };
    struct lease *old = offer_lease(&(struct offer) { .id = "L0", .value = "value-before-the-first" });
    get(&a, (struct question) { 0 });
    /* who had one rejected does not join the question from before; the next may join his */
    get(&b, (struct question) { .rejected = old });
    must_have_said(2, "get github coder api.test:443 GET / https req-1 2 L0");
    get(&d, (struct question) { .rejected = old });
    assert_int_equal(nsaid, 2);
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
    /* but not who had another rejected: that one may be the answer */
    get(&e, (struct question) { .rejected = a.lease });
    must_have_said(3, "get github coder api.test:443 GET / https req-1 2 L1");
    answer(said[1].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_string_equal(b.lease->id, "L1");
    assert_string_equal(d.lease->id, "L1");
    assert_int_equal(e.calls, 0);
    answer(said[2].id, (struct offer) { .id = "L2", .value = "value-of-the-second" });
    assert_string_equal(e.lease->id, "L2");
    must_get_at_once("L2", (struct question) { 0 });
    assert_null(get(&c, (struct question) { .rejected = old })); /* never from the cache */
    assert_int_equal(nsaid, 4);
    lease_unref(&old);
    asker_done(&a);
    asker_done(&b);
    asker_done(&c);
    asker_done(&d);
    asker_done(&e);
}

/* One agent asks for more hosts than there may be questions: it is refused some, another agent none. */
static void test_many_questions(void **state)
{
    (void)state;
    enum { SHARE = 6144 }; /* three quarters of 8192 */
    static struct asker many[SHARE], last, other;
    char name[32];
    drop_keeper(); /* all of them wait for the next one */
    for (int i = 0; i < SHARE; i++) {
        snprintf(name, sizeof name, "h%d.wild.test", i);
        assert_null(get(&many[i], (struct question) { .host = name }));
        assert_int_equal(many[i].calls, 0);
    }
    get(&last, (struct question) { .host = "last.wild.test" });
    assert_int_equal(last.calls, 1);
    assert_int_equal(last.end, END_RATE_LIMITED);
    assert_string_equal(last.why, "too many questions of this agent wait for the keeper");
    get(&other, (struct question) { .host = "last.wild.test", .agent = f.other });
    assert_int_equal(other.calls, 0);
    /* Control: once they are over, the same question waits too. */
    advance(30000);
    for (int i = 0; i < SHARE; i++)
        assert_int_equal(many[i].end, END_CREDENTIAL_UNAVAILABLE);
    last = (struct asker) { 0 };
    get(&last, (struct question) { .host = "last.wild.test" });
    assert_int_equal(last.calls, 0);
    asker_done(&last);
    asker_done(&other);
}

static void test_expiry(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first", .ttl_s = 50 });
    asker_done(&x);
    advance(19000);
    must_get_at_once("L1", (struct question) { 0 });
    assert_int_equal(lease_client_count(client), 1);
    advance(1500); /* 30 s before its end */
    assert_int_equal(lease_client_count(client), 0);
    assert_null(get(&x, (struct question) { 0 }));
    must_have_said(2, GET_ROOT);
    answer(said[1].id, (struct offer) { .id = "L2", .value = "value-of-the-second", .ttl_s = 29 });
    assert_int_equal(x.end, END_CREDENTIAL_EXPIRED);
    assert_int_equal(lease_client_count(client), 0);
    asker_done(&x);
}

static void test_idle(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    asker_done(&x);
    advance(50000);
    must_get_at_once("L1", (struct question) { 0 });
    advance(50000);
    assert_int_equal(lease_client_count(client), 1);
    advance(10000);
    assert_int_equal(lease_client_count(client), 0);
    assert_null(get(&x, (struct question) { 0 }));
    asker_done(&x);
}

static int revoked_calls;
static char revoked_id[LEASE_ID_MAX + 1];
static void on_revoked(void *ctx, const struct lease *l)
{
    (void)ctx;
    assert_false(in_call);
    revoked_calls++;
    strcpy(revoked_id, l->id);
}

static void test_gone(void **state)
{
    (void)state;
    static const struct {
        enum lease_gone why;
        int revoked;
    } cases[] = { { LEASE_GONE_EXPIRED, 0 }, { LEASE_GONE_REPLACED, 0 }, { LEASE_GONE_REVOKED, 1 } };
    lease_client_on_revoked(client, on_revoked, NULL);
    for (size_t i = 0; i < 3; i++) {
        struct asker x = { 0 };
        nsaid = 0;
        revoked_calls = 0;
        assert_null(get(&x, (struct question) { 0 }));
        answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
        gone("L-other", cases[i].why);
        must_get_at_once("L1", (struct question) { 0 });
        assert_int_equal(revoked_calls, 0);
        gone("L1", cases[i].why);
        assert_int_equal(revoked_calls, cases[i].revoked);
        assert_int_equal(lease_client_count(client), 0);
        asker_done(&x);
        assert_null(get(&x, (struct question) { 0 }));
        asker_done(&x);
        refuse(said[1].id, END_CREDENTIAL_UNAVAILABLE);
    }
    assert_string_equal(revoked_id, "L1");
}

/* Evicted from the cache, but an exchange still uses it: the revocation finds it. */
static void test_revoked_in_use(void **state)
{
    (void)state;
    struct asker x = { 0 };
    lease_client_on_revoked(client, on_revoked, NULL);
    revoked_calls = 0;
    get(&x, (struct question) { 0 });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    advance(70000);
    assert_int_equal(lease_client_count(client), 0);
    gone("L1", LEASE_GONE_REVOKED);
    assert_int_equal(revoked_calls, 1);
    asker_done(&x);
    advance(10000);
    gone("L1", LEASE_GONE_REVOKED);
    assert_int_equal(revoked_calls, 1);
}

/* A keeper that starts knows nothing of the last one's leases: they are given out no more, and what exchanges hold is
 * found by the id or the credential alone. */
static void test_revoked_after_another_keeper(void **state)
{
    (void)state;
    static const struct {
        const char *id, *credential;
        int calls;
    } cases[] = { { "L9", "", 0 }, { "", "second", 0 }, { "L1", "", 1 }, { "L1", "", 1 }, { "", "github", 1 } };
    struct asker x = { 0 }, y = { 0 };
    lease_client_on_revoked(client, on_revoked, NULL);
    revoked_calls = 0;
    get(&x, (struct question) { 0 });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    drop_keeper();
    must_get_at_once("L1", (struct question) { 0 }); /* nobody could revoke it */
    connect_keeper();
    assert_int_equal(lease_client_count(client), 0);
    assert_null(get(&y, (struct question) { 0 }));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_writer w;
        lease_wire_writer_init(&w);
        lease_wire_put_gone(&w, &(struct lease_wire_gone) { str_c(cases[i].id), STR_NONE, str_c(cases[i].credential),
                                                            LEASE_GONE_REVOKED });
        say(LEASE_GONE, 0, &w);
        assert_int_equal(revoked_calls, cases[i].calls);
    }
    asker_done(&x);
    asker_done(&y);
    assert_int_equal(closed, 0);
}

static void test_deadline(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    advance(9000);
    assert_int_equal(x.calls, 0);
    advance(1100); /* limits.lease_timeout */
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.end, END_CREDENTIAL_UNAVAILABLE);
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" }); /* too late */
    assert_int_equal(x.calls, 1);
    assert_int_equal(lease_client_count(client), 0);
    assert_int_equal(closed, 0);
}

static void test_away(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    drop_keeper();
    connect_keeper();
    must_have_said(2, GET_ROOT); /* sent again */
    drop_keeper();
    assert_int_equal(x.calls, 0);
    connect_keeper();
    must_have_said(2, GET_ROOT); /* once only */
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.end, END_CREDENTIAL_UNAVAILABLE);
    asker_done(&x);
    /* no keeper at all: waits for one; what is cached is used meanwhile */
    get(&x, (struct question) { 0 });
    answer(said[2].id, (struct offer) { .id = "L1", .value = "value-of-the-first", .ttl_s = 55 });
    asker_done(&x);
    drop_keeper();
    must_get_at_once("L1", (struct question) { 0 });
    assert_null(get(&x, (struct question) { .host = "git.test" }));
    connect_keeper();
    must_have_said(4, "get github coder git.test:443 GET / https req-1 0");
    asker_done(&x);
    drop_keeper();
    advance(26000);
    assert_null(get(&x, (struct question) { 0 })); /* not a second longer than it lasts */
    advance(11000);
    assert_int_equal(x.end, END_CREDENTIAL_UNAVAILABLE);
}

/* ---- what must not come back ---- */

static void test_live(void **state)
{
    (void)state;
    struct asker x = { 0 }, y = { 0 };
    struct lease_set *set, *again;
    assert_int_equal(ask_live(&x, f.coder, "elsewhere.test", &set), 1);
    assert_null(set);
    must_have_said(0, "");
    uint64_t before = lease_client_generation(client);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0);
    assert_int_equal(ask_live(&y, f.coder, "git.test", &set), 0);
    must_have_said(1, "watch coder github");
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    live((struct offer) { .id = "L2", .value = "value-of-the-second" });
    assert_int_equal(x.calls, 0);
    watched(said[0].id);
    assert_int_equal(x.calls, 1);
    assert_int_equal(y.calls, 1);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_non_null(set);
    assert_int_equal(set->n, 2);
    assert_true(str_eq(set->items[0].placeholder, placeholder_of(f.table, f.coder, f.github)->text));
    assert_true(lease_client_generation(client) != before);
    before = lease_client_generation(client);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &again), 1);
    assert_ptr_equal(set, again); /* made once */
    lease_set_unref(&again);
    /* sent again, it is the same */
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_int_equal(lease_client_generation(client), before);
    live((struct offer) { .id = "L3", .value = "value-of-the-third" });
    assert_true(lease_client_generation(client) != before);
    assert_int_equal(set->n, 2); /* immutable */
    assert_int_equal(ask_live(&x, f.coder, "git.test", &again), 1);
    assert_int_equal(again->n, 3);
    lease_set_unref(&set);
    lease_set_unref(&again);
    /* the other agent's are not mine */
    assert_int_equal(ask_live(&x, f.other, "git.test", &set), 0);
    must_have_said(2, "watch other github");
    watched(said[1].id);
    assert_int_equal(ask_live(&x, f.other, "git.test", &set), 1);
    assert_null(set);
    /* a host of three credentials */
    assert_int_equal(ask_live(&x, f.coder, "api.test", &set), 0);
    assert_int_equal(nsaid, 4);
    watched(said[2].id);
    watched(said[3].id);
    assert_int_equal(ask_live(&x, f.coder, "api.test", &set), 1);
    assert_int_equal(set->n, 3);
    lease_set_unref(&set);
    asker_done(&x);
}

/* The lease that an exchange got is live, whatever the order of messages. */
static void test_live_by_answer(void **state)
{
    (void)state;
    struct asker x = { 0 }, y = { 0 };
    struct lease_set *set;
    ask_live(&x, f.coder, "git.test", &set);
    watched(said[0].id);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_null(set);
    get(&y, (struct question) { .host = "git.test" });
    answer(said[1].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_int_equal(set->n, 1);
    assert_ptr_equal(set->items[0].lease, y.lease); /* one object */
    lease_set_unref(&set);
    asker_done(&y);
}

/* Replaced, revoked or expired by skew: not given out any more, but scrubbed until the origin takes it no longer. */
static void test_live_until_its_end(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    ask_live(&x, f.coder, "git.test", &set);
    live((struct offer) { .id = "L1", .value = "value-of-the-first", .ttl_s = 40 });
    live((struct offer) { .id = "L2", .value = "value-of-the-second", .ttl_s = 40 });
    live((struct offer) { .id = "L3", .value = "value-of-the-third", .ttl_s = 45 });
    watched(said[0].id);
    gone("L1", LEASE_GONE_REPLACED);
    gone("L2", LEASE_GONE_REVOKED);
    gone("L3", LEASE_GONE_EXPIRED);
    advance(39000);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_int_equal(set->n, 3);
    lease_set_unref(&set);
    uint64_t before = lease_client_generation(client);
    advance(2000);
    assert_true(lease_client_generation(client) != before);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_int_equal(set->n, 1);
    lease_set_unref(&set);
    advance(6000);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_null(set);
}

static void test_live_away(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0);
    advance(10500);
    assert_int_equal(x.calls, 1);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), -1);
    must_have_said(1, "watch coder github");
    advance(1100);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0); /* tried again after a while */
    must_have_said(2, "watch coder github");
    watched(said[0].id); /* of the first try: too late */
    assert_int_equal(x.calls, 1);
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    watched(said[1].id);
    assert_int_equal(x.calls, 2);
    /* what is known stays usable while the keeper is away, and is asked anew when it is back */
    drop_keeper();
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    lease_set_unref(&set);
    assert_int_equal(ask_live(&x, f.coder, "lit.test", &set), 0);
    asker_done(&x);
    connect_keeper();
    assert_int_equal(nsaid, 4);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0);
    watched(said[2].id);
    watched(said[3].id);
    assert_int_equal(x.calls, 1);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_int_equal(set->n, 1); /* the new keeper did not name it: the origin still takes it */
    lease_set_unref(&set);
}

static void test_live_idle(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    ask_live(&x, f.coder, "git.test", &set);
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    watched(said[0].id);
    uint64_t before = lease_client_generation(client);
    advance(50000);
    assert_int_equal(nsaid, 1);
    advance(10000);
    must_have_said(2, "unwatch coder github");
    assert_true(lease_client_generation(client) != before); /* an answer that still runs asks again */
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0);
    must_have_said(3, "watch coder github");
    before = lease_client_generation(client);
    watched(said[2].id);
    assert_true(lease_client_generation(client) != before); /* also when it did not wait for this */
    asker_done(&x);
}

/* More live leases than a set may hold: nothing is answered, rather than something missed. */
static void test_live_too_many(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    ask_live(&x, f.coder, "git.test", &set);
    watched(said[0].id);
    for (int i = 0; i <= LEASE_SET_MAX; i++) {
        char id[16], value[32];
        snprintf(id, sizeof id, "L%d", i);
        snprintf(value, sizeof value, "value-number-%d", i);
        live((struct offer) { .id = id, .value = value });
        if (i == LEASE_SET_MAX - 1) {
            assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
            assert_int_equal(set->n, LEASE_SET_MAX);
            lease_set_unref(&set);
        }
    }
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), -1);
    advance(61000);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 0); /* made anew */
    asker_done(&x);
}

/* One agent visits more hosts than there is room for: the other is not refused, and nothing is forgotten. */
static void test_live_many_hosts(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    char name[64];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "h%d.elsewhere.test", i);
        assert_int_equal(ask_live(&x, f.coder, name, &set), 1);
    }
    assert_int_equal(ask_live(&x, f.coder, "first.wild.test", &set), 0);
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    watched(said[0].id);
    for (int i = 0; i < 5000; i++) {
        now_us += 1000;
        snprintf(name, sizeof name, "h%d.wild.test", i);
        assert_int_equal(ask_live(&x, f.coder, name, &set), 1);
        assert_int_equal(set->n, 1);
        lease_set_unref(&set);
    }
    must_have_said(1, "watch coder github");
    assert_int_equal(ask_live(&x, f.other, "git.test", &set), 0);
    assert_int_equal(ask_live(&x, f.coder, "first.wild.test", &set), 1);
    assert_int_equal(set->n, 1);
    lease_set_unref(&set);
    asker_done(&x);
}

/* ---- the rest ---- */

static void test_bad_messages(void **state)
{
    (void)state;
    struct asker x = { 0 };
    get(&x, (struct question) { 0 });
    for (int i = 0; i < 5; i++) {
        struct msg_writer w;
        closed = 0;
        lease_wire_writer_init(&w);
        switch (i) {
        case 0: /* a type that a keeper does not send */
            say(LEASE_GET, 1, &w);
            break;
        case 1:
            msg_put_u8(&w, 1);
            say(LEASE_LIVE, 1, &w);
            break;
        case 2:
            msg_put_u8(&w, 1);
            say(LEASE_WATCHED, 1, &w);
            break;
        case 3:
            msg_put_u16(&w, END_UNSET);
            say(LEASE_ANSWER, said[0].id, &w);
            break;
        default: /* a lease of another agent */
            answer(said[0].id, (struct offer) { .id = "L1", .agent = "other", .value = "value-of-the-first" });
            break;
        }
        assert_int_equal(closed, 1);
        assert_int_equal(x.calls, 0);
        msg_channel_free(&keeper);
        asker_done(&x);
        connect_keeper();
        nsaid = 0;
        get(&x, (struct question) { 0 });
        assert_int_equal(nsaid, 1);
    }
    asker_done(&x);
}

static void test_policy(void **state)
{
    (void)state;
    struct asker x = { 0 };
    struct lease_set *set;
    get(&x, (struct question) { .host = "git.test" });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    asker_done(&x);
    ask_live(&x, f.coder, "git.test", &set);
    live((struct offer) { .id = "L1", .value = "value-of-the-first" });
    watched(said[1].id);
    /* the same again: nothing is lost */
    lease_client_set_policy(client, f.policy, f.table);
    must_get_at_once("L1", (struct question) { .host = "git.test" });
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_int_equal(set->n, 1);
    lease_set_unref(&set);
    /* without the credential: not given out, still scrubbed */
    struct policy *p =
        fixture_policy(STR("version: 1\nstate_dir: s\nagents: [{name: coder, identify: [{source: 10.77.0.2/32}]}]\n"
                           "rules: [{name: r, hosts: [git.test], action: allow}]\n"));
    struct placeholder_table *t = placeholder_table_new(p, FIXTURE_KEY, NULL);
    assert_non_null(t);
    uint64_t before = lease_client_generation(client);
    lease_client_set_policy(client, p, t);
    assert_true(lease_client_generation(client) != before);
    assert_int_equal(lease_client_count(client), 0);
    assert_int_equal(ask_live(&x, f.coder, "git.test", &set), 1);
    assert_non_null(set);
    assert_int_equal(set->n, 1);
    lease_set_unref(&set);
    /* without the agent: nothing */
    assert_int_equal(ask_live(&x, f.other, "git.test", &set), -1);
    placeholder_table_unref(&t);
    policy_unref(&p);
}

/* Freed in the middle of everything; the sanitizer counts. */
static void test_freed(void **state)
{
    (void)state;
    struct asker x = { 0 }, y = { 0 }, z = { 0 };
    struct lease_set *set;
    get(&x, (struct question) { 0 });
    answer(said[0].id, (struct offer) { .id = "L1", .value = "value-of-the-first" });
    get(&y, (struct question) { .host = "git.test" });
    ask_live(&z, f.coder, "git.test", &set);
    assert_non_null(y.wait);
    lease_client_free(&client);
    assert_null(client);
    spin();
    assert_int_equal(y.calls + z.calls, 0);
    assert_true(str_eq(secret_reveal(x.lease->value), STR("value-of-the-first"))); /* mine still */
    lease_unref(&x.lease);
}

static int setup(void **state)
{
    (void)state;
    nsaid = closed = 0;
    loop = loop_new();
    client = lease_client_new(loop, NULL);
    if (!loop || !client)
        return -1;
    lease_client_set_policy(client, f.policy, f.table);
    connect_keeper();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lease_client_free(&client);
    msg_channel_free(&keeper);
    spin();
    loop_free(loop);
    return 0;
}

static int group_setup(void **state)
{
    (void)state;
    if (secret_init())
        return -1;
    f = fixture_new();
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    fixture_done(&f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_get),
        TEST(test_single_flight),
        TEST(test_cancel_late),
        TEST(test_refused),
        TEST(test_scope),
        TEST(test_scope_refused),
        TEST(test_rejected),
        TEST(test_many_questions),
        TEST(test_expiry),
        TEST(test_idle),
        TEST(test_gone),
        TEST(test_revoked_in_use),
        TEST(test_revoked_after_another_keeper),
        TEST(test_deadline),
        TEST(test_away),
        TEST(test_live),
        TEST(test_live_by_answer),
        TEST(test_live_until_its_end),
        TEST(test_live_away),
        TEST(test_live_idle),
        TEST(test_live_too_many),
        TEST(test_bad_messages),
        TEST(test_policy),
        TEST(test_freed),
        TEST(test_live_many_hosts),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
