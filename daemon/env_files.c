/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/env_files.h"

#include "daemon/files.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *format, *name;
    const char *barred; /* what cannot stand in a value */
} files[ENV_FILES] = {
    [ENV_FILE_WGETRC] = { "wgetrc", "wgetrc", "\r\n" },
    [ENV_FILE_APT] = { "apt", "apt.conf", "\r\n\"\\" },
};

bool env_file_parse(struct str format, enum env_file *ret)
{
    for (size_t i = 0; i < ENV_FILES; i++)
        if (str_eq(format, str_c(files[i].format))) {
            *ret = (enum env_file)i;
            return true;
        }
    return false;
}

static bool may_stand(enum env_file file, const char *value)
{
    return value[strcspn(value, files[file].barred)] == '\0';
}

static int checked(enum env_file file, const char *value, struct err *err)
{
    if (!value || !may_stand(file, value))
        return err_set(err, "%s: expected a value without quotes, backslashes and line ends, got %s",
                       files[file].format, value ? value : "none");
    return 0;
}

/* One line each, in the words of that file. */
static void put_ca(enum env_file file, const char *bundle, struct buf *out)
{
    if (file == ENV_FILE_WGETRC)
        buf_putf(out, "ca_certificate = %s\n", bundle);
    else
        buf_putf(out, "Acquire::https::CAInfo \"%s\";\n", bundle);
}

static void put_proxy(enum env_file file, const char *url, const char *around, struct buf *out)
{
    if (file == ENV_FILE_WGETRC) {
        buf_putf(out, "use_proxy = on\nhttps_proxy = %s\nhttp_proxy = %s\nno_proxy = %s\n", url, url, around);
        return;
    }
    buf_putf(out, "Acquire::http::Proxy \"%s\";\nAcquire::https::Proxy \"%s\";\n", url, url);
    for (struct str rest = str_c(around), host; str_split(&rest, ',', &host);)
        if (str_find_char(host, ':') < 0) /* its own separator */
            buf_putf(out, "Acquire::http::Proxy::%.*s \"DIRECT\";\nAcquire::https::Proxy::%.*s \"DIRECT\";\n",
                     STR_ARG(host), STR_ARG(host));
}

int env_file_put(enum env_file file, const struct env_vars *vars, struct buf *out, struct err *err)
{
    const char *url = env_vars_get(vars, "https_proxy"), *around = env_vars_get(vars, "no_proxy");
    const char *bundle = env_vars_get(vars, "SSL_CERT_FILE");
    if (checked(file, url, err) || checked(file, around, err) || checked(file, bundle, err))
        return -1;
    put_proxy(file, url, around, out);
    put_ca(file, bundle, out);
    return out->failed ? err_set(err, "out of memory") : 0;
}

/* --- in the trust folder --- */

static bool is_own(struct str folder, struct str state_dir)
{
    return str_starts(folder, state_dir) && str_eq(str_from(folder, state_dir.n), STR("/trust"));
}

static char *name_of(enum env_file file, struct str folder, struct str state_dir)
{
    unsigned char md[SHA256_DIGEST_LENGTH];
    if (is_own(folder, state_dir))
        return z_of(str_c(files[file].name));
    SHA256((const unsigned char *)folder.p, folder.n, md);
    return z_printf("%s.%02x%02x%02x%02x", files[file].name, md[0], md[1], md[2], md[3]);
}

char *env_file_path(enum env_file file, struct str folder, struct str state_dir)
{
    char *name = name_of(file, folder, state_dir), *path = z_printf("%.*s/%s", STR_ARG(folder), name);
    free(name);
    if (may_stand(file, path))
        return path;
    free(path);
    return NULL;
}

static int write_one(int dir, enum env_file file, struct str folder, struct str state_dir, struct err *err)
{
    struct buf text, old;
    char *name = name_of(file, folder, state_dir), *bundle = z_printf("%.*s/bundle.pem", STR_ARG(folder));
    buf_init(&text, 16384);
    buf_init(&old, 16384);
    int r = 0;
    if (may_stand(file, bundle)) {
        put_ca(file, bundle, &text);
        if (file_read_at(dir, name, &old, NULL) || !str_eq(buf_str(&old), buf_str(&text)))
            r = file_replace_at(dir, name, buf_str(&text), 0444, (uid_t)-1, (gid_t)-1, err);
    }
    buf_done(&text);
    buf_done(&old);
    free(bundle);
    free(name);
    return r ? err_prefix(err, "state_dir: trust") : 0;
}

int env_files_write(int state_fd, const struct config *config, struct err *err)
{
    int dir = openat(state_fd, "trust", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), r = 0;
    if (dir < 0)
        return err_set_errno(err, "state_dir: trust");
    char *own = z_printf("%.*s/trust", STR_ARG(config->state_dir));
    for (size_t i = 0; i < ENV_FILES && r == 0; i++) {
        r = write_one(dir, (enum env_file)i, str_c(own), config->state_dir, err);
        for (size_t k = 0; k < config->nagents && r == 0; k++)
            if (config->agents[k].advertise_trust_dir.n)
                r = write_one(dir, (enum env_file)i, config->agents[k].advertise_trust_dir, config->state_dir, err);
    }
    free(own);
    close(dir);
    return r;
}
