/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies. The first byte: low bits the kind, the rest the size of the pieces. However the bytes are cut, the body, its
 * end and the verdict are the same; and what was read, written as chunks of other sizes and read again, is the same
 * body. */
#include "tests/lib/h1_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

struct outcome {
    struct buf data, trailers;
    enum h1_body_event end;
    size_t used;
    bool closed;
};

enum { EXT = 64, TRAILER = 256 };

static struct outcome run(const struct h1_head *h, struct str in, size_t step, size_t trailer_max)
{
    struct outcome o = { .end = H1_BODY_MORE };
    buf_init(&o.data, 1 << 20);
    buf_init(&o.trailers, 1 << 20);
    struct h1_body_in b;
    h1_body_in_init(&b, h, EXT, trailer_max);
    for (size_t have = 0;;) {
        size_t n = in.n - have < step ? in.n - have : step, used;
        have += n;
        struct str data;
        struct h1_fault fault;
        enum h1_body_event e;
        do {
            struct str rest = str_sub(in, o.used, have - o.used);
            e = h1_body_next(&b, rest, &used, &data, &fault);
            if (used > rest.n || (data.n && (data.p < rest.p || data.p + data.n > rest.p + used)))
                die("outside of what was given");
            if (e == H1_BODY_DATA)
                buf_put(&o.data, data);
            if (e == H1_BODY_TRAILERS)
                buf_put(&o.trailers, data);
            o.used += used;
        } while (e == H1_BODY_DATA || e == H1_BODY_TRAILERS);
        o.end = e;
        if (e != H1_BODY_MORE || have == in.n)
            break;
    }
    o.closed = h1_body_closed(&b);
    return o;
}

static void outcome_done(struct outcome *o)
{
    buf_done(&o->data);
    buf_done(&o->trailers);
}

/* The trailer section's fields, as the parser gives them; refused ones are none. */
static size_t trailers_of(struct str section, struct field *out, struct h1_field *fields, size_t max)
{
    const struct h1_limits lim = { .head_bytes = TRAILER * 4, .fields = max };
    size_t n, used;
    if (h1_trailers_parse(section, &lim, fields, &n, &used, NULL) != H1_DONE)
        return 0;
    if (used != section.n)
        die("a trailer section is not read to its end");
    for (size_t i = 0; i < n; i++)
        out[i] = fields[i].f;
    return n;
}

static void write_again(const struct outcome *o, size_t step)
{
    struct h1_head chunked = { .body = H1_BODY_CHUNKED };
    struct h1_field fields[64];
    struct field trailers[64];
    struct buf out;
    buf_init(&out, 1 << 21);
    for (size_t at = 0; at < buf_size(&o->data); at += step)
        h1_put_chunk(&out, str_sub(buf_str(&o->data), at, step));
    size_t n = trailers_of(buf_str(&o->trailers), trailers, fields, 16);
    h1_put_chunk_end(&out, trailers, n);
    if (out.failed)
        die("a body that was read cannot be written");
    struct outcome again = run(&chunked, buf_str(&out), 1000, TRAILER * 4);
    struct field trailers2[64];
    struct h1_field fields2[64];
    if (again.end != H1_BODY_END || again.used != buf_size(&out) || !str_eq(buf_str(&again.data), buf_str(&o->data)))
        die("a body that was written reads differently");
    if (trailers_of(buf_str(&again.trailers), trailers2, fields2, 16) != n)
        die("trailers that were written read differently");
    for (size_t i = 0; i < n; i++)
        if (!str_eq(trailers[i].name, trailers2[i].name) || !str_eq(trailers[i].value, trailers2[i].value))
            die("a trailer that was written reads differently");
    outcome_done(&again);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    static const enum h1_body kinds[] = { H1_BODY_CHUNKED, H1_BODY_CHUNKED, H1_BODY_LENGTH, H1_BODY_UNTIL_CLOSE };
    struct h1_head h = { .body = kinds[data[0] & 3], .length = data[0] & 3 ? data[0] : 0 };
    if (h.body != H1_BODY_LENGTH)
        h.length = 0;
    size_t step = (size_t)(data[0] >> 2) + 1;
    struct str in = str_of(data + 1, size - 1);
    struct outcome whole = run(&h, in, in.n, TRAILER), pieces = run(&h, in, step, TRAILER),
                   bytes = run(&h, in, 1, TRAILER);
    const struct outcome *others[] = { &pieces, &bytes };
    for (size_t i = 0; i < 2; i++)
        if (whole.end != others[i]->end || whole.closed != others[i]->closed ||
            !str_eq(buf_str(&whole.data), buf_str(&others[i]->data)) ||
            !str_eq(buf_str(&whole.trailers), buf_str(&others[i]->trailers)) ||
            (whole.end == H1_BODY_END && whole.used != others[i]->used))
            die("in pieces the body differs");
    if (whole.end == H1_BODY_END || whole.closed)
        write_again(&whole, step);
    outcome_done(&whole);
    outcome_done(&pieces);
    outcome_done(&bytes);
    return 0;
}
