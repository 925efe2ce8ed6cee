/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli_ca.h"

#include "ca/root.h"
#include "daemon/files.h"
#include "daemon/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_ca_read(const struct cli *cli, const char *absent, struct buf *out)
{
    struct gather g;
    struct err err;
    int r = cli_config(cli, &g);
    if (r == 0) {
        char *path = z_printf("%.*s/trust/ca.pem", STR_ARG(g.config->state_dir));
        if (access(path, F_OK) && errno == ENOENT)
            r = cli_fail(CLI_UNREADABLE, "%s does not exist: %s", path,
                         absent ? absent : "run `outgate init DIR` and set state_dir to DIR/state");
        else if (file_read(path, out, &err))
            r = cli_fail(CLI_UNREADABLE, "%s", err.text);
        free(path);
    }
    gather_done(&g);
    return r;
}

int cli_ca_export(const struct cli *cli)
{
    const char *name = cli->format ? cli->format : "pem";
    enum root_format format;
    struct buf pem, out;
    struct err err = { "" };
    X509 *cert = NULL;
    if (!root_format_parse(str_c(name), &format))
        return cli_fail(CLI_USAGE, "ca export: --format: expected pem, der or p12, got '%s'", name);
    if (format != ROOT_PEM && isatty(1))
        return cli_fail(CLI_USAGE, "ca export: %s is not text: send it to a file", name);
    buf_init(&pem, 65536);
    buf_init(&out, 65536);
    int r = cli_ca_read(cli, NULL, &pem);
    if (r == 0 && (root_load_cert(buf_str(&pem), &cert, &err) || root_put_cert_as(format, cert, &out, &err)))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (r == 0)
        fwrite(buf_str(&out).p, 1, buf_size(&out), stdout);
    X509_free(cert);
    buf_done(&pem);
    buf_done(&out);
    return r;
}

int cli_ca_show(const struct cli *cli)
{
    struct buf pem;
    struct err err;
    X509 *cert = NULL;
    buf_init(&pem, 65536);
    int r = cli_ca_read(cli, NULL, &pem);
    if (r == 0 && root_load_cert(buf_str(&pem), &cert, &err))
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (r == 0) {
        unsigned char md[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        X509_digest(cert, EVP_sha256(), md, &n);
        BIO *out = BIO_new_fp(stdout, BIO_NOCLOSE);
        BIO_puts(out, "subject:     ");
        X509_NAME_print_ex(out, X509_get_subject_name(cert), 0, XN_FLAG_ONELINE);
        BIO_puts(out, "\nvalid from:  ");
        ASN1_TIME_print(out, X509_get0_notBefore(cert));
        BIO_puts(out, "\nvalid until: ");
        ASN1_TIME_print(out, X509_get0_notAfter(cert));
        BIO_puts(out, "\nSHA-256:     ");
        for (unsigned i = 0; i < n; i++)
            BIO_printf(out, "%s%02X", i ? ":" : "", md[i]);
        BIO_puts(out, "\n");
        BIO_flush(out);
        BIO_free(out);
    }
    X509_free(cert);
    buf_done(&pem);
    return r;
}
