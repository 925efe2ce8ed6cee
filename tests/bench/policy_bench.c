/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_bench: CPU nanoseconds per decision, with rules, credentials and agents by the hundred. Not run by the test
 * suite: cmake --build BUILD --target policy_bench && BUILD/tests/policy_bench [RULES] */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static char *write_config(unsigned rules, size_t *ret_n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, ret_n);
    fprintf(f, "version: 1\nagents:\n");
    for (unsigned i = 1; i < 20; i++)
        fprintf(f, "  - {name: agent%u, identify: [{source: 10.9.%u.0/24}]}\n", i, i);
    fprintf(f, "  - {name: bench, identify: [{source: 127.0.0.1/32}]}\nrules:\n");
    for (unsigned i = 1; i < rules; i++)
        fprintf(f,
                "  - {name: r%u, hosts: [api%u.example.test, \"*.zone%u.test\"], methods: [GET, POST], paths: "
                "[\"/v%u/**\"], "
                "action: allow}\n",
                i, i, i, i);
    fprintf(f, "  - {name: bench, hosts: [\"*.bench.test\"], ports: [8443], action: allow}\ncredentials:\n");
    for (unsigned i = 1; i < 50; i++)
        fprintf(f,
                "  - {name: c%u, agents: [bench], hosts: [api%u.example.test], slots: [\"header:x-api-key\"], source: "
                "{file: /v}}\n",
                i, i);
    fprintf(f, "  - {name: bench, agents: [bench], hosts: [\"*.bench.test\"], ports: [8443], slots: "
               "[\"header:authorization\"], "
               "source: {file: /v}}\n");
    fclose(f);
    return text;
}

enum { ROUNDS = 2000000 };

static void bench_eval(const struct policy *p, const char *what, const char *host, uint16_t port, const char *path)
{
    struct host h;
    struct verdict v = { 0 };
    struct err err;
    if (host_parse(str_c(host), &h, &err))
        abort();
    struct ask ask = { .agent = policy_agent(p, STR("bench")),
                       .scheme = SCHEME_HTTPS,
                       .host = &h,
                       .port = port,
                       .method = STR("GET"),
                       .path = str_c(path),
                       .now_us = 1 };
    unsigned allowed = 0;
    double start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        policy_eval(p, &ask, &v);
        allowed += v.kind == VERDICT_ALLOW;
    }
    printf("%-40s %7.1f ns  %s\n", what, (cpu_ns() - start) / ROUNDS, allowed ? "allow" : end_code(v.code));
}

int main(int argc, char **argv)
{
    unsigned rules = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200;
    size_t n;
    char *text = write_config(rules, &n);
    struct diag diag;
    diag_init(&diag);
    double start = cpu_ns();
    struct config *c = config_parse(STR("bench.yaml"), STR("/"), str_of(text, n), &diag);
    double parsed = cpu_ns();
    struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
    if (!p) {
        printf("%s\n", diag.n ? diag.lines[0].text.p : "?");
        return 1;
    }
    printf("%-40s %7.2f ms parse, %.2f ms compile (%zu bytes, %u rules)\n", "configuration", (parsed - start) / 1e6,
           (cpu_ns() - parsed) / 1e6, n, rules);
    bench_eval(p, "eval: last rule, suffix", "www.bench.test", 8443, "/swapped/1k.json");
    bench_eval(p, "eval: exact host, path with **", "api7.example.test", 443, "/v7/repos/acme/widgets/issues");
    bench_eval(p, "eval: unknown host", "some.long.name.of.evil.test", 443, "/");
    bench_eval(p, "eval: path miss", "a.zone9.test", 443, "/other");

    struct host h;
    struct verdict v;
    const struct credential *found[8];
    const struct agent *agent = policy_agent(p, STR("bench"));
    if (host_parse(STR("www.bench.test"), &h, NULL))
        abort();
    start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        policy_eval_connect(p, agent, &h, 8443, 1, &v);
    printf("%-40s %7.1f ns\n", "eval_connect", (cpu_ns() - start) / ROUNDS);
    start = cpu_ns();
    size_t sum = 0;
    for (unsigned i = 0; i < ROUNDS; i++)
        sum += policy_credentials(p, agent, &h, found, 8);
    printf("%-40s %7.1f ns  (%zu)\n", "credentials", (cpu_ns() - start) / ROUNDS, sum / ROUNDS);
    struct claims claims = { .source = { 4, { 127, 0, 0, 1 } }, .listener = STR("127.0.0.1:3128") };
    start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        if (policy_identify(p, &claims, &agent) != IDENTIFY_OK)
            abort();
    printf("%-40s %7.1f ns\n", "identify by source", (cpu_ns() - start) / ROUNDS);
    struct ip ip = { 4, { 8, 8, 8, 8 } };
    const char *why;
    start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        if (address_guard(p, NULL, &ip, 443, NULL, &why) != END_OK)
            abort();
    printf("%-40s %7.1f ns\n", "address_guard", (cpu_ns() - start) / ROUNDS);
    start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        if (authority_parse(STR("api7.example.test:443"), 443, &h, &(uint16_t) { 0 }, NULL))
            abort();
    printf("%-40s %7.1f ns\n", "authority_parse", (cpu_ns() - start) / ROUNDS);
    start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        if (policy_path_check(STR("/v7/repos/acme/widgets/issues?per_page=100&state=open"), NULL))
            abort();
    printf("%-40s %7.1f ns\n", "path_check", (cpu_ns() - start) / ROUNDS);
    policy_unref(&p);
    diag_done(&diag);
    free(text);
    return 0;
}
