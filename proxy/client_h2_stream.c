/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/client_h2_stream.h"

#include "proxy/agent_table.h"

#include <stdlib.h>

enum {
    BODY_MAX = 1024 * 1024, /* of a body, unsent, ever: what an exchange adds to H2_STREAM_HIGH at once, scrubbed */
    FREE_BYTES = 256,       /* of bodies that allow one more control frame: Go gives window back for every piece that it reads */
    FREE_FRAMES = 2,        /* that each DATA frame allows: a WINDOW_UPDATE for the stream and one for the connection */
};

struct client_stream *h2_stream_at(nghttp2_session *session, int32_t id)
{
    return id ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

/* --- lists --- */

void h2_mark_dirty(struct client_stream *s)
{
    struct client_h2 *h = s->c->h2;
    if (s->in_dirty)
        return;
    s->in_dirty = true;
    s->next_dirty = h->dirty;
    h->dirty = s;
}

void h2_mark_room(struct client_stream *s)
{
    struct client_h2 *h = s->c->h2;
    s->starved = false;
    if (s->in_room)
        return;
    s->in_room = true;
    s->next_room = h->room;
    h->room = s;
}

static void unmark(struct client_stream *s)
{
    struct client_stream **at;
    for (at = &s->c->h2->dirty; s->in_dirty && *at; at = &(*at)->next_dirty)
        if (*at == s) {
            *at = s->next_dirty;
            break;
        }
    for (at = &s->c->h2->room; s->in_room && *at; at = &(*at)->next_room)
        if (*at == s) {
            *at = s->next_room;
            break;
        }
}

/* --- a stream's life --- */

struct client_stream *h2_stream_new(struct client *c, int32_t id)
{
    struct client_h2 *h = c->h2;
    struct client_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->c = c;
    s->id = id;
    h2_head_init(&s->head);
    buf_init(&s->in, BODY_MAX);
    buf_init(&s->out, BODY_MAX + 2 * H2_STREAM_HIGH);
    s->next = h->streams;
    s->link = &h->streams;
    if (s->next)
        s->next->link = &s->next;
    h->streams = s;
    h->nstreams++;
    return s;
}

void h2_drop_held(struct client_stream *s)
{
    fair_give(&s->c->w->h2_held, s->owner, buf_size(&s->in));
    buf_done(&s->in);
}

bool h2_keep_answer(struct client_stream *s, struct str data)
{
    struct worker *w = s->c->w;
    if (!fair_take(&w->h2_answers, s->owner, data.n, s->c->view->limits->h2_answer_bytes))
        return false;
    if (buf_put(&s->out, data) == 0)
        return true;
    fair_give(&w->h2_answers, s->owner, data.n);
    return false;
}

void h2_answer_gone(struct client_stream *s, size_t n)
{
    buf_consume(&s->out, n);
    fair_give(&s->c->w->h2_answers, s->owner, n);
}

void h2_stream_free(struct client_stream *s)
{
    unmark(s);
    h2_drop_held(s);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    s->c->h2->nstreams--;
    h2_head_done(&s->head);
    h2_answer_gone(s, buf_size(&s->out));
    buf_done(&s->out);
    free(s->trailers);
    free(s);
}

/* --- budgets --- */

void h2_end_connection(struct client *c, uint32_t code, const char *why)
{
    struct client_h2 *h = c->h2;
    if (h->fault)
        return;
    h->fault = why;
    h->goodbye = true;
    nghttp2_session_terminate_session(h->session, code);
}

/* A DATA frame with so many bytes, either way. */
void h2_carried(struct client *c, size_t n)
{
    struct client_h2 *h = c->h2;
    h->carried += n;
    bucket_give(&h->control, FREE_FRAMES + h->carried / FREE_BYTES, c->view->limits->h2_control_burst);
    h->carried %= FREE_BYTES;
}

void h2_count_control(struct client *c)
{
    const struct limits *lim = c->view->limits;
    if (!bucket_take(&c->h2->control, lim->h2_control_burst, lim->h2_control_rate, loop_now_ms(c->w->loop)))
        h2_end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "HTTP/2: more frames that carry nothing than limits.h2_control_burst and h2_control_rate");
}

void h2_count_reset(struct client *c)
{
    const struct limits *lim = c->view->limits;
    uint64_t now = loop_now_ms(c->w->loop);
    if (!bucket_take(&c->h2->resets, lim->h2_resets_burst, lim->h2_resets_rate, now) ||
        (c->agent_state && !agent_reset_fits(c->agent_state, lim, now)))
        h2_end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "HTTP/2: more streams that end by a reset than limits.h2_resets_burst and h2_resets_rate");
}

/* --- towards the session --- */

void h2_reset(struct client_stream *s, uint32_t code)
{
    if (s->closed)
        return;
    s->closed = true;
    nghttp2_submit_rst_stream(s->c->h2->session, NGHTTP2_FLAG_NONE, s->id, code);
}

void h2_give_window(struct client_stream *s, size_t n)
{
    nghttp2_session_consume_stream(s->c->h2->session, s->id, n);
    s->c->h2->want_output = true; /* a WINDOW_UPDATE, perhaps */
}
