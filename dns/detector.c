/* SPDX-License-Identifier: Apache-2.0
 *
 * Each step looks at one signal and either settles the finding (true) or leaves it to the next. */
#include "dns/detector.h"

#include "base/log.h"
#include "dns/special_name.h"
#include "dns/wire.h"
#include "policy/dns_type.h"

#include <stdlib.h>

/* Every event: 1 bit that there is one more, 1 for a name new or seen, 4 for its type. A type that is not among the
 * fifteen has the sixteenth's place and then its number. A dial to an approved zone has no type, and how often it comes
 * is time. */
enum { EACH = 6 * COST_BIT, EACH_DIAL = 2 * COST_BIT, TYPE_RARE = 16 * COST_BIT };

struct detector {
    struct detector_options options;
    struct budget *budget;
    struct canary *canary;
};

void detector_options_default(struct detector_options *o)
{
    *o = (struct detector_options) { .tunnel = DETECTOR_BLOCK, .placeholder = DETECTOR_BLOCK };
    budget_limits_default(&o->limits);
}

struct detector *detector_new(const struct detector_options *o, struct canary *canary, uint64_t now_ms, struct err *err)
{
    struct detector *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(err, "resolver: out of memory for the detector");
        return NULL;
    }
    d->budget = budget_new(&o->limits, now_ms, err);
    if (!d->budget) {
        free(d);
        return NULL;
    }
    d->options = *o;
    d->canary = canary ? canary_ref(canary) : NULL;
    return d;
}

void detector_free(struct detector **dp)
{
    struct detector *d = *dp;
    *dp = NULL;
    if (!d)
        return;
    budget_free(&d->budget);
    canary_unref(&d->canary);
    free(d);
}

int detector_set(struct detector *d, const struct detector_options *o, struct canary *canary, struct err *err)
{
    if (budget_set_limits(d->budget, &o->limits, err) < 0)
        return -1;
    struct canary *old = d->canary;
    d->options = *o;
    d->canary = canary ? canary_ref(canary) : NULL;
    canary_unref(&old);
    return 0;
}

struct budget *detector_budget(struct detector *d)
{
    return d->budget;
}

/* What is graver stays what is told. */
static bool settle(struct detector_finding *f, bool allow, enum detector_severity severity, enum detector_rule rule)
{
    f->allow = allow;
    if (severity >= f->severity) {
        f->severity = severity;
        f->rule = rule;
    }
    return true;
}

/* What would be refused, under an action that may say otherwise. */
static bool settle_by(struct detector_finding *f, enum detector_act act, enum detector_severity severity,
                      enum detector_rule rule)
{
    if (act == DETECTOR_BLOCK)
        return settle(f, false, severity, rule);
    return settle(f, true, act == DETECTOR_FLAG ? severity : DETECTOR_INFO, rule);
}

static bool is_denied(const struct detector_finding *f)
{
    return f->ask.approval == DETECTOR_UNAPPROVED && !f->ask.observe;
}

static bool has_piece(struct detector_finding *f)
{
    return f->canaries && canary_find(f->canaries, str_sub(f->ask.name, 0, f->ask.name.n - f->ask.fixed), &f->canary);
}

static bool by_placeholder(enum detector_act act, struct detector_finding *f)
{
    if (!has_piece(f))
        return false;
    f->class = f->ask.event == DETECTOR_DIAL ? "placeholder_elsewhere" : "dns_placeholder";
    settle_by(f, act, DETECTOR_CRITICAL, DETECTOR_PLACEHOLDER);
    /* What may pass here need not pass the rest. */
    return !f->allow;
}

static bool by_wire(struct detector_finding *f)
{
    const char *why;
    if (!name_cost_known(f->ask.name))
        return settle(f, false, f->ask.approval == DETECTOR_UNAPPROVED ? DETECTOR_FLAGGED : DETECTOR_QUIET,
                      DETECTOR_WIRE);
    return !f->ask.written && f->ask.approval != DETECTOR_EXACT && special_name(f->ask.name, &why) != SPECIAL_NO &&
           settle(f, false, DETECTOR_QUIET, DETECTOR_SPECIAL);
}

/* A tenant's own label is whatever a cloud gave it; of other names the registrable label counts too. */
struct str detector_scored(const struct detector_finding *f)
{
    struct str before = zone_before(f->ask.name, f->zone.zone);
    if (f->zone.above.n > 0)
        return before;
    ptrdiff_t dot = str_find_char(f->zone.zone, '.');
    return dot < 0 ? f->ask.name : str_sub(f->ask.name, 0, f->ask.name.n - f->zone.zone.n + (size_t)dot);
}

/* No longer than what services call their instances: shorter than a key of 16 bytes in any alphabet, and than 14 characters of one of
 * those that encode. */
static bool is_short(const struct name_score *s)
{
    bool plain = s->class == CLASS_HEX || s->class == CLASS_BASE32 || s->class == CLASS_DIGITS;
    return s->bits < DETECTOR_SCORE_SURE && s->part.n < (plain ? 14u : 20u);
}

bool detector_encoded(const struct detector_finding *f)
{
    return f->score.bits >= DETECTOR_SCORE_FLAG && !(f->ask.approval == DETECTOR_WILDCARD && is_short(&f->score));
}

static bool by_score(enum detector_act act, struct detector_finding *f)
{
    name_score(detector_scored(f), &f->score);
    if (f->score.bits < DETECTOR_SCORE_FLAG)
        return false;
    if (is_denied(f))
        return settle(f, false, DETECTOR_FLAGGED, DETECTOR_SCORE);
    if (f->ask.approval == DETECTOR_UNAPPROVED)
        settle_by(f, is_short(&f->score) && act == DETECTOR_BLOCK ? DETECTOR_FLAG : act, DETECTOR_FLAGGED, DETECTOR_SCORE);
    else
        settle(f, true, act == DETECTOR_LOG || is_short(&f->score) ? DETECTOR_INFO : DETECTOR_FLAGGED, DETECTOR_SCORE);
    return !f->allow;
}

static unsigned event_cost(const struct detector_ask *a)
{
    static const uint16_t types[] = { 1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 44, 52, 64, 65, 257 };
    if (a->event == DETECTOR_DIAL)
        return a->approval == DETECTOR_WILDCARD ? EACH_DIAL : EACH;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == a->qtype)
            return EACH;
    return EACH + TYPE_RARE;
}

/* A known name that is dialled says no more than the request to it may, and its addresses come from the cache. Questions for
 * other records leave each time: to choose among a few names over and over is an alphabet. */
static bool is_free_when_seen(const struct detector_ask *a)
{
    return a->approval != DETECTOR_UNAPPROVED &&
           (a->event == DETECTOR_DIAL || a->qtype == DNS_TYPE_A || a->qtype == DNS_TYPE_AAAA);
}

static struct budget_event budget_event_of(const struct detector_finding *f)
{
    bool approved = f->ask.approval != DETECTOR_UNAPPROVED;
    /* Nobody wrote the zone: the choice is among all there are. */
    bool any = approved && f->ask.fixed < (f->zone.above.n > 0 ? f->zone.above.n : f->zone.zone.n);
    struct budget_event e = { .agent = f->ask.agent,
                              .name = f->ask.name,
                              .zone = f->zone.zone,
                              .above = f->zone.above,
                              .in_zone = name_cost(zone_before(f->ask.name, f->zone.zone)),
                              .each = event_cost(&f->ask),
                              .approved = approved,
                              .any = any,
                              .free_seen = is_free_when_seen(&f->ask),
                              .hold = f->ask.hold };
    e.in_above = f->zone.above.n > 0 ? name_cost(zone_before(f->ask.name, f->zone.above)) : 0;
    e.naming = approved && !any ? 0 : name_cost(f->zone.zone);
    return e;
}

static void by_budget(struct detector *d, struct detector_finding *f, uint64_t now_ms)
{
    struct budget_event e = budget_event_of(f);
    f->verdict = budget_charge(d->budget, &e, now_ms, &f->account);
    f->charged = f->verdict == BUDGET_OK;
    f->cost = f->account.charged;
    f->save_first = f->charged && budget_must_save(d->budget);
    const struct budget_account *a = &f->account;
    if (f->verdict == BUDGET_HELD)
        f->allow = false;
    else if (!f->charged)
        settle_by(f, d->options.tunnel, DETECTOR_FLAGGED, DETECTOR_SPENT);
    else if (f->rule == DETECTOR_NONE && 2 * a->before < a->limit && 2 * (a->before + a->cost) >= a->limit)
        settle(f, true, d->options.tunnel == DETECTOR_LOG ? DETECTOR_INFO : DETECTOR_FLAGGED, DETECTOR_HALF);
}

static void begin(struct detector_finding *f, const struct canary *canary, const struct detector_ask *ask)
{
    *f = (struct detector_finding) { .ask = *ask, .class = "dns_tunnel", .canaries = canary };
    if (ask->event == DETECTOR_DIAL)
        f->class = "host_label";
    zone_of(ask->name, &f->zone);
}

size_t detector_accounts(struct detector *d, const struct detector_ask *ask, uint64_t now_ms, struct budget_account ret[BUDGET_ACCOUNTS])
{
    struct detector_finding f;
    begin(&f, d->canary, ask);
    struct budget_event e = budget_event_of(&f);
    return budget_accounts(d->budget, &e, now_ms, ret);
}

void detector_look(const struct canary *canary, const struct detector_ask *ask, struct detector_finding *ret)
{
    MUST(ask->approval == DETECTOR_UNAPPROVED && !ask->observe);
    begin(ret, canary, ask);
    if (!by_placeholder(DETECTOR_BLOCK, ret) && !by_wire(ret) && !by_score(DETECTOR_BLOCK, ret))
        settle(ret, false, DETECTOR_QUIET, DETECTOR_DENIED);
}

void detector_scan(const struct canary *canary, const struct detector_ask *ask, struct detector_finding *ret)
{
    begin(ret, canary, ask);
    (void)has_piece(ret);
    if (ask->approval != DETECTOR_EXACT && name_cost_known(ask->name))
        name_score(detector_scored(ret), &ret->score);
}

const struct canary *detector_canary(const struct detector *d)
{
    return d->canary;
}

void detector_judge(struct detector *d, const struct detector_ask *ask, uint64_t now_ms, struct detector_finding *ret)
{
    struct detector_finding *f = ret;
    begin(f, d->canary, ask);
    if (by_placeholder(d->options.placeholder, f) || by_wire(f))
        return;
    if (ask->approval == DETECTOR_EXACT) {
        f->allow = true;
        return;
    }
    if (by_score(d->options.tunnel, f))
        return;
    f->allow = true;
    if (is_denied(f))
        settle(f, false, DETECTOR_QUIET, DETECTOR_DENIED);
    else if (ask->event != DETECTOR_SYNTHETIC)
        by_budget(d, f, now_ms);
}
