/* SPDX-License-Identifier: Apache-2.0
 *
 * From a connected socket to a connection that may carry a request: the parent proxy's answer, TLS and verification. Nothing of a
 * request, and no credential, is written before the origin has proved its name. */
#include "proxy/origin.h"

#include "policy/origin_trust.h"
#include "proxy/agent_table.h"
#include "proxy/origin_h2.h"
#include "proxy/pool.h"

#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum { IN_MAX = 512 * 1024, OUT_MAX = 1024 * 1024 };

static enum version_known known(const struct exchange *x)
{
    return origin_versions_get(&x->w->versions, &x->host, x->port, loop_now_ms(x->w->loop));
}

static void learn(const struct origin *o, enum version_known what)
{
    origin_versions_set(&o->w->versions, &o->host, o->port, what, loop_now_ms(o->w->loop));
}

bool origin_wants_h2(const struct exchange *x)
{
    if (x->scheme != SCHEME_HTTPS || x->req.upgrade || x->http11_only)
        return false;
    if (str_eq(str_c(x->req.version), STR("2")))
        return true;
    enum version_known k = known(x);
    return k == VERSIONS_UNKNOWN || k == VERSIONS_ONLY_H2;
}

/* Is HTTP/1.1 offered to it only to see whether it has that (still)? */
static bool on_trial(const struct origin *o)
{
    enum version_known k = known(o->x);
    return !o->offered_h2 && !o->x->req.upgrade && !o->x->http11_only && (k == VERSIONS_TOOK_H2 || k == VERSIONS_HAS_H1);
}

static void bury(struct corpse *c)
{
    struct origin *o = (struct origin *)c;
    origin_h2_free(o);
    buf_done(&o->in);
    buf_done(&o->out);
    view_unref(&o->view);
    free(o);
}

void origin_close(struct origin *o)
{
    if (o->state == ORIGIN_DEAD)
        return;
    pool_drop(o->w->pool, o);
    if (o->holder)
        agent_let_go(o->w->agents, o->holder);
    o->holder = NULL;
    o->state = ORIGIN_DEAD;
    o->x = NULL;
    timer_clear(&o->idle);
    watch_del(&o->watch);
    task_cancel(&o->resume);
    task_cancel(&o->write);
    stream_close(&o->stream);
    worker_bury(o->w, &o->corpse, bury);
}

void origin_failed(struct origin *o, enum end end, const char *why)
{
    struct exchange *x = o->x;
    bool stale = o->served > 0 && !o->got_byte;
    if (x) {
        o->x = NULL;
        x->origin = NULL;
    }
    origin_close(o);
    if (x)
        exchange_origin_failed(x, end, why, stale ? LOSS_STALE : LOSS_FINAL);
}

bool origin_write(struct origin *o)
{
    if (o->out.failed) {
        origin_failed(o, END_ORIGIN_PROTOCOL, "the request does not fit its buffer");
        return false;
    }
    if (!buf_size(&o->out))
        return true;
    o->active_ms = loop_now_ms(o->w->loop);
    o->rested = false;
    worker_active(o->w);
    enum io io = stream_write(&o->stream, buf_str(&o->out));
    buf_reset(&o->out);
    if (io == IO_ERROR) {
        /* The write failed, but an answer may be there (an early refusal before a reset): read first. */
        o->keep_alive = false;
        origin_h1_readable(o);
        if (o->state != ORIGIN_DEAD && o->x && !o->in_body && !o->interrupted)
            origin_failed(o, END_ORIGIN_CLOSED, "the connection was lost while the request was sent");
        return false;
    }
    worker_take_back(o->w, &o->out);
    watch_set(&o->watch, io == IO_AGAIN ? o->watch.events | EPOLLOUT : o->watch.events & ~(uint32_t)EPOLLOUT);
    return true;
}

/* --- TLS --- */

static void ready_h2(struct origin *o);

static void note_tls(struct origin *o)
{
    SSL *ssl = o->stream.ssl;
    snprintf(o->tls_version, sizeof o->tls_version, "%s", SSL_get_version(ssl));
    snprintf(o->tls_cipher, sizeof o->tls_cipher, "%s", SSL_get_cipher_name(ssl));
    X509 *cert = SSL_get0_peer_certificate(ssl);
    X509_NAME *issuer = cert ? X509_get_issuer_name(cert) : NULL;
    if (issuer && X509_NAME_get_text_by_NID(issuer, NID_commonName, o->tls_issuer, sizeof o->tls_issuer) < 0)
        X509_NAME_oneline(issuer, o->tls_issuer, sizeof o->tls_issuer);
}

/* It has HTTP/2 and nothing else: nothing was sent yet, another connection offers it that. */
static void other_version(struct origin *o, const char *why)
{
    struct exchange *x = o->x;
    learn(o, VERSIONS_ONLY_H2);
    o->x = NULL;
    x->origin = NULL;
    origin_close(o);
    exchange_origin_failed(x, END_ORIGIN_TLS, why, LOSS_VERSION);
}

static void step_tls(struct origin *o)
{
    enum io io = stream_handshake(&o->stream);
    if (io == IO_OK) {
        const unsigned char *alpn;
        unsigned n;
        SSL_get0_alpn_selected(o->stream.ssl, &alpn, &n);
        bool h2 = str_eq(str_of(alpn, n), STR("h2"));
        if (n && !(h2 && o->offered_h2) && !str_eq(str_of(alpn, n), STR("http/1.1"))) {
            origin_failed(o, END_ORIGIN_TLS, "the host chose a protocol that was not offered");
            return;
        }
        if (!n && on_trial(o)) {
            other_version(o, "the host did not choose the protocol that was offered");
            return;
        }
        if (n && !h2 && known(o->x) != VERSIONS_HAS_H1)
            learn(o, VERSIONS_HAS_H1);
        else if (h2 && known(o->x) == VERSIONS_UNKNOWN)
            learn(o, VERSIONS_TOOK_H2);
        note_tls(o);
        if (h2)
            ready_h2(o);
        else
            origin_ready(o);
        return;
    }
    if (io == IO_AGAIN) {
        watch_set(&o->watch, stream_waiting(&o->stream) ? EPOLLIN | EPOLLOUT : EPOLLIN);
        return;
    }
    char why[160], refused[150];
    const char *cert = origin_trust_why(o->stream.ssl, refused, sizeof refused);
    snprintf(why, sizeof why, "TLS: %s", cert ? cert : io == IO_ERROR ? stream_error(&o->stream) : "the host closed the connection");
    if (!cert && on_trial(o))
        other_version(o, why);
    else
        origin_failed(o, END_ORIGIN_TLS, why);
}

static void start_tls(struct origin *o)
{
    o->state = ORIGIN_TLS;
    o->offered_h2 = origin_wants_h2(o->x);
    SSL *ssl = origin_tls_start(o->view->origin_tls, &o->host, o->offered_h2, o->w->sessions, str_of(o->key, o->key_n));
    if (!ssl || stream_tls(&o->stream, ssl)) {
        origin_failed(o, END_ORIGIN_TLS, "TLS: out of memory");
        return;
    }
    step_tls(o);
}

/* --- the parent proxy --- */

static void start_parent(struct origin *o)
{
    o->state = ORIGIN_PARENT;
    /* The vetted address where we resolved it ourselves; the name where the parent resolves. */
    struct buf at;
    buf_init(&at, 512);
    if (o->addr[0])
        buf_put(&at, str_c(o->addr));
    else
        authority_put(&at, &o->host, o->port, 0);
    buf_put(&o->out, STR("CONNECT "));
    buf_put(&o->out, buf_str(&at));
    buf_put(&o->out, STR(" HTTP/1.1\r\nHost: "));
    buf_put(&o->out, buf_str(&at));
    buf_put(&o->out, STR("\r\n"));
    buf_done(&at);
    if (o->view->parent_login.p)
        h1_put_field(&o->out, STR("Proxy-Authorization"), o->view->parent_login);
    buf_put(&o->out, STR("\r\n"));
    enum io io = stream_write(&o->stream, buf_str(&o->out));
    buf_reset(&o->out);
    if (io == IO_ERROR)
        origin_failed(o, END_ORIGIN_CONNECT, "the parent proxy closed the connection");
}

static void step_parent(struct origin *o)
{
    char *p = buf_reserve(&o->in, 4096);
    size_t n;
    enum io io = p ? stream_read(&o->stream, p, 4096, &n) : IO_ERROR;
    if (io == IO_AGAIN)
        return;
    if (io != IO_OK) {
        origin_failed(o, END_ORIGIN_CONNECT, "the parent proxy closed the connection");
        return;
    }
    buf_wrote(&o->in, n);
    const struct limits *lim = o->view->limits;
    struct h1_limits hl = { lim->head_bytes, lim->header_fields, lim->target_bytes };
    struct h1_head h;
    struct h1_fault fault;
    enum h1_result r = h1_response_parse(buf_str(&o->in), STR("CONNECT"), &hl, o->w->fields, &o->head_from, &h, &fault);
    if (r == H1_MORE)
        return;
    bool more = r == H1_DONE && h.bytes != buf_size(&o->in);
    if (more && o->raw && !stream_prefix(&o->stream, str_from(buf_str(&o->in), h.bytes))) /* a server that speaks first */
        more = false;
    if (r != H1_DONE || h.status / 100 != 2 || more) {
        char why[96];
        snprintf(why, sizeof why, "the parent proxy answered %u", r == H1_DONE ? h.status : 0);
        origin_failed(o, END_ORIGIN_CONNECT, r == H1_DONE ? why : "the parent proxy's answer is malformed");
        return;
    }
    buf_done(&o->in);
    o->head_from = 0;
    if (o->scheme == SCHEME_HTTPS)
        start_tls(o);
    else
        origin_ready(o);
}

/* --- the connection --- */

static void begin(struct origin *o)
{
    struct exchange *x = o->x;
    o->state = ORIGIN_BUSY;
    watch_set(&o->watch, EPOLLIN);
    /* The resolver timed its part with its own clock. */
    uint64_t spent = loop_now_ms(o->w->loop) - x->t_attempt, before = (uint64_t)x->ms_connect + x->ms_resolve;
    x->ms_tls = spent > before ? (uint32_t)(spent - before) : 0;
}

static void ready_h2(struct origin *o)
{
    struct exchange *x = o->x;
    begin(o);
    if (origin_h2_begin(o)) {
        origin_failed(o, END_ORIGIN_CONNECT, "out of memory");
        return;
    }
    pool_list(o->w->pool, o); /* others may share it at once */
    exchange_origin_ready(x);
}

void origin_ready(struct origin *o)
{
    struct exchange *x = o->x;
    if (o->raw) {
        o->state = ORIGIN_BUSY;
        watch_set(&o->watch, 0); /* until it is on record */
        exchange_origin_ready(x);
        return;
    }
    begin(o);
    origin_h1_begin(o);
    origin_h1_readable(o); /* what it said before it was asked answers nothing */
    if (o->state == ORIGIN_BUSY)
        exchange_origin_ready(x);
}

bool origin_rest(struct origin *o)
{
    if (o->rested || o->state == ORIGIN_DEAD)
        return true;
    if (loop_now_ms(o->w->loop) - o->active_ms < WORKER_REST_MS)
        return false;
    stream_rest(&o->stream);
    return o->rested = true;
}

static void on_idle(struct timer *t)
{
    origin_close((struct origin *)((char *)t - offsetof(struct origin, idle)));
}

static void on_event(struct watch *w, uint32_t ev)
{
    struct origin *o = (struct origin *)((char *)w - offsetof(struct origin, watch));
    o->active_ms = loop_now_ms(o->w->loop);
    o->rested = false;
    worker_active(o->w);
    if (o->h2 && o->state != ORIGIN_DEAD) {
        origin_h2_event(o, ev);
        return;
    }
    if (ev & EPOLLOUT && o->state != ORIGIN_TLS) {
        size_t before = buf_size(&o->stream.wire);
        enum io io = stream_flush(&o->stream);
        bool moved = io == IO_OK || buf_size(&o->stream.wire) < before;
        if (io == IO_OK)
            watch_set(&o->watch, o->watch.events & ~(uint32_t)EPOLLOUT);
        else if (io == IO_ERROR)
            ev |= EPOLLIN; /* an answer may be there; otherwise the read finds the end */
        if (o->raw && io == IO_ERROR)
            o->raw_lost = true;
        if (o->raw)
            origin_raw_flushed(o);
        if (o->x && moved)
            exchange_origin_room(o->x);
        if (o->state == ORIGIN_DEAD)
            return;
    }
    switch (o->state) {
    case ORIGIN_NEW:
    case ORIGIN_DEAD:
        break;
    case ORIGIN_PARENT:
        step_parent(o);
        break;
    case ORIGIN_TLS:
        if (stream_waiting(&o->stream))
            stream_flush(&o->stream);
        step_tls(o);
        break;
    case ORIGIN_BUSY:
    case ORIGIN_IDLE:
        if (o->raw)
            origin_raw_event(o, ev);
        else if (ev & (EPOLLIN | EPOLLHUP | EPOLLERR))
            origin_h1_readable(o);
        /* What cannot be switched off would be reported for ever while the client has no room for what the origin left. */
        if (ev & (EPOLLHUP | EPOLLERR) && o->state == ORIGIN_BUSY && !(o->watch.events & EPOLLIN))
            watch_del(&o->watch);
        break;
    }
}

int origin_open(struct exchange *x, int fd)
{
    struct buf key;
    buf_init(&key, 4096);
    pool_key(x, &key);
    struct str k = buf_str(&key);
    struct origin *o = key.failed ? NULL : calloc(1, sizeof *o + k.n);
    if (!o) {
        buf_done(&key);
        struct stream lost;
        stream_init(&lost, fd);
        stream_close(&lost);
        return -1;
    }
    memcpy(o->key, k.p, k.n);
    o->key_n = k.n;
    o->key_hash = str_hash(k);
    buf_done(&key);
    o->w = x->w;
    o->x = x;
    o->view = view_ref(x->view);
    o->host = x->host;
    o->port = x->port;
    o->scheme = x->scheme;
    o->raw = x->tunnel != TUNNEL_NO;
    memcpy(o->addr, x->origin_addr, sizeof o->addr);
    o->idle.cb = on_idle;
    buf_init(&o->in, IN_MAX);
    buf_init(&o->out, OUT_MAX);
    o->out.wipe = true;
    stream_init(&o->stream, fd);
    o->stream.wire.wipe = o->scheme == SCHEME_HTTP; /* what the kernel does not take yet is kept there in clear */
    o->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_event };
    x->origin = o;
    x->oops = o->raw ? &origin_raw_ops : &origin_h1_ops;
    if (watch_add(o->w->loop, &o->watch)) {
        x->origin = NULL;
        origin_close(o);
        return -1;
    }
    if (o->view->config->parent_proxy.given)
        start_parent(o);
    else if (o->scheme == SCHEME_HTTPS)
        start_tls(o);
    else
        origin_ready(o);
    return 0;
}
