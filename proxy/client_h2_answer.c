/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange sends back, as frames: heads at once, bodies as their windows allow. */
#include "proxy/client_h2_stream.h"

#include "proxy/h2_field.h"
#include "proxy/reply.h"

#include <stdio.h>
#include <stdlib.h>

static struct buf names = { .max = 1024 * 1024 }; /* one thread, used within one call, as is: */
static nghttp2_nv nva[H1_FIELDS_MAX + 4];

/* Fields behind the first k of nva, their names in lower case. Returns how many there are then; 0: out of memory. */
static size_t put_fields(size_t k, const struct field *f, size_t n)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++)
        total += f[i].name.n;
    buf_reset(&names);
    char *p = buf_reserve(&names, total);
    if (!p)
        return 0;
    for (size_t i = 0; i < n && k < sizeof nva / sizeof *nva; i++) {
        buf_put_lower(&names, f[i].name); /* for which there is room: it stays where it is */
        nva[k++] = h2_field_nv(str_of(p, f[i].name.n), f[i].value, false);
        p += f[i].name.n;
    }
    return k;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *p, size_t max, uint32_t *flags, nghttp2_data_source *source,
                         void *user)
{
    (void)p, (void)source, (void)user;
    struct client_stream *s = h2_stream_at(session, id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = buf_size(&s->out);
    bool last = n <= max;
    n = last ? n : max;
    if (last && s->cut && !n)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* RST_STREAM INTERNAL_ERROR */
    if (!n && !s->out_end) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    if (last && s->out_end) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->ntrailers) {
            size_t k = put_fields(0, s->trailers, s->ntrailers);
            if (!k || nghttp2_submit_trailer(session, id, nva, k))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        }
    }
    return (ssize_t)n;
}

int h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source, void *user)
{
    (void)source;
    struct client *c = user;
    struct client_stream *s = h2_stream_at(session, frame->hd.stream_id);
    if (buf_size(&c->out) >= H2_OUT_HIGH)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (!s || n > buf_size(&s->out))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    buf_put(&c->out, str_of(head, 9));
    buf_put(&c->out, str_sub(buf_str(&s->out), 0, n));
    h2_answer_gone(s, n);
    if (!buf_size(&s->out))
        worker_take_back(c->w, &s->out);
    h2_carried(c, n);
    s->moved_ms = loop_now_ms(c->w->loop);
    if (s->starved && buf_size(&s->out) <= H2_STREAM_HIGH / 2)
        h2_mark_room(s);
    return c->out.failed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void wake(struct client_stream *s)
{
    if (!s->deferred)
        return;
    s->deferred = false;
    nghttp2_session_resume_data(s->c->h2->session, s->id);
}

static void answer_interim(struct client *c, struct exchange *x, const struct answer *a)
{
    struct client_stream *s = x->client_stream;
    char status[12];
    if (!s || s->closed)
        return;
    snprintf(status, sizeof status, "%u", a->status);
    size_t k = put_fields(1, a->fields, a->nfields);
    nva[0] = h2_field_nv(STR(":status"), str_c(status), false);
    if (k)
        nghttp2_submit_headers(c->h2->session, NGHTTP2_FLAG_NONE, s->id, NULL, nva, k, NULL);
}

/* Head and, where whole is given, an answer that ends with it. */
static void submit(struct client_stream *s, unsigned status, const struct field *fields, size_t n, bool has_length, uint64_t length, bool body)
{
    char code[12], size[24];
    nghttp2_data_provider from = { .source = { .ptr = s }, .read_callback = read_body };
    s->answered = true;
    snprintf(code, sizeof code, "%u", status);
    snprintf(size, sizeof size, "%llu", (unsigned long long)length);
    size_t k = put_fields(1, fields, n);
    nva[0] = h2_field_nv(STR(":status"), str_c(code), false);
    if (k && has_length && k < sizeof nva / sizeof *nva)
        nva[k++] = h2_field_nv(STR("content-length"), str_c(size), false);
    if (!k || nghttp2_submit_response(s->c->h2->session, s->id, nva, k, body ? &from : NULL))
        h2_reset(s, NGHTTP2_INTERNAL_ERROR);
}

static void answer_head(struct client *c, struct exchange *x, const struct answer *a)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    if (a->switched) { /* RFC 8441 5: 200 says it, frames follow both ways */
        submit(s, 200, a->fields, a->nfields, false, 0, true);
        return;
    }
    /* Without a body the head ends the stream: gRPC tells an answer of trailers alone by that. */
    submit(s, a->status, a->fields, a->nfields, a->has_length, a->length, !a->no_body && !(a->has_length && !a->length));
}

static void answer_body(struct client *c, struct exchange *x, struct str data)
{
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    worker_lend(c->w, &s->out);
    if (!buf_size(&s->out))
        s->moved_ms = loop_now_ms(c->w->loop);
    if (h2_keep_answer(s, data))
        wake(s);
    else if (s->out.failed)
        h2_reset(s, NGHTTP2_INTERNAL_ERROR);
    else
        exchange_stop(x, END_RATE_LIMITED, "the answers that wait for their clients are more than the agent's share of limits.h2_answer_bytes");
}

static void keep_trailers(struct client_stream *s, const struct field *trailers, size_t n)
{
    size_t size = n * sizeof *trailers;
    for (size_t i = 0; i < n; i++)
        size += trailers[i].name.n + trailers[i].value.n;
    struct field *f = n ? malloc(size) : NULL;
    if (n && !f)
        h2_reset(s, NGHTTP2_INTERNAL_ERROR); /* rather than without them: they may say how it ended */
    if (!f)
        return;
    char *p = (char *)(f + n);
    for (size_t i = 0; i < n; i++) {
        struct str parts[] = { trailers[i].name, trailers[i].value }, *to[] = { &f[i].name, &f[i].value };
        for (size_t j = 0; j < 2; j++) {
            if (parts[j].n)
                memcpy(p, parts[j].p, parts[j].n);
            *to[j] = str_of(p, parts[j].n);
            p += parts[j].n;
        }
    }
    s->trailers = f;
    s->ntrailers = n;
}

static void answer_end(struct client *c, struct exchange *x, const struct field *trailers, size_t n)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    keep_trailers(s, trailers, n);
    s->out_end = true;
    wake(s);
}

static void answer_refusal(struct client *c, struct exchange *x, enum end end)
{
    struct client_stream *s = x->client_stream;
    struct reply r;
    reply_make(x, end, false, &r);
    if (s && !s->closed) {
        struct str body = str_eq(x->req.method, STR("HEAD")) ? STR("") : buf_str(&r.body);
        s->moved_ms = loop_now_ms(c->w->loop);
        bool lost = body.n && !h2_keep_answer(s, body);
        s->out_end = true;
        bool grpc = !buf_size(&r.body);
        submit(s, r.status, r.fields, r.nfields, !grpc, lost ? 0 : buf_size(&r.body), body.n && !lost);
    } else {
        x->status = 0; /* it got none */
    }
    reply_done(&r);
}

static void answer_cut(struct client *c, struct exchange *x)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed)
        return;
    if (x->end == END_RATE_LIMITED) { /* what it has of the answer is what there is too much of */
        h2_reset(s, NGHTTP2_ENHANCE_YOUR_CALM);
        return;
    }
    s->cut = true; /* behind what it has of the answer */
    wake(s);
}

/* Written when this event is worked on, together with what other streams have by then: many answers, one system call. */
static void flush(struct client *c, struct exchange *x)
{
    (void)x;
    c->h2->want_output = true;
    if (!c->h2->busy && c->state == CLIENT_H2)
        loop_defer(c->w->loop, &c->resume);
}

static bool full(struct client *c, const struct exchange *x)
{
    (void)c;
    struct client_stream *s = x->client_stream;
    if (!s || s->closed || buf_size(&s->out) < H2_STREAM_HIGH)
        return false;
    return s->starved = true;
}

static void later(struct client *c)
{
    if (c->h2->want_output)
        loop_defer(c->w->loop, &c->resume);
}

static void more(struct client *c, struct exchange *x)
{
    struct client_stream *s = x->client_stream;
    bool outer = !c->h2->busy;
    if (!s)
        return;
    c->h2->busy = true; /* the stream must outlive what its body sets off */
    h2_push_body(s);
    if (s->x == x)
        exchange_request_flush(x);
    if (!outer)
        return;
    c->h2->busy = false;
    later(c);
}

static void done(struct client *c, struct exchange *x)
{
    struct client_stream *s = x->client_stream;
    if (!s)
        return;
    x->client_stream = NULL;
    s->x = NULL;
    size_t n = buf_size(&s->in);
    h2_drop_held(s);
    h2_head_done(&s->head);
    if (!s->closed && !s->out_end && !s->cut && c->state != CLIENT_DEAD) /* nothing ends it: its client left in the middle of it */
        h2_reset(s, NGHTTP2_CANCEL);
    if (n && !s->closed && c->state != CLIENT_DEAD)
        h2_give_window(s, n);
    c->h2->want_output = true;
    if (c->state != CLIENT_DEAD && !c->h2->busy)
        later(c);
}

const struct client_ops client_h2_ops = { answer_interim, answer_head, answer_body, answer_end, answer_refusal, answer_cut,
                                          flush,          full,        more,        done };
