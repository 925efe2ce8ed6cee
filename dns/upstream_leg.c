/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream_leg.h"

#include "base/log.h"

#include <stdlib.h>

bool upstream_leg_judge(struct upstream_leg *leg, struct str packet, struct wire_answer *a)
{
    if (wire_answer_parse(&leg->wire, packet, a, NULL) < 0) {
        leg->bad = true;
        return false;
    }
    if (a->rcode == WIRE_NXDOMAIN || (a->rcode == WIRE_NOERROR && (a->n + a->records > 0 || a->soa)))
        return true;
    if (a->rcode == WIRE_NOERROR)
        leg->lame = true;
    else
        leg->rcode = a->rcode;
    return false;
}

static void end(struct upstream_leg *leg, struct loop *l, enum upstream_result r)
{
    MUST(leg->under_way);
    leg->under_way = false;
    leg->result = r;
    loop_defer(l, &leg->done);
}

void upstream_leg_answer(struct upstream_leg *leg, struct loop *l, struct wire_answer *a)
{
    leg->answer = a;
    end(leg, l, a ? UPSTREAM_ANSWERED : UPSTREAM_BAD);
}

void upstream_leg_end(struct upstream_leg *leg, struct loop *l, enum upstream_result r)
{
    /* Every server says "none" without proof: common behind home routers. */
    if (!leg->lame && leg->rcode == WIRE_NOERROR) {
        end(leg, l, leg->bad ? UPSTREAM_BAD : r);
        return;
    }
    struct wire_answer *a = calloc(1, sizeof *a);
    if (a)
        a->rcode = leg->lame ? WIRE_NOERROR : leg->rcode;
    upstream_leg_answer(leg, l, a);
}
