/* SPDX-License-Identifier: Apache-2.0
 *
 * The two pumps of an exchange, which run independently: the request's body towards the origin, past the body watch; the answer
 * towards the client, through the scrubber. Both are driven by whoever has bytes, and stop when the other end is full. */
#include "proxy/exchange.h"

#include "base/log.h"
#include "proxy/exchange_steps.h"
#include "proxy/exchange_ws.h"
#include "proxy/pool.h"
#include "proxy/record.h"
#include "proxy/rewrite.h"

#include <stdio.h>

/* --- deadlines --- */

void exchange_touch(struct exchange *x)
{
    const struct rule *r = x->verdict.rule;
    uint64_t ms = x->switched ? exchange_ws_idle_ms(x) : r && r->idle_ms ? r->idle_ms : x->view->limits->idle_timeout;
    if (!x->head_sent && x->request_sent && !(r && r->idle_ms))
        ms = x->view->limits->response_timeout;
    if (x->origin && x->oops->full(x) && ms > x->view->limits->write_timeout)
        ms = x->view->limits->write_timeout; /* it takes nothing of what we have for it */
    exchange_wait(x, ms);
}

/* --- the request's body --- */

bool exchange_takes_body(const struct exchange *x)
{
    return x->step == STEP_STREAM && !x->request_sent && x->origin && !x->oops->full(x) && !(x->switched && exchange_ws_stalled(x));
}

void exchange_forget_replay(struct exchange *x)
{
    x->replayable = false;
    x->w->replay_bytes -= buf_size(&x->replay);
    buf_done(&x->replay);
}

static void keep_for_replay(struct exchange *x, struct str data)
{
    if (!x->replayable)
        return;
    if (x->w->replay_bytes + data.n > x->view->limits->replay_bytes || buf_put(&x->replay, data))
        exchange_forget_replay(x);
    else
        x->w->replay_bytes += data.n;
}

void exchange_stream_start(struct exchange *x)
{
    bool again = x->streamed;
    x->streamed = true;
    if (!again) {
        /* Only a connection that served before may be stale, and only a swapped value may be one no more, so only then is the body kept. */
        x->replayable = x->oops->reused(x) || x->plan.n;
        if (x->req.body != H1_BODY_NONE)
            body_watch_init(&x->watch, x->view->placeholder_needles, x->known ? x->known->needles : NULL);
    }
    if (x->tunnel)
        exchange_tunnel_start(x);
    if (x->step == STEP_STREAM)
        x->oops->send_head(x);
    if (x->step != STEP_STREAM)
        return;
    if (again && buf_size(&x->replay))
        x->oops->send_body(x, buf_str(&x->replay));
    if (again && !(x->plan.n && x->remint == REMINT_NONE)) /* no reason is left to send it once more */
        exchange_forget_replay(x);
    exchange_touch(x);
    if (x->req.body == H1_BODY_NONE && !x->request_sent)
        exchange_request_end(x, NULL, 0);
    else if (x->request_sent)
        x->oops->send_end(x, NULL, 0);
    else
        x->cops->more(x->client, x);
    exchange_request_flush(x);
}

void exchange_inert(struct exchange *x, const struct placeholder *ph, const char *where)
{
    struct arena a;
    arena_init(&a, 2048);
    struct str s = arena_printf(&a, "Agent %s sent the placeholder of %.*s to %s in a %s; it was forwarded as it is, inert.", x->agent_name,
                                STR_ARG(ph->credential->name), x->host.name, where);
    record_finding(x, "placeholder_elsewhere", "low", 20, ph, where, s);
    arena_done(&a);
}

bool exchange_watch(struct exchange *x, struct body_watch *watch, struct str data, const char *where)
{
    enum body_sight sight = body_watch_feed(watch, data);
    if (sight == BODY_CLEAN)
        return true;
    if (sight == BODY_PLACEHOLDER) {
        exchange_inert(x, placeholder_at(x->view->placeholders, watch->placeholder_id), where);
        return true;
    }
    struct arena a;
    arena_init(&a, 2048);
    struct str s = arena_printf(&a, "Agent %s sent a live real value to %s in a %s; it was cut before that part left.", x->agent_name,
                                x->host.name, where);
    record_finding(x, "exfiltration", "critical", 100, NULL, where, s);
    arena_done(&a);
    char why[64];
    snprintf(why, sizeof why, "a live real value in %s %s", x->req.body != H1_BODY_NONE && !x->tunnel ? "the" : "a", where);
    exchange_end(x, END_EXFILTRATION, why);
    return false;
}

static bool watch_body(struct exchange *x, struct str data)
{
    return exchange_watch(x, &x->watch, data, x->tunnel ? "tunnel" : "body");
}

void exchange_request_body(struct exchange *x, struct str data)
{
    if (x->step != STEP_STREAM || x->request_sent || !data.n)
        return;
    x->bytes_in += data.n;
    if (x->switched) {
        exchange_ws_from_client(x, data);
        if (x->step == STEP_STREAM)
            exchange_touch(x);
        return;
    }
    uint64_t most = x->view->limits->body_bytes;
    if (x->tunnel)
        exchange_tunnel_renew(x);
    else if (most && x->bytes_in > most) {
        exchange_end(x, END_TOO_LARGE, "the body is longer than limits.body_bytes");
        return;
    }
    if (!watch_body(x, data))
        return;
    keep_for_replay(x, data);
    x->oops->send_body(x, data);
    exchange_touch(x);
}

void exchange_request_end(struct exchange *x, const struct field *trailers, size_t n)
{
    if (x->step != STEP_STREAM || x->request_sent)
        return;
    if (x->switched) {
        exchange_ws_client_end(x);
        return;
    }
    struct field pass[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which k are set */
    size_t k = 0;
    for (size_t i = 0; i < n && k < sizeof pass / sizeof *pass; i++)
        if (rewrite_trailer_passes(trailers[i].name))
            pass[k++] = trailers[i];
    if (k)
        exchange_forget_replay(x);
    for (size_t i = 0; i < k; i++) { /* a trailer is a place for data like any other */
        if (!watch_body(x, pass[i].value))
            return;
    }
    x->request_sent = true;
    x->oops->send_end(x, pass, k);
    exchange_touch(x);
    if (x->tunnel)
        exchange_tunnel_settle(x);
}

void exchange_request_flush(struct exchange *x)
{
    if (x->step != STEP_STREAM || !x->origin)
        return;
    bool waited = x->oops->full(x);
    if (x->switched) {
        waited |= exchange_ws_stalled(x);
        exchange_ws_origin_room(x);
        if (x->step != STEP_STREAM || !x->origin)
            return;
    }
    x->oops->flush(x);
    /* Where the kernel took all at once, nobody else will say that there is room again. */
    if (waited && exchange_takes_body(x))
        x->cops->more(x->client, x);
    else if (x->step == STEP_STREAM && x->origin && x->oops->full(x))
        exchange_touch(x);
}

void exchange_origin_room(struct exchange *x)
{
    if (x->step != STEP_STREAM)
        return;
    exchange_touch(x);
    if (x->tunnel)
        exchange_tunnel_settle(x);
    if (x->step == STEP_STREAM && !x->request_sent)
        x->cops->more(x->client, x);
    exchange_request_flush(x);
}

/* --- the answer --- */

void exchange_refresh_scrub(struct exchange *x)
{
    uint64_t now = lease_client_generation(x->w->leases);
    if (!x->covered || (x->scrubbing && now == x->scrub_generation))
        return;
    struct lease_set *set = NULL;
    struct lease_wait *wait = NULL;
    /* A set that is being fetched or a keeper that is away: what is known stays; no lease can be new to this agent then. */
    if (lease_live(x->w->leases, x->agent, &x->host, &set, NULL, NULL, &wait) == 1) {
        lease_set_unref(&x->live);
        x->live = set;
    }
    lease_cancel(&wait);
    if (x->scrubbing) {
        scrub_update(&x->scrub, x->live);
    } else {
        scrub_init(&x->scrub, x->live);
        x->scrubbing = x->live != NULL;
    }
    x->scrub_generation = now;
}

/* The request's body goes on: it is watched for what is live now. */
static void renew_watch(struct exchange *x)
{
    struct lease_set *set = NULL;
    struct lease_wait *wait = NULL;
    if (lease_live(x->w->leases, x->agent, NULL, &set, NULL, NULL, &wait) == 1) {
        body_watch_renew(&x->watch, set ? set->needles : NULL);
        lease_set_unref(&x->known);
        x->known = set;
    }
    lease_cancel(&wait);
}

void exchange_keep_known(struct worker *w)
{
    for (struct exchange *x = w->exchanges; x; x = x->next) {
        if (x->step != STEP_STREAM)
            continue;
        if (x->tunnel) {
            exchange_tunnel_renew(x);
            continue;
        }
        x->scrub_generation--; /* asked for in any case */
        exchange_refresh_scrub(x);
        if (x->switched)
            exchange_ws_refresh(x, true);
        else if (!x->request_sent)
            renew_watch(x);
    }
}

static bool is_head_request(const struct exchange *x)
{
    return str_eq(x->req.method, STR("HEAD"));
}

static bool is_encoded(const struct h1_head *h)
{
    for (size_t i = 0; i < h->nfields; i++)
        if (h->fields[i].id == H1_CONTENT_ENCODING && !str_eq_nocase(h->fields[i].f.value, STR("identity")))
            return true;
    return false;
}

static bool is_grpc(const struct h1_head *h)
{
    for (size_t i = 0; i < h->nfields; i++)
        if (h->fields[i].id == H1_CONTENT_TYPE)
            return grpc_type(h->fields[i].f.value);
    return false;
}

static bool said_length(const struct h1_head *h, uint64_t *ret)
{
    for (size_t i = 0; i < h->nfields; i++)
        if (h->fields[i].id == H1_CONTENT_LENGTH)
            return str_to_u64(h->fields[i].f.value, INT64_MAX, ret);
    return false;
}

/* Would turning values back into placeholders change how long a body is? */
static bool changes_length(const struct exchange *x)
{
    return x->scrubbing && x->live && !x->live->same_length;
}

static struct field answer_fields[H1_FIELDS_MAX]; /* scratch: one thread, used within one call */

static bool interim(struct exchange *x, const struct h1_head *h)
{
    if (h->status == 101 && x->ws)
        return exchange_ws_open(x, h);
    if (h->status == 101 || ++x->interims > x->view->limits->interim_responses) {
        exchange_end(x, END_ORIGIN_PROTOCOL, h->status == 101 ? "a switch of protocols nobody asked for" : "too many 1xx answers");
        return false;
    }
    if (!x->plan.n)
        exchange_forget_replay(x);
    bool known = x->continued && h->status == 100; /* told already, by the first of two attempts */
    x->continued |= h->status == 100;
    exchange_touch(x);
    if (x->client_http10 || known)
        return true;
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    size_t n = rewrite_answer_fields(x, h, answer_fields, H1_FIELDS_MAX, scratch);
    struct answer a = { .status = h->status, .reason = STR_NONE, .fields = answer_fields, .nfields = n, .no_body = true };
    if (n == SIZE_MAX) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "an interim answer too large to read");
        return false;
    }
    x->cops->interim(x->client, x, &a);
    return x->step == STEP_STREAM;
}

/* Body bytes to the client. Where a length was said they must fit it: scrubbing may have changed it after all (another form of a value
 * than the raw one, a lease that is new since the head). False: the exchange is over. */
static bool give_body(struct exchange *x, struct str data)
{
    if (!data.n)
        return x->step == STEP_STREAM;
    if (x->sized && data.n > x->left) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "scrubbing made the answer longer than it said");
        return false;
    }
    x->left -= x->sized ? data.n : 0;
    x->bytes_out += data.n;
    x->cops->body(x->client, x, data);
    return x->step == STEP_STREAM;
}

void exchange_reflected(struct exchange *x)
{
    if (!x->scrub.hits)
        return;
    struct arena a;
    char times[32] = "once";
    arena_init(&a, 2048);
    if (x->scrub.hits > 1)
        snprintf(times, sizeof times, "%lu times", (unsigned long)x->scrub.hits);
    struct str s = arena_printf(&a, "%s sent back a real value %s; the agent %s saw the placeholder instead.", x->host.name, times, x->agent_name);
    record_finding(x, "credential_reflected", "medium", 50, NULL, "answer", s);
    arena_done(&a);
}

ptrdiff_t exchange_answer_head(struct exchange *x, const struct h1_head *h, struct str in_hand)
{
    exchange_refresh_scrub(x);
    if (h->status < 200)
        return interim(x, h) ? 0 : -1;
    exchange_forget_replay(x);
    if (x->req.websocket == WEBSOCKET_CONNECT && h->status / 100 == 2) { /* to the client it would say that there is one (RFC 8441 5) */
        exchange_end(x, END_ORIGIN_PROTOCOL, "the host answered a WebSocket's opening with success, and opened none");
        return -1;
    }
    bool no_body = is_head_request(x) || h->status == 204 || h->status == 304;
    x->coded = !no_body && is_encoded(h);
    x->is_grpc = is_grpc(h);
    if (x->scrubbing && (x->coded || h->status == 206)) {
        exchange_end(x, END_ORIGIN_PROTOCOL,
                     x->coded ? "an encoded answer where it must be read, though identity was asked for"
                              : "a part of an answer where it must be read whole");
        return -1;
    }
    x->ms_first_byte = (uint32_t)(loop_now_ms(x->w->loop) - x->t_attempt);
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    /* A whole short body is scrubbed first, so that its length can be said. It lies at the beginning of scratch, the fields' values
     * behind it. */
    bool whole = x->scrubbing && !no_body && h->body == H1_BODY_LENGTH && h->length <= in_hand.n;
    bool unread = whole && scrub_feed(&x->scrub, str_sub(in_hand, 0, (size_t)h->length), true, scratch);
    size_t body_n = buf_size(scratch);
    size_t n = rewrite_answer_fields(x, h, answer_fields, H1_FIELDS_MAX, scratch);
    struct answer a = {
        .status = h->status,
        .reason = h->reason,
        .fields = answer_fields,
        .nfields = n,
        .no_body = no_body,
        .has_length = h->body == H1_BODY_LENGTH,
        .length = h->length,
    };
    if (!no_body && h->body == H1_BODY_NONE) { /* HTTP/2: the head ended it */
        a.has_length = true;
        a.length = 0;
    }
    if (no_body) /* the length of what a GET would bring, where it was said (RFC 9110 8.6) */
        a.has_length = h->status != 204 && said_length(h, &a.length);
    if (n == SIZE_MAX || unread) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "an answer too large to read");
        return -1;
    }
    struct buf reason;
    buf_init(&reason, 4096);
    if (x->scrubbing && a.reason.n && scrub_text(x->scrub.set, a.reason, &reason, &x->scrub.hits))
        a.reason = buf_str(&reason);
    struct str body = str_sub(buf_str(scratch), 0, body_n);
    if (whole)
        a.length = body.n;
    else if (!no_body && a.has_length && changes_length(x))
        a.has_length = false;
    if (no_body && a.has_length && changes_length(x) && !is_head_request(x))
        a.has_length = false;
    x->status = h->status;
    x->head_sent = true;
    x->sized = a.has_length && !no_body;
    x->left = x->sized ? a.length : 0;
    x->cops->head(x->client, x, &a);
    buf_done(&reason);
    if (x->step != STEP_STREAM || !give_body(x, body))
        return -1;
    exchange_touch(x);
    return whole ? (ptrdiff_t)h->length : 0;
}

enum { GRPC_BEGUN_MAX = 8 }; /* bytes of a value, in any form, that the end of a message may be */

/* Message by message: nothing of one waits for the next. A value whose placeholder has another length would make the message another
 * than its length says. */
static bool grpc_body(struct exchange *x, struct str data)
{
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    while (data.n) {
        bool end, compressed;
        size_t n = grpc_frames_next(&x->grpc, data, &end, &compressed), before = buf_size(scratch);
        bool unread = compressed || scrub_feed(&x->scrub, str_sub(data, 0, n), false, scratch);
        /* What is held may begin a value: little of it may go now, since the rest would not be known for one. */
        bool within = end && buf_size(&x->scrub.held) > GRPC_BEGUN_MAX;
        unread |= !within && end && scrub_feed(&x->scrub, STR_NONE, true, scratch);
        x->grpc_taken += n;
        x->grpc_given += buf_size(scratch) - before;
        if (unread || within || (end && x->grpc_taken != x->grpc_given)) {
            exchange_end(x, END_ORIGIN_PROTOCOL,
                         within     ? "a gRPC message that ends within what may be a real value"
                         : compressed ? "a compressed gRPC message where it must be read"
                         : unread   ? "an answer that cannot be read"
                                    : "a real value in a gRPC message, whose length would be another");
            return false;
        }
        if (end)
            x->grpc_taken = x->grpc_given = 0;
        data = str_from(data, n);
    }
    return give_body(x, buf_str(scratch));
}

bool exchange_answer_body(struct exchange *x, struct str data)
{
    if (x->step != STEP_STREAM)
        return false;
    exchange_refresh_scrub(x);
    exchange_touch(x);
    if (x->switched)
        return exchange_ws_from_origin(x, data);
    if (!x->scrubbing)
        return give_body(x, data);
    if (x->coded) { /* begun when no value was live */
        exchange_end(x, END_ORIGIN_PROTOCOL, "an encoded answer that must be read now, since a lease became live");
        return false;
    }
    if (x->is_grpc)
        return grpc_body(x, data);
    struct str clean;
    if (scrub_clean(&x->scrub, data, &clean))
        return give_body(x, clean);
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    if (scrub_feed(&x->scrub, data, false, scratch)) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "an answer that cannot be read");
        return false;
    }
    return give_body(x, buf_str(scratch));
}

/* Trailer fields that may pass, scrubbed; values may lie in scratch. */
static size_t pass_trailers(struct exchange *x, const struct field *in, size_t n, struct field *out, size_t max, struct buf *scratch)
{
    size_t k = 0, replaced = 0;
    for (size_t i = 0; i < n && k < max; i++) {
        if (!rewrite_trailer_passes(in[i].name))
            continue;
        out[k] = in[i];
        if (x->scrubbing && rewrite_name_is_value(x, in[i].name, scratch))
            continue;
        if (x->scrubbing)
            rewrite_scrub_value(x, &out[k], k, &replaced, scratch);
        k++;
    }
    if (scratch->failed) /* never an unscrubbed one instead */
        return 0;
    rewrite_scrub_done(out, replaced, scratch);
    return k;
}

void exchange_answer_end(struct exchange *x, const struct field *trailers, size_t n, bool reusable)
{
    if (x->step != STEP_STREAM)
        return;
    if (x->switched) {
        exchange_ws_origin_end(x);
        return;
    }
    struct buf *scratch = &x->w->scratch;
    buf_reset(scratch);
    if (x->scrubbing) {
        if (scrub_feed(&x->scrub, STR_NONE, true, scratch)) {
            exchange_end(x, END_ORIGIN_PROTOCOL, "an answer that cannot be read");
            return;
        }
        if (!give_body(x, buf_str(scratch)))
            return;
    }
    if (x->sized && x->left) {
        exchange_end(x, END_ORIGIN_PROTOCOL, "scrubbing made the answer shorter than it said");
        return;
    }
    struct field pass[H1_TRAILER_FIELDS_MAX] __attribute__((uninitialized)); /* 8 KiB, of which k are set */
    buf_reset(scratch);
    size_t k = x->step == STEP_STREAM ? pass_trailers(x, trailers, n, pass, sizeof pass / sizeof *pass, scratch) : 0;
    if (x->step != STEP_STREAM)
        return;
    x->cops->end(x->client, x, pass, k);
    x->answer_done = true;
    x->oops->release(x, reusable && x->request_sent);
    exchange_end(x, END_OK, NULL);
}

void exchange_answer_flush(struct exchange *x)
{
    if (x->step == STEP_STREAM)
        x->cops->flush(x->client, x);
    if (x->step == STEP_STREAM && x->switched)
        exchange_ws_flushed(x);
}

bool exchange_client_full(const struct exchange *x)
{
    return x->cops->full(x->client, x) || (x->switched && exchange_ws_unread(x));
}

void exchange_client_room(struct exchange *x)
{
    if (x->step == STEP_STREAM && x->origin) {
        exchange_touch(x);
        if (x->switched)
            exchange_ws_client_room(x);
        else
            x->oops->more(x);
    }
}
