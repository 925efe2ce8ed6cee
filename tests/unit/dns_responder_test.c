/* SPDX-License-Identifier: Apache-2.0
 *
 * The DNS port in the test's own loop: no answer without its record, every question of a connection answered, and what
 * waits when listeners, connections and the whole role go. */
#include "dns_lab.h"

#include "dns/query.h"
#include "dns/wire.h"

static const struct reply silent[] = { { NULL, 0, 0, REPLY_SILENT, "", NULL } };
static const struct reply some[] = {
    { "www.a.test", WIRE_A, 0, REPLY_WRONG_ID | REPLY_WRONG_CASE | REPLY_OTHER_NAME | REPLY_EMPTY, "@ A 127.0.0.9 60",
      NULL },
    { NULL, 0, 3, 0, "+@ SOA ns.test 60", NULL },
};
static const char rules[] =
    "  - {name: a, hosts: [\"*.a.test\"], allow_addresses: [127.0.0.0/8], dns_types: [A, AAAA, TXT], action: allow}\n";

struct port {
    struct lab lab;
    uint16_t tcp_port, udp_port;
    int udp; /* the client's, connected */
    int tcp; /* the resolver's */
};

static void start(struct port *p, const char *answer, const struct reply *script, size_t rows, const char *top)
{
    struct err err;
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    lab_answer = answer;
    lab_start_with(&p->lab, script, rows, NULL, 0, top, rules);
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(udp, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(udp, (struct sockaddr *)&sa, &n), 0);
    p->udp_port = ntohs(sa.sin_port);
    int tcp = p->tcp = lab_listen(AF_INET, "127.0.0.1", 0, 8, &p->tcp_port);
    assert_int_equal(resolver_add_listener(p->lab.resolver, STR("here"), tcp, udp, &err), 0);
    p->udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(p->udp, (struct sockaddr *)&sa, sizeof sa), 0);
}

static void stop(struct port *p)
{
    close(p->udp);
    lab_stop(&p->lab);
}

static int tcp_client(struct port *p)
{
    struct sockaddr_in sa = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(p->tcp_port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

static size_t question(unsigned char out[600], const char *name, uint16_t type)
{
    static const unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34 };
    struct wire_query q;
    assert_int_equal(wire_query_make(&q, str_c(name), type, chance), 0);
    out[0] = (unsigned char)(q.n >> 8);
    out[1] = (unsigned char)q.n;
    memcpy(out + 2, q.bytes, q.n);
    return q.n;
}

static void send_udp(struct port *p, const char *name, uint16_t type)
{
    unsigned char out[600];
    size_t n = question(out, name, type);
    assert_int_equal(send(p->udp, out + 2, n, 0), n);
}

static void send_tcp(int fd, const char *name, uint16_t type)
{
    unsigned char out[600];
    size_t n = question(out, name, type);
    assert_int_equal(send(fd, out, n + 2, 0), n + 2);
}

/* The code of the next answer over UDP, and its number of records. */
static unsigned answered(struct port *p, unsigned *ret_records)
{
    unsigned char in[2048];
    ssize_t n = -1;
    for (uint64_t until = clock_mono_ms() + 5000; n < 0 && clock_mono_ms() < until;) {
        loop_run_once(p->lab.loop, 5);
        n = recv(p->udp, in, sizeof in, 0);
    }
    assert_true(n >= QUERY_HEADER);
    *ret_records = (unsigned)(in[6] << 8 | in[7]);
    return in[3] & 15;
}

static void test_no_record_no_answer(void **state)
{
    (void)state;
    static struct port p;
    unsigned records, good = 0;
    start(&p, "synthetic", silent, 1, "limits: {refusals_per_second: 100000}"); /* none is counted with others */
    unsigned code;
    do { /* nobody reads the ring: it is full at some time */
        char name[32];
        snprintf(name, sizeof name, "x%u.a.test", good);
        send_udp(&p, name, WIRE_A);
        code = answered(&p, &records);
        assert_int_equal(records, code == WIRE_NOERROR);
        good += code == WIRE_NOERROR;
    } while (code == WIRE_NOERROR && good < 100000);
    assert_int_equal(code, WIRE_SERVFAIL);
    assert_true(good > 0);
    unsigned told = 0;
    for (struct lab_event e; (e = lab_event(&p.lab)).ok; told++)
        assert_string_equal(e.verdict, "allow");
    assert_true(told > 0 && told <= good);
    send_udp(&p, "www.a.test", WIRE_A); /* the control: with room it is answered */
    assert_int_equal(answered(&p, &records), WIRE_NOERROR);
    assert_int_equal(records, 1);
    stop(&p);
}

static void test_forged(void **state)
{
    (void)state;
    static struct port p;
    unsigned records;
    start(&p, "forward", some, 2, "");
    send_udp(&p, "www.a.test", WIRE_A);
    assert_int_equal(answered(&p, &records), WIRE_NOERROR);
    assert_int_equal(records, 1);
    send_udp(&p, "none.a.test", WIRE_A);
    assert_int_equal(answered(&p, &records), WIRE_NXDOMAIN);
    size_t asked = p.lab.servers[0].asked;
    send_udp(&p, "www.b.test", WIRE_A);
    assert_int_equal(answered(&p, &records), WIRE_REFUSED);
    assert_int_equal(p.lab.servers[0].asked, asked);
    stop(&p);
}

static size_t asked_of(const struct port *p, unsigned type)
{
    const struct dns_server_fake *s = &p->lab.servers[0];
    size_t n = 0;
    for (size_t i = 0; i < s->asked; i++)
        n += s->log[i].type == type;
    return n;
}

static void wait_asked(struct port *p, unsigned type)
{
    for (uint64_t until = clock_mono_ms() + 30000; !asked_of(p, type) && clock_mono_ms() < until;)
        loop_run_once(p->lab.loop, 5);
    assert_true(asked_of(p, type) > 0);
}

/* A look-up is under way; its name's other family is one packet more. */
static void test_no_record_no_other_family(void **state)
{
    (void)state;
    static struct port p;
    unsigned records, code, n = 0;
    start(&p, "forward", silent, 1, "limits: {refusals_per_second: 100000}");
    int fd = tcp_client(&p);
    send_tcp(fd, "www.a.test", WIRE_A);
    wait_asked(&p, WIRE_A);
    do { /* refused, and recorded until there is no room */
        char name[32];
        snprintf(name, sizeof name, "x%u.b.test", n++);
        send_udp(&p, name, WIRE_A);
        code = answered(&p, &records);
    } while (code == WIRE_REFUSED && n < 100000);
    assert_int_equal(code, WIRE_SERVFAIL);
    send_udp(&p, "www.a.test", WIRE_AAAA);
    assert_int_equal(answered(&p, &records), WIRE_SERVFAIL);
    lab_idle(&p.lab, 20);
    assert_int_equal(asked_of(&p, WIRE_AAAA), 0);
    while (lab_event(&p.lab).ok)
        ;
    send_udp(&p, "www.a.test", WIRE_AAAA); /* the control: with room it is asked */
    wait_asked(&p, WIRE_AAAA);
    close(fd);
    stop(&p);
}

/* The log becomes full while a question is upstream: it has a line all the same, when there is room again. */
static void test_full_while_upstream(void **state)
{
    (void)state;
    static struct port p;
    unsigned records, code, n = 0, lines = 0;
    start(&p, "forward", silent, 1, "limits: {refusals_per_second: 100000}");
    int fd = tcp_client(&p);
    send_tcp(fd, "www.a.test", 16);
    wait_asked(&p, 16);
    do {
        char name[32];
        snprintf(name, sizeof name, "x%u.b.test", n++);
        send_udp(&p, name, WIRE_A);
        code = answered(&p, &records);
    } while (code == WIRE_REFUSED && n < 100000);
    assert_int_equal(code, WIRE_SERVFAIL);
    unsigned char in[600];
    ssize_t got = -1;
    for (uint64_t until = clock_mono_ms() + 8000; got < 0 && clock_mono_ms() < until;) {
        loop_run_once(p.lab.loop, 20);
        got = recv(fd, in, sizeof in, MSG_DONTWAIT);
    }
    assert_true(got > 2 + QUERY_HEADER && (in[5] & 15) == WIRE_SERVFAIL); /* nobody upstream says anything */
    for (uint64_t until = clock_mono_ms() + 3000; lines == 0 && clock_mono_ms() < until;) {
        for (struct lab_event e; (e = lab_event(&p.lab)).ok;) /* into what room there was, or counted */
            lines += strcmp(e.qname, "www.a.test") == 0 && strcmp(e.qtype, "TXT") == 0;
        loop_run_once(p.lab.loop, 20);
    }
    assert_int_equal(lines, 1);
    close(fd);
    stop(&p);
}

/* --- many questions on one connection --- */

enum { QUESTIONS_MAX = 3000 };
static const struct pipeline {
    const char *what, *answer, *name;
    uint16_t type;
    size_t n;
    bool ends; /* the client sends no more */
    bool late; /* reads when nothing more can be sent */
} pipelines[] = {
    { "more answers than are kept, all there in one read", "synthetic", "www.a.test", 16, 250, false, false },
    { "the same, and more that is not read yet", "synthetic", "www.a.test", 16, 1000, false, false },
    { "and no more to come", "synthetic", "www.a.test", 16, 1000, true, false },
    { "answers not taken for a while", "synthetic", "www.a.test", 16, 3000, false, true },
    { "and no more to come", "synthetic", "www.a.test", 16, 3000, true, true },
    { "all wait for one look-up", "forward", "www.a.test", WIRE_A, 300, false, false },
    { "and no more to come", "forward", "www.a.test", WIRE_A, 300, true, false },
};

struct pipeline_client {
    int fd;
    size_t out_n, sent, in_n, answers;
    bool closed;
    bool seen[QUESTIONS_MAX];
    unsigned char out[QUESTIONS_MAX * 64], in[4096];
};

/* Whether anything could be sent. */
static bool client_send(struct pipeline_client *c, bool ends)
{
    ssize_t n =
        c->sent < c->out_n ? send(c->fd, c->out + c->sent, c->out_n - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    if (n < 0)
        return false;
    c->sent += (size_t)n;
    if (ends && c->sent == c->out_n)
        assert_int_equal(shutdown(c->fd, SHUT_WR), 0);
    return true;
}

static void client_receive(struct pipeline_client *c, size_t questions)
{
    ssize_t n = recv(c->fd, c->in + c->in_n, sizeof c->in - c->in_n, MSG_DONTWAIT);
    c->closed = n == 0 || (n < 0 && errno != EAGAIN);
    c->in_n += n > 0 ? (size_t)n : 0;
    for (size_t size; c->in_n >= 2 && c->in_n >= (size = 2 + (size_t)(c->in[0] << 8 | c->in[1]));) {
        size_t id = (size_t)(c->in[2] << 8 | c->in[3]);
        assert_true(size >= 2 + QUERY_HEADER && id < questions && !c->seen[id]);
        assert_int_equal(c->in[5] & 15, WIRE_NOERROR);
        c->seen[id] = true;
        c->answers++;
        c->in_n -= size;
        memmove(c->in, c->in + size, c->in_n);
    }
}

static void test_every_question_is_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++) {
        const struct pipeline *l = &pipelines[i];
        static struct port p;
        static struct pipeline_client c;
        unsigned stuck = 0;
        int few = 8192;
        start(&p, l->answer, some, 2, "");
        memset(&c, 0, sizeof c);
        if (l->late) /* connections have it from their listener */
            setsockopt(p.tcp, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
        c.fd = tcp_client(&p);
        for (size_t k = 0; k < l->n; k++) {
            unsigned char one[600];
            size_t n = 2 + question(one, l->name, l->type);
            assert_true(c.out_n + n <= sizeof c.out);
            one[2] = (unsigned char)(k >> 8);
            one[3] = (unsigned char)k;
            memcpy(c.out + c.out_n, one, n);
            c.out_n += n;
        }
        for (uint64_t until = clock_mono_ms() + 60000; c.answers < l->n && !c.closed && clock_mono_ms() < until;) {
            stuck = client_send(&c, l->ends) ? 0 : stuck + 1;
            if (!l->late || stuck > 20)
                client_receive(&c, l->n);
            loop_run_once(p.lab.loop, 1);
            while (lab_event(&p.lab).ok)
                ;
        }
        if (c.answers < l->n)
            fail_msg("row %zu, %s: %zu of %zu questions answered, %s", i, l->what, c.answers, l->n,
                     c.closed ? "cut" : "still open");
        close(c.fd);
        stop(&p);
    }
}

/* Questions of every kind wait; then what they wait on goes, in one of four ways. */
static void test_gone_while_waiting(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        static struct port p;
        start(&p, "forward", silent, 1, "");
        int fds[3];
        for (size_t i = 0; i < 3; i++) {
            fds[i] = tcp_client(&p);
            send_tcp(fds[i], "www.a.test", WIRE_A);
            send_tcp(fds[i], "www.a.test", 16);
            send_tcp(fds[i], "www.a.test", 16); /* joins the one before */
            send_udp(&p, "www.a.test", WIRE_A);
            send_udp(&p, "www.a.test", 16);
        }
        assert_int_equal(send(fds[0], "\0\x20half", 6, 0), 6); /* and a question that is not whole */
        for (uint64_t until = clock_mono_ms() + 5000; p.lab.servers[0].asked < 2 && clock_mono_ms() < until;)
            loop_run_once(p.lab.loop, 5);
        assert_int_equal(p.lab.servers[0].asked, 2); /* one for each type, whoever waits */
        bool open = way != 1;
        for (size_t i = 0; way == 1 && i < 3; i++)
            close(fds[i]);
        if (way == 2)
            resolver_drop_listener(p.lab.resolver, STR("here"));
        if (way == 3) {
            struct policy *again = policy_ref(p.lab.policy);
            resolver_set_policy(p.lab.resolver, again, STR_NONE, NULL);
            policy_unref(&again);
        }
        lab_idle(&p.lab, 20);
        for (size_t i = 0; open && i < 3; i++)
            close(fds[i]);
        stop(&p);
        assert_int_equal(lab_fds(), p.lab.fds_before);
    }
}

/* What left and was not answered when the role stops has its line: of a question its own, of a dial the look-up's. */
static void test_told_at_the_end(void **state)
{
    (void)state;
    static struct port p;
    struct lab_result r;
    start(&p, "forward", silent, 1, "");
    send_udp(&p, "www.a.test", WIRE_A);
    send_udp(&p, "www.a.test", 16);
    lab_begin(&p.lab, &(struct lab_dial) { .host = "www.a.test", .rule = "a", .port = 443 }, &r); /* joins A, asks AAAA */
    for (uint64_t until = clock_mono_ms() + 5000; p.lab.servers[0].asked < 3 && clock_mono_ms() < until;)
        loop_run_once(p.lab.loop, 5);
    assert_int_equal(p.lab.servers[0].asked, 3);
    assert_false(lab_event(&p.lab).ok);
    resolver_free(&p.lab.resolver);
    unsigned lines[3] = { 0 };
    for (struct lab_event e; (e = lab_event(&p.lab)).ok;) {
        assert_string_equal(e.qname, "www.a.test");
        assert_non_null(strstr(e.message, "stopped before an answer came"));
        lines[strcmp(e.qtype, "A") == 0 ? 0 : strcmp(e.qtype, "TXT") == 0 ? 1 : 2]++;
    }
    assert_true(lines[0] == 1 && lines[1] == 1 && lines[2] == 1);
    stop(&p);
}

static struct virtual_table *table(const char *net)
{
    static const unsigned char key[VIRTUAL_KEY];
    struct address_pool pool = { 0 };
    struct err err;
    assert_int_equal(cidr_parse(str_c(net), &pool.v4), 0);
    int fd = virtual_table_new(&pool, 65536, key, &err);
    struct virtual_table *t = virtual_table_map(fd, &pool, true, &err);
    assert_non_null(t);
    close(fd);
    return t;
}

/* With a pool there is an answer only where there is a place in a table of that pool. */
static void test_pool(void **state)
{
    (void)state;
    static struct port p;
    struct err err;
    unsigned records;
    lab_pool = ", pool: 10.78.0.0/30"; /* two names */
    start(&p, "synthetic", silent, 1, "limits: {refusals_per_second: 100000}");
    lab_pool = "";
    struct virtual_table *good = table("10.78.0.0/30"), *other = table("10.79.0.0/30");
    const struct {
        struct virtual_table *table;
        const char *name;
        unsigned code;
    } rows[] = {
        { NULL, "a.a.test", WIRE_SERVFAIL },  { good, "a.a.test", WIRE_NOERROR },   { good, "b.a.test", WIRE_NOERROR },
        { good, "c.a.test", WIRE_SERVFAIL },  { good, "a.a.test", WIRE_NOERROR },   { other, "a.a.test", WIRE_SERVFAIL },
        { good, "b.a.test", WIRE_NOERROR },   { good, "c.a.test", WIRE_SERVFAIL }, /* it was read back */
        { good, "a.b.test", WIRE_REFUSED },   { NULL, "b.a.test", WIRE_SERVFAIL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(resolver_set_names(p.lab.resolver, rows[i].table, &err), 0);
        send_udp(&p, rows[i].name, WIRE_A);
        assert_int_equal(answered(&p, &records), rows[i].code);
        assert_int_equal(records, rows[i].code == WIRE_NOERROR);
        struct lab_event e = lab_event(&p.lab);
        assert_true(e.ok);
        assert_string_equal(e.verdict, rows[i].code == WIRE_NOERROR ? "allow" : "deny");
    }
    send_udp(&p, "a.a.test", WIRE_AAAA); /* of no network, and v6 is null */
    assert_int_equal(answered(&p, &records), WIRE_NOERROR);
    assert_int_equal(records, 0);
    virtual_table_unref(&good);
    virtual_table_unref(&other);
    stop(&p);
    assert_int_equal(lab_fds(), p.lab.fds_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_record_no_answer),
        cmocka_unit_test(test_no_record_no_other_family),
        cmocka_unit_test(test_full_while_upstream),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_every_question_is_answered),
        cmocka_unit_test(test_gone_while_waiting),
        cmocka_unit_test(test_told_at_the_end),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
