/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_bench: CPU microseconds of ours per question that goes upstream, by way: UDP and TCP in the clear, and over
 * TLS; one at a time and as many at once as one owner may have. The servers are another process. Not run by the test
 * suite: cc … tests/bench/upstream_bench.c with outgate_dns, then upstream_bench [COUNT] */
#include "dns/upstream.h"
#include "policy/origin_trust.h"
#include "tests/unit/dns_tls_server.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { LANES = 128, AT_ONCE = 16 }; /* as the role has it; TCP has a quarter of the lanes, and an owner half of that */

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct bench {
    struct loop *loop;
    struct upstream *upstream;
    unsigned done, failed;
};

static void on_answer(void *ctx, enum upstream_result r, const struct wire_answer *a)
{
    struct bench *b = ctx;
    b->done++;
    b->failed += r != UPSTREAM_ANSWERED || a->n != 1;
}

static double ask(struct bench *b, unsigned count, unsigned at_once)
{
    char name[48];
    unsigned asked = 0;
    b->done = b->failed = 0;
    double start = cpu_us();
    while (b->done < count) {
        for (; asked < count && asked - b->done < at_once; asked++) {
            snprintf(name, sizeof name, "%u.n%u.bench.test", asked % 200, asked);
            if (!upstream_ask(b->upstream, str_c(name), WIRE_A, 1, on_answer, b))
                abort();
        }
        loop_run_once(b->loop, 1000);
    }
    double us = (cpu_us() - start) / count;
    if (b->failed)
        printf("%u FAILED ", b->failed);
    return us;
}

/* The servers, until they are killed; their ports go to fd. Both logs are emptied as they go. */
static void serve(struct tls_pki *pki, int fd)
{
    static const struct reply script[] = { { NULL, 0, 0, 0, "@ A 192.0.2.1 60", NULL } };
    static const struct leaf leaf = LEAF_GOOD;
    static struct dns_server_fake plain;
    static struct tls_server tls;
    struct loop *l = loop_new();
    server_start(&plain, l, "127.0.0.1", 0, script, 1);
    tls_server_start(&tls, l, pki, &leaf, 0);
    uint16_t ports[2] = { plain.port, tls.port };
    if (write(fd, ports, sizeof ports) != sizeof ports)
        abort();
    for (;;) {
        loop_run_once(l, UINT64_MAX);
        plain.asked = plain.asked_tcp = tls.asked = 0;
    }
}

static SSL_CTX *trust(struct tls_pki *pki)
{
    struct diag d;
    struct err err = { "" };
    BIO *b;
    struct side_file files[] = { { STR("/roots.pem"), pki_pem(pki->root[0], &b) } };
    diag_init(&d);
    struct config *c = config_parse(STR("bench.yaml"), STR("/bench"),
                                    STR("version: 1\nstate_dir: s\norigin: {ca_file: [/roots.pem]}\n"), &d);
    struct policy *p = c ? policy_new(c, files, 1, &d) : NULL;
    SSL_CTX *ctx = p ? origin_trust_new(p, STR_NONE, STR_NONE, &err) : NULL;
    if (!ctx)
        abort();
    diag_done(&d);
    BIO_free(b);
    policy_unref(&p);
    return ctx;
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
    struct bench b = { .loop = loop_new() };
    struct tls_pki pki;
    struct err err;
    uint16_t ports[2];
    int pair[2];
    pki_init(&pki);
    if (pipe(pair))
        return 1;
    pid_t servers = fork();
    if (servers == 0)
        serve(&pki, pair[1]);
    if (servers < 0 || read(pair[0], ports, sizeof ports) != sizeof ports)
        return 1;
    b.upstream = upstream_new(b.loop, LANES, 1000, &err);
    SSL_CTX *ctx = trust(&pki);
    upstream_set_trust(b.upstream, ctx);
    struct host name;
    host_parse(STR("dns.test"), &name, NULL);
    struct dns_server ways[] = { { .port = ports[0] },
                                 { .port = ports[0], .tcp = true },
                                 { .port = ports[1], .tls = &name } };
    static const char *const text[] = { "UDP", "TCP", "TLS" };
    for (size_t i = 0; i < 3; i++) {
        ip_parse(STR("127.0.0.1"), &ways[i].ip);
        upstream_set_servers(b.upstream, &ways[i], 1);
        ask(&b, 100, 1);
        double alone = ask(&b, count, 1);
        printf("%s  one at a time %6.1f us, %d at once %6.1f us\n", text[i], alone, AT_ONCE, ask(&b, count, AT_ONCE));
    }
    double start = cpu_us();
    enum { CONNECTIONS = 15 };
    for (int i = 0; i < CONNECTIONS; i++) { /* fewer than may be made at once */
        upstream_set_trust(b.upstream, ctx);
        ask(&b, 1, 1);
    }
    printf("TLS  a question that needs a new connection, not resumed %6.1f us\n", (cpu_us() - start) / CONNECTIONS);
    kill(servers, SIGKILL);
    waitpid(servers, NULL, 0);
    SSL_CTX_free(ctx);
    upstream_free(&b.upstream);
    pki_done(&pki);
    loop_free(b.loop);
    return 0;
}
