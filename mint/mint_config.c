/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/mint_config.h"

#include "base/ydoc.h"
#include "mint/lease.h"
#include "policy/config_read.h" /* parse_duration: one reader of durations in the tree */

#include <stdio.h>
#include <stdlib.h>

struct reader {
    struct mint_config *c;
    struct diag *diag;
    struct str file, dir;
};

struct key {
    const char *name;
    bool required;
    void (*read)(struct reader *r, const struct ynode *v, void *into);
};

static const char *kind_of(const struct ynode *v)
{
    if (v->kind == YNODE_MAP)
        return "a map";
    if (v->kind == YNODE_LIST)
        return v->n ? "a list" : "an empty list";
    return ynode_is_null(v) ? "nothing" : "something else";
}

/* Below `source` what is written is not repeated: a secret may have been put where its name belongs. */
static void expected(struct reader *r, const struct ynode *v, const char *key, const char *what)
{
    char shown[44], got[48];
    bool repeat = v->kind == YNODE_SCALAR && !ynode_is_null(v) && !str_starts(str_c(key), STR("source"));
    snprintf(got, sizeof got, "\"%s\"", str_escape(v->text, shown, sizeof shown));
    diag_add(r->diag, true, "%.*s:%u:%u: %s: expected %s, got %s", STR_ARG(r->file), v->line, v->col, key, what,
             repeat ? got : kind_of(v));
}

static bool scalar(const struct ynode *v)
{
    return v->kind == YNODE_SCALAR && !ynode_is_null(v) && v->text.n && !memchr(v->text.p, 0, v->text.n);
}

static struct str keep(struct reader *r, const struct ynode *v)
{
    struct str s = arena_str(&r->c->arena, v->text);
    if (!s.p)
        expected(r, v, "file", "less of it (memory)");
    return s;
}

static void take_map(struct reader *r, const struct ynode *v, const char *what, const struct key *keys, void *into)
{
    if (v->kind != YNODE_MAP) {
        expected(r, v, what, "a map");
        return;
    }
    for (const struct ynode *n = v->first; n; n = n->next) {
        const struct key *k = keys;
        while (k->name && !str_eq(n->key, str_c(k->name)))
            k++;
        char shown[64];
        if (k->name) {
            k->read(r, n, into);
            continue;
        }
        char known[256];
        size_t at = 0;
        for (k = keys; k->name && at < sizeof known; k++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", k->name);
        diag_add(r->diag, true, "%.*s:%u:%u: %s: expected one of %s, got an unknown key", STR_ARG(r->file), n->key_line,
                 n->key_col, str_escape(n->key, shown, sizeof shown), known);
    }
    for (const struct key *k = keys; k->name; k++)
        if (k->required && !ynode_get(v, str_c(k->name)))
            diag_add(r->diag, true, "%.*s:%u:%u: %s: expected to be there, got nothing", STR_ARG(r->file), v->line,
                     v->col, k->name);
}

/* --- values --- */

static void take_path(struct reader *r, const struct ynode *v, struct str *into, const char *key)
{
    if (!scalar(v)) {
        expected(r, v, key, "a path");
        return;
    }
    *into =
        v->text.p[0] == '/' ? keep(r, v) : arena_printf(&r->c->arena, "%.*s/%.*s", STR_ARG(r->dir), STR_ARG(v->text));
}

static void take_version(struct reader *r, const struct ynode *v, void *into)
{
    (void)into;
    if (!scalar(v) || !str_eq(v->text, STR("1")))
        expected(r, v, "version", "1");
}

static void take_socket(struct reader *r, const struct ynode *v, void *into)
{
    (void)into;
    take_path(r, v, &r->c->socket, "socket");
    if (r->c->socket.n > 107)
        expected(r, v, "socket", "a path of at most 107 bytes");
}

static void take_keeper(struct reader *r, const struct ynode *v, void *into)
{
    (void)into;
    take_path(r, v, &r->c->keeper, "keeper");
    if (r->c->keeper.n > 107)
        expected(r, v, "keeper", "a path of at most 107 bytes");
}

static void take_peers(struct reader *r, const struct ynode *v, void *into)
{
    (void)into;
    if (v->kind != YNODE_LIST || !v->n || v->n > 8) {
        expected(r, v, "peer_uids", "a list of one to eight numeric user ids");
        return;
    }
    for (const struct ynode *n = v->first; n; n = n->next) {
        uint64_t uid;
        if (!scalar(n) || !str_to_u64(n->text, UINT32_MAX - 1, &uid))
            expected(r, n, "peer_uids", "a numeric user id");
        else
            r->c->peer_uids[r->c->npeer_uids++] = (uid_t)uid;
    }
}

static struct str *take_strings(struct reader *r, const struct ynode *v, const char *key, const char *what,
                                size_t *ret_n)
{
    struct str *list =
        v->kind == YNODE_LIST && v->n && v->n <= 1000 ? arena_alloc(&r->c->arena, v->n * sizeof *list) : NULL;
    if (!list) {
        expected(r, v, key, what);
        return NULL;
    }
    *ret_n = 0;
    for (const struct ynode *n = v->first; n; n = n->next) {
        if (scalar(n))
            list[(*ret_n)++] = keep(r, n);
        else
            expected(r, n, key, "text");
    }
    return list;
}

/* --- source --- */

static void take_env(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    bool fine = scalar(v) && !ascii_digit(v->text.p[0]);
    for (size_t i = 0; fine && i < v->text.n; i++)
        fine = ascii_alpha(v->text.p[i]) || ascii_digit(v->text.p[i]) || v->text.p[i] == '_';
    if (!fine) {
        expected(r, v, "source.env", "the name of an environment variable");
        return;
    }
    s->kind = MINTER_ENV;
    s->text = keep(r, v);
}

static void take_file(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    s->kind = MINTER_FILE;
    take_path(r, v, &s->text, "source.file");
}

static void take_exec(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    s->kind = MINTER_EXEC;
    s->argv = take_strings(r, v, "source.exec", "a list: the program and its arguments", &s->argc);
    if (!s->argv || !s->argc)
        return;
    struct str program = s->argv[0];
    if (program.p[0] != '/' &&
        str_find_char(program, '/') >= 0) /* a bare name is looked up, a path is relative to the file */
        s->argv[0] = arena_printf(&r->c->arena, "%.*s/%.*s", STR_ARG(r->dir), STR_ARG(program));
}

static void take_source(struct reader *r, const struct ynode *v, void *into)
{
    static const struct key keys[] = {
        { "env", false, take_env }, { "file", false, take_file }, { "exec", false, take_exec }, { NULL, false, NULL }
    };
    if (v->kind == YNODE_MAP && v->n != 1)
        expected(r, v, "source", "one of env, file, exec");
    else
        take_map(r, v, "source", keys, into);
}

/* --- credentials --- */

static void take_name(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    if (!scalar(v) || v->text.n > LEASE_NAME_MAX)
        expected(r, v, "name", "a credential's name");
    else
        s->credential = keep(r, v);
}

static void take_ttl(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    uint64_t ms;
    if (!scalar(v) || !parse_duration(v->text, &ms) || ms < 1000 || ms > 86400000)
        expected(r, v, "ttl", "a duration of 1s to 1d, as 15m");
    else
        s->ttl_ms = ms;
}

static void take_agents(struct reader *r, const struct ynode *v, void *into)
{
    struct minter_source *s = into;
    s->agents = take_strings(r, v, "agents", "a list of agents' names", &s->nagents);
}

static void take_credential(struct reader *r, const struct ynode *v, struct minter_source *s)
{
    static const struct key keys[] = { { "name", true, take_name },
                                       { "source", true, take_source },
                                       { "ttl", false, take_ttl },
                                       { "agents", false, take_agents },
                                       { NULL, false, NULL } };
    *s = (struct minter_source) { .ttl_ms = MINT_TTL_DEFAULT_MS, .value_fd = -1 };
    take_map(r, v, "credentials", keys, s);
    for (const struct minter_source *o = r->c->sources; o < s; o++)
        if (s->credential.n && str_eq(o->credential, s->credential))
            expected(r, v, "name", "another name than the credentials before");
}

static void take_credentials(struct reader *r, const struct ynode *v, void *into)
{
    struct mint_config *c = r->c;
    (void)into;
    if (v->kind != YNODE_LIST || !v->n || v->n > MINT_CREDENTIALS_MAX) {
        expected(r, v, "credentials", "a list of at least one credential");
        return;
    }
    c->sources = arena_alloc(&c->arena, v->n * sizeof *c->sources);
    c->at = arena_alloc(&c->arena, v->n * sizeof *c->at);
    if (!c->sources || !c->at) {
        expected(r, v, "credentials", "fewer of them (memory)");
        return;
    }
    for (const struct ynode *n = v->first; n; n = n->next, c->nsources++) {
        c->at[c->nsources] = (struct config_at) { n->line, n->col };
        take_credential(r, n, &c->sources[c->nsources]);
    }
}

struct mint_config *mint_config_parse(struct str file, struct str dir, struct str text, struct diag *diag)
{
    static const struct key keys[] = { { "version", true, take_version },         { "socket", true, take_socket },
                                       { "peer_uids", false, take_peers },        { "keeper", false, take_keeper },
                                       { "credentials", true, take_credentials }, { NULL, false, NULL } };
    struct ydoc_fault fault;
    struct mint_config *c = calloc(1, sizeof *c);
    if (!c) {
        diag_add(diag, true, "%.*s: no memory", STR_ARG(file));
        return NULL;
    }
    arena_init(&c->arena, 64 * 1024 * 1024);
    struct ydoc *d = ydoc_parse(text, MINT_CONFIG_MAX, &fault);
    struct reader r = { .c = c, .diag = diag, .file = file, .dir = dir };
    if (!d)
        diag_add(diag, true, "%.*s:%u:%u: %s: %s", STR_ARG(file), fault.line, fault.col,
                 fault.key[0] ? fault.key : "file", fault.err.text);
    else if (!ydoc_root(d))
        diag_add(diag, true, "%.*s:1:1: file: expected a map, got nothing", STR_ARG(file));
    else
        take_map(&r, ydoc_root(d), "file", keys, c);
    ydoc_free(d);
    if (diag->errors)
        mint_config_free(&c);
    return c;
}

void mint_config_free(struct mint_config **cp)
{
    struct mint_config *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    arena_done(&c->arena);
    free(c);
}
