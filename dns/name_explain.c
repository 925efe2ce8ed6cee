/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_explain.h"

#include "dns/name_approval.h"
#include "dns/name_guard.h"
#include "dns/special_name.h"
#include "policy/dns_type.h"

static bool judge(const struct config *c, struct canary *canary, const struct detector_ask *ask, struct detector_finding *ret,
                  struct name_accounts *ret_costs, struct err *err)
{
    struct detector_options o;
    name_guard_options(c, &o);
    struct detector *d = detector_new(&o, canary, 0, err);
    if (!d)
        return false;
    size_t n = detector_accounts(d, ask, 0, ret_costs->v);
    detector_judge(d, ask, 0, ret);
    ret_costs->n = ret->account.limit > 0 ? n : 0; /* it came to that */
    detector_free(&d);
    return true;
}

int name_explain(struct policy *p, const struct agent *agent, const struct rule *rule, struct str name, uint16_t type,
                 struct canary *canary, int64_t now_us, struct name_explained *ret, struct err *err)
{
    static struct query q; /* a kilobyte */
    struct name_explained *x = ret;
    struct host *host = &x->ruling.host;
    const struct config *c = policy_config(p);
    *x = (struct name_explained) { .rule = rule };
    q = (struct query) { .type = type, .n = (uint16_t)(name.n < QUERY_TEXT_MAX ? name.n : QUERY_TEXT_MAX) };
    memcpy(q.name, name.p, q.n);
    struct snapshot *s = snapshot_new(p, STR_NONE);
    if (!s)
        return err_set(err, "out of memory");
    name_rule(s, agent, &q, now_us, &x->ruling);
    snapshot_unref(&s);
    bool reached = x->ruling.fate >= NAME_NO_DATA;
    x->observe = reached && x->ruling.verdict == VERDICT_OBSERVE;
    if (!rule && reached && !x->observe)
        x->rule = x->ruling.rule;
    bool fixed = x->ruling.fixed != NULL;
    size_t written;
    bool through = x->rule || x->observe || (fixed && reached);
    x->approval = name_approval_by_all(p, agent, x->rule, through ? host : NULL, fixed, 0, type, now_us, &written);
    x->exempt = through && name_approval_exempt(c, host);
    x->asked_upstream = c->dns_forward && !fixed && x->ruling.fate >= NAME_ADDRESS;
    struct detector_ask ask = { .agent = agent->name,
                                .name = host->n > 0 ? host_str(host) : name,
                                .fixed = written,
                                .qtype = type,
                                .approval = x->approval,
                                .written = written > 0 || special_name_written(x->rule, host),
                                .observe = x->observe,
                                .event = x->asked_upstream ? DETECTOR_QUESTION : DETECTOR_SYNTHETIC };
    if (reached && !judge(c, canary, &ask, &x->question, &x->question_costs, err))
        return -1;
    ask.event = DETECTOR_DIAL;
    return judge(c, canary, &ask, &x->dial, &x->dial_costs, err) ? 0 : -1;
}
