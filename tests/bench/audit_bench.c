/* SPDX-License-Identifier: Apache-2.0
 *
 * audit_bench: what an event costs at each station, CPU time of this process. Not run by the test suite.
 *   cc -O2 -D_GNU_SOURCE -I. tests/bench/audit_bench.c audit/[a-z]*.c base/{buf,clock,clock_text,err,log,loop,str}.c
 *     -lcrypto -ljansson
 *   ./a.out [DIR]      a folder for the segments (default /tmp) */
#include "audit/encode.h"
#include "audit/line.h"
#include "audit/logger.h"
#include "audit/ring.h"
#include "audit/sink.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { N = 400000, RING = 4 << 20 };

static double cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void report(const char *what, double seconds, double n)
{
    printf("%-44s %8.3f us  %10.0f /s\n", what, seconds / n * 1e6, n / seconds);
}

static void build_open(struct event *e)
{
    event_init(e, EVENT_OPEN);
    event_put_str(e, FIELD_AGENT, STR("coder"));
    event_put_str(e, FIELD_CLIENT, STR("10.77.0.2"));
    event_put_str(e, FIELD_CONN_ID, STR("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    event_put_str(e, FIELD_REQUEST_ID, STR("01ARZ3NDEKTSV4RRFFQ69G5FAX"));
    event_put_str(e, FIELD_METHOD, STR("POST"));
    event_put_str(e, FIELD_SCHEME, STR("https"));
    event_put_str(e, FIELD_HOST, STR("api.github.test"));
    event_put_u64(e, FIELD_PORT, 443);
    event_put_str(e, FIELD_PATH, STR("/repos/acme/widgets/issues?per_page=[REDACTED]&state=[REDACTED]"));
    event_put_str(e, FIELD_RULE, STR("github"));
    event_add(e, FIELD_CREDENTIALS, STR("github"));
}
static void build_close(struct event *e)
{
    build_open(e);
    uint16_t type = EVENT_CLOSE;
    memcpy(e->bytes, &type, sizeof type);
    e->type = EVENT_CLOSE;
    event_put_str(e, FIELD_HTTP_VERSION, STR("1.1"));
    event_put_str(e, FIELD_VERDICT, STR("allow"));
    event_put_u64(e, FIELD_STATUS, 200);
    event_put_str(e, FIELD_ORIGIN_ADDR, STR("203.0.113.7:443"));
    event_put_str(e, FIELD_TLS_VERSION, STR("TLSv1.3"));
    event_put_str(e, FIELD_TLS_CIPHER, STR("TLS_AES_128_GCM_SHA256"));
    event_put_u64(e, FIELD_BYTES_IN, 1024);
    event_put_u64(e, FIELD_BYTES_OUT, 123456);
    event_put_u64(e, FIELD_MS_TOTAL, 123);
    event_put_u64(e, FIELD_MS_CONNECT, 0);
    event_put_u64(e, FIELD_MS_FIRST_BYTE, 100);
    event_put_u64(e, FIELD_SCRUBBED, 0);
    event_put_str(e, FIELD_END, STR("ok"));
}

static void stations(void)
{
    static struct event e;
    static struct record r;
    static char out[ENCODE_LINE_MAX];
    char hash[64] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";
    double t = cpu();
    for (int i = 0; i < N; i++)
        build_open(&e);
    report("build an open", cpu() - t, N);
    t = cpu();
    for (int i = 0; i < N; i++)
        build_close(&e);
    report("build a close", cpu() - t, N);
    struct encode_head h = {
        .prev = hash, .id = "01ARZ3NDEKTSV4RRFFQ69G5FAV", .role = STR("worker"), .has_worker = true
    };
    size_t n = 0;
    t = cpu();
    for (int i = 0; i < N; i++) {
        h.seq = (uint64_t)i;
        record_decode(e.bytes, e.n, &r);
        h.wall_us = r.wall_us;
        n = encode_line(&r, &h, out);
    }
    report("decode and encode a close", cpu() - t, N);
    t = cpu();
    for (int i = 0; i < N; i++)
        line_hash(str_of(out, n - 1), hash);
    report("hash its line", cpu() - t, N);
    printf("(close: record %u bytes, line %zu bytes)\n", e.n, n);
    build_open(&e);
    record_decode(e.bytes, e.n, &r);
    printf("(open:  record %u bytes, line %zu bytes)\n", e.n, encode_line(&r, &h, out));
}

static struct logger *logger(struct loop *l, const char *root, struct logger_options *o)
{
    char path[160];
    struct err err = { "" };
    snprintf(path, sizeof path, "%s/audit", root);
    mkdir(path, 0750);
    o->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/keys", root);
    mkdir(path, 0700);
    o->anchor_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/log.pem", root);
    FILE *f = fopen(path, "w");
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!f || !key || PEM_write_PKCS8PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) != 1)
        exit(1);
    fclose(f);
    EVP_PKEY_free(key);
    o->key_fd = open(path, O_RDONLY | O_CLOEXEC);
    struct logger *lg = logger_new(l, o, &err);
    if (!lg) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return lg;
}

static void whole_way(const char *root)
{
    struct err err = { "" };
    static struct event opened, closed;
    struct logger_options o = {
        .segment_bytes = 256 << 20, .keep_ms = 1000000, .max_bytes = UINT64_C(20) << 30, .sync_ms = 1000
    };
    struct loop *l = loop_new();
    struct logger *lg = logger(l, root, &o);
    int fd = sink_ring_new(RING, &err);
    struct sink *s = sink_open(dup(fd), dup(logger_wake_fd(lg)), eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &err);
    if (!s || logger_add_ring(lg, "worker", 0, 1, fd, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &err))
        exit(1);
    double writing = 0, worst = 0;
    struct rusage before, after;
    struct timespec w0, w1;
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &w0);
    double t = cpu();
    build_open(&opened);
    build_close(&closed);
    for (int i = 0; i < N;) {
        double w = cpu();
        int taken = 0;
        for (; i < N && taken < 4000; i += 2, taken += 2) {
            if (sink_write(s, &opened, false) || sink_write(s, &closed, true))
                break;
        }
        writing += cpu() - w;
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        loop_run_once(l, 0);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
        worst = ms > worst ? ms : worst;
    }
    while (sink_written(s) != sink_position(s))
        loop_run_once(l, 10);
    t = cpu() - t;
    clock_gettime(CLOCK_MONOTONIC, &w1);
    getrusage(RUSAGE_SELF, &after);
    report("sink_write", writing, N);
    report("ring -> line -> chain -> file", t - writing, N);
    printf("(wall %.2f s; the loop's longest round, fdatasync in it: %.1f ms)\n",
           (double)(w1.tv_sec - w0.tv_sec) + (double)(w1.tv_nsec - w0.tv_nsec) * 1e-9, worst);
    logger_flush(lg);
    struct logger_stats st;
    logger_stats(lg, &st);
    printf("(%llu lines, %llu bytes)\n", (unsigned long long)st.lines, (unsigned long long)st.bytes);
    sink_free(&s);
    logger_free(&lg);
    loop_free(l);
}

int main(int argc, char **argv)
{
    char root[128], command[160];
    snprintf(root, sizeof root, "%s/outgate-bench-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    if (!mkdtemp(root))
        return 1;
    stations();
    whole_way(root);
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command) ? 1 : 0;
}
