/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/event_counter.h"

#include "base/log.h"

#include <stdlib.h>

enum { PROBES = 8, SECOND_MS = 1000 };

struct event_place {
    uint64_t key; /* 0: free */
    uint64_t since_ms, written, counted;
    struct event sample; /* of one that was counted */
};

struct event_counter {
    struct loop *loop;
    struct sink *sink;
    struct timer second;
    size_t n;
    struct event_place places[];
};

/* 0, or -1: the log has no room, and it is still counted. */
static int flush(struct event_counter *c, struct event_place *p)
{
    if (p->counted == 0)
        return 0;
    struct event e = p->sample;
    event_put_u64(&e, FIELD_COUNT, p->counted);
    if (sink_write(c->sink, &e, false) < 0)
        return -1;
    p->counted = 0;
    return 0;
}

static void on_second(struct timer *t)
{
    struct event_counter *c = (struct event_counter *)((char *)t - offsetof(struct event_counter, second));
    uint64_t now = loop_now_ms(c->loop);
    bool more = false;
    for (size_t i = 0; i < c->n; i++) {
        struct event_place *p = &c->places[i];
        if (!p->key)
            continue;
        if (now - p->since_ms >= SECOND_MS && flush(c, p) == 0)
            p->key = 0;
        else
            more = true;
    }
    if (more)
        timer_set(c->loop, t, SECOND_MS / 4);
}

struct event_counter *event_counter_new(struct loop *l, struct sink *sink, size_t places, struct err *err)
{
    struct event_counter *c = calloc(1, sizeof *c + places * sizeof *c->places);
    if (!c) {
        err_set(err, "out of memory for counted events");
        return NULL;
    }
    c->loop = l;
    c->sink = sink;
    c->n = places;
    c->second.cb = on_second;
    return c;
}

void event_counter_free(struct event_counter **cp)
{
    struct event_counter *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    timer_clear(&c->second);
    for (size_t i = 0; i < c->n; i++)
        if (c->places[i].key && flush(c, &c->places[i]) < 0)
            log_error("the audit log has no room for the line of %llu counted events (%s)",
                      (unsigned long long)c->places[i].counted, event_type_name(c->places[i].sample.type));
    free(c);
}

struct event_place *event_counter_at(struct event_counter *c, uint64_t key)
{
    uint64_t now = loop_now_ms(c->loop);
    struct event_place *own = NULL, *room = NULL, *oldest = NULL;
    key = key ? key : 1;
    for (size_t i = 0; i < PROBES && !own; i++) {
        struct event_place *p = &c->places[(key + i) % c->n];
        if (p->key == key)
            own = p;
        else if (!p->key)
            room = room ? room : p;
        else if (!oldest || p->since_ms < oldest->since_ms)
            oldest = p;
    }
    struct event_place *p = own ? own : room ? room : oldest;
    if (own && now - p->since_ms < SECOND_MS)
        return p;
    if (p->key && flush(c, p) < 0)
        return NULL;
    p->key = key;
    p->since_ms = now;
    p->written = p->counted = 0;
    if (!c->second.loop)
        timer_set(c->loop, &c->second, SECOND_MS);
    return p;
}

bool event_place_take(struct event_place *p, uint64_t per_second)
{
    if (p->written >= per_second)
        return false;
    p->written++;
    return true;
}

struct event *event_place_count(struct event_place *p)
{
    p->counted++;
    return p->counted & (p->counted - 1) ? NULL : &p->sample;
}
