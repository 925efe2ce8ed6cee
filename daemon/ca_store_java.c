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

enum { SAID_MAX = 16 * 1024 * 1024, OURS_MAX = 16 };

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

/* The aliases of our certificate. Ours hold its label: our own, and those that the system's hook makes of its file. */
struct aliases {
    char *ours[OURS_MAX], *other; /* other: the first of somebody else's, or NULL */
    size_t n;
};

static void aliases_done(struct aliases *a)
{
    while (a->n)
        free(a->ours[--a->n]);
    free(a->other);
}

static int add_alias(const struct store *s, struct str alias, struct aliases *a, struct err *err)
{
    bool ours = str_find(alias, str_c(s->cert->label)) >= 0;
    if (ours && a->n == OURS_MAX)
        return err_set(err, "%s: expected at most %d entries of %s, got more: remove them by hand", s->file, OURS_MAX,
                       s->cert->label);
    if (ours)
        a->ours[a->n++] = z_of(alias);
    else if (!a->other)
        a->other = z_of(alias);
    return 0;
}

static int look(const struct store *s, struct aliases *ret, struct err *err)
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
        if (ca_store_has(entry, s->cert->pem))
            r = add_alias(s, alias, ret, err);
    }
    buf_done(&said);
    return r;
}

static int may_write(const struct store *s, struct err *err)
{
    if (access(s->file, W_OK) == 0)
        return 0;
    return err_set_errno(
        err, "%s: expected to be allowed to write it; run it as its owner, or name the other stores with --store",
        s->file);
}

/* The same where only the end matters. */
static int change(const struct store *s, const char *command, const char *const *words, struct err *err)
{
    struct buf said;
    buf_init(&said, SAID_MAX);
    int r = may_write(s, err) ? -1 : keytool(s, command, words, &said, err);
    buf_done(&said);
    return r;
}

static int install(const struct store *s, const struct aliases *a, struct err *err)
{
    const char *const add[] = { "-noprompt", "-alias", s->cert->label, NULL };
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->ours[i], s->cert->label) == 0) {
            ca_store_say("java", "already there: %s", s->file);
            return 0;
        }
    if (a->n || a->other) {
        ca_store_say("java", "already there: %s, %s as %s", s->file,
                     a->n ? "where the system's store puts it," : "put there by somebody else",
                     a->n ? a->ours[0] : a->other);
        return 0;
    }
    if (change(s, "-importcert", add, err))
        return -1;
    ca_store_say("java", "installed: %s", s->file);
    return 0;
}

static int uninstall(const struct store *s, const struct aliases *a, struct err *err)
{
    for (size_t i = 0; i < a->n; i++)
        if (change(s, "-delete", (const char *const[]) { "-alias", a->ours[i], NULL }, err))
            return -1;
    if (a->n || !a->other)
        ca_store_say("java", "%s: %s", a->n ? "removed" : "not there", s->file);
    if (a->other)
        ca_store_say("java", "left there: %s, put there by somebody else as %s", s->file, a->other);
    return 0;
}

static enum ca_store_end one(const struct store *s, bool want, struct err *err)
{
    struct aliases a = { .n = 0 };
    int r = look(s, &a, err);
    if (r == 0)
        r = want ? install(s, &a, err) : uninstall(s, &a, err);
    aliases_done(&a);
    return r ? CA_STORE_FAILED : CA_STORE_OK;
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

/* To root every file is open: another user's program must not run as root, nor root write where that user has put a
 * file. */
static bool is_safe(const struct store *s, struct err *err)
{
    return geteuid() != 0 || (tool_is_roots(s->keytool, err) == 0 && tool_is_roots(s->file, err) == 0);
}

enum ca_store_end ca_store_java(const struct ca_cert *cert, bool want, struct err *err)
{
    const char *set = getenv("JAVA_HOME");
    char *found = tool_find("keytool"), *home = set && set[0] == '/' ? z_of(str_c(set)) : home_of(found ? found : "");
    char *own = z_printf("%s/bin/keytool", home);
    const char *chosen = access(own, X_OK) == 0 ? own : found;
    struct store s = { cert, chosen ? realpath(chosen, NULL) : NULL, home[0] ? cacerts_of(home) : NULL };
    enum ca_store_end end = CA_STORE_ABSENT;
    if (!s.keytool)
        err_set(err, "keytool is not here: install a Java runtime, or set JAVA_HOME");
    else if (!s.file)
        err_set(err, "%s has no lib/security/cacerts: set JAVA_HOME", home[0] ? home : s.keytool);
    else
        end = is_safe(&s, err) ? one(&s, want, err) : CA_STORE_FAILED;
    free(s.keytool);
    free(s.file);
    free(own);
    free(home);
    free(found);
    return end;
}
