/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is this? Each kind of evidence (source address, login, peer uid, listener) leads to at most one agent, because
 * overlaps are refused when the snapshot is made. What leads to somebody must lead to the same one; where an agent's
 * claims list sources (or uids), a connection that has a source (or uid) must match one of them. */
#include "policy/policy_impl.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>

enum { TOKEN_MAX = 1024 };

static void digest_of(struct str token, unsigned char out[DIGEST])
{
    SHA256((const unsigned char *)(token.p ? token.p : ""), token.n, out);
}

/* --- compiling --- */

static int ip_order(const struct ip *a, const struct ip *b)
{
    return a->family != b->family ? (a->family < b->family ? -1 : 1) : memcmp(a->b, b->b, sizeof a->b);
}
static int by_first(const void *a, const void *b)
{
    return ip_order(&((const struct source_claim *)a)->first, &((const struct source_claim *)b)->first);
}
static int by_user(const void *a, const void *b)
{
    return str_cmp(((const struct login_claim *)a)->user, ((const struct login_claim *)b)->user);
}
static int by_uid(const void *a, const void *b)
{
    const struct uid_claim *x = a, *y = b;
    return x->uid < y->uid ? -1 : x->uid > y->uid;
}
static int by_text(const void *a, const void *b)
{
    return str_cmp(((const struct listener_claim *)a)->text, ((const struct listener_claim *)b)->text);
}

static struct ip last_of(const struct cidr *c)
{
    struct ip ip = c->net;
    unsigned width = ip.family == 4 ? 32 : 128;
    for (unsigned i = c->bits; i < width; i++)
        ip.b[i / 8] |= (uint8_t)(0x80u >> (i % 8));
    return ip;
}

/* A token of 128 bits or more: 32 hex digits, or 22 characters of base64 in either alphabet. NULL when it is fine. */
static const char *token_fault(struct str token)
{
    bool seen[256] = { false }, hex = true;
    unsigned distinct = 0;
    if (token.n > TOKEN_MAX)
        return "at most 1024 characters";
    for (size_t i = 0; i < token.n; i++) {
        unsigned char c = (unsigned char)token.p[i];
        if (c <= 0x20 || c >= 0x7f || c == ':')
            return "one line of visible ASCII without \":\"";
        if (ascii_hex((char)c) < 0)
            hex = false;
        distinct += !seen[c];
        seen[c] = true;
    }
    if (token.n < (hex ? 32 : 22) || distinct < 8)
        return "a random token of 128 bits or more (32 hex digits or 22 characters of base64url)";
    return NULL;
}

static void add_login(struct policy *p, const struct agent *a, const struct config_claim *claim, struct diag *diag)
{
    struct str token = policy_side_file(p, claim->token_file);
    if (!token.p) {
        policy_error(p, diag, claim->at, "identify.login.token_file: expected a readable file, got none at \"%.*s\"",
                     STR_ARG(claim->token_file));
        return;
    }
    if (str_ends(token, STR("\n")))
        token.n--;
    const char *fault = token_fault(token);
    if (fault) {
        policy_error(p, diag, claim->at, "identify.login.token_file: expected %s in \"%.*s\", got something else",
                     fault, STR_ARG(claim->token_file));
        return;
    }
    struct login_claim *l = &p->identity.logins[p->identity.nlogins++];
    *l = (struct login_claim) { .user = claim->user, .claim = claim, .agent = a };
    digest_of(token, l->digest);
}

/* Logins cross the network in clear text unless the listener is TLS. */
static void check_login_listeners(const struct policy *p, const struct config_claim *claim, struct diag *diag)
{
    for (size_t i = 0; i < p->config->nproxy; i++) {
        const struct config_listener *l = &p->config->proxy[i];
        static const struct ip one = { .family = 6, .b = { [15] = 1 } };
        bool loopback = l->ip.family == 4 ? l->ip.b[0] == 127 : ip_equal(&l->ip, &one);
        if (l->kind == LISTENER_TCP && !loopback) {
            policy_error(
                p, diag, claim->at,
                "identify.login: expected only loopback, unix: and tls: listeners where agents log in, got \"%.*s\" on "
                "line %u",
                STR_ARG(l->text), l->at.line);
            return;
        }
    }
}

static void add_listener(struct policy *p, const struct agent *a, const struct config_claim *claim, struct diag *diag)
{
    struct identity *x = &p->identity;
    const struct config *c = p->config;
    for (size_t i = 0; i < c->nproxy + c->ndns; i++) {
        struct str text = i < c->nproxy ? c->proxy[i].text : c->dns[i - c->nproxy].text;
        if (!str_eq(text, claim->listener))
            continue;
        x->listeners[x->nlisteners++] = (struct listener_claim) { .text = text, .claim = claim, .agent = a };
        return;
    }
    policy_error(p, diag, claim->at,
                 "identify.listener: expected a listener as written in listen.proxy or listen.dns, got \"%.*s\"",
                 STR_ARG(claim->listener));
}

static void add_uid(struct policy *p, const struct agent *a, const struct config_claim *claim, struct diag *diag)
{
    struct identity *x = &p->identity;
    bool any = false;
    for (size_t i = 0; i < p->config->nproxy; i++)
        any |= p->config->proxy[i].kind == LISTENER_UNIX;
    if (!any)
        policy_warning(p, diag, claim->at,
                       "identify.unix_uid: expected a unix: listener in listen.proxy, got none: this claim "
                       "can never hold");
    x->uids[x->nuids++] = (struct uid_claim) { .uid = claim->unix_uid, .claim = claim, .agent = a };
}

static void add_claim(struct policy *p, const struct agent *a, const struct config_claim *claim, struct diag *diag)
{
    struct identity *x = &p->identity;
    struct agent_kinds *kinds = &x->kinds[a->index];
    switch (claim->kind) {
    case CLAIM_SOURCE:
        kinds->source = true;
        x->sources[x->nsources++] = (struct source_claim) {
            .first = claim->source.net, .last = last_of(&claim->source), .claim = claim, .agent = a
        };
        return;
    case CLAIM_LOGIN:
        kinds->login = true;
        add_login(p, a, claim, diag);
        check_login_listeners(p, claim, diag);
        return;
    case CLAIM_UNIX_UID:
        kinds->uid = true;
        add_uid(p, a, claim, diag);
        return;
    case CLAIM_LISTENER:
        kinds->listener = true;
        add_listener(p, a, claim, diag);
        return;
    }
}

static void overlap(const struct policy *p, struct diag *diag, const char *key, const struct config_claim *a,
                    const struct config_claim *b)
{
    bool swap = a->at.line > b->at.line;
    policy_error(p, diag, swap ? a->at : b->at,
                 "identify.%s: expected claims that do not overlap, got one that overlaps line %u", key,
                 swap ? b->at.line : a->at.line);
}

static void check_overlaps(const struct policy *p, struct diag *diag)
{
    const struct identity *x = &p->identity;
    for (size_t i = 1; i < x->nsources; i++)
        if (ip_order(&x->sources[i].first, &x->sources[i - 1].last) <= 0)
            overlap(p, diag, "source", x->sources[i - 1].claim, x->sources[i].claim);
    for (size_t i = 1; i < x->nlogins; i++)
        if (str_eq(x->logins[i].user, x->logins[i - 1].user))
            overlap(p, diag, "login", x->logins[i - 1].claim, x->logins[i].claim);
    for (size_t i = 1; i < x->nuids; i++)
        if (x->uids[i].uid == x->uids[i - 1].uid)
            overlap(p, diag, "unix_uid", x->uids[i - 1].claim, x->uids[i].claim);
    for (size_t i = 1; i < x->nlisteners; i++)
        if (str_eq(x->listeners[i].text, x->listeners[i - 1].text))
            overlap(p, diag, "listener", x->listeners[i - 1].claim, x->listeners[i].claim);
}

void identity_compile(struct policy *p, struct diag *diag)
{
    const struct config *c = p->config;
    struct identity *x = &p->identity;
    size_t n = 1;
    for (size_t i = 0; i < c->nagents; i++)
        n += c->agents[i].nclaims;
    x->sources = arena_alloc(&p->arena, n * sizeof *x->sources);
    x->logins = arena_alloc(&p->arena, n * sizeof *x->logins);
    x->uids = arena_alloc(&p->arena, n * sizeof *x->uids);
    x->listeners = arena_alloc(&p->arena, n * sizeof *x->listeners);
    x->kinds = arena_alloc(&p->arena, (c->nagents + 1) * sizeof *x->kinds);
    if (!x->sources || !x->logins || !x->uids || !x->listeners || !x->kinds) {
        policy_error(p, diag, (struct config_at) { 1, 1 }, "agents: expected enough memory, got none");
        return;
    }
    for (size_t i = 0; i < c->nagents; i++)
        for (size_t k = 0; k < c->agents[i].nclaims; k++)
            add_claim(p, &c->agents[i], &c->agents[i].claims[k], diag);
    qsort(x->sources, x->nsources, sizeof *x->sources, by_first);
    qsort(x->logins, x->nlogins, sizeof *x->logins, by_user);
    qsort(x->uids, x->nuids, sizeof *x->uids, by_uid);
    qsort(x->listeners, x->nlisteners, sizeof *x->listeners, by_text);
    check_overlaps(p, diag);
}

/* --- looking up --- */

static const struct agent *by_source(const struct identity *x, const struct ip *source)
{
    struct ip ip = ip_unmapped(source); /* a v6 socket that also takes v4 */
    size_t lo = 0, hi = x->nsources; /* the last claim that starts at or before ip */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (ip_order(&x->sources[mid].first, &ip) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && ip_order(&ip, &x->sources[lo - 1].last) <= 0 ? x->sources[lo - 1].agent : NULL;
}

/* As long for an unknown user as for a known one. */
static const struct agent *by_login(const struct identity *x, const struct claims *c)
{
    static const struct login_claim nobody = { .agent = NULL };
    struct login_claim key = { .user = c->user };
    const struct login_claim *l = x->nlogins ? bsearch(&key, x->logins, x->nlogins, sizeof *x->logins, by_user) : NULL;
    unsigned char digest[DIGEST];
    if (!c->token_digest)
        digest_of(c->token, digest);
    const struct login_claim *against = l ? l : &nobody;
    return !CRYPTO_memcmp(c->token_digest ? c->token_digest : digest, against->digest, DIGEST) ? against->agent : NULL;
}

/* A run's token stands in for that of its agent's login, with the same user. */
static const struct agent *by_run(const struct identity *x, struct str user, struct str agent)
{
    struct login_claim key = { .user = user };
    const struct login_claim *l =
        agent.n && x->nlogins ? bsearch(&key, x->logins, x->nlogins, sizeof *x->logins, by_user) : NULL;
    return l && str_eq(l->agent->name, agent) ? l->agent : NULL;
}

struct evidence {
    const struct agent *source, *uid, *listener, *login;
};

/* Would this agent's claims hold, given what is not a login? */
static bool could_be(const struct policy *p, const struct claims *c, const struct evidence *e, const struct agent *a)
{
    const struct agent_kinds *kinds = &p->identity.kinds[a->index];
    if (c->source.family && e->source != a && (e->source || kinds->source))
        return false;
    if (c->has_unix_uid && e->uid != a && (e->uid || kinds->uid))
        return false;
    return !e->listener || e->listener == a;
}

static enum identify_result unknown(const struct policy *p, const struct claims *c, const struct evidence *e)
{
    for (size_t i = 0; i < p->identity.nlogins; i++)
        if (could_be(p, c, e, p->identity.logins[i].agent))
            return IDENTIFY_LOGIN;
    return IDENTIFY_UNKNOWN;
}

enum identify_result policy_identify(const struct policy *p, const struct claims *c, const struct agent **ret_agent)
{
    const struct identity *x = &p->identity;
    struct evidence e = { 0 };
    if (c->source.family)
        e.source = by_source(x, &c->source);
    if (c->has_unix_uid) {
        struct uid_claim key = { .uid = c->unix_uid };
        const struct uid_claim *u = x->nuids ? bsearch(&key, x->uids, x->nuids, sizeof *x->uids, by_uid) : NULL;
        e.uid = u ? u->agent : NULL;
    }
    struct listener_claim key = { .text = c->listener };
    const struct listener_claim *l =
        x->nlisteners ? bsearch(&key, x->listeners, x->nlisteners, sizeof *x->listeners, by_text) : NULL;
    e.listener = l ? l->agent : NULL;
    if (c->has_login) {
        e.login = by_login(x, c);
        if (!e.login)
            e.login = by_run(x, c->user, c->run_agent);
        if (!e.login)
            return unknown(p, c, &e);
    }
    const struct agent *a = e.login ? e.login : e.listener ? e.listener : e.source ? e.source : e.uid;
    if (!a || !could_be(p, c, &e, a))
        return unknown(p, c, &e);
    *ret_agent = a;
    return IDENTIFY_OK;
}
