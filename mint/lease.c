/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/lease.h"

#include "policy/host_pattern.h"
#include "policy/path_pattern.h"

#include <errno.h>
#include <stdlib.h>

bool lease_id_ok(struct str id)
{
    if (!id.n || id.n > LEASE_ID_MAX)
        return false;
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];
        if (!ascii_alpha(c) && !ascii_digit(c) && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

bool lease_value_ok(struct str value)
{
    if (value.n < LEASE_VALUE_MIN || value.n > LEASE_VALUE_MAX)
        return false;
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == '\r' || value.p[i] == '\n' || value.p[i] == 0)
            return false;
    return true;
}

static bool method_ok(struct str m)
{
    for (size_t i = 0; i < m.n; i++)
        if (!ascii_tchar(m.p[i]))
            return false;
    return m.n > 0;
}

static int no_memory(struct err *err)
{
    errno = ENOMEM;
    return err_set(err, "no memory for another lease");
}

static int bad(struct err *err, const char *what, struct str got)
{
    char word[80];
    errno = EINVAL;
    return err_set(err, "lease: expected %s, got \"%s\"", what, str_escape(got, word, sizeof word));
}

static int list_copy(struct arena *a, const struct name_list *from, struct name_list *to, struct err *err)
{
    if (!from->given)
        return 0;
    if (from->n > LEASE_SCOPE_ENTRIES)
        return bad(err, "at most 256 entries in a list of the scope", STR("more"));
    to->given = true;
    to->v = arena_alloc(a, (from->n + 1) * sizeof *to->v);
    if (!to->v)
        return no_memory(err);
    for (size_t i = 0; i < from->n; i++) {
        to->v[i] = arena_str(a, from->v[i]);
        if (!to->v[i].p)
            return no_memory(err);
        to->n++;
    }
    return 0;
}

static int scope_fill(struct lease *l, const struct lease_spec *s, struct err *err)
{
    struct lease_scope *scope = &l->scope;
    if (list_copy(&l->arena, &s->hosts, &scope->hosts, err) || list_copy(&l->arena, &s->methods, &scope->methods, err))
        return -1;
    for (size_t i = 0; i < scope->hosts.n; i++) {
        struct host_pattern h;
        bool converted;
        if (host_pattern_parse(scope->hosts.v[i], &h, &converted, NULL))
            return bad(err, "a host or *.suffix in scope.hosts", scope->hosts.v[i]);
    }
    for (size_t i = 0; i < scope->methods.n; i++)
        if (!method_ok(scope->methods.v[i]))
            return bad(err, "a method in scope.methods", scope->methods.v[i]);
    scope->paths_given = s->paths.given;
    if (!s->paths.given)
        return 0;
    if (s->paths.n > LEASE_SCOPE_ENTRIES)
        return bad(err, "at most 256 entries in a list of the scope", STR("more"));
    scope->paths = arena_alloc(&l->arena, (s->paths.n + 1) * sizeof *scope->paths);
    if (!scope->paths)
        return no_memory(err);
    for (; scope->npaths < s->paths.n; scope->npaths++)
        if (path_pattern_parse(s->paths.v[scope->npaths], &l->arena, &scope->paths[scope->npaths], NULL))
            return bad(err, "a path pattern in scope.paths", s->paths.v[scope->npaths]);
    return 0;
}

static int lease_fill(struct lease *l, const struct lease_spec *s, struct err *err)
{
    if (!lease_id_ok(s->id))
        return bad(err, "lease_id of 1 to 128 of [A-Za-z0-9._-]", s->id);
    if (!s->credential.n || s->credential.n > LEASE_NAME_MAX)
        return bad(err, "a credential's name", s->credential);
    if (!s->agent.n || s->agent.n > LEASE_NAME_MAX)
        return bad(err, "an agent's name", s->agent);
    if (!lease_value_ok(s->value))
        return bad(err, "a value of 4 to 10240 bytes without CR, LF and NUL", STR("another"));
    if (s->expires_us <= 0)
        return bad(err, "an expiry after 1970", STR("another"));
    memcpy(l->id, s->id.p, s->id.n);
    l->credential = arena_str(&l->arena, s->credential);
    l->agent = arena_str(&l->arena, s->agent);
    l->expires_us = s->expires_us;
    l->refresh_us = s->refresh_us;
    if (!l->credential.p || !l->agent.p)
        return no_memory(err);
    if (scope_fill(l, s, err))
        return -1;
    l->value = secret_new(s->value.p, s->value.n);
    return l->value ? 0 : no_memory(err);
}

struct lease *lease_new(const struct lease_spec *spec, struct err *err)
{
    struct lease *l = calloc(1, sizeof *l);
    if (!l) {
        no_memory(err);
        return NULL;
    }
    l->refs = 1;
    arena_init(&l->arena, LEASE_ARENA_MAX);
    if (lease_fill(l, spec, err)) {
        int why = errno;
        lease_unref(&l);
        errno = why;
    }
    return l;
}

struct lease *lease_ref(struct lease *l)
{
    if (l)
        l->refs++;
    return l;
}

void lease_unref(struct lease **l)
{
    struct lease *d = *l;
    *l = NULL;
    if (!d || --d->refs)
        return;
    secret_unref(&d->value);
    arena_done(&d->arena);
    free(d);
}

bool lease_expired(const struct lease *l, int64_t now_us)
{
    return now_us >= l->expires_us - (int64_t)LEASE_SKEW_MS * 1000;
}

bool lease_dead(const struct lease *l, int64_t now_us)
{
    return now_us >= l->expires_us;
}

static bool host_covered(const struct lease_scope *s, const struct host *host)
{
    for (size_t i = 0; i < s->hosts.n; i++) {
        struct host_pattern h;
        bool converted;
        if (!host_pattern_parse(s->hosts.v[i], &h, &converted, NULL) && host_pattern_matches(&h, host))
            return true;
    }
    return !s->hosts.given;
}

static bool method_covered(const struct lease_scope *s, struct str method)
{
    for (size_t i = 0; i < s->methods.n; i++)
        if (str_eq(s->methods.v[i], method))
            return true;
    return !s->methods.given;
}

static bool path_covered(const struct lease_scope *s, struct str path)
{
    for (size_t i = 0; i < s->npaths; i++)
        if (path_pattern_matches(&s->paths[i], path))
            return true;
    return !s->paths_given;
}

bool lease_covers(const struct lease *l, const struct ask *ask)
{
    return ask->agent && str_eq(l->agent, ask->agent->name) && ask->host && host_covered(&l->scope, ask->host) &&
           method_covered(&l->scope, ask->method) && path_covered(&l->scope, ask->path);
}
