/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the ClientHello of a tunnel to api.test, in pieces: whatever they are, the handshake never gets as far as asking for a
 * leaf unless the name in them is absent or that one, in any number of pieces the same. The first byte says how large the pieces are. */
#include "base/stream.h"
#include "proxy/client_tls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_proxy_hello: %s\n", what);
        abort();
    }
}

static void on_resume(void *ctx)
{
    (void)ctx;
}

static struct loop *loop;
static struct client_tls *tls;
static struct leaf_cache *leaves;
static struct config *config;
static struct host host;

static void prepare(void)
{
    static const char text[] = "version: 1\nstate_dir: s\nagents: [{name: a, identify: [{source: 127.0.0.1/32}]}]\nrules: []\n";
    struct diag d;
    struct err err;
    diag_init(&d);
    config = config_parse(STR("fuzz.yaml"), STR("/"), str_c(text), &d);
    must(config, "the configuration");
    diag_done(&d);
    loop = loop_new();
    leaves = leaf_cache_new(loop, 16, &err);
    tls = leaves ? client_tls_new(leaves, &err) : NULL;
    must(loop && tls && host_parse(STR("api.test"), &host, &err) == 0, "the parts");
}

/* How far it came: paused (asks for a leaf), or the end of it. */
static enum io play(const uint8_t *data, size_t size, size_t piece, struct client_tls_job *job)
{
    int s[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0, "socketpair");
    *job = (struct client_tls_job) { .host = &host, .agent = STR("a"), .config = config, .resume = on_resume };
    struct stream st;
    stream_init(&st, s[0]);
    SSL *ssl = client_tls_start(tls, job);
    must(ssl && stream_tls(&st, ssl) == 0, "TLS");
    enum io io = IO_AGAIN;
    for (size_t at = 0; at < size && io == IO_AGAIN;) {
        size_t n = size - at < piece ? size - at : piece;
        ssize_t k = write(s[1], data + at, n);
        if (k <= 0)
            break;
        at += (size_t)k;
        io = stream_handshake(&st);
    }
    client_tls_forget(st.ssl, job);
    stream_close(&st);
    close(s[1]);
    return io;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!loop)
        prepare();
    if (size < 1)
        return 0;
    struct client_tls_job whole, pieces;
    enum io a = play(data + 1, size - 1, SIZE_MAX, &whole);
    enum io b = play(data + 1, size - 1, (size_t)data[0] + 1, &pieces);
    must(a != IO_OK && b != IO_OK, "a handshake that ended without a leaf");
    must(a != IO_PAUSED || !whole.name_mismatch, "a leaf for another name");
    if (a == IO_PAUSED && whole.sni[0]) {
        struct host named;
        must(host_parse(str_c(whole.sni), &named, NULL) == 0 && host_eq(&named, &host), "a leaf for a name that is not ours");
    }
    must((a == IO_PAUSED) == (b == IO_PAUSED) && whole.name_mismatch == pieces.name_mismatch, "pieces change the outcome");
    return 0;
}
