/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pipeline.h"

#include "base/clock.h"
#include "base/log.h"

enum { HEADER = 12 };

void pipeline_init(struct pipeline *p)
{
    *p = (struct pipeline) { .waiting = 0 };
    buf_init(&p->in, PIPELINE_IN_MAX);
    buf_init(&p->out, PIPELINE_OUT_MAX);
}

void pipeline_done(struct pipeline *p)
{
    MUST(p->waiting == 0);
    buf_done(&p->in);
    buf_done(&p->out);
}

static struct pipeline_ask **slot_of(struct pipeline *p, const unsigned char id[2])
{
    return &p->slots[id[1] & (PIPELINE_SLOTS - 1)];
}

static bool id_taken(struct pipeline *p, const unsigned char id[2])
{
    for (const struct pipeline_ask *a = *slot_of(p, id); a; a = a->next)
        if (memcmp(a->wire->bytes, id, 2) == 0)
            return true;
    return false;
}

int pipeline_put(struct pipeline *p, struct pipeline_ask *ask)
{
    unsigned char id[2], frame[2 + WIRE_PADDED_MAX];
    do /* far fewer are under way than there are ids */
        rand_bytes(id, sizeof id);
    while (id_taken(p, id));
    memcpy(ask->wire->bytes, id, sizeof id);
    size_t n = wire_query_pad(ask->wire, frame + 2);
    frame[0] = (unsigned char)(n >> 8);
    frame[1] = (unsigned char)n;
    if (buf_room(&p->out) < n + 2 || buf_put(&p->out, str_of(frame, n + 2)))
        return -1;
    ask->link = slot_of(p, id);
    ask->next = *ask->link;
    if (ask->next)
        ask->next->link = &ask->next;
    *ask->link = ask;
    p->waiting++;
    return 0;
}

static void take(struct pipeline *p, struct pipeline_ask *ask)
{
    *ask->link = ask->next;
    if (ask->next)
        ask->next->link = ask->link;
    ask->link = NULL;
    p->waiting--;
}

void pipeline_remove(struct pipeline *p, struct pipeline_ask *ask)
{
    take(p, ask);
    p->owed++;
}

struct pipeline_ask *pipeline_lost(struct pipeline *p)
{
    for (size_t i = 0; i < PIPELINE_SLOTS; i++)
        if (p->slots[i]) {
            struct pipeline_ask *ask = p->slots[i];
            take(p, ask);
            return ask;
        }
    return NULL;
}

/* A response under this id of a header alone, whose code is a failure. */
static bool bare_failure(const struct wire_query *q, const unsigned char *m, size_t n)
{
    static const unsigned char nothing[8];
    unsigned rcode = m[3] & 15;
    return n == HEADER && memcmp(m, q->bytes, 2) == 0 && (m[2] & 0xf8) == 0x80 && memcmp(m + 4, nothing, 8) == 0 &&
           rcode != WIRE_NOERROR && rcode != WIRE_NXDOMAIN;
}

enum pipeline_got pipeline_next(struct pipeline *p, struct pipeline_ask **ret_ask, struct str *ret_packet)
{
    struct str in = buf_str(&p->in);
    const unsigned char *b = (const unsigned char *)in.p;
    size_t n = in.n < 2 ? 0 : (size_t)(b[0] << 8 | b[1]);
    if (in.n >= 2 && n < HEADER)
        return PIPELINE_BROKEN;
    if (in.n < 2 || in.n - 2 < n) {
        buf_release_if_empty(&p->in);
        return PIPELINE_NONE;
    }
    struct str packet = str_sub(in, 2, n);
    buf_consume(&p->in, n + 2);
    p->messages++;
    for (struct pipeline_ask *a = *slot_of(p, b + 2); a; a = a->next) {
        bool answer = wire_echoes(a->wire, packet);
        if (!answer && !bare_failure(a->wire, b + 2, n))
            continue;
        take(p, a);
        *ret_ask = a;
        *ret_packet = packet;
        return answer ? PIPELINE_ANSWER : PIPELINE_REFUSED;
    }
    if (p->owed == 0)
        return PIPELINE_BROKEN;
    p->owed--;
    return PIPELINE_LATE;
}
