/* SPDX-License-Identifier: Apache-2.0
 *
 * A certificate in a PKCS#12 file counts as trusted for Java only with the attribute trustedKeyUsage
 * (2.16.840.1.113894.746875.1.1), which OpenSSL 3.0 writes only when told how. The bags are not encrypted: the contents
 * are public; the MAC is SHA-256. */
#include "daemon/trust.h"

#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int trust_system_roots(struct buf *out, struct err *err)
{
    if (access(TRUST_SYSTEM_ROOTS, F_OK) && errno == ENOENT)
        return 0;
    return file_read(TRUST_SYSTEM_ROOTS, out, err);
}

static X509 *next_cert(BIO *bio)
{
    return PEM_read_bio_X509(bio, NULL, NULL, NULL);
}

int trust_put_der(struct str ca_pem, struct buf *out, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(ca_pem.p, (int)ca_pem.n);
    X509 *cert = bio ? next_cert(bio) : NULL;
    unsigned char *der = NULL;
    int n = cert ? i2d_X509(cert, &der) : -1;
    int r = n > 0 ? buf_put(out, str_of(der, (size_t)n)) : -1;
    OPENSSL_free(der);
    X509_free(cert);
    BIO_free(bio);
    return r ? err_set(err, "the CA certificate cannot be read") : 0;
}

static int add_bag(STACK_OF(PKCS12_SAFEBAG) * *bags, X509 *cert, ASN1_OBJECT *any_usage, size_t i)
{
    PKCS12_SAFEBAG *bag = PKCS12_add_cert(bags, cert);
    char name[32];
    snprintf(name, sizeof name, "%zu", i);
    /* length -1: the value is an ASN1_OBJECT, not bytes */
    return bag && PKCS12_add_friendlyname_utf8(bag, name, -1) &&
                   PKCS12_add1_attr_by_txt(bag, "2.16.840.1.113894.746875.1.1", V_ASN1_OBJECT,
                                           (unsigned char *)any_usage, -1)
               ? 0
               : -1;
}

int trust_put_p12(struct str pem, struct buf *out, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
    STACK_OF(PKCS12_SAFEBAG) *bags = NULL;
    STACK_OF(PKCS7) *safes = NULL;
    ASN1_OBJECT *any_usage = OBJ_txt2obj("2.5.29.37.0", 1);
    int r = bio && any_usage ? 0 : -1;
    size_t n = 0;
    for (X509 *cert; r == 0 && (cert = next_cert(bio)) != NULL; X509_free(cert))
        r = add_bag(&bags, cert, any_usage, n++);
    PKCS12 *p12 = NULL;
    if (r == 0 && n && PKCS12_add_safe(&safes, bags, -1, 0, NULL))
        p12 = PKCS12_add_safes(safes, 0);
    unsigned char *der = NULL;
    int len =
        p12 && PKCS12_set_mac(p12, TRUST_P12_PASSWORD, -1, NULL, 0, 10000, EVP_sha256()) ? i2d_PKCS12(p12, &der) : -1;
    r = len > 0 ? buf_put(out, str_of(der, (size_t)len)) : -1;
    OPENSSL_free(der);
    PKCS12_free(p12);
    sk_PKCS7_pop_free(safes, PKCS7_free);
    sk_PKCS12_SAFEBAG_pop_free(bags, PKCS12_SAFEBAG_free);
    ASN1_OBJECT_free(any_usage);
    BIO_free(bio);
    return r ? err_set(err, "cannot write the trust store") : 0;
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
        r = trust_put_p12(buf_str(&bundle), &p12, err);
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
