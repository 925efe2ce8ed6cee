/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU time of the HTTP/1.1 codecs, one line per case: h1_bench [rounds]. Not a test: nothing is judged here. Build:
 *   gcc -std=gnu17 -O2 -D_GNU_SOURCE -I. tests/bench/h1_bench.c proxy/h1_*.c base/str.c base/buf.c -o /tmp/h1_bench */
#include "proxy/h1_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char request16[] =
    "POST /v1/messages?beta=true HTTP/1.1\r\nHost: api.model.test\r\nAccept: application/json\r\n"
    "User-Agent: agent-cli/2.1.197 (external, cli)\r\nAuthorization: Bearer "
    "ghp_0123456789abcdef0123456789abcdef0123\r\n"
    "Content-Type: application/json\r\nX-Client-Retry-Count: 0\r\nX-Client-Timeout: 600\r\nX-Client-Lang: js\r\n"
    "X-Client-Package-Version: 0.70.0\r\nX-Client-OS: Linux\r\nX-Client-Arch: x64\r\nX-Client-Runtime: node\r\n"
    "api-version: 2023-06-01\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nContent-Length: "
    "1234\r\n\r\n";
static const char response12[] =
    "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\nCache-Control: no-cache\r\nrequest-id: req_011CXyz\r\n"
    "ratelimit-limit: 4000\r\nratelimit-remaining: 3999\r\nServer: edge\r\nX-Robots-Tag: none\r\nVary: "
    "Accept-Encoding\r\n"
    "strict-transport-security: max-age=31536000\r\n\r\n";

enum { SLICE = 2000 }; /* the best of many short runs: others may be using the machine */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct h1_limits limits = { .head_bytes = 65536, .fields = 128, .target_bytes = 32768 };
static struct h1_field fields[128];

static void heads(const char *what, struct str s, bool request, unsigned rounds)
{
    struct h1_head h = { 0 };
    struct h1_fault fault;
    double best = 1e9;
    for (unsigned i = 0, k = 0; i < rounds; i++, k++) {
        static uint64_t t;
        if (k == SLICE || !i) {
            if (i && (double)(cpu_ns() - t) / SLICE < best)
                best = (double)(cpu_ns() - t) / SLICE;
            k = 0;
            t = cpu_ns();
        }
        size_t from = 0;
        __asm__ volatile("" : : "r"(s.p) : "memory");
        enum h1_result r = request ? h1_request_parse(s, &limits, fields, &from, &h, &fault)
                                   : h1_response_parse(s, STR("GET"), &limits, fields, &from, &h, &fault);
        if (r != H1_DONE)
            exit(1);
    }
    printf("%-22s %6.0f ns, %zu fields, %zu bytes\n", what, best, h.nfields, s.n);
    struct buf out;
    buf_init(&out, 65536);
    uint64_t t = cpu_ns();
    for (unsigned i = 0; i < rounds; i++) {
        buf_reset(&out);
        for (size_t k = 0; k < h.nfields; k++)
            h1_put_field(&out, h.fields[k].f.name, h.fields[k].f.value);
        __asm__ volatile("" : : "r"(out.mem) : "memory");
    }
    printf("%-22s %6.0f ns\n", "  written back", (double)(cpu_ns() - t) / rounds);
    buf_done(&out);
}

static void byte_at_a_time(struct str s, unsigned rounds)
{
    struct h1_head h;
    struct h1_fault fault;
    uint64_t t = cpu_ns();
    for (unsigned i = 0; i < rounds; i++) {
        size_t from = 0;
        for (size_t n = 1; n <= s.n; n++)
            h1_request_parse(str_sub(s, 0, n), &limits, fields, &from, &h, &fault);
    }
    printf("%-22s %6.1f ns per byte\n", "request, byte by byte", (double)(cpu_ns() - t) / rounds / (double)s.n);
}

static void chunks(size_t size, unsigned rounds)
{
    struct buf body;
    buf_init(&body, 1 << 20);
    char *data = calloc(1, size);
    if (!data)
        exit(1);
    for (int i = 0; i < 16; i++)
        h1_put_chunk(&body, str_of(data, size));
    h1_put_chunk_end(&body, NULL, 0);
    struct h1_head h = { .body = H1_BODY_CHUNKED };
    uint64_t t = cpu_ns();
    for (unsigned i = 0; i < rounds; i++) {
        struct h1_body_in b;
        h1_body_in_init(&b, &h, 4096, 16384);
        struct str rest = buf_str(&body), piece;
        enum h1_body_event e;
        size_t used;
        while ((e = h1_body_next(&b, rest, &used, &piece, NULL)) > H1_BODY_MORE && e != H1_BODY_END)
            rest = str_from(rest, used);
        if (e != H1_BODY_END)
            exit(1);
    }
    printf("%-22s %6.0f ns per chunk of %zu\n", "chunked, decoded", (double)(cpu_ns() - t) / rounds / 17, size);
    free(data);
    buf_done(&body);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000000;
    heads("request, 16 fields", str_c(request16), true, rounds);
    heads("response, 12 fields", str_c(response12), false, rounds);
    byte_at_a_time(str_c(request16), rounds / 100 + 1);
    chunks(100, rounds / 10 + 1);
    chunks(16384, rounds / 10 + 1);
    return 0;
}
