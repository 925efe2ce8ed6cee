/* SPDX-License-Identifier: Apache-2.0
 *
 * detector_bench: CPU nanoseconds a name costs, step by step and as a whole, with placeholders by the thousand; and
 * what building and saving takes. No part of the build:
 *   cc -O3 -D_GNU_SOURCE -I. tests/bench/detector_bench.c BUILD/dns/liboutgate_dns.a BUILD/policy/liboutgate_policy.a \
 *     BUILD/base/liboutgate_base.a -lpsl -lidn2 -lyaml -lcrypto -o /tmp/detector_bench && /tmp/detector_bench */
#include "dns/budget_state.h"
#include "dns/detector.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 300000, PLACEHOLDERS = 1000 };

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static char texts[PLACEHOLDERS][64];

static struct canary *canaries(size_t n)
{
    static struct canary_source v[PLACEHOLDERS];
    uint64_t x = 1;
    for (size_t i = 0; i < n; i++) {
        memcpy(texts[i], "og_", 3);
        for (size_t k = 3; k < 43; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            texts[i][k] = "abcdefghijklmnopqrstuvwxyz234567"[x >> 59];
        }
        v[i] = (struct canary_source) { .text = str_of(texts[i], 43), .fixed = 3, .agent = STR("a") };
    }
    double start = cpu_ns();
    struct canary *c = canary_new(v, n, NULL);
    if (!c)
        abort();
    printf("%-52s %8.2f ms, %zu KiB\n", n ? "canary of 1,000 placeholders, built" : "canary of none, built",
           (cpu_ns() - start) / 1e6, canary_bytes(c) / 1024);
    return c;
}

static void steps(const char *name, const struct canary *c)
{
    struct zone z;
    struct name_score s;
    struct canary_hit hit;
    unsigned long sum = 0;
    double t[5] = { cpu_ns() };
    for (unsigned i = 0; i < ROUNDS; i++)
        sum += canary_find(c, str_c(name), &hit);
    t[1] = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        zone_of(str_c(name), &z);
        sum += z.zone.n;
    }
    t[2] = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        name_score(str_c(name), &s);
        sum += s.bits;
    }
    t[3] = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        sum += name_cost(str_c(name));
    t[4] = cpu_ns();
    printf("  %-50s canary %5.0f, zone %5.0f, score %5.0f, cost %5.0f ns%s\n", "of that", (t[1] - t[0]) / ROUNDS,
           (t[2] - t[1]) / ROUNDS, (t[3] - t[2]) / ROUNDS, (t[4] - t[3]) / ROUNDS, sum ? "" : " ");
}

static void bench(struct canary *c, const char *what, const char *name)
{
    struct detector_options o;
    detector_options_default(&o);
    o.tunnel = DETECTOR_LOG;
    struct detector *d = detector_new(&o, c, 0, NULL);
    struct detector_ask ask = {
        .agent = STR("bench"), .name = str_c(name), .qtype = 1, .written = true, .observe = true
    };
    struct detector_finding f;
    if (!d)
        abort();
    double start = cpu_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        detector_judge(d, &ask, i, &f);
    printf("%-52s %8.0f ns (%zu characters)\n", what, (cpu_ns() - start) / ROUNDS, ask.name.n);
    steps(name, c);
    detector_free(&d);
}

static void bench_state(void)
{
    struct budget_limits l = { .bits = 1024, .refill = 1024, .agent_bits = BUDGET_BITS_MAX, .zones = BUDGET_BITS_MAX };
    struct budget *b = budget_new(&l, 0, NULL);
    struct buf out;
    char zone[32];
    if (!b)
        abort();
    double start = cpu_ns();
    for (unsigned i = 0; i < 4 * BUDGET_ZONES; i++) {
        snprintf(zone, sizeof zone, "z%u.test", i);
        struct budget_account a;
        struct budget_event e = { .agent = STR("a"), .zone = str_c(zone), .name = str_c(zone), .in_zone = 99 };
        budget_charge(b, &e, i, &a);
    }
    printf("%-52s %8.0f ns\n", "a charge, most of them of new zones, table full",
           (cpu_ns() - start) / 4 / BUDGET_ZONES);
    buf_init(&out, BUDGET_STATE_MAX);
    start = cpu_ns();
    if (budget_state_put(b, false, 0, &out) < 0)
        abort();
    printf("%-52s %8.2f ms, %zu KiB; in memory %zu KiB\n", "a full state as bytes", (cpu_ns() - start) / 1e6,
           buf_size(&out) / 1024, budget_bytes() / 1024);
    buf_done(&out);
    budget_free(&b);
}

int main(void)
{
    struct canary *none = canaries(0), *many = canaries(PLACEHOLDERS);
    bench(none, "short name", "api.example.com");
    bench(many, "short name, 1,000 placeholders", "api.example.com");
    bench(many, "usual name, 1,000 placeholders", "registry-1.eu-west-1.artifacts.example.com");
    bench(many, "tenant's name, 1,000 placeholders", "my-team-artifacts.s3.eu-central-1.amazonaws.com");
    bench(many, "base32 label, 1,000 placeholders", "onvs2ylooqwwc4djgazs2rkyifgvatcffvhe6vbniewverkb.example.com");
    bench(many, "longest name, 1,000 placeholders",
          "mzxw6ytboi4dknrtgq2tmnzyhfqwey3emvtgo2djnjvwy3lon5yhc4ttor2xm."
          "53ypf5diojsgq3tumvsgk4tfonuw63lqnfxgk3thmfrwyzloorxxe2lom."
          "v4dcmrtgq2tmnzyhaydcmrtgq2tmnzyhaydcmrtgq2tmnzyhaydcmrtgq2tm.nzyhaydcmrtgq2tmnzyhaydcmrtgq2tmnzyhayd."
          "example.com");
    bench_state();
    canary_unref(&none);
    canary_unref(&many);
    return 0;
}
