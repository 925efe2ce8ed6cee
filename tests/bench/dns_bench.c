/* SPDX-License-Identifier: Apache-2.0
 *
 * dns_bench: CPU microseconds per dial: worker's client, resolver, scripted DNS server and the dialled listener in one
 * process. The first line is what the kernel takes for the connection alone. Not run by the test suite: cc …
 * tests/bench/dns_bench.c with outgate_dns and cmocka, then dns_bench [COUNT] */
#include "../unit/dns_lab.h"

#include <time.h>

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static const struct reply script[] = { { NULL, 1, 0, 0, "@ A 127.0.0.1 3600", NULL },
                                       { NULL, 28, 0, 0, "+@ SOA ns.test 60", NULL } };

static double bare(struct lab *lab, unsigned count)
{
    double start = cpu_us();
    struct sockaddr_in sa = { .sin_family = AF_INET,
                              .sin_port = htons(lab->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (unsigned i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fd, (struct sockaddr *)&sa, sizeof sa);
        loop_run_once(lab->loop, 1);
        close(fd);
    }
    return (cpu_us() - start) / count;
}

static double dials(struct lab *lab, unsigned count, bool fresh)
{
    char name[64];
    double start = cpu_us();
    for (unsigned i = 0; i < count; i++) {
        if (i % 100 == 0)
            while (lab_event(lab).ok)
                ;
        lab->servers[0].asked = 0;
        snprintf(name, sizeof name, "n%u.a.test", fresh ? i + 1 : 0);
        struct lab_result r = lab_dial(lab, &(struct lab_dial) { .host = name, .rule = "web" });
        assert_int_equal(r.end, END_OK);
    }
    return (cpu_us() - start) / count;
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 5000;
    struct lab lab;
    lab_start_with(
        &lab, script, 2, NULL, 0, "limits: {dial_rate: 100000, refusals_per_second: 100000}",
        "  - {name: web, hosts: [\"*.a.test\"], ports: [%PORT%], allow_addresses: [127.0.0.0/8], action: allow}\n");
    printf("connect, accept, close alone  %6.1f us\n", bare(&lab, count));
    printf("dial, name in the cache       %6.1f us\n", dials(&lab, count, false));
    printf("dial, name asked for (2 q.)   %6.1f us\n", dials(&lab, count, true));
    lab_stop(&lab);
    return 0;
}
