/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of hostile domains fill the places of domains, and of those alone: what all domains of an (agent, verdict) had
 * this second is counted elsewhere, where nobody but operators names the keys.
 */
#include "dns/dns_log.h"

#include "audit/event_counter.h"
#include "dns/canary.h"
#include "dns/record_text.h"
#include "dns/zone.h"
#include "policy/end.h"

#include <stdio.h>
#include <stdlib.h>

enum { DOMAINS = 256, AGENTS = 64, ANSWERS = 16 };

struct dns_log {
    struct loop *loop;
    struct sink *sink;
    uint64_t per_second, lag_ms;
    struct event_counter *domains, *agents;
    struct canary *canary;
};

struct dns_log *dns_log_new(struct loop *l, struct sink *sink, struct err *err)
{
    struct dns_log *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    d->loop = l;
    d->sink = sink;
    d->per_second = 50;
    d->lag_ms = 2000;
    d->domains = event_counter_new(l, sink, DOMAINS, err);
    d->agents = event_counter_new(l, sink, AGENTS, err);
    if (!d->domains || !d->agents)
        dns_log_free(&d);
    return d;
}

void dns_log_configure(struct dns_log *d, uint64_t per_second, uint64_t lag_ms)
{
    d->per_second = per_second;
    d->lag_ms = lag_ms;
}

void dns_log_set_canary(struct dns_log *d, struct canary *canary)
{
    struct canary *old = d->canary;
    d->canary = canary ? canary_ref(canary) : NULL;
    canary_unref(&old);
}

bool dns_log_ready(struct dns_log *d)
{
    return d->sink && sink_ready(d->sink, loop_now_ms(d->loop), d->lag_ms);
}

static void put(struct event *e, enum event_field f, struct str s)
{
    if (s.n > 0)
        event_put_str(e, f, s);
}

enum { MASKED = 80 };
/* What a server said, for the log: a name server may be the agent's own, and say what that told it. */
static struct str shown(const struct dns_log *d, struct str said, char out[MASKED])
{
    struct canary_hit hit;
    if (!d->canary || !canary_find(d->canary, said, &hit))
        return said;
    snprintf(out, MASKED, "[CRED:%.*s]", (int)(hit.credential.n < 64 ? hit.credential.n : 64), hit.credential.p);
    return str_c(out);
}

static void build(const struct dns_log *d, struct event *e, const struct dns_record *r)
{
    char masked[MASKED];
    event_init(e, EVENT_DNS);
    put(e, FIELD_AGENT, r->agent);
    put(e, FIELD_CLIENT, r->client);
    put(e, FIELD_CONN_ID, r->conn_id);
    put(e, FIELD_REQUEST_ID, r->request_id);
    if (r->rule.n > 0)
        event_put_str(e, FIELD_RULE, r->rule);
    else
        event_put_null(e, FIELD_RULE);
    put(e, FIELD_VERDICT, r->verdict);
    put(e, FIELD_CODE, r->code);
    put(e, FIELD_DNS_ID, r->dns_id);
    put(e, FIELD_QNAME, r->shown.n > 0 ? r->shown : r->qname);
    put(e, FIELD_QTYPE, r->qtype);
    put(e, FIELD_RCODE, r->rcode);
    for (size_t i = 0; i < r->n && i < ANSWERS; i++) {
        char text[46];
        event_add(e, FIELD_ANSWERS, str_c(ip_format(&r->ips[i], text)));
    }
    struct str rest = r->records;
    for (size_t i = 0; i < ANSWERS && rest.n >= 2; i++) {
        char text[RECORD_TEXT];
        size_t n = (size_t)(unsigned char)rest.p[0] << 8 | (unsigned char)rest.p[1];
        event_add(e, FIELD_ANSWERS, shown(d, str_c(record_text(r->type, str_sub(rest, 2, n), text)), masked));
        rest = str_from(rest, 2 + n);
    }
    if (r->n == 0 && r->records.n == 0 && r->rcode.n > 0)
        event_put_null(e, FIELD_ANSWERS);
    event_put_u64(e, FIELD_MS, r->ms);
    put(e, FIELD_MESSAGE, shown(d, r->message, masked));
}

void dns_log_free(struct dns_log **dp)
{
    struct dns_log *d = *dp;
    *dp = NULL;
    if (!d)
        return;
    event_counter_free(&d->domains);
    event_counter_free(&d->agents);
    canary_unref(&d->canary);
    free(d);
}

static uint64_t key_of(struct str agent, struct str zone, struct str verdict)
{
    char text[128 + 253 + 16 + 3];
    size_t n = 0;
    struct str parts[] = { agent, zone, verdict };
    for (size_t i = 0; i < 3; i++) {
        struct str part = str_sub(parts[i], 0, (sizeof text - n) > 3 ? sizeof text - n - 3 : 0);
        if (part.n > 0)
            memcpy(text + n, part.p, part.n);
        n += part.n;
        text[n++] = '\0';
    }
    return str_hash(str_of(text, n));
}

/* What could not be told in time was not used; that it was asked is told later, as counted. */
static void count_untold(const struct dns_log *d, struct event_place *at, const struct dns_record *r)
{
    struct event *sample = event_place_count(at);
    struct dns_record untold = *r;
    if (!sample)
        return;
    untold.ips = NULL;
    untold.n = 0;
    untold.records = STR_NONE;
    untold.message = STR("the log had no room for it when it was asked");
    if (untold.rcode.n > 0)
        untold.rcode = STR("SERVFAIL");
    if (!str_eq(r->verdict, STR("deny"))) {
        untold.verdict = STR("deny");
        untold.code = str_c(end_code(END_AUDIT_UNAVAILABLE));
    }
    build(d, sample, &untold);
}

int dns_log_write(struct dns_log *d, const struct dns_record *r)
{
    if (!d->sink)
        return -1;
    struct zone z;
    zone_of(r->qname, &z);
    struct event_place *at = event_counter_at(d->domains, key_of(r->agent, z.zone, r->verdict)), *of_domain = at;
    if (!at)
        return -1;
    bool write = event_place_take(at, d->per_second);
    if (write) {
        at = event_counter_at(d->agents, key_of(r->agent, STR_NONE, r->verdict));
        if (!at)
            return -1;
        write = event_place_take(at, d->per_second * DNS_LOG_DOMAINS);
    }
    if (write) {
        struct event e EVENT_LOCAL;
        build(d, &e, r);
        if (sink_write(d->sink, &e, false) == 0)
            return 0;
        count_untold(d, of_domain, r);
        return -1;
    }
    struct event *sample = event_place_count(at);
    if (sample)
        build(d, sample, r);
    return 0;
}
