/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_guard.h"

#include "dns/finding_log.h"
#include "dns/name_approval.h"
#include "dns/special_name.h"

#include <stdlib.h>

struct name_guard {
    struct loop *loop;
    struct finding_log *findings;
    struct detector *detector;
    struct snapshot *snapshot;
    struct purse *purse;
};

/* --- judging --- */

/* 0, or -1: the log has no room. */
static int record(struct name_guard *g, const struct name_guard_ask *ask, const struct detector_finding *f)
{
    if (!ask->dns_id[0])
        event_id_new(ask->dns_id);
    struct finding_about about = { ask->client, ask->conn_id, ask->request_id, str_c(ask->dns_id) };
    return finding_log_write(g->findings, f, &about);
}

/* told: what was found, if anything, is in the log or counted. */
static enum end rule_on(const struct detector_finding *f, bool told, const char **ret_why)
{
    if (!f->allow) {
        *ret_why = detector_why(f);
        return END_EXFILTRATION_NAME;
    }
    if (!told) {
        *ret_why = "the log cannot take the finding about the name";
        return END_AUDIT_UNAVAILABLE;
    }
    return END_OK;
}

struct name_guard_ruling name_guard_judge(struct name_guard *g, const struct name_guard_ask *ask)
{
    struct detector_finding f;
    size_t written;
    enum end held = END_OK;
    const char *held_why = NULL;
    uint64_t owner = str_hash(ask->agent->name);
    bool reached = ask->rule || ask->observe || ask->fixed;
    uint16_t qtype = ask->event == DETECTOR_DIAL ? 0 : ask->qtype;
    enum detector_approval approval =
        name_approval_by_all(g->snapshot->policy, ask->agent, ask->rule, reached ? ask->host : NULL, ask->fixed, ask->port,
                             qtype, ask->now_us, &written);
    struct detector_ask d = {
        .agent = ask->agent->name,
        .name = ask->name,
        .fixed = written,
        .qtype = ask->qtype,
        .approval = approval,
        .event = ask->event,
        .written = written > 0 || (ask->host && special_name_written(ask->rule, ask->host)),
        .observe = ask->observe,
        .hold = !purse_ready(g->purse, owner, &held, &held_why),
    };
    detector_judge(g->detector, &d, loop_now_ms(g->loop), &f);
    const char *finding = f.severity == DETECTOR_QUIET ? NULL : f.class;
    bool told = !finding || record(g, ask, &f) == 0;
    struct name_guard_ruling ruling = { .end = held, .why = held_why, .finding = finding };
    name_shown(&f, ruling.shown);
    if (f.verdict == BUDGET_HELD)
        return ruling;
    ruling.end = rule_on(&f, told, &ruling.why);
    /* Also of one that was charged and does not leave now: asked again it is known. */
    ruling.waits = f.charged && purse_charged(g->purse, owner, str_hash_keyed(owner, 1, ask->name), f.cost);
    if (f.rule == DETECTOR_WIRE || f.rule == DETECTOR_SPECIAL) { /* settled before anybody asked for more */
        detector_scan(detector_canary(g->detector), &d, &f);
        name_shown(&f, ruling.shown);
    }
    return ruling;
}

void name_guard_wait(struct name_guard *g, struct purse_wait *w)
{
    purse_wait(g->purse, w);
}

bool name_guard_saves(const struct name_guard *g)
{
    return purse_saves(g->purse);
}

void name_guard_show(const struct name_guard *g, struct str name, char out[NAME_SHOWN])
{
    struct detector_finding f;
    struct detector_ask ask = { .name = name };
    detector_scan(detector_canary(g->detector), &ask, &f);
    name_shown(&f, out);
}

/* --- life --- */

void name_guard_open(struct name_guard *g, int fd)
{
    if (fd >= 0)
        purse_open(g->purse, fd);
}

void name_guard_options(const struct config *c, struct detector_options *ret)
{
    static const enum detector_act acts[] = { [FINDING_BLOCK] = DETECTOR_BLOCK, [FINDING_FLAG] = DETECTOR_FLAG, [FINDING_LOG] = DETECTOR_LOG };
    detector_options_default(ret);
    ret->tunnel = acts[c->exfiltration.tunnel];
    ret->limits.bits = c->exfiltration.zone_bits;
    ret->limits.refill = c->exfiltration.zone_refill;
    ret->limits.agent_bits = ret->limits.agent_refill = c->exfiltration.agent_bits;
    ret->limits.zones = c->exfiltration.agent_zones;
    ret->limits.any_bits = ret->limits.any_refill = c->exfiltration.any_bits;
}

int name_guard_set(struct name_guard *g, struct snapshot *s, struct canary *canary, struct err *err)
{
    const struct config *c = s->config;
    struct detector_options o;
    name_guard_options(c, &o);
    if (detector_set(g->detector, &o, canary, err))
        return -1;
    purse_set_limits(g->purse, &c->limits);
    snapshot_ref(s);
    snapshot_unref(&g->snapshot);
    g->snapshot = s;
    finding_log_configure(g->findings, c->limits.refusals_per_second);
    return 0;
}

struct name_guard *name_guard_new(struct loop *l, struct sink *sink, struct err *err)
{
    struct detector_options o;
    struct name_guard *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    g->loop = l;
    detector_options_default(&o);
    g->findings = finding_log_new(l, sink, err);
    g->detector = g->findings ? detector_new(&o, NULL, loop_now_ms(l), err) : NULL;
    g->purse = g->detector ? purse_new(l, detector_budget(g->detector), err) : NULL;
    if (!g->purse) {
        detector_free(&g->detector);
        finding_log_free(&g->findings);
        free(g);
        return NULL;
    }
    return g;
}

void name_guard_free(struct name_guard **gp)
{
    struct name_guard *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    purse_free(&g->purse);
    finding_log_free(&g->findings);
    detector_free(&g->detector);
    snapshot_unref(&g->snapshot);
    free(g);
}
