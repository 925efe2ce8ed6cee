/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/responder.h"

#include "base/clock.h"
#include "base/fair.h"
#include "base/log.h"
#include "dns/answer.h"
#include "dns/dns_port.h"
#include "dns/name_ruling.h"
#include "policy/dns_type.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SYNTHETIC_TTL_S = 60, /* a rule that goes is forgotten by clients within a minute */
    FORWARD_MS = 5000,    /* a client's own patience; then SERVFAIL */
    QUESTION_MAX = QUERY_NAME_MAX + 4,
};

/* One question while it is answered: a row of slots, each filled from what stands to its left. */
struct asked {
    const struct dns_peer *from;
    const struct query *q;
    const struct agent *agent; /* NULL: nobody's */
    struct name_ruling ruling;
    const struct answer_set *known; /* of the cache, until the loop turns; NULL: nothing */
    char client[46];
    uint64_t started_us;
    bool late; /* its name may have left: it is told whatever happens */
    uint16_t rcode;
    struct ip ips[WIRE_ADDRESSES_MAX];
    size_t n;
    const struct wire_answer *records; /* of a type that is no address; NULL: none */
    uint32_t ttl_s;
    bool soa;
    enum end code; /* other than the ruling's: END_OK none */
    const char *why;
    char message[WIRE_CHAIN_TEXT + 64]; /* more than why can say; "": nothing */
    char dns_id[ANSWER_ID]; /* of the look-up; "" none */
    char shown[NAME_SHOWN]; /* the name as the log shows it; "": as it is */
};

/* A question that waits: first, where it must, until what it costs is saved, then for upstream. */
struct forward {
    struct responder *responder;
    struct forward *next, **link;
    struct dns_peer from;
    struct query q;
    unsigned char question[QUESTION_MAX];
    struct name_ruling ruling;
    struct asker *asker;
    struct purse_wait saved;
    struct lookup_wait wait;
    struct upstream_query *query; /* of a type that is no address */
    struct forward *leader;       /* whose query brings the answer of this one too; NULL: its own does */
    struct timer deadline;
    uint64_t started_us, owner;
};

struct responder {
    struct loop *loop;
    struct lookups *lookups;
    struct name_guard *guard;
    struct dns_log *log;
    const struct own_addresses *own;
    struct dns_port *port;
    struct snapshot *snapshot;
    struct virtual_names *names;
    struct forward *forwards;
    struct fair_rate rate;
    struct fair_stock waiting;
    struct query query; /* of the message at hand */
    struct asked asked;
    unsigned char late[ANSWER_TCP_BYTES];
};

/* --- recording --- */

static struct str verdict_word(const struct asked *a)
{
    if (a->code != END_OK)
        return STR("deny");
    switch (a->ruling.verdict) {
    case VERDICT_ALLOW:
    case VERDICT_TUNNEL:
        return STR("allow");
    case VERDICT_ASK:
        return a->ruling.fate == NAME_REFUSED ? STR("deny") : STR("ask");
    case VERDICT_OBSERVE:
        return STR("observe");
    case VERDICT_DENY:
        break;
    }
    return STR("deny");
}

static int record(const struct responder *r, const struct asked *a, bool answered)
{
    char type[DNS_TYPE_NAME];
    bool denied = str_eq(verdict_word(a), STR("deny"));
    enum end code = a->code != END_OK ? a->code : a->ruling.code;
    struct dns_record d = {
        .agent = a->agent ? a->agent->name : STR_NONE,
        .client = str_c(a->client),
        .rule = a->ruling.rule ? a->ruling.rule->name : STR_NONE,
        .qname = query_name(a->q),
        .shown = str_c(a->shown),
        .qtype = a->q->question.n ? str_c(dns_type_format(a->q->type, type)) : STR_NONE,
        .rcode = answered ? str_c(wire_rcode_name(a->rcode)) : STR_NONE,
        .verdict = verdict_word(a),
        .code = denied && code != END_OK ? str_c(end_code(code)) : STR_NONE,
        .dns_id = str_c(a->dns_id),
        .message = str_c(a->message[0] ? a->message : a->why ? a->why : a->ruling.why),
        .ips = a->ips,
        .n = a->n,
        .records = a->records ? str_of(a->records->data, a->records->data_n) : STR_NONE,
        .type = a->q->type,
        .ms = a->started_us ? (clock_mono_us() - a->started_us) / 1000 : 0,
    };
    return dns_log_write(r->log, &d);
}

static void put_records(struct answer *w, const struct asked *a)
{
    struct str rest = str_of(a->records->data, a->records->data_n);
    while (rest.n >= 2) {
        size_t n = (size_t)(unsigned char)rest.p[0] << 8 | (unsigned char)rest.p[1];
        answer_record(w, a->q->type, str_sub(rest, 2, n), a->ttl_s);
        rest = str_from(rest, 2 + n);
    }
}

static void withhold(struct asked *a)
{
    a->rcode = WIRE_SERVFAIL;
    a->n = 0;
    a->records = NULL;
    a->soa = false;
}

/* Records, then writes. */
static size_t finish(struct responder *r, struct asked *a, unsigned char *out, size_t max)
{
    struct answer w;
    bool ready = dns_log_ready(r->log);
    if (!ready && a->late) {
        withhold(a);
        a->code = END_AUDIT_UNAVAILABLE;
    }
    if ((ready || a->late) && record(r, a, true) < 0)
        ready = false;
    if (!ready)
        withhold(a);
    size_t most = a->from->stream ? max : a->q->udp_bytes;
    answer_start(&w, a->q, a->rcode, out, most < max ? most : max);
    for (size_t i = 0; i < a->n; i++)
        answer_address(&w, &a->ips[i], a->ttl_s);
    if (a->records)
        put_records(&w, a);
    if (a->soa)
        answer_soa(&w, a->ttl_s);
    return answer_end(&w);
}

static void refuse(struct asked *a, uint16_t rcode, enum end code, const char *why)
{
    a->rcode = rcode;
    a->code = code;
    a->why = why;
}

static void negative(struct asked *a, uint16_t rcode, uint32_t ttl_s)
{
    a->rcode = rcode;
    a->soa = true;
    a->ttl_s = ttl_s;
}

/* --- addresses --- */

static uint8_t family_of(uint16_t type)
{
    return type == DNS_TYPE_A ? 4 : 6;
}

/* Those that may be dialled. None of some: refused. */
static void put_vetted(const struct responder *r, struct asked *a, const struct asker *asker, const struct ip *ips,
                       size_t n, uint32_t ttl_s)
{
    const struct ip *bad = NULL;
    size_t of_family = 0;
    char text[46];
    for (size_t i = 0; i < n; i++) {
        if (ips[i].family != family_of(a->q->type))
            continue;
        of_family++;
        if (asker_vet(asker, r->own, &ips[i], 1, &bad, &a->why) == END_OK && a->n < WIRE_ADDRESSES_MAX)
            a->ips[a->n++] = ips[i];
    }
    a->ttl_s = ttl_s;
    if (bad)
        snprintf(a->message, sizeof a->message, "%s%s is refused (%s)%s", a->ruling.fixed ? "" : "rebind: ", ip_format(bad, text), a->why,
                 a->n > 0 ? "; addresses that may not be dialled were left out" : "");
    if (of_family > 0 && a->n == 0)
        refuse(a, WIRE_REFUSED, END_ADDRESS_DENIED, a->why);
    else if (of_family == 0)
        negative(a, WIRE_NOERROR, ANSWER_NEGATIVE_S);
}

/* An address for this name alone, which whoever connects to it can be asked back for. */
static void put_virtual(const struct responder *r, struct asked *a)
{
    const struct config *c = r->snapshot->config;
    uint32_t place;
    if (!dns_log_ready(r->log)) {
        refuse(a, WIRE_SERVFAIL, END_AUDIT_UNAVAILABLE, NULL);
    } else if (!r->names || !address_pool_equal(virtual_table_pool(virtual_names_table(r->names)), &c->synthetic_pool)) {
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "no memory for resolver.synthetic.pool");
    } else if (!virtual_names_give(r->names, a->agent->name, host_str(&a->ruling.host), loop_now_ms(r->loop),
                                   c->limits.virtual_hold, &place)) {
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED,
               "the agent has its share of resolver.synthetic.pool: a larger pool (or limits.virtual_bytes) has room for more names");
    } else {
        a->ips[a->n++] = address_pool_address(&c->synthetic_pool, family_of(a->q->type), place);
        a->ttl_s = SYNTHETIC_TTL_S;
    }
}

static void put_synthetic(const struct responder *r, struct asked *a)
{
    const struct config *c = r->snapshot->config;
    if (address_pool_has(&c->synthetic_pool, family_of(a->q->type))) {
        put_virtual(r, a);
        return;
    }
    const struct ip *ip = a->q->type == DNS_TYPE_A ? &c->synthetic_v4 : &c->synthetic_v6;
    if (!ip->family) {
        negative(a, WIRE_NOERROR, ANSWER_NEGATIVE_S);
        return;
    }
    a->ips[a->n++] = *ip;
    a->ttl_s = SYNTHETIC_TTL_S;
}

/* --- forwarding --- */

static void put_looked_up(const struct responder *r, struct asked *a, const struct asker *asker,
                          const struct answer_set *s)
{
    uint64_t now = loop_now_ms(r->loop), left_ms = s->expires_ms > now ? s->expires_ms - now : 0;
    uint32_t ttl_s = left_ms < 1000 ? 1 : (uint32_t)(left_ms / 1000);
    memcpy(a->dns_id, s->dns_id, sizeof a->dns_id);
    switch (s->state) {
    case ANSWER_ADDRESSES:
        if (s->alias)
            snprintf(a->message, sizeof a->message, "an alias of %s", a->shown[0] ? "a name that is not shown either" : s->alias);
        put_vetted(r, a, asker, s->ips, s->n, ttl_s);
        return;
    case ANSWER_NEGATIVE:
        negative(a, s->rcode, ttl_s);
        a->why = s->why;
        return;
    case ANSWER_UNAUDITED:
        refuse(a, WIRE_SERVFAIL, END_AUDIT_UNAVAILABLE, NULL);
        return;
    case ANSWER_NONE:
    case ANSWER_FAILED:
        break;
    }
    refuse(a, WIRE_SERVFAIL, END_ORIGIN_DNS, s->why);
    if (s->detail)
        snprintf(a->message, sizeof a->message, "%s: %s", s->why, s->detail);
}

static void forward_free(struct forward *f)
{
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    for (struct forward *g = f->query ? f->responder->forwards : NULL; g; g = g->next)
        if (g->leader == f)
            g->leader = NULL; /* its own deadline ends it */
    fair_give(&f->responder->waiting, f->owner, 1);
    upstream_cancel(&f->query);
    purse_wait_done(&f->saved);
    lookup_wait_done(&f->wait);
    timer_clear(&f->deadline);
    f->asker->tells = false; /* what comes now is told by the look-up */
    asker_unref(&f->asker);
    free(f);
}

static enum answer_family wanted(const struct query *q)
{
    return q->type == DNS_TYPE_A ? FAMILY_V4 : FAMILY_V6;
}

static void begin_late(const struct forward *f, struct asked *a)
{
    *a = (struct asked) {
        .from = &f->from, .q = &f->q, .agent = f->asker->agent, .started_us = f->started_us, .late = true, .code = END_OK
    };
    a->ruling = f->ruling;
    ip_format(&f->from.client, a->client);
    memcpy(a->dns_id, f->asker->dns_id, sizeof a->dns_id);
    memcpy(a->shown, f->asker->shown, sizeof a->shown);
}

static void forward_end(struct forward *f, const struct answer_set *s)
{
    struct responder *r = f->responder;
    struct asked *a = &r->asked;
    begin_late(f, a);
    if (s)
        put_looked_up(r, a, f->asker, s);
    else
        refuse(a, WIRE_SERVFAIL, END_ORIGIN_DNS, "no DNS server answered in time");
    size_t n = finish(r, a, r->late, sizeof r->late);
    dns_port_answer(r->port, &f->from, r->late, n);
    forward_free(f);
}

static void on_changed(struct task *t)
{
    struct forward *f = (struct forward *)((char *)t - offsetof(struct forward, wait.changed));
    const struct answer_set *s = f->wait.sets[wanted(&f->q)];
    if (s)
        forward_end(f, s);
}

static void on_deadline(struct timer *t)
{
    forward_end((struct forward *)((char *)t - offsetof(struct forward, deadline)), NULL);
}

/* NULL: there is no room. */
static struct forward *forward_new(struct responder *r, const struct asked *a, struct asker *asker)
{
    uint64_t owner = str_hash(a->agent->name);
    if (!fair_take(&r->waiting, owner, 1, r->snapshot->config->limits.dns_waiting))
        return NULL;
    struct forward *f = calloc(1, sizeof *f);
    if (!f) {
        fair_give(&r->waiting, owner, 1);
        return NULL;
    }
    f->responder = r;
    f->owner = owner;
    f->from = *a->from;
    f->from.text = STR_NONE;
    f->q = *a->q;
    MUST(a->q->question.n <= sizeof f->question);
    memcpy(f->question, a->q->question.p, a->q->question.n);
    f->q.question.p = (const char *)f->question;
    f->ruling = a->ruling;
    f->asker = asker_ref(asker);
    f->started_us = a->started_us;
    f->wait.changed.cb = on_changed;
    f->deadline.cb = on_deadline;
    f->next = r->forwards;
    f->link = &r->forwards;
    if (f->next)
        f->next->link = &f->next;
    r->forwards = f;
    return f;
}

/* The asker holds the snapshot, so that agent and rule stay. True: the answer comes later; else f is not needed any more. */
static bool ask_addresses(struct responder *r, struct asked *a, struct forward *f)
{
    f->asker->tells = true;
    enum lookup_result got = lookup_get(r->lookups, host_str(&a->ruling.host), 1u << wanted(a->q), f->asker, &f->wait);
    const struct answer_set *s = f->wait.sets[wanted(a->q)];
    if (!s && got == LOOKUP_WAITING) {
        timer_set(r->loop, &f->deadline, FORWARD_MS);
        return true;
    }
    if (s)
        put_looked_up(r, a, f->asker, s);
    else if (got == LOOKUP_UNAUDITED)
        refuse(a, WIRE_SERVFAIL, END_AUDIT_UNAVAILABLE, NULL);
    else
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "out of memory");
    return false;
}

/* --- records of other types --- */

static void put_upstream(const struct responder *r, struct asked *a, enum upstream_result result,
                         const struct wire_answer *w)
{
    uint64_t most_s = r->snapshot->config->limits.dns_ttl_max / 1000;
    uint32_t ttl_s = w ? w->ttl_s : 0;
    if (ttl_s > most_s)
        ttl_s = (uint32_t)most_s;
    bool good = result == UPSTREAM_ANSWERED && (w->rcode == WIRE_NOERROR || w->rcode == WIRE_NXDOMAIN);
    if (!good) {
        const char *why = result == UPSTREAM_ANSWERED ? "" : upstream_why(lookups_upstream(r->lookups));
        refuse(a, WIRE_SERVFAIL, END_ORIGIN_DNS, "the DNS servers gave no answer that can be used");
        if (why[0])
            snprintf(a->message, sizeof a->message, "%s: %s", a->why, why);
    } else if (w->records == 0) {
        negative(a, w->rcode, ttl_s < 1 ? 1 : ttl_s > ANSWER_NEGATIVE_S ? ANSWER_NEGATIVE_S : ttl_s);
    } else {
        a->records = w;
        a->ttl_s = ttl_s < 1 ? 1 : ttl_s;
    }
}

static void records_end(struct forward *f, enum upstream_result result, const struct wire_answer *w)
{
    struct responder *r = f->responder;
    struct asked *a = &r->asked;
    begin_late(f, a);
    put_upstream(r, a, result, w);
    dns_port_answer(r->port, &f->from, r->late, finish(r, a, r->late, sizeof r->late));
    a->records = NULL;
    forward_free(f);
}

static void on_records(void *ctx, enum upstream_result result, const struct wire_answer *w)
{
    struct forward *f = ctx;
    f->query = NULL;
    for (struct forward *g = f->responder->forwards, *next; g; g = next) {
        next = g->next;
        if (g->leader == f)
            records_end(g, result, w);
    }
    records_end(f, result, w);
}

/* One question upstream for all who wait for it. As ask_addresses. */
static bool ask_records(struct responder *r, struct asked *a, struct forward *f)
{
    if (!dns_log_ready(r->log)) {
        refuse(a, WIRE_SERVFAIL, END_AUDIT_UNAVAILABLE, NULL);
        return false;
    }
    struct forward *leader = r->forwards;
    while (leader && !(leader->query && leader->q.type == a->q->type &&
                       str_eq(query_name(&leader->q), query_name(a->q)) && leader->asker->snapshot == f->asker->snapshot))
        leader = leader->next;
    f->leader = leader;
    if (leader)
        upstream_also(leader->query, f->owner);
    else
        f->query =
            upstream_ask(lookups_upstream(r->lookups), host_str(&a->ruling.host), a->q->type, f->owner, on_records, f);
    if (!leader && !f->query) {
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "out of memory");
        return false;
    }
    timer_set(r->loop, &f->deadline, FORWARD_MS);
    return true;
}

/* --- what is asked upstream, now or when its charge is saved --- */

static bool ask_upstream(struct responder *r, struct asked *a, struct forward *f)
{
    return a->ruling.fate == NAME_RECORDS ? ask_records(r, a, f) : ask_addresses(r, a, f);
}

static void on_saved(struct task *t)
{
    struct forward *f = (struct forward *)((char *)t - offsetof(struct forward, saved.decided));
    struct responder *r = f->responder;
    struct asked *a = &r->asked;
    begin_late(f, a);
    if (f->saved.end != END_OK)
        refuse(a, WIRE_SERVFAIL, f->saved.end, f->saved.why);
    else if (ask_upstream(r, a, f))
        return;
    dns_port_answer(r->port, &f->from, r->late, finish(r, a, r->late, sizeof r->late));
    forward_free(f);
}

/* True: the answer comes later. */
static bool put_asked(struct responder *r, struct asked *a, struct asker *asker, bool waits)
{
    struct forward *f = forward_new(r, a, asker);
    if (!f) {
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "too many questions wait (limits.dns_waiting)");
        return false;
    }
    if (waits) {
        f->saved.decided.cb = on_saved;
        name_guard_wait(r->guard, &f->saved);
        return true;
    }
    if (ask_upstream(r, a, f))
        return true;
    forward_free(f);
    return false;
}

/* waits: until what it costs is saved. */
static bool put_forward(struct responder *r, struct asked *a, bool waits)
{
    struct asker *asker = asker_new(r->snapshot, a->agent, str_c(a->client), STR_NONE, STR_NONE);
    if (!asker) {
        refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "out of memory");
        return false;
    }
    bool exceptions = a->ruling.rule && a->ruling.rule->action != RULE_DENY;
    asker->rule = exceptions ? a->ruling.rule : NULL;
    memcpy(asker->dns_id, a->dns_id, sizeof asker->dns_id);
    memcpy(asker->shown, a->shown, sizeof asker->shown);
    asker->observe = r->snapshot->config->observe && a->ruling.verdict == VERDICT_OBSERVE;
    bool later = false;
    a->started_us = clock_mono_us();
    if (a->known)
        put_looked_up(r, a, asker, a->known);
    else if (a->ruling.fate == NAME_ADDRESS && a->ruling.fixed)
        put_vetted(r, a, asker, a->ruling.fixed->ips, a->ruling.fixed->nips, SYNTHETIC_TTL_S);
    else
        later = put_asked(r, a, asker, waits);
    asker_unref(&asker);
    return later;
}

/* --- a question --- */

/* Will somebody else see that it was asked? */
static bool goes_upstream(const struct responder *r, const struct asked *a)
{
    const struct name_ruling *n = &a->ruling;
    if (!r->snapshot->config->dns_forward || n->fixed)
        return false;
    return n->fate == NAME_RECORDS || (n->fate == NAME_ADDRESS && !a->known);
}

/* May it be answered, as far as the data in it is concerned? What policy refused is only scored. *ret_waits: not yet. */
static bool guarded(struct responder *r, struct asked *a, int64_t now_us, bool *ret_waits)
{
    const struct name_ruling *n = &a->ruling;
    bool reached = n->fate >= NAME_NO_DATA, observe = reached && n->verdict == VERDICT_OBSERVE;
    struct name_guard_ask ask = {
        .agent = a->agent,
        .rule = reached && !observe ? n->rule : NULL,
        .host = n->host.n && !host_is_ip(&n->host) ? &n->host : NULL,
        .name = query_name(a->q),
        .qtype = a->q->type,
        .event = goes_upstream(r, a) ? DETECTOR_QUESTION : DETECTOR_SYNTHETIC,
        .fixed = n->fixed,
        .observe = observe,
        .now_us = now_us,
        .client = str_c(a->client),
        .dns_id = a->dns_id,
    };
    *ret_waits = false;
    uint64_t owner = str_hash(a->agent->name);
    if (ask.event == DETECTOR_QUESTION) { /* what cannot leave is not charged */
        if (!dns_log_ready(r->log)) {
            name_guard_show(r->guard, ask.name, a->shown);
            refuse(a, WIRE_SERVFAIL, END_AUDIT_UNAVAILABLE, NULL);
            return false;
        }
        if (!fair_take(&r->waiting, owner, 1, r->snapshot->config->limits.dns_waiting)) {
            name_guard_show(r->guard, ask.name, a->shown);
            refuse(a, WIRE_SERVFAIL, END_RATE_LIMITED, "too many questions wait (limits.dns_waiting)");
            return false;
        }
        fair_give(&r->waiting, owner, 1);
    }
    if (a->known)
        memcpy(a->dns_id, a->known->dns_id, sizeof a->dns_id);
    else if (n->fate == NAME_ADDRESS && r->snapshot->config->dns_forward && !n->fixed)
        lookup_id(r->lookups, host_str(&n->host), 1u << wanted(a->q), a->dns_id);
    struct name_guard_ruling ruling = name_guard_judge(r->guard, &ask);
    *ret_waits = ruling.waits;
    memcpy(a->shown, ruling.shown, sizeof a->shown);
    if (ruling.end == END_OK || !reached)
        return true;
    refuse(a, ruling.end == END_EXFILTRATION_NAME ? WIRE_REFUSED : WIRE_SERVFAIL, ruling.end, ruling.why);
    return false;
}

/* True: the answer comes later. */
static bool answer_name(struct responder *r, struct asked *a)
{
    bool waits;
    int64_t now_us = clock_wall_us();
    const struct name_ruling *n = &a->ruling;
    name_rule(r->snapshot, a->agent, a->q, now_us, &a->ruling);
    if (n->fate == NAME_ADDRESS && r->snapshot->config->dns_forward && !n->fixed)
        a->known = lookup_known(r->lookups, host_str(&n->host), wanted(a->q));
    if (!guarded(r, a, now_us, &waits))
        return false;
    switch (a->ruling.fate) {
    case NAME_REFUSED:
        a->rcode = WIRE_REFUSED;
        return false;
    case NAME_ABSENT:
        negative(a, WIRE_NXDOMAIN, ANSWER_NEGATIVE_S);
        return false;
    case NAME_NO_DATA:
        negative(a, WIRE_NOERROR, ANSWER_NEGATIVE_S);
        return false;
    case NAME_ADDRESS:
    case NAME_RECORDS:
        break;
    }
    if (r->snapshot->config->dns_forward)
        return put_forward(r, a, waits);
    put_synthetic(r, a);
    return false;
}

static const struct agent *identify(const struct responder *r, const struct dns_peer *from)
{
    const struct agent *agent = NULL;
    struct claims claims = { .source = from->client, .listener = from->text };
    return policy_identify(r->snapshot->policy, &claims, &agent) == IDENTIFY_OK ? agent : NULL;
}

static size_t on_message(void *ctx, const struct dns_peer *from, struct str message, unsigned char *out, size_t max)
{
    struct responder *r = ctx;
    struct asked *a = &r->asked;
    enum query_result read = query_parse(message, &r->query);
    if (read == QUERY_IGNORE)
        return 0;
    memset(a, 0, offsetof(struct asked, ips));
    a->from = from;
    ip_format(&from->client, a->client);
    a->q = &r->query;
    a->n = 0;
    a->records = NULL;
    a->soa = false;
    a->code = END_OK;
    a->why = NULL;
    a->dns_id[0] = a->shown[0] = a->message[0] = '\0';
    a->agent = identify(r, from);
    uint64_t owner = a->agent ? str_hash(a->agent->name) : 0;
    if (!fair_rate_take(&r->rate, owner, r->snapshot->config->limits.dns_rate, loop_now_ms(r->loop))) {
        r->query.n = 0; /* counted as one, whatever names there were */
        refuse(a, WIRE_REFUSED, END_RATE_LIMITED, "too many questions a second (limits.dns_rate)");
        if (from->stream)
            return finish(r, a, out, max);
        (void)record(r, a, false);
        return 0;
    }
    if (!a->agent || read == QUERY_REFUSE)
        name_guard_show(r->guard, query_name(a->q), a->shown);
    if (!a->agent)
        refuse(a, WIRE_REFUSED, END_UNKNOWN_AGENT, "no agent's source or listener claim fits");
    else if (read == QUERY_REFUSE)
        refuse(a, r->query.rcode, END_BAD_REQUEST, "not a question that this port answers");
    else if (answer_name(r, a))
        return DNS_LATER;
    return finish(r, a, out, max);
}

/* --- the whole --- */

struct responder *responder_new(struct loop *l, struct lookups *lookups, struct name_guard *guard, struct dns_log *log,
                                const struct own_addresses *own, struct err *err)
{
    static const struct dns_port_ops ops = { on_message };
    struct responder *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    r->loop = l;
    r->lookups = lookups;
    r->guard = guard;
    r->log = log;
    r->own = own;
    r->port = dns_port_new(l, &ops, r, err);
    if (!r->port) {
        free(r);
        return NULL;
    }
    return r;
}

/* It is answered no more, and told all the same: its name may have left. */
static void forward_told(struct forward *f)
{
    struct responder *r = f->responder;
    struct asker *asker = asker_ref(f->asker);
    begin_late(f, &r->asked);
    refuse(&r->asked, WIRE_SERVFAIL, END_DRAINING, "the server stopped before an answer came");
    bool told = record(r, &r->asked, false) == 0;
    forward_free(f);
    asker->tells = told; /* then its look-up need not */
    asker_unref(&asker);
}

void responder_free(struct responder **rp)
{
    struct responder *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    while (r->forwards)
        forward_told(r->forwards);
    dns_port_free(&r->port);
    snapshot_unref(&r->snapshot);
    free(r);
}

void responder_set_snapshot(struct responder *r, struct snapshot *s)
{
    snapshot_ref(s);
    snapshot_unref(&r->snapshot);
    r->snapshot = s;
    dns_port_set_limits(r->port, &s->config->limits);
}

void responder_set_names(struct responder *r, struct virtual_names *names)
{
    r->names = names;
}

int responder_add_listener(struct responder *r, struct str text, int tcp_fd, int udp_fd, struct err *err)
{
    return dns_port_add(r->port, text, tcp_fd, udp_fd, err);
}

void responder_drop_listener(struct responder *r, struct str text)
{
    dns_port_drop(r->port, text);
}
