/* SPDX-License-Identifier: Apache-2.0
 *
 * What `outgate init` makes. Folders are filled before they are given away, and the CA's key comes last: a state_dir
 * with a key is a whole one. */
#include "base/clock.h"
#include "ca/root.h"
#include "daemon/env_files.h"
#include "daemon/files.h"
#include "daemon/statedir.h"
#include "daemon/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct initial {
    int fd;          /* state_dir */
    struct str path; /* its, as the configuration beside it will have it: without links */
    const struct users *u;
    struct err *err;
};

/* The descriptor of a folder with that mode, new or empty-handed from an earlier try. */
static int folder(const struct initial *in, const char *name)
{
    if (mkdirat(in->fd, name, 0700) && errno != EEXIST)
        return err_set_errno(in->err, "%s: cannot make it", name);
    int fd = openat(in->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_set_errno(in->err, "%s: cannot open", name) : fd;
}

static int give(const struct initial *in, const char *name, struct user to, gid_t gid, mode_t mode)
{
    if (fchownat(in->fd, name, to.uid, gid, AT_SYMLINK_NOFOLLOW) || fchmodat(in->fd, name, mode, 0))
        return err_set_errno(in->err, "%s: cannot give it to uid %u", name, (unsigned)user_uid(to));
    return 0;
}

static int put_keys(const struct initial *in)
{
    int dir = folder(in, "keys");
    if (dir < 0)
        return -1;
    unsigned char key[32], token[24];
    rand_bytes(key, sizeof key);
    rand_bytes(token, sizeof token);
    char hex[2 * sizeof token + 2];
    for (size_t i = 0; i < sizeof token; i++)
        snprintf(hex + 2 * i, 3, "%02x", token[i]);
    hex[2 * sizeof token] = '\n';
    int r = file_replace_at(dir, "install.key", str_of(key, sizeof key), 0400, (uid_t)-1, (gid_t)-1, in->err);
    if (r == 0)
        r = file_replace_at(dir, "console.token", str_of(hex, sizeof hex - 1), 0400, (uid_t)-1, (gid_t)-1, in->err);
    explicit_bzero(key, sizeof key);
    explicit_bzero(token, sizeof token);
    explicit_bzero(hex, sizeof hex);
    close(dir);
    return r;
}

static int bio_to_buf(BIO *bio, struct buf *out)
{
    char *p = NULL;
    long n = BIO_get_mem_data(bio, &p);
    return n > 0 ? buf_put(out, str_of(p, (size_t)n)) : -1;
}

/* The logger's Ed25519 key: the private half for it alone, the public one in trust/. */
static int put_log_key(const struct initial *in)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *bio = BIO_new(BIO_s_secmem()), *pub_bio = BIO_new(BIO_s_mem());
    struct buf pem, pub;
    buf_init(&pem, 4096);
    buf_init(&pub, 4096);
    pem.wipe = true;
    int r = key && bio && pub_bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) &&
                    PEM_write_bio_PUBKEY(pub_bio, key)
                ? 0
                : err_set(in->err, "cannot make the log's signing key");
    if (r == 0)
        r = bio_to_buf(bio, &pem) || bio_to_buf(pub_bio, &pub) ? err_set(in->err, "cannot write the log's signing key")
                                                               : 0;
    int dir = r == 0 ? folder(in, "keys/log") : -1, trust = r == 0 ? folder(in, "trust") : -1;
    if (r == 0)
        r = dir < 0 || trust < 0 ? -1 : 0;
    if (r == 0)
        r = file_replace_at(dir, "log.key", buf_str(&pem), 0400, in->u->log.uid, in->u->log.gid, in->err);
    if (r == 0)
        r = file_replace_at(trust, "log.pub", buf_str(&pub), 0444, (uid_t)-1, (gid_t)-1, in->err);
    if (dir >= 0)
        close(dir);
    if (trust >= 0)
        close(trust);
    buf_done(&pem);
    buf_done(&pub);
    BIO_free(bio);
    BIO_free(pub_bio);
    EVP_PKEY_free(key);
    return r ? r : give(in, "keys/log", in->u->log, in->u->log.gid, 0700);
}

static int put_audit(const struct initial *in)
{
    int dir = folder(in, "audit");
    if (dir < 0)
        return -1;
    close(dir);
    return give(in, "audit", in->u->log, in->u->separate && in->u->has_group ? in->u->group : in->u->log.gid, 02750);
}

static int put_trust(const struct initial *in, struct str ca_pem)
{
    struct buf roots;
    buf_init(&roots, TRUST_ROOTS_MAX);
    int r = trust_system_roots(&roots, in->err);
    if (r == 0)
        r = trust_write(in->fd, ca_pem, buf_str(&roots), in->err);
    if (r == 0)
        r = env_files_write_own(in->fd, in->path, in->err);
    buf_done(&roots);
    return r;
}

static int put_ca(const struct initial *in)
{
    EVP_PKEY *key = NULL;
    X509 *cert = NULL;
    struct buf key_pem, cert_pem;
    buf_init(&key_pem, 16384);
    buf_init(&cert_pem, 16384);
    key_pem.wipe = true;
    int r = root_make(clock_wall_us(), &key, &cert, in->err);
    if (r == 0)
        r = root_put_key(key, &key_pem) || root_put_cert(cert, &cert_pem) ? err_set(in->err, "cannot write the CA") : 0;
    if (r == 0)
        r = put_trust(in, buf_str(&cert_pem));
    int dir = r == 0 ? folder(in, "ca") : -1;
    if (r == 0)
        r = dir < 0 ? -1
                    : file_replace_at(dir, "ca.pem", buf_str(&cert_pem), 0444, in->u->ca.uid, in->u->ca.gid, in->err);
    if (r == 0)
        r = file_create_at(dir, "ca.key", buf_str(&key_pem), 0400, in->u->ca.uid, in->u->ca.gid, in->err);
    if (dir >= 0)
        close(dir);
    EVP_PKEY_free(key);
    X509_free(cert);
    buf_done(&key_pem);
    buf_done(&cert_pem);
    return r ? r : give(in, "ca", in->u->ca, in->u->ca.gid, 0700);
}

int statedir_init(const char *dir, const struct users *u, bool *ret_exists, struct err *err)
{
    *ret_exists = false;
    char *path = z_printf("%s/state", dir);
    if (mkdir(path, 0755) && errno != EEXIST) {
        err_set_errno(err, "%s: cannot make it", path);
        free(path);
        return -1;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0) {
        err_set_errno(err, "%s: cannot open", path);
    } else if (fstatat(fd, "ca/ca.key", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno == EACCES) {
        *ret_exists = true;
        err_set(err, "%s has a CA already: it is kept; choose another folder, or use this one", path);
        close(fd);
        fd = -1;
    }
    char *real = fd < 0 ? NULL : realpath(path, NULL);
    if (fd >= 0 && !real) {
        err_set_errno(err, "%s", path);
        close(fd);
        fd = -1;
    }
    free(path);
    if (fd < 0)
        return -1;
    struct initial in = { fd, str_c(real), u, err };
    int r = fchmod(fd, 0755) ? err_set_errno(err, "state: cannot set its mode") : 0;
    if (r == 0)
        r = put_keys(&in) || put_log_key(&in) || put_audit(&in) || put_ca(&in) ? -1 : 0;
    free(real);
    close(fd);
    return r;
}
