/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_port_bench: CPU microseconds per question of the DNS port over UDP, client and server in one process, with all
 * that a question costs: judged, recorded, answered. The first line is the client's part alone, against a socket that
 * nobody reads. Not run by the test suite: cc … tests/bench/dns_port_bench.c with outgate_dns and cmocka, then
 * dns_port_bench [COUNT] */
#include "../unit/dns_lab.h"
#include "dns/wire.h"

#include <time.h>

enum { BATCH = 32 };

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int udp(uint16_t *ret_port)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    *ret_port = ntohs(sa.sin_port);
    return fd;
}

static void drain_events(struct lab *lab)
{
    unsigned char bytes[EVENT_MAX];
    size_t n;
    while (ring_reader_next(&lab->events, bytes, &n) == RING_RECORD)
        ring_reader_commit(&lab->events);
}

/* name: with %u for a number. */
static double ask(struct lab *lab, int fd, const char *name, uint16_t type, unsigned count, bool answered)
{
    static const unsigned char chance[WIRE_CHANCE] = { 1, 2 };
    unsigned char in[BATCH][512];
    double start = cpu_us();
    for (unsigned i = 0; i < count; i += BATCH) {
        struct mmsghdr m[BATCH] = { 0 };
        struct iovec iov[BATCH];
        struct wire_query q[BATCH];
        for (unsigned k = 0; k < BATCH; k++) {
            char text[128];
            snprintf(text, sizeof text, name, (i + k) % 1000);
            assert_int_equal(wire_query_make(&q[k], str_c(text), type, chance), 0);
            iov[k] = (struct iovec) { q[k].bytes, q[k].n };
            m[k].msg_hdr = (struct msghdr) { .msg_iov = &iov[k], .msg_iovlen = 1 };
        }
        assert_int_equal(sendmmsg(fd, m, BATCH, 0), BATCH);
        if (!answered)
            continue;
        for (unsigned got = 0; got < BATCH;) {
            loop_run_once(lab->loop, 0);
            for (unsigned k = 0; k < BATCH; k++) {
                iov[k] = (struct iovec) { in[k], sizeof in[k] };
                m[k].msg_hdr = (struct msghdr) { .msg_iov = &iov[k], .msg_iovlen = 1 };
            }
            int n = recvmmsg(fd, m, BATCH, MSG_DONTWAIT, NULL);
            got += n > 0 ? (unsigned)n : 0;
        }
        drain_events(lab);
    }
    return (cpu_us() - start) / count;
}

int main(int argc, char **argv)
{
    static struct lab lab;
    static const struct reply script[] = { { NULL, 0, 0, 0, "@ A 127.0.0.1 3600", NULL } };
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 200000;
    lab_start_with(&lab, script, 1, NULL, 0, "limits: {dns_rate: 10000000}",
                   "  - {name: api, hosts: [\"*.bench.test\"], action: allow}\n");
    struct err err;
    uint16_t port, mine, nobody;
    int server = udp(&port), fd = udp(&mine), sink = udp(&nobody);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(port) };
    assert_int_equal(resolver_add_listener(lab.resolver, STR("127.0.0.1:53"),
                                           lab_listen(AF_INET, "127.0.0.1", 0, 8, &mine), server, &err),
                     0);
    struct sockaddr_in away = to;
    away.sin_port = htons(nobody);
    assert_int_equal(connect(fd, (struct sockaddr *)&away, sizeof away), 0);
    printf("the client alone            %6.2f us\n", ask(&lab, fd, "c%u.bench.test", WIRE_A, count, false));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    printf("an allowed name, synthetic  %6.2f us\n", ask(&lab, fd, "c%u.bench.test", WIRE_A, count, true));
    printf("no data of that family      %6.2f us\n", ask(&lab, fd, "c%u.bench.test", WIRE_AAAA, count, true));
    printf("a name that is refused      %6.2f us\n", ask(&lab, fd, "c%u.evil-zone.com", WIRE_A, count, true));
    printf("a new domain each, refused  %6.2f us\n", ask(&lab, fd, "www.evil%u.com", WIRE_A, count, true));
    printf("a search list's name        %6.2f us\n", ask(&lab, fd, "c%u.svc.cluster.local", WIRE_A, count, true));
    close(fd);
    close(sink);
    lab_stop(&lab);
    return 0;
}
