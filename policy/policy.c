/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot: made from a configuration and the side files, shared by reference, never changed. */
#include "policy/policy_impl.h"

#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { POLICY_ARENA_MAX = 512 * 1024 * 1024, SIDE_FILES_MAX = 64 * 1024 * 1024 };

__attribute__((format(printf, 5, 0))) static void put_diag(const struct policy *p, struct diag *diag, bool error,
                                                           struct config_at at, const char *format, va_list ap)
{
    char text[700];
    vsnprintf(text, sizeof text, format, ap);
    diag_add_at(diag, error, at, "%.*s:%u:%u: %s", STR_ARG(p->config->file), at.line, at.col, text);
}

void policy_error(const struct policy *p, struct diag *diag, struct config_at at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    put_diag(p, diag, true, at, format, ap);
    va_end(ap);
}

void policy_warning(const struct policy *p, struct diag *diag, struct config_at at, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    put_diag(p, diag, false, at, format, ap);
    va_end(ap);
}

static int by_path(const void *a, const void *b)
{
    const struct side_file *x = a, *y = b;
    return str_cmp(x->path, y->path);
}

/* Own copies of the side files that the configuration names, ordered by path. */
static bool take_files(struct policy *p, const struct side_file *files, size_t nfiles)
{
    size_t total = 0;
    p->files = calloc(nfiles + 1, sizeof *p->files);
    if (!p->files)
        return false;
    for (size_t i = 0; i < nfiles; i++) {
        struct side_file *f = &p->files[p->nfiles];
        total += files[i].bytes.n;
        if (total > SIDE_FILES_MAX)
            return false;
        char *copy = malloc(files[i].bytes.n + 1);
        if (!copy)
            return false;
        if (files[i].bytes.n)
            memcpy(copy, files[i].bytes.p, files[i].bytes.n);
        f->bytes = str_of(copy, files[i].bytes.n);
        p->nfiles++;
        f->path = arena_str(&p->arena, files[i].path);
        if (!f->path.p)
            return false;
    }
    if (p->nfiles)
        qsort(p->files, p->nfiles, sizeof *p->files, by_path);
    return true;
}

struct str policy_side_file(const struct policy *p, struct str path)
{
    struct side_file key = { .path = path };
    const struct side_file *f = p->nfiles ? bsearch(&key, p->files, p->nfiles, sizeof *p->files, by_path) : NULL;
    return f ? f->bytes : STR_NONE;
}

static bool make_hash(struct policy *p)
{
    size_t n = sizeof p->config->sha256;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned char *all = arena_alloc(&p->arena, n + 2 * p->nfiles * sizeof digest);
    if (!all)
        return false;
    memcpy(all, p->config->sha256, n);
    for (size_t i = 0; i < p->nfiles; i++) {
        SHA256((const unsigned char *)p->files[i].path.p, p->files[i].path.n, all + n);
        SHA256((const unsigned char *)p->files[i].bytes.p, p->files[i].bytes.n, all + n + sizeof digest);
        n += 2 * sizeof digest;
    }
    SHA256(all, n, digest);
    for (size_t i = 0; i < 8; i++)
        snprintf(p->hash + 2 * i, 3, "%02x", digest[i]);
    return true;
}

struct str policy_hash(const struct policy *p)
{
    return str_of(p->hash, sizeof p->hash - 1);
}

/* Where this name stands, or the free slot where it would. Half of them are free. */
static const struct agent **agent_slot(const struct policy *p, struct str name)
{
    size_t at = (size_t)str_hash(name) & p->agents_mask;
    while (p->agents[at] && !str_eq(p->agents[at]->name, name))
        at = (at + 1) & p->agents_mask;
    return &p->agents[at];
}

static bool index_agents(struct policy *p)
{
    size_t n = 2;
    while (n < 2 * p->config->nagents)
        n *= 2;
    p->agents_mask = n - 1;
    p->agents = arena_alloc(&p->arena, n * sizeof *p->agents);
    for (size_t i = 0; p->agents && i < p->config->nagents; i++) {
        const struct agent **slot = agent_slot(p, p->config->agents[i].name);
        *slot = *slot ? *slot : &p->config->agents[i];
    }
    return p->agents != NULL;
}

const struct agent *policy_agent(const struct policy *p, struct str name)
{
    return *agent_slot(p, name);
}

/* The set of agents that a list names; unknown names are left out here and reported by policy_check. */
static bool agent_set(struct policy *p, const struct name_list *names, const uint64_t **ret)
{
    *ret = NULL;
    if (!names->given)
        return true;
    uint64_t *set = arena_alloc(&p->arena, (p->agent_words + 1) * sizeof *set);
    if (!set)
        return false;
    for (size_t i = 0; i < names->n; i++) {
        const struct agent *a = policy_agent(p, names->v[i]);
        if (a)
            set[a->index / 64] |= (uint64_t)1 << (a->index % 64);
    }
    *ret = set;
    return true;
}

static struct host_index_entry *add_entries(struct host_index_entry *e, const struct host_pattern *v, size_t n,
                                            unsigned id)
{
    for (size_t i = 0; i < n; i++)
        *e++ = (struct host_index_entry) { .pattern = &v[i], .id = id };
    return e;
}

static bool compile_rules(struct policy *p)
{
    const struct config *c = p->config;
    size_t n = 0;
    for (size_t i = 0; i < c->nrules; i++)
        n += c->rules[i].nhosts;
    struct host_index_entry *entries = calloc(n + 1, sizeof *entries), *e = entries;
    p->rule_agents = arena_alloc(&p->arena, (c->nrules + 1) * sizeof *p->rule_agents);
    bool ok = entries && p->rule_agents;
    for (size_t i = 0; ok && i < c->nrules; i++) {
        e = add_entries(e, c->rules[i].hosts, c->rules[i].nhosts, (unsigned)i);
        ok = agent_set(p, &c->rules[i].agents, &p->rule_agents[i]);
    }
    p->rule_index = ok ? host_index_new(entries, n) : NULL;
    free(entries);
    return p->rule_index;
}

static bool compile_credentials(struct policy *p)
{
    const struct config *c = p->config;
    size_t n = 0;
    for (size_t i = 0; i < c->ncredentials; i++)
        n += c->credentials[i].nhosts;
    struct host_index_entry *entries = calloc(n + 1, sizeof *entries), *e = entries;
    p->credential_agents = arena_alloc(&p->arena, (c->ncredentials + 1) * sizeof *p->credential_agents);
    bool ok = entries && p->credential_agents;
    for (size_t i = 0; ok && i < c->ncredentials; i++) {
        e = add_entries(e, c->credentials[i].hosts, c->credentials[i].nhosts, (unsigned)i);
        ok = agent_set(p, &c->credentials[i].agents, &p->credential_agents[i]);
    }
    p->credential_index = ok ? host_index_new(entries, n) : NULL;
    free(entries);
    return p->credential_index;
}

struct policy *policy_new(struct config *take, const struct side_file *files, size_t nfiles, struct diag *diag)
{
    struct policy *p = calloc(1, sizeof *p);
    size_t errors = diag->errors;
    if (!p) {
        diag_add(diag, true, "%.*s:1:1: file: expected enough memory, got none", STR_ARG(take->file));
        config_free(take);
        return NULL;
    }
    p->refs = 1;
    p->config = take;
    p->agent_words = (take->nagents + 63) / 64;
    arena_init(&p->arena, POLICY_ARENA_MAX);
    if (!take_files(p, files, nfiles) || !make_hash(p) || !index_agents(p) || !compile_rules(p) ||
        !compile_credentials(p)) {
        policy_error(p, diag, (struct config_at) { 1, 1 },
                     "file: expected less (side files of at most 64 MiB together) or more memory, got none");
    } else {
        identity_compile(p, diag);
        policy_check(p, diag);
    }
    if (diag->errors != errors)
        policy_unref(&p);
    return p;
}

struct policy *policy_ref(struct policy *p)
{
    if (p)
        p->refs++;
    return p;
}

static void wipe(struct side_file *f)
{
    char *bytes;
    memcpy(&bytes, &f->bytes.p, sizeof bytes); /* ours, borrowed as const by everyone else */
    if (bytes)
        explicit_bzero(bytes, f->bytes.n);
    free(bytes);
}

void policy_unref(struct policy **pp)
{
    struct policy *p = *pp;
    *pp = NULL;
    if (!p || --p->refs)
        return;
    for (size_t i = 0; i < p->nfiles; i++)
        wipe(&p->files[i]);
    free(p->files);
    host_index_free(p->rule_index);
    host_index_free(p->credential_index);
    arena_done(&p->arena);
    config_free(p->config);
    free(p);
}

const struct config *policy_config(const struct policy *p)
{
    return p->config;
}
