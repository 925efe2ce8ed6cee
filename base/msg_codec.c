/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a message body. Both ends are processes of one build on one machine, so widths are fixed and the byte order
 * is the machine's; a reader that runs past the end says so once and yields zeros. */
#include "base/msg.h"

void msg_writer_init(struct msg_writer *w)
{
    buf_init(&w->buf, MSG_BODY_MAX);
}

static void put(struct msg_writer *w, const void *p, size_t n)
{
    buf_put(&w->buf, str_of(p, n));
}

void msg_put_u8(struct msg_writer *w, uint8_t v)
{
    put(w, &v, sizeof v);
}

void msg_put_u16(struct msg_writer *w, uint16_t v)
{
    put(w, &v, sizeof v);
}

void msg_put_u32(struct msg_writer *w, uint32_t v)
{
    put(w, &v, sizeof v);
}

void msg_put_u64(struct msg_writer *w, uint64_t v)
{
    put(w, &v, sizeof v);
}

void msg_put_str(struct msg_writer *w, struct str s)
{
    if (s.n > MSG_BODY_MAX) {
        w->buf.failed = true;
        return;
    }
    msg_put_u32(w, (uint32_t)s.n);
    buf_put(&w->buf, s);
}

struct msg_reader msg_reader(struct str body)
{
    return (struct msg_reader) { .p = body.p, .n = body.n };
}

static void get(struct msg_reader *r, void *out, size_t n)
{
    if (r->bad || r->n < n) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->p, n);
    r->p += n;
    r->n -= n;
}

uint8_t msg_get_u8(struct msg_reader *r)
{
    uint8_t v;
    get(r, &v, sizeof v);
    return v;
}

uint16_t msg_get_u16(struct msg_reader *r)
{
    uint16_t v;
    get(r, &v, sizeof v);
    return v;
}

uint32_t msg_get_u32(struct msg_reader *r)
{
    uint32_t v;
    get(r, &v, sizeof v);
    return v;
}

uint64_t msg_get_u64(struct msg_reader *r)
{
    uint64_t v;
    get(r, &v, sizeof v);
    return v;
}

struct str msg_get_str(struct msg_reader *r, size_t max)
{
    uint32_t n = msg_get_u32(r);
    if (r->bad || n > max || n > r->n) {
        r->bad = true;
        return STR_NONE;
    }
    struct str s = str_of(r->p, n);
    r->p += n;
    r->n -= n;
    return s;
}

bool msg_reader_end(const struct msg_reader *r)
{
    return !r->bad && r->n == 0;
}
