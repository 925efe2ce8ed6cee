/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot for the tests of mint: the real parser and the real policy on a text, so that what is tested is what runs. */
#ifndef TESTS_UNIT_MINT_FIXTURE_H
#define TESTS_UNIT_MINT_FIXTURE_H

#include "mint/placeholder.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

#define FIXTURE_KEY STR("an install key of thirty-two byte")

static inline struct policy *fixture_policy(struct str yaml)
{
    struct diag d;
    diag_init(&d);
    struct config *c = config_parse(STR("test.yaml"), STR("/test"), yaml, &d);
    struct policy *p = c ? policy_new(c, NULL, 0, &d) : NULL;
    for (size_t i = 0; !p && i < d.n; i++)
        fprintf(stderr, "%.*s\n", STR_ARG(d.lines[i].text));
    diag_done(&d);
    if (!p)
        abort();
    return p;
}

/* Two agents; github for both, others for coder alone. */
static const char fixture_yaml[] =
    "version: 1\n"
    "state_dir: state\n"
    "agents:\n"
    "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
    "  - {name: other, identify: [{source: 10.77.0.3/32}]}\n"
    "sidecars:\n"
    "  - {name: local, socket: /run/mint.sock}\n"
    "rules:\n"
    "  - {name: all, schemes: [https, http], hosts: [\"*\"], ports: [80, 443, 8443], action: allow}\n"
    "credentials:\n"
    "  - name: github\n"
    "    agents: [coder, other]\n"
    "    hosts: [api.test, git.test, \"*.wild.test\"]\n"
    "    slots: [\"header:authorization\", \"basic:password\"]\n"
    "    tolerate: [known.test]\n"
    "    env: GITHUB_TOKEN\n"
    "    source: {sidecar: local}\n"
    "  - name: key\n"
    "    agents: [coder]\n"
    "    hosts: [api.test]\n"
    "    methods: [GET]\n"
    "    paths: [\"/v1/**\"]\n"
    "    slots: [\"header:x-api-key\", \"basic:user\"]\n"
    "    env: SOME_KEY\n"
    "    source: {sidecar: local}\n"
    "  - name: twice\n"
    "    agents: [coder]\n"
    "    hosts: [api.test, plain.test]\n"
    "    slots: [\"header:x-twice\", \"basic:user\", \"basic:password\"]\n"
    "    max_occurrences: 2\n"
    "    allow_plain_http: true\n"
    "    env: OPENAI_API_KEY\n"
    "    source: {sidecar: local}\n"
    "  - name: literal\n"
    "    agents: [coder]\n"
    "    hosts: [lit.test]\n"
    "    slots: [\"header:authorization\"]\n"
    "    placeholder: \"LITERAL-placeholder.0123456789\"\n"
    "    env: LITERAL_TOKEN\n"
    "    source: {sidecar: local}\n";

struct fixture {
    struct policy *policy;
    struct placeholder_table *table;
    const struct agent *coder, *other;
    const struct credential *github, *key, *twice, *literal;
};

static inline const struct credential *fixture_credential(const struct policy *p, struct str name)
{
    const struct config *c = policy_config(p);
    for (size_t i = 0; i < c->ncredentials; i++)
        if (str_eq(c->credentials[i].name, name))
            return &c->credentials[i];
    abort();
}

static inline struct fixture fixture_new(void)
{
    struct err err = { { 0 } };
    struct fixture f = { .policy = fixture_policy(str_of(fixture_yaml, sizeof fixture_yaml - 1)) };
    f.table = placeholder_table_new(f.policy, FIXTURE_KEY, &err);
    if (!f.table) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    f.coder = policy_agent(f.policy, STR("coder"));
    f.other = policy_agent(f.policy, STR("other"));
    f.github = fixture_credential(f.policy, STR("github"));
    f.key = fixture_credential(f.policy, STR("key"));
    f.twice = fixture_credential(f.policy, STR("twice"));
    f.literal = fixture_credential(f.policy, STR("literal"));
    return f;
}

static inline void fixture_done(struct fixture *f)
{
    placeholder_table_unref(&f->table);
    policy_unref(&f->policy);
}

#endif
