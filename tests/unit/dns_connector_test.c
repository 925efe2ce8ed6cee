/* SPDX-License-Identifier: Apache-2.0
 *
 * Real sockets on loopback. An address that swallows SYNs is a listener whose queue is full. */
#include "dns_lab.h"

#include "dns/connector.h"

#include <fcntl.h>
#include <netinet/tcp.h>

struct seen {
    int calls, vets, deny_from; /* deny_from: the vet call from which on all are refused; 0: none */
    struct connector_result r;
};

static enum end vet(void *ctx, const struct ip *ip, uint16_t port, const char **ret_why)
{
    struct seen *s = ctx;
    (void)ip;
    assert_int_not_equal(port, 0);
    if (++s->vets < s->deny_from || s->deny_from == 0)
        return END_OK;
    *ret_why = "test";
    return END_ADDRESS_DENIED;
}
static void done(void *ctx, const struct connector_result *r)
{
    struct seen *s = ctx;
    s->calls++;
    s->r = *r;
}
static const struct connector_ops ops = { vet, done };

struct black_hole {
    int listener, fillers[4];
};

/* An address and port whose queue is full, so that a new SYN is dropped. */
static void hole_open(struct black_hole *h, const char *ip, uint16_t *port)
{
    struct sockaddr_storage sa = { 0 };
    struct ip a;
    h->listener = lab_listen(AF_INET, ip, *port, 0, port);
    ip_parse(str_c(ip), &a);
    socklen_t n = ip_to_sockaddr(&a, *port, &sa);
    for (int i = 0; i < 4; i++) {
        h->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(h->fillers[i], (struct sockaddr *)&sa, n);
    }
}
static void hole_close(struct black_hole *h)
{
    for (int i = 0; i < 4; i++)
        close(h->fillers[i]);
    close(h->listener);
}

static uint64_t run(struct loop *l, const char *const *addresses, size_t n, uint16_t port, uint64_t timeout_ms,
                    struct seen *s)
{
    struct ip ips[16];
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ip_parse(str_c(addresses[i]), &ips[i]), 0);
    loop_run_once(l, 0);
    uint64_t start = clock_mono_ms();
    struct connector *c = connector_start(l, ips, n, port, timeout_ms, &ops, s);
    assert_non_null(c);
    assert_int_equal(s->calls, 0);
    while (s->calls == 0 && clock_mono_ms() - start < 5000)
        loop_run_once(l, 20);
    assert_int_equal(s->calls, 1);
    return clock_mono_ms() - start;
}

#define RUN(l, port, timeout, s, ...)                                                                                  \
    run(l, (const char *const[]) { __VA_ARGS__ }, sizeof((const char *const[]) { __VA_ARGS__ }) / sizeof(char *),      \
        port, timeout, s)

static void test_connect(void **state)
{
    (void)state;
    int fds = lab_fds();
    struct loop *l = loop_new();
    uint16_t port;
    int listener = lab_listen(AF_INET, "127.0.0.1", 0, 16, &port);
    struct seen s = { 0 };
    RUN(l, port, 2000, &s, "127.0.0.1");
    assert_int_equal(s.r.end, END_OK);
    assert_int_equal(s.vets, 2); /* the sockaddr dialled, the peer reached */
    int v = 0;
    socklen_t n = sizeof v;
    assert_int_equal(getsockopt(s.r.fd, IPPROTO_TCP, TCP_NODELAY, &v, &n), 0);
    assert_int_equal(v, 1);
    assert_int_equal(getsockopt(s.r.fd, SOL_SOCKET, SO_KEEPALIVE, &v, &n), 0);
    assert_int_equal(v, 1);
    assert_true(fcntl(s.r.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(s.r.fd, F_GETFD) & FD_CLOEXEC);
    close(s.r.fd);

    /* refused first: the next at once */
    s = (struct seen) { 0 };
    assert_true(RUN(l, port, 2000, &s, "127.0.0.9", "127.0.0.8", "127.0.0.1") < 200);
    assert_int_equal(s.r.end, END_OK);
    close(s.r.fd);

    s = (struct seen) { 0 };
    RUN(l, port, 2000, &s, "127.0.0.9", "127.0.0.8");
    assert_int_equal(s.r.end, END_ORIGIN_CONNECT);
    assert_string_equal(s.r.why, "connection refused");
    s = (struct seen) { 0 };
    struct connector *none = connector_start(l, NULL, 0, port, 100, &ops, &s);
    assert_non_null(none);
    loop_run_once(l, 0);
    assert_int_equal(s.r.end, END_ORIGIN_CONNECT);
    close(listener);
    loop_free(l);
    assert_int_equal(lab_fds(), fds);
}

static void test_dead_first(void **state)
{
    (void)state;
    int fds = lab_fds();
    struct loop *l = loop_new();
    uint16_t port = 0;
    struct black_hole hole;
    hole_open(&hole, "127.0.0.7", &port);
    int listener = lab_listen(AF_INET, "127.0.0.1", port, 16, &port);
    struct seen s = { 0 };
    uint64_t ms = RUN(l, port, 3000, &s, "127.0.0.7", "127.0.0.1");
    assert_int_equal(s.r.end, END_OK);
    assert_true(ms >= 240 && ms < 900); /* RFC 8305: a quarter of a second, not a time-out */
    close(s.r.fd);

    s = (struct seen) { 0 };
    ms = RUN(l, port, 400, &s, "127.0.0.7");
    assert_int_equal(s.r.end, END_ORIGIN_TIMEOUT);
    assert_true(ms >= 390 && ms < 1500);

    /* dead and refused: the dead one still has its time */
    s = (struct seen) { 0 };
    ms = RUN(l, port, 500, &s, "127.0.0.7", "127.0.0.9");
    assert_int_equal(s.r.end, END_ORIGIN_TIMEOUT);

    /* cancelled under way, and cancelled when the result is there but not told */
    struct ip ip;
    s = (struct seen) { 0 };
    ip_parse(STR("127.0.0.7"), &ip);
    struct connector *c = connector_start(l, &ip, 1, port, 1000, &ops, &s);
    loop_run_once(l, 0);
    connector_cancel(&c);
    assert_null(c);
    c = connector_start(l, NULL, 0, port, 1000, &ops, &s);
    connector_cancel(&c);
    loop_run_once(l, 0);
    assert_int_equal(s.calls, 0);
    close(listener);
    hole_close(&hole);
    loop_free(l);
    assert_int_equal(lab_fds(), fds);
}

static void test_vet(void **state)
{
    (void)state;
    int fds = lab_fds();
    struct loop *l = loop_new();
    uint16_t port;
    int listener = lab_listen(AF_INET, "127.0.0.1", 0, 16, &port);
    for (int from = 1; from <= 2; from++) { /* at connect(); at getpeername() */
        struct seen s = { .deny_from = from };
        RUN(l, port, 2000, &s, "127.0.0.1");
        assert_int_equal(s.r.end, END_ADDRESS_DENIED);
        assert_string_equal(s.r.why, "test");
        assert_int_equal(s.r.fd, -1);
        assert_int_equal(s.vets, from);
    }
    /* one refused address among good ones ends it */
    struct seen s = { .deny_from = 2 };
    RUN(l, port, 2000, &s, "127.0.0.9", "127.0.0.1");
    assert_int_equal(s.r.end, END_ADDRESS_DENIED);
    s = (struct seen) { 0 }; /* control */
    RUN(l, port, 2000, &s, "127.0.0.9", "127.0.0.1");
    assert_int_equal(s.r.end, END_OK);
    close(s.r.fd);
    close(listener);
    loop_free(l);
    assert_int_equal(lab_fds(), fds);
}

static void test_ipv6(void **state)
{
    (void)state;
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    if (probe < 0 || bind(probe, (struct sockaddr *)&sa, sizeof sa) < 0) {
        close(probe);
        print_message("no IPv6 loopback here\n");
        skip();
    }
    close(probe);
    struct loop *l = loop_new();
    uint16_t port;
    int six = lab_listen(AF_INET6, "::1", 0, 16, &port), four = lab_listen(AF_INET, "127.0.0.1", port, 16, &port);
    struct seen s = { 0 };
    RUN(l, port, 2000, &s, "::1", "127.0.0.1");
    assert_int_equal(s.r.end, END_OK);
    assert_int_equal(s.r.ip.family, 6);
    close(s.r.fd);
    close(six);
    s = (struct seen) { 0 };
    RUN(l, port, 2000, &s, "::1", "127.0.0.1"); /* refused on one family: the other */
    assert_int_equal(s.r.end, END_OK);
    assert_int_equal(s.r.ip.family, 4);
    close(s.r.fd);
    close(four);
    loop_free(l);
}

static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } table[] = {
        { "", "" },
        { "192.0.2.1", "192.0.2.1" },
        { "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2", "2001:db8::1 192.0.2.1 2001:db8::2 192.0.2.2" },
        { "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1", "2001:db8::1 192.0.2.1 192.0.2.2 192.0.2.3" },
        { "2001:db8::1 2001:db8::2", "2001:db8::1 2001:db8::2" },
        { "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7 192.0.2.8 192.0.2.9 2001:db8::1",
          "2001:db8::1 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct ip in[16], out[CONNECTOR_ADDRESSES];
        size_t n = 0;
        struct str word, rest = str_c(table[i].in);
        while (str_split(&rest, ' ', &word) && word.n > 0)
            assert_int_equal(ip_parse(word, &in[n++]), 0);
        n = connector_order(in, n, out);
        char got[500] = "", text[46];
        for (size_t k = 0; k < n; k++) {
            size_t len = strlen(got);
            snprintf(got + len, sizeof got - len, "%s%s", k ? " " : "", ip_format(&out[k], text));
        }
        assert_string_equal(got, table[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect), cmocka_unit_test(test_dead_first), cmocka_unit_test(test_vet),
        cmocka_unit_test(test_ipv6),    cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
