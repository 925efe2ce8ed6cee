/* SPDX-License-Identifier: Apache-2.0
 *
 * One line per case: nanoseconds of CPU per swap_plan_make and swap_put_value for a keep-alive request head of about 1
 * KiB with 50 credentials for each of 20 agents, microseconds per placeholder_table_new and lease_set_new, GB per CPU
 * second of scrub_feed in chunks of 16 KiB. Link with the libraries of a Release build: cc -O2 -D_GNU_SOURCE -I.
 * tests/bench/mint_bench.c B/mint/liboutgate_mint.a B/audit/liboutgate_audit.a B/policy/liboutgate_policy.a
 *      B/base/liboutgate_base.a -lssl -lcrypto -lyaml -lpsl -lidn2 -lseccomp -ljansson -lcurl -lmicrohttpd -o
 * /tmp/mint_bench
 */
#include "mint/base64.h"
#include "mint/scrub.h"
#include "mint/swap.h"
#include "tests/unit/mint_fixture.h"

#include <time.h>

enum { AGENTS = 20, CREDENTIALS = 50 };

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct policy *big_policy(void)
{
    struct buf y;
    buf_init(&y, 1 << 20);
    buf_put(&y, STR("version: 1\nstate_dir: s\nagents:\n"));
    for (int i = 0; i < AGENTS; i++)
        buf_putf(&y, "  - {name: agent%d, identify: [{source: 10.0.0.%d/32}]}\n", i, i + 1);
    buf_put(&y, STR("sidecars: [{name: local, socket: /run/m.sock}]\nrules: [{name: r, hosts: [\"*\"], action: "
                    "allow}]\ncredentials:\n"));
    for (int i = 0; i < CREDENTIALS; i++) {
        static const char *const envs[] = { "GITHUB_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NPM_TOKEN",
                                            "OTHER" };
        buf_putf(&y,
                 "  - {name: c%d, hosts: [api%d.test], slots: [\"header:authorization\", \"header:x-api-key\", "
                 "\"basic:password\"], env: %s, source: {sidecar: local}, agents: [",
                 i, i, envs[i % 5]);
        for (int k = 0; k < AGENTS; k++)
            buf_putf(&y, "%sagent%d", k ? ", " : "", k);
        buf_put(&y, STR("]}\n"));
    }
    struct policy *p = fixture_policy(buf_str(&y));
    buf_done(&y);
    return p;
}

static struct lease *lease_of(int i)
{
    char value[64], name[16];
    snprintf(value, sizeof value, "ghs_%08xRealValueOfALease%08xEnd", (unsigned)i * 2654435761u, (unsigned)i * 40503u);
    snprintf(name, sizeof name, "c%d", i);
    struct lease_spec s = { .id = STR("1"),
                            .credential = str_c(name),
                            .agent = STR("agent0"),
                            .value = str_c(value),
                            .expires_us = INT64_MAX };
    struct lease *l = lease_new(&s, NULL);
    if (!l)
        abort();
    return l;
}

static struct lease_set *set_of(struct placeholder_table *t, int n)
{
    struct lease_set_item v[64];
    for (int i = 0; i < n; i++)
        v[i] = (struct lease_set_item) { lease_of(i), placeholder_at(t, (unsigned)i)->text };
    double from = cpu_ns();
    struct lease_set *s = lease_set_new(t, v, (size_t)n, 1, NULL);
    printf("lease_set_new, %d values: %.1f us\n", n, (cpu_ns() - from) / 1e3);
    for (int i = 0; i < n; i++)
        lease_unref(&v[i].lease);
    return s;
}

static void bench_swap(struct policy *p, struct placeholder_table *t, struct lease_set *live, struct str authorization,
                       const char *what)
{
    const struct field fields[] = {
        { STR("accept"), STR("application/json") },
        { STR("content-type"), STR("application/json") },
        { STR("user-agent"), STR("Anthropic/JS 0.60.0 (linux; x64) node/v20.19.2 claude-cli/1.0.110 (external, cli)") },
        { STR("x-stainless-lang"), STR("js") },
        { STR("x-stainless-package-version"), STR("0.60.0") },
        { STR("x-stainless-os"), STR("Linux") },
        { STR("x-stainless-arch"), STR("x64") },
        { STR("x-stainless-runtime"), STR("node") },
        { STR("x-stainless-runtime-version"), STR("v20.19.2") },
        { STR("anthropic-version"), STR("2023-06-01") },
        { STR("anthropic-beta"),
          STR("claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14") },
        { STR("authorization"), authorization },
        { STR("x-request-id"), STR("0d1f2c3b-4a59-6877-8695-a4b3c2d1e0f0") },
        { STR("traceparent"), STR("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") },
        { STR("accept-language"), STR("*") },
        { STR("accept-encoding"), STR("gzip, deflate, br") },
        { STR("cookie"), STR("session=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0."
                             "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U") },
    };
    enum { N = sizeof fields / sizeof *fields, ROUNDS = 200000 };
    struct host host;
    if (host_parse(STR("api0.test"), &host, NULL))
        abort();
    struct str target =
        STR("/v1/messages?beta=true&session=0d1f2c3b4a5968778695a4b3c2d1e0f0&trace=00f067aa0ba902b7&format=json");
    struct ask ask = { .agent = policy_agent(p, STR("agent0")),
                       .scheme = SCHEME_HTTPS,
                       .host = &host,
                       .port = 443,
                       .method = STR("POST"),
                       .path = STR("/v1/messages") };
    struct swap_plan plan;
    struct swap_fault fault;
    size_t bytes = target.n;
    for (size_t i = 0; i < N; i++)
        bytes += fields[i].name.n + fields[i].value.n + 4;
    double from = cpu_ns();
    for (int i = 0; i < ROUNDS; i++)
        if (swap_plan_make(t, p, &ask, target, fields, N, live, &plan, &fault) != END_OK)
            abort();
    double plan_ns = (cpu_ns() - from) / ROUNDS;
    struct lease *lease = lease_of(0);
    struct buf out;
    buf_init(&out, 4096);
    out.wipe = true;
    from = cpu_ns();
    for (int i = 0; plan.n && i < ROUNDS; i++) {
        buf_reset(&out);
        if (swap_put_value(&plan, 11, authorization, &lease, &out) != END_OK)
            abort();
    }
    printf("swap_plan_make, %s, %zu bytes, %d fields, %zu live: %.0f ns; swap_put_value %.0f ns\n", what, bytes, N,
           live ? live->n : 0, plan_ns, (cpu_ns() - from) / ROUNDS);
    buf_done(&out);
    lease_unref(&lease);
}

static void bench_scrub(struct lease_set *set, const char *what, unsigned every)
{
    enum { CHUNK = 16384, ROUNDS = 20000 };
    static char text[CHUNK];
    static const char sample[] =
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" github "
        "gh\"}}\n\n";
    for (size_t i = 0; i < CHUNK; i++)
        text[i] = sample[i % (sizeof sample - 1)];
    if (every)
        for (size_t i = 0; i + 64 < CHUNK; i += every)
            memcpy(text + i, secret_reveal(set->items[0].lease->value).p, secret_size(set->items[0].lease->value));
    struct scrub s;
    struct buf out;
    scrub_init(&s, set);
    buf_init(&out, 1 << 20);
    double from = cpu_ns();
    for (int i = 0; i < ROUNDS; i++) {
        buf_reset(&out);
        if (scrub_feed(&s, str_of(text, CHUNK), false, &out))
            abort();
    }
    double ns = cpu_ns() - from;
    printf("scrub_feed, %s, %zu values: %.2f GB/s\n", what, set ? set->n : 0, (double)CHUNK * ROUNDS / ns);
    scrub_done(&s);
    buf_done(&out);
}

int main(void)
{
    if (secret_init())
        return 3;
    struct policy *p = big_policy();
    double from = cpu_ns();
    struct placeholder_table *t = placeholder_table_new(p, FIXTURE_KEY, NULL);
    if (!t)
        return 3;
    printf("placeholder_table_new, %zu: %.1f ms\n", placeholder_count(t), (cpu_ns() - from) / 1e6);
    struct lease_set *one = set_of(t, 1), *fifty = set_of(t, CREDENTIALS);
    const struct placeholder *ph = placeholder_of(t, policy_agent(p, STR("agent0")), fixture_credential(p, STR("c0")));
    struct buf bearer, basic, plain;
    buf_init(&bearer, 1024);
    buf_init(&basic, 1024);
    buf_init(&plain, 1024);
    buf_putf(&bearer, "Bearer %.*s", STR_ARG(ph->text));
    buf_putf(&plain, "x-access-token:%.*s", STR_ARG(ph->text));
    buf_put(&basic, STR("Basic "));
    base64_put(&basic, buf_str(&plain), true);
    bench_swap(p, t, NULL, STR("Bearer something-that-is-not-ours"), "no placeholder");
    bench_swap(p, t, NULL, buf_str(&bearer), "Bearer");
    bench_swap(p, t, one, buf_str(&bearer), "Bearer");
    bench_swap(p, t, fifty, buf_str(&bearer), "Bearer");
    bench_swap(p, t, one, buf_str(&basic), "Basic");
    bench_scrub(NULL, "nothing to scrub", 0);
    bench_scrub(one, "no match", 0);
    bench_scrub(fifty, "no match", 0);
    bench_scrub(one, "a match every KiB", 1024);
    buf_done(&bearer);
    buf_done(&basic);
    buf_done(&plain);
    lease_set_unref(&one);
    lease_set_unref(&fifty);
    placeholder_table_unref(&t);
    policy_unref(&p);
    return 0;
}
