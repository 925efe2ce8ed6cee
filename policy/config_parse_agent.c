/* SPDX-License-Identifier: Apache-2.0
 *
 * agents: who may come in and by which claims each is recognised. */
#include "policy/config_read.h"

enum { AGENTS_MAX = 10000, CLAIMS_MAX = 256 };

bool read_advertise(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_ADVERTISE, out);
}

bool read_claim_source(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_claim *claim = out;
    claim->kind = CLAIM_SOURCE;
    if (!is_scalar(v) || cidr_parse(v->text, &claim->source))
        return config_expected(r, v, "an address or prefix without host bits, as 10.77.0.2/32");
    return true;
}

bool read_claim_login(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_claim *claim = out;
    claim->kind = CLAIM_LOGIN;
    return config_read_section(r, v, SECTION_LOGIN, claim);
}

bool read_user(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = is_scalar(v) && v->text.n && v->text.n <= 128;
    for (size_t i = 0; ok && i < v->text.n; i++)
        ok = v->text.p[i] > 0x20 && v->text.p[i] < 0x7f && v->text.p[i] != ':';
    struct str user = ok ? arena_str(&r->c->arena, v->text) : STR_NONE;
    if (!ok)
        return config_expected(r, v, "a user name of at most 128 visible ASCII characters without \":\"");
    if (!user.p)
        return config_no_memory(r);
    memcpy(out, &user, sizeof user);
    return true;
}

bool read_claim_uid(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_claim *claim = out;
    claim->kind = CLAIM_UNIX_UID;
    return read_uid(r, v, &claim->unix_uid);
}

bool read_claim_listener(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_claim *claim = out;
    claim->kind = CLAIM_LISTENER;
    return read_text(r, v, &claim->listener);
}

static bool read_claim(struct config_reader *r, const struct ynode *v, void *out)
{
    struct config_claim claim = { .at = { v->line, v->col } };
    if (v->kind != YNODE_MAP || v->n != 1 || ynode_is_null(v->first))
        return config_expected(r, v, "exactly one of source, login, unix_uid, listener with a value");
    if (!config_read_section(r, v, SECTION_CLAIM, &claim))
        return false;
    memcpy(out, &claim, sizeof claim);
    return true;
}

bool read_identify(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_list(r, v, out, sizeof(struct config_claim), CLAIMS_MAX, read_claim);
}

static bool read_agent(struct config_reader *r, const struct ynode *v, void *out)
{
    struct agent agent = { .at = { v->line, v->col } };
    r->path[0] = 0; /* names of keys in messages start anew in each item */
    if (v->kind != YNODE_MAP) {
        snprintf(r->path, sizeof r->path, "agents");
        return config_expected(r, v, "a map with name and identify");
    }
    bool ok = config_read_section(r, v, SECTION_AGENT, &agent);
    memcpy(out, &agent, sizeof agent);
    return ok;
}

bool read_agents(struct config_reader *r, const struct ynode *v, void *out)
{
    bool ok = config_read_list(r, v, out, sizeof(struct agent), AGENTS_MAX, read_agent);
    for (size_t i = 0; ok && i < r->c->nagents; i++)
        r->c->agents[i].index = (unsigned)i;
    return ok;
}
