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

/* The value of a variable that can stand in the file; NULL: none, or not, which is said without it: it may hold the
 * agent's login. */
static const char *checked(enum env_file file, const struct env_vars *vars, const char *name, struct err *err)
{
    const char *value = env_vars_get(vars, name);
    if (value && may_stand(file, value))
        return value;
    err_set(err, "%s: %s: expected a value without %sline ends, got %s", files[file].format, name,
            strchr(files[file].barred, '"') ? "quotes, backslashes and " : "", value ? "one with them" : "none");
    return NULL;
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
    const char *url = checked(file, vars, "https_proxy", err);
    const char *around = url ? checked(file, vars, "no_proxy", err) : NULL;
    const char *bundle = around ? checked(file, vars, "SSL_CERT_FILE", err) : NULL;
    if (!bundle)
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

static int trust_open(int state_fd, struct err *err)
{
    int dir = openat(state_fd, "trust", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return dir < 0 ? err_set_errno(err, "state_dir: trust") : dir;
}

/* All of them for one name of the folder. */
static int write_all(int dir, struct str folder, struct str state_dir, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < ENV_FILES && r == 0; i++)
        r = write_one(dir, (enum env_file)i, folder, state_dir, err);
    return r;
}

int env_files_write_own(int state_fd, struct str state_dir, struct err *err)
{
    int dir = trust_open(state_fd, err);
    if (dir < 0)
        return -1;
    char *own = z_printf("%.*s/trust", STR_ARG(state_dir));
    int r = write_all(dir, str_c(own), state_dir, err);
    free(own);
    close(dir);
    return r;
}

int env_files_write(int state_fd, const struct config *config, struct err *err)
{
    int r = env_files_write_own(state_fd, config->state_dir, err), dir = r == 0 ? trust_open(state_fd, err) : -1;
    if (dir < 0)
        return -1;
    for (size_t k = 0; k < config->nagents && r == 0; k++)
        if (config->agents[k].advertise_trust_dir.n)
            r = write_all(dir, config->agents[k].advertise_trust_dir, config->state_dir, err);
    close(dir);
    return r;
}
