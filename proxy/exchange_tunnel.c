/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs in an exchange that is a tunnel: nothing is read, swapped or scrubbed, and each way ends for itself. What the agent must not
 * send is watched for all the same, in clear text: a real value that is live for it leaves by no tunnel and comes in by none. A tunnel may
 * last for hours, so what is live is asked for again whenever that changes. */
#include "proxy/exchange.h"

#include "base/clock.h"
#include "proxy/exchange_steps.h"
#include "proxy/record.h"

/* What nobody asks for is forgotten, and then nobody is told of news about it. */
enum { DRAIN_MARGIN_MS = 1000 };

static bool fits(const struct exchange *x, const struct rule *r)
{
    return x->tunnel == TUNNEL_TLS || r->tls_none || (x->tunnel == TUNNEL_HIDDEN && r->ech_passes);
}

enum end exchange_tunnel_policy(struct exchange *x)
{
    const struct ask ask = { .agent = x->agent, .host = &x->host, .port = x->port, .now_us = clock_wall_us() };
    if (!policy_tunnels(x->view->policy, &ask, &x->verdict)) {
        policy_eval_connect(x->view->policy, x->agent, &x->host, x->port, ask.now_us, &x->verdict);
        return x->verdict.kind == VERDICT_DENY ? x->verdict.code : END_REVOKED;
    }
    return fits(x, x->verdict.rule) ? END_OK : END_REVOKED;
}

bool exchange_tunnel_still_allowed(const struct exchange *x, const struct view *now)
{
    struct verdict v = { 0 };
    const struct ask ask = { .agent = policy_agent(now->policy, str_c(x->agent_name)), .host = &x->host, .port = x->port, .now_us = clock_wall_us() };
    return ask.agent && policy_tunnels(now->policy, &ask, &v) && fits(x, v.rule);
}

/* It could last for ever: a tunnel, or what was switched to. */
static bool lasting(const struct exchange *x)
{
    return x->tunnel || x->switched;
}

uint64_t exchange_tunnel_lasts(const struct exchange *x, uint64_t ms)
{
    int64_t expires = lasting(x) && x->verdict.rule ? x->verdict.rule->expires_us : 0;
    int64_t left = expires ? expires - clock_wall_us() : INT64_MAX;
    uint64_t left_ms = left > 0 ? ((uint64_t)left + 999) / 1000 : 0, now_ms = loop_now_ms(x->w->loop), end_ms = x->w->tunnels_end_ms;
    if (lasting(x) && x->w->draining && (end_ms <= now_ms || end_ms - now_ms < left_ms))
        left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
    return left_ms < ms ? left_ms : ms;
}

void exchange_tunnel_out_of_time(struct exchange *x)
{
    if (x->w->draining && loop_now_ms(x->w->loop) >= x->w->tunnels_end_ms)
        exchange_end(x, END_DRAINING, NULL);
    else
        exchange_end(x, END_REVOKED, "the rule that let it through has expired");
}

void exchange_tunnels_drain(struct worker *w, uint64_t ms)
{
    w->tunnels_end_ms = loop_now_ms(w->loop) + ms - (ms / 4 < DRAIN_MARGIN_MS ? ms / 4 : DRAIN_MARGIN_MS);
    for (struct exchange *x = w->exchanges; x; x = x->next)
        if (lasting(x) && x->step == STEP_STREAM)
            exchange_touch(x);
}

void exchange_tunnel_start(struct exchange *x)
{
    body_watch_init(&x->back, NULL, x->known ? x->known->needles : NULL);
    x->scrub_generation = x->known ? lease_client_generation(x->w->leases) : 0; /* 0: it was not to be told */
    x->known_ms = loop_now_ms(x->w->loop);
    x->head_sent = true;
    x->status = 200;
    x->cops->head(x->client, x, NULL);
    x->cops->flush(x->client, x);
}

void exchange_tunnel_renew(struct exchange *x)
{
    uint64_t now = lease_client_generation(x->w->leases), now_ms = loop_now_ms(x->w->loop);
    if (now == x->scrub_generation && now_ms - x->known_ms < EXCHANGE_KNOWN_MS)
        return;
    struct lease_set *set = NULL;
    struct lease_wait *wait = NULL;
    int r = lease_live(x->w->leases, x->agent, NULL, &set, NULL, NULL, &wait);
    lease_cancel(&wait);
    if (r != 1) /* being fetched, or the keeper is away: what is known stays, and it is asked again with the next bytes */
        return;
    body_watch_renew(&x->watch, set ? set->needles : NULL);
    body_watch_renew(&x->back, set ? set->needles : NULL);
    lease_set_unref(&x->known);
    x->known = set;
    x->scrub_generation = now;
    x->known_ms = now_ms;
}

void exchange_tunnel_over(struct exchange *x)
{
    x->answer_done = true;
    exchange_end(x, END_OK, NULL);
}

/* Both ways have ended, and the host has all of its bytes; the client's are seen to when the exchange is over. */
void exchange_tunnel_settle(struct exchange *x)
{
    if (x->step != STEP_STREAM || !x->request_sent || !x->answer_ended || x->oops->full(x))
        return;
    exchange_tunnel_over(x);
}

bool exchange_tunnel_answer(struct exchange *x, struct str data)
{
    if (x->step != STEP_STREAM)
        return false;
    exchange_tunnel_renew(x);
    if (!x->bytes_out)
        x->ms_first_byte = (uint32_t)(loop_now_ms(x->w->loop) - x->t_attempt);
    if (body_watch_feed(&x->back, data) == BODY_REAL_VALUE) {
        struct arena a;
        arena_init(&a, 2048);
        struct str s = arena_printf(&a, "%s sent a real value into a tunnel of agent %s, where it cannot be turned back; it was cut before that part.", x->host.name,
                                    x->agent_name);
        record_finding(x, "credential_reflected", "high", 80, NULL, "tunnel", s);
        arena_done(&a);
        exchange_end(x, END_EXFILTRATION, "a live real value from the host, in a tunnel");
        return false;
    }
    x->bytes_out += data.n;
    exchange_touch(x);
    x->cops->body(x->client, x, data);
    return x->step == STEP_STREAM;
}

void exchange_tunnel_answer_end(struct exchange *x)
{
    if (x->step != STEP_STREAM)
        return;
    x->answer_ended = true;
    exchange_touch(x);
    x->cops->end(x->client, x, NULL, 0);
    x->cops->flush(x->client, x);
    exchange_tunnel_settle(x);
}
