/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_impl: what the files of the snapshot share. Private to policy/. */
#ifndef POLICY_POLICY_IMPL_H
#define POLICY_POLICY_IMPL_H

#include "policy/host_index.h"
#include "policy/policy.h"

enum { DIGEST = 32 };

/* The claims of all agents, each kind ordered for a binary search. */
struct source_claim {
    struct ip first, last; /* of the prefix */
    const struct config_claim *claim;
    const struct agent *agent;
};
struct login_claim {
    struct str user;
    unsigned char digest[DIGEST]; /* SHA-256 of the token: the token itself is not kept here */
    const struct config_claim *claim;
    const struct agent *agent;
};
struct uid_claim {
    uint64_t uid;
    const struct config_claim *claim;
    const struct agent *agent;
};
struct listener_claim {
    struct str text;
    const struct config_claim *claim;
    const struct agent *agent;
};
struct agent_kinds { /* which kinds of claims an agent has */
    bool source, login, uid, listener;
};
struct identity {
    struct source_claim *sources;
    size_t nsources;
    struct login_claim *logins;
    size_t nlogins;
    struct uid_claim *uids;
    size_t nuids;
    struct listener_claim *listeners;
    size_t nlisteners;
    struct agent_kinds *kinds; /* by agent index */
};

struct policy {
    unsigned refs;
    struct config *config;
    struct arena arena;
    struct side_file *files; /* own copies, wiped on release: some hold tokens */
    size_t nfiles;
    char hash[17];
    struct host_index *rule_index, *credential_index;
    size_t agent_words;
    const struct agent **agents; /* by name: open addressing, agents_mask + 1 slots */
    size_t agents_mask;
    const uint64_t **rule_agents, **credential_agents; /* bit sets by agent index; NULL: all */
    struct identity identity;
};

/* Fills p->identity; errors (overlap, bad or missing token, listener not there) go to diag. */
void identity_compile(struct policy *p, struct diag *diag);
/* What parsing could not see: references, suffix scopes, placeholders, shadowed rules. */
void policy_check(struct policy *p, struct diag *diag);
/* The same of resolver.synthetic.pool. */
void policy_check_pool(const struct policy *p, struct diag *diag);
/* The same of names. */
void policy_check_names(const struct policy *p, struct diag *diag);
/* The same of addresses. */
void policy_check_addresses(const struct policy *p, struct diag *diag);
/* The same of what changes nothing. */
void policy_check_idle(const struct policy *p, struct diag *diag);

static inline bool agent_in(const struct policy *p, const uint64_t *set, const struct agent *a)
{
    return !set || (a->index / 64 < p->agent_words && (set[a->index / 64] >> (a->index % 64) & 1));
}

/* FILE:LINE:COL: KEY: … about the configuration of this snapshot. */
void policy_error(const struct policy *p, struct diag *diag, struct config_at at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void policy_warning(const struct policy *p, struct diag *diag, struct config_at at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* How far a rule goes with a request whose host it names: the first thing that does not fit, or FIT_YES. */
enum fit { FIT_NO = 0, FIT_PORT, FIT_METHOD, FIT_PATH, FIT_YES };
enum fit rule_fit(const struct policy *p, const struct rule *rule, const struct ask *ask);
bool ports_fit(const uint16_t *ports, size_t n, uint16_t port);
bool methods_fit(const struct name_list *methods, struct str method);
bool paths_fit(const struct path_pattern *paths, size_t n, struct str path);

#endif
