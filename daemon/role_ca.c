/* SPDX-License-Identifier: Apache-2.0 */
#include "ca/signer.h"
#include "daemon/files.h"
#include "daemon/role.h"

#include "base/lockdown.h"
#include "base/log.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <unistd.h>

struct ca_role {
    struct signer *signer;
    uint64_t rate;
};

static int ca_open(struct role *r, struct err *err)
{
    struct ca_role *ca = calloc(1, sizeof *ca);
    MUST(ca);
    r->self = ca;
    ca->rate = r->in.tune.leaf_rate;
    /* OpenSSL keeps private numbers in its locked heap where there is one. */
    CRYPTO_secure_malloc_init(65536, 32);
    struct buf key, cert;
    buf_init(&key, 16384);
    buf_init(&cert, 65536);
    key.wipe = true;
    int bad = file_read_fd(r->in.files[ROLE_FILE_CA_KEY], "ca.key", &key, err) ||
              file_read_fd(r->in.files[ROLE_FILE_CA_CERT], "ca.pem", &cert, err);
    if (!bad) {
        ca->signer = signer_new(r->loop, buf_str(&cert), buf_str(&key), err);
        bad = !ca->signer;
    }
    buf_done(&key);
    buf_done(&cert);
    return bad ? err_prefix(err, "CA") : 0;
}

static int ca_on_message(struct role *r, struct role_msg *m)
{
    struct ca_role *ca = r->self;
    struct err err;
    struct tune t;
    if (m->type == ROLE_CHANNEL && m->kind == ROLE_KIND_WORKER) {
        int fd = m->fds[0];
        m->fds[0] = -1;
        if (signer_add_worker(ca->signer, m->index, fd, ca->rate, &err)) /* it takes fd, also then */
            log_error("worker %u: %s", m->index, err.text);
        return 0;
    }
    if (m->type == ROLE_TUNE && tune_parse(m->text, &t) == 0) {
        ca->rate = t.leaf_rate;
        return 0;
    }
    return -1;
}

static void ca_on_stop(struct role *r)
{
    struct ca_role *ca = r->self;
    signer_free(&ca->signer);
}

const struct role_ops role_ops_ca = {
    .kind = ROLE_KIND_CA,
    .allow = 0,
    .open = ca_open,
    .on_message = ca_on_message,
    .on_stop = ca_on_stop,
};
