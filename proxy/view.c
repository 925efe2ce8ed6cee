/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/view.h"

#include "proxy/origin_tls.h"

#include <openssl/evp.h>
#include <stdlib.h>

static struct str dup_str(struct str s)
{
    char *p = malloc(s.n + 1);
    if (!p)
        return STR_NONE;
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return str_of(p, s.n);
}

static int make_parent_login(struct view *v, struct err *err)
{
    struct str file = v->config->parent_proxy.given ? v->config->parent_proxy.login_file : STR_NONE;
    if (!file.p)
        return 0;
    struct str login = policy_side_file(v->policy, file);
    while (login.n && (login.p[login.n - 1] == '\n' || login.p[login.n - 1] == '\r'))
        login.n--;
    if (str_find_char(login, ':') < 1 || login.n > 4096)
        return err_set(err, "origin.parent_proxy.login_file: expected one line USER:PASSWORD");
    size_t cap = 6 + 4 * ((login.n + 2) / 3) + 1;
    char *p = malloc(cap);
    if (!p)
        return err_set(err, "out of memory");
    memcpy(p, "Basic ", 6);
    int n = EVP_EncodeBlock((unsigned char *)p + 6, (const unsigned char *)login.p, (int)login.n);
    v->parent_login = str_of(p, 6 + (size_t)n);
    return 0;
}

static struct canary *make_canary(const struct placeholder_table *t, struct err *err)
{
    size_t n = placeholder_count(t);
    struct canary_source *v = calloc(n + 1, sizeof *v);
    struct canary *canary = NULL;
    for (size_t i = 0; v && i < n; i++) {
        const struct placeholder *p = placeholder_at(t, (unsigned)i);
        v[i] = (struct canary_source) {
            .text = p->text, .fixed = placeholder_fixed(p), .agent = p->agent->name, .credential = p->credential->name
        };
    }
    if (v)
        canary = canary_new(v, n, err);
    else
        err_set(err, "out of memory");
    free(v);
    return canary;
}

struct view *view_new(const struct worker_snapshot *s, uint64_t number, struct err *err)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v) {
        err_set(err, "out of memory");
        return NULL;
    }
    v->refs = 1;
    v->number = number;
    v->policy = policy_ref(s->policy);
    v->config = policy_config(v->policy);
    v->limits = &v->config->limits;
    v->placeholders = placeholder_table_ref(s->placeholders);
    v->placeholder_needles = placeholder_needles(v->placeholders);
    v->own_ca = dup_str(s->own_ca);
    v->names = virtual_table_ref(s->names);
    v->origin_tls = origin_tls_new(v->policy, s->system_roots, s->own_ca, err);
    v->canary = v->origin_tls ? make_canary(v->placeholders, err) : NULL;
    if (!v->canary || !v->own_ca.p || make_parent_login(v, err)) {
        view_unref(&v);
        return NULL;
    }
    return v;
}

struct view *view_ref(struct view *v)
{
    v->refs++;
    return v;
}

void view_unref(struct view **vp)
{
    struct view *v = *vp;
    *vp = NULL;
    if (!v || --v->refs)
        return;
    SSL_CTX_free(v->origin_tls);
    canary_unref(&v->canary);
    virtual_table_unref(&v->names);
    placeholder_table_unref(&v->placeholders);
    policy_unref(&v->policy);
    free((char *)(uintptr_t)v->own_ca.p);
    if (v->parent_login.p)
        explicit_bzero((char *)(uintptr_t)v->parent_login.p, v->parent_login.n);
    free((char *)(uintptr_t)v->parent_login.p);
    free(v);
}
