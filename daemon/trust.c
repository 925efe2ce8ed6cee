/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trust.h"

#include "ca/root.h"
#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int trust_system_roots(struct buf *out, struct err *err)
{
    if (access(TRUST_SYSTEM_ROOTS, F_OK) && errno == ENOENT)
        return 0;
    return file_read(TRUST_SYSTEM_ROOTS, out, err);
}

static bool same_as_there(int dir_fd, const char *name, struct str bytes)
{
    struct buf old;
    buf_init(&old, TRUST_ROOTS_MAX + 1024 * 1024);
    bool same = file_read_at(dir_fd, name, &old, NULL) == 0 && str_eq(buf_str(&old), bytes);
    buf_done(&old);
    return same;
}

int trust_write(int state_fd, struct str ca_pem, struct str system_roots, struct err *err)
{
    X509 *cert = NULL;
    if (root_load_cert(ca_pem, &cert, err))
        return err_prefix(err, "state_dir: ca/ca.pem");
    X509_free(cert);
    if (mkdirat(state_fd, "trust", 0755) && errno != EEXIST)
        return err_set_errno(err, "state_dir: trust: cannot make it");
    int dir = openat(state_fd, "trust", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return err_set_errno(err, "state_dir: trust");
    fchmod(dir, 0755);
    struct buf bundle, p12;
    buf_init(&bundle, TRUST_ROOTS_MAX + 65536);
    buf_init(&p12, TRUST_ROOTS_MAX + 65536);
    buf_put(&bundle, system_roots);
    if (system_roots.n && system_roots.p[system_roots.n - 1] != '\n')
        buf_putc(&bundle, '\n');
    int r = buf_put(&bundle, ca_pem);
    if (r == 0 && !same_as_there(dir, "ca.pem", ca_pem))
        r = file_replace_at(dir, "ca.pem", ca_pem, 0444, (uid_t)-1, (gid_t)-1, err);
    bool stale =
        r == 0 && (!same_as_there(dir, "bundle.pem", buf_str(&bundle)) || faccessat(dir, "truststore.p12", R_OK, 0));
    if (stale) {
        r = root_put_truststore(buf_str(&bundle), &p12, err);
        if (r == 0)
            r = file_replace_at(dir, "truststore.p12", buf_str(&p12), 0444, (uid_t)-1, (gid_t)-1, err);
        if (r == 0)
            r = file_replace_at(dir, "bundle.pem", buf_str(&bundle), 0444, (uid_t)-1, (gid_t)-1, err);
    }
    buf_done(&bundle);
    buf_done(&p12);
    close(dir);
    return r;
}
