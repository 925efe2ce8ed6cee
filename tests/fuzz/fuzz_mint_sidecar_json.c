/* SPDX-License-Identifier: Apache-2.0
 *
 * A sidecar's answer and a keeper's question, read from anything. What was taken is checked against what is promised,
 * and written again it must read the same. */
#include "mint/sidecar_json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

static void grant(struct str in, bool allow_short)
{
    struct sidecar_grant g, back;
    const char *why = NULL;
    struct buf out;
    if (sidecar_json_read_grant(in, STR("r1"), allow_short, &g, &why)) {
        check(why != NULL);
        return;
    }
    check(lease_id_ok(g.lease_id) && lease_value_ok(g.value) && (allow_short || g.value.n >= SIDECAR_VALUE_SHORT));
    check(g.hosts.n <= LEASE_SCOPE_ENTRIES && g.methods.n <= LEASE_SCOPE_ENTRIES && g.paths.n <= LEASE_SCOPE_ENTRIES);
    buf_init(&out, 16 * SIDECAR_BODY_MAX);
    /* A time of before 1970 or after 9999 is not written as it was read; the keeper has no use for one. */
    if (g.expires_us > 0 && g.refresh_us >= 0 && sidecar_json_put_grant(&out, STR("r1"), &g) == 0 &&
        buf_size(&out) <= SIDECAR_BODY_MAX) {
        check(sidecar_json_read_grant(buf_str(&out), STR("r1"), allow_short, &back, &why) == 0);
        check(str_eq(g.value, back.value) && str_eq(g.lease_id, back.lease_id) && g.expires_us == back.expires_us);
        check(g.hosts.given == back.hosts.given && g.hosts.n == back.hosts.n && g.paths.n == back.paths.n);
        sidecar_grant_done(&back);
    }
    buf_done(&out);
    sidecar_grant_done(&g);
}

static void question(struct str in)
{
    struct sidecar_question q, back;
    const char *why = NULL;
    struct buf out;
    if (sidecar_json_read_ask(in, &q, &why))
        return;
    buf_init(&out, SIDECAR_REQUEST_MAX);
    if (sidecar_json_put_ask(&out, &q.ask) == 0) {
        check(sidecar_json_read_ask(buf_str(&out), &back, &why) == 0);
        check(str_eq(q.ask.credential, back.ask.credential) && str_eq(q.ask.request_id, back.ask.request_id) &&
              q.ask.port == back.ask.port && q.ask.reason == back.ask.reason);
        sidecar_question_done(&back);
    }
    buf_done(&out);
    sidecar_question_done(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_of(data, size), id = STR_NONE, credential = STR_NONE;
    void *json = NULL;
    grant(in, false);
    grant(in, true);
    question(in);
    if (sidecar_json_read_revoke(in, &id, &credential, &json) == 0)
        check(!id.n != !credential.n);
    sidecar_json_free(&json);
    return 0;
}
