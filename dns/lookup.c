/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/lookup.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FLIGHT_SLOTS = 1024, /* power of two */
    ANSWER_MIN_MS = 1000,
    NEGATIVE_MAX_MS = 60000,
    NEGATIVE_PLAIN_MS = 5000,
    FAILED_MS = 1000,
};

/* One family of one look-up: not asked, under way (query), or there (set). */
struct side {
    struct lookup *lookup;
    enum answer_family family;
    struct asker *asker; /* in whose name it is asked */
    struct upstream_query *query;
    struct answer_set *set;
};

struct lookup {
    struct lookups *owner;
    struct lookup *chain;
    uint64_t hash, started_us, servers; /* servers: which ones were asked, as counted in the owner */
    struct side sides[FAMILIES];
    struct lookup_wait *waits;
    char dns_id[ANSWER_ID];
    uint8_t n;
    char name[HOST_MAX + 1];
};

struct lookups {
    struct loop *loop;
    struct dns_log *log;
    struct upstream *upstream;
    struct cache *cache;
    const struct own_addresses *own;
    uint64_t ttl_max_ms, servers; /* servers: how often they changed */
    struct answer_set *oom;       /* stands in where there is no memory for a real one */
    struct lookup *flights[FLIGHT_SLOTS];
};

struct lookups *lookups_new(struct loop *l, struct dns_log *log, size_t lanes, unsigned try_ms, struct err *err)
{
    static const struct own_addresses none;
    struct lookups *ls = calloc(1, sizeof *ls);
    if (!ls) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    ls->loop = l;
    ls->log = log;
    ls->own = &none;
    ls->ttl_max_ms = 3600000;
    ls->cache = cache_new(1);
    ls->oom = answer_set_new(ANSWER_FAILED, NULL, 0);
    ls->upstream = upstream_new(l, lanes, try_ms, err);
    if (ls->cache && ls->oom && ls->upstream) {
        ls->oom->why = "out of memory";
        return ls;
    }
    if (ls->upstream)
        err_set(err, "resolver: out of memory");
    lookups_free(&ls);
    return NULL;
}

static int record(const struct side *side, const struct answer_set *s, const struct wire_answer *a);

static void wait_unlink(struct lookup_wait *w)
{
    if (!w->lookup)
        return;
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    w->lookup = NULL;
}

static void lookup_free(struct lookup *k)
{
    struct lookup **at = &k->owner->flights[k->hash & (FLIGHT_SLOTS - 1)];
    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
    while (k->waits)
        wait_unlink(k->waits);
    for (int f = 0; f < FAMILIES; f++) {
        upstream_cancel(&k->sides[f].query);
        answer_set_unref(&k->sides[f].set);
        asker_unref(&k->sides[f].asker);
    }
    free(k);
}

/* What was asked and will not be answered any more is told, where nobody else did. */
static void told(struct lookup *k)
{
    for (int f = 0; f < FAMILIES; f++) {
        const struct side *side = &k->sides[f];
        const struct answer_set none = { .state = ANSWER_FAILED, .why = "the server stopped before an answer came" };
        if (side->query && !side->asker->tells)
            (void)record(side, &none, NULL);
    }
}

void lookups_free(struct lookups **lp)
{
    struct lookups *l = *lp;
    *lp = NULL;
    if (!l)
        return;
    for (size_t i = 0; i < FLIGHT_SLOTS; i++)
        while (l->flights[i]) {
            told(l->flights[i]);
            lookup_free(l->flights[i]);
        }
    upstream_free(&l->upstream);
    cache_free(&l->cache);
    answer_set_unref(&l->oom);
    free(l);
}

void lookups_set_servers(struct lookups *l, const struct dns_server *v, size_t n)
{
    upstream_set_servers(l->upstream, v, n);
    l->servers++; /* what is under way to the ones of before is not kept either */
    cache_flush(l->cache);
}

void lookups_set_limits(struct lookups *l, size_t cache_max, uint64_t ttl_max_ms)
{
    cache_set_max(l->cache, cache_max);
    l->ttl_max_ms = ttl_max_ms;
}

void lookups_set_own(struct lookups *l, const struct own_addresses *own)
{
    l->own = own;
}

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most)
{
    v = v < least ? least : v;
    return v > most ? most : v;
}

/* What an upstream's word becomes. NULL: out of memory. */
static struct answer_set *set_from(struct lookups *l, enum answer_family family, enum upstream_result r, const struct wire_answer *a)
{
    static const char *const failures[] = {
        [UPSTREAM_TIMEOUT] = "no DNS server answered in time",
        [UPSTREAM_UNREACHABLE] = "no DNS server can be reached",
        [UPSTREAM_BAD] = "the DNS answer is malformed",
        [UPSTREAM_BUSY] = "too many look-ups are waiting",
    };
    uint64_t keep_ms;
    struct answer_set *s;
    if (r != UPSTREAM_ANSWERED) {
        if ((s = answer_set_new(ANSWER_FAILED, NULL, 0))) {
            s->why = failures[r];
            s->detail = upstream_why(l->upstream)[0] ? strdup(upstream_why(l->upstream)) : NULL;
        }
        keep_ms = FAILED_MS;
    } else if (a->rcode != WIRE_NOERROR && a->rcode != WIRE_NXDOMAIN) {
        if ((s = answer_set_new(ANSWER_FAILED, NULL, 0)))
            s->why = "the DNS servers could not answer";
        keep_ms = FAILED_MS;
    } else if (a->n == 0) {
        if ((s = answer_set_new(ANSWER_NEGATIVE, NULL, 0)))
            s->why = a->rcode == WIRE_NXDOMAIN ? "the name does not exist" : family == FAMILY_V4 ? "the name has no IPv4 address" : "the name has no IPv6 address";
        keep_ms = a->soa ? clamp((uint64_t)a->ttl_s * 1000, ANSWER_MIN_MS, NEGATIVE_MAX_MS) : NEGATIVE_PLAIN_MS;
    } else {
        s = answer_set_new(ANSWER_ADDRESSES, a->ips, a->n);
        if (s && a->aliases > 0)
            s->alias = strdup(a->chain);
        keep_ms = clamp((uint64_t)a->ttl_s * 1000, ANSWER_MIN_MS, l->ttl_max_ms);
    }
    if (s) {
        s->rcode = r == UPSTREAM_ANSWERED ? a->rcode : WIRE_SERVFAIL;
        s->expires_ms = loop_now_ms(l->loop) + keep_ms;
    }
    return s;
}

/* The event of one question. 0 or -1: not taken. */
static int record(const struct side *side, const struct answer_set *s, const struct wire_answer *a)
{
    const struct lookup *k = side->lookup;
    const struct ip *bad = NULL;
    const char *why = NULL;
    char message[WIRE_CHAIN_TEXT + 20] = "", text[46];
    bool failed = s->state == ANSWER_FAILED;
    enum end end = asker_vet(side->asker, k->owner->own, s->ips, s->n, &bad, &why);
    if (end != END_OK)
        snprintf(message, sizeof message, "rebind: %s is refused (%s)", ip_format(bad, text), why);
    else if (s->why)
        snprintf(message, sizeof message, "%s%s%s", s->why, s->detail ? ": " : "", s->detail ? s->detail : "");
    else if (a && a->aliases > 0)
        snprintf(message, sizeof message, "an alias of %s", side->asker->shown[0] ? "a name that is not shown either" : a->chain);
    struct dns_record r = {
        .agent = side->asker->agent->name,
        .client = str_c(side->asker->client),
        .conn_id = str_c(side->asker->conn_id),
        .request_id = str_c(side->asker->request_id),
        .rule = side->asker->rule ? side->asker->rule->name : STR_NONE,
        .qname = str_of(k->name, k->n),
        .shown = str_c(side->asker->shown),
        .qtype = side->family == FAMILY_V4 ? STR("A") : STR("AAAA"),
        .rcode = a || failed ? str_c(wire_rcode_name(s->rcode)) : STR_NONE,
        .verdict = end != END_OK || failed ? STR("deny")
                   : side->asker->observe ? STR("observe")
                                       : STR("allow"),
        .code = end != END_OK ? str_c(end_code(end)) : failed ? str_c(end_code(END_ORIGIN_DNS)) : STR_NONE,
        .dns_id = str_c(k->dns_id),
        .message = str_c(message),
        .ips = s->ips,
        .n = s->n,
        .ms = (clock_mono_us() - k->started_us) / 1000,
    };
    return dns_log_write(k->owner->log, &r);
}

static void on_answer(void *ctx, enum upstream_result r, const struct wire_answer *a)
{
    struct side *side = ctx;
    struct lookup *k = side->lookup;
    struct lookups *l = k->owner;
    side->query = NULL;
    struct answer_set *s = set_from(l, side->family, r, a);
    if (s) {
        memcpy(s->dns_id, k->dns_id, sizeof s->dns_id);
        bool told = side->asker->tells ? dns_log_ready(l->log) : record(side, s, a) == 0;
        if (!told) {
            answer_set_unref(&s);
            s = answer_set_new(ANSWER_UNAUDITED, NULL, 0);
        } else if (k->servers == l->servers && r != UPSTREAM_BUSY) { /* that is its asker's, and nobody else's */
            cache_put(l->cache, str_of(k->name, k->n), side->family, s);
        }
    }
    side->set = s ? s : answer_set_ref(l->oom);
    bool last = !k->sides[!side->family].query;
    for (struct lookup_wait *w = k->waits; w; w = w->next) {
        if (!w->sets[side->family])
            w->sets[side->family] = answer_set_ref(side->set);
        loop_defer(l->loop, &w->changed);
    }
    if (last)
        lookup_free(k);
}

static struct lookup **flight(struct lookups *l, struct str name, uint64_t hash)
{
    struct lookup **at = &l->flights[hash & (FLIGHT_SLOTS - 1)];
    while (*at && !((*at)->hash == hash && (*at)->servers == l->servers && str_eq(str_of((*at)->name, (*at)->n), name)))
        at = &(*at)->chain;
    return at;
}

static void join(struct lookup *k, struct lookup_wait *w)
{
    for (int f = 0; f < FAMILIES; f++)
        if (!w->sets[f])
            w->sets[f] = answer_set_ref(k->sides[f].set);
    w->lookup = k;
    w->next = k->waits;
    w->link = &k->waits;
    if (k->waits)
        k->waits->link = &w->next;
    k->waits = w;
}

static struct lookup *start(struct lookups *l, struct str name, uint64_t hash, const struct asker *asker)
{
    struct lookup *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->owner = l;
    k->hash = hash;
    k->servers = l->servers;
    k->started_us = clock_mono_us();
    k->n = (uint8_t)name.n;
    memcpy(k->name, name.p, name.n);
    if (asker->dns_id[0])
        memcpy(k->dns_id, asker->dns_id, sizeof k->dns_id);
    else
        event_id_new(k->dns_id);
    for (int f = 0; f < FAMILIES; f++)
        k->sides[f] = (struct side) { .lookup = k, .family = (enum answer_family)f };
    struct lookup **at = &l->flights[hash & (FLIGHT_SLOTS - 1)];
    k->chain = *at;
    *at = k;
    return k;
}

static bool not_asked(const struct lookup *k, unsigned want, int f)
{
    return want & 1u << f && !(k && (k->sides[f].query || k->sides[f].set));
}

/* Asks what is wanted and not asked yet. False: out of memory. */
static bool ask(struct lookup *k, unsigned want, struct asker *asker)
{
    for (int f = 0; f < FAMILIES; f++) {
        struct side *side = &k->sides[f];
        if (!not_asked(k, want, f))
            continue;
        side->query = upstream_ask(k->owner->upstream, str_of(k->name, k->n), f == FAMILY_V4 ? WIRE_A : WIRE_AAAA,
                                   str_hash(asker->agent->name), on_answer, side);
        if (!side->query)
            return false;
        side->asker = asker_ref(asker);
    }
    return true;
}

static unsigned missing(const struct lookup_wait *w, unsigned want)
{
    for (int f = 0; f < FAMILIES; f++)
        if (w->sets[f])
            want &= ~(1u << f);
    return want;
}

enum lookup_result lookup_get(struct lookups *l, struct str name, unsigned want, struct asker *asker,
                              struct lookup_wait *w)
{
    uint64_t now = loop_now_ms(l->loop);
    w->own[FAMILY_V4] = w->own[FAMILY_V6] = false;
    for (int f = 0; f < FAMILIES; f++)
        if (!w->sets[f] && want & 1u << f)
            w->sets[f] = answer_set_ref(cache_get(l->cache, name, (enum answer_family)f, now));
    unsigned lacks = missing(w, want);
    if (!lacks)
        return LOOKUP_READY;
    uint64_t hash = str_hash(name);
    struct lookup *k = *flight(l, name, hash);
    bool asks = not_asked(k, lacks, FAMILY_V4) || not_asked(k, lacks, FAMILY_V6);
    if (asks && !dns_log_ready(l->log))
        return LOOKUP_UNAUDITED;
    if (!k && (name.n > HOST_MAX || !(k = start(l, name, hash, asker))))
        return LOOKUP_FAILED;
    for (int f = 0; f < FAMILIES; f++)
        if (lacks & 1u << f && k->sides[f].query)
            upstream_also(k->sides[f].query, str_hash(asker->agent->name));
    for (int f = 0; f < FAMILIES; f++)
        w->own[f] = not_asked(k, lacks, f);
    if (!ask(k, lacks, asker)) {
        if (!k->sides[FAMILY_V4].query && !k->sides[FAMILY_V6].query)
            lookup_free(k);
        return LOOKUP_FAILED;
    }
    join(k, w);
    return missing(w, want) ? LOOKUP_WAITING : LOOKUP_READY;
}

void lookup_id(struct lookups *l, struct str name, unsigned want, char out[ANSWER_ID])
{
    const struct answer_set *kept = NULL;
    bool all = true;
    for (int f = 0; f < FAMILIES; f++) {
        const struct answer_set *s = want & 1u << f ? lookup_known(l, name, (enum answer_family)f) : NULL;
        all = all && (s || !(want & 1u << f));
        kept = kept ? kept : s;
    }
    const struct lookup *k = all ? NULL : *flight(l, name, str_hash(name));
    if (all && kept)
        memcpy(out, kept->dns_id, ANSWER_ID);
    else if (k)
        memcpy(out, k->dns_id, ANSWER_ID);
    else
        out[0] = '\0';
}

const struct answer_set *lookup_known(struct lookups *l, struct str name, enum answer_family f)
{
    return cache_get(l->cache, name, f, loop_now_ms(l->loop));
}

void lookup_wait_done(struct lookup_wait *w)
{
    wait_unlink(w);
    task_cancel(&w->changed);
    for (int f = 0; f < FAMILIES; f++)
        answer_set_unref(&w->sets[f]);
}

struct upstream *lookups_upstream(struct lookups *l)
{
    return l->upstream;
}

void lookups_stats(const struct lookups *l, struct upstream_stats *ret_upstream, size_t *ret_cached)
{
    upstream_stats(l->upstream, ret_upstream);
    *ret_cached = cache_count(l->cache);
}
