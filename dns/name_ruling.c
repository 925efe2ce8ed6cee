/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_ruling.h"

#include "dns/snapshot.h"
#include "dns/special_name.h"
#include "policy/dns_type.h"

static void refuse(struct name_ruling *r, enum end code, const char *why)
{
    r->fate = NAME_REFUSED;
    r->verdict = VERDICT_DENY;
    r->code = code;
    r->why = why;
}

/* Where none decides, as where one lists nothing. */
static bool type_listed(const struct rule *rule, uint16_t type)
{
    return rule ? policy_rule_lists(rule, type) : type == DNS_TYPE_A || type == DNS_TYPE_AAAA;
}

void name_rule(const struct snapshot *s, const struct agent *agent, const struct query *q, int64_t now_us,
               struct name_ruling *ret)
{
    struct name_ruling *r = ret;
    struct verdict v;
    const char *why;
    *r = (struct name_ruling) { .verdict = VERDICT_DENY, .code = END_HOST_DENIED };
    if (q->odd || !q->n || q->n > HOST_MAX || host_parse(query_name(q), &r->host, NULL) != 0 || host_is_ip(&r->host)) {
        refuse(r, END_HOST_DENIED, "not a host name");
        return;
    }
    r->fixed = snapshot_host(s, &r->host);
    policy_eval_name(s->policy, agent, &r->host, now_us, &v);
    r->verdict = v.kind;
    r->code = v.code;
    r->rule = v.rule;
    bool reached = v.kind == VERDICT_ALLOW || v.kind == VERDICT_TUNNEL || v.kind == VERDICT_OBSERVE ||
                   (v.kind == VERDICT_ASK && !s->config->dns_forward); /* before a person says yes, nothing leaves */
    bool written = r->fixed || special_name_written(v.rule, &r->host) ||
                   (reached && policy_written(s->policy, agent, &r->host, 0, q->type, now_us) > 0);
    if (!written && special_name(host_str(&r->host), &why) != SPECIAL_NO) {
        bool absent = special_name_absent(host_str(&r->host));
        if (reached || absent)
            refuse(r, END_HOST_DENIED, why);
        r->fate = absent ? NAME_ABSENT : NAME_REFUSED;
        return;
    }
    if (!reached)
        return;
    bool address = q->type == DNS_TYPE_A || q->type == DNS_TYPE_AAAA;
    if (!type_listed(v.rule, q->type) || (!address && (!s->config->dns_forward || r->fixed)))
        r->fate = NAME_NO_DATA;
    else
        r->fate = address ? NAME_ADDRESS : NAME_RECORDS;
}
