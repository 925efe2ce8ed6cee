/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/env_vars.h"

#include "base/log.h"
#include "daemon/env_files.h"
#include "daemon/env_listener.h"
#include "daemon/files.h"
#include "daemon/trust.h"
#include "mint/placeholder.h"

#include <jansson.h>
#include <stdlib.h>

enum env_kind {
    ENV_PROXY,
    ENV_LOCAL,
    ENV_BUNDLE,
    ENV_CA,
    ENV_ONE,
    ENV_TRUE,
    ENV_SYSTEM,
    ENV_CERT_DIR,
    ENV_BASIC,
    ENV_JAVA,
    ENV_WGETRC,
    ENV_APT,
    ENV_KINDS
};

static const struct {
    const char *name;
    enum env_kind kind;
} table[] = {
#define ENV_VAR(name, kind) { #name, ENV_##kind },
#include "daemon/env_vars.def"
#undef ENV_VAR
};

static const char *const known_secrets[] = {
#define KNOWN_SECRET(name) #name,
#include "daemon/known_secrets.def"
#undef KNOWN_SECRET
};

/* Where a client finds us. */
struct place {
    char *url;         /* with the login, where the agent has one */
    char *host, *port; /* of url, NULL when it has none */
};

static void add(struct env_vars *vars, const char *name, char *value)
{
    struct env_var *v = reallocarray(vars->v, vars->n + 1, sizeof *v);
    MUST(v);
    vars->v = v;
    vars->v[vars->n++] = (struct env_var) { z_of(str_c(name)), value };
}

static void add_some(struct env_vars *vars, const char *name, char *value)
{
    if (value)
        add(vars, name, value);
}

const char *env_vars_get(const struct env_vars *vars, const char *name)
{
    for (size_t i = 0; i < vars->n; i++)
        if (strcmp(vars->v[i].name, name) == 0)
            return vars->v[i].value;
    return NULL;
}

static void put_percent(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (ascii_alpha(c) || ascii_digit(c) || (c && strchr("-._~", c)))
            buf_putc(out, c);
        else
            buf_putf(out, "%%%02X", (unsigned)(unsigned char)c);
    }
}

static struct str trim_lf(struct str s)
{
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r'))
        s.n--;
    return s;
}

static void put_login(const struct gather *g, const struct agent *agent, struct str token, struct buf *out)
{
    for (size_t i = 0; i < agent->nclaims; i++) {
        const struct config_claim *c = &agent->claims[i];
        if (c->kind != CLAIM_LOGIN)
            continue;
        out->wipe = true;
        put_percent(out, c->user);
        buf_putc(out, ':');
        put_percent(out, token.n ? token : trim_lf(policy_side_file(g->policy, c->token_file)));
        buf_putc(out, '@');
        return;
    }
}

/* "http://" or "https://", and the authority, of what the agent should use. */
static int authority(const struct gather *g, const struct agent *agent, struct str *ret_scheme, struct buf *out,
                     struct err *err)
{
    *ret_scheme = STR("http://");
    if (agent->advertise_proxy.n) {
        struct str a = agent->advertise_proxy;
        if (str_starts(a, STR("https://")))
            *ret_scheme = STR("https://");
        if (str_starts(a, *ret_scheme))
            a = str_from(a, ret_scheme->n);
        while (a.n && a.p[a.n - 1] == '/')
            a.n--;
        return buf_put(out, a);
    }
    const struct config_listener *l = env_listener_of(g->config, agent, err);
    if (!l)
        return -1;
    struct ip ip = l->ip;
    static const uint8_t zero[16];
    if (memcmp(ip.b, zero, sizeof zero) == 0) /* any address: from this machine, loopback */
        ip = ip.family == 4 ? (struct ip) { 4, { 127, 0, 0, 1 } } : (struct ip) { 6, { [15] = 1 } };
    if (l->kind == LISTENER_TLS)
        *ret_scheme = STR("https://");
    char text[46];
    if (l->kind == LISTENER_TLS && g->config->nlisten_names)
        buf_put(out, g->config->listen_names[0]);
    else
        buf_putf(out, ip.family == 6 ? "[%s]" : "%s", ip_format(&ip, text));
    return buf_putf(out, ":%u", l->port);
}

static int place_make(const struct gather *g, const struct agent *agent, struct str login, struct place *ret,
                      struct err *err)
{
    struct buf auth, url;
    struct str scheme;
    buf_init(&auth, 4096);
    buf_init(&url, 16384);
    if (authority(g, agent, &scheme, &auth, err)) {
        buf_done(&auth);
        return -1;
    }
    struct str a = buf_str(&auth);
    ptrdiff_t colon = str_rfind_char(a, ':');
    struct str host = colon > 0 ? str_sub(a, 0, (size_t)colon) : a;
    if (host.n > 2 && host.p[0] == '[')
        host = str_sub(host, 1, host.n - 2);
    ret->host = z_of(host);
    ret->port = z_of(colon > 0                        ? str_from(a, (size_t)colon + 1)
                     : str_eq(scheme, STR("http://")) ? STR("80")
                                                      : STR("443"));
    buf_put(&url, scheme);
    put_login(g, agent, login, &url);
    buf_put(&url, a);
    ret->url = z_of(buf_str(&url));
    buf_done(&auth);
    buf_done(&url);
    return 0;
}

/* NULL: nothing to say. */
static char *value_of(enum env_kind kind, const struct place *p, const char *trust, struct str state_dir)
{
    switch (kind) {
    case ENV_PROXY:
        return z_of(str_c(p->url));
    case ENV_LOCAL:
        return z_of(STR("localhost,127.0.0.1,::1"));
    case ENV_BUNDLE:
        return z_printf("%s/bundle.pem", trust);
    case ENV_CA:
        return z_printf("%s/ca.pem", trust);
    case ENV_ONE:
        return z_of(STR("1"));
    case ENV_TRUE:
        return z_of(STR("True"));
    case ENV_CERT_DIR:
        return z_of(STR("/etc/ssl/certs"));
    case ENV_SYSTEM:
        return z_of(STR("system"));
    case ENV_BASIC:
        return z_of(STR("basic"));
    case ENV_JAVA:
        return z_printf("-Dhttp.proxyHost=%s -Dhttp.proxyPort=%s -Dhttps.proxyHost=%s -Dhttps.proxyPort=%s "
                        "-Dhttp.nonProxyHosts=localhost|127.0.0.1 -Djavax.net.ssl.trustStore=%s/truststore.p12 "
                        "-Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" TRUST_P12_PASSWORD,
                        p->host, p->port, p->host, p->port, trust);
    case ENV_WGETRC:
        return env_file_path(ENV_FILE_WGETRC, str_c(trust), state_dir);
    case ENV_APT:
        return env_file_path(ENV_FILE_APT, str_c(trust), state_dir);
    case ENV_KINDS:
        break;
    }
    return z_of(STR(""));
}

static bool agent_has(const struct credential *c, const struct agent *agent)
{
    for (size_t i = 0; i < c->agents.n; i++)
        if (str_eq(c->agents.v[i], agent->name))
            return true;
    return false;
}

static int add_placeholders(const struct gather *g, const struct agent *agent, struct str install_key,
                            struct env_vars *ret, struct err *err)
{
    struct placeholder_table *t = placeholder_table_new(g->policy, install_key, err);
    if (!t)
        return -1;
    for (size_t i = 0; i < g->config->ncredentials; i++) {
        const struct credential *c = &g->config->credentials[i];
        const struct placeholder *p = c->env.n && agent_has(c, agent) ? placeholder_of(t, agent, c) : NULL;
        char *name = p ? z_of(c->env) : NULL;
        if (p && !env_vars_get(ret, name))
            add(ret, name, z_of(p->text));
        free(name);
    }
    placeholder_table_unref(&t);
    return 0;
}

int env_vars_make(const struct gather *g, const struct agent *agent, struct str install_key, struct str login,
                  struct env_vars *ret, struct err *err)
{
    struct place place;
    *ret = (struct env_vars) { NULL, 0 };
    if (place_make(g, agent, login, &place, err))
        return -1;
    char *trust = agent->advertise_trust_dir.n ? z_of(agent->advertise_trust_dir)
                                               : z_printf("%.*s/trust", STR_ARG(g->config->state_dir));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        add_some(ret, table[i].name, value_of(table[i].kind, &place, trust, g->config->state_dir));
    int r = add_placeholders(g, agent, install_key, ret, err);
    explicit_bzero(place.url, strlen(place.url));
    free(place.url);
    free(place.host);
    free(place.port);
    free(trust);
    if (r)
        env_vars_done(ret);
    return r;
}

void env_vars_done(struct env_vars *vars)
{
    for (size_t i = 0; i < vars->n; i++) {
        free(vars->v[i].name);
        free(vars->v[i].value);
    }
    free(vars->v);
    *vars = (struct env_vars) { NULL, 0 };
}

static void put_sh(const struct env_var *v, struct buf *out)
{
    buf_putf(out, "export %s='", v->name);
    for (const char *p = v->value; *p; p++)
        if (*p == '\'')
            buf_put(out, STR("'\\''"));
        else
            buf_putc(out, *p);
    buf_put(out, STR("'\n"));
}

static int put_json(const struct env_vars *vars, struct buf *out)
{
    json_t *root = json_object();
    for (size_t i = 0; i < vars->n; i++)
        json_object_set_new(root, vars->v[i].name, json_string(vars->v[i].value));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    int r = text ? buf_put(out, str_c(text)) || buf_putc(out, '\n') ? -1 : 0 : -1;
    free(text);
    return r;
}

int env_vars_put(const struct env_vars *vars, struct str format, struct buf *out, struct err *err)
{
    enum env_file file;
    if (env_file_parse(format, &file))
        return env_file_put(file, vars, out, err);
    if (str_eq(format, STR("json")))
        return put_json(vars, out) ? err_set(err, "the variables cannot be written as JSON") : 0;
    bool docker = str_eq(format, STR("docker"));
    for (size_t i = 0; i < vars->n; i++) {
        if (docker && strchr(vars->v[i].value, '\n'))
            return err_set(err, "%s: docker's env files cannot hold a line end", vars->v[i].name);
        if (docker)
            buf_putf(out, "%s=%s\n", vars->v[i].name, vars->v[i].value);
        else
            put_sh(&vars->v[i], out);
    }
    return out->failed ? err_set(err, "out of memory") : 0;
}

bool env_is_secret(const struct config *c, const struct env_vars *vars, const char *name)
{
    if (env_vars_get(vars, name))
        return false;
    for (size_t i = 0; i < c->ncredentials; i++) {
        const struct credential *cred = &c->credentials[i];
        if (str_eq(cred->env, str_c(name)) || (cred->source == SOURCE_ENV && str_eq(cred->source_text, str_c(name))))
            return true;
    }
    for (size_t i = 0; i < sizeof known_secrets / sizeof *known_secrets; i++)
        if (strcmp(known_secrets[i], name) == 0)
            return true;
    return false;
}
