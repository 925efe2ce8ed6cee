/* SPDX-License-Identifier: Apache-2.0
 *
 * What leaves the keeper: messages to workers, `lease` events, the list for the operator. A worker whose queue is full,
 * or that cannot be told of a live lease, is cut off: it would answer agents unscrubbed. */
#include "mint/keeper_state.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

#include <stdio.h>

bool worker_in(const struct worker_set *s, unsigned place)
{
    return s->bits[place / 64] >> (place % 64) & 1;
}

void worker_mark(struct worker_set *s, unsigned place, bool on)
{
    uint64_t bit = (uint64_t)1 << (place % 64);
    s->bits[place / 64] = on ? s->bits[place / 64] | bit : s->bits[place / 64] & ~bit;
}

static int out_send(struct kworker *w, uint16_t type, uint64_t id, struct msg_writer *m)
{
    int r = w->closing || m->buf.failed ? -1 : msg_send(w->ch, type, id, buf_str(&m->buf), NULL, 0);
    if (r && !w->closing) {
        w->closing = true;
        loop_defer(w->k->loop, &w->close);
    }
    return r;
}

void out_answer(struct kworker *w, uint64_t id, struct lease *l)
{
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_answer(&m, &(struct lease_wire_answer) { .end = END_OK, .lease = l });
    out_send(w, LEASE_ANSWER, id, &m);
    buf_done(&m.buf);
}

void out_refusal(struct kworker *w, uint64_t id, enum end end, uint32_t retry_after_s, const char *why)
{
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_answer(
        &m, &(struct lease_wire_answer) { .end = end, .retry_after_s = retry_after_s, .why = str_c(why ? why : "") });
    out_send(w, LEASE_ANSWER, id, &m);
    buf_done(&m.buf);
}

int out_live_to(struct kworker *w, struct entry *e)
{
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_lease(&m, e->lease);
    int r = out_send(w, LEASE_LIVE, 0, &m);
    buf_done(&m.buf);
    worker_mark(&e->known, w->place, true);
    return r;
}

void out_live(struct entry *e)
{
    struct keeper *k = e->k;
    for (unsigned i = 0; i < KEEPER_WORKERS; i++)
        if (k->workers[i] && worker_in(&e->shelf->pair->watchers, i))
            out_live_to(k->workers[i], e);
}

void out_gone(struct entry *e, enum lease_gone why)
{
    struct keeper *k = e->k;
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_gone(&m, &(struct lease_wire_gone) { .lease_id = str_c(e->lease->id),
                                                        .agent = e->lease->agent,
                                                        .credential = e->lease->credential,
                                                        .why = why });
    for (unsigned i = 0; i < KEEPER_WORKERS; i++)
        if (k->workers[i] && worker_in(&e->known, i))
            out_send(k->workers[i], LEASE_GONE, 0, &m);
    buf_done(&m.buf);
}

void out_gone_unknown(struct keeper *k, struct str lease_id, struct str credential)
{
    struct msg_writer m;
    lease_wire_writer_init(&m);
    lease_wire_put_gone(&m, &(struct lease_wire_gone) { lease_id, STR_NONE, credential, LEASE_GONE_REVOKED });
    for (unsigned i = 0; i < KEEPER_WORKERS; i++)
        if (k->workers[i])
            out_send(k->workers[i], LEASE_GONE, 0, &m);
    buf_done(&m.buf);
}

/* --- events --- */

static void note_subject(struct event *ev, const struct lease_note *n)
{
    const struct entry *e = n->entry;
    struct str agent = n->ask ? n->ask->agent : e ? e->lease->agent : STR_NONE;
    struct str credential = n->ask ? n->ask->credential : e ? e->lease->credential : n->credential;
    if (agent.n)
        event_put_str(ev, FIELD_AGENT, agent);
    if (n->ask && n->ask->request_id.n)
        event_put_str(ev, FIELD_REQUEST_ID, n->ask->request_id);
    const struct host *host = n->ask ? &n->ask->host : e ? &e->shelf->host : NULL;
    if (host) {
        event_put_str(ev, FIELD_HOST, host_str(host));
        event_put_u64(ev, FIELD_PORT, n->ask ? n->ask->port : e->shelf->port);
    }
    if (credential.n)
        event_put_str(ev, FIELD_CREDENTIAL, credential);
}

int note_write(struct keeper *k, const struct lease_note *n)
{
    struct event ev;
    event_init(&ev, EVENT_LEASE);
    note_subject(&ev, n);
    if (n->entry) {
        char at[28];
        event_put_str(&ev, FIELD_LEASE_ID, n->entry->id);
        event_put_str(&ev, FIELD_EXPIRES_AT, str_c(clock_format_us(n->entry->lease->expires_us, at)));
    }
    if (!n->entry && n->lease_id.n)
        event_put_str(&ev, FIELD_LEASE_ID, n->lease_id);
    event_put_str(&ev, FIELD_RESULT, str_c(n->result));
    if (n->end != END_UNSET)
        event_put_str(&ev, FIELD_CODE, str_c(end_code(n->end)));
    if (n->why)
        event_put_str(&ev, FIELD_MESSAGE, str_c(n->why));
    if (n->who)
        event_put_str(&ev, FIELD_WHO, str_c(n->who));
    if (n->count)
        event_put_u64(&ev, FIELD_COUNT, n->count);
    event_put_u64(&ev, FIELD_MS, n->since_ms ? loop_now_ms(k->loop) - n->since_ms : 0);
    return k->sink ? sink_write(k->sink, &ev, false) : -1;
}

void note_refusal(struct keeper *k, struct kworker *w, const struct kask *ask, enum end end, const char *why,
                  uint64_t since_ms)
{
    if (!bucket_take(&w->refusals, loop_now_ms(k->loop), KEEPER_REFUSAL_EVENTS, KEEPER_REFUSAL_EVENTS)) {
        w->refusals_left_out++;
        return;
    }
    struct lease_note n = { .result = "refused", .ask = ask, .end = end, .why = why, .since_ms = since_ms };
    n.count = w->refusals_left_out ? w->refusals_left_out + 1 : 0;
    if (note_write(k, &n) == 0)
        w->refusals_left_out = 0;
}

/* --- the list --- */

static void list_member(struct buf *out, const char *key, struct str value)
{
    buf_putf(out, ",\"%s\":", key);
    json_put_str(out, value);
}

void keeper_list(const struct keeper *k, struct buf *out)
{
    static const char *const states[] = {
        [ENTRY_LIVE] = "live", [ENTRY_REPLACED] = "replaced", [ENTRY_ENDED] = "ended"
    };
    const struct entry *e;
    bool first = true;
    buf_putc(out, '[');
    TAILQ_FOREACH(e, &k->by_use, in_use)
    {
        char at[28];
        if (e->state == ENTRY_ENDED)
            continue;
        buf_putf(out, "%s{\"lease_id\":", first ? "" : ",");
        json_put_str(out, e->id);
        list_member(out, "credential", e->lease->credential);
        list_member(out, "agent", e->lease->agent);
        list_member(out, "host", host_str(&e->shelf->host));
        buf_putf(out, ",\"port\":%u", (unsigned)e->shelf->port);
        list_member(out, "expires_at", str_c(clock_format_us(e->lease->expires_us, at)));
        list_member(out, "state", str_c(states[e->state]));
        buf_putc(out, '}');
        first = false;
    }
    buf_putc(out, ']');
}
