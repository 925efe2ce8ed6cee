/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/checkpoint.h"

#include "audit/line.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIGNATURE_BYTES = 64, PEM_MAX = 4096, ANCHOR_MAX = 1024, MESSAGE_MAX = 512 };

struct checkpoint_key {
    EVP_PKEY *pkey;
};

static struct checkpoint_key *key_from(EVP_PKEY *pkey, const char *what, struct err *err)
{
    struct checkpoint_key *k = NULL;
    if (!pkey || EVP_PKEY_get_base_id(pkey) != EVP_PKEY_ED25519)
        err_set(err, "%s: expected an Ed25519 key in PEM", what);
    else if (!(k = calloc(1, sizeof *k)))
        err_set(err, "%s: out of memory", what);
    if (!k) {
        EVP_PKEY_free(pkey);
        return NULL;
    }
    k->pkey = pkey;
    return k;
}

/* No pass phrase is ever asked for at a terminal. */
static int no_passphrase(char *out, int size, int writing, void *ctx)
{
    (void)out, (void)size, (void)writing, (void)ctx;
    return -1;
}

static ssize_t read_all(int fd, char *out, size_t max)
{
    size_t n = 0;
    while (n < max) {
        ssize_t k = pread(fd, out + n, max - n, (off_t)n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        n += (size_t)k;
    }
    return (ssize_t)n;
}

struct checkpoint_key *checkpoint_key_read(int fd, struct err *err)
{
    char pem[PEM_MAX];
    ssize_t n = read_all(fd, pem, sizeof pem);
    if (n < 0) {
        err_set_errno(err, "the log's signing key");
        return NULL;
    }
    BIO *bio = BIO_new_mem_buf(pem, (int)n);
    EVP_PKEY *pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    OPENSSL_cleanse(pem, sizeof pem);
    return key_from(pkey, "the log's signing key", err);
}

struct checkpoint_key *checkpoint_public_read(const char *path, struct err *err)
{
    char pem[PEM_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read_all(fd, pem, sizeof pem);
    if (n < 0) {
        err_set_errno(err, "%s", path);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    close(fd);
    BIO *bio = BIO_new_mem_buf(pem, (int)n);
    EVP_PKEY *pkey = bio ? PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    return key_from(pkey, path, err);
}

void checkpoint_key_free(struct checkpoint_key **k)
{
    if (!*k)
        return;
    EVP_PKEY_free((*k)->pkey);
    free(*k);
    *k = NULL;
}

/* --- signatures over a short text --- */

static int sign_text(const struct checkpoint_key *k, const char *text, char out[CHECKPOINT_SIGNATURE_B64 + 1])
{
    unsigned char sig[SIGNATURE_BYTES];
    size_t n = sizeof sig;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
              EVP_DigestSign(ctx, sig, &n, (const unsigned char *)text, strlen(text)) == 1 && n == sizeof sig;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return -1;
    return EVP_EncodeBlock((unsigned char *)out, sig, sizeof sig) == CHECKPOINT_SIGNATURE_B64 ? 0 : -1;
}

static bool verify_text(const struct checkpoint_key *k, const char *text, struct str signature)
{
    unsigned char sig[SIGNATURE_BYTES + 8];
    if (signature.n != CHECKPOINT_SIGNATURE_B64 ||
        EVP_DecodeBlock(sig, (const unsigned char *)signature.p, (int)signature.n) != SIGNATURE_BYTES + 2)
        return false;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
              EVP_DigestVerify(ctx, sig, SIGNATURE_BYTES, (const unsigned char *)text, strlen(text)) == 1;
    EVP_MD_CTX_free(ctx);
    return ok;
}

static void checkpoint_text(char out[MESSAGE_MAX], uint64_t seq, uint64_t count, const char *head)
{
    snprintf(out, MESSAGE_MAX, "outgate-audit-checkpoint-v1\n%llu\n%llu\n%.64s\n", (unsigned long long)seq,
             (unsigned long long)count, head);
}

int checkpoint_sign(const struct checkpoint_key *k, uint64_t seq, uint64_t count, const char *head,
                    char out[CHECKPOINT_SIGNATURE_B64 + 1])
{
    char text[MESSAGE_MAX];
    checkpoint_text(text, seq, count, head);
    return sign_text(k, text, out);
}

bool checkpoint_verify(const struct checkpoint_key *k, uint64_t seq, uint64_t count, struct str head,
                       struct str signature)
{
    char text[MESSAGE_MAX];
    if (head.n != 64)
        return false;
    checkpoint_text(text, seq, count, head.p);
    return verify_text(k, text, signature);
}

/* --- the anchor --- */

static void anchor_text(char out[MESSAGE_MAX], const struct anchor *a)
{
    snprintf(out, MESSAGE_MAX, "outgate-audit-anchor-v1\n%llu\n%.64s\n%llu\n%.64s\n", (unsigned long long)a->seq,
             a->head, (unsigned long long)a->first_seq, a->first_prev);
}

/* A text of its own: one that knows nothing of it still finds the anchor signed. */
static void anchor_ts_text(char out[MESSAGE_MAX], const struct anchor *a)
{
    char ts[28];
    snprintf(out, MESSAGE_MAX, "outgate-audit-anchor-ts-v1\n%llu\n%.64s\n%s\n", (unsigned long long)a->seq, a->head,
             clock_format_us(a->ts_us, ts));
}

size_t anchor_put(const struct checkpoint_key *k, const struct anchor *a, char *out)
{
    char text[MESSAGE_MAX], signature[CHECKPOINT_SIGNATURE_B64 + 1], ts_signature[CHECKPOINT_SIGNATURE_B64 + 1], ts[28];
    anchor_text(text, a);
    if (sign_text(k, text, signature))
        return 0;
    anchor_ts_text(text, a);
    if (sign_text(k, text, ts_signature))
        return 0;
    int n =
        snprintf(out, ANCHOR_MAX,
                 "{\"v\":1,\"seq\":%llu,\"head\":\"%.64s\",\"first_seq\":%llu,\"first_prev\":\"%.64s\",\"ts\":\"%s\","
                 "\"ts_signature\":\"%s\",\"signature\":\"%s\"}\n",
                 (unsigned long long)a->seq, a->head, (unsigned long long)a->first_seq, a->first_prev,
                 clock_format_us(a->ts_us, ts), ts_signature, signature);
    return n > 0 && n < ANCHOR_MAX ? (size_t)n : 0;
}

static bool hex64(struct str s, char out[64])
{
    if (s.n != 64)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (ascii_hex(s.p[i]) < 0)
            return false;
    memcpy(out, s.p, 64);
    return true;
}

/* 0: it does not say, or the key did not sign it. */
static int64_t anchor_ts(const struct checkpoint_key *k, struct str s, const struct anchor *a)
{
    char text[MESSAGE_MAX];
    struct anchor with = *a;
    struct str ts = line_member(s, "ts");
    if (!ts.p || clock_parse_rfc3339(ts.p, ts.n, &with.ts_us))
        return 0;
    anchor_ts_text(text, &with);
    return verify_text(k, text, line_member(s, "ts_signature")) ? with.ts_us : 0;
}

static bool anchor_parse(const struct checkpoint_key *k, struct str s, struct anchor *ret)
{
    struct anchor a;
    char text[MESSAGE_MAX];
    if (!str_starts(s, STR("{\"v\":1,")) || !line_member_u64(s, "seq", &a.seq) ||
        !hex64(line_member(s, "head"), a.head) || !line_member_u64(s, "first_seq", &a.first_seq) ||
        !hex64(line_member(s, "first_prev"), a.first_prev))
        return false;
    anchor_text(text, &a);
    if (!verify_text(k, text, line_member(s, "signature")))
        return false;
    a.ts_us = anchor_ts(k, s, &a);
    *ret = a;
    return true;
}

enum anchor_result anchor_read(const struct checkpoint_key *k, int dir_fd, const char *name, struct anchor *ret,
                               struct err *err)
{
    char text[ANCHOR_MAX];
    struct stat st;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT)
        return ANCHOR_NONE;
    if (fd < 0) {
        bool link = errno == ELOOP;
        err_set_errno(err, "%s", name);
        return link ? ANCHOR_BAD : ANCHOR_ERROR;
    }
    bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    ssize_t n = regular ? read_all(fd, text, sizeof text) : 0;
    if (n < 0)
        err_set_errno(err, "%s", name);
    close(fd);
    if (n < 0)
        return ANCHOR_ERROR;
    if (!regular || !anchor_parse(k, str_of(text, (size_t)n), ret)) {
        err_set(err, "%s: not an anchor signed by the log's key", name);
        return ANCHOR_BAD;
    }
    return ANCHOR_OK;
}

static int write_file(int dir_fd, const char *name, const char *p, size_t n)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return -1;
    int r = 0;
    if (write(fd, p, n) != (ssize_t)n) {
        errno = errno ? errno : ENOSPC;
        r = -1;
    } else if (fsync(fd)) {
        r = -1;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    return r;
}

int anchor_write(const struct checkpoint_key *k, int dir_fd, const struct anchor *a)
{
    char text[ANCHOR_MAX];
    size_t n = anchor_put(k, a, text);
    if (!n) {
        errno = EIO;
        return -1;
    }
    errno = 0;
    if (write_file(dir_fd, AUDIT_ANCHOR_NAME ".tmp", text, n))
        return -1;
    if (renameat(dir_fd, AUDIT_ANCHOR_NAME ".tmp", dir_fd, AUDIT_ANCHOR_NAME))
        return -1;
    return fsync(dir_fd);
}
