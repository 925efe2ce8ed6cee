/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of an origin that speaks HTTP/2 under TLS, to a whole worker with requests on that connection: whatever they are, it does not crash,
 * what a client gets begins with one status line, every exchange ends with its connection, and the loop rests. The first byte says in
 * what pieces the bytes come, whether SETTINGS stand before them, and what was asked. */
#include "tests/fuzz/worker_fuzz.h"
#include "tests/scenario/rig.h"

#include <signal.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REAL "ghs_REAL0123456789abcdef"
enum { PIECE = 7, NO_SETTINGS = 8, POST = 16, TWO = 32, COVERED = 64, STAYS = 128 };

static const char config[] = "version: 1\nstate_dir: state\nlisten: {proxy: [127.0.0.1:3128], console: off}\n"
                             "agents: [{name: coder, identify: [{source: 127.0.0.1/32}]}]\n"
                             "rules: [{name: all, hosts: [open.test, api.test], action: allow}]\n"
                             "credentials: [{name: key, agents: [coder], hosts: [api.test], slots: [\"header:authorization\"],\n"
                             "  placeholder: ghp_PLACEHOLDER0123456789abcdef, source: {env: KEY}}]\n";

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned in_n, void *ctx)
{
    (void)ssl, (void)ctx;
    for (unsigned i = 0; i < in_n && i + in[i] < in_n; i += in[i] + 1u)
        if (in[i] == 2 && !memcmp(in + i + 1, "h2", 2)) {
            *out = in + i + 1;
            *out_n = 2;
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL; /* it has nothing else: then a client of HTTP/1.1 is carried over HTTP/2 */
}

static void begin(void)
{
    if (!begin_once(config))
        return;
    must(rig_name(&rig, STR("open.test 203.0.113.7")) == 0 && rig_name(&rig, STR("api.test 203.0.113.8")) == 0, "the names");
    must(rig_mint(&rig, STR("key -> \"" REAL "\" ttl 300")) == 0, "the value");
    SSL_CTX_set_alpn_select_cb(rig.origin_ctx, choose_h2, NULL);
    signal(SIGPIPE, SIG_IGN); /* the origin played here writes with OpenSSL to who may have closed */
}

static struct actor *ask(unsigned flags)
{
    struct actor *c = actor_client(&rig);
    char text[512];
    must(c, "no connection");
    const char *host = flags & COVERED ? "api.test" : "open.test";
    int n = snprintf(text, sizeof text, "%s https://%s/a?b HTTP/1.1\r\nHost: %s\r\nX-A: b\r\n%s%s\r\n%s", flags & POST ? "POST" : "GET", host, host,
                     flags & COVERED ? "Authorization: Bearer ghp_PLACEHOLDER0123456789abcdef\r\n" : "",
                     flags & POST ? "Transfer-Encoding: chunked\r\n" : "", flags & POST ? "5\r\nhello\r\n0\r\n\r\n" : "");
    actor_send(&rig, c, str_of(text, (size_t)n));
    settle();
    return c;
}

/* The connection that HTTP/2 was spoken on; before it one may have come that offered something else. */
static struct actor *take_origin(void)
{
    for (int i = 0; i < 100; i++) {
        struct actor *o = rig_take_origin(&rig);
        for (int k = 0; o && k < 50 && buf_size(&o->got) < 24 && !o->ended && !o->cut; k++)
            settle();
        if (o && buf_size(&o->got) >= 24)
            return o;
        if (o)
            actor_free(o);
        settle();
    }
    return NULL;
}

/* Attempts that come behind the one that was played: nobody is there. */
static void hang_up(void)
{
    for (struct actor *o; (o = rig_take_origin(&rig));) {
        settle();
        actor_free(o);
        settle();
    }
}

static void done_with(struct actor *c)
{
    struct str got = buf_str(&c->got);
    must(!got.n || str_starts(got, STR("HTTP/1.1 ")), "the client got something else than an answer");
    must(str_find(got, STR(REAL)) < 0, "the client got a real value");
    actor_free(c);
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    begin();
    unsigned flags = data[0];
    struct actor *a = ask(flags), *b = NULL, *o = take_origin();
    must(o, "nobody dialled");
    must(str_starts(buf_str(&o->got), STR("PRI * HTTP/2.0")), "the origin was not asked in HTTP/2");
    if (flags & TWO)
        b = ask(flags);
    if (!(flags & NO_SETTINGS))
        actor_send(&rig, o, str_of("\0\0\0\4\0\0\0\0", 9));
    o->piece = (flags & PIECE) * 5;
    actor_send(&rig, o, str_of(data + 1, n - 1));
    settle();
    if (flags & STAYS) { /* the clients go first */
        done_with(a);
        if (b)
            done_with(b);
    }
    actor_free(o);
    settle();
    hang_up();
    if (!(flags & STAYS)) {
        done_with(a);
        if (b)
            done_with(b);
    }
    hang_up();
    must_rest();
    return 0;
}
