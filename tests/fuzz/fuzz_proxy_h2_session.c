/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of a client that speaks HTTP/2 in a tunnel, to a whole worker: whatever they are, it does not crash, nothing of the request
 * that reached an origin is a head of two, every exchange ends with the connection, and the loop rests. The first byte says in what
 * pieces the bytes come and whether the origins answer. */
#include "tests/fuzz/worker_fuzz.h"
#include "tests/scenario/rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char config[] = "version: 1\nstate_dir: state\nlisten: {proxy: [127.0.0.1:3128], console: off}\n"
                             "agents: [{name: coder, identify: [{source: 127.0.0.1/32}]}]\n"
                             "rules: [{name: plain, hosts: [plain.test], schemes: [http], action: allow}]\n"
                             "credentials: []\n";

static void begin(void)
{
    if (!begin_once(config))
        return;
    must(rig_name(&rig, STR("plain.test 203.0.113.7")) == 0, "the name");
}

/* One head, and only one, before whatever body follows. */
static void answer_origins(bool answer)
{
    for (struct actor *o; (o = rig_take_origin(&rig));) {
        settle();
        struct str got = buf_str(&o->got);
        ptrdiff_t line = str_find(got, STR("\r\n"));
        must(!got.n || (line > 0 && str_ends(str_sub(got, 0, (size_t)line), STR(" HTTP/1.1"))), "no request line at the origin");
        if (answer)
            actor_send(&rig, o, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"));
        settle();
        actor_free(o);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    begin();
    struct actor *c = actor_client(&rig);
    must(c, "no connection");
    actor_send(&rig, c, STR("CONNECT plain.test:80 HTTP/1.1\r\nHost: plain.test:80\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    c->piece = data[0] >> 1 & 15;
    actor_send(&rig, c, str_of(data + 1, n - 1));
    settle();
    answer_origins(data[0] & 1);
    settle();
    actor_free(c);
    settle();
    answer_origins(false);
    must_rest();
    return 0;
}
