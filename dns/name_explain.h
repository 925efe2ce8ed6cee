/* SPDX-License-Identifier: Apache-2.0
 *
 * name_explain: what the DNS port and a dial would make of a name, asked of the same functions and with nothing spent
 * yet. What was spent, and what an address will be, only the running resolver knows. Sends nothing, keeps nothing. */
#ifndef DNS_NAME_EXPLAIN_H
#define DNS_NAME_EXPLAIN_H

#include "base/err.h"
#include "dns/detector.h"
#include "dns/name_ruling.h"

/* What it costs to ask or to dial, account by account; none: nothing. */
struct name_accounts {
    struct budget_account v[BUDGET_ACCOUNTS];
    size_t n;
};
struct name_explained {
    struct name_ruling ruling;       /* of a question for the type */
    const struct rule *rule;         /* that lets the name through; NULL: none */
    enum detector_approval approval;
    bool exempt, observe;
    bool asked_upstream;             /* the answer is not made here */
    struct detector_finding question, dial; /* question: where rules let it through */
    struct name_accounts question_costs, dial_costs;
};
/* rule: of a request that passes; NULL: as the question finds it. canary: NULL: placeholders are not known. Texts of ret
 * borrow from name, p and canary. 0 or -1: out of memory. */
int name_explain(struct policy *p, const struct agent *agent, const struct rule *rule, struct str name, uint16_t type,
                 struct canary *canary, int64_t now_us, struct name_explained *ret, struct err *err);

#endif
