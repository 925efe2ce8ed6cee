/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream of a server over TLS. The first byte says into how many pieces the rest is cut; a frame whose message
 * begins with 0xff has its id, flags and question replaced by those of a question under way, so that what is behind
 * them is reached. What the pieces give must be what the whole gives: as many answers, each to another question, and
 * never more late ones than were given up. */
#include "base/clock.h"
#include "dns/pipeline.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { QUESTIONS = 8, GIVEN_UP = 2 };

/* In place of base/clock.c: ids that are the same each time. */
static unsigned drawn;
void rand_bytes(void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)(drawn++ * 37 >> 3);
}
uint64_t clock_mono_ms(void)
{
    return 1;
}
uint64_t clock_mono_us(void)
{
    return 1000;
}
int64_t clock_wall_us(void)
{
    return 1000;
}

struct question {
    struct pipeline_ask ask;
    struct wire_query wire;
    bool waits;
};

struct counts {
    size_t answers, late;
    bool broken;
};

static void put_all(struct pipeline *p, struct question *q)
{
    static const unsigned char plain[WIRE_CHANCE];
    drawn = 0;
    pipeline_init(p);
    for (size_t i = 0; i < QUESTIONS; i++) {
        q[i] = (struct question) { .waits = true };
        q[i].ask.wire = &q[i].wire;
        if (wire_query_make(&q[i].wire, i & 1 ? STR("a.test") : STR("www.b.example.test"), WIRE_A, plain) < 0 ||
            pipeline_put(p, &q[i].ask) < 0)
            abort();
    }
    for (size_t i = 0; i < GIVEN_UP; i++) {
        pipeline_remove(p, &q[i].ask);
        q[i].waits = false;
    }
}

/* Makes answers of the frames that say so; in the same order whatever the ids are. */
static void fit(unsigned char *b, size_t size, const struct question *q)
{
    for (size_t at = 0; at + 2 <= size;) {
        size_t n = (size_t)(b[at] << 8 | b[at + 1]);
        const struct wire_query *w = &q[at + 2 < size && n ? b[at + 3 < size ? at + 3 : at + 2] % QUESTIONS : 0].wire;
        if (at + 2 + n <= size && n >= w->n && b[at + 2] == 0xff) {
            unsigned char *m = b + at + 2;
            unsigned char low[2] = { (unsigned char)((m[2] & 7) | 0x80), m[3] };
            memcpy(m, w->bytes, w->n);
            m[2] = low[0];
            m[3] = low[1];
        }
        at += 2 + n;
    }
}

static struct counts play(const uint8_t *data, size_t size, size_t pieces)
{
    struct pipeline p;
    struct question q[QUESTIONS];
    struct counts c = { 0 };
    unsigned char *b = malloc(size + 1);
    if (!b)
        abort();
    put_all(&p, q);
    memcpy(b, data, size);
    fit(b, size, q);
    size_t step = size / pieces + 1;
    for (size_t at = 0; at < size && !c.broken; at += step) {
        if (buf_put(&p.in, str_of(b + at, size - at < step ? size - at : step)) < 0)
            break; /* more than is ever read at once */
        for (bool more = true; more;) {
            struct pipeline_ask *ask;
            struct str packet;
            switch (pipeline_next(&p, &ask, &packet)) {
            case PIPELINE_NONE:
                more = false;
                break;
            case PIPELINE_ANSWER:
                if (!((struct question *)ask)->waits || !wire_echoes(ask->wire, packet))
                    abort();
                ((struct question *)ask)->waits = false;
                c.answers++;
                break;
            case PIPELINE_REFUSED:
                if (!((struct question *)ask)->waits || packet.n != 12 || (packet.p[3] & 15) == 0)
                    abort();
                ((struct question *)ask)->waits = false;
                c.answers++;
                break;
            case PIPELINE_LATE:
                c.late++;
                break;
            case PIPELINE_BROKEN:
                c.broken = true;
                more = false;
                break;
            }
        }
    }
    if (c.late > GIVEN_UP || c.answers + p.waiting != QUESTIONS - GIVEN_UP)
        abort();
    while (pipeline_lost(&p))
        ;
    pipeline_done(&p);
    free(b);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > PIPELINE_READ)
        return 0;
    struct counts whole = play(data + 1, size - 1, 1), cut = play(data + 1, size - 1, (size_t)data[0] + 1);
    if (whole.answers != cut.answers || whole.late != cut.late || whole.broken != cut.broken)
        abort();
    return 0;
}
