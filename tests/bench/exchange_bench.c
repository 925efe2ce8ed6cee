/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole data path in one process, for counting instructions: one origin, N swapped requests with a 1 KiB answer, all on one client
 * connection, or with `new` as second argument each on one of its own (CONNECT, full handshake, cached leaf, pooled origin connection),
 * or with `first` each for a host never seen before (leaf, lease, dial and the origin's handshake besides).
 * `valgrind --tool=callgrind exchange_bench 2000` tells where they go; the two ends cost the same in every version. */
#include "tests/scenario/rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char config[] =
    "version: 1\nstate_dir: state\nlisten: {proxy: [127.0.0.1:3128], console: off}\n"
    "agents:\n  - name: coder\n    identify: [{source: 127.0.0.1/32}]\n"
    "rules:\n  - {name: api, hosts: [api.test, \"*.api.test\"], action: allow}\n"
    "credentials:\n  - name: github\n    agents: [coder]\n    hosts: [api.test, \"*.api.test\"]\n    slots: [\"header:authorization\"]\n"
    "    placeholder: ghp_PLACEHOLDER0123456789abcdefghij\n    source: {env: REAL}\n";

static void must(int bad, const char *what)
{
    if (bad) {
        fprintf(stderr, "exchange_bench: %s\n", what);
        exit(1);
    }
}

/* Runs the loop until the actor has this many bytes more. */
static void wait_bytes(struct rig *r, struct actor *a, size_t n)
{
    while (buf_size(&a->got) < n)
        loop_run_once(r->loop, 1);
    buf_reset(&a->got);
}

static struct actor *connect_client(struct rig *r, const char *name)
{
    char head[256];
    struct actor *c = actor_client(r);
    snprintf(head, sizeof head, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", name, name);
    must(actor_send(r, c, str_c(head)), "send");
    wait_bytes(r, c, 39);
    must(actor_tls(r, c, name), c->error);
    return c;
}

static void name_host(struct rig *r, char *name, size_t size, long i)
{
    char line[128];
    snprintf(name, size, "h%ld.api.test", i);
    snprintf(line, sizeof line, "%s 203.0.113.7", name);
    rig_name(r, str_c(line));
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 20000;
    bool first = argc > 2 && !strcmp(argv[2], "first"), anew = first || (argc > 2 && !strcmp(argv[2], "new"));
    struct rig r = { 0 };
    char why[512] = "", name[64] = "api.test", request[512];
    static char answer[1400], body[1025];
    signal(SIGPIPE, SIG_IGN);
    rig_mint(&r, STR("github -> \"ghs_REALREALREALREALREAL\" ttl 3000"));
    rig_name(&r, STR("api.test 203.0.113.7"));
    must(rig_start(&r, str_c(config), why, sizeof why), why);
    memset(body, 'x', 1024);
    int alen = snprintf(answer, sizeof answer,
                        "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/json\r\nContent-Length: 1024\r\nConnection: keep-alive\r\n\r\n%s", body);
    struct actor *c = NULL, *o = NULL;
    struct timespec t0, t1;
    for (long i = 0; i <= n; i++) { /* the first makes what all need, and is not counted */
        if (i == 1)
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
        if (first)
            name_host(&r, name, sizeof name, i);
        if (!c)
            c = connect_client(&r, name);
        snprintf(request, sizeof request,
                 "GET /v1/thing HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer ghp_PLACEHOLDER0123456789abcdefghij\r\n"
                 "User-Agent: bench/1\r\nAccept: */*\r\n\r\n", name);
        must(actor_send(&r, c, str_c(request)), "send");
        while (!o && !(o = rig_take_origin(&r)))
            loop_run_once(r.loop, 1);
        wait_bytes(&r, o, 100);
        must(actor_send(&r, o, str_of(answer, (size_t)alen)), "answer");
        wait_bytes(&r, c, 1024);
        if (anew) {
            actor_free(c);
            c = NULL;
        }
        if (first) {
            actor_free(o);
            o = NULL;
        }
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    double us = (double)(t1.tv_sec - t0.tv_sec) * 1e6 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e3;
    printf("exchange %.2f us CPU a request, both ends and the log included (%u dials)\n", us / (double)n, r.dials);
    if (c)
        actor_free(c);
    if (o)
        actor_free(o);
    rig_stop(&r);
    return 0;
}
