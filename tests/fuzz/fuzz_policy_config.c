/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration of any bytes: parsed, compiled with fake side files, asked a little. Every failure has a message;
 * every message is one line that starts with the place. */
#include "base/buf.h"
#include "policy/policy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

struct files {
    struct side_file v[32];
    size_t n;
};

static void give_file(void *ctx, struct str path)
{
    struct files *f = ctx;
    if (f->n < 32)
        f->v[f->n++] =
            (struct side_file) { path, str_ends(path, STR("token")) ? STR("0123456789abcdef0123456789abcdef\n")
                                                                    : STR("-----BEGIN CERTIFICATE-----\n") };
}

static void question(const struct policy *p)
{
    const struct config *c = policy_config(p);
    struct verdict v, at_connect;
    struct buf out;
    for (size_t i = 0; i < c->nrules && i < 8; i++) {
        const struct host_pattern *hp = &c->rules[i].hosts[0];
        struct host h = hp->host;
        if (hp->kind != PATTERN_EXACT)
            CHECK(!host_parse(STR("a.test"), &h, NULL));
        struct ask ask = { .agent = c->nagents ? &c->agents[0] : NULL,
                           .scheme = SCHEME_HTTPS,
                           .host = &h,
                           .port = 443,
                           .method = STR("GET"),
                           .path = STR("/a/b"),
                           .now_us = 1 };
        policy_eval(p, &ask, &v);
        policy_eval_connect(p, ask.agent, &h, 443, 1, &at_connect);
        CHECK(at_connect.kind != VERDICT_DENY || v.kind == VERDICT_DENY);
        buf_init(&out, 1 << 20);
        CHECK(policy_explain(p, &ask, &out) == (ask.agent ? 0 : -1) || out.failed);
        buf_done(&out);
        for (size_t k = 0; k < c->ncredentials && k < 8; k++)
            policy_credential_scope(p, &c->credentials[k], &ask);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct diag diag;
    struct files files = { .n = 0 };
    diag_init(&diag);
    struct config *c = config_parse(STR("f.yaml"), STR("/d"), str_of(data, size), &diag);
    CHECK(!c == (diag.errors > 0));
    if (c) {
        config_side_files(c, give_file, &files);
        struct policy *p = policy_new(c, files.v, files.n, &diag);
        CHECK(!p == (diag.errors > 0));
        if (p)
            question(p);
        policy_unref(&p);
    }
    for (size_t i = 0; i < diag.n; i++) {
        CHECK(str_starts(diag.lines[i].text, STR("f.yaml:")));
        CHECK(str_find_char(diag.lines[i].text, '\n') < 0);
    }
    diag_done(&diag);
    return 0;
}
