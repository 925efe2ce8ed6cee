/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate ca install` and `ca uninstall`: the certificate into the stores of this machine, and out of them. Java comes
 * after the system both times: the system's hook fills and empties its store, and what it left is ours to remove. */
#include "ca/root.h"
#include "daemon/ca_store.h"
#include "daemon/cli.h"
#include "daemon/cli_ca.h"
#include "daemon/files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    enum ca_store_end (*fn)(const struct ca_cert *cert, bool install, struct err *err);
} stores[] = { { "system", ca_store_system }, { "nss", ca_store_nss }, { "java", ca_store_java } };
enum { STORES = sizeof stores / sizeof *stores };

void ca_store_say(const char *store, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    printf("%s: ", store);
    vprintf(format, ap);
    putchar('\n');
    va_end(ap);
    fflush(stdout); /* tools write too */
}

int ca_store_create(const char *folder, const char *name, struct str bytes, mode_t mode, struct err *err)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set_errno(err, "%s", folder);
    int r = file_create_at(dir, name, bytes, mode, (uid_t)-1, (gid_t)-1, err);
    close(dir);
    return r ? err_prefix(err, "%s", folder) : 0;
}

static void put_dense(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (!strchr(" \t\r\n", text.p[i]) || text.p[i] == '\0')
            buf_putc(out, text.p[i]);
}

bool ca_store_has(struct str text, struct str pem)
{
    struct buf all, one;
    buf_init(&all, text.n);
    buf_init(&one, pem.n);
    put_dense(&all, text);
    put_dense(&one, pem);
    bool has = buf_size(&one) && str_find(buf_str(&all), buf_str(&one)) >= 0;
    buf_done(&all);
    buf_done(&one);
    return has;
}

/* Which stores --store names: a bit for each; none: all. 0 or the exit status. */
static int wanted(const struct cli *cli, const char *command, unsigned *ret)
{
    struct str list = str_c(cli->store), word;
    *ret = cli->store ? 0 : (1U << STORES) - 1;
    while (str_split(&list, ',', &word)) {
        size_t i = 0;
        while (i < STORES && !str_eq(word, str_c(stores[i].name)))
            i++;
        if (i == STORES)
            return cli_fail(CLI_USAGE,
                            "%s: --store: expected system, nss, java or several of them with commas, got '%.*s'",
                            command, STR_ARG(word));
        *ret |= 1U << i;
    }
    return 0;
}

static int all_stores(const struct cli *cli, const struct ca_cert *cert, bool install)
{
    const char *command = install ? "ca install" : "ca uninstall";
    unsigned want, done = 0;
    int r = wanted(cli, command, &want), status = CLI_OK;
    if (r)
        return r;
    for (size_t i = 0; i < STORES; i++) {
        struct err err = { "" };
        if (!(want & 1U << i))
            continue;
        enum ca_store_end end = stores[i].fn(cert, install, &err);
        if (end == CA_STORE_OK)
            done++;
        else if (end == CA_STORE_ABSENT && !cli->store)
            ca_store_say(stores[i].name, "passed over: %s", err.text);
        else
            status = cli_fail(CLI_UNREADABLE, "%s: %s: %s", command, stores[i].name, err.text);
    }
    if (!done && status == CLI_OK)
        status = cli_fail(CLI_UNREADABLE, "%s: this machine has none of these stores", command);
    return status;
}

/* A new CA would have another name, and the old one would stay. */
static const char by_hand[] =
    "set state_dir to the folder that holds the CA; if that is gone, remove by hand what is named outgate-ca-*: "
    "/usr/local/share/ca-certificates/outgate-ca-*.crt (then update-ca-certificates --fresh), in NSS databases "
    "(certutil "
    "-L, -D) and in Java's cacerts (keytool -list, -delete)";

static int in_stores(const struct cli *cli, bool install)
{
    struct buf pem, canonical;
    struct err err = { "" };
    X509 *cert = NULL;
    buf_init(&pem, 65536);
    buf_init(&canonical, 65536);
    int r = cli_ca_read(cli, install ? NULL : by_hand, &pem);
    if (r == 0 && (root_load_cert(buf_str(&pem), &cert, &err) || root_put_cert_as(ROOT_PEM, cert, &canonical, &err)))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (r == 0) {
        unsigned char md[EVP_MAX_MD_SIZE];
        char label[] = "outgate-ca-0123456789abcdef";
        unsigned n = 0;
        X509_digest(cert, EVP_sha256(), md, &n);
        for (size_t i = 0; i < 8; i++)
            snprintf(label + sizeof label - 17 + 2 * i, 3, "%02x", md[i]);
        r = all_stores(cli, &(struct ca_cert) { buf_str(&canonical), label }, install);
    }
    X509_free(cert);
    buf_done(&pem);
    buf_done(&canonical);
    return r;
}

int cli_ca_install(const struct cli *cli)
{
    return in_stores(cli, true);
}

int cli_ca_uninstall(const struct cli *cli)
{
    return in_stores(cli, false);
}
