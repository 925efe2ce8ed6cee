/* SPDX-License-Identifier: Apache-2.0
 *
 * One line per case: MB per CPU second of needles_find over 1 MiB, and microseconds of needles_tail and needles_new.
 *   cc -O2 -D_GNU_SOURCE -I. tests/bench/needles_bench.c base/needles*.c base/str.c base/err.c -o /tmp/needles_bench */
#include "base/needles.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TEXT = 1 << 20, MAX = 2000, LONGEST = 4096 };
static char text[TEXT];
static char store[MAX][LONGEST];
static struct needle set[MAX];

static uint64_t state = 88172645463325252u;
static unsigned below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % n);
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fill_json(void)
{
    static const char *const words[] = { "\"id\":",
                                         "\"name\":\"",
                                         "\",",
                                         "{\"type\":\"message\",",
                                         "content",
                                         "assistant",
                                         " the ",
                                         "token",
                                         "https://api.test/v1/",
                                         "\\n",
                                         "model",
                                         "_",
                                         "eyJ",
                                         "sk-",
                                         "0.125",
                                         "}, ",
                                         "function(",
                                         "return ",
                                         "Authorization",
                                         "Bearer " };
    for (size_t i = 0; i < TEXT;) {
        const char *w = words[below(sizeof words / sizeof *words)];
        while (*w && i < TEXT)
            text[i++] = *w++;
        for (unsigned k = below(12); k && i < TEXT; k--)
            text[i++] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEF"[below(42)];
    }
}
static void fill_random(void)
{
    for (size_t i = 0; i < TEXT; i++)
        text[i] = (char)below(256);
}
static void fill_base64(void)
{
    for (size_t i = 0; i < TEXT; i++)
        text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[below(64)];
}
static const char *pattern = "";
static void fill_pattern(void)
{
    size_t n = strlen(pattern);
    for (size_t i = 0; i < TEXT; i++)
        text[i] = pattern[i % n];
}

static size_t make(const char *const *prefixes, size_t nprefixes, size_t count, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        const char *pre = prefixes ? prefixes[i % nprefixes] : "";
        size_t k = strlen(pre);
        memcpy(store[i], pre, k);
        for (; k < len; k++)
            store[i][k] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[below(64)];
        set[i] = (struct needle) { str_of(store[i], len), (unsigned)i };
    }
    return count;
}

static void run(const char *name, size_t count)
{
    double t0 = cpu_s();
    struct needles *s = NULL;
    enum { BUILDS = 20 };
    for (int i = 0; i < BUILDS; i++) {
        needles_unref(&s);
        s = needles_new(set, count, true, NULL);
    }
    double build_us = (cpu_s() - t0) / BUILDS * 1e6;
    struct str t = str_of(text, TEXT);
    struct needle_match m;
    size_t matches = 0;
    int rounds = 0;
    t0 = cpu_s();
    while (cpu_s() - t0 < 0.25) {
        for (size_t at = 0; needles_find(s, t, at, &m); at = m.at + m.n)
            matches++;
        rounds++;
    }
    double find = cpu_s() - t0;
    int tails = 0;
    size_t sum = 0;
    t0 = cpu_s();
    while (cpu_s() - t0 < 0.05)
        for (int i = 0; i < 100; i++, tails++)
            sum += needles_tail(s, str_sub(t, 0, TEXT - (size_t)tails % 1000));
    double tail = cpu_s() - t0;
    printf("%-44s %9.0f MB/s  %8.2f ms/MiB  tail %7.3f us  build %8.1f us  matches %zu held %zu\n", name,
           TEXT / 1e6 * rounds / find, find / rounds * 1e3, tail / tails * 1e6, build_us, matches / (size_t)rounds,
           sum / (size_t)tails);
    needles_unref(&s);
}

static const char *const providers[] = { "ghp_",
                                         "ghs_",
                                         "sk-ant-api03-",
                                         "sk-proj-",
                                         "xoxb-",
                                         "glpat-",
                                         "npm_",
                                         "AKIA",
                                         "AIza",
                                         "hf_",
                                         "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9." };
static const char *const ghp[] = { "ghp_" };

int main(int argc, char **argv)
{
    if (argc > 1)
        needles_limit_level((unsigned)atoi(argv[1]));
    static const struct {
        const char *name;
        void (*fill)(void);
    } texts[] = { { "json", fill_json }, { "random", fill_random }, { "base64", fill_base64 } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char name[80];
        const size_t counts[] = { 1, 8, 20, 60 };
        texts[i].fill();
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            snprintf(name, sizeof name, "%s, %zu needles, random prefixes", texts[i].name, counts[k]);
            run(name, make(NULL, 0, counts[k], 40));
        }
        snprintf(name, sizeof name, "%s, 60 needles, providers' prefixes", texts[i].name);
        run(name, make(providers, 11, 60, 60));
        snprintf(name, sizeof name, "%s, 2000 needles ghp_", texts[i].name);
        run(name, make(ghp, 1, 2000, 40));
        snprintf(name, sizeof name, "%s, 2000 needles, 11 prefixes", texts[i].name);
        run(name, make(providers, 11, 2000, 60));
        snprintf(name, sizeof name, "%s, 300 needles, random prefixes", texts[i].name);
        run(name, make(NULL, 0, 300, 40));
    }
    static const char *const worst[] = { "ghp_", "sk-ant-api03-", "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9." };
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
        char name[80];
        pattern = worst[i];
        fill_pattern();
        snprintf(name, sizeof name, "worst: %.12s repeated, 2000 needles", pattern);
        run(name, make(providers, 11, 2000, 60));
    }
    pattern = "a";
    fill_pattern();
    memset(store[0], 'a', LONGEST);
    store[0][LONGEST - 1] = 'b';
    set[0].bytes.n = LONGEST;
    run("worst: a repeated, one needle 4 KiB a…ab", 1);
    memset(store[0], 'a', 256);
    store[0][255] = 'b';
    set[0].bytes.n = 256;
    run("worst: a repeated, one needle 256 B a…ab", 1);
    for (size_t i = 0; i < MAX; i++) {
        memset(store[i], 'a', 40);
        for (size_t k = 30; k < 40; k++)
            store[i][k] = (char)('b' + below(20));
        set[i] = (struct needle) { str_of(store[i], 40), (unsigned)i };
    }
    run("worst: a repeated, 2000 needles a…a<random>", MAX);
    return 0;
}
