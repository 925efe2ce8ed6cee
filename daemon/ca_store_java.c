/* SPDX-License-Identifier: Apache-2.0
 *
 * A Java home has one file of trusted certificates, and keytool changes it. On Debian that file may be one of the
 * system's, which a hook of update-ca-certificates fills: a certificate that is there under another alias is left. */
#include "daemon/ca_store.h"

#include "daemon/files.h"
#include "daemon/tool_run.h"
#include "daemon/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { SAID_MAX = 16 * 1024 * 1024 };

struct store {
    const struct ca_cert *cert;
    char *keytool, *file;
};

/* keytool COMMAND -keystore FILE, and at most four more words, the last one NULL. */
static int keytool(const struct store *s, const char *command, const char *const *words, struct buf *said,
                   struct err *err)
{
    const char *argv[12] = { s->keytool, command, "-keystore", s->file, "-storepass", TRUST_P12_PASSWORD };
    for (size_t i = 0; i < 4 && words[i]; i++)
        argv[6 + i] = words[i];
    int status = tool_run(argv, s->cert->pem, said, err);
    if (status > 0)
        err_set(err, "%s: keytool %s ended with %d: %.*s", s->file, command, status,
                STR_ARG(tool_last_line(buf_str(said))));
    return status ? -1 : 0;
}

/* 2: there, under our alias; 1: under another one, *ret_alias (the caller frees it); 0: not there; -1: cannot tell. */
static int look(const struct store *s, char **ret_alias, struct err *err)
{
    static const char *const words[] = { "-rfc", NULL };
    static const struct str head = STR("Alias name: ");
    struct buf said;
    buf_init(&said, SAID_MAX);
    int r = keytool(s, "-list", words, &said, err);
    for (struct str rest = buf_str(&said); r == 0;) {
        ptrdiff_t at = str_find(rest, head);
        if (at < 0)
            break;
        rest = str_from(rest, (size_t)at + head.n);
        ptrdiff_t next = str_find(rest, head), line = str_find_char(rest, '\n');
        struct str entry = next < 0 ? rest : str_sub(rest, 0, (size_t)next);
        struct str alias = line < 0 ? STR_NONE : str_trim(str_sub(rest, 0, (size_t)line));
        if (!ca_store_has(entry, s->cert->pem))
            continue;
        r = str_eq(alias, str_c(s->cert->label)) ? 2 : 1;
        if (r == 1)
            *ret_alias = z_of(alias);
    }
    buf_done(&said);
    return r;
}

static bool may_write(const struct store *s, struct err *err)
{
    if (access(s->file, W_OK) == 0)
        return true;
    err_set_errno(err,
                  "%s: expected to be allowed to write it; run it as its owner, or name the other stores with --store",
                  s->file);
    return false;
}

static enum ca_store_end one(const struct store *s, bool want, struct err *err)
{
    const char *const add[] = { "-noprompt", "-alias", s->cert->label, NULL };
    const char *const drop[] = { "-alias", s->cert->label, NULL };
    char *alias = NULL;
    struct buf said;
    buf_init(&said, SAID_MAX);
    int there = look(s, &alias, err);
    bool failed = there < 0;
    if (there == 1)
        ca_store_say("java", "%s: %s, %s as %s", want ? "already there" : "left there", s->file,
                     strstr(alias, s->cert->label) ? "where the system's store puts it," : "put there by somebody else",
                     alias);
    else if (there >= 0 && want == (there == 2))
        ca_store_say("java", "%s: %s", want ? "already there" : "not there", s->file);
    else if (there >= 0 && !(failed = !may_write(s, err) ||
                                      keytool(s, want ? "-importcert" : "-delete", want ? add : drop, &said, err)))
        ca_store_say("java", "%s: %s", want ? "installed" : "removed", s->file);
    buf_done(&said);
    free(alias);
    return failed ? CA_STORE_FAILED : CA_STORE_OK;
}

/* The cacerts of a Java home, without links; NULL: it has none. */
static char *cacerts_of(const char *home)
{
    static const char *const places[] = { "lib/security/cacerts", "jre/lib/security/cacerts" };
    char *real = NULL;
    for (size_t i = 0; i < 2 && !real; i++) {
        char *path = z_printf("%s/%s", home, places[i]);
        real = realpath(path, NULL);
        free(path);
    }
    return real;
}

/* The home that a keytool belongs to: two folders up from it, or three from that of a JRE 8. */
static char *home_of(const char *tool)
{
    char *real = realpath(tool, NULL);
    struct str home = str_c(real ? real : "");
    for (int i = 0; i < 2; i++) {
        ptrdiff_t slash = str_rfind_char(home, '/');
        home = str_sub(home, 0, slash > 0 ? (size_t)slash : 0);
    }
    char *z = z_of(home);
    free(real);
    return z;
}

enum ca_store_end ca_store_java(const struct ca_cert *cert, bool want, struct err *err)
{
    const char *set = getenv("JAVA_HOME");
    char *found = tool_find("keytool"), *home = set && set[0] == '/' ? z_of(str_c(set)) : home_of(found ? found : "");
    char *own = z_printf("%s/bin/keytool", home);
    struct store s = { cert, access(own, X_OK) == 0 ? own : found, home[0] ? cacerts_of(home) : NULL };
    enum ca_store_end end = CA_STORE_ABSENT;
    if (!s.keytool)
        err_set(err, "keytool is not here: install a Java runtime, or set JAVA_HOME");
    else if (!s.file)
        err_set(err, "%s has no lib/security/cacerts: set JAVA_HOME", home[0] ? home : s.keytool);
    else
        end = one(&s, want, err);
    free(s.file);
    free(own);
    free(home);
    free(found);
    return end;
}
