/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_guard.h"

#include "base/clock.h"
#include "base/fair.h"
#include "base/log.h"
#include "dns/budget_file.h"
#include "dns/finding_log.h"
#include "dns/name_approval.h"
#include "dns/special_name.h"

#include <stdlib.h>
#include <unistd.h>

enum { SAVE_MS = 30000, SAVE_AGAIN_MS = 1000 };

struct name_guard {
    struct loop *loop;
    struct finding_log *findings;
    struct detector *detector;
    struct snapshot *snapshot;
    struct budget_file file;
    bool keeps;         /* there is a file, or should be */
    bool unsaved;       /* a save failed: what was charged since is in no file */
    uint64_t failed_ms; /* ... when: not every name tries anew */
    struct fair_rate saves; /* by agent: each stops this role for as long as the disk takes */
    struct timer save;
};

/* --- what was spent --- */

static int save(struct name_guard *g, bool last)
{
    struct err err;
    uint64_t now = loop_now_ms(g->loop);
    if (!g->keeps)
        return 0;
    bool said = g->unsaved;
    if (said && !last && now - g->failed_ms < SAVE_AGAIN_MS)
        return -1;
    g->failed_ms = now;
    g->unsaved = budget_file_save(&g->file, detector_budget(g->detector), last, loop_now_ms(g->loop), &err) < 0;
    if (g->unsaved && !said)
        log_error("%s: names that cost something are refused until it can be", err.text);
    return g->unsaved ? -1 : 0;
}

static void on_save(struct timer *t)
{
    struct name_guard *g = (struct name_guard *)((char *)t - offsetof(struct name_guard, save));
    timer_set(g->loop, t, SAVE_MS);
    if (g->unsaved || budget_unsaved(detector_budget(g->detector)))
        (void)save(g, false);
}

void name_guard_open(struct name_guard *g, int fd)
{
    struct err err;
    if (fd < 0)
        return;
    g->keeps = true;
    if (budget_file_open(&g->file, fd, detector_budget(g->detector), loop_now_ms(g->loop), &err) == BUDGET_STATE_DAMAGED)
        log_error("%s", err.text);
    if (g->file.fd < 0) /* no file that can be kept */
        close(fd);
    (void)save(g, false); /* from now on more may be out than the file says; where it cannot, nothing that costs leaves */
}

/* 0, or -1: the log has no room. */
static int record(struct name_guard *g, const struct name_guard_ask *ask, const struct detector_finding *f)
{
    if (!ask->dns_id[0])
        event_id_new(ask->dns_id);
    struct finding_about about = { ask->client, ask->conn_id, ask->request_id, str_c(ask->dns_id) };
    return finding_log_write(g->findings, f, &about);
}

/* --- judging --- */

/* told: what was found, if anything, is in the log or counted. */
static enum end rule_on(struct name_guard *g, const struct name_guard_ask *ask, const struct detector_finding *f, bool told,
                        const char **ret_why)
{
    if (!f->allow) {
        *ret_why = f->rule == DETECTOR_SPENT ? "the name's zone has had its bits (exfiltration); see the finding"
                                            : "the name looks like data being carried out; see the finding";
        return END_EXFILTRATION;
    }
    if (!told) {
        *ret_why = "the log cannot take the finding about the name";
        return END_AUDIT_UNAVAILABLE;
    }
    bool must = f->save_first || (f->charged && f->cost && g->unsaved);
    if (must && g->keeps && !fair_rate_take(&g->saves, str_hash(ask->agent->name), g->snapshot->config->limits.name_saves, loop_now_ms(g->loop))) {
        *ret_why = "too many new names a second that cost something (limits.name_saves)";
        return END_RATE_LIMITED;
    }
    if (must && save(g, false)) {
        *ret_why = "what was spent on names cannot be saved";
        return END_AUDIT_UNAVAILABLE;
    }
    return END_OK;
}

struct name_guard_ruling name_guard_judge(struct name_guard *g, const struct name_guard_ask *ask)
{
    struct detector_finding f;
    size_t written;
    bool reached = ask->rule || ask->observe || ask->fixed;
    enum detector_approval approval =
        name_approval_of(g->snapshot->config, ask->rule, reached ? ask->host : NULL, ask->fixed, &written);
    struct detector_ask d = {
        .agent = ask->agent->name,
        .name = ask->name,
        .fixed = written,
        .qtype = ask->qtype,
        .approval = approval,
        .event = ask->event,
        .written = ask->fixed || (ask->host && special_name_written(ask->rule, ask->host)),
        .observe = ask->observe,
    };
    detector_judge(g->detector, &d, loop_now_ms(g->loop), &f);
    const char *finding = f.severity == DETECTOR_QUIET ? NULL : f.class;
    bool told = !finding || record(g, ask, &f) == 0;
    struct name_guard_ruling ruling = { .finding = finding };
    ruling.end = rule_on(g, ask, &f, told, &ruling.why);
    return ruling;
}

/* --- life --- */

int name_guard_set(struct name_guard *g, struct snapshot *s, struct canary *canary, struct err *err)
{
    static const enum detector_act acts[] = { [FINDING_BLOCK] = DETECTOR_BLOCK, [FINDING_FLAG] = DETECTOR_FLAG, [FINDING_LOG] = DETECTOR_LOG };
    const struct config *c = s->config;
    struct detector_options o;
    detector_options_default(&o);
    o.tunnel = acts[c->exfiltration.tunnel];
    o.limits.bits = c->exfiltration.zone_bits;
    o.limits.refill = c->exfiltration.zone_refill;
    o.limits.agent_bits = o.limits.agent_refill = c->exfiltration.agent_bits;
    o.limits.zones = c->exfiltration.agent_zones;
    if (detector_set(g->detector, &o, canary, err))
        return -1;
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
    g->file.fd = -1;
    g->save.cb = on_save;
    detector_options_default(&o);
    g->findings = finding_log_new(l, sink, err);
    g->detector = g->findings ? detector_new(&o, NULL, loop_now_ms(l), err) : NULL;
    if (!g->detector) {
        finding_log_free(&g->findings);
        free(g);
        return NULL;
    }
    timer_set(l, &g->save, SAVE_MS);
    return g;
}

void name_guard_free(struct name_guard **gp)
{
    struct name_guard *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    timer_clear(&g->save);
    (void)save(g, true);
    finding_log_free(&g->findings);
    if (g->file.fd >= 0)
        close(g->file.fd);
    detector_free(&g->detector);
    snapshot_unref(&g->snapshot);
    free(g);
}
