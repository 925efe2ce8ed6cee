/* SPDX-License-Identifier: Apache-2.0
 *
 * A 401 to a swapped request: the origin stopped taking the value before its time. The keeper is told which lease that was and asked for
 * another, once; where one came and the request can be sent again whole, it is, and the 401 is forgotten. Otherwise the 401 goes on as it
 * came, and the next request has the new value. A stale connection before that was another reason, and took nothing from this one. */
#include "proxy/exchange.h"

#include "base/clock.h"
#include "proxy/exchange_steps.h"

/* May the request be sent once more from its beginning? */
static bool repeatable(const struct exchange *x)
{
    return x->replayable || x->req.body == H1_BODY_NONE;
}

static void again(struct exchange *x)
{
    x->oops->release(x, false); /* the rest of its answer is not wanted */
    x->no_pool = x->attempt_again = true;
    exchange_go(x, STEP_DIAL);
    exchange_run(x);
}

static void settle(struct exchange *x)
{
    bool fresh = x->remint == REMINT_CHANGED;
    x->remint = REMINT_DONE;
    if (fresh && repeatable(x))
        again(x);
    else
        x->oops->more(x); /* its 401 is read once more, and passes */
}

static void on_lease(void *ctx, const struct lease_answer *a)
{
    struct lease_slot *slot = ctx;
    struct exchange *x = slot->x;
    size_t i = slot->index;
    x->waits[i] = NULL;
    if (x->remint == REMINT_DONE) /* nobody waits: it was for the requests to come */
        return;
    struct ask ask = exchange_ask(x);
    if (a->end == END_OK && lease_covers(a->lease, &ask)) {
        if (!str_eq(secret_reveal(a->lease->value), secret_reveal(x->leases[i]->value)))
            x->remint = REMINT_CHANGED;
        lease_unref(&x->leases[i]);
        x->leases[i] = lease_ref(a->lease);
    }
    if (--x->leases_missing == 0)
        settle(x);
}

bool exchange_remint(struct exchange *x, unsigned status)
{
    if (x->remint != REMINT_NONE)
        return x->remint != REMINT_DONE;
    if (status != 401 || !x->plan.nwanted)
        return false;
    struct ask ask = exchange_ask(x);
    x->leases_missing = 0;
    for (size_t i = 0; i < x->plan.nwanted; i++) {
        x->slots[i] = (struct lease_slot) { x, i };
        (void)lease_get(x->w->leases, x->plan.wanted[i], &ask, str_c(x->request_id), x->leases[i], on_lease, &x->slots[i],
                        &x->waits[i]);
        x->leases_missing += x->waits[i] != NULL;
    }
    bool wait = x->leases_missing == x->plan.nwanted && repeatable(x);
    x->remint = wait ? REMINT_ASKED : REMINT_DONE;
    if (wait)
        exchange_wait(x, 2 * x->view->limits->lease_timeout + 1000); /* the client of the keeper has its own, shorter deadline */
    return wait;
}
