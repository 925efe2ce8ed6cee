/* SPDX-License-Identifier: Apache-2.0
 *
 * An NSS database knows a certificate by itself, not by its nickname: adding one that somebody added under another name
 * would change that entry's trust, and removing it would take theirs away. So all are looked at first. A database that
 * was made here carries a mark, by which it is known at the end when nothing else came into it. */
#include "daemon/ca_store.h"

#include "base/log.h"
#include "daemon/files.h"
#include "daemon/tool_run.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK       "outgate-made-this"
#define MADE       "this database\n"
#define MADE_ABOVE "this database and the folder above it\n"
enum { SAID_MAX = 1024 * 1024, NAMES_MAX = 512 };

struct db {
    const struct ca_cert *cert;
    char *tool, *folder, *name; /* name: "sql:" and folder */
};

/* certutil -d DB and at most six more words, the last one NULL. */
static int certutil(const struct db *d, const char *const *words, struct str input, struct buf *said, struct err *err)
{
    const char *argv[10] = { d->tool, "-d", d->name };
    for (size_t i = 0; i < 6 && words[i]; i++)
        argv[3 + i] = words[i];
    int status = tool_run(argv, input, said, err);
    if (status > 0)
        err_set(err, "%s: certutil %s ended with %d: %.*s", d->folder, words[0], status,
                STR_ARG(tool_last_line(buf_str(said))));
    return status;
}

/* The same where only the end matters. 0 or -1. */
static int change(const struct db *d, const char *const *words, struct str input, struct err *err)
{
    struct buf said;
    buf_init(&said, SAID_MAX);
    int status = certutil(d, words, input, &said, err);
    buf_done(&said);
    return status ? -1 : 0;
}

/* Is the entry of that nickname our certificate? 1, 0, or -1: certutil cannot tell. */
static int is_cert(const struct db *d, const char *nickname, struct err *err)
{
    const char *const words[] = { "-L", "-a", "-n", nickname, NULL };
    struct buf said;
    buf_init(&said, SAID_MAX);
    int r = certutil(d, words, STR(""), &said, err) ? -1 : ca_store_has(buf_str(&said), d->cert->pem);
    buf_done(&said);
    return r;
}

/* The nickname of a line of certutil's list, "NAME      CT,C,C"; STR_NONE: a line of its head. *ret_servers: what is
 * said of TLS servers, the first of its flags, has the C of a CA that is trusted for them. */
static struct str nickname_of(struct str line, bool *ret_servers)
{
    line = str_trim(line);
    ptrdiff_t space = str_rfind_char(line, ' ');
    if (space <= 0)
        return STR_NONE;
    struct str trust = str_from(line, (size_t)space + 1);
    ptrdiff_t comma = str_find_char(trust, ',');
    if (comma < 0 || str_find_char(str_from(trust, (size_t)comma + 1), ',') < 0)
        return STR_NONE;
    *ret_servers = str_find_char(str_sub(trust, 0, (size_t)comma), 'C') >= 0;
    return str_trim(str_sub(line, 0, (size_t)space));
}

struct names {
    char *v[NAMES_MAX];
    bool servers[NAMES_MAX]; /* trusted for TLS servers */
    size_t n;
};

static void names_done(struct names *names)
{
    while (names->n)
        free(names->v[--names->n]);
}

static int names_of(const struct db *d, struct names *ret, struct err *err)
{
    static const char *const words[] = { "-L", NULL };
    struct buf said;
    struct str text, line;
    ret->n = 0;
    buf_init(&said, SAID_MAX);
    int status = certutil(d, words, STR(""), &said, err);
    for (text = buf_str(&said); status == 0 && str_split(&text, '\n', &line);) {
        bool servers = false;
        struct str name = nickname_of(line, &servers);
        if (name.n && ret->n == NAMES_MAX)
            status = err_set(err, "%s: expected at most %d certificates, got more", d->folder, NAMES_MAX);
        else if (name.n)
            ret->servers[ret->n] = servers, ret->v[ret->n++] = z_of(name);
    }
    buf_done(&said);
    if (status)
        names_done(ret);
    return status ? -1 : 0;
}

/* There, under a name: being there is not yet being trusted. */
static int install_known(const struct db *d, const char *as, bool servers, struct err *err)
{
    const char *const trust[] = { "-M", "-tC,,", "-n", d->cert->label, NULL };
    bool ours = strcmp(as, d->cert->label) == 0;
    if (!servers && !ours)
        return err_set(err,
                       "%s: somebody else put the certificate there as \"%s\", and it is not trusted for TLS servers: "
                       "trust it with certutil -M -d sql:%s -n \"%s\" -t C,, or remove it, and try again",
                       d->folder, as, d->folder, as);
    if (!servers && change(d, trust, STR(""), err))
        return -1;
    ca_store_say("nss", "%s: %s%s%s", servers ? "already there" : "there, and trusted again", d->folder,
                 ours ? "" : ", put there by somebody else as ", ours ? "" : as);
    return 0;
}

static enum ca_store_end install_one(const struct db *d, struct err *err)
{
    const char *const add[] = { "-A", "-a", "-tC,,", "-n", d->cert->label, NULL };
    struct names names;
    if (names_of(d, &names, err))
        return CA_STORE_FAILED;
    size_t i = 0;
    while (i < names.n && is_cert(d, names.v[i], NULL) != 1)
        i++;
    int r = i < names.n ? install_known(d, names.v[i], names.servers[i], err) : change(d, add, d->cert->pem, err);
    if (r == 0 && i == names.n)
        ca_store_say("nss", "installed: %s", d->folder);
    names_done(&names);
    return r ? CA_STORE_FAILED : CA_STORE_OK;
}

/* --- $HOME/.pki/nssdb --- */

static void remove_in(const char *folder, const char *name)
{
    char *path = z_printf("%s/%s", folder, name);
    unlink(path);
    free(path);
}

/* Certificates or keys, of whomever? What cannot be listed may hold some. */
static bool holds_some(const struct db *d)
{
    static const char *const keys[] = { "-K", NULL };
    struct names names = { .n = 0 };
    struct buf said;
    buf_init(&said, SAID_MAX);
    bool some = names_of(d, &names, NULL) || names.n;
    names_done(&names);
    /* certutil calls it a failure that there are none */
    some = some || certutil(d, keys, STR(""), &said, NULL) < 0 || str_find(buf_str(&said), STR("no keys found")) < 0;
    buf_done(&said);
    return some;
}

/* Takes away a database that we made and that holds nothing, and the folder above where the mark says so. */
static void unmake(const struct db *d)
{
    static const char *const files[] = { "cert9.db", "key4.db", "pkcs11.txt", MARK };
    char *path = z_printf("%s/" MARK, d->folder);
    struct buf mark;
    buf_init(&mark, sizeof MADE_ABOVE);
    if (file_read(path, &mark, NULL) == 0 && !holds_some(d)) {
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            remove_in(d->folder, files[i]);
        char *above = z_of(str_sub(str_c(d->folder), 0, strlen(d->folder) - strlen("/nssdb")));
        if (rmdir(d->folder) == 0 && str_eq(buf_str(&mark), STR(MADE_ABOVE)))
            rmdir(above); /* neither of them when something else is there */
        free(above);
    }
    buf_done(&mark);
    free(path);
}

static int make(const struct db *d, const char *home, struct err *err)
{
    static const char *const new_db[] = { "-N", "--empty-password", NULL };
    char *above = z_printf("%s/.pki", home), *mark = z_printf("%s/" MARK, d->folder);
    bool made_above = mkdir(above, 0700) == 0;
    int r = 0;
    if (mkdir(d->folder, 0700) && errno != EEXIST)
        r = err_set_errno(err, "%s: cannot make it", d->folder);
    else if (access(mark, F_OK)) /* there: an earlier try ended here */
        r = ca_store_create(d->folder, MARK, made_above ? STR(MADE_ABOVE) : STR(MADE), 0600, err);
    if (r == 0)
        r = change(d, new_db, STR(""), err);
    free(above);
    free(mark);
    return r;
}

static enum ca_store_end uninstall_one(const struct db *d, struct err *err)
{
    const char *const drop[] = { "-D", "-n", d->cert->label, NULL };
    struct names names;
    if (names_of(d, &names, err))
        return CA_STORE_FAILED;
    int there = 0;
    for (size_t i = 0; i < names.n && !there; i++)
        if (strcmp(names.v[i], d->cert->label) == 0)
            there = is_cert(d, d->cert->label, err);
    names_done(&names);
    if (there < 0 || (there && change(d, drop, STR(""), err)))
        return CA_STORE_FAILED;
    unmake(d);
    ca_store_say("nss", "%s: %s", there ? "removed" : "not there", d->folder);
    return CA_STORE_OK;
}

static bool has_db(const char *folder)
{
    char *path = z_printf("%s/cert9.db", folder);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* A folder of ours that nobody else can change; *ret_there says false where there is nothing. 0 or -1. */
static int folder_is_ours(const char *path, bool *ret_there, struct err *err)
{
    struct stat st;
    *ret_there = lstat(path, &st) == 0;
    if (!*ret_there)
        return errno == ENOENT ? 0 : err_set_errno(err, "%s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, "%s: expected a folder, got a link or a file", path);
    if (st.st_uid != geteuid())
        return err_set(err, "%s belongs to another user (uid %u): expected a folder of uid %u's", path,
                       (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, "%s can be written by others (mode %04o): take that from them with chmod go-w", path,
                       st.st_mode & 07777);
    return 0;
}

/* All folders on the way from HOME down to that of a database, as far as they are there. */
static int way_is_ours(const char *home, const char *folder, struct err *err)
{
    char *way = z_of(str_c(folder));
    bool there = true;
    int r = 0;
    for (char *p = way + strlen(home) + 1; r == 0 && there; p++) {
        char c = *p;
        if (c != '/' && c)
            continue;
        *p = '\0';
        r = folder_is_ours(way, &there, err);
        *p = c;
        if (!c)
            break;
    }
    free(way);
    return r;
}

static enum ca_store_end one(const struct ca_cert *cert, bool want, char *tool, const char *folder, const char *make_in,
                             struct err *err)
{
    if (way_is_ours(make_in, folder, err))
        return CA_STORE_FAILED;
    struct db d = { .cert = cert, .tool = tool, .folder = z_of(str_c(folder)), .name = z_printf("sql:%s", folder) };
    enum ca_store_end end = CA_STORE_OK;
    if (!has_db(folder) && !want)
        ca_store_say("nss", "not there: %s", folder);
    else if (!has_db(folder) && make(&d, make_in, err))
        end = CA_STORE_FAILED;
    else
        end = want ? install_one(&d, err) : uninstall_one(&d, err);
    free(d.folder);
    free(d.name);
    return end;
}

/* The user's own: files of root's in somebody's home would lock that user out of the database, and a link there could
 * lead root anywhere. */
static enum ca_store_end check_home(const char *home, struct err *err)
{
    struct stat st;
    if (!home || home[0] != '/' || stat(home, &st))
        err_set(err, "HOME: expected the path of a folder, got %s", home ? "something else" : "nothing");
    else if (st.st_uid != geteuid())
        err_set(err, "%s belongs to another user: run this as that user", home);
    else if (!(st.st_mode & (S_IWGRP | S_IWOTH)))
        return CA_STORE_OK;
    else {
        err_set(err, "HOME: %s can be written by others (mode %04o): take that from them with chmod go-w", home,
                st.st_mode & 07777);
        return CA_STORE_FAILED;
    }
    return CA_STORE_ABSENT;
}

enum ca_store_end ca_store_nss(const struct ca_cert *cert, bool want, struct err *err)
{
    const char *home = getenv("HOME");
    char *tool = tool_find("certutil");
    if (!tool)
        err_set(err, "certutil is not here: install the package libnss3-tools");
    enum ca_store_end end = tool ? check_home(home, err) : CA_STORE_ABSENT;
    if (end != CA_STORE_OK) {
        free(tool);
        return end;
    }
    char *main_db = z_printf("%s/.pki/nssdb", home), *pattern = z_printf("%s/.mozilla/firefox/*/cert9.db", home);
    end = one(cert, want, tool, main_db, home, err);
    glob_t found = { 0 };
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && end == CA_STORE_OK; i++) {
            char *folder = z_of(str_sub(str_c(found.gl_pathv[i]), 0, strlen(found.gl_pathv[i]) - strlen("/cert9.db")));
            end = one(cert, want, tool, folder, home, err);
            free(folder);
        }
    globfree(&found);
    free(main_db);
    free(pattern);
    free(tool);
    return end;
}
