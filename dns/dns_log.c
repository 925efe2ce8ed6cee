/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters are a small table that hostile names may fill: a counter that must go to make room writes its line
 * first, so that nothing counted is forgotten, and where even that line finds no room the new event is refused instead.
 */
#include "dns/dns_log.h"

#include "dns/zone.h"

#include <stdlib.h>

enum { COUNTERS = 256, PROBES = 8, ANSWERS = 16, SECOND_MS = 1000, ZONES = 1024 };

struct counter {
    uint64_t key; /* 0: free */
    uint64_t since_ms;
    uint64_t written, counted;
    struct event sample; /* of the last one counted */
};

struct dns_log {
    struct loop *loop;
    struct sink *sink;
    uint64_t per_second, lag_ms;
    struct timer timer;
    struct counter *counters[COUNTERS];
    struct {
        uint64_t name; /* hash; 0: free */
        size_t at;
    } zones[ZONES]; /* where the registrable domain of a name begins, as last asked of the public suffix list */
};

static void on_second(struct timer *t);

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
    d->timer.cb = on_second;
    return d;
}

void dns_log_configure(struct dns_log *d, uint64_t per_second, uint64_t lag_ms)
{
    d->per_second = per_second;
    d->lag_ms = lag_ms;
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

static void build(struct event *e, const struct dns_record *r)
{
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
    put(e, FIELD_QNAME, r->qname);
    put(e, FIELD_QTYPE, r->qtype);
    put(e, FIELD_RCODE, r->rcode);
    for (size_t i = 0; i < r->n && i < ANSWERS; i++) {
        char text[46];
        event_add(e, FIELD_ANSWERS, str_c(ip_format(&r->ips[i], text)));
    }
    if (r->n == 0 && r->rcode.n > 0)
        event_put_null(e, FIELD_ANSWERS);
    event_put_u64(e, FIELD_MS, r->ms);
    put(e, FIELD_MESSAGE, r->message);
}

static int flush(struct dns_log *d, struct counter *c)
{
    if (c->counted == 0)
        return 0;
    struct event e = c->sample;
    event_put_u64(&e, FIELD_COUNT, c->counted);
    if (!d->sink || sink_write(d->sink, &e, false) < 0)
        return -1;
    c->counted = 0;
    return 0;
}

static void on_second(struct timer *t)
{
    struct dns_log *d = (struct dns_log *)((char *)t - offsetof(struct dns_log, timer));
    uint64_t now = loop_now_ms(d->loop);
    bool more = false;
    for (size_t i = 0; i < COUNTERS; i++) {
        struct counter *c = d->counters[i];
        if (!c)
            continue;
        if (now - c->since_ms >= SECOND_MS && flush(d, c) == 0) {
            free(c);
            d->counters[i] = NULL;
            continue;
        }
        more = true;
    }
    if (more)
        timer_set(d->loop, &d->timer, SECOND_MS / 4);
}

void dns_log_free(struct dns_log **dp)
{
    struct dns_log *d = *dp;
    *dp = NULL;
    if (!d)
        return;
    timer_clear(&d->timer);
    for (size_t i = 0; i < COUNTERS; i++)
        if (d->counters[i]) {
            flush(d, d->counters[i]);
            free(d->counters[i]);
        }
    free(d);
}

static struct str zone_kept(struct dns_log *d, struct str name)
{
    uint64_t hash = str_hash(name);
    size_t slot = hash % ZONES;
    if (d->zones[slot].name != hash || d->zones[slot].at > name.n) {
        struct zone z;
        zone_of(name, &z);
        d->zones[slot].name = hash;
        d->zones[slot].at = name.n - z.zone.n;
    }
    return str_from(name, d->zones[slot].at);
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
    uint64_t key = str_hash(str_of(text, n));
    return key ? key : 1;
}

/* This key's counter, a fresh one where it has none or its second is over; NULL: none can be had. */
static struct counter *counter_for(struct dns_log *d, uint64_t key)
{
    uint64_t now = loop_now_ms(d->loop);
    struct counter **own = NULL, **room = NULL, **oldest = NULL;
    for (size_t i = 0; i < PROBES && !own; i++) {
        struct counter **at = &d->counters[(key + i) % COUNTERS];
        if (!*at)
            room = room ? room : at;
        else if ((*at)->key == key)
            own = at;
        else if (!oldest || (*at)->since_ms < (*oldest)->since_ms)
            oldest = at;
    }
    struct counter **at = own ? own : room ? room : oldest;
    if (own && now - (*at)->since_ms < SECOND_MS)
        return *at;
    if (*at && flush(d, *at) < 0)
        return NULL;
    if (!*at && !(*at = malloc(sizeof **at)))
        return NULL;
    (*at)->key = key;
    (*at)->since_ms = now;
    (*at)->written = (*at)->counted = 0;
    if (!d->timer.loop)
        timer_set(d->loop, &d->timer, SECOND_MS);
    return *at;
}

int dns_log_write(struct dns_log *d, const struct dns_record *r)
{
    if (!d->sink)
        return -1;
    struct counter *c = counter_for(d, key_of(r->agent, zone_kept(d, r->qname), r->verdict));
    if (!c)
        return -1;
    bool write = c->written < d->per_second;
    if (write) {
        c->written++;
        c = counter_for(d, key_of(r->agent, STR("*"), r->verdict)); /* of all domains: no name is "*" */
        if (!c)
            return -1;
        write = c->written < d->per_second * DNS_LOG_DOMAINS;
    }
    if (write) {
        struct event e EVENT_LOCAL;
        build(&e, r);
        if (sink_write(d->sink, &e, false) < 0)
            return -1;
        c->written++;
        return 0;
    }
    build(&c->sample, r);
    c->counted++;
    return 0;
}
