/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/dial_job.h"

#include "base/clock.h"
#include "base/log.h"
#include "dns/connector.h"
#include "dns/special_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    /* RFC 8305 section 3: how long the first family with addresses waits for the other. */
    OTHER_FAMILY_MS = 50,
    TIMEOUT_MAX_MS = 600000,
};

enum job_state { JOB_TARGET = 1, JOB_PARENT, JOB_CONNECT, JOB_DONE };

struct dial_job {
    const struct dial_env *env;
    enum job_state state;
    struct asker *target, *parent; /* parent: NULL until it is resolved */
    struct host host;
    uint16_t port;
    struct ip target_ip; /* via_parent: the vetted address of the target; family 0: the parent resolves it */
    bool judged; /* by the name guard: target->shown is set */
    bool via_parent;
    struct purse_wait saved;
    struct lookup_wait wait;
    struct connector *connector;
    struct timer deadline, other_family;
    struct task done;
    uint64_t started_us, connect_us;
    struct dial_outcome outcome;
    void (*cb)(void *ctx, struct dial_outcome *o);
    void *ctx;
};

static uint32_t ms_since(uint64_t us)
{
    uint64_t ms = (clock_mono_us() - us) / 1000;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static const struct asker *asker_of(const struct dial_job *j)
{
    return j->parent ? j->parent : j->target;
}

static void release(struct dial_job *j)
{
    purse_wait_done(&j->saved);
    lookup_wait_done(&j->wait);
    connector_cancel(&j->connector);
    timer_clear(&j->deadline);
    timer_clear(&j->other_family);
}

static void end_job(struct dial_job *j, enum end end, const char *why)
{
    if (j->state == JOB_DONE)
        return;
    if (j->state == JOB_CONNECT)
        j->outcome.connect_ms = ms_since(j->connect_us);
    else
        j->outcome.resolve_ms = ms_since(j->started_us);
    j->state = JOB_DONE;
    j->outcome.end = end;
    if (why)
        snprintf(j->outcome.why, sizeof j->outcome.why, "%s", why);
    release(j);
    loop_defer(j->env->loop, &j->done);
}

/* A refusal that no look-up of this job's own has recorded. */
static void end_denied(struct dial_job *j, struct str agent, enum end end, const char *why)
{
    struct dns_record r = {
        .agent = agent,
        .qname = host_str(&j->host),
        .verdict = STR("deny"),
        .code = str_c(end_code(end)),
        .dns_id = str_c(j->outcome.dns_id),
        .message = str_c(why),
    };
    char shown[NAME_SHOWN];
    if (j->judged || host_is_ip(&j->host))
        shown[0] = '\0';
    else
        name_guard_show(j->env->guard, host_str(&j->host), shown);
    r.shown = str_c(j->judged ? j->target->shown : shown);
    if (j->target) {
        r.client = str_c(j->target->client);
        r.conn_id = str_c(j->target->conn_id);
        r.request_id = str_c(j->target->request_id);
        r.rule = j->target->rule ? j->target->rule->name : STR_NONE;
    }
    dns_log_write(j->env->log, &r); /* refused whether or not it can be written */
    end_job(j, end, why);
}

/* --- connecting --- */

static enum end vet_one(void *ctx, const struct ip *ip, uint16_t port, const char **ret_why)
{
    const struct dial_job *j = ctx;
    const struct asker *a = asker_of(j);
    const struct ip *bad;
    MUST(port == a->port);
    return asker_vet(a, j->env->own, ip, 1, &bad, ret_why);
}

static void on_connected(void *ctx, const struct connector_result *r)
{
    struct dial_job *j = ctx;
    char text[46], why[200];
    j->connector = NULL;
    if (r->end == END_OK) {
        j->outcome.fd = r->fd;
        /* Through a parent: the address that was vetted for the target, which the parent is then asked to connect to (so that it is
         * the address dialled); none where the parent resolves the name. */
        const struct ip *ip = j->via_parent ? &j->target_ip : &r->ip;
        if (ip->family)
            snprintf(j->outcome.addr, sizeof j->outcome.addr, ip->family == 6 ? "[%s]:%u" : "%s:%u", ip_format(ip, text),
                     j->target->port);
        end_job(j, END_OK, NULL);
    } else if (r->end == END_ADDRESS_DENIED) {
        snprintf(why, sizeof why, "%s is refused (%s)", ip_format(&r->ip, text), r->why);
        end_denied(j, j->target->agent->name, r->end, why);
    } else {
        end_job(j, r->end, r->why);
    }
}

static void resolve(struct dial_job *j, const struct host *host);

static void go_on(struct dial_job *j, const struct ip *ips, size_t n)
{
    static const struct connector_ops ops = { vet_one, on_connected };
    if (j->via_parent && j->state == JOB_TARGET) {
        const struct config *c = j->target->snapshot->config;
        j->parent =
            asker_new(j->target->snapshot, j->target->agent, str_c(j->target->client), str_c(j->target->conn_id), str_c(j->target->request_id));
        if (!j->parent) {
            end_job(j, END_RATE_LIMITED, "out of memory");
            return;
        }
        j->parent->operators = true;
        j->parent->port = c->parent_proxy.port;
        j->state = JOB_PARENT;
        if (n)
            j->target_ip = ips[0];
        lookup_wait_done(&j->wait);
        timer_clear(&j->other_family);
        resolve(j, &c->parent_proxy.host);
        return;
    }
    struct ip order[CONNECTOR_ADDRESSES];
    size_t count = connector_order(ips, n, order);
    uint64_t now = loop_now_ms(j->env->loop), left = j->deadline.at_ms > now ? j->deadline.at_ms - now : 1;
    j->outcome.resolve_ms = ms_since(j->started_us);
    j->connect_us = clock_mono_us();
    j->state = JOB_CONNECT;
    j->connector = connector_start(j->env->loop, order, count, asker_of(j)->port, left, &ops, j);
    lookup_wait_done(&j->wait);
    timer_clear(&j->other_family);
    if (!j->connector)
        end_job(j, END_RATE_LIMITED, "out of memory");
}

/* --- resolving --- */

/* One bad address spoils the answer: a name that leads to both public and private addresses is an attack or a mistake.
 * told: the look-up's event says so, for this job. */
static bool vetted(struct dial_job *j, const struct ip *ips, size_t n, bool looked_up, bool told)
{
    const struct ip *bad;
    const char *why;
    char text[46], words[200];
    if (asker_vet(asker_of(j), j->env->own, ips, n, &bad, &why) == END_OK)
        return true;
    snprintf(words, sizeof words, "%s%s is refused (%s)", looked_up ? "rebind: " : "", ip_format(bad, text), why);
    if (told)
        end_job(j, END_ADDRESS_DENIED, words);
    else
        end_denied(j, j->target->agent->name, END_ADDRESS_DENIED, words);
    return false;
}

static bool has_addresses(const struct answer_set *s)
{
    return s && s->state == ANSWER_ADDRESSES;
}

static const char *no_address_words(const struct answer_set *a, const struct answer_set *b)
{
    /* A failure says more than a "none": the other family may have had addresses. */
    if (a->state == ANSWER_FAILED || b->state == ANSWER_FAILED)
        return (a->state == ANSWER_FAILED ? a : b)->why;
    return a->rcode == WIRE_NXDOMAIN ? a->why : b->rcode == WIRE_NXDOMAIN ? b->why : "the name has no address";
}

/* Uses what has come so far, if it is enough; `late`: the other family has had its time. */
static void use_answers(struct dial_job *j, bool late)
{
    struct answer_set **sets = j->wait.sets;
    bool both = sets[FAMILY_V4] && sets[FAMILY_V6];
    for (int f = 0; f < FAMILIES; f++) {
        if (sets[f] && sets[f]->state == ANSWER_UNAUDITED) {
            end_job(j, END_AUDIT_UNAVAILABLE, "the log cannot take the record of the look-up");
            return;
        }
        if (sets[f] && !j->outcome.dns_id[0])
            memcpy(j->outcome.dns_id, sets[f]->dns_id, ANSWER_ID);
        if (has_addresses(sets[f]) && !vetted(j, sets[f]->ips, sets[f]->n, true, j->wait.own[f]))
            return;
    }
    bool some = has_addresses(sets[FAMILY_V4]) || has_addresses(sets[FAMILY_V6]);
    if (!both && !(some && late)) {
        if (some && !j->other_family.loop)
            timer_set(j->env->loop, &j->other_family, OTHER_FAMILY_MS);
        return;
    }
    if (!some) {
        bool failed = sets[FAMILY_V4]->state == ANSWER_FAILED || sets[FAMILY_V6]->state == ANSWER_FAILED;
        end_job(j, failed ? END_ORIGIN_DNS_SERVERS : END_ORIGIN_DNS, no_address_words(sets[FAMILY_V4], sets[FAMILY_V6]));
        return;
    }
    struct ip ips[2 * CONNECTOR_ADDRESSES];
    size_t n = 0;
    for (int f = 0; f < FAMILIES; f++)
        for (size_t i = 0; has_addresses(sets[f]) && i < sets[f]->n && i < CONNECTOR_ADDRESSES; i++)
            ips[n++] = sets[f]->ips[i];
    go_on(j, ips, n);
}

static void on_changed(struct task *t)
{
    struct dial_job *j = (struct dial_job *)((char *)t - offsetof(struct dial_job, wait.changed));
    use_answers(j, false);
}

static void on_other_family(struct timer *t)
{
    use_answers((struct dial_job *)((char *)t - offsetof(struct dial_job, other_family)), true);
}

static void look_up(struct dial_job *j, const struct host *host)
{
    switch (lookup_get(j->env->lookups, host_str(host), LOOKUP_V4 | LOOKUP_V6, j->parent ? j->parent : j->target, &j->wait)) {
    case LOOKUP_READY:
    case LOOKUP_WAITING: /* one family may be in the cache */
        use_answers(j, false);
        break;
    case LOOKUP_UNAUDITED:
        end_job(j, END_AUDIT_UNAVAILABLE, "the log cannot take the record of the look-up");
        break;
    case LOOKUP_FAILED:
        end_job(j, END_RATE_LIMITED, "out of memory");
        break;
    }
}

/* Not for a host that gets a credential: there the address is ours to vet (PRODUCT: origin.parent_proxy). */
static bool parent_resolves(const struct dial_job *j)
{
    const struct credential *first;
    const struct snapshot *s = j->target->snapshot;
    return s->config->parent_proxy.resolve_parent &&
           policy_credentials(s->policy, j->target->agent, &j->host, &first, 1) == 0;
}

/* The name is about to be asked of somebody. *ret_waits: when its charge is saved. */
static enum end guarded(struct dial_job *j, bool *ret_waits, const char **ret_why)
{
    struct asker *a = j->target;
    if (!dns_log_ready(j->env->log)) { /* nothing is charged for what could not be told */
        *ret_why = "the log cannot take the record of the look-up";
        return END_AUDIT_UNAVAILABLE;
    }
    struct name_guard_ask ask = { .agent = a->agent,
                                  .rule = a->rule,
                                  .host = &j->host,
                                  .name = host_str(&j->host),
                                  .port = j->port,
                                  .event = DETECTOR_DIAL,
                                  .now_us = clock_wall_us(),
                                  .observe = a->observe,
                                  .client = str_c(a->client),
                                  .conn_id = str_c(a->conn_id),
                                  .request_id = str_c(a->request_id),
                                  .dns_id = a->dns_id };
    lookup_id(j->env->lookups, ask.name, LOOKUP_V4 | LOOKUP_V6, a->dns_id);
    struct name_guard_ruling ruling = name_guard_judge(j->env->guard, &ask);
    j->outcome.finding = ruling.finding;
    j->judged = true;
    memcpy(a->shown, ruling.shown, sizeof a->shown);
    if (ruling.end == END_EXFILTRATION_NAME) /* the refusal is the event that speaks of it */
        memcpy(j->outcome.dns_id, a->dns_id, ANSWER_ID);
    *ret_why = ruling.why;
    *ret_waits = ruling.waits;
    return ruling.end;
}

/* end: what became of its charge. */
static void ask_target(struct dial_job *j, enum end end, const char *why)
{
    if (end == END_AUDIT_UNAVAILABLE)
        end_job(j, end, why);
    else if (end != END_OK)
        end_denied(j, j->target->agent->name, end, why);
    else if (j->via_parent && parent_resolves(j))
        go_on(j, NULL, 0); /* the parent looks it up */
    else
        look_up(j, &j->host);
}

static void resolve(struct dial_job *j, const struct host *host)
{
    if (host_is_ip(host)) {
        if (vetted(j, &host->ip, 1, false, false))
            go_on(j, &host->ip, 1);
        return;
    }
    const struct config_host_entry *fixed = snapshot_host(j->target->snapshot, host);
    if (fixed) {
        if (fixed->nips == 0)
            end_job(j, END_ORIGIN_DNS, "resolver.hosts gives the name no address");
        else if (vetted(j, fixed->ips, fixed->nips, false, false))
            go_on(j, fixed->ips, fixed->nips);
        return;
    }
    const char *why;
    if (j->state == JOB_TARGET && !special_name_written(j->target->rule, host) &&
        !(j->target->rule && policy_written(j->target->snapshot->policy, j->target->agent, host, j->port, 0, clock_wall_us()))) {
        switch (special_name(host_str(host), &why)) {
        case SPECIAL_NO:
            break;
        case SPECIAL_USE:
            end_denied(j, j->target->agent->name, END_HOST_DENIED, why);
            return;
        case SPECIAL_UNDELEGATED:
            end_denied(j, j->target->agent->name, END_ORIGIN_DNS, why);
            return;
        }
    }
    if (j->state != JOB_TARGET) {
        look_up(j, host);
        return;
    }
    bool waits = false;
    enum end end = guarded(j, &waits, &why);
    if (end == END_OK && waits)
        name_guard_wait(j->env->guard, &j->saved);
    else
        ask_target(j, end, why);
}

static void on_saved(struct task *t)
{
    struct dial_job *j = (struct dial_job *)((char *)t - offsetof(struct dial_job, saved.decided));
    ask_target(j, j->saved.end, j->saved.why);
}

/* --- judging --- */

/* NULL: it may be reached, and *ret_rule is the rule whose exceptions hold (NULL: none). Otherwise why not. */
static const char *judge(const struct snapshot *s, const struct dial_ask *ask, const struct agent *agent,
                         const struct host *host, const struct rule **ret_rule)
{
    struct verdict v = { 0 };
    int64_t now_us = clock_wall_us();
    policy_eval_connect(s->policy, agent, host, ask->port, now_us, &v);
    bool observe = s->config->observe;
    bool tunnel = v.kind == VERDICT_TUNNEL;
    if (v.kind != VERDICT_ALLOW && !tunnel && !(observe && v.kind == VERDICT_OBSERVE))
        return end_code(v.code);
    *ret_rule = NULL;
    if (ask->rule.n == 0)
        return observe ? NULL : "no rule was named";
    const struct rule *rule = snapshot_rule(s, ask->rule);
    if (!rule)
        return "the rule is not in force";
    if (!snapshot_rule_may_match(rule, agent, host, ask->port, now_us))
        return "the rule does not cover this host and port";
    if (rule->action == RULE_ALLOW || (tunnel && rule == v.rule))
        *ret_rule = rule;
    else if (!observe)
        return "the rule does not allow";
    return NULL;
}

static void begin(struct dial_job *j, struct snapshot *s, const struct dial_ask *ask)
{
    struct host host;
    const struct rule *rule;
    const struct agent *agent = policy_agent(s->policy, ask->agent);
    if (host_parse(ask->host, &host, NULL) != 0 || !str_eq(host_str(&host), ask->host) || ask->port == 0) {
        end_job(j, END_HOST_DENIED, "not a canonical host and port");
        return;
    }
    j->host = host;
    if (!agent) {
        end_denied(j, ask->agent, END_HOST_DENIED, "no such agent");
        return;
    }
    const char *why = judge(s, ask, agent, &host, &rule);
    if (why) {
        end_denied(j, agent->name, END_HOST_DENIED, why);
        return;
    }
    if (ask->via_parent && !s->config->parent_proxy.given) {
        end_job(j, END_ORIGIN_CONNECT, "no parent proxy is configured");
        return;
    }
    j->target = asker_new(s, agent, ask->client, ask->conn_id, ask->request_id);
    if (!j->target) {
        end_job(j, END_RATE_LIMITED, "out of memory");
        return;
    }
    j->target->rule = rule;
    j->target->observe = s->config->observe && !rule;
    j->target->port = ask->port;
    resolve(j, &j->host);
}

static void on_deadline(struct timer *t)
{
    struct dial_job *j = (struct dial_job *)((char *)t - offsetof(struct dial_job, deadline));
    if (j->state == JOB_CONNECT)
        end_job(j, END_ORIGIN_TIMEOUT, "connecting timed out");
    else if (j->saved.purse)
        end_job(j, END_AUDIT_UNAVAILABLE, "what was spent on names was not saved in time");
    else
        end_job(j, END_ORIGIN_DNS_SERVERS, "no DNS server answered in time");
}

static void job_free(struct dial_job *j)
{
    release(j);
    task_cancel(&j->done);
    if (j->outcome.fd >= 0)
        close(j->outcome.fd);
    asker_unref(&j->target);
    asker_unref(&j->parent);
    free(j);
}

static void on_done(struct task *t)
{
    struct dial_job *j = (struct dial_job *)((char *)t - offsetof(struct dial_job, done));
    struct dial_outcome o = j->outcome;
    void (*cb)(void *ctx, struct dial_outcome *o) = j->cb;
    void *ctx = j->ctx;
    j->outcome.fd = -1;
    job_free(j);
    cb(ctx, &o);
    if (o.fd >= 0)
        close(o.fd);
}

struct dial_job *dial_job_start(const struct dial_env *env, struct snapshot *s, const struct dial_ask *ask,
                                void (*cb)(void *ctx, struct dial_outcome *o), void *ctx)
{
    struct dial_job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    uint64_t timeout_ms = ask->timeout_ms ? ask->timeout_ms : s->config->limits.connect_timeout;
    j->env = env;
    j->state = JOB_TARGET;
    j->port = ask->port;
    j->via_parent = ask->via_parent;
    j->started_us = clock_mono_us();
    j->outcome.fd = -1;
    j->cb = cb;
    j->ctx = ctx;
    j->saved.decided.cb = on_saved;
    j->wait.changed.cb = on_changed;
    j->deadline.cb = on_deadline;
    j->other_family.cb = on_other_family;
    j->done.cb = on_done;
    timer_set(env->loop, &j->deadline, timeout_ms < TIMEOUT_MAX_MS ? timeout_ms : TIMEOUT_MAX_MS);
    begin(j, s, ask);
    return j;
}

void dial_job_cancel(struct dial_job **jp)
{
    struct dial_job *j = *jp;
    *jp = NULL;
    if (j)
        job_free(j);
}
